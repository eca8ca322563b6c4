/* Private to compiler/fuse: the state that its steps share. */
#ifndef PDC_FUSE_INTERNAL_H
#define PDC_FUSE_INTERNAL_H

#include "fuse/kernel.h"

typedef enum { SETUP, FORWARD, BACKWARD, N_DIRECTIONS } Direction;

/* One thing to be done: a node; or a copy of a value to a place (the parts of a join, what must be sent
 * or accumulated though it stands elsewhere too, a view that no stride can express); or a fill of a
 * place with zeros (the edges of a pad). */
typedef enum { ITEM_NODE, ITEM_COPY, ITEM_FILL } ItemKind;

typedef struct Item {
  ItemKind kind;
  int node;        /* NODE: it; COPY, FILL: the node it serves, for scope and region */
  int value;       /* COPY: what is read; FILL: -1 */
  int target;      /* COPY, FILL: the value (root) it becomes part of, or -1 */
  Place place;     /* COPY, FILL: where to */
  bool accumulate; /* COPY */
  bool through;    /* COPY of a view of the value, the target: read from there, element by element */
  Place from;      /* through: where it is read */
  int region;
  int group;       /* once grouped */
  int term;        /* NODE of a loop: its term in the kernel, once built */
} Item;

/* Items that will be one kernel. */
typedef struct Group {
  bool loop;
  Ints items;
  int region;
  bool batched;    /* the iteration space: the shape of its largest member */
  int n_dims;
  int64_t dim[MAX_DIM];
  unsigned sums;   /* the dims that accumulating stores sum over, as a mask; 0: none */
} Group;

typedef struct Fuse {
  const Graph *g;
  const Pieces *p;
  StageKernels *k;
  int first_piece, end_piece;
  int first, end;          /* forward nodes of the stage */
  bool *here;              /* by node: runs on this stage */
  int *merged;             /* by node: an add that became the bias of this call; -1 */
  int *bias;               /* by node: the value that the call adds as its bias; -1 */
  int *n_uses;             /* by value: consumers in the whole graph */
  bool *read_in_rows;      /* by value: a call here reads it that needs rows of stride 1 ... */
  bool *read_dense;        /* ... or all of it contiguous, */
  bool *read_as_one;       /* or, whatever the stride of its last axis, all others lying in memory as one */
  bool *table;             /* by node: made once, in setup */
  int *same;               /* by value: the value that stands for it (equal tables) */
  Name *name;              /* by value: the user's; "d_x" of what autodiff made the gradient of x */
  int *region;             /* by forward node */
  Place *root;             /* by value: where it stands, for values that are no views; buffer -1: not yet */
  bool *placed;            /* by value: root is set */
  bool *needed;            /* by value: somebody reads it from memory */
  bool *inlined;           /* by value: every kernel that reads it computes it for itself, see find_inlined; once
                              forward is built also forward values that are not kept, for backward kernels */
  bool *counts;            /* by value: it, or what it is inlined from, numbers the elements of its own shape, so
                              that only a loop over just that shape can compute it */
  bool *kept;              /* by forward value: stands in memory until its backward */
  int *home;               /* by value: the group that computes it, in its direction; -1 */
  int *depth;              /* by value: reductions of the row, one after the other, from its group's start to it */
  int *ready;              /* by value: the first group of its direction that may read it from memory */
  Ints joins[N_DIRECTIONS]; /* the stage's join nodes */
  Vec(Item) items[N_DIRECTIONS];
  Vec(Group) groups[N_DIRECTIONS];
} Fuse;

static inline const Value *value_at(const Fuse *f, int v) { return &f->g->values.at[v]; }
static inline const Node *node_at(const Fuse *f, int n) { return &f->g->nodes.at[n]; }
static inline const Node *producer(const Fuse *f, int v) { return node_at(f, value_at(f, v)->node); }
Direction direction_of(const Fuse *f, int node);
/* The first of a path's components that is a number ("3.output" in "bert.encoder.layer.3.output"); NULL: none. */
const char *index_in(const char *path);

/* ---- places.c */
int dims_of(const Fuse *f, int value, int64_t *dim); /* with the microbatch axis; returns their number */
Place contiguous(int buffer, int n, const int64_t *dim);
/* The value behind all views, up to one that stands in memory itself. */
int view_root(const Fuse *f, int value);
bool alias_step(const Fuse *f, const Node *n); /* this view is elementwise the same, up to broadcasting */
bool view_is_alias(const Fuse *f, int value);  /* elementwise the same as its root, up to broadcasting */
bool place_of(Fuse *f, int value, Place *out); /* through views; false: no strides express it */
Place place_value(Fuse *f, int value);         /* the same, and the root gets a buffer and is needed */
bool place_claim(Fuse *f, int value, const Place *target); /* the root writes straight into target */
bool calls_read(const Fuse *f, int value, const Place *p); /* all calls that read the value could do so there */
Place place_broadcast(const Fuse *f, const Place *from, bool batched, const Group *to);
int new_buffer(Fuse *f, BufferKind kind, int value, int n, const int64_t *dim, Type type);

/* ---- items.c */
int region_of(const Fuse *f, int node);
void merge_biases(Fuse *f);
void list_items(Fuse *f);
/* ---- group.c */
void group_items(Fuse *f, Direction d);
/* ---- keep.c */
int space_value(const Node *n); /* the value over whose elements a node of a loop runs */
bool counts_elements(const Fuse *f, const Node *n);
double bytes_of(const Fuse *f, int value);
void find_inlined(Fuse *f); /* before items are listed */
void decide_kept(Fuse *f);
/* ---- again.c */
void find_again(Fuse *f, const bool *read_whole);
/* ---- terms.c */
void build_kernels(Fuse *f, Direction d);
void finish_loops(Fuse *f, Direction d);
/* ---- defer.c */
void split_backward(StageKernels *k);
/* ---- precision.c */
void choose_precision(StageKernels *k);
void verify_precision(const StageKernels *k); /* calls read and write what they can */
/* ---- names.c */
void name_everything(Fuse *f);
void find_like_regions(StageKernels *k);

bool is_loop_node(const Node *n);                /* pointwise, reduce, sum_to: printed as loops */
bool is_row_sum(const Fuse *f, const Node *n);  /* a sum_to over the last axis alone: a reduction of the row */

#endif
