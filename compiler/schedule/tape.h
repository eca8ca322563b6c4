/* Private to compiler/schedule: what all ranks of a run do, in one row in which whatever a tick waits for stands before it.
 * Times do not change that row: it is written once (timing.c) and read with many of them. */
#ifndef PDC_TAPE_H
#define PDC_TAPE_H

#include "schedule/program.h"

typedef enum {
  TICK_TURN,   /* what most are: a rank's turn one way, or a part of it */
  TICK_MEET,   /* now = max(now, an exchange's value), for an update or what it brings */
  TICK_UPDATE, /* now += seconds of an update; then a batch has ended */
  TICK_GATHER, /* value = max(value, now): one rank of several */
  TICK_FOLLOW, /* value = max(value, the one before + what is hidden of this one): after the exchange before it */
  TICK_REDUCE, /* value += seconds of the exchange, but for what is hidden */
  TICK_BEGIN,  /* the rank has what its first turn needs */
  TICK_END     /* of the rank's next batch */
} TickKind;

/* What a turn does with its rank's time, `now`, one after the other. What it does not do it does with what is of no
 * influence, so that all turns are read alike. */
enum {
  TURN_WAIT,  /* now = max(now, when the message is there), which counts as waiting ... */
  TURN_POST,  /* the next message's receive is posted now */
  TURN_FIRST, /* now += seconds of a part's pass: recomputation */
  TURN_SLOT,  /* ... and so until there is room for the message to send */
  TURN_PASS,  /* now += seconds of a pass */
  TURN_SEND,  /* the message is sent now */
  TURN_LAST,  /* now += seconds of a pass: weights' gradients */
  TURN_DEEDS
};

enum { KIND_BITS = 3 };
typedef struct Tick {
  uint32_t rank; /* above the kind's bits */
  union {
    uint32_t deed[TURN_DEEDS]; /* messages and passes */
    uint32_t exchange;         /* of the other kinds */
  };
} Tick;

typedef struct Reel {
  struct Reel *next;
  int n;
  Tick tick[256];
} Reel;

/* The row as far as it has been written. */
typedef struct Tape {
  Reel *first, *last;
  int64_t ticks;
} Tape;
Tick *tape_write(Tape *t, TickKind kind, int rank); /* what it is about is to be filled in */
void tape_clear(Tape *t);

/* Where values are: of messages 2^ring_bits each way over each cut, then two that are none, one to wait for and one to send;
 * of exchanges those of gradients and then those of weights, by stage the batches' behind one that is 0. */
typedef struct Layout {
  int n_stages, parts, ring_bits;
  int64_t batches;
  const int *first; /* by stage: its first rank; at the end all ranks */
} Layout;

/* A part's passes, in this order; behind the last part's one that takes no time: */
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

/* A rank has ended a batch: made its update or, where nothing goes backward, sent its last microbatch of it. False:
 * enough, the run ends here. */
typedef bool BatchEnded(void *context, int stage, int replica, int64_t batch, double seconds);

typedef struct RankClock {
  double now;
  double waited, may_wait; /* for messages and slots, and so long it may at most */
  double began;
  int stage, replica;
  int64_t ended;   /* batches */
  int64_t *passes; /* by chunk and pass: how many, where they vary */
} RankClock;

/* Both sides' times of a message: it is there so many seconds after the later of them. */
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
  bool varies;    /* passes take a little more or less time each */
  bool stopped;   /* a rank has waited too long, or `ended` said so */
  const Reel *at; /* what is read next: */
  int tick;       /* of this reel */
} Reader;
Reader reader_new(const Layout *l, const Program *programs);
void reader_start(Reader *r, const StageTimes *times); /* from the beginning */
void reader_go_on(Reader *r, const Tape *t);           /* to the end of what is written, or until it is stopped */

#endif
