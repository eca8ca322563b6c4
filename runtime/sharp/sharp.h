/* Several models in one launch (docs/guide/many-models.md). Ranks are shares of a machine's processors; models are
 * processes that wait for a rank. A model keeps its rank for at least a unit of work, which is a part of a batch.
 * The scheduler is Sharded-LRTF, longest remaining time first (Nagrecha and Kumar, "Hydra: A System for Large
 * Multi-Model Deep Learning", section 4.3). The state is in shared memory under a lock (sharp_table.h); the
 * functions of sharp.c are independent of both, and get the time as an argument. */
#ifndef PD_SHARP_H
#define PD_SHARP_H

#include <stdbool.h>
#include <stdint.h>

enum { PD_SHARP_MODELS = 64, PD_SHARP_RANKS = 64, PD_SHARP_SPANS = 1 << 16 };

enum pd_sharp_state {
  PD_SHARP_STARTS, /* work not yet announced */
  PD_SHARP_WAITS,
  PD_SHARP_RUNS,
  PD_SHARP_ENDED
};

struct pd_sharp_model {
  enum pd_sharp_state state;
  int rank;         /* rank that the model runs on or, while it waits, that expects it next; -1: none */
  double remaining; /* estimated seconds of remaining work, by the plan times slowness */
  double slowness;  /* measured over planned seconds; 0: not measured */
  double since;     /* time when the model got its rank */
  double busy;      /* seconds on ranks before `since` */
  uint32_t changes; /* counter of changes that the model waits for */
};

struct pd_sharp_rank {
  int runs, next; /* models; next: the expected model; -1: none */
  double busy;    /* seconds with a model */
};

struct pd_sharp_span { /* a model's time on a rank */
  double start, end;
  int model, rank;
};

struct pd_sharp {
  int models, ranks;
  double slice; /* shortest time that a model keeps its rank, in seconds */
  struct pd_sharp_model model[PD_SHARP_MODELS];
  struct pd_sharp_rank rank[PD_SHARP_RANKS];
  int64_t n_spans; /* may exceed PD_SHARP_SPANS; later spans are dropped */
  struct pd_sharp_span span[PD_SHARP_SPANS];
};

/* Initial state: all ranks idle, all models start. */
void pd_sharp_start(struct pd_sharp *s, int models, int ranks, double slice);
/* Announces a model's seconds of work. The last announcement assigns the ranks. */
void pd_sharp_join(struct pd_sharp *s, int model, double seconds, double now);
/* Reports a model's measured slowness, which also scales the estimates of models without measurements. */
void pd_sharp_measure(struct pd_sharp *s, int model, double slowness);
/* At the start of a unit's last piece, with the seconds of work after it: true if the model will keep its rank.
 * Else the next model becomes expected (pd_sharp_is_expected) and may prefetch its part. The choice stays unless
 * the expected model ends or gets an idle rank. */
bool pd_sharp_look_ahead(struct pd_sharp *s, int model, double seconds, double now);
bool pd_sharp_is_expected(const struct pd_sharp *s, int model);
/* At the end of a unit: true if the model keeps its rank; else the model waits until its state is
 * PD_SHARP_RUNS. */
bool pd_sharp_end_unit(struct pd_sharp *s, int model, double seconds, double now);
/* Removes a model that ended, in any state. */
void pd_sharp_end(struct pd_sharp *s, int model, double now);
bool pd_sharp_all_ended(const struct pd_sharp *s);

#endif
