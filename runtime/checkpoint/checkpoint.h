/* Checkpoints and weight files: first the interface for other folders, then the declarations that this folder's
 * files share. */
#ifndef PD_CHECKPOINT_H
#define PD_CHECKPOINT_H

#include "run/run.h"
#include "shared/manifest.h"
#include "shared/safetensors.h"
#include "update/update.h"

/* ---- load_weights.c -------------------------------------------------------------------------- */

void pd_load_weights(void);      /* collective: loads W(0) of every rank from --init */
const char *pd_init_path(int i); /* path of the ith file that was read; NULL after the last */

/* ---- gather.c -------------------------------------------------------------------------------- */

/* Collective. On rank 0: the entries of all parameters of the model in declaration order, as in a file, and the
 * rank that writes each (writer may be NULL). An unused parameter is on no rank, and its entry has no name. */
struct pd_entry *pd_gather_entries(int *writer);
void pd_free_entries(struct pd_entry *entries);

/* ---- save_weights.c -------------------------------------------------------------------------- */

void pd_save_start(char *why); /* collective, before the run: checks the folders of --save and --save-raw */
/* Collective. Rank 0 writes the weights of all stages: averages, if there are any and `raw` is false. */
void pd_save_weights(const char *path, bool raw);

/* ---- agree.c --------------------------------------------------------------------------------- */

/* Collective. Ends the launch if the mapped files of a rank, from number `first`, differ from rank 0's in size or
 * sampled contents, or if sample counts differ. */
void pd_agree_on_files(int first);
void pd_agree_on_folder(void); /* collective: ends the launch unless all ranks share --checkpoint's directory */

/* ---- checkpoint.c, resume.c ------------------------------------------------------------------- */

/* Collective. Restores the newest valid checkpoint in --checkpoint's directory: weights of all versions, moments,
 * pd.first_step, pd_sample_base. False: no checkpoint. */
bool pd_resume(void);
bool pd_checkpoint_check(char *why);    /* rank 0: checks that the directory is writable */
void pd_checkpoint_write(int64_t step); /* this rank's part of the state after `step` updates */
/* Bytes of --checkpoint-background's copies, by rank; NULL: no copies. */
extern const int64_t *pd_checkpoint_copies;
void pd_checkpoint_start(char *why); /* collective, before the run: checks disk space and allocates copies */
void pd_keep_validated(int64_t step, double loss);
void pd_checkpoint_progress(void); /* continues pending writes; called regularly */
void pd_checkpoint_finish(void);   /* at the end: waits for pending writes */

/* ---- checkpoint.c ---------------------------------------------------------------------------- */

enum { PD_PATH = 4096, PD_KIND = 24 };

/* Writes DIR/step-N/NAME, or DIR/step-N if `name` is NULL; ends the launch if the path is too long. */
void pd_step_path(char *to, int64_t step, const char *name);
void pd_shard_path(char *to, int64_t step, int shard, int shards);

/* Tensor i of pd_n_kept() of a parameter: the prefix of its name, and its place; newest and at are NULL if
 * absent. */
struct pd_kept {
  char kind[PD_KIND], *at;
  const struct pd_parameter *newest; /* the newest weights of this parameter */
  const struct pd_parameter
      *parts;                    /* sharded over replicas: `at` is the address of element 0; NULL: not sharded */
  const struct pd_parameter *of; /* the parameter, possibly split over a shard group */
  bool bf16, frozen;
  struct pd_shape shape; /* of the whole tensor, as in files */
};
int pd_n_kept(void);
struct pd_kept pd_kept(const struct pd_parameter *p, int i, int64_t step);
char *pd_kept_name(const char *kind, const char *name); /* KIND.NAME, to be freed */

/* ---- identity.c ------------------------------------------------------------------------------ */

/* The common part of this run's manifests: model, optimizer, plan, seed, function, settings, files. */
const struct pd_manifest *pd_identity(void);
/* Rank 0: compares a checkpoint's manifest with this training and notes different settings. False after filling
 * `why` if the model computes something else and --resume-anyway is not given. */
bool pd_identity_check(const struct pd_manifest *then, char *why);

/* ---- resume.c -------------------------------------------------------------------------------- */

/* Rank 0: creates the directory if necessary; false after filling `why`. */
bool pd_checkpoint_folder(char *why);
/* Rank 0: true if the process that wrote or removed the step ended halfway. */
bool pd_step_unfinished(int64_t step);
/* True if the file matches this shard of the manifest; else false after filling `why`. */
bool pd_shard_verify(const struct pd_manifest *m, int shard, const char *path, char *why);

/* ---- keep.c: on rank 0 ----------------------------------------------------------------------- */

void pd_step_remove(int64_t step);
void pd_keep_start(void);
void pd_keep_committed(int64_t step); /* the step is complete */

/* ---- commit.c -------------------------------------------------------------------------------- */

/* The message to rank 0 from the rank that wrote a shard. */
struct pd_shard_note {
  uint64_t checksum; /* of all following members, set by pd_commit_tell, to detect changes in transit */
  int64_t step;
  struct pd_shard_sum sum;
  char why[PD_WHY]; /* reason of a failure; "": success */
};
/* Reports a failed checkpoint: ends the launch, or warns with --checkpoint-optional. */
void pd_commit_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* At start: fills `why`, or warns with --checkpoint-optional. */
void pd_commit_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Rank 0, before it writes its shard of this step: expects the notes of all shards. */
void pd_commit_expect(int64_t step);
void pd_commit_tell(const struct pd_shard_note *note); /* after this rank's shard is on disk */
/* Writes the manifests of steps whose notes have all arrived. */
void pd_commit_progress(void);
void pd_commit_finish(void); /* waits for all manifests, and until this rank's notes are sent */

#endif
