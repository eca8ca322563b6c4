/* Kernels of one stage: fused loops and calls over places in buffers. fuse() creates them from the stage's
 * share of the Graph; lower maps them to a target. */
#ifndef PDC_KERNEL_H
#define PDC_KERNEL_H

#include "target/target.h"
#include "cut/cut.h"
#include "ops/op.h"

enum { LANES = 16 };

typedef enum {
  BUFFER_WEIGHT,            /* a parameter; one copy per weight version */
  BUFFER_FROZEN,            /* a frozen parameter: one copy for all versions */
  BUFFER_ACCUMULATOR,       /* the gradient of one use of a parameter, summed over a batch */
  BUFFER_INPUT,             /* tokens or targets of a microbatch, one copy per slot */
  BUFFER_RECEIVED,          /* activations from the stage before, one copy per slot */
  BUFFER_SENT,              /* activations to the next stage, one copy per slot; also read on this stage */
  BUFFER_GRADIENT_RECEIVED, /* gradients of sent activations */
  BUFFER_GRADIENT_SENT,     /* gradients of received activations */
  /* Values local to the stage, down to TEMPORARY: their writers and readers decide the kind. */
  BUFFER_SAVED,     /* written by forward, read by backward: one copy per microbatch in flight */
  BUFFER_KEPT,      /* written by forward, read by the weights pass: one copy per microbatch in flight */
  BUFFER_DEFERRED,  /* written by backward, read by the weights pass: one copy per slot */
  BUFFER_TEMPORARY, /* within forward or within backward */
  BUFFER_TABLE,     /* computed once at the start: depends on no input and no parameter */
  BUFFER_CACHE,     /* values that a call keeps between microbatches (Op.first_kept) */
  BUFFER_FIGURE     /* a loss's or a metric's elements for one microbatch */
} BufferKind;

/* Passes of a microbatch, in this order. With a split backward, the weights pass has the calls that only add to
 * accumulators without further readers; a sequence of calls without temporaries. */
typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_WEIGHTS, PASS_KINDS } PassKind;

typedef struct Buffer {
  Name name;    /* C identifier, unique among the chunk's buffers of its kind and region */
  Name comment; /* the user's name with its scope: "h.3.attn.qkv" */
  BufferKind kind;
  int chunk;       /* chunk of the rank; of a WEIGHT or FROZEN the first chunk that uses it */
  uint64_t chunks; /* of a WEIGHT or FROZEN: bit c: chunk c uses it; 0: the rank has one chunk */
  Type type;
  int rank;
  int64_t dim[MAX_DIM]; /* with the microbatch axis first if batched; contiguous */
  int64_t elements;     /* product of dim */
  int value;            /* graph value; of a TEMPORARY with several parts the whole value */
  int then;             /* SAVED .. TEMPORARY: the last value that reuses its memory (reuse.c); -1: none */
  int param, use;       /* WEIGHT, FROZEN, ACCUMULATOR */
  int figure;           /* FIGURE: its index in the graph */
  /* WEIGHT, FROZEN, ACCUMULATOR: its region; SAVED .. TEMPORARY: the region of all its uses, -1: several
   * regions */
  int region;
  bool backward; /* SAVED .. TEMPORARY: written by backward */
  /* SAVED .. TEMPORARY: first and last kernel that uses it, indices into the lists of the pass that writes it
   * and of the last pass that reads it */
  int first, last;
  /* ACCUMULATOR: last backward kernel that adds to it, or the last of that kernel's region call */
  int complete;
  bool late; /* read by the weights pass */
  bool bf16; /* stored in bf16 (--precision bf16); places still count elements */
} Buffer;

typedef enum { TERM_LOAD, TERM_CONSTANT, TERM_OP, TERM_REDUCE } TermKind;

typedef struct Term {
  TermKind kind;
  Name name;        /* a C identifier, unique within the kernel */
  const Op *op;     /* OP, REDUCE (op_sum: + over 16 lanes; op_max) */
  const Node *node; /* OP: for attributes */
  int n_in, in[4];  /* terms, all earlier in the list */
  double constant;
  Place place; /* LOAD: strides in the kernel's dims; last stride 0 when scalar */
  bool scalar; /* one value per row; else one per element */
  /* OP, LOAD: the first phase that needs it. REDUCE: the phase that accumulates it; the result is available
   * from phase + 1 on. Scalars that depend on a REDUCE are computed between phases, before `phase`. */
  int phase;
  /* bit p: phase p needs it (reloads, recomputes, or reads its row_buffer, which `phase` fills); scalars: 1 <<
   * phase */
  unsigned phases;
  bool rounded;    /* OP, REDUCE: bf16 in memory, and rounded in the loop */
  bool row_buffer; /* expensive and needed in more than one phase: cached in a float[row] */
} Term;

typedef struct Store {
  int term;
  Place place; /* in the kernel's dims */
  /* += over the dims of stride 0, from zero; an ACCUMULATOR continues from a batch's earlier microbatches */
  bool accumulate;
  int phase; /* its phase; a row's scalar: before `phase`, or after the last when phase == phases */
} Store;

typedef enum { KERNEL_LOOP, KERNEL_CALL } KernelKind;

/* LOOP: for every row (all dims but the last) `phases` phases, each a pass over the row. Dims are merged if all
 * places allow it. Sums over the row use LANES lanes: element j goes to lane j % LANES, then lanes are added as a
 * balanced tree ((0+8)+(4+12))+...: halves first; max uses the same tree. Accumulating stores: the first
 * `parallel` dims have no accumulation; the remaining dims run in order. When parallel is 0, rows are divided into
 * `tiles` equal tiles (by shape alone). Each tile has its own partial sums, which are added in order. CALL: one
 * node, whose op describes the call (ops/call.h); a collective may be split in two. */
