/* A primitive operation: one Op in one file of this folder defines it; ops.c lists all. Other folders depend only
 * on the kind, except for the rules of simplify. */
#ifndef PDC_OP_H
#define PDC_OP_H

#include "graph/graph.h"

/* Treatment of an operation by the passes. */
typedef enum {
  OP_SOURCE,    /* parameter, input, constant, iota: no inputs */
  OP_VIEW,      /* the same elements with another shape or strides: transpose, slice, split, expand ... */
  OP_POINTWISE, /* an element from the inputs' elements at the same (broadcast) index */
  OP_REDUCE,    /* over the last axis, kept with size 1: sum, max. Fixed lanes, see kernel.h */
  OP_SUM_TO,    /* over broadcast axes, including the microbatch: gradients of broadcasts */
  OP_CONCAT,    /* concat, pad: elements of the inputs placed side by side */
  OP_CALL       /* a library call or a hand-written kernel: matmul, attention, gather ... */
} OpKind;

/* Origin of a value that no node computes. */
typedef enum {
  SOURCE_NONE,      /* a node computes it, or an expression without operands does */
  SOURCE_PARAMETER, /* a parameter or a buffer; attribute "index": into Graph.params */
  SOURCE_INPUT      /* an input of the microbatch's samples; "index": into Graph.inputs */
} Source;

/* Operands in which the result is linear: the result of partial sums is then a partial sum. */
typedef enum {
  LINEAR_IN_NONE,
  LINEAR_IN_ALL,  /* all operands together: a sum */
  LINEAR_IN_EACH, /* each operand, with the others fixed: a product */
  LINEAR_IN_FIRST /* the first operand, with the others fixed */
} Linear;

typedef enum { REDUCTION_NONE, REDUCTION_SUM, REDUCTION_MAX } Reduction;

/* A pair is one number for both, or a list of two; shape rules turn it into a list (rule_pair). */
typedef enum { ATTR_NUMBER, ATTR_INT, ATTR_BOOL, ATTR_LIST, ATTR_PAIR, ATTR_TEXT } AttrKind;
enum { MAX_ATTR = 8, MAX_OPTIONAL = 4 };
/* An attribute "$names" tells which optional operands have names: operand min_in + k has the name
 * optional[i - 1], i = number / OPTIONAL_NAMES^k % OPTIONAL_NAMES; 0: none. */
enum { OPTIONAL_NAMES = MAX_OPTIONAL + 1 };
typedef struct OpAttr {
  const char *name; /* a name with '$' is internal: users cannot set it */
  AttrKind kind;
  bool required;
  double fallback;
} OpAttr;

/* Sizes of a node's products for a sample: `times` products of [m, k] and [k, n], or attention in `times` heads, of
 * m positions over n keys of k numbers each. The number of samples multiplies one of the sizes. */
typedef enum { PRODUCTS_UNKNOWN, PRODUCTS_OF_MATRICES, PRODUCTS_OF_ATTENTION } ProductsKind;
typedef enum { SAMPLES_NOWHERE, SAMPLES_TIMES, SAMPLES_IN_M, SAMPLES_IN_K } SamplesAxis;
typedef struct OpProducts {
  ProductsKind kind; /* UNKNOWN: no products, or sizes that do not determine their time */
  SamplesAxis samples;
  double times, m, n, k;
  bool causal, backward; /* of attention */
} OpProducts;

/* Work of a node per sample: the planner's estimate without a profile, and the model's count of
 * operations. */
typedef struct OpCost {
  double matmul_flops; /* multiplies and adds that count in "mfu" (docs/reference/log.md) */
  double other_flops;
  double bytes;  /* read and written */
  double spared; /* share of matmul_flops that processors skip in f32 */
  OpProducts products;
} OpCost;

enum { MAX_DIM = MAX_RANK + 1 }; /* with the microbatch axis */

/* Place of a value's elements: base[offset + sum index[i] * stride[i]] of a buffer (kernel.h), with the microbatch
 * axis first if the value is batched. Axes of size 1 have stride 0. */
typedef struct Place {
  int buffer;
  int64_t offset;
  int rank;
  int64_t dim[MAX_DIM], stride[MAX_DIM];
} Place;
/* The same elements in row-major order under other dims; false: no strides express them. */
bool place_reshape(const Place *from, int n, const int64_t *dim, Place *to);
Place place_slice(const Place *from, int axis, int64_t offset, int64_t size);

