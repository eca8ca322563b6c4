/* Files of torch.save: a zip archive of a pickle, which describes tensors, and their bytes. A reader of the pickle that
 * executes nothing: of the objects a pickle can name it knows tensors, their storages and plain containers, and refuses all
 * others. */
#ifndef PD_PYTORCH_H
#define PD_PYTORCH_H

#include "shared/safetensors.h"

/* The tensors of a file's bytes, which must outlive the result. They are members of the saved dict, or of its member
 * "model", "state_dict", "model_state_dict" or "module". False after filling `why`, without the path. */
bool pd_pytorch_parse(const void *bytes, size_t size, struct pd_safetensors *to, char *why);
/* Of a safetensors file or one of torch.save, by its first bytes. */
bool pd_tensors_parse(const void *bytes, size_t size, struct pd_safetensors *to, char *why);

#endif
