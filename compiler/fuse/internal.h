/* Private to compiler/fuse: results of its passes, whose order is in fuse.c. */
#ifndef PDC_FUSE_INTERNAL_H
#define PDC_FUSE_INTERNAL_H

#include "fuse/facts.h"

typedef enum { SETUP, FORWARD, BACKWARD, N_DIRECTIONS } Direction;

/* The stage's nodes and values, before any decision (survey.c). */
typedef struct Survey {
  int first, end; /* forward nodes of the stage */
  Ints nodes;     /* nodes of this stage, in order */
  Ints values;    /* results of these nodes, in order */
  bool *here;     /* by node: runs on this stage */
  bool *table;    /* by node: computed once, in setup */
  int *region;    /* by forward node */
  /* by forward node: the run of recomputed pieces of one region that it is in (recompute.c); -1: its piece saves */
  int *segment;
  int segments;
  Ints concats[N_DIRECTIONS]; /* the stage's concatenations */
  int *same;                  /* by value: the value that replaces it (equal tables) */
  int *reordered;             /* by value: the first node here that is a view of it in another order; -1 ... */
  int *next_reordered;        /* ... and by such a node the next one of the same value */
  bool *read_in_rows;         /* by value: a call here reads it and needs rows of stride 1 ... */
  bool *read_dense;           /* ... or all of it contiguous, */
  bool *read_as_one;          /* or, at any stride of its last axis, all earlier axes merged into one */
} Survey;

/* Additions that became the bias of a call (survey.c), by node; -1: none. */
typedef struct Biases {
  int *call;   /* of the addition: its call */
  int *vector; /* of the call: the vector that it adds */
  int *sum;    /* of the call: the addition's result, which the call returns */
} Biases;

/* Values that loops rematerialise, that is, recompute instead of reading (rematerialise.c, saved.c). */
typedef struct Remat {
  bool *value; /* by value: every kernel that reads it recomputes it */
  /* by value: it depends on the index of an element in its own shape, so that only a loop over exactly that
   * shape can compute it */
  bool *counts;
} Remat;

/* Places of values. Only places.c adds to it: an operand in memory gets a buffer when its reader is built. */
typedef struct Placement {
  Vec(Place) all;
  int *root;    /* by value: its index in `all`, unless it is a view; -1: not placed yet */
  bool *needed; /* by value: some kernel reads it from memory */
} Placement;

/* A value that its producer cannot write to the buffer, so a copy is needed. */
typedef struct PendingCopy {
  int value, buffer;
  bool accumulate;
} PendingCopy;

/* Remaining work for fixed destinations (destinations.c). */
typedef struct Destinations {
  Vec(PendingCopy) copies;
  bool **in_place; /* by concatenation, by operand: its producer writes it directly to its part */
} Destinations;

/* One item of work: a node; a copy of a value to a place; or a fill of a place with zeros (the edges of a pad).
 * Copies are parts of concatenations, values sent or accumulated from another place, and views that no strides
 * express. */
typedef enum { ITEM_NODE, ITEM_COPY, ITEM_FILL } ItemKind;

typedef struct Item {
  ItemKind kind;
  int node;        /* NODE: the node; COPY, FILL: the node it serves, for scope and region */
  int value;       /* COPY: the source; FILL: -1 */
  int target;      /* COPY, FILL: the value (root) that contains the target, or -1 */
  Place place;     /* COPY, FILL: the target */
  bool accumulate; /* COPY */
  bool through;    /* COPY of a view of the value: read through the view's strides, element by element */
  Place from;      /* through: the view's place */
  int region;
} Item;

typedef Vec(Item) ItemList;

/* By direction: regions in the order of execution, within a region the order of nodes (items.c). */
typedef struct Items {
  ItemList of[N_DIRECTIONS];
} Items;

/* Items of one kernel (group.c). */
typedef struct Group {
  bool loop;
  Ints items;
  int region;
  int segment;  /* of forward nodes: Survey.segment */
  bool batched; /* the iteration space: the shape of its largest member */
  int n_dims;
  int64_t dim[MAX_DIM];
  unsigned sums; /* the dims that accumulating stores sum over, as a mask; 0: none */
} Group;

typedef Vec(Group) Groups;

/* Kernels under construction (terms.c, arrange.c). */
typedef struct Built {
  Ints group[N_DIRECTIONS]; /* by kernel: its group; of a repeated forward kernel ~group of FORWARD */
  int *term;                /* by node of a loop: its term there */
} Built;

/* Passes read it as const and return results that are const for later passes. Placement, Built and the kernels
 * grow. */
typedef struct Fuse {
  const Graph *g;
  const FuseFacts *facts;
  const Pieces *p;
  int first_piece, end_piece;
  Name again; /* by piece of the part, '1': recomputed; NULL: none */
  StageKernels *k;
  Placement *places;
  Built *built;
  const Survey *survey;
  const Biases *biases;
  const Remat *remat[N_DIRECTIONS]; /* by the direction of the loops */
  const Destinations *destinations;
  const Items *items;
  const Groups *groups[N_DIRECTIONS];
} Fuse;

