/* Private to compiler/plan: limits of searches, and thresholds of equality, in one table. A budget ends a search
 * with the best result so far; the plan's `why` reports only the end of the exhaustive search. One simulated turn
 * takes about 1.7 us.
 * AS_FAST_..., WORTH_...: ratios of batch times; smaller differences count as equal, or as no reason for a change.
 * BUDGET_..., MOST_...: numbers of tried plans.
 * FEW_..., MANY_..., LARGE_: sizes from which problems count as large and are searched less closely. */
#ifndef PDC_PLAN_BUDGETS_H
#define PDC_PLAN_BUDGETS_H

/* ---- equality */

#define AS_FAST 1.005     /* within the error of predictions: the simpler plan wins, or the one with less memory */
#define AS_FAST_WAY 1.006 /* slightly above AS_FAST, because choose.c may prefer such a form as the simpler one */
#define SAME_SECONDS 1e-4 /* of a batch: a runner-up this close in time gives no new information */
#define WORTH_STATES \
  0.99 /* gain of sharded optimizer state, or activations split by positions: both cost messages */
#define WORTH_HINT 0.95          /* a hint names another schedule */
#define WORTH_PLACES 0.005       /* gain that justifies places of ranks out of order */
#define WORTH_LAYOUT (1 - 2e-4)  /* layouts of a microbatch start only if every bound allows this gain */
#define WORTH_ANOTHER (1 - 1e-3) /* refinement restarts while a batch becomes this much shorter */
#define WORTH_EVERY (1 - 1e-6)   /* exhaustive search: gain of a simulated plan, above rounding */
#define WORTH_CUT 1e-6           /* refine.c: gain of a moved cut, above rounding */
#define WORTH_FORM 1e-3          /* refine.c: gain of another form */
#define WORTH_AGAIN 1e-5         /* refine.c: gain of random changes */
#define WORTH_ROUND (1 - 1e-3)   /* rounds.c: gain of a cut of two rounds, above the error of estimates */

/* ---- candidates: ratios to the fastest plan so far */

#define CLOSE 1.3             /* choose.c: candidates, by bound */
#define CLOSE_MANY_RANKS 1.02 /* choose.c: with layouts that take seconds */
#define CLOSE_EQUAL 1.5       /* ways.c: forms with equal ranks per stage */
#define CLOSE_LAYERS 1.15     /* layers.c: plans refined beside the fastest */
#define BESIDE_VARIED 1.05    /* one.c: plans of a variation, before refinement makes them faster */
#define NO_MORE_THAN 1.3      /* refine.c: after random changes */

/* ---- sizes of large problems */

enum {
  MANY_RANKS = 32,         /* fewer rounds of layouts, and fewer ways per microbatch */
  MANY_STAGES = 16,        /* of several chunks: fewer starting cuts, balanced once */
  VERY_MANY_RANKS = 128,   /* only a few ways */
  LARGE_MODEL = 640,       /* pieces: refine.c lays out the last plan alone */
  VERY_LARGE_MODEL = 2000, /* pieces: the same for a thorough refinement */
  LARGE_PROBLEM = 2000,    /* ranks times pieces: the least memory is exact to 1 %, by any plan that fits */
  FEW_STAGES = 8,          /* refuse.c tries every number of stages up to this, larger numbers in steps */
  FEW_WORKERS = 8,         /* a hint considers slowly planned schedules up to this number of ranks */
  MOST_HINT_WORKERS = 256, /* hints up to this number of ranks */
  MOST_HINT_PIECES = 512
};

/* ---- limits of the search */

enum {
  BUDGET_LAYOUTS_RANKS = 640,    /* choose.c: layouts after a first plan fits: this divided by ranks, */
  BUDGET_LAYOUTS_PIECES = 30000, /* or this divided by pieces, */
  LEAST_LAYOUTS = 6,             /* but at least this number */
  MORE_LEADERS = 24,             /* choose.c: additional refined candidates, if each needs few */
  LITTLE_TURNS = 60000,          /* simulated turns, a tenth of a second */
  FEW_REFINED_CHUNKS = 4,        /* choose.c: plans with chunks that are refined again, */
  BUDGET_AGAIN_CHUNKS = 1600000, /* for this number of turns, three seconds */
  BEST_REFINED = 2,              /* the same without chunks */
  BUDGET_AGAIN = 4000000,
  ROUNDS_OF_ALL = 8,            /* choose.c: rounds of the exhaustive search, each from the fastest plan so far, */
  BUDGET_OF_ALL = 1000000,      /* with this budget in units of 50 ns, 50 ms together (every.c) */
  BUDGET_STEPS = 400,           /* refine.c: most simulations; */
  LEAST_STEPS = 8,              /* least simulations; */
  BUDGET_TURNS = 400000,        /* turns of all simulations, half a second; */
  TIMES_OF_CHUNKS = 3,          /* factor for several chunks; */
  TIMES_THOROUGH = 5,           /* factor for a thorough search */
  MOST_REFINE_LAYOUTS = 200,    /* refine.c: layouts of all stages, */
  BUDGET_REFINE_PIECES = 20000, /* ... or this over pieces */
  BUDGET_SHIFTS = 16000,        /* chunks.c: shifts of cuts, over parts */
  BUDGET_REPAIRS = 300,         /* chunks.c: shifts until chunks fit */
  MOST_ROUND_PLACES = 128,      /* rounds.c: places of cuts, of two rounds together */
  MOST_SPILLED_TRIES = 16,      /* spilled.c: tried starts of stages per size of microbatch */
  MOST_FORMS = 8                /* ways.c: forms per size of microbatch */
};

/* ---- the smallest sufficient memory (least.c), for diagnostics */

enum {
  MEMORY_STEP = 1 << 14,         /* bytes: step of tried --memory */
  MEMORY_NEAR = 4 * MEMORY_STEP, /* "is the smallest sufficient limit": exact to this, or for large problems */
  MEMORY_PARTS = 100,            /* to one part in this number: "is enough" */
  MEMORY_TRIES = 6               /* tries of growing memory; after them the diagnostic gives no limit */
};

#endif
