/* A Program: the order of work of one stage's ranks, as loops over cursors, and the numbers of buffers.
 * A generator per schedule creates it, verify_schedule checks all ranks' Programs together by simulation,
 * allocate sizes buffers from it, emit prints it. verify_schedule, allocate and emit do not know
 * schedules by name.
 *
 * A stage has `replicas` ranks. Its share of the model has `chunks` parts: not adjacent under interleaved
 * schedules, consecutive under offload, else one part. A turn is one forward pass of one chunk by one
 * microbatch. Each rank counts its turns from 1. Three cursors count turns: f is the next to go forward, b the
 * next to go backward; with a split backward, w is the next to compute weight gradients. K is the
 * number of turns of the scope: of one batch (per_batch) or of the whole run. M = `period` microbatches of
 * all replicas together make an update, so a rank has M / replicas * chunks turns per batch.
 *   loop 0 (warm-up)       while f <= K and f - b < in_flight - 1
 *   loop 1 (steady state)  while f <= K
 *   loop 2 (drain)         while b <= K
 *   loop 3 (weights)       while w <= K
 * then the updates still due (while u < updates of the scope). A loop that is never entered has no actions.
 * Without backward passes (forward_only) there is only loop 1, and M microbatches are a unit of time.
 * Replica r takes microbatches r + 1, r + 1 + replicas, ... With chunks, microbatches go in groups of
 * n_stages (offload: of a batch). Each group passes all chunks, forward from the first, backward from the last.
 * Under offload (docs/guide/offload.md) a rank's chunks are consecutive parts of the model. Loop 0 has the
 * forward turns, loop 2 the backward turns, and in_flight is the number of a batch's turns plus 1. Turns of the
 * model's last part are in loop 1: forward, then directly backward.
 * The slot of a rank's n-th microbatch, n = (k - 1) / replicas + 1, is n modulo the number of slots, for each
 * chunk separately. Batches and updates count from 0. */
#ifndef PDC_PROGRAM_H
#define PDC_PROGRAM_H

#include "schedule/pipeline.h"

typedef enum {
  DO_RECEIVE,          /* wait for turn f's activations from the stage before */
  DO_FORWARD,          /* compute f */
  DO_SEND,             /* post f's activations to the next stage; then f += 1 (also at the last stage) */
  DO_RECEIVE_GRADIENT, /* wait for turn b's gradients from the next stage */
  DO_RECOMPUTE,        /* rerun b's forward from received activations, unless the chunk keeps saved values */
  DO_BACKWARD,         /* compute b; the batch's first turn overwrites the accumulators, later turns add */
  DO_SEND_GRADIENT,    /* post b's gradients to the stage before; then b += 1 (also at the first stage) */
  /* when b - w > weights_lag, and in loop 3: compute turn w's weight gradients, which DO_BACKWARD left out;
   * then w += 1 */
  DO_WEIGHTS,
  /* when the completed turns, minus `lag`, are whole batches: update of the last of these batches. Completed:
   * backward and, with split_backward, weight gradients */
  DO_UPDATE,
  /* when the completed turns are whole batches: post the last one's gradient exchange (replicas, tied
   * parameters, squares for the norm). With lag 0 it directly precedes the update that needs it; with a lag it
   * follows the update that frees its buffers */
  DO_EXCHANGE,
  /* offload: wait until the blocks of the turn are resident (loop 0: f, loop 2: b), and start prefetching the
   * blocks of the next turn */
  DO_PROMOTE,
  /* offload: start writing the changed blocks that the next turn does not need, and free their memory */
  DO_DEMOTE
} Action;

enum {
  MAX_ACTIONS = 12,
  N_ACTIONS = DO_DEMOTE + 1,
  N_LOOPS = 4,
  MAX_CHUNKS = 64,           /* parts of an offloaded model */
  MOST_INTERLEAVED = 8,      /* chunks of a rank under interleaved schedules */
  MAX_MICROBATCHES = 1 << 19 /* of a batch */
};
typedef struct Loop {
  const char *name, *comment; /* "warm-up", "fill the pipeline" */
  int n;
  Action action[MAX_ACTIONS];
} Loop;

enum { MOST_BUCKETS = 64 }; /* per exchange; buckets grow if a stage has more gradients */

