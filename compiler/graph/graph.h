/* The Graph: an array of values and an array of nodes, in topological order. Elaboration appends forward nodes,
 * autodiff appends backward nodes, and simplify rewrites; later passes only read it. Shapes are per sample. A
 * `batched` value has the microbatch as an implicit leading axis: inputs and all values that depend on them.
 * Parameters, constants and gradients of parameters are not batched; such gradients are sums over the
 * microbatch. */
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

/* Share of a value on a rank of a shard group (tensor/tensor.h): the whole value; an equal part of each of
 * `blocks` equal blocks of an axis; a summand of each element, to be added over the group's ranks; or a bound of
 * each element, with the largest over the group's ranks as the value. */
typedef enum { LAYOUT_WHOLE, LAYOUT_SPLIT, LAYOUT_PARTIAL, LAYOUT_BOUND } LayoutKind;
typedef struct Layout {
  LayoutKind kind;
  int axis;       /* axis of a sample, counted from the left; axis and blocks apply to split values */
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
  Name name;    /* the user's variable, or the op's name; for diagnostics, not unique */
  int named_in; /* the scope of this variable; -1: none */
  Type type;
  int64_t classes; /* of tokens */
  bool bf16;       /* of f32: under --precision bf16 the producer rounds it for all readers (residual/residual.h).
                      fuse/precision.c lists other rounded values */
  Shape shape;
  int node, output; /* its producer */
  Span span;
  /* Set by autodiff for forward values that are not parameters. `uses`: the forward nodes that read it, in order.
   * `gradients`: for each use, the gradient summed over that use and all later ones; -1: no gradient. Uses that
   * no cut separates share one sum. The gradient across a cut before node `first` is that of the first use >=
   * first. */
  Ints uses, gradients;
} Value;

typedef struct Node {
  const Op *op;
  Attr *attr; /* one per attribute of the op, in the op's order */
  int n_in, *in;
  int n_out, *out;
  int scope; /* the layer instance it was inlined from */
  Span span;
  int serves; /* of a backward node: its forward node; -1 in forward nodes */
} Node;

/* A layer instance. path is the prefix of its parameters' names ("h.0.attn"), "" for the model. */
typedef struct Scope {
  Name path, layer;
  int parent;    /* -1 for the model, which is scope 0 */
  Span span;     /* the call */
  bool standard; /* of a standard layer: diagnostics point to its call. Absent from dumps */
} Scope;

typedef enum { INIT_ZEROS, INIT_ONES, INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL } InitKind;

typedef struct Param {
  Name name; /* "h.0.attn.c_attn.weight", unique */
  Shape shape;
  int64_t padding; /* zero rows after the last row in memory; the value's shape includes them
                      (layout/pad_rows.h) */
  InitKind init;
  double init_value;  /* the constant, the bound of uniform(-a, a), the deviation of normal(0, s) */
  int64_t zero_row;   /* of a table: the row initialized to zeros despite `init`; -1: none */
  bool stored_in_out; /* files hold the transposed matrix (Hugging Face's GPT-2 linears) */
  bool buffer;        /* not trained: a running average (ops/statistics.c) or a bias that balances loads
                         (ops/biased_top_k.c), its only use; unused in inference if no output needs it. Its
                         "gradient" is the microbatch's contribution to the update, summed like a gradient */
  int group;          /* index into Train.groups, from 1; 0: none */
  bool frozen;        /* matched by `freeze`: no gradient, no update. Never a buffer */
  bool hidden;        /* with a two-method optimizer: a hidden matrix, updated by the first method
                         (optimizers/hidden.h) */
  Layout layout;      /* of a divided graph: whole or split; `shape` is then the shape of a rank's part */
  int64_t surplus; /* of a split parameter: zero rows in the last ranks' parts, beyond the parameter's own rows */
  int value;       /* the graph value */
  Ints uses;       /* forward nodes that read it, in order; a view counts instead of its readers */
  Ints gradients;  /* one value per use, in the same order, each summed over microbatches separately. Set by
                      autodiff; -1: a use without gradient */
  Span span;
} Param;

/* The shape in memory. */
static inline Shape padded_shape(const Param *p) {
  Shape s = p->shape;
  s.dim[0] += p->padding;
  return s;
}

static inline bool is_trained(const Param *p) { return !p->buffer && !p->frozen; }