typedef struct Kernel {
  KernelKind kind;
  Name name;    /* C identifier: "ln_1_forward", "attn_c_attn_weight_gradient" */
  Name comment; /* for readers: "h.3.ln_1: layer_norm" */
  int chunk, region;
  bool backward;
  bool again; /* backward: computes values of the forward pass again (recompute.c) */
  /* LOOP */
  int n_dims;
  int64_t dim[MAX_DIM];
  int parallel, tiles;
  /* dim[0] is the microbatch axis, unmerged: required by terms that use $i or $s, which count within the sample
   * over dims 1.. */
  bool samples;
  int phases;
  Vec(Term) terms;
  Vec(Store) stores;
  /* CALL */
  const Node *node;
  Vec(Place) in, out;
  int bias;        /* index into `in` of the vector that the call adds along the last axis, or -1 */
  bool accumulate; /* out[0] is an ACCUMULATOR: += to all outputs, except for a batch's first microbatch */
  /* Beginning or end of a collective in two calls. Both have all places of the collective. Between the calls no
   * kernel uses its outputs or writes its inputs. */
  CallPart part;
  /* both */
  Name signature; /* kernels with equal signatures run the same code over different buffers */
} Kernel;

typedef Vec(Kernel) Kernels;

/* A place that a kernel reads or writes. */
typedef struct Access {
  Place *place; /* the kernel's own place, not a copy */
  bool write;
  int index; /* in Kernel.in or out of a call, in terms or stores of a loop */
  int next;  /* of next_access */
} Access;

/* Moves to the kernel's next place; false: no more places. Reads come first.
 *   for (Access a = {0}; next_access(kernel, &a);) */
bool next_access(const Kernel *k, Access *a);
bool *live_terms(const Kernel *k); /* of a loop, by term: some store depends on it */
/* Whether their order matters: one writes a buffer that the second reads or writes. */
bool kernels_conflict(const Kernel *a, const Kernel *b);
bool kernel_is_collective(const Kernel *k); /* or one of its two parts */

/* Consecutive kernels of one top-level instance. Regions with equal signatures are printed as one
 * function called with different buffers ("h"). */
typedef struct Region {
  Name path;   /* "h.3", "wte", "" for the model's own operations */
  Name family; /* "h": path without its trailing index */
  int index;   /* 3, or -1 */
  int chunk;
  bool once;                              /* its kernels run in steps with new samples alone (Op.once) */
  int first[PASS_KINDS], end[PASS_KINDS]; /* kernels */
  int like; /* the first region of the stage with the same signature; itself when first */
} Region;

/* A rank's part of the model: its ranges of pieces and of each pass's kernels. */
typedef struct Chunk {
  int first_piece, end_piece;
  int first_node, end_node; /* of the forward pass */
  int first[PASS_KINDS], end[PASS_KINDS];
} Chunk;

/* Kernels of a rank: of one stage, or of its chunks. Kernel lists, regions and crossing buffers are ordered by
 * chunk; one array has the buffers of all chunks. */
typedef struct StageKernels {
  const Graph *graph;
  int stage, n_stages; /* stages with ranks of their own */
  Vec(Chunk) chunks;
  int64_t microbatch;
  bool recompute;
  bool split;    /* backward is split: `weights` is used */
  bool named;    /* kernels and buffers have names, and equal regions are known */
  Target target; /* target of the programs */
  Vec(Buffer) buffers;
  Kernels setup, forward, backward, weights; /* setup: run once, fills the tables */
  Vec(Region) regions;
  Ints received, sent, gradients_received, gradients_sent; /* buffers by chunk, in order of crossing */
  Ints params; /* parameters held by this stage, in order of declaration */
} StageKernels;

/* Whether a buffer of this kind is a parameter as passes read it. */
static inline bool is_parameter(BufferKind kind) { return kind == BUFFER_WEIGHT || kind == BUFFER_FROZEN; }
/* The pass that writes a SAVED .. TEMPORARY buffer, and the last that reads it. */
static inline PassKind buffer_made(const Buffer *b) { return b->backward ? PASS_BACKWARD : PASS_FORWARD; }
static inline PassKind buffer_read_last(const Buffer *b) {
  return b->late ? PASS_WEIGHTS : b->kind == BUFFER_SAVED ? PASS_BACKWARD : buffer_made(b);
}
static inline int64_t element_bytes(const Buffer *b) { return b->bf16 ? 2 : 4; }
/* By value: whether memory stores it in bf16 under this precision; sums over a batch stay f32. */
bool *values_in_bf16(const Graph *g, Precision precision);
/* The path of the region of an instance's nodes; consecutive nodes of one path form a region. */
Name region_path(Name path);
/* split: splits the backward pass. */
StageKernels *fuse(const Graph *g, const Pieces *p, int first_piece, int end_piece, int stage, int n_stages,
                   int64_t microbatch, bool recompute, bool split, Target target);
/* One rank's kernels from those of its n chunks, each fused separately; n = 1: the same kernels. */
StageKernels *merge_chunks(StageKernels *const *chunk, int n);
static inline const Kernels *pass_kernels(const StageKernels *k, PassKind pass) {
  return pass == PASS_FORWARD ? &k->forward : pass == PASS_BACKWARD ? &k->backward : &k->weights;
}
/* The crossing buffers of one chunk. */
Ints chunk_buffers(const StageKernels *k, const Ints *buffers, int chunk);
bool kernel_touches(const Kernel *k, int buffer); /* reads or writes it */
void kernels_dump(const StageKernels *k, FILE *out);
void kernels_verify(const StageKernels *k);

#endif
