/* Shared by the files of merge/. */
#ifndef PDC_MERGE_INTERNAL_H
#define PDC_MERGE_INTERNAL_H

#include <cjson/cJSON.h>

#include "merge/merge.h"
#include "shared/safetensors.h"

typedef struct File { /* a safetensors file, mapped until the process ends */
  const char *name;
  const void *at;
  size_t bytes;
  struct pd_safetensors content;
} File;
typedef Vec(File) Files;

/* An adapter's pair of tensors, and the tensor that it changes. b NULL: a is the new tensor, of modules_to_save. */
typedef struct Pair {
  const char *layer; /* without b: the tensor's name */
  const struct pd_entry *a, *b, *weight;
} Pair;

typedef struct Adapter {
  File file;
  const char *base;    /* the name of the model that it was trained on; NULL: unknown */
  double scale;        /* lora_alpha / r */
  bool fan_in_fan_out; /* weights are stored transposed */
  const cJSON *config;
  Vec(Pair) pairs;
} Adapter;

/* adapter.c: reads PEFT's folder, and finds the weights in the base's files; false after diagnostics. */
bool adapter_read(const char *folder, Adapter *to);
bool adapter_find(Adapter *adapter, const Files *base, const char *folder);
/* Maps and parses a safetensors file; false after a diagnostic. */
bool file_open(const char *folder, const char *name, File *to);

#endif
