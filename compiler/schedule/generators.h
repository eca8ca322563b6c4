/* Private to compiler/schedule: the rows of the table of schedules. */
#ifndef PDC_GENERATORS_H
#define PDC_GENERATORS_H

#include "schedule/program.h"

typedef enum {
  NEWEST,  /* drained: no newer version exists during a batch */
  ONE_OLD, /* every batch uses the version before the newest */
  STASHED  /* the newest version at a microbatch's forward, stashed for its backward */
} Staleness;

/* A schedule is a row of a table (schedule.c). in_flight: turns of a rank of the stage between their forward and
 * their backward; `next`: those of a rank of the next stage (0: none). If the schedule drains, a batch limits
 * them. */
typedef struct Generator {
  const char *name;
  const char *summary; /* one line for help: the order of passes, and the weights they read */
  bool forward_only;   /* inference: no backward passes and no updates */
  bool drains;         /* at every batch */
  Staleness staleness;
  bool replicas;   /* stages may have several ranks */
  bool tensor;     /* stages support tensor parallelism */
  bool chunks;     /* ranks hold several chunks */
  bool spills;     /* offload of the ranks' chunks */
  bool split;      /* backward is in two: DO_WEIGHTS */
  bool recomputes; /* stages may recompute */
  bool serial;     /* no two ranks of a pipeline are busy at once */
  int64_t (*in_flight)(const Pipeline *p, int stage, int64_t next);
} Generator;

int64_t in_flight_one(const Pipeline *p, int stage, int64_t next);
int64_t in_flight_all(const Pipeline *p, int stage, int64_t next);
int64_t in_flight_1f1b(const Pipeline *p, int stage, int64_t next);
int64_t in_flight_spilled(const Pipeline *p, int stage, int64_t next);
int64_t in_flight_interleaved(const Pipeline *p, int stage, int64_t next);
int64_t *turns_in_flight(const Generator *g, const Pipeline *p); /* by stage */
/* The programs of a pipeline that schedule() has checked; exchanges as in schedule(), not NULL. */
Program *generate(const Generator *g, const Pipeline *pipeline, const bool *exchanges);

#endif
