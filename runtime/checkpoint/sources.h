/* The tensors that --init's files hold, together, under the names that the model has for them. */
#ifndef PD_SOURCES_H
#define PD_SOURCES_H

#include "shared/safetensors.h"

/* What Hugging Face's model.safetensors.index.json says: which file beside it holds which tensor. */
struct pd_index {
  int n, n_files;
  struct pd_index_entry {
    char *name;
    int file; /* of files */
  } * at;
  char **files; /* names without a folder, each once */
};

/* Reads an index's bytes; false after filling `why`, which does not name the index. */
bool pd_index_parse(const char *text, size_t bytes, struct pd_index *to, char *why);
void pd_index_free(struct pd_index *x);

/* A tensor that can be a weight of the model's. */
struct pd_source {
  char *name; /* for the model: renamed */
  int file;
  const struct pd_entry *entry; /* with its name in the file */
};

struct pd_sources {
  int n, n_files;
  struct pd_source *at; /* sorted by name; no name is there twice */
  struct pd_source_file {
    char *path;
    struct pd_safetensors content;
    bool is_shard; /* of a checkpoint: only its weights.NAME count, and they are in memory's order */
  } * file;
};

/* How many shards a checkpoint's step in this folder has, by their names; 0: none. Of steps that two plans left there a
 * complete one, the largest; where none is, the largest. */
int pd_count_shards(const char *folder, bool *complete);
/* Opens the n paths of --init: safetensors files, indices, and folders (those of a checkpoint's step, which must be
 * whole, and those that hold model.safetensors or its index). A name to which a rename OLD=NEW applies, the first of them,
 * becomes NEW, whose wildcards (pattern.h) stand for what OLD's stood for; each must apply to some. False after filling
 * `why`; to be closed either way. */
bool pd_sources_open(struct pd_sources *s, char *const *paths, int n, char *const *renames, int n_renames,
                     char *why);
/* The name that a rename makes of this one: malloc'd; NULL when it does not apply. */
char *pd_renamed(const char *rename, const char *name);
/* Whether it is a rename: OLD=NEW, neither of them empty, with the same wildcards in their order. */
bool pd_rename_check(const char *rename, char *why);
void pd_sources_close(struct pd_sources *s);
/* The source of that name, or NULL; with or without "transformer." in front. */
const struct pd_source *pd_sources_find(const struct pd_sources *s, const char *name);
/* On rank 0: warns of what config.json beside a file says otherwise than pd_stage.traits. */
void pd_compare_configs(const struct pd_sources *s);

#endif