/* Copies of a chunk's buffers. Every number is at least 1. */
typedef struct Slots {
  int saved;     /* activations saved for backward: turns in flight; 1 with recomputation */
  int received;  /* activations received: turns in flight, and one received ahead */
  int sent;      /* activations sent: turns in flight, because backward may read them */
  int gradients; /* gradients received: 2 */
  int returned;  /* gradients sent: 2 */
  int inputs;    /* tokens and targets: turns in flight */
  int deferred;  /* values of DO_BACKWARD for DO_WEIGHTS: weights_lag + 1 */
} Slots;

/* Offload (docs/guide/offload.md) of a stage larger than memory: its chunks are consecutive parts of the model. Their parameters,
 * activations and gradients are resident only while they are used. */
typedef struct Offload {
  bool on;
  uint64_t keeps;    /* bit c: chunk c keeps saved values instead of recomputing; never the last chunk */
  int64_t memory;    /* bytes of the rank's arena that are resident; 0: as few as possible */
  int pinned;        /* percent of the block budget that stays resident until the next use */
  int64_t page;      /* bytes of the unit of transfer */
  bool host_updates; /* the host updates the offloaded parameters */
} Offload;

typedef struct Program {
  int stage, n_stages; /* stages with ranks of their own */
  int replicas, chunks;
  int part, parts;   /* its first part of the model, and the number of all parts */
  bool forward_only; /* the one loop receives, computes and sends: a turn ends with its DO_SEND */
  bool per_batch;    /* loops run once a batch, drained in between; else once a run */
  /* ZeRO-1: DO_UPDATE updates a shard of the weights on each replica, which sends the shard to all replicas; a
   * forward pass waits for all shards of its weights */
  bool sharded;
  Offload offload;
  bool split_backward; /* DO_WEIGHTS computes the weight gradients of products (zero-bubble) */
  int64_t in_flight;   /* n_i: most turns of one rank between their forward and backward passes */
  int64_t period;      /* M: microbatches an update, of all replicas */
  int64_t delay;       /* microbatch k (of the run) uses weight version max((k - 1) / M - delay, 0) */
  int versions;        /* buffers of weights; version v lives in buffer v % versions */
  /* its update waits for gradients or squares of other stages; with replicas it always waits for the ranks of
   * its stage */
  bool waits;
  /* turns between a batch's last turn and its update, which hide the exchange; 0 if the schedule drains */
  int64_t lag;
  int64_t weights_lag; /* turns by which DO_WEIGHTS follows DO_BACKWARD */
  int accumulators;    /* sets of gradient accumulators; batch t uses set t % accumulators */
  int exchanges;       /* most simultaneous exchanges: sets of exchange buffers */
  /* bytes: the batch's last DO_BACKWARD starts an exchange after each completed bucket of this size;
   * DO_EXCHANGE starts the last. 0: DO_EXCHANGE exchanges everything */
  int64_t bucket;
  Slots slots[MAX_CHUNKS]; /* by chunk */
  Loop loop[N_LOOPS];
} Program;

/* ---- turns (stream.c) ------------------------------------------------------------------------ */

typedef struct Turn {
  int chunk;
  int64_t microbatch; /* of the run, from 1 */
} Turn;
Turn program_turn(const Program *p, int replica, int64_t turn, bool backward);
Turn program_turn_after(const Program *p, Turn t, bool backward); /* of the same rank */
int64_t program_turns(const Program *p);                          /* of one rank, a batch */
bool program_recomputes(const Program *p);
bool program_recomputes_chunk(const Program *p, int chunk); /* under offload each chunk separately */
static inline bool program_keeps(const Program *p, int chunk) { return p->offload.keeps >> chunk & 1; }
/* Under offload a rank's chunks are consecutive parts. */
static inline int program_part(const Program *p, int chunk) {
  return p->part + chunk * (p->offload.on ? 1 : p->n_stages);
}
/* -1: the part belongs to another stage. */
static inline int program_chunk(const Program *p, int part) {
  const int step = p->offload.on ? 1 : p->n_stages, from = part - p->part;
  return from >= 0 && from % step == 0 && from / step < p->chunks ? from / step : -1;
}
/* Whether the chunk receives its input from another rank; whether it sends its output to one. */
static inline bool program_receives(const Program *p, int chunk) {
  return program_part(p, chunk) > 0 && !(p->offload.on && chunk > 0);
}
static inline bool program_sends(const Program *p, int chunk) {
  return program_part(p, chunk) + 1 < p->parts && !(p->offload.on && chunk + 1 < p->chunks);
}
static inline bool program_ends_model(const Program *p) { return program_part(p, p->chunks - 1) + 1 == p->parts; }
/* Offload: whether the chunk's forward pass runs again before its backward pass. The model's last part never reruns,
 * because its forward pass comes directly before. */
