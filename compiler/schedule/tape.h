/* Private to compiler/schedule: the work of all ranks of a run as one sequence, in which each tick follows the
 * ticks that it waits for. The sequence does not depend on times: timing.c writes it once, and each set of times
 * reads it. */
#ifndef PDC_TAPE_H
#define PDC_TAPE_H

#include "schedule/program.h"

typedef enum {
  TICK_TURN,   /* most ticks: a rank's turn in one direction, or a part of it */
  TICK_MEET,   /* now = max(now, an exchange's value), for an update or the weights of one */
  TICK_UPDATE, /* now += seconds of an update; then a batch has ended */
  TICK_GATHER, /* value = max(value, now): one of several ranks */
  /* value = max(value, previous value + hidden seconds of this exchange): follows the previous exchange */
  TICK_FOLLOW,
  TICK_REDUCE, /* value += seconds of the exchange, except hidden ones */
  TICK_BEGIN,  /* the rank has the operands of its first turn */
  TICK_END     /* the end of the rank's next batch */
} TickKind;

/* The steps of a turn on its rank's time, `now`, in sequence. Unused steps refer to neutral entries, so that all
 * turns are read alike. */
enum {
  TURN_WAIT,  /* now = max(now, arrival of the message), counted as waiting ... */
  TURN_POST,  /* the next message's receive is posted at `now` */
  TURN_FIRST, /* now += seconds of a part's recomputation */
  TURN_SLOT,  /* ... and the wait for a free slot to send from, counted as well */
  TURN_PASS,  /* now += seconds of a pass */
  TURN_SEND,  /* the message is sent at `now` */
  TURN_LAST,  /* now += seconds of a part's weights pass */
  TURN_DEEDS
};

enum { KIND_BITS = 3 };
typedef struct Tick {
  uint32_t rank; /* rank << KIND_BITS | kind */
  union {
    uint32_t deed[TURN_DEEDS]; /* messages and passes */
    uint32_t exchange;         /* of the remaining kinds */
  };
} Tick;

typedef struct Reel {
  struct Reel *next;
  int n;
  Tick tick[256];
} Reel;

/* The part of the sequence written so far. */
typedef struct Tape {
  Reel *first, *last;
  int64_t ticks;
} Tape;
Tick *tape_write(Tape *t, TickKind kind, int rank); /* the caller fills in its content */
void tape_clear(Tape *t);

/* Indices of values. Messages: 2^ring_bits each way over each cut, then two dummies, one to wait for and one to
 * send. Exchanges: of gradients, then of weights, by stage; each stage's batches follow one value that is 0. */
typedef struct Layout {
  int n_stages, parts, ring_bits;
  int64_t batches;
  const int *first; /* by stage: its first rank; at the end all ranks */
} Layout;

/* A part's passes, in this order; after the last part's a pass that takes no time: */
enum { PASS_FORWARD, PASS_BACKWARD, PASS_RECOMPUTE, PASS_WEIGHTS, N_PASSES };

static inline int64_t messages(const Layout *l) { return (2LL * (l->parts - 1)) << l->ring_bits; }
static inline uint32_t no_message(const Layout *l) { return (uint32_t)messages(l); }
static inline uint32_t lost_message(const Layout *l) { return (uint32_t)messages(l) + 1; }
static inline uint32_t no_pass(const Layout *l) { return (uint32_t)(l->parts * N_PASSES); }
static inline uint32_t message_at(const Layout *l, int cut, int way, int64_t k) {
  return (((uint32_t)(2 * cut + way)) << l->ring_bits) + (uint32_t)(k & (((int64_t)1 << l->ring_bits) - 1));
}
static inline int64_t exchanges_of(const Layout *l) { return 2 * l->n_stages * (l->batches + 1); }
static inline uint32_t exchange_at(const Layout *l, bool weights, int stage, int64_t batch) {
  return (uint32_t)((stage + (weights ? l->n_stages : 0)) * (l->batches + 1) + batch + 1);
}

/* Called when a rank has ended a batch: after its update or, without backward, after sending its last microbatch.
 * False: ends the run here. */
typedef bool BatchEnded(void *context, int stage, int replica, int64_t batch, double seconds);

typedef struct RankClock {
  double now;
  double waited, may_wait; /* for messages and slots; the limit */
  double began;
  int stage, replica;
  int64_t ended;   /* batches */
  int64_t *passes; /* by chunk and pass: passes so far, with jitter */
} RankClock;

/* Both sides' times of a message; it arrives the send time after the later one. */
typedef struct Sides {
  double sent, posted;
} Sides;

/* Reads a tape with times. */
typedef struct Reader {
  const Layout *layout;
  const Program *programs;
  const StageTimes *times;
  Sides *message;
  double *exchange;
  double *pass, *send; /* seconds: by part and pass; by cut */
  RankClock *rank;     /* all of them */
  BatchEnded *ended;   /* or NULL */
  void *context;
  bool varies;    /* passes have jitter */
  bool stopped;   /* a rank has exceeded its limit of waiting, or `ended` returned false */
  const Reel *at; /* next position: this reel, ... */
  int tick;       /* ... and this tick of it */
} Reader;
Reader reader_new(const Layout *l, const Program *programs);
void reader_start(Reader *r, const StageTimes *times); /* from the beginning */
void reader_go_on(Reader *r, const Tape *t);           /* to the end of the tape, or until it stops */

#endif
