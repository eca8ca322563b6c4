/* What a checkpoint's step says of itself: DIR/step-N/manifest.json, written once all of its shards are on the disk, so
 * that a step is whole when its manifest is there, and sound when its shards are what the manifest says. pdc reads
 * it, too: no MPI here, and no file is opened. */
#ifndef PD_MANIFEST_H
#define PD_MANIFEST_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

enum { PD_MANIFEST_FORMAT = 1 };
#define PD_MANIFEST_NAME "manifest.json"
/* What the metadata of a shard are named by which one knows that its step has a manifest, if it is whole. */
#define PD_MANIFEST_MARK "manifest"

struct pd_shard_sum { /* of one file: its size, and checksums of its two parts (checksum.h) */
  int64_t bytes, header_bytes;
  uint64_t header, payload;
};

/* A name and what it stands for: a setting, or a checksum as 16 digits. */
struct pd_pair {
  char *name, *value;
};
struct pd_pairs {
  int n;
  struct pd_pair *at;
};

struct pd_manifest_file { /* that the training read */
  char *option, *path;    /* the option that named it */
  int64_t bytes;
  uint64_t sample; /* pd_sampled_checksum */
};

struct pd_manifest {
  int64_t step, samples; /* updates made; samples seen */
  uint64_t seed;
  char *model, *optimizer, *plan, *written; /* plan: its hash; written: the time, for people */
  /* What the model computes, by its parts' names and checksums, whatever the plan; the settings of the training. */
  struct pd_pairs function, settings;
  struct pd_manifest_file *file;
  int n_files;
  struct pd_shard_sum *shard; /* shard i is the file shard-i-of-n.safetensors */
  int n_shards;
};

/* Reads a manifest's text; false after filling `why`, which does not name the file. */
bool pd_manifest_parse(const char *text, size_t bytes, struct pd_manifest *to, char *why);
void pd_manifest_free(struct pd_manifest *m);
/* Its text, malloc'd; NULL: there is no memory. */
char *pd_manifest_print(const struct pd_manifest *m);
/* Whether this file is the shard that the sum is of; false after filling `why`, which does not name it. In two parts: its
 * size and header, at once, and what is behind the header, as fast as the disk gives it. */
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

const char *pd_pair_value(const struct pd_pairs *p, const char *name);      /* NULL: it is not there */
bool pd_pairs_add(struct pd_pairs *p, const char *name, const char *value); /* copies; false: no memory */
void pd_pairs_free(struct pd_pairs *p);

/* N of the folders step-N in a directory, from the newest; malloc'd. Their number, or -1 with errno. */
int pd_list_steps(const char *directory, int64_t **to);
/* The path of one that a name as step-020 or a number beyond all keeps from being listed, in `to` of `size` bytes;
 * false: there is none. */
bool pd_find_misnamed_step(const char *directory, char *to, size_t size);
#define PD_MISNAMED "the directory was renamed: its name is not that of a step, such as step-20"

#endif
