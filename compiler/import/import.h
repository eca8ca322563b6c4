/* `pdc import`: writes a .pdm model from a Hugging Face folder, using config.json and the names and shapes in
 * safetensors. */
#ifndef PDC_IMPORT_H
#define PDC_IMPORT_H

#include "base/base.h"

/* The folder's model, formatted, in the arena; NULL after diagnostics. Weights are optional: without them
 * config.json alone decides. With weights, all model parameters are compared with the tensors. */
char *import_text(const char *folder);
/* Writes the model to `output`; NULL: standard output. */
bool import_folder(const char *folder, const char *output);

#endif
