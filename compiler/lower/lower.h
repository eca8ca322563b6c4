/* Lowered kernels: how a target runs what fuse made. Of a loop it says how rows and columns are dealt to threads
 * and where partial sums stand, of a call which function of the runtime does it with what; of both what they are
 * called with, what they write and how many bytes of scratch memory they take. All of it is decided here, once and
 * from shapes alone: allocate sizes the arena from it, emit prints it. */
#ifndef PDC_LOWER_H
#define PDC_LOWER_H

#include "fuse/kernel.h"
#include "ops/call.h"
#include "ops/expression.h"
#include "optimizers/optimizer.h"

/* ---- what a kernel is called with ------------------------------------------------------------- */

/* In this order: first, the buffers, the keys, the scratch memory. */
typedef struct Arguments {
  bool first;    /* whether this is a batch's first microbatch: accumulators are overwritten */
  Ints buffers;  /* of a loop each once, of a call one for each of its places */
  bool *written; /* by argument: the kernel writes to that buffer */
  Ints keys; /* terms whose random numbers have a key of their own: node_key(), which like kernels do not share */
  bool scratch;
  bool now; /* reads the current microbatch's numbers where they change from one pass to the next (Dialect.at) */
} Arguments;

/* ---- loops ------------------------------------------------------------------------------------ */

/* A store of a loop. */
typedef struct LoweredStore {
  bool scalar;         /* of one value a row */
  bool accumulator;    /* adds to what a batch's earlier microbatches left */
  bool summed;         /* adds up several rows of one group: has partial sums */
  bool moves[MAX_DIM]; /* its partial sums extend along this dim */
  int64_t sums;        /* elements of its partial sums */
  bool dense;          /* its target lies in memory as its partial sums do */
} LoweredStore;

/* The iteration, whatever runs it. A group is the rows that share one set of partial sums; without sums each row
 * is a group of its own. */
typedef struct LoopShape {
  int row_dims;         /* dims [0, row_dims) number the rows, the dim behind them a row's columns */
  int group_dims;       /* dims [0, group_dims) number the groups */
  int64_t groups, rows; /* rows of one group */
  int64_t columns;
  int64_t elements;    /* of all rows */
  bool *live;          /* by term: some store depends on it */
  bool reduces;        /* a row is reduced to a number */
  LoweredStore *store; /* by store */
  int64_t sums;        /* elements of a group's partial sums, each store's from a multiple of LANES; 0: none */
} LoopShape;

/* On processors: threads take ranges of rows, of groups or, of a single row, of columns. */
typedef struct HostLoop {
  bool tiled;      /* rows in the kernel's tiles, each with its own partial sums, which are added in their order */
  bool parallel;   /* tiled: tiles are worth several threads */
  bool ranged;     /* a function over a range; where it is not tiled, called for shares of all `ways` */
  int64_t ways;    /* ranged, not tiled: groups (or columns) that are dealt out ... */
  int64_t share;   /* ... this many to a task at least */
  bool in_scratch; /* partial sums stand in scratch memory, else on the stack */
  int64_t *sum_at; /* by store: the first of its partial sums among a tile's (or a group's) */
  int64_t sum_stride[MAX_DIM]; /* without tiles: from one group's partial sums to the next's, along each dim */
} HostLoop;

