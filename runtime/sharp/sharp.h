/* Several models in one launch (docs/guide/many-models.md): ranks are shares of a machine's processors, models are processes
 * that wait for one, and a unit of work, a part of a batch, is what a model does before another may have its rank.
 * Who is next is chosen by Sharded-LRTF, longest remaining time first (Nagrecha and Kumar, "Hydra: A System for
 * Large Multi-Model Deep Learning", section 4.3). The state below stands in memory that all of them share, and
 * changes under a lock (sharp_turn.h); the functions of sharp.c know neither, and take the time as a number. */
#ifndef PD_SHARP_H
#define PD_SHARP_H

#include <stdbool.h>
#include <stdint.h>

enum { PD_SHARP_MODELS = 64, PD_SHARP_RANKS = 64, PD_SHARP_SPANS = 1 << 16 };

enum pd_sharp_state {
  PD_SHARP_STARTS, /* has not said yet how long it takes */
  PD_SHARP_WAITS,
  PD_SHARP_RUNS,
  PD_SHARP_ENDED
};

struct pd_sharp_model {
  enum pd_sharp_state state;
  int rank;         /* the one that it runs on; while it waits, the one that expects it next; -1: none */
  double remaining; /* seconds of work that it still has, as it estimates: by its plan, or: */
  double slowness;  /* of what it has done: seconds measured over seconds planned; 0: it has not measured any */
  double since;     /* when it was given its rank; and how long it has had one until then: */
  double busy;
  uint32_t changes; /* counts what it should know of: it waits for this number to change */
};

struct pd_sharp_rank {
  int runs, next; /* models; next: the one that is expected; -1: none */
  double busy;    /* seconds, of the models that ran here */
};

struct pd_sharp_span { /* a model was on a rank */
  double start, end;
  int model, rank;
};

struct pd_sharp {
  int models, ranks;
  double slice; /* seconds that a model may keep its rank at least */
  struct pd_sharp_model model[PD_SHARP_MODELS];
  struct pd_sharp_rank rank[PD_SHARP_RANKS];
  int64_t n_spans; /* only the first PD_SHARP_SPANS are kept */
  struct pd_sharp_span span[PD_SHARP_SPANS];
};

/* All ranks are idle, all models start. */
void pd_sharp_start(struct pd_sharp *s, int models, int ranks, double slice);
/* A model has so many seconds of work. Once no model starts any more the ranks are dealt out. */
void pd_sharp_join(struct pd_sharp *s, int model, double seconds, double now);
/* A model has measured how long it takes; what others have planned is then taken as so much slower or faster. */
void pd_sharp_measure(struct pd_sharp *s, int model, double slowness);
/* A model begins the last piece of a unit, after which it has so many seconds of work: true if it goes on after that,
 * else the one that will is told (pd_sharp_is_expected), and may read its part of the model ahead. What is
 * chosen here stays, unless that one ends, or gets a rank that would be idle. */
bool pd_sharp_look_ahead(struct pd_sharp *s, int model, double seconds, double now);
bool pd_sharp_is_expected(const struct pd_sharp *s, int model);
/* A unit ends: true if the model goes on; else it waits, until its state says that it runs. */
bool pd_sharp_end_unit(struct pd_sharp *s, int model, double seconds, double now);
/* A model ends, wherever it was. */
void pd_sharp_end(struct pd_sharp *s, int model, double now);
bool pd_sharp_all_ended(const struct pd_sharp *s);

#endif
