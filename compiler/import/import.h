/* `pdc import`: writes a .pdm model from a Hugging Face folder, using config.json and the names and shapes in
 * safetensors. */
#ifndef PDC_IMPORT_H
#define PDC_IMPORT_H

#include "base/base.h"

/* A folder's model in memory. */
typedef struct Imported {
  const char *folder; /* its path, without slashes at the end */
  const char *name;   /* of the text in diagnostics: "<pdc import DIR>" */
  const char *text;   /* formatted */
  bool has_weights;
} Imported;

/* False after diagnostics. Weights are optional: without them config.json alone decides. With weights, all model
 * parameters are compared with the tensors. */
bool import_read(const char *folder, Imported *to);
/* Writes the model to `output`; NULL: standard output. */
bool import_folder(const char *folder, const char *output);

#endif