/* On a GPU. */
typedef struct GpuLoop {
  enum {
    MAP_ELEMENTS, /* nothing is summed: a thread has `vector` elements, or one row's scalars */
    MAP_ROWS,     /* rows are reduced: the x threads of a team have a row, or in turn the rows of a tile */
    MAP_COLUMNS   /* rows are added up: a thread has `vector` columns of each y-th row of a tile */
  } kind;
  int vector;      /* elements of a row that are loaded and stored at once; the last ones of a long row, where
                            they are fewer, one by one */
  int vectors;     /* a thread's of a row, x apart; 0: any number, one after the other, and none is cached */
  int x, y;        /* threads of a block along the columns; rows at a time, each by threads of its own */
  int tiles;       /* of a group's rows, each a block's (or one's for each of column_blocks) */
  int64_t rows;    /* of a tile; the last may have fewer */
  int64_t columns; /* ELEMENTS: threads a row */
  int64_t column_blocks; /* blocks that a row's columns are dealt to */
  int64_t blocks;        /* of the launch */
  int resident;          /* blocks that a multiprocessor should hold at once, within its registers */
  bool *cached;          /* by term: a thread holds its elements from one phase to the next */
  int64_t *sum_at, sums; /* by store: where its sums stand among a tile's partial sums; their number */
  int64_t stride;        /* from one tile's partial sums to the next's */
  int64_t partials;      /* floats of all partial sums */
  bool in_scratch;       /* there are partial sums, which a second kernel adds up */
  int64_t total_blocks;  /* of the second kernel for a group: a block adds up SUMS_BLOCK sums */
  bool sums_in_memory;   /* columns' sums are added to where the partial sums stand: they are too many to hold */
  bool wide;             /* indices need 64 bits */
} GpuLoop;
enum { SUMS_BLOCK = 32 }; /* sums that a block of the second kernel adds up, by as many threads each */

/* ---- a stage ---------------------------------------------------------------------------------- */

typedef struct Lowered {
  const Kernel *kernel;
  Arguments arguments;
  int64_t scratch_bytes; /* at the stage's number of threads: partial sums of a loop, a library's working memory */
  int64_t meeting_bytes; /* of a collective in two, of which it uses them from its beginning to its end */
  const LoopShape *shape; /* LOOP, with one of the two that follow: */
  const HostLoop *host;
  const GpuLoop *gpu;
  const Call *call; /* CALL */
} Lowered;
typedef Vec(Lowered) LoweredList;

/* Lists of a stage's kernels: setup, then by pass. */
enum { N_LISTS = 1 + PASS_KINDS };

typedef struct LoweredStage {
  const StageKernels *kernels;
  LoweredList list[N_LISTS];
} LoweredStage;

LoweredStage *lower(const StageKernels *k);
/* The kernels of setup (0), or of a pass, as StageKernels has them. */
static inline const LoweredList *lowered_setup(const LoweredStage *s) { return &s->list[0]; }
static inline const LoweredList *lowered_pass(const LoweredStage *s, PassKind pass) { return &s->list[1 + pass]; }
void lowered_dump(const LoweredStage *s, FILE *out);
void lowered_verify(const LoweredStage *s);

/* What a kernel must move and compute, at the stage's microbatch. */
typedef struct KernelWork {
  double
      bytes; /* of its buffers' elements that it reaches, each once; of a table that a call looks up, those rows' */
  double products; /* operations of products, as mfu counts them */
  double spared;   /* of those, what processors need not do */
  double others;   /* operations beside them */
} KernelWork;
KernelWork kernel_work(const StageKernels *stage, const Lowered *l);

/* What an update of the parameter takes of scratch memory, by a rule that takes some. */
int64_t update_scratch_bytes(const StageKernels *k, const UpdateRule *rule, const Param *p);

/* dim[from] * .. * dim[end - 1]; 1 where there are none. */
int64_t product(const int64_t *dim, int from, int end);

/* ---- targets ---------------------------------------------------------------------------------- */

/* A target's part in lowering. */
typedef struct Lowering {
  void (*loop)(const StageKernels *stage, Lowered *k); /* fills host or gpu, and scratch_bytes */
  const Library *library;                              /* what does calls there */
  int row_multiple; /* rows that matrices of many odd rows are padded to a multiple of (layout/pad_rows.h); 0: none */
  bool epilogues; /* products in bf16 may end in GELU (layout/epilogues.h), or add up a factor (biases/biases.h) */
  unsigned now_words; /* the words of an op's expression that are read with Arguments.now, 1u << Word each */
} Lowering;
static inline const Lowering *lowering_of(const StageKernels *k) { return backend_of(&k->target)->lowering; }

#endif
