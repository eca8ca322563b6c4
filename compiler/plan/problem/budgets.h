/* Private to compiler/plan: how far searches go, and what counts as equal, in one table. A budget ends a search; what was found by
 * then counts, and nothing is said of it, unless the line says what is. A turn that is
 * simulated takes about 1.7 us.
 *
 *   AS_FAST_..., WORTH_...     ratios of seconds of a batch: what differs by less is equal, or not worth a change
 *   BUDGET_..., MOST_...       numbers of what is looked at
 *   FEW_..., MANY_..., LARGE_  from where on problems count as large, and are looked at less closely */
#ifndef PDC_PLAN_BUDGETS_H
#define PDC_PLAN_BUDGETS_H

/* ---- what counts as equal */

#define AS_FAST 1.005 /* no prediction tells such plans apart: the simpler one wins, or the one with less memory */
#define AS_FAST_WAY \
  1.006 /* a way to use the ranks that choose.c may still prefer as the simpler one: a little above AS_FAST */
#define SAME_SECONDS 1e-4 /* of a batch: a runner-up so near in time shows a reader nothing else */
#define WORTH_STATES \
  0.99 /* a plan with shared optimizer states, or activations split by positions: it costs messages */
#define WORTH_HINT 0.95         /* another schedule is said in a hint */
#define WORTH_PLACES 0.005      /* gain for which ranks stand in other places than in order */
#define WORTH_LAYOUT (1 - 2e-4) /* a microbatch may gain that much by every bound, or its plans are not laid out */
#define WORTH_ANOTHER (1 - 1e-3) /* refining goes on from another place while a batch gets so much shorter */
#define WORTH_EVERY (1 - 1e-6)   /* of all plans, one is simulated that may be shorter: above rounding */
#define WORTH_CUT 1e-6           /* refine.c: a moved cut makes a batch shorter by so much: above rounding */
#define WORTH_FORM 1e-3          /* ... and another form, which is less like what a reader asked for */
#define WORTH_AGAIN 1e-5         /* ... and what random changes lead to */
#define WORTH_ROUND (1 - 1e-3)   /* rounds.c: a better cut of two rounds: what estimates tell apart */

/* ---- what may become the fastest: ratios of the best so far */

#define CLOSE 1.3             /* choose.c: candidates, by bound */
#define CLOSE_MANY_RANKS 1.02 /* ... where laying one out takes seconds */
#define CLOSE_EQUAL 1.5       /* ways.c: forms with as many ranks a stage */
#define CLOSE_LAYERS 1.15     /* layers.c: what is refined beside the best */
#define BESIDE_WHOLE \
  1.05 /* one.c: plans with shared states, which refining may make faster than those with whole ones */
#define NO_MORE_THAN 1.3 /* refine.c: after random changes */

/* ---- from where on problems are large */

enum {
  MANY_RANKS = 32,         /* plans of more are laid out in fewer rounds, and fewer of their ways are kept */
  VERY_MANY_RANKS = 128,   /* a few ways to use them are as good as all */
  LARGE_MODEL = 640,       /* pieces: refine.c lays out the last plan alone */
  VERY_LARGE_MODEL = 2000, /* ... when it is thorough */
  LARGE_PROBLEM =
      2000, /* ranks times pieces: the least memory is found to 1 %, by any plan that fits ("enough" is said) */
  FEW_STAGES = 8,          /* refuse.c tries each number of stages up to so many, others in steps */
  FEW_WORKERS = 8,         /* a hint looks at schedules that take long */
  MOST_HINT_WORKERS = 256, /* ... and is given at all */
  MOST_HINT_PIECES = 512
};

/* ---- how much is looked at */

enum {
  BUDGET_LAYOUTS_RANKS = 640,    /* choose.c: plans that are laid out once one fits: this over ranks, ... */
  BUDGET_LAYOUTS_PIECES = 30000, /* ... or this over pieces */
  LEAST_LAYOUTS = 6,             /* ... and no fewer */
  MORE_LEADERS = 24,      /* choose.c: candidates that are refined beyond the leaders where each takes little: */
  LITTLE_TURNS = 60000,   /* turns simulated for it, a tenth of a second */
  FEW_REFINED_CHUNKS = 4, /* choose.c: plans with chunks that are refined again, ... */
  BUDGET_AGAIN_CHUNKS = 1600000, /* ... for so many turns, three seconds */
  BEST_REFINED = 2,              /* the same without chunks */
  BUDGET_AGAIN = 4000000,
  ROUNDS_OF_ALL = 8,            /* choose.c: times that all plans are tried, from the best so far, */
  BUDGET_OF_ALL = 1000000,      /* ... in 50 ns each, 50 ms together; every.c counts what it takes */
  BUDGET_STEPS = 400,           /* refine.c: simulations, at most; */
  LEAST_STEPS = 8,              /* ... at least; */
  BUDGET_TURNS = 400000,        /* ... turns that they simulate together, half a second; */
  TIMES_OF_CHUNKS = 3,          /* ... times as many for several chunks; */
  TIMES_THOROUGH = 5,           /* ... and where the search is thorough */
  MOST_REFINE_LAYOUTS = 200,    /* refine.c: layouts on the way, each of all stages, ... */
  BUDGET_REFINE_PIECES = 20000, /* ... or this over pieces */
  BUDGET_SHIFTS = 16000,        /* chunks.c: shifts of cuts, over parts */
  BUDGET_REPAIRS = 300,         /* chunks.c: shifts until chunks fit */
  MOST_ROUND_PLACES = 128,      /* rounds.c: places of cuts, of two rounds together */
  MOST_SPILLED_TRIES = 16,      /* spilled.c: of where stages start, for a size of microbatch */
  MOST_FORMS = 8                /* ways.c: that a size of microbatch keeps */
};

/* ---- the least memory that is enough (least.c), which a refusal says */

enum {
  MEMORY_STEP = 1 << 14,         /* bytes: --memory is tried in multiples of it */
  MEMORY_NEAR = 4 * MEMORY_STEP, /* "is the least that is enough": so near, or, of large problems, ... */
  MEMORY_PARTS = 100,            /* ... to one of so many parts of it: "is enough" */
  MEMORY_TRIES = 6               /* of more and more memory until one is enough; else nothing is said */
};

#endif
