/* `pdc import`: a .pdm model from a Hugging Face folder, its config.json and its safetensors' names and shapes. */
#ifndef PDC_IMPORT_H
#define PDC_IMPORT_H

#include "base/base.h"

/* The folder's model, formatted, in the arena; NULL after diagnostics. Weights may be missing: then config.json alone
 * decides. With weights, the model's parameters were compared with all tensors. */
char *import_text(const char *folder);
/* Writes it to `output`, or to standard output where that is NULL. */
bool import_folder(const char *folder, const char *output);

#endif
