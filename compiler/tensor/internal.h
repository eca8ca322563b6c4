/* Shared by the files of tensor/. */
#ifndef PDC_TENSOR_INTERNAL_H
#define PDC_TENSOR_INTERNAL_H

#include "ops/op.h"
#include "tensor/tensor.h"

/* A layout's id, the same for all values. */
enum {
  WHOLE,
  PARTIAL,
  BOUND,
  FIRST_SPLIT,
  MOST_BLOCKS = 6,
  MOST_LAYOUTS = FIRST_SPLIT + MAX_RANK * MOST_BLOCKS,
  UNPINNED = 255
};
typedef unsigned char LayoutId;

/* The division of one graph among `ranks` ranks. */
typedef struct Division {
  Graph *g;
  int ranks;
  int n_blocks;
  int64_t blocks[MOST_BLOCKS]; /* numbers of blocks to try for an axis */
  bool *fixed;                 /* by value: must be whole, as inputs and figures */
  bool *param;                 /* by value */
  bool *gradient;              /* by value: a parameter's gradient */
  bool *clean;                 /* by value: elements after the end of an uneven axis are zero */
  int64_t least, multiple;     /* minimum elements per rank of an uneven axis, and their multiple */
  LayoutId *pinned;            /* by value: a parameter's layout from --sharding; UNPINNED otherwise */
  bool spread;                 /* memory is short: saved activations have a cost and can be split by positions */
  double (*any_cost)(void);    /* replaces every cost, so that tests reach all ways; NULL: real costs */
} Division;

bool tensor_by(Division *d); /* implements tensor() */

Layout layout_of(const Division *d, LayoutId id);
int layout_id(const Division *d, Layout layout); /* -1: not a candidate layout */
Shape part_shape(const Division *d, const Shape *s, Layout layout);
/* Whether a split axis has no equal parts. All parts are as long as the first rank's; elements after the end are
 * undefined, or zero (Division.clean). */
bool is_uneven(const Division *d, int value, LayoutId id);
bool layout_fits(const Division *d, int value, LayoutId id);
static inline int n_layouts(const Division *d) { return FIRST_SPLIT + MAX_RANK * d->n_blocks; }

/* ---- ways.c ---------------------------------------------------------------------------------- */

/* A way to compute a node: layouts of its inputs, then of its outputs, as read and made. */
typedef struct Way {
  LayoutId *at;
  double seconds;
} Way;
typedef Vec(Way) Ways;

Division division_of(Graph *g, int ranks);
Ways ways_of(const Division *d, int node); /* the first one: all whole */
/* Whether the layout splits a batched value by positions, along another axis than the last. Collectives gather and
 * scatter it within a layer. Never unless memory is short. */
bool by_positions(const Division *d, int value, LayoutId id);
/* The cost of saving a value in this layout from forward to backward pass, if memory is short. */
double keeping_seconds(const Division *d, int value, LayoutId id);
/* The cost of converting a value between layouts by a collective or a copy; negative: impossible. */
double conversion_seconds(const Division *d, int value, LayoutId from, LayoutId to);

/* ---- assign.c -------------------------------------------------------------------------------- */

/* way: by node; at: by value, its layout after any conversion. */
typedef struct Assignment {
  Way *way;
  LayoutId *at;
} Assignment;

/* False after a diagnostic: pinned layouts leave a node without a way. */
bool assign(const Division *d, Assignment *a);

/* ---- sharding.c ------------------------------------------------------------------------------ */

bool sharding_read(Division *d, const char *path); /* fills d->pinned; false after diagnostics */

#endif
