/* What the files of this folder share. */
#ifndef PDC_TENSOR_INTERNAL_H
#define PDC_TENSOR_INTERNAL_H

#include "ops/op.h"
#include "tensor/tensor.h"

/* A layout's number, the same for all values. */
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

/* Of one graph divided among so many ranks. */
typedef struct Division {
  Graph *g;
  int ranks;
  int n_blocks;
  int64_t blocks[MOST_BLOCKS]; /* that an axis may be seen as */
  bool *fixed;                 /* by value: it must be whole: an input, a figure */
  bool *param;                 /* by value */
  bool *gradient;              /* by value: a parameter's gradient */
  bool *clean;                 /* by value: what is behind the end of an axis in uneven parts is zero */
  int64_t least, multiple; /* elements a rank has of an axis in uneven parts, and what they are a multiple of */
  LayoutId *pinned;        /* by value: what --sharding says of parameters; UNPINNED elsewhere */
  bool
      spread; /* memory is short: what forward passes keep for backward ones costs, too, and can be split by positions */
  double (*any_cost)(void); /* every cost is what this returns, so that tests come to all ways; NULL: it is not */
} Division;

bool tensor_by(Division *d); /* tensor() */

Layout layout_of(const Division *d, LayoutId id);
int layout_id(const Division *d, Layout layout); /* -1: it is none of those that are tried */
Shape part_shape(const Division *d, const Shape *s, Layout layout);
/* A split axis that has no equal parts: all parts are as long as the first rank's, and what is behind the axis' end in
 * the last ones is anything, or zeros (Division.clean). */
bool is_uneven(const Division *d, int value, LayoutId id);
bool layout_fits(const Division *d, int value, LayoutId id);
static inline int n_layouts(const Division *d) { return FIRST_SPLIT + MAX_RANK * d->n_blocks; }

/* ---- ways.c ---------------------------------------------------------------------------------- */

/* A way to compute a node: the layouts of its inputs and then its outputs, as it reads and makes them. */
typedef struct Way {
  LayoutId *at;
  double seconds;
} Way;
typedef Vec(Way) Ways;

Division division_of(Graph *g, int ranks);
Ways ways_of(const Division *d, int node); /* the first one: all whole */
/* Whether the layout is a split by positions, along another axis than the last one of a value of each sample, that
 * collectives make and join in the midst of a layer. None is unless memory is short. */
bool by_positions(const Division *d, int value, LayoutId id);
/* Of keeping a value in this layout from a forward pass to the backward one, if memory is short. */
double keeping_seconds(const Division *d, int value, LayoutId id);
/* To have a value that was made in one layout in another, for a collective or a copy; negative: it is not done. */
double conversion_seconds(const Division *d, int value, LayoutId from, LayoutId to);

/* ---- assign.c -------------------------------------------------------------------------------- */

/* way: by node; at: by value, the layout that it has once it is made, and converted where it is made in another. */
typedef struct Assignment {
  Way *way;
  LayoutId *at;
} Assignment;

/* False after a diagnostic: what is pinned leaves no way to compute a node. */
bool assign(const Division *d, Assignment *a);

/* ---- sharding.c ------------------------------------------------------------------------------ */

bool sharding_read(Division *d, const char *path); /* fills d->pinned; false after diagnostics */

#endif