/* A collective: whole, or its part before or after the arrival of other ranks. */
typedef enum { CALL_WHOLE, CALL_BEGIN, CALL_END } CallPart;

typedef struct Gradients Gradients; /* autodiff.h */
typedef struct Site Site;           /* call.h */
typedef struct Call Call;
typedef struct ShapeRule ShapeRule;

/* Input and output of a shape rule. All diagnostics carry the node's span and the operands'. */
struct ShapeRule {
  Graph *g;
  const Op *op;
  const int *in;
  int n_in;
  Attr *attr; /* the node's own copy: the rule makes axes positive and fills in open sizes */
  int scope;
  Span span;
  int n_out; /* to fill: */
  struct {
    Type type;
    int64_t classes;
    Shape shape;
  } out[64];
};

/* A node that computes a single position of a sequence from operands with that position along an axis: its op and
 * attributes. */
typedef struct Decoded {
  const Op *op;        /* preset: the node's own */
  Attr attr[MAX_ATTR]; /* preset: the node's own */
  /* The position and the sequence are further operands. The attribute "samples" is to fill, and with a "window" the
   * "context" to shorten. */
  bool cached;
  bool state;    /* cached: it keeps the state after the last position alone */
  int results;   /* cached: the number of results that have positions; 0: 1 */
  uint64_t rows; /* bit i: operand i, the same for all samples, is replaced by its row at the position */
} Decoded;
/* Attributes of op_cached_attention. Samples: sequences with a cache. */
enum { CACHED_CONTEXT, CACHED_SCALE, CACHED_SOFTCAP, CACHED_WINDOW, CACHED_SAMPLES };

struct Op {
  const char *name;      /* as in .pdm files and dumps */
  const char *signature; /* "layer_call(x[.., width], causal = false)", "a + b": operands, then attributes */
  const char *infix;     /* spelling in diagnostics, such as "+"; NULL: the name */
  OpKind kind;
  Source source;       /* of OP_SOURCE */
  Reduction reduction; /* of OP_REDUCE */
  bool internal;       /* only for the compiler, not for users */
  bool varies;         /* a computed source that differs between microbatches */
  bool of_microbatch;  /* the number of samples in a microbatch */
  bool trains;         /* identity on the first operand in inference */
  /* its first operand is a buffer, to which its derivative always assigns a share (grad_share), even without a gradient:
   * the name of the attribute with the rate of the update, "momentum" of an average or "rate" of a balance; NULL: none */
  const char *moves_by;
  bool strided_out; /* a call that can access parts of larger buffers, with rows of stride 1 */
  /* it reads any strides and, with strided_out, writes a result whose second-last axis has stride 1 */
  bool transposes;
  bool rows_as_one; /* it sums over rows in a fixed order: all axes of an operand but the last merge into one */
  bool stays;       /* no cut directly follows it: its derivative reads the operands of its results' gradients */
  bool takes_bias;  /* a call that can add a vector along its result's last axis */
  /* a call that can accumulate in its first output, and then accumulates in all outputs that need it */
  bool adds;
  /* pointwise sum of two operands: one may be the bias of the call that makes the second, if it takes_bias */
  bool adds_bias;
  /* a call that waits for the ranks of the shard group: number of rounds, each with an N-th of the result from
   * each of N - 1 ranks; 0: not a collective */
  int collective;
  Linear linear;
  bool expensive;     /* pointwise: cached in a row buffer rather than computed twice */
  int min_in, max_in; /* max_in -1: any number */
  /* the users' names of the operands from min_in on, in order; NULL: no more */
  const char *optional[MAX_OPTIONAL];
  /* the index of a node's operand among those of the signature; NULL: no earlier operand may be missing */
  int (*operand)(const Node *n, int i);
  /* calls: outputs from this index on persist between microbatches; 0: none; -1: from the attribute "stacked" on */
  int first_kept;
  bool keeps; /* calls: all outputs persist between microbatches */
  /* a call that keeps its operands for later microbatches: it runs in those microbatches alone that have new ones, with
   * all nodes that only such calls need (nodes_once()) */
  bool once;
  bool loops;  /* a call that runs a body of Graph.bodies once per step (ops/scan.h) */
  int results; /* calls: number of outputs for models, 0 means 1; further outputs serve the derivative */
  const char *
      /* a reduction: the elementwise operation to suggest for a second operand, such as "maximum"; NULL: none */
      by_element;
  unsigned no_gradient;  /* bit mask of the signature's operands without a gradient, bit 0: the first one */
  OpAttr attr[MAX_ATTR]; /* ends at a NULL name */

