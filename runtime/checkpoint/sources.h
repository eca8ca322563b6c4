/* The tensors of all --init files, under the model's names. */
#ifndef PD_SOURCES_H
#define PD_SOURCES_H

#include "shared/safetensors.h"

/* Hugging Face's model.safetensors.index.json: the file of each tensor. */
struct pd_index {
  int n, n_files;
  struct pd_index_entry {
    char *name;
    int file; /* of files */
  } * at;
  char **files; /* unique names, without a folder */
};

/* Parses an index; false after filling `why`, without the path of the index. */
bool pd_index_parse(const char *text, size_t bytes, struct pd_index *to, char *why);
void pd_index_free(struct pd_index *x);

/* A tensor that may be a weight of the model. */
struct pd_source {
  char *name; /* after renames */
  int file;
  const struct pd_entry *entry; /* with the name in the file */
};

struct pd_sources {
  int n, n_files;
  struct pd_source *at; /* sorted by unique names */
  struct pd_source_file {
    char *path;
    struct pd_safetensors content;
    bool is_shard; /* a checkpoint's shard: only weights.NAME count, in the layout of memory */
  } * file;
};

/* Number of shards of the checkpoint step in this folder, from file names; 0: none. With shards of several plans:
 * the largest complete set, or the largest set. */
int pd_count_shards(const char *folder, bool *complete);
/* Opens the n paths of --init: safetensors files, files of torch.save, indices, and folders with a complete checkpoint
 * step, model.safetensors, pytorch_model.bin or an index of one. The first rename OLD=NEW that matches a name replaces it by NEW, whose wildcards
 * (pattern.h) take the text that OLD's matched; each rename must match a name. False after filling `why`. Close in
 * either case. */
bool pd_sources_open(struct pd_sources *s, char *const *paths, int n, char *const *renames, int n_renames,
                     char *why);
/* The renamed name, malloc'd; NULL if the rename does not match. */
char *pd_renamed(const char *rename, const char *name);
/* True for OLD=NEW, both not empty, with the same wildcards in the same order. */
bool pd_rename_check(const char *rename, char *why);
void pd_sources_close(struct pd_sources *s);
/* True for the parameters that an adapter's file has: those of adapters and, by modules_to_save, whole ones. */
bool pd_of_adapter(const char *name);
/* The source with this name, with or without the prefix "transformer.", of an adapter also with
 * PEFT's prefix (as all parameters of pd_of_adapter()), or with its former name (shared/hugging_face.h); NULL: none. */
const struct pd_source *pd_sources_find(const struct pd_sources *s, const char *name);
/* The same without PEFT's prefix: the base model's tensor. */
const struct pd_source *pd_sources_find_base(const struct pd_sources *s, const char *name);
/* On rank 0: warns if config.json next to a file differs from pd_stage.traits, or adapter_config.json from
 * pd_stage.adapter_config. */
void pd_compare_configs(const struct pd_sources *s);
/* The model's value of a field of config.json; NULL: none or unknown. */
const char *pd_trait(const char *name);

/* ---- load_adapters.c ------------------------------------------------------------------------- */

/* False after filling `why`: adapters with settings that pdc does not compute, or a file of adapters without any. */
bool pd_adapters_check(const struct pd_sources *s, char *why);
/* False after filling `why`: a tensor of an adapter is not used. */
bool pd_adapters_used(const struct pd_sources *s, const unsigned char *used, char *why);
/* Help with the --lora of the adapters' adapter_config.json; "": none. */
const char *pd_adapters_help(const struct pd_sources *s);

#endif
