/* A Program: the order in which one stage works, as three loops over two cursors, and the numbers of
 * everything that must be kept meanwhile. Generators (one a schedule) make it, verify_schedule checks
 * all stages' Programs together by simulation, allocate sizes buffers from it, emit prints it. None of
 * those three knows schedules by name.
 *
 * f is the next microbatch to go forward, b the next to go backward, both from 1; K is the number of
 * microbatches of the scope: of one batch (per_batch) or of the whole run. M = `period` microbatches make an update.
 *   loop 0 (warm-up)       while f <= K and f < in_flight
 *   loop 1 (steady state)  while f <= K
 *   loop 2 (drain)         while b <= K
 * then the updates still due (while u < updates of the scope). A loop that is never entered has no actions.
 * Slots go by the microbatch's number in the run, k % slots, and batches and updates by theirs, from 0. */
#ifndef PDC_PROGRAM_H
#define PDC_PROGRAM_H

#include "plan/plan.h"

typedef enum {
  DO_RECEIVE,          /* wait for microbatch f's activations from the stage before */
  DO_FORWARD,          /* compute f */
  DO_SEND,             /* post f's activations to the next stage; then f += 1 (also at the last stage) */
  DO_RECEIVE_GRADIENT, /* wait for microbatch b's gradients from the next stage */
  DO_RECOMPUTE,        /* rerun b's forward from what was received */
  DO_BACKWARD,         /* compute b; the batch's first overwrites the accumulators, the others add */
  DO_SEND_GRADIENT,    /* post b's gradients to the stage before; then b += 1 (also at the first stage) */
  DO_UPDATE,           /* when (b - 1 - lag) is a positive multiple of M: update number (b - 1 - lag) / M - 1 */
  DO_EXCHANGE          /* when b - 1 is a positive multiple of M: post the batch's gradient exchange
                          (tied parameters, squares for the norm, replicas). With lag 0 it comes just
                          before the update that needs it; with a lag just after the update of the
                          batch before, so that one set of exchange buffers is enough */
} Action;

enum { MAX_ACTIONS = 12 };
typedef struct Loop {
  const char *name, *comment; /* "warm-up", "fill the pipeline" */
  int n;
  Action action[MAX_ACTIONS];
} Loop;

typedef struct Program {
  int stage, n_stages;
  bool per_batch;        /* loops run once a batch, drained in between; else once a run */
  int64_t in_flight;     /* n_i: microbatches between their forward and their backward, at most */
  int64_t period;        /* M: microbatches an update */
  int64_t delay;         /* microbatch k (of the run) uses weight version max((k - 1) / M - delay, 0) */
  int versions;          /* buffers of weights; version v lives in buffer v % versions */
  bool waits;            /* its update waits for gradients or squares of lower stages */
  int64_t lag;           /* microbatches between a batch's last backward and its update, while what some
                            stage waits for is on its way; 0 where the schedule drains anyway */
  int accumulators;      /* sets of gradient accumulators; batch t uses set t % accumulators */
  int saved_slots;       /* copies of what forward keeps for backward: in_flight; 1 with recomputation */
  int received_slots;    /* copies of received activations: in_flight + 1, one being received ahead */
  int sent_slots;        /* copies of activations sent: in_flight, for the backward may read them */
  int gradient_slots;    /* copies of gradients received, and of gradients sent: 2 */
  int input_slots;       /* copies of tokens and targets: in_flight. Every number of slots is at least 1 */
  Loop loop[3];
} Program;

/* ---- generators (schedule.c) ---------------------------------------------------------------- */

/* One Program a stage; NULL after diagnostics (too few microbatches for 2bw, say). `exchanges`: for
 * each stage whether its update waits for gradients or squares of lower stages (clipping, ties);
 * NULL: none does. */
Program *schedule(const Plan *plan, const bool *exchanges, Span where);
const char *const *schedule_names(int *n);
bool schedule_known(const char *name);
/* The least number of microbatches an update under which this schedule works with d stages. */
int64_t schedule_least_microbatches(const char *name, int n_stages);

/* ---- a stage's stream of actions (stream.c) ---------------------------------------------------- */

typedef struct Step {
  Action action;
  int64_t number;  /* the microbatch's in the run, from 1; of DO_UPDATE and DO_EXCHANGE the batch's, from 0 */
} Step;

/* Where a stage is in its program; start with {.program = p, .batches = n}. */
typedef struct Stream {
  const Program *program;
  int64_t batches;
  int64_t scope;   /* batches done, where loops run once a batch */
  int64_t f, b, u; /* within the scope; 0 before it starts */
  int loop, at;
} Stream;

/* The next step; false at the end of the run. Loops must have passed program_well_formed. */
bool stream_next(Stream *s, Step *step);
/* Whether each loop has the action that moves its cursor exactly once, so that the run ends, and
 * numbers are in range; else false with the reason. */
bool program_well_formed(const Program *p, char **why);
/* The weight version that microbatch k of the run uses. */
int64_t program_version(const Program *p, int64_t k);
const char *action_name(Action a);

/* ---- running all stages together (machine.c) --------------------------------------------------- */

/* Seconds of a microbatch's forward, backward, recomputation; of an update; of one message between
 * this stage and the next, either way. */
typedef struct StageTimes { double forward, backward, recompute, update, send; } StageTimes;
typedef void (*Trace)(void *context, int stage, Step step, double start, double end);

/* Runs all stages' programs together for `batches` updates under rendezvous (no buffering beyond the
 * slots above) and checks: every send meets its receive in order, no deadlock, no slot overwritten while
 * live, each backward (and recomputation) uses its forward's weight version, versions are alive when
 * used and at most `versions` at once, updates happen once, in order, before they are needed and where
 * all stages can meet to validate, and the version each batch used is the one the schedule's
 * definition says. False with the reason in `why`.
 * times NULL: all zero. trace NULL: none; else called for every step, in each stage's order. */
bool run_schedule(const Program *programs, const StageTimes *times, int n_stages, int64_t batches, Trace trace,
                  void *context, char **why);
/* The same, without times. */
bool verify_schedule(const Program *programs, int n_stages, int64_t batches, char **why);

/* ---- predictions and printing (simulate.c, dump.c) ----------------------------------------------- */

/* Predicted seconds of one batch in the steady state, from running with these costs. */
double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages);
/* `batches` batches as a pipeline diagram, a column a stage and a row a unit of time, for people
 * (--emit schedule). */
void schedule_table(const Program *programs, int n_stages, int64_t batches, FILE *out);

/* One line a fact, readable by people and by program_read, which gives equal Programs. */
void program_dump(const Program *p, FILE *out);
Program *program_read(const char *path, const char *text, int *n_stages); /* NULL after diagnostics */

#endif
