/* The Graph: values and the nodes that make them, in one array each, in topological order.
 * Elaboration appends the forward nodes; autodiff appends the backward nodes; simplify rewrites.
 * After that it is read-only. Shapes are per sample: the microbatch is an implicit leading axis of
 * every value that is `batched` (inputs and all that depends on them), of none that is not
 * (parameters, constants, gradients of parameters: those are sums over the microbatch). */
#ifndef PDC_GRAPH_H
#define PDC_GRAPH_H

#include "base/base.h"

enum { MAX_RANK = 6, MAX_OPTIMIZER_NUMBERS = 12, MAX_LR_ARGUMENTS = 4 };

typedef enum { TYPE_F32, TYPE_TOKEN } Type; /* tokens are int32 in [0, classes) */

typedef struct Shape {
  bool batched;
  int rank;
  int64_t dim[MAX_RANK]; /* without the microbatch axis */
} Shape;

/* Share of a value on a rank of a shard group (tensor/tensor.h): the whole value; an equal part of each of `blocks` equal
 * blocks of an axis; a summand of each element, to be added over the group's ranks; or a bound of each element, with the
 * largest over the group's ranks as the value. */
typedef enum { LAYOUT_WHOLE, LAYOUT_SPLIT, LAYOUT_PARTIAL, LAYOUT_BOUND } LayoutKind;
typedef struct Layout {
  LayoutKind kind;
  int axis;       /* of a sample, from the left; these two: of a split value */
  int64_t blocks; /* divides the axis */
} Layout;

typedef struct Op Op;
typedef struct Optimizer Optimizer;   /* optimizers/optimizer.h */
typedef struct LrSchedule LrSchedule; /* optimizers/lr_schedule.h */

/* An attribute's value; the op's list of attributes (op.h) defines the valid member. */
typedef struct Attr {
  double number; /* numbers, integers (exact), booleans (0 or 1) */
  int n;         /* lists: a shape, a permutation, sizes of a split */
  int64_t *list;
  Name text;
} Attr;

typedef struct Value {
  Name name;    /* the user's variable, or the op's name; for people, not unique */
  int named_in; /* the scope that has this variable; -1: none */
  Type type;
  int64_t classes; /* of tokens */
  bool bf16;       /* of f32: under --precision bf16 it is rounded where it is made, whoever reads it
                      (residual/residual.h); fuse/precision.c says what else is */
  Shape shape;
  int node, output; /* its producer */
  Span span;
  /* Set by autodiff for forward values that are no parameters: the forward nodes that read it, in
   * order, and for each of them the gradient value summed over that use and all later ones (between
   * uses that no cut can part: over all of them); -1 where no gradient comes from there. So the
   * gradient that crosses a cut before node `first` is that of the first use >= first. */
  Ints uses, gradients;
} Value;

typedef struct Node {
  const Op *op;
  Attr *attr; /* as many as the op lists, in its order */
  int n_in, *in;
  int n_out, *out;
  int scope; /* the layer instance it was inlined from */
  Span span;
  int serves; /* a backward node: the forward node it serves; -1 in forward nodes */
} Node;

/* A layer instance. path is the prefix of its parameters' names ("h.0.attn"), "" for the model. */
typedef struct Scope {
  Name path, layer;
  int parent;    /* -1 for the model, which is scope 0 */
  Span span;     /* the call */
  bool standard; /* of a standard layer: diagnostics point to its call. Not in dumps */
} Scope;

typedef enum { INIT_ZEROS, INIT_ONES, INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL } InitKind;

