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
 * then the updates still due (while u < updates of the scope). */
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
  DO_SEND_GRADIENT,    /* post b's gradients to the stage before; then b += 1 */
  DO_UPDATE,           /* when (b - 1 - lag) is a positive multiple of M: update number (b - 1 - lag) / M - 1.
                          Comes before DO_EXCHANGE in a body */
  DO_EXCHANGE          /* when b - 1 is a positive multiple of M: post the batch's gradient exchange
                          (tied parameters, squares for the norm, replicas) */
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
  int64_t lag;           /* microbatches between a batch's last backward and its update, while the
                            global norm or a tied parameter's other gradients are on their way */
  int accumulators;      /* sets of gradient accumulators; batch t uses set t % accumulators */
  int saved_slots;       /* copies of what forward keeps for backward: in_flight; 1 with recomputation */
  int received_slots;    /* copies of received activations: in_flight + 1, one being received ahead */
  int sent_slots;        /* copies of activations sent */
  int gradient_slots;    /* copies of gradients received, and of gradients sent: 2 */
  int input_slots;       /* copies of tokens and targets */
  Loop loop[3];
} Program;

/* One Program a stage; NULL after diagnostics (too few microbatches for 2bw, say). `exchanges`: for
 * each stage whether its update waits for gradients or squares of lower stages (clipping, ties). */
Program *schedule(const Plan *plan, const bool *exchanges, Span where);
const char *const *schedule_names(int *n);
bool schedule_known(const char *name);

/* Runs all stages' programs together for `batches` updates under rendezvous (no buffering beyond the
 * slots above) and checks: every send meets its receive in order, no deadlock, no slot overwritten while
 * live, each backward (and recomputation) uses its forward's weight version, versions are alive when
 * used and at most `versions` at once, updates happen once, in order, before they are needed, and the
 * version each batch used is the one the schedule's definition says. False with the reason in `why`. */
bool verify_schedule(const Program *programs, int n_stages, int64_t batches, char **why);

/* Predicted seconds of one batch in the steady state, from simulating with these costs. */
typedef struct StageTimes { double forward, backward, recompute, update, send; } StageTimes;
double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages);

void program_dump(const Program *p, FILE *out);
Program *program_read(const char *path, const char *text, int *n_stages);
/* The flat instruction streams of `batches` batches, a column a stage, for people (--emit schedule). */
void schedule_table(const Program *programs, int n_stages, int64_t batches, FILE *out);

#endif