  bool (*shape)(ShapeRule *r);                /* false after a diagnostic */
  void (*derivative)(Gradients *d, int node); /* NULL: no gradient flows */
  OpCost (*cost)(const Graph *g, int node);

  /* Views: the place of an output for an input at `from`. view_back: the place of the input for an output at
   * `from`, NULL unless the view keeps all elements. False: no strides express it. */
  bool (*view)(const Graph *g, int node, int output, const Place *from, Place *to);
  bool (*view_back)(const Graph *g, int node, const Place *from, Place *to);
  /* Views that only reorder axes: the output's axis i is the input's axis dims[i]. */
  void (*order)(const Graph *g, int node, int *dims);
  /* Whether the node can be computed on operands with permuted axes, with results permuted alike: new axis k is
   * old axis order[k]. Fills in the attributes. Requires operands and results of equal ranks; pointwise nodes
   * always can. */
  bool (*reordered)(const Graph *g, int node, const int *order, Attr *attr);
  bool keeps_order; /* a view that keeps the order of elements, apart from repetitions */
  /* Concatenations: input i covers the output's axis *axis (of a sample's) from the returned offset; uncovered
   * elements are zeros. */
  int64_t (*part)(const Graph *g, int node, int i, int *axis);

  /* The node for one position of `context`. axis[i] is the axis of positions of operand i, or -1. Returns the axis
   * of positions of its results; -1: it cannot compute a single position. Calls and views with a shape define it;
   * other kinds of op need no definition (decode/positions.c). */
  int (*decode)(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);
  /* Calls that read several positions: whether results depend only on their own and earlier positions. NULL: they
   * do not. */
  bool (*causal)(const Graph *g, int node);

  /* Pointwise ops and computed sources: one output element as an expression that is C and C++. Operands are $0 $1
   * .., attributes ${name}; $j is the index along the last axis, $i the linear index of the element within its
   * sample, $s the sample's global index. $following is the number of microbatches of its batch that follow, $seed
   * the run's seed, $shard the rank within its shard group, $scope the node's node_key(), $training false in
   * validation. Operands without mention are not computed. Functions are in runtime/kernels/pd_math.h.
   * ops/expression.h has it as a tree. */
  const char *expression;
  /* Sources: whether all elements are one known number, and its value. NULL: they are not. */
  bool (*constant)(const Node *n, double *number);
  double (*fold)(const double *operand, const Attr *attr); /* the same in double: folding, tests */

  /* A way to divide the node among the ranks of a shard group. Value k, of inputs and then outputs, has the layout
   * `split`. Fills `layout` by value, preset to whole, so that the node itself computes each rank's parts of
   * outputs from its parts of inputs. The pass adapts an attribute "shape", which is the output's. False: not this
   * way, or it follows from another value. NULL: the node cannot be divided. */
  bool (*divide)(const Graph *g, int node, int k, Layout split, Layout *layout);

  /* The op for a part of the result, if it must know which part. It may list the attributes "part", a rank's
   * elements of each run of the result in memory, and "whole", those of all ranks. NULL: the op itself. counts:
   * whether these layouts need it; NULL: every split result does. */
  const Op *divided;
  bool (*counts)(const Graph *g, int node, const Layout *layout);

  /* Calls and tests: the reference semantics on one microbatch in double, plain loops. Inputs and outputs are
   * contiguous; batched ones have a leading axis of `batch`. Every op that is not pointwise defines it, for the
   * finite-difference test and the interpreter. */
  void (*evaluate)(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out);
  /* Replaces evaluate if the result depends on the rank of a shard group: in[r] and out[r] are the inputs and
   * outputs of rank r. */
  void (*meet)(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
               double *const *const *out);