typedef struct Param {
  Name name; /* "h.0.attn.c_attn.weight", unique */
  Shape shape;
  int64_t padding; /* rows of zeros behind its own in memory: its value's shape has them (layout/pad_rows.h) */
  InitKind init;
  double init_value;  /* the constant, the bound of uniform(-a, a), the deviation of normal(0, s) */
  int64_t zero_row;   /* of a table: the row that is zeros at the start, whatever `init` says; -1: none */
  bool stored_in_out; /* files hold the transposed matrix (Hugging Face's GPT-2 linears) */
  bool buffer;        /* not trained: a running average (ops/statistics.c), which is its one use; in inference none
                         where it serves no output. What stands for its gradient is the microbatch's share in the average, summed like a gradient */
  int group;          /* of Train.groups, from 1; 0: none */
  bool frozen;        /* train's `freeze` names it: no gradient, no update. Never a buffer */
  bool hidden;        /* under an optimizer with two methods: a hidden matrix, which has the first
                         (optimizers/hidden.h) */
  Layout layout;      /* of a divided graph: whole or split; `shape` is then that of a rank's part */
  int64_t surplus; /* rows that all ranks' parts of a split one have more than it has: zeros of the last parts */
  int value;       /* the graph value */
  Ints uses;       /* forward nodes that read it, in order (through views: the view) */
  Ints gradients;  /* one value a use, same order; each summed over microbatches on its own.
                         Set by autodiff. -1 where a use has no gradient */
  Span span;
} Param;

/* As it stands in memory. */
static inline Shape padded_shape(const Param *p) {
  Shape s = p->shape;
  s.dim[0] += p->padding;
  return s;
}

static inline bool is_trained(const Param *p) { return !p->buffer && !p->frozen; }

/* Where an input's samples come from: a file, as they stand or as images to normalise, or the same sample of
 * another input, whose tokens the loader computes them from (pd_runtime.h says how, and what numbers it takes). */
typedef enum {
  ORIGIN_FILE,
  ORIGIN_IMAGE,
  ORIGIN_LENGTHS,
  ORIGIN_PRESENT,
  ORIGIN_COUNTED,
  ORIGIN_SHIFTED,
  ORIGIN_SEGMENTS,
  ORIGIN_MASKED,
  ORIGIN_CHOSEN
} OriginKind;

typedef struct Input {
  Name name;
  bool target;
  int value;
  Span span;
  OriginKind origin;
  int from; /* index of the input that it is computed from; -1: none */
  Vec(double) numbers;
} Input;

/* Results of each microbatch. Of losses and metrics `value` holds one number for each of its elements,
 * and the mean over the batch is logged. Losses add up to the model's loss; a metric has no gradient. An output,
 * which inference alone has, is written as it is. */
typedef struct Figure {
  Name metric;  /* a metric's name in the log, or NULL */
  Name output;  /* an output's name, or NULL; a loss has neither */
  Name of_mean; /* of a metric: "exp" when exp(mean) is logged, a C function of a double; NULL: the mean itself */
  int value;
  Span span;
} Figure;

/* The optimizer's arguments for the parameters that a pattern names and no group before does. */
typedef struct ParameterGroup {
  Name pattern;
  double lr, number[MAX_OPTIMIZER_NUMBERS];
  bool decay_all;
  Span span;
} ParameterGroup;

/* What makes up for gradients that are some updates old, by update of delay (runtime/optimizers/pd_rate.h). */
typedef struct DelayCorrection {
  double ahead, damping; /* both 0: nothing does */
  bool automatic;        /* `ahead` is for one update of delay, and longer delays are extrapolated by themselves */
} DelayCorrection;

typedef struct Train {
  int64_t batch; /* samples per weight update, over all replicas */
  const Optimizer *optimizer;
  double lr, number[MAX_OPTIMIZER_NUMBERS]; /* its arguments in order; a pair is two numbers */
  bool decay_all;                           /* false: parameters of rank two and more decay */
  Vec(ParameterGroup) groups;               /* of parameters with arguments of their own */
  double ema;                               /* of averaged weights: what an update leaves of them; 0: none */
  const LrSchedule *lr_schedule;
  double lr_number[MAX_LR_ARGUMENTS]; /* its arguments in order */
  double clip_norm;                   /* 0: no clipping */
  DelayCorrection correction;
  bool correction_given; /* by numbers, at: */
  Span correction_span;
  Name pipeline;      /* "2bw", "flush", ... */
  bool vertical_sync; /* of pipedream */
  int64_t chunks;     /* of interleaved: parts of the model a rank holds; 0: not given */
  Span span, pipeline_span;
} Train;

