/* Lowered kernels: the mapping of fuse's kernels to a target. A loop gets its distribution of rows and columns
 * over threads, and its places of partial sums; a call gets a function of the runtime. Both get their arguments,
 * written arguments and bytes of scratch memory. Shapes alone decide all of it, once: allocate sizes the arena
 * from it, emit prints it. */
#ifndef PDC_LOWER_H
#define PDC_LOWER_H

#include "fuse/kernel.h"
#include "ops/call.h"
#include "ops/expression.h"
#include "optimizers/optimizer.h"

/* ---- arguments of a kernel ---------------------------------------------------------------------- */

/* In this order: first, the buffers, the keys, the scratch memory. */
typedef struct Arguments {
  bool first;    /* whether this is a batch's first microbatch, which overwrites accumulators */
  Ints buffers;  /* of a loop each once, of a call one per place */
  bool *written; /* by argument: the kernel writes that buffer */
  Ints keys;     /* terms with random numbers: each has its own key, node_key(), even in equal kernels */
  bool scratch;
  bool now; /* reads the current microbatch's state, which changes between passes (Dialect.at) */
} Arguments;

/* ---- loops ------------------------------------------------------------------------------------ */

/* A store of a loop. */
typedef struct LoweredStore {
  bool scalar;         /* one value per row */
  bool accumulator;    /* adds to the sum of a batch's earlier microbatches */
  bool summed;         /* sums several rows of one group: has partial sums */
  bool moves[MAX_DIM]; /* its partial sums extend along this dim */
  int64_t sums;        /* elements of its partial sums */
  bool dense;          /* its target has the layout of its partial sums */
} LoweredStore;

/* The iteration, independent of the target. A group is the rows that share one set of partial sums; without sums
 * each row is a group. */
typedef struct LoopShape {
  int row_dims;         /* dims [0, row_dims) number the rows, the next dim a row's columns */
  int group_dims;       /* dims [0, group_dims) number the groups */
  int64_t groups, rows; /* rows of one group */
  int64_t columns;
  int64_t elements;    /* of all rows */
  bool *live;          /* by term: some store depends on it */
  bool reduces;        /* a row is reduced to a number */
  LoweredStore *store; /* by store */
  int64_t sums;        /* elements of a group's partial sums, each store's aligned to LANES; 0: none */
} LoopShape;

/* On processors: threads take ranges of rows, of groups or, for a single row, of columns. */
typedef struct HostLoop {
  bool tiled;                  /* rows in the kernel's tiles; each tile has its own partial sums, added in order */
  bool parallel;               /* tiled: tiles are worth several threads */
  bool ranged;                 /* a function over a range; if not tiled, called for shares of all `ways` */
  int64_t ways;                /* ranged, not tiled: groups (or columns) to divide ... */
  int64_t share;               /* ... into tasks of at least this many */
  bool in_scratch;             /* partial sums are in scratch memory, else on the stack */
  int64_t *sum_at;             /* by store: the offset of its partial sums within a tile's (or a group's) */
  int64_t sum_stride[MAX_DIM]; /* not tiled: from one group's partial sums to the next's, along each dim */
} HostLoop;

/* On a GPU. */
typedef struct GpuLoop {
  enum {
    MAP_ELEMENTS, /* no sums: a thread has `vector` elements, or one row's scalars */
    MAP_ROWS,     /* rows are reduced: x threads have a row, or successive rows of a tile */
    MAP_COLUMNS   /* rows are summed: a thread has `vector` columns of every y-th row of a tile */
  } kind;
  int vector;            /* elements of a row per load and store; the tail of a long row is scalar */
  int vectors;           /* vectors of a thread per row, x apart; 0: any number, in sequence and uncached */
  int x, y;              /* threads of a block along the columns; simultaneous rows, each with its own threads */
  int tiles;             /* of a group's rows, each with one block (or one for each of column_blocks) */
  int64_t rows;          /* of a tile; the last may have fewer */
  int64_t columns;       /* ELEMENTS: threads per row */
  int64_t column_blocks; /* blocks that share a row's columns */
  int64_t blocks;        /* of the launch */
  int resident;          /* blocks that a multiprocessor should hold at once, within its registers */
  bool *cached;          /* by term: a thread keeps its elements from one phase to the next */
  int64_t *sum_at, sums; /* by store: offset of its sums within a tile's partial sums; their number */
  int64_t stride;        /* from one tile's partial sums to the next's */
  int64_t partials;      /* floats of all partial sums */
  bool in_scratch;       /* a second kernel adds up partial sums in scratch memory */
  int64_t total_blocks;  /* of the second kernel, per group: a block adds up SUMS_BLOCK sums */
  bool sums_in_memory;   /* columns' sums are accumulated in scratch memory, because registers do not suffice */
  bool wide;             /* indices need 64 bits */
} GpuLoop;
enum { SUMS_BLOCK = 32 }; /* sums per block of the second kernel; SUMS_BLOCK threads add up each */

