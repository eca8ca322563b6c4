/* A primitive operation: one Op in one file of this folder holds all facts about it; ops.c lists them.
 * Other folders depend on the kind only, never on the operation, except for the rules of simplify. */
#ifndef PDC_OP_H
#define PDC_OP_H

#include "graph/graph.h"

/* How the passes treat an operation. */
typedef enum {
  OP_SOURCE,    /* parameter, input, constant, iota: no inputs */
  OP_VIEW,      /* the same elements under another shape or stride: transpose, slice, split, expand ... */
  OP_POINTWISE, /* an element from the inputs' elements at the same (broadcast) index */
  OP_REDUCE,    /* over the last axis, kept with size 1: sum, max. Fixed lanes, see kernel.h */
  OP_SUM_TO,    /* over axes that were broadcast, the microbatch among them: gradients of broadcasts */
  OP_CONCAT,    /* concat, pad: elements of the inputs placed side by side */
  OP_CALL       /* a library call or a hand-written kernel: matmul, attention, gather ... */
} OpKind;

/* Origin of a value that no node computes. */
typedef enum {
  SOURCE_NONE,      /* a node computes it, or an expression without operands does */
  SOURCE_PARAMETER, /* a parameter or a buffer; attribute "index": of Graph.params */
  SOURCE_INPUT      /* of the microbatch's samples; "index": which of Graph.inputs */
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
enum { MAX_ATTR = 8 };
typedef struct OpAttr {
  const char *name; /* a name with '$' is internal: users cannot set it */
  AttrKind kind;
  bool required;
  double fallback;
} OpAttr;

/* Work of a node per sample: the planner's estimate without a profile, and the model's count of
 * operations. */
typedef struct OpCost {
  double matmul_flops; /* multiplies and adds that count in "mfu" (interface.md) */
  double other_flops;
  double bytes;  /* read and written */
  double spared; /* share of matmul_flops that processors skip in f32 */
} OpCost;

enum { MAX_DIM = MAX_RANK + 1 }; /* with the microbatch axis */

/* Place of a value's elements: base[offset + sum index[i] * stride[i]] of a buffer (kernel.h), the
 * microbatch axis first where the value is batched. Axes of size 1 have stride 0. */
typedef struct Place {
  int buffer;
  int64_t offset;
  int rank;
  int64_t dim[MAX_DIM], stride[MAX_DIM];
} Place;
/* The same elements in row-major order under other dims; false: no strides express them. */
bool place_reshape(const Place *from, int n, const int64_t *dim, Place *to);
Place place_slice(const Place *from, int axis, int64_t offset, int64_t size);

/* A collective: whole, or its part before the other ranks arrive, and the part after. */
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

/* A node that computes one position of a sequence alone, from operands of which position i is element i along an
 * axis: the op and attributes that do so. */
typedef struct Decoded {
  const Op *op;        /* given: the node's own */
  Attr attr[MAX_ATTR]; /* given: the node's own */
  bool position;       /* the position is a further operand */
} Decoded;

struct Op {
  const char *name;      /* as in .pdm files and dumps */
  const char *signature; /* "layer_call(x[.., width], causal = false)", "a + b": operands, then attributes */
  const char *infix;     /* spelling in diagnostics, such as "+"; NULL: the name */
  OpKind kind;
  Source source;       /* of OP_SOURCE */
  Reduction reduction; /* of OP_REDUCE */
  bool internal;       /* only for the compiler, not for users */
  bool varies;         /* a computed source that differs between microbatches */
  bool of_microbatch;  /* the number of samples of a microbatch */
  bool trains;         /* identity on the first operand in inference */
  bool averages;       /* its first operand is a buffer, which its derivative gives a share (grad_share), whether a
                          gradient reaches it or not */
  bool strided_out;    /* a call that reads and writes parts of larger buffers, rows of stride 1 */
  bool transposes;     /* it reads any strides and, with strided_out, writes where the axis before the last has
                          stride 1 */
  bool rows_as_one;    /* it sums over rows, in an order that no stride may change: all axes of an operand but the
                          last lie in memory as one */
  bool stays;      /* no cut is right behind it: its results are not sent, for what their gradients are made of is
                          read by its own derivative */
  bool takes_bias; /* a call that can add a vector along its result's last axis */
  bool adds;       /* a call that can add to what stands in its first output, and then adds to its further ones, if
                      these are to be added to */
  bool adds_bias;  /* pointwise, the sum of two operands: one may be the bias of the call that makes the other,
                          where that takes_bias */
  int collective; /* a call that waits for the ranks of the shard group: number of rounds, each with an N-th of the
                          result from each of N - 1 ranks; 0: not a collective */
  Linear linear;
  bool expensive;     /* pointwise: cached in a row buffer rather than computed twice */
  int min_in, max_in; /* max_in -1: any number */
  int first_kept;     /* calls: outputs from this one on stay from one microbatch to the next, output i for
                          what comes as operand i; 0: none does */
  int results;        /* calls: the outputs that models get, 1 where 0; further ones serve the derivative */
  const char *
      by_element; /* a reduction: the elementwise operation that a second operand suggests, such as "maximum"; NULL: none */
  unsigned no_gradient;  /* bit mask of operands without a gradient, bit 0: the first operand */
  OpAttr attr[MAX_ATTR]; /* ends at a NULL name */

  bool (*shape)(ShapeRule *r);                /* false after a diagnostic */
  void (*derivative)(Gradients *d, int node); /* NULL: no gradient flows */
  OpCost (*cost)(const Graph *g, int node);

  /* Views: where an output stands when the input stands at `from`, and, where the view keeps all elements,
   * where the input stands when the output stands at `from` (else NULL). False: no strides express it. */
  bool (*view)(const Graph *g, int node, int output, const Place *from, Place *to);
  bool (*view_back)(const Graph *g, int node, const Place *from, Place *to);
  /* Views that only reorder axes: the output's axis i is the input's axis dims[i]. */
  void (*order)(const Graph *g, int node, int *dims);
  /* Whether the node can be computed on operands with their axes in another order, its results then being in
   * that order: the new axis k is the old one order[k]. Fills the attributes for it. Asked where operands and
   * results have equal ranks; pointwise nodes always can. */
  bool (*reordered)(const Graph *g, int node, const int *order, Attr *attr);
  bool keeps_order; /* a view whose elements follow one another as the input's do, repeats apart */
  /* Concatenations: input i covers the output's axis *axis (of a sample's) from the offset returned; the rest is
   * zeros. */
  int64_t (*part)(const Graph *g, int node, int i, int *axis);

  /* The node for one position of `context`, of whose operands axis[i] is that of positions, -1 where there is
   * none: returns the axis of its results; -1: it cannot do one alone. Calls and views with a shape have it;
   * other kinds of op follow from what they are (decode/positions.c). */
  int (*decode)(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);
  /* Calls that read several positions: whether each of the result depends on none behind it. NULL: some do. */
  bool (*causal)(const Graph *g, int node);

  /* Pointwise, and sources that are computed: one output element as an expression that is C and C++, operands
   * $0 $1 .., attributes ${name}; $j is the index along the last axis, $i the linear index of the element
   * within its sample, $s the sample's global index, $following how many of its batch's microbatches come
   * after this one, $seed the run's seed, $shard the rank within its
   * shard group, $scope the node's node_key(), $training false in validation. Operands
   * that are not named are not computed. Functions come from runtime/kernels/pd_math.h. ops/expression.h has it
   * as a tree. */
  const char *expression;
  /* Sources: whether all elements are one number that is known, and which. NULL: they are not. */
  bool (*constant)(const Node *n, double *number);
  double (*fold)(const double *operand, const Attr *attr); /* the same in double: folding, tests */

  /* Among the ranks of a shard group: a way to compute the node in which value k, of its inputs and then its outputs,
   * is split as `split` says. Fills `layout` by value, which is all whole before, so that each rank can make its part
   * of the outputs of its parts of the inputs by the node itself, on their shapes; of an attribute "shape", which is
   * the output's, the pass takes care. False: there is no such way, or it follows from another value. NULL: there is
   * none. */
  bool (*divide)(const Graph *g, int node, int k, Layout split, Layout *layout);

  /* The op that makes a part of what this one makes whole, where it must know which part: with attributes more, if it
   * lists them, "part", elements of each run of the result in memory that a rank has, and "whole", those of all ranks.
   * NULL: the op itself does. counts: whether it must in such layouts; NULL: wherever the result is split. */
  const Op *divided;
  bool (*counts)(const Graph *g, int node, const Layout *layout);

  /* Calls and tests: the reference semantics on one microbatch in double, plain loops; inputs and
   * outputs contiguous, batched ones with a leading axis of `batch`. Every op that is not pointwise
   * has it: the finite-difference test and the interpreter use it. */
  void (*evaluate)(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out);
  /* Instead, where it depends on the rank of a shard group: in[r] and out[r] are the inputs and outputs of rank r of
   * so many. */
  void (*meet)(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
               double *const *const *out);

  /* Calls: which function of the runtime does it, with what (call.h); the bytes it takes of the scratch memory
   * it is given, NULL when it needs none. */
  void (*call)(const Site *site, Call *c);
  int64_t (*scratch)(const Site *site);
  /* Collectives: what each needs, instead, from its beginning to its end, where these are two calls. */
  int64_t (*meeting)(const Site *site);
  /* Under --precision bf16 a call takes its operands in bf16, but for those of which this says that they stay in
   * f32; of the results, where `result`. NULL: none does. */
  bool (*stays_f32)(const Node *n, bool result, int index);
};

extern const Op *const all_ops[]; /* ends with NULL */
extern const int n_ops;
const Op *op_find(const char *name); /* NULL: unknown */

/* Attributes of a node by name; BUG() if the op does not list the attribute. */
const Attr *node_attr(const Node *n, const char *name);
static inline int64_t node_int(const Node *n, const char *name) { return (int64_t)node_attr(n, name)->number; }
static inline double node_number(const Node *n, const char *name) { return node_attr(n, name)->number; }

/* A 64-bit hash of the attribute "$key", which a random node gets from its instance's path. */
uint64_t node_key(const Node *n);

/* The ops the passes themselves create, each defined in its file. */
extern const Op op_param, op_input, op_constant, op_iota, op_iota_part, op_full;
extern const Op op_add, op_sub, op_mul, op_div, op_neg, op_square, op_maximum, op_minimum, op_greater, op_equal,
    op_select, op_exp, op_expm1, op_log, op_log1p, op_sigmoid, op_tanh, op_erf, op_erfc, op_sqrt, op_rsqrt, op_sin,
    op_cos, op_relu, op_abs, op_rounded, op_dropout, op_dropout_part;
extern const Op op_sum, op_max, op_sum_to;
/* A forward node of a statistic over samples, or of their number, that losses, metrics or outputs depend on in inference;
 * -1: none. */
int evaluated_statistic(const Graph *g);
extern const Op op_microbatch, op_running_average, op_share;
extern const Op op_reshape, op_transpose, op_permute, op_slice, op_split, op_concat, op_pad, op_expand, op_detach;
/* The view whose result's axis i is the operand's axis dims[i], and its attributes. */
const Op *op_of_order(int rank, const int *dims, Attr *attr);
extern const Op op_all_reduce, op_all_reduce_max, op_all_gather, op_reduce_scatter, op_own_part, op_summand,
    op_own_columns;
extern const Op op_matmul, op_few_rows_matmul, op_weight_gradient, op_weight_and_bias_gradient, op_matmul_gelu,
    op_matmul_gelu_gradient;
extern const Op op_attention, op_attention_gradient, op_cached_attention;
extern const Op op_lstm, op_lstm_gradient;
extern const Op op_convolution, op_convolution_backward, op_convolution_weights;
extern const Op op_max_pool, op_max_pool_gradient, op_average_pool, op_average_pool_gradient,
    op_adaptive_average_pool, op_adaptive_average_pool_gradient;
extern const Op op_gather, op_gather_part, op_gather_gradient, op_gather_gradient_part; /* embedding rows */
extern const Op op_one_hot_part;
extern const Op op_one_hot; /* tokens [.., 1] -> [.., classes]: pointwise, $j == token ? 1 : 0; label pick is
                               sum(select(one_hot(t, classes), x, 0), axis = -1), a layer */

#endif
