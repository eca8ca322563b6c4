/* `pdc import`: writes a .pdm model from a Hugging Face folder, using config.json and the names and shapes in
 * safetensors. */
#ifndef PDC_IMPORT_H
#define PDC_IMPORT_H

#include "base/base.h"
#include "base/json.h"
#include "shared/safetensors.h"

/* A tensor of a folder. */
typedef struct Tensor {
  const char *name;
  enum pd_dtype dtype;
  int rank;
  int64_t dim[PD_TENSOR_RANK];
  const unsigned char *data, *end; /* mapped until the process ends */
} Tensor;
typedef Vec(Tensor) Tensors;
/* Also finds the tensor by its former name (shared/hugging_face.h). NULL: no such tensor. */
const Tensor *tensors_find(const Tensors *all, const char *name);

/* A folder's model in memory. */
typedef struct Imported {
  const char *folder; /* its path, without slashes at the end */
  const char *name;   /* of the text in diagnostics: "<pdc import DIR>" */
  const char *text;   /* formatted */
  bool has_weights;
  const struct Import *fields; /* for the functions below */
} Imported;

/* False after diagnostics. Weights are optional: without them config.json alone decides. With weights, all model
 * parameters are compared with the tensors. */
bool import_read(const char *folder, Imported *to);
const char *imported_type(const Imported *m); /* model_type */
/* A value that the family's template has, such as "num_attention_heads": "" if unknown or none. */
const char *imported_value(const Imported *m, const char *name);
double imported_number(const Imported *m, const char *name);
const cJSON *imported_config(const Imported *m); /* config.json */
const char *imported_root(const Imported *m);    /* prefix of the tensors' names, such as "model." */
const Tensors *imported_tensors(const Imported *m);
/* Writes the model to `output`; NULL: standard output. */
bool import_folder(const char *folder, const char *output);

#endif