/* Source of an input's samples: a file, raw or as images to normalise, the tokens of another input, or chance.
 * pd_runtime.h defines each computation and its numbers. */
typedef enum {
  ORIGIN_FILE,
  ORIGIN_IMAGE,
  ORIGIN_LENGTHS,
  ORIGIN_PRESENT,
  ORIGIN_COUNTED,
  ORIGIN_SHIFTED,
  ORIGIN_SEGMENTS,
  ORIGIN_MASKED,
  ORIGIN_CHOSEN,
  ORIGIN_NORMAL_NOISE, /* the first without a source */
  ORIGIN_UNIFORM_NOISE,
  ORIGIN_RANDOM_INT
} OriginKind;

typedef struct Input {
  Name name;
  bool target;
  int value;
  Span span;
  OriginKind origin;
  int from; /* index of the source input; -1: none */
  Vec(double) numbers;
} Input;

/* Results of each microbatch. The log has the mean over all elements of losses and metrics in the batch. The
 * model's loss is the sum of losses; metrics have no gradient. Outputs exist only in inference and are written
 * unchanged. */
typedef struct Figure {
  Name metric;  /* a metric's name in the log, or NULL */
  Name output;  /* an output's name, or NULL; a loss has neither */
  Name of_mean; /* of a metric: "exp" logs exp(mean), a C function of a double; NULL: the mean */
  int value;
  Span span;
} Figure;

/* Optimizer arguments for parameters that match the pattern and no earlier group. */
typedef struct ParameterGroup {
  Name pattern;
  double lr, number[MAX_OPTIMIZER_NUMBERS];
  bool decay_all;
  Span span;
} ParameterGroup;

/* Correction of delayed gradients, per update of delay (runtime/optimizers/pd_rate.h). */
typedef struct DelayCorrection {
  double ahead, damping; /* both 0: no correction */
  bool automatic;        /* `ahead` covers one update of delay; longer delays are extrapolated automatically */
} DelayCorrection;

typedef struct Train {
  int64_t batch; /* samples per weight update, over all replicas */
  const Optimizer *optimizer;
  double lr, number[MAX_OPTIMIZER_NUMBERS]; /* its arguments in order; a pair takes two numbers */
  bool decay_all;                           /* false: only parameters of rank 2 or more decay */
  Vec(ParameterGroup) groups;               /* parameters with their own arguments */
  double ema;                               /* decay of the weight average per update; 0: no average */
  const LrSchedule *lr_schedule;
  double lr_number[MAX_LR_ARGUMENTS]; /* its arguments in order */
  double clip_norm;                   /* 0: no clipping */
  DelayCorrection correction;
  bool correction_lost;  /* `auto`, and the optimizer has no momentum */
  bool correction_given; /* set by numbers, at correction_span */
  Span correction_span;
  Name pipeline;      /* "2bw", "flush", ... */
  bool vertical_sync; /* of pipedream */
  int64_t chunks;     /* of interleaved: model parts per rank; 0: not given */
  Span span, pipeline_span;
} Train;

/* Inputs of a graph that generates token sequences (decode/decode.h). Its only figure is the logits. */
typedef struct Generation {
  int64_t context;      /* positions of the model's token input; 0: no generation */
  int64_t ring;         /* the fewest positions that a cache holds; without caches the context */
  int64_t samples;      /* sequences at the same time, at most the rows of a batch */
  int tokens, position; /* input indices; position -1: each token recomputes all positions of all samples */
  int sequence;         /* with a position: the input with the number of each row's sequence */
  bool state;           /* caches that keep the last position alone */
  /* With an encoder, whose source tokens are the input `source`: sample b of a batch is sequence b. Sequences begin with
   * the token `start`; the token `pad` is behind sources, -1: unknown. */
  bool encoder;
  int source;
  int64_t start, pad;
} Generation;

typedef struct Graph Graph;
typedef Vec(Graph *) Bodies;

/* Of a graph that is the body of a scan: one step of a loop over time (ops/scan.h). Its inputs are the scanned
 * values, the states before the step, then captured values; its outputs are stacked results, then the states after
 * the step. */
