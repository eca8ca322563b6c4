/* Private to compiler/schedule: what all ranks of a run do, in one row in which whatever a tick waits for stands before it.
 * Times do not change that row: it is written once (timing.c) and read with many of them. */
#ifndef PDC_TAPE_H
#define PDC_TAPE_H

#include "schedule/program.h"

/* What a tick does with its rank's time, `now`, and with the times that ranks see of each other, each a `value`. */
typedef enum {
  TICK_RANK,   /* the next ticks are this rank's */
  TICK_WAIT,   /* now = max(now, value); counts as waiting */
  TICK_MEET,   /* the same, for an update */
  TICK_PASS,   /* now += seconds of a part's pass */
  TICK_UPDATE, /* now += seconds of a stage's update */
  TICK_READY,  /* value = now: one side of a message ... */
  TICK_SENT,   /* ... and now the other: value = max(value, now) + seconds of the message */
  TICK_GATHER, /* value = max(value, now): one rank of several */
  TICK_FOLLOW, /* value = max(value, the one before): after the exchange before it */
  TICK_REDUCE, /* value += seconds of the exchange */
  TICK_BEGIN,  /* the rank has what its first turn needs */
  TICK_END     /* of the rank's next batch */
} TickKind;

enum { TICK_BITS = 4 }; /* of the kind; above them is what it is about */

typedef struct Reel {
  struct Reel *next;
  int n;
  uint32_t tick[1 << 12];
} Reel;

/* The row as far as it has been written. */
typedef struct Tape {
  Reel *first, *last;
  int64_t ticks;
} Tape;
void tape_write(Tape *t, TickKind kind, int about);
void tape_clear(Tape *t);

/* Where values are: those of messages, 2^ring_bits each way over each cut, then those of exchanges of gradients and of
 * weights, by stage the batches' behind one that is 0. */
typedef struct Layout {
  int n_stages, parts, ring_bits;
  int64_t batches;
  const int *first; /* by stage: its first rank; at the end all ranks */
} Layout;

static inline int message_value(const Layout *l, int cut, int way, int64_t k) {
  return ((2 * cut + way) << l->ring_bits) + (int)(k & (((int64_t)1 << l->ring_bits) - 1));
}
static inline int n_message_values(const Layout *l) { return (2 * (l->parts - 1)) << l->ring_bits; }
static inline int exchange_value(const Layout *l, bool weights, int stage, int64_t batch) {
  return n_message_values(l) + (stage + (weights ? l->n_stages : 0)) * (int)(l->batches + 1) + (int)batch + 1;
}

static inline int64_t layout_values(const Layout *l) { /* how many */
  return ((2LL * (l->parts - 1)) << l->ring_bits) + 2 * l->n_stages * (l->batches + 1);
}

/* A part's passes, in this order: */
enum { PASS_FORWARD, PASS_BACKWARD, PASS_RECOMPUTE, PASS_WEIGHTS, N_PASSES };

/* A rank has ended a batch: made its update or, where nothing goes backward, sent its last microbatch of it. False:
 * enough, the run ends here. */
typedef bool BatchEnded(void *context, int stage, int replica, int64_t batch, double seconds);

typedef struct RankClock {
  int stage, replica;
  double now, began;
  double waited, may_wait; /* for messages and slots, and so long it may at most */
  int64_t ended;           /* batches */
  int64_t *passes;         /* by part's chunk and pass: how many; NULL where all take the same time */
} RankClock;

/* Reads a tape with times. */
typedef struct Reader {
  const Layout *layout;
  const Program *programs;
  const StageTimes *times;
  double *value, *pass; /* seconds, by part and pass */
  RankClock *rank;      /* all of them */
  BatchEnded *ended;    /* or NULL */
  void *context;
  bool stopped;     /* a rank has waited too long, or `ended` said so */
  const Reel *at;  /* what is read next: */
  int tick, reads;  /* of this reel, for this rank */
} Reader;
Reader reader_start(const Layout *l, const Program *programs, const StageTimes *times);
void reader_go_on(Reader *r, const Tape *t); /* to the end of what is written, or until it is stopped */

#endif
