/* Hugging Face folders: their files, and their tensors without weights. */
#ifndef PD_HUGGING_FACE_H
#define PD_HUGGING_FACE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Files beside config.json and the weights, which fine-tuned folders copy: the tokenizer's, and
 * generation_config.json. Ends in NULL. */
extern const char *const pd_folder_files[];

/* True for masks and rotary frequencies, which older versions of transformers saved; newer versions do not read
 * them. */
bool pd_is_unweighted(const char *name);

#ifdef __cplusplus
}
#endif

#endif
