/* A rank as a process: options, rank numbers, failures, files and locks. Private to the runtime, like the headers
 * of the other folders; stage programs include pd_runtime.h only. Functions that fail write the reason to `why`
 * (shared/why.h) and return false or NULL. */
#ifndef PD_RUN_H
#define PD_RUN_H

#include "device.h"
#include "pd_runtime.h"
#include "run/augment.h"
#include "shared/beside.h"
#include "shared/turns.h"
#include "shared/why.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options.c ------------------------------------------------------------------------------- */

struct pd_options {
  char **predict; /* PATH or NAME=PATH */
  int n_predict;
  char **data, **validation;
  char **init, **init_partial, **rename; /* all uses of an option, concatenated */
  int n_data, n_validation, n_init, n_init_partial, n_rename;
  int64_t steps, validate_every, checkpoint_every; /* not given: -1, 0, 0 */
  int64_t keep, keep_every;                        /* 0: not given */
  int64_t audit;                                   /* updates between audits; 0: no audits */
  uint64_t seed;
  const char *save, *save_raw;                      /* without slashes at the end */
  bool save_folder, save_raw_folder;                /* whether they name Hugging Face folders */
  const char *save_config, *save_dtype, *save_only; /* save_only: a pattern */
  int64_t save_shard;                               /* bytes */
  const char *log, *checkpoint, *trace, *run, *tensorboard;
  int token_bytes;            /* bytes per token (--token-type); 0: not given */
  const char *plan, *picture; /* paths of --run's copies of the plan and of the model's picture */
  double timeout;             /* seconds */
  double grace;               /* seconds */
  double peak;                /* operations per second of all ranks; 0: measure */
  struct pd_augment augment;
  int64_t resize;       /* of image files; 0: not given */
  int64_t data_threads; /* -1: not given */
  const char *prompt, *prompt_file, *prompt_tokens, *prompts, *features, *results;
  const char *chat_template, *system;
  char **stop_texts; /* of --stop */
  int n_stop_texts;
  char **tokenizer;                   /* a run within argv */
  const char *tokenize, *token_cache; /* NULL: not given */
  int n_tokenizer;
  int64_t tokens, top_k, logprobs; /* tokens -1: not given */
  double temperature, top_p;
  bool stop, window, chat;
  enum { PD_PRINT_TEXT, PD_PRINT_TOKENS, PD_PRINT_JSON } output;
  int64_t pad; /* token that fills lines and documents shorter than the input */
  struct pd_document_option {
    bool joined;
    int64_t end; /* token that ends documents, plus 1; 0: not given */
  } documents;
  bool in_file_order;
  const char *stop_when; /* a rule; NULL: none */
  const char *spill;     /* offload directory; NULL: not given */
  int64_t device;        /* CUDA device number; -1: not given */
  const char *comm;      /* transport, such as "nccl" or "mpi"; NULL: automatic */
  bool check_messages;
  bool skip_broken, evaluate, resume, resume_or_start, resume_anyway, checkpoint_optional, checkpoint_background,
      quiet, emulate, graphs, help;
};
extern struct pd_options pd_options;
bool pd_parse_options(struct pd_options *o, int argc, char **argv, char *why);
void pd_print_usage(const struct pd_stage *stage);
/* True for inference programs and --evaluate: the run trains nothing. */
bool pd_only_evaluates(void);
/* True if targets have no files, because --predict needs none; losses and metrics are then left out. */
extern bool pd_without_targets;

/* ---- notes.c: on standard error, by rank 0 ----------------------------------------------------- */

/* "pd: note: ..." and, with --quiet too, "pd: warning: ...", on rank 0's stderr */
void pd_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pd_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- failure.c --------------------------------------------------------------------------------- */

double pd_seconds(void); /* monotonic */
void pd_abort(void);     /* ends all ranks with status 1, without a message */
/* Removes incomplete files and locks before the process ends without exit(); safe in a signal handler. */
void pd_leave_nothing(void);
/* Bracket library calls that block until other ranks arrive: after --timeout an alarm ends the process with the
 * message "waited WHAT". No other kind of wait may start in between. */