static inline const Value *value_at(const Fuse *f, int v) { return &f->g->values.at[v]; }
static inline const Node *node_at(const Fuse *f, int n) { return &f->g->nodes.at[n]; }
static inline const Node *producer(const Fuse *f, int v) { return node_at(f, value_at(f, v)->node); }
static inline bool is_placed(const Fuse *f, int v) { return f->places->root[v] >= 0; }
static inline bool is_rematerialised(const Fuse *f, Direction d, int value) { return f->remat[d]->value[value]; }

static inline Kernels *kernels_of(const Fuse *f, Direction d) {
  return d == SETUP ? &f->k->setup : d == FORWARD ? &f->k->forward : &f->k->backward;
}

/* ---- survey.c */
const Survey *survey(const Fuse *f);
const Biases *merge_biases(const Fuse *f);
Direction direction_of(const Fuse *f, int node);
int region_of(const Fuse *f, int node);
int segment_of(const Fuse *f, int node);       /* of a forward node; -1 of others */
bool is_loop_node(const Node *n);              /* pointwise, reduce, sum_to: printed as loops */
bool is_row_sum(const Fuse *f, const Node *n); /* a sum_to over the last axis alone: a reduction of the row */
int space_value(const Node *n);                /* the value whose elements a loop node iterates over */

/* ---- places.c */
Placement *placement(const Fuse *f);                 /* nothing placed */
int dims_of(const Fuse *f, int value, int64_t *dim); /* with the microbatch axis; returns their number */
double bytes_of(const Fuse *f, int value);           /* in f32 */
Place contiguous(int buffer, int n, const int64_t *dim);
/* The value behind all views, up to a value with memory of its own. */
int view_root(const Fuse *f, int value);
bool alias_step(const Fuse *f, const Node *n);       /* this view keeps the elements, up to broadcasting */
bool view_is_alias(const Fuse *f, int value);        /* has the elements of its root, up to broadcasting */
bool place_of(const Fuse *f, int value, Place *out); /* through views; false: no strides express it */
int placed_buffer(const Fuse *f, int value);         /* of the value itself; -1: none yet */
Place place_value(const Fuse *f, int value);         /* the same, and marks the root as needed, with a buffer */
bool place_into(const Fuse *f, int value, const Place *target); /* the root writes directly into target */
void place_at(const Fuse *f, int value, int buffer);            /* the whole buffer is the value's */
bool calls_read(const Fuse *f, int value, const Place *p); /* all calls that read the value can read it there */
Place place_broadcast(const Place *from, bool batched, const Group *to);
int value_buffer(const Fuse *f, BufferKind kind, int value); /* a new buffer of the value's shape */
Place whole(const Fuse *f, int buffer);
/* Whether the figure is a stacked result of a scan's body. */
static inline bool is_stacked(const Graph *g, int figure) { return g->loop.steps && figure < g->loop.stacked; }
int figure_buffer(const Fuse *f, int figure); /* a new buffer of kind FIGURE */

/* ---- further passes; fuse.c has their requirements and results ---------------------------------- */
const Remat *rematerialise(const Fuse *f);
const Remat *save_values(const Fuse *f);
/* Remat.counts through the values of `through`; NULL: through any value, because any may be rematerialised. */
void find_counts(const Fuse *f, const bool *through, bool *counts);
bool counts_elements(const Graph *g, const Node *n); /* it depends on the index of an element in its shape */
const Destinations *place_destined(const Fuse *f);
/* The place of operand i within the buffer of a concatenation's result: along *axis, with the microbatch axis, in
 * [*from, *end). */
Place part_place(const Fuse *f, int node, int i, int *axis, int64_t *from, int64_t *end);
const Items *list_items(const Fuse *f);
const Groups *group_items(const Fuse *f, Direction d);
void build_kernels(const Fuse *f, Direction d);
void store_needed(const Fuse *f, Direction d);
void recompute_pieces(const Fuse *f);
void finish_loops(const Fuse *f, Direction d);
/* The group of a kernel; *d: the direction of its items. */
const Group *group_of(const Fuse *f, Direction kernels, int kernel, Direction *d);
bool figure_in_bf16(const Graph *g, int figure); /* a result of a scan's body */
void choose_precision(const Fuse *f);
void verify_precision(const StageKernels *k); /* calls support the types of their operands and results */
void name_kernels(const Fuse *f);
void reuse_buffers(const Fuse *f);
bool *find_waiting(const StageKernels *k); /* by backward kernel: split_backward moves it to the weights pass */
void split_backward(StageKernels *k);
void overlap_collectives(StageKernels *k);
void find_lifetimes(StageKernels *k);
void name_buffers(const Fuse *f);

/* ---- regions.c */
/* The last region if this path of a node's scope belongs to it, else a new region. once: nodes_once(). */
int region_at(StageKernels *k, Name path, bool once);
/* The first component of a path that is a number ("3.output" in "bert.encoder.layer.3.output"); NULL: none. */
const char *index_in(const char *path);
/* "attn.c_attn" of "h.3.attn.c_attn" in region "h.3"; outside the region the path itself. */
const char *relative(const char *path, const char *region);
void find_region_ranges(StageKernels *k);
void find_completions(StageKernels *k); /* Buffer.complete */

/* ---- signatures.c */
Name sign_kernel(const StageKernels *k, const Kernel *kernel); /* Kernel.signature */
void sign_asking(const StageKernels *k); /* only for calls whose scratch memory depends on the signature */
void find_like_regions(StageKernels *k);

#endif