/* What a graph that generates token sequences needs to be given (decode/decode.h); its one figure is the
 * logits. */
typedef struct Generation {
  int64_t context;      /* positions of the model's token input; 0: the graph generates nothing */
  int tokens, position; /* inputs; position -1: all positions are computed for every token */
} Generation;

typedef struct Graph {
  Name name; /* the model's */
  Name file; /* the source's path */
  Vec(Value) values;
  Vec(Node) nodes;
  Vec(Scope) scopes;
  Vec(Param) params; /* in order of declaration: the canonical order of sums over parameters */
  Vec(Input) inputs;
  Vec(Figure) figures; /* losses, then metrics, then outputs, each in order of declaration */
  int n_losses, n_outputs;
  int n_forward;  /* nodes[0..n_forward) are forward, the rest backward */
  bool inference; /* the model is run, not trained: there are no backward nodes and no running average moves */
  int shards; /* ranks of a shard group, of which each has its parts of this graph's values; 0: it is not divided */
  bool spread; /* of a divided graph: values that forward passes keep are split by positions where they can be */
  double whole_flops; /* of a divided graph: the model's, in matrix products (OpCost.matmul_flops) */
  Generation generation;
  Train train;
} Graph;

/* ---- building (build.c) ------------------------------------------------------------------- */

Graph *graph_new(Name name);
int graph_scope(Graph *g, int parent, Name path, Name layer, Span span);
/* Appends a node and infers its outputs' shapes; returns the node, or -1 after a diagnostic (the
 * caller then poisons what depends on it). attr holds the op's attributes in its order; NULL means
 * all defaults. */
int graph_node(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int scope, Span span);
/* Appends a backward node, in the scope and with the span of the forward node it serves. */
int graph_backward_node(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int serves);
static inline int graph_output(const Graph *g, int node, int i) { return g->nodes.at[node].out[i]; }
/* Sources: nodes without inputs. */
int graph_param(Graph *g, Name name, Shape shape, int scope, Span span); /* returns the param's index */
int graph_input(Graph *g, Name name, bool target, Type type, int64_t classes, Shape shape, Span span);
int graph_constant(Graph *g, double value, int scope, Span span); /* a scalar value */
void graph_loss(Graph *g, int value, Span span);
void graph_metric(Graph *g, Name name, Name of_mean, int value, Span span);
void graph_output_figure(Graph *g, Name name, int value, Span span);
static inline int graph_n_logged(const Graph *g) { return g->figures.n - g->n_outputs; } /* losses and metrics */

int64_t graph_tokens_per_sample(const Graph *g); /* of the first input that has any; 0 when none has */
int64_t shape_elements(const Shape *s);          /* of one sample */
/* Of a split layout, how many runs of elements in memory's order the value has: of each a rank has a part. s: its part's
 * shape, or the whole one. */
int64_t layout_runs(const Shape *s, Layout layout);
int64_t param_elements(const Graph *g, const Param *p); /* of all ranks' parts together */
bool shape_equal(const Shape *a, const Shape *b);
const char *shape_text(const Shape *s); /* "[128, 256]" */

/* By node: the number of the run of nodes of one scope it stands in, from 0. Cuts fall between
 * runs, never within one. A backward node belongs to the run of the node it serves. */
int *graph_runs(const Graph *g);

/* ---- printing, reading back, checking (dump.c, read.c, verify.c) -------------------------- */

/* One line a node, readable by people and by graph_read, which gives an equal graph. */
void graph_dump(const Graph *g, FILE *out);
Graph *graph_read(const char *path, const char *text); /* NULL after diagnostics */
/* Order, ids, shapes, phases; ends the process through BUG when something does not hold. */
void graph_verify(const Graph *g);

#endif