typedef struct ScanLoop {
  int64_t steps; /* 0: not the body of a scan */
  bool reverse;  /* from the last row of scanned and stacked values to the first */
  bool cached;   /* of a generating program: a step is a row's one position, and its states are those of the row's
                    sequence, between calls (ops/cached_scan.c) */
  bool again;    /* the derivative of a body around the scan runs it again instead of keeping its results */
  int scanned, states, stacked;
  uint64_t zeros; /* bit i: state i starts as zeros and has no initial value among the scan's operands */
  /* by input, then by output: the scan has it in bf16; NULL: not known, all in f32. Set by lower. Absent from dumps */
  const bool *bf16;
} ScanLoop;
enum { MAX_STATES = 64 };

struct Graph {
  Name name; /* the model's */
  Name file; /* the source's path */
  Vec(Value) values;
  Vec(Node) nodes;
  Vec(Scope) scopes;
  Vec(Param) params; /* in order of declaration: the canonical order of sums over parameters */
  Vec(Input) inputs;
  Vec(Figure) figures; /* losses, then metrics, then outputs, each in order of declaration */
  int n_losses, n_outputs;
  int n_forward;      /* nodes[0..n_forward) are forward, later nodes backward */
  bool inference;     /* no backward nodes; running averages do not change */
  int shards;         /* ranks of a shard group, each with parts of this graph's values; 0: not divided */
  bool spread;        /* of a divided graph: saved activations are split by positions if possible */
  double whole_flops; /* of a divided graph: FLOPs of the whole model's matrix products (OpCost.matmul_flops) */
  Generation generation;
  ScanLoop loop;
  Bodies *bodies;             /* of this graph's scans and of scans in their bodies; shared with those bodies */
  const char *adapter_config; /* of --lora: PEFT's adapter_config.json; NULL: no adapters. Absent from dumps */
  Train train;
};

/* ---- building (build.c) ------------------------------------------------------------------- */

Graph *graph_new(Name name);
int graph_scope(Graph *g, int parent, Name path, Name layer, Span span);
/* Appends a node and infers its output shapes. Returns the node, or -1 after a diagnostic; the caller then poisons
 * dependent values. `attr` follows the op's order; NULL: all defaults. */
int graph_node(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int scope, Span span);
/* Appends a backward node, in the scope and with the span of the forward node it serves. */
int graph_backward_node(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int serves);
static inline int graph_output(const Graph *g, int node, int i) { return g->nodes.at[node].out[i]; }
/* Sources: nodes without inputs. */
int graph_param(Graph *g, Name name, Shape shape, int scope, Span span); /* returns the param's index */
int graph_input(Graph *g, Name name, bool target, Type type, int64_t classes, Shape shape, Span span);
/* An input of a body, like a value of the scan's graph. Returns its value. */
int graph_operand(Graph *g, Name name, const struct Value *like);
int graph_constant(Graph *g, double value, int scope, Span span); /* a scalar value */
void graph_loss(Graph *g, int value, Span span);
void graph_metric(Graph *g, Name name, Name of_mean, int value, Span span);
void graph_output_figure(Graph *g, Name name, int value, Span span);
static inline int graph_n_logged(const Graph *g) { return g->figures.n - g->n_outputs; } /* losses and metrics */

int64_t graph_tokens_per_sample(const Graph *g); /* of the first input of tokens; 0: none */
int64_t shape_elements(const Shape *s);          /* of one sample */
/* The number of contiguous runs of a split value in memory; each rank has a part of each run. `s` may be the
 * part's shape or the whole one. */
int64_t layout_runs(const Shape *s, Layout layout);
int64_t param_elements(const Graph *g, const Param *p); /* of all ranks' parts */
bool shape_equal(const Shape *a, const Shape *b);
const char *shape_text(const Shape *s); /* "[128, 256]" */

/* By node: the index of its run, a maximal sequence of nodes in one scope. Cuts fall only between runs. A backward
 * node belongs to the run of its forward node. The body of a scan is one run. */
int *graph_runs(const Graph *g);

/* ---- printing, reading back, checking (dump.c, read.c, verify.c) -------------------------- */

/* Prints one line a node; graph_read restores an equal graph. */
void graph_dump(const Graph *g, FILE *out);
Graph *graph_read(const char *path, const char *text); /* NULL after diagnostics */
/* Checks order, ids, shapes and phases; a violation ends the process through BUG. */
void graph_verify(const Graph *g);

#endif
