/* Checkpoints, and files that weights come from: what other folders call, then what the files of this one share. */
#ifndef PD_CHECKPOINT_H
#define PD_CHECKPOINT_H

#include "run/run.h"
#include "shared/manifest.h"
#include "shared/safetensors.h"
#include "update/update.h"

/* ---- load_weights.c -------------------------------------------------------------------------- */

void pd_load_weights(void);      /* collective: W(0) of every rank, from --init */
const char *pd_init_path(int i); /* of the files from which it read; NULL behind the last */

/* ---- agree.c --------------------------------------------------------------------------------- */

/* Collective: ends the launch where a rank has mapped other files than rank 0, from number `first` on, by sizes and
 * samples of their contents, or counts other samples. */
void pd_agree_on_files(int first);
void pd_agree_on_folder(void); /* where --checkpoint's is not the same for all ranks */

/* ---- checkpoint.c, resume.c ------------------------------------------------------------------- */

/* Collective: continues from the newest sound checkpoint in --checkpoint's directory: weights of all versions,
 * moments, pd.first_step, pd_sample_base. False: there is none. */
bool pd_resume(void);
bool pd_checkpoint_check(char *why);    /* rank 0: the directory can be written */
void pd_checkpoint_write(int64_t step); /* this rank's part of the state after `step` updates */
/* By rank, the bytes that --checkpoint-background takes to copy the state; NULL: nothing is copied. */
extern const int64_t *pd_checkpoint_copies;
void pd_checkpoint_start(char *why); /* collective, before the run: room for them, on the disk and to copy */
void pd_keep_validated(int64_t step, double loss);
void pd_checkpoint_progress(void); /* what is left of those written: each rank now and then */
void pd_checkpoint_finish(void);   /* and at the end, until nothing is left */

/* ---- checkpoint.c ---------------------------------------------------------------------------- */

enum { PD_PATH = 4096, PD_KIND = 24 };

/* DIR/step-N/NAME, or the folder where `name` is NULL; ends the launch when that is too long for a path. */
void pd_step_path(char *to, int64_t step, const char *name);
void pd_shard_path(char *to, int64_t step, int shard, int shards);

/* A parameter's tensor number `i` of pd_n_kept(): the beginning of its name and its place; neither `newest` nor `at`
 * while there is none. */
struct pd_kept {
  char kind[PD_KIND], *at;
  const struct pd_parameter *newest; /* its newest weights */
  const struct pd_parameter *parts;  /* of which replicas have parts: `at` is, or would be, element 0; NULL: all */
  const struct pd_parameter *of;     /* of which ranks of a shard group may have parts */
  bool bf16, frozen;
  struct pd_shape shape; /* in files: of all */
};
int pd_n_kept(void);
struct pd_kept pd_kept(const struct pd_parameter *p, int i, int64_t step);
char *pd_kept_name(const char *kind, const char *name); /* KIND.NAME, to be freed */

/* ---- identity.c ------------------------------------------------------------------------------ */

/* What all manifests of this run say alike: model, optimizer, plan, seed, function, settings, files. */
const struct pd_manifest *pd_identity(void);
/* Whether a checkpoint of this manifest is one of this training's, on rank 0: notes what is set otherwise; false after
 * filling `why` when its model computes something else and --resume-anyway is not given. */
bool pd_identity_check(const struct pd_manifest *then, char *why);

/* ---- resume.c -------------------------------------------------------------------------------- */

/* Rank 0: the folder is there, or is made; false after filling `why`. */
bool pd_checkpoint_folder(char *why);
/* Rank 0: whether the step's writer, or who removed it, was ended in between. */
bool pd_step_unfinished(int64_t step);
/* Whether the file is the manifest's shard of this number; false after filling `why`. */
bool pd_shard_verify(const struct pd_manifest *m, int shard, const char *path, char *why);

/* ---- keep.c: on rank 0 ----------------------------------------------------------------------- */

void pd_step_remove(int64_t step);
void pd_keep_start(void);
void pd_keep_committed(int64_t step); /* it is whole from now on */

/* ---- commit.c -------------------------------------------------------------------------------- */

/* What the rank that wrote a shard tells rank 0 of it. */
struct pd_shard_note {
  uint64_t checksum; /* of the other members, by pd_commit_tell: what a manifest says must not change on the way */
  int64_t step;
  struct pd_shard_sum sum;
  char why[PD_WHY]; /* not "": it could not, for this reason */
};
/* Something of a checkpoint could not be written: ends the launch, or with --checkpoint-optional warns. */
void pd_commit_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same at the start, where a reason is left in `why`. */
void pd_commit_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Rank 0, before its own shard of this step is written: all shards' notes are awaited from now on. */
void pd_commit_expect(int64_t step);
void pd_commit_tell(const struct pd_shard_note *note); /* this rank's shard is on the disk */
/* Writes the manifests of the steps of which all notes have come. */
void pd_commit_progress(void);
void pd_commit_finish(void); /* waits for all of them, and until this rank's notes are out */

#endif
