/* A rank as a process: its options, its place among ranks, its failures, its files and locks. Private to the runtime, as are the
 * other folders' headers; stage programs see pd_runtime.h alone. Texts of errors go into `why` (shared/why.h), and a
 * function that fills it returns false or NULL. */
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
  char **init, **init_partial, **rename; /* of each option's uses, one after the other */
  int n_data, n_validation, n_init, n_init_partial, n_rename;
  int64_t steps, validate_every, checkpoint_every; /* -1, 0, 0: not given */
  int64_t keep, keep_every;                        /* 0: not given */
  int64_t audit;                                   /* every so many updates; 0: not */
  uint64_t seed;
  const char *save, *save_raw, *log, *checkpoint, *trace, *run, *tensorboard;
  int token_bytes;            /* a token's, of --token-type; 0: not given */
  const char *plan, *picture; /* where --run keeps copies of what pdc wrote of them; picture: of the model */
  double timeout;             /* seconds */
  double grace;               /* the same */
  double peak;                /* operations a second of all ranks; 0: measured */
  struct pd_augment augment;
  const char *prompt, *prompt_file, *prompt_tokens;
  char **tokenizer; /* a run within argv */
  int n_tokenizer;
  int64_t tokens, top_k;
  double temperature, top_p;
  bool stop, window, token_numbers;
  int64_t pad;           /* the token behind what is shorter than its input */
  const char *stop_when; /* a rule; NULL: none */
  const char *spill;     /* where parts are that are not in memory; NULL: not given */
  int64_t device;        /* the GPU, by CUDA's number; -1: not given */
  const char *comm;      /* how messages travel: "nccl" or "mpi"; NULL: what suits the devices */
  bool check_messages;
  bool evaluate, resume, resume_or_start, resume_anyway, checkpoint_optional, checkpoint_background, quiet,
      emulate, graphs, help;
};
extern struct pd_options pd_options;
bool pd_parse_options(struct pd_options *o, int argc, char **argv, char *why);
void pd_print_usage(const struct pd_stage *stage);
/* Whether the run evaluates and trains nothing: by its program, or --evaluate. */
bool pd_only_evaluates(void);
/* Whether targets have no files, and losses and metrics are left out: everything that is asked for is predicted
 * without them. */
extern bool pd_without_targets;

/* ---- notes.c: on standard error, by rank 0 ----------------------------------------------------- */

/* "pd: note: ..." and, with --quiet too, "pd: warning: ...", on rank 0's stderr */
void pd_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pd_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- failure.c --------------------------------------------------------------------------------- */

double pd_seconds(void); /* monotonic */
void pd_abort(void);     /* ends all ranks with status 1; prints nothing */
/* Before an end without exit, in a handler of a signal, too: what is half written goes, and locks. */
void pd_leave_nothing(void);
/* Around calls of libraries that return once other ranks have come: an alarm ends the process after --timeout and reports that
 * it "waited WHAT". Nothing that waits in another way may come between. */
void pd_watch_begin(const char *what);
void pd_watch_end(void);
void *pd_allocate(size_t bytes);      /* zeroed, 64-byte aligned; at start only */
char *pd_copy_text(const char *text); /* likewise */

/* Ends this rank with status 1 and prints nothing: another one says why. */
PD_NORETURN void pd_leave(void);
/* MPI starts, in one thread; from now on failures end the whole launch. */
void pd_mpi_start(int *argc, char ***argv);
void pd_mpi_finish(void);
/* From now on a mapped file that becomes shorter is a failure that says so. */
void pd_catch_bus_errors(void);

/* ---- ranks.c --------------------------------------------------------------------------------- */

int pd_planned_ranks(void); /* of the whole plan */
int pd_replicas(void);      /* of this rank's stage */
int pd_rank_of(int stage, int replica);
int pd_stage_of(int rank);
int64_t pd_number(int64_t k);                     /* the pipeline's number of this rank's microbatch k */
int pd_rank_of_number(int stage, int64_t number); /* the replica that works on the pipeline's microbatch */
int64_t pd_own_microbatches(void);                /* of a batch, this rank's */
/* Which of its microbatches a rank's turn works on, and with which chunk (compiler/schedule/program.h). */
struct pd_turn pd_turn(int64_t turn, bool backward);
/* Microbatches that go through a chunk before the next chunk's turn, where there are several. */
int64_t pd_turns_together(void);

/* How far this rank is: updates whose exchange was called, that were made, and that were logged. */
extern struct pd_updates { int64_t exchanged, done, logged; } pd_updates;

/* ---- memory_room.c --------------------------------------------------------------------------- */

int64_t pd_memory_room(void); /* bytes that this rank's share of the machine still has, about */

/* ---- finite.c --------------------------------------------------------------------------------- */

int64_t pd_first_not_finite(const float *x, int64_t n); /* its number; -1: there is none */
/* Ends the launch where one is among elements [first, first + n) of the tensor `name`, after update `step`: nothing of
 * it gets into `path`. */
void pd_check_finite(const char *name, int64_t first, const float *x, int64_t n, int64_t step, const char *path);

/* ---- locks.c ---------------------------------------------------------------------------------- */

/* Takes the lock of what an option names, a folder or a file, until pd_unlock_all; false after filling `why`, with
 * the host and process of the run that has it. What is no regular file has none. */
bool pd_lock(const char *option, const char *path, bool folder, char *why);
void pd_unlock_all(void); /* in a handler of a signal, too */

/* ---- files.c ----------------------------------------------------------------------------------- */

struct pd_safetensors;
struct pd_entry;
/* A regular file's bytes, mapped: who writes to it meanwhile changes them, so that no offset read from there may be
 * read again after it was checked. NULL after filling `why`. */
const char *pd_map_file(const char *path, size_t *size, char *why);
void pd_unmap_file(const void *at, size_t size);
const char *pd_mapped_path(const void *address); /* the mapped file that it lies in, or NULL */
/* The files that are mapped now, in the order in which they were. */
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
bool pd_make_directories(const char *path, char *why); /* it and those above it, where they are missing */
bool pd_exists(const char *path);
int64_t pd_disk_room(const char *path); /* bytes for files there; -1: not known */

#ifdef __cplusplus
}
#endif

#endif