void pd_watch_begin(const char *what);
void pd_watch_end(void);
void *pd_allocate(size_t bytes);      /* zeroed, 64-byte aligned; never freed: for start only */
char *pd_copy_text(const char *text); /* for start only */

/* Ends this rank with status 1 without a message, because another rank reports the cause. */
PD_NORETURN void pd_leave(void);
/* Starts MPI for one thread; failures from then on end the whole launch. */
void pd_mpi_start(int *argc, char ***argv);
void pd_mpi_finish(void);
/* Reports mapped files that become shorter, instead of a bus error. */
void pd_catch_bus_errors(void);

/* ---- ranks.c --------------------------------------------------------------------------------- */

int pd_planned_ranks(void); /* ranks of the whole plan */
int pd_replicas(void);      /* replicas of this rank's stage */
int pd_rank_of(int stage, int replica);
int pd_stage_of(int rank);
int64_t pd_number(int64_t k);                     /* the pipeline-wide number of this rank's microbatch k */
int pd_rank_of_number(int stage, int64_t number); /* the rank that works on this microbatch of the pipeline */
int64_t pd_own_microbatches(void);                /* this rank's microbatches per batch */
/* The microbatch and chunk of a turn (compiler/schedule/program.h). */
struct pd_turn pd_turn(int64_t turn, bool backward);
/* Microbatches that run through a chunk before the next chunk's turn, with several chunks. */
int64_t pd_turns_together(void);

/* Progress of this rank: updates that were exchanged, applied and logged. */
extern struct pd_updates { int64_t exchanged, done, logged; } pd_updates;

/* ---- memory_room.c --------------------------------------------------------------------------- */

int pd_local_ranks(void);     /* on this machine, from the launcher's environment; else 1 */
int64_t pd_memory_room(void); /* approximate free bytes of this rank's share of the machine */

/* ---- finite.c --------------------------------------------------------------------------------- */

int64_t pd_first_not_finite(const float *x, int64_t n); /* index of the first non-finite element; -1: none */
/* Ends the launch if elements [first, first + n) of tensor `name` contain a non-finite one after update `step`,
 * before any of them is written to `path`. */
void pd_check_finite(const char *name, int64_t first, const float *x, int64_t n, int64_t step, const char *path);

/* ---- locks.c ---------------------------------------------------------------------------------- */

/* Locks the path that an option names until pd_unlock_all: `folder` by a file in it, others by a file beside it.
 * False after filling `why` with the host and process of the run that holds the lock. Devices have no lock. */
bool pd_lock(const char *option, const char *path, bool folder, char *why);
void pd_unlock_all(void); /* safe in a signal handler */

/* ---- files.c ----------------------------------------------------------------------------------- */

struct pd_safetensors;
struct pd_entry;
/* Maps a regular file. Another process may change its bytes at any time: read an offset once, then check and use
 * that copy. NULL after filling `why`. */
const char *pd_map_file(const char *path, size_t *size, char *why);
void pd_unmap_file(const void *at, size_t size);
/* Start to read pages of a mapped file, and announce reads in random order, which need no more than their pages. */
void pd_expect_pages(const char *at, size_t size);
void pd_scatter_pages(const char *at, size_t size);
/* Counts text as the content of a data file `path`, as a mapped file. */
void pd_note_content(const char *path, const char *text, size_t size);
const char *pd_mapped_path(const void *address); /* the mapped file at this address, or NULL */
/* The files that are mapped, in the order of mapping. */
struct pd_mapped {
  const char *path, *at;
  size_t size;
};
int pd_mapped_files(void);
struct pd_mapped pd_mapped_file(int i);
bool pd_safetensors_open(const char *path, struct pd_safetensors *s, char *why); /* maps and parses */
void pd_safetensors_close(struct pd_safetensors *s);

bool pd_copy_file(const char *from, const char *to, char *why);
bool pd_writable(const char *path, char *why);         /* whether pd_output could write it */
bool pd_make_directories(const char *path, char *why); /* with missing parents */
bool pd_exists(const char *path);
int64_t pd_disk_room(const char *path); /* free bytes there; -1: unknown */

#ifdef __cplusplus
}
#endif

#endif
