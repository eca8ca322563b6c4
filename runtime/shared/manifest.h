/* The manifest of a checkpoint step, DIR/step-N/manifest.json, is written after all shards are on disk: a step
 * with a manifest is complete, and valid if its shards match the manifest. pdc also uses this file, which is
 * independent of MPI and opens no files. */
#ifndef PD_MANIFEST_H
#define PD_MANIFEST_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

enum { PD_MANIFEST_FORMAT = 1 };
#define PD_MANIFEST_NAME "manifest.json"
/* Metadata name in shards whose step has a manifest once it is complete. */
#define PD_MANIFEST_MARK "manifest"

struct pd_shard_sum { /* size of a shard file, and checksums of header and payload (checksum.h) */
  int64_t bytes, header_bytes;
  uint64_t header, payload;
};

/* A name and its value: a setting, or a checksum as 16 hexadecimal digits. */
struct pd_pair {
  char *name, *value;
};
struct pd_pairs {
  int n;
  struct pd_pair *at;
};

struct pd_manifest_file { /* a file that the training read */
  char *option, *path;    /* option of the file */
  int64_t bytes;
  uint64_t sample; /* pd_sampled_checksum */
};

struct pd_manifest {
  int64_t step, samples; /* updates applied; samples seen */
  uint64_t seed;
  char *model, *optimizer, *plan, *written; /* plan: hash; written: time as text */
  /* Names and checksums of the model's parts, independent of the plan; settings of the training. */
  struct pd_pairs function, settings;
  struct pd_manifest_file *file;
  int n_files;
  struct pd_shard_sum *shard; /* shard i is the file shard-i-of-n.safetensors */
  int n_shards;
};

/* Parses a manifest; false after filling `why`, without the path. */
bool pd_manifest_parse(const char *text, size_t bytes, struct pd_manifest *to, char *why);
void pd_manifest_free(struct pd_manifest *m);
/* The manifest's text, malloc'd; NULL: out of memory. */
char *pd_manifest_print(const struct pd_manifest *m);
/* True if a file matches the sum; else false after filling `why`, without the path. The check in two parts: size
 * and header, which is fast, then the payload, which reads the whole file. */
bool pd_shard_check(const struct pd_shard_sum *sum, const void *at, size_t bytes, char *why);
bool pd_shard_check_header(const struct pd_shard_sum *sum, const void *at, size_t bytes, char *why);
bool pd_shard_check_payload(const struct pd_shard_sum *sum, const void *at, char *why);

/* DIR/best.json: the step of the lowest validation loss. */
#define PD_BEST_NAME "best.json"
struct pd_best {
  int64_t step;
  double loss;
};
bool pd_best_parse(const char *text, size_t bytes, struct pd_best *to);

const char *pd_pair_value(const struct pd_pairs *p, const char *name);      /* NULL: absent */
bool pd_pairs_add(struct pd_pairs *p, const char *name, const char *value); /* copies; false: out of memory */
void pd_pairs_free(struct pd_pairs *p);

/* Lists N of the folders step-N in a directory, newest first, malloc'd. Returns their number, or -1 with errno. */
int pd_list_steps(const char *directory, int64_t **to);
/* Finds a step folder that is not listed because of a name such as step-020 or a number that is too large, and
 * writes its path to `to` of `size` bytes; false: none. */
bool pd_find_misnamed_step(const char *directory, char *to, size_t size);
#define PD_MISNAMED "the directory was renamed: its name is not that of a step, such as step-20"

#endif