  /* Calls: the runtime's function and its arguments (call.h); scratch: bytes of scratch memory, NULL: none. */
  void (*call)(const Site *site, Call *c);
  int64_t (*scratch)(const Site *site);
  /* Collectives: bytes in use from the begin to the end if these are two calls, instead of `scratch`. */
  int64_t (*meeting)(const Site *site);
  /* Under --precision bf16 calls have bf16 operands, except those for which this returns true; results, if
   * `result`. NULL: no exceptions. */
  bool (*stays_f32)(const Node *n, bool result, int index);
};

/* By node: it only serves calls that run once (Op.once), themselves included. NULL: the graph has no such call. */
bool *nodes_once(const Graph *g);

extern const Op *const all_ops[]; /* ends with NULL */
extern const int n_ops;
const Op *op_find(const char *name); /* NULL: unknown */

/* Attributes of a node by name; BUG() if the op does not list the attribute. */
const Attr *node_attr(const Node *n, const char *name);
static inline int64_t node_int(const Node *n, const char *name) { return (int64_t)node_attr(n, name)->number; }
static inline double node_number(const Node *n, const char *name) { return node_attr(n, name)->number; }

/* Whether the output persists between microbatches. */
static inline bool node_keeps(const Node *n, int output) {
  const int first = n->op->first_kept < 0 ? (int)node_int(n, "stacked") : n->op->first_kept;
  return n->op->keeps || (n->op->first_kept && output >= first);
}

/* The index of operand i among those of the op's signature; whether the operand gets a gradient. */
static inline int node_operand(const Node *n, int i) { return n->op->operand ? n->op->operand(n, i) : i; }
static inline bool node_passes_gradient(const Node *n, int i) {
  return n->op->derivative && !(n->op->no_gradient >> node_operand(n, i) & 1);
}

/* A 64-bit hash of the attribute "$key", which a random node gets from its instance's path. */
uint64_t node_key(const Node *n);

/* The ops the passes themselves create, each defined in its file. */
extern const Op op_param, op_input, op_operand, op_constant, op_iota, op_iota_part, op_full;
extern const Op op_add, op_sub, op_mul, op_div, op_neg, op_square, op_maximum, op_minimum, op_greater, op_equal,
    op_select, op_exp, op_expm1, op_log, op_log1p, op_sigmoid, op_tanh, op_erf, op_erfc, op_sqrt, op_rsqrt, op_sin,
    op_cos, op_relu, op_abs, op_floor, op_round, op_rand_like, op_randn_like, op_rounded, op_dropout,
    op_dropout_part;
extern const Op op_sum, op_max, op_sum_to;
/* A forward node of a statistic over samples, or of their number, on which losses, metrics or outputs depend in
 * inference; -1: none. */
int evaluated_statistic(const Graph *g);
extern const Op op_microbatch, op_running_average, op_share;
extern const Op op_reshape, op_transpose, op_permute, op_slice, op_split, op_concat, op_pad, op_expand, op_detach;
/* The view with result axis i = operand axis dims[i], and its attributes. */
const Op *op_of_order(int rank, const int *dims, Attr *attr);
extern const Op op_all_reduce, op_all_reduce_max, op_all_gather, op_reduce_scatter, op_own_part, op_summand,
    op_own_columns;
extern const Op op_matmul, op_few_rows_matmul, op_weight_gradient, op_weight_and_bias_gradient, op_matmul_gelu,
    op_matmul_gelu_gradient;
extern const Op op_attention, op_attention_gradient, op_cached_attention;
extern const Op op_keep, op_cached_rows;
extern const Op op_lstm, op_lstm_gradient, op_cached_lstm;
extern const Op op_step, op_state, op_recurrence, op_scan, op_cached_scan; /* ops/scan.h */
extern const Op op_top_k, op_top_k_gradient, op_biased_top_k;
extern const Op op_within_capacity, op_expert_linear, op_expert_linear_weights, op_expert_sum;
extern const Op op_convolution, op_convolution_backward, op_convolution_weights;
extern const Op op_max_pool, op_max_pool_gradient, op_average_pool, op_average_pool_gradient,
    op_adaptive_average_pool, op_adaptive_average_pool_gradient;
extern const Op op_gather, op_gather_part, op_gather_gradient, op_gather_gradient_part; /* embedding rows */
extern const Op op_one_hot_part;
extern const Op op_one_hot; /* tokens [.., 1] -> [.., classes]: pointwise, $j == token ? 1 : 0; label pick is
                               sum(select(one_hot(t, classes), x, 0), axis = -1), a layer */

#endif