static inline bool program_reruns(const Program *p, int chunk) {
  return !program_keeps(p, chunk) && !(program_ends_model(p) && chunk == p->chunks - 1);
}

/* ---- generators (schedule.c, generators.c) ---------------------------------------------------------------- */

/* One Program per stage; NULL after diagnostics, such as too few microbatches for 2bw. `exchanges`: for
 * each stage whether its update waits for gradients or squares of lower stages (clipping, ties);
 * NULL: no stage waits. */
Program *schedule(const Pipeline *pipeline, const bool *exchanges, Span where);
const char *const *schedule_names(int *n);
const char *schedule_summary(const char *name); /* one line for help, of a known schedule */
bool schedule_known(const char *name);
/* Properties of a schedule. */
typedef struct ScheduleTraits {
  bool forward_only; /* for inference only */
  bool drains;       /* at every batch */
  bool replicas;     /* stages may have several ranks */
  bool chunks;       /* ranks hold several chunks */
  bool split;        /* the backward pass is in two: weight gradients have a pass of their own */
  bool recomputes;   /* stages may repeat their forward pass (DO_RECOMPUTE) */
  bool layers;       /* stages may recompute by layer, within DO_BACKWARD */
  bool tensor;       /* ranks may share layers (tensor/tensor.h) */
  bool looks_ahead;  /* supports one additional microbatch in flight: Pipeline.ahead */
  bool spills;       /* offload: memory decides a stage's number of parts */
  bool serial;       /* no two ranks of a pipeline are busy at once */
  bool two_versions; /* two weight versions, so M must be at least the microbatches in flight */
  bool every_round;  /* an update after each round of the replicas: M is their least common multiple */
  const struct Generator *generator; /* for stage_in_flight() */
} ScheduleTraits;
ScheduleTraits schedule_traits(const char *name); /* of a known schedule */
const char *schedule_period(const char *name);    /* the unit of M microbatches: "per update", "per batch" */
int64_t common_multiple(int64_t a, int64_t b);    /* the least common multiple */
/* The fewest ranks of additional stages with which the least common multiple of all replicas grows from `done` to `round`;
 * 0: no additional stage is needed. `done` divides `round`. */
int64_t round_ranks(int64_t round, int64_t done);
/* Turns in flight of a stage with `replicas` ranks before one with `next` ranks that have `queue` microbatches in
 * flight together; next 0: it is the last. Not of schedules with chunks. */
int64_t stage_in_flight(const ScheduleTraits *traits, int replicas, int ahead, int next, int64_t queue,
                        int64_t microbatches);
/* Bounds of M, independent of the pipeline's own M: at least `least`, a multiple of `multiple`. */
void schedule_needs(const Pipeline *pipeline, int64_t *least, int64_t *multiple);
/* Whether the schedule runs the pipeline with this number of microbatches per update. */
bool schedule_allows(const Pipeline *pipeline, int64_t microbatches);

/* ---- a stage's stream of actions (stream.c) ---------------------------------------------------- */

typedef struct Step {
  Action action;
  int chunk;
  int64_t number; /* microbatch of the run, from 1; for DO_UPDATE and DO_EXCHANGE the batch, from 0 */
} Step;

/* A rank's position in its program; start with {.program = p, .replica = r, .batches = n}. */
typedef struct Stream {
  const Program *program;
  int replica;
  int64_t batches;
  int64_t scope;      /* completed batches, if loops run once a batch */
  int64_t f, b, w, u; /* within the scope; 0 before it starts */
  int loop, at;
} Stream;