/* ---- loops over time -------------------------------------------------------------------------- */

/* The kernels and the memory of a scan. Its scratch memory has, in this order, the step's tables and temporaries, the
 * second copies of states, and the scratch memory of the step's kernels. Steps write a state alternately to its result
 * and to its second copy; the last step writes the result. */
typedef struct LoweredScan {
  const Graph *body;
  const struct LoweredStage *step; /* its setup runs once, its forward pass in every step */
  int *operand;    /* by input of the body: the scan's operand, or -1 for a state that starts as zeros */
  int *input;      /* by buffer of the step: the input that it holds; -1: none */
  int64_t *offset; /* by buffer: of tables and temporaries */
  int64_t *first;  /* by state of a cached scan: the offset of the state before a row */
  int64_t *second; /* by state: the offset of its second copy; of a cached scan, of the state after a row */
  int64_t scratch; /* the offset of the kernels' scratch memory; -1: none */
} LoweredScan;

/* ---- a stage ---------------------------------------------------------------------------------- */

typedef struct Lowered {
  const Kernel *kernel;
  Arguments arguments;
  int64_t scratch_bytes;  /* at the stage's number of threads: partial sums of a loop, a library's workspace */
  int64_t meeting_bytes;  /* of a split collective, in use from its beginning to its end */
  const LoopShape *shape; /* LOOP, with one of the next two: */
  const HostLoop *host;
  const GpuLoop *gpu;
  const Call *call;        /* CALL */
  const LoweredScan *scan; /* CALL of an op with a body */
} Lowered;
typedef Vec(Lowered) LoweredList;

/* Lists of a stage's kernels: setup, then by pass. */
enum { N_LISTS = 1 + PASS_KINDS };

typedef struct LoweredStage {
  const StageKernels *kernels;
  LoweredList list[N_LISTS];
} LoweredStage;

LoweredStage *lower(const StageKernels *k);
/* The kernels of setup (0), or of a pass, in the order of StageKernels. */
static inline const LoweredList *lowered_setup(const LoweredStage *s) { return &s->list[0]; }
static inline const LoweredList *lowered_pass(const LoweredStage *s, PassKind pass) { return &s->list[1 + pass]; }
void lowered_dump(const LoweredStage *s, FILE *out);
void lowered_verify(const LoweredStage *s);

/* Data movement and operations of a kernel, at the stage's microbatch. */
typedef struct KernelWork {
  double
      bytes; /* of the elements that it accesses, each once; of a table that a call looks up, the accessed rows */
  double products; /* operations of products, as MFU counts them */
  double spared;   /* operations of these that processors skip */
  double others;   /* all further operations */
} KernelWork;
KernelWork kernel_work(const StageKernels *stage, const Lowered *l);

/* Scratch bytes of an update of the parameter, for rules that need scratch memory. */
int64_t update_scratch_bytes(const StageKernels *k, const UpdateRule *rule, const Param *p);

/* dim[from] * .. * dim[end - 1]; 1 for an empty range. */
int64_t product(const int64_t *dim, int from, int end);

/* ---- targets ---------------------------------------------------------------------------------- */

/* A target's part in lowering. */
typedef struct Lowering {
  void (*loop)(const StageKernels *stage, Lowered *k); /* fills host or gpu, and scratch_bytes */
  const Library *library;                              /* functions that do calls there */
  /* rows of matrices with many odd rows are padded to a multiple of this (layout/pad_rows.h); 0: no padding */
  int row_multiple;
  bool epilogues; /* products in bf16 may include GELU (layout/epilogues.h) or sum a factor (biases/biases.h) */
  unsigned now_words; /* words of an op's expression that need Arguments.now, as bits 1u << Word */
} Lowering;
static inline const Lowering *lowering_of(const StageKernels *k) { return backend_of(&k->target)->lowering; }

#endif