/* The next step; false at the end of the run. Loops must have passed program_well_formed. */
bool stream_next(Stream *s, Step *step);
/* Whether each loop has the action that moves its cursor exactly once, so that the run ends, and
 * numbers are in range; else false with the reason. */
bool program_well_formed(const Program *p, char **why);
/* Whether all stages' Programs are well formed, describe one pipeline, hold each part of the model once, and have the
 * least delays that their turns in flight allow (definition.c). */
bool programs_agree(const Program *p, int n_stages, char **why);
/* The weight version that microbatch k of the run uses. */
int64_t program_version(const Program *p, int64_t k);
const char *action_name(Action a);

/* ---- running all stages together (machine.c) --------------------------------------------------- */

/* Times of a part of the model (pipeline.h), in seconds: forward, backward (with split_backward: without weight
 * gradients), recomputation and weight gradients of one turn; send: one message to or from the next part. Times of
 * a rank, at its first part: an update, reducing a batch's gradients among replicas, gathering updated shards.
 * hidden: the part of reducing that a batch's last backward pass hides if links are free. jitter: relative
 * standard deviation of turns, from numbers that are equal in every run. Arrays are by part. */
typedef struct StageTimes {
  double forward, backward, recompute, weights, send;
  double update, reduce, gather, jitter, hidden;
} StageTimes;
typedef struct Event {
  int stage, replica;
  Step step;
  int64_t version;   /* weight version: used by a pass, made by DO_UPDATE; for DO_EXCHANGE the batch */
  double start, end; /* seconds; the step waits for its operands before start */
} Event;
typedef bool (*Trace)(void *context, const Event *event); /* false: end the run here, as correct */

/* Runs all ranks' programs together for `batches` updates under rendezvous: no buffering beyond the slots above,
 * one posted receive per rank and direction. It checks that sends meet receives in order, without deadlock, and
 * that no live slot is overwritten. Each backward, recomputation and weights pass must find its own microbatch's
 * data and its forward's weight version. At most `versions` versions and `exchanges` exchanges exist at once.
 * Updates happen once, in order and before use, and weights are as old as the schedule's definition says. False
 * with the reason in `why`. times NULL: all zero. trace NULL: none; else called for every step in each rank's
 * order. */
bool run_schedule(const Program *programs, const StageTimes *times, int n_stages, int64_t batches, Trace trace,
                  void *context, char **why);
/* The same without times, with a barrier after every update, as for validation. */
bool verify_schedule(const Program *programs, int n_stages, int64_t batches, char **why);

/* ---- pictures (picture.c) ----------------------------------------------------------------------- */

/* A few batches of the pipeline, with one unit of time per forward and two per backward pass: as text, a
 * column per rank; as SVG in the style of the papers' figures, a row per rank. */
void schedule_text(const Program *programs, int n_stages, FILE *out);
void schedule_svg(const char *title, const Program *programs, int n_stages, FILE *out);

/* ---- predictions and printing (simulate.c, dump.c) ----------------------------------------------- */

/* Predicted seconds of one batch in the steady state, from a run with these costs; INFINITY as soon as it is known
 * to exceed `most`. */
double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages, double most);
/* The same for many sets of times: the part that does not depend on times is computed once and stored in the arena in
 * use. Programs must outlive the simulation. */
typedef struct Simulation Simulation;
Simulation *simulation_new(const Program *programs, int n_stages);
double simulate(Simulation *s, const StageTimes *times, double most);
int64_t simulation_bytes(const Simulation *s); /* approximate memory of the simulation */
/* The same with jitter: turns vary with this relative standard deviation, and a schedule without slack pays for
 * the slower neighbour each time. The numbers are equal in every run. */
double simulate_schedule_jitter(const Program *programs, const StageTimes *times, int n_stages, double jitter);
/* The bubble: by stage, the share of a batch in which its ranks neither compute nor update. */
void schedule_idle(const Program *programs, const StageTimes *times, int n_stages, double batch_seconds,
                   double *idle);
/* One line per fact; program_read returns equal Programs. */
void program_dump(const Program *p, FILE *out);
Program *program_read(const char *path, const char *text, int *n_stages); /* NULL after diagnostics */

#endif
