/* One step of a loop over time (scan.c) for rows that are each one position of a sequence, for text generation. The call
 * keeps the states of each sequence after its last position. A causal convolution becomes such a loop, too, with the
 * last rows of its input as state. */
#include <string.h>

#include "graph/interpret.h"
#include "ops/call.h"
#include "ops/rules.h"
#include "ops/scan.h"

/* ---- cached_scan(x, initial, captured, position[1], sequence[1]) -> y, kept states -------------------------- */

static bool shape_cached_scan(ShapeRule *r) {
  const Graph *body = r->g->bodies->at[rule_int(r, "body")];
  const int *operand = scan_operands(body), stacked = (int)rule_int(r, "stacked");
  ensure(body->loop.cached && stacked == body->loop.stacked);
  for (int i = 0; i < body->inputs.n; i++)
    if (operand[i] >= 0)
      ensure(operand[i] < r->n_in - CACHED_OPERANDS &&
             shape_equal(rule_shape(r, operand[i]), &body->values.at[body->inputs.at[i].value].shape));
  r->n_out = body->figures.n;
  for (int i = 0; i < r->n_out; i++) {
    Shape s = body->values.at[body->figures.at[i].value].shape;
    memmove(s.dim + 1, s.dim, (size_t)s.rank++ * sizeof s.dim[0]);
    s.dim[0] = i < stacked ? 1 : rule_int(r, "samples");
    s.batched = i < stacked;
    r->out[i].type = TYPE_F32;
    r->out[i].shape = s;
  }
  return rule_token(r, r->n_in - 2) && rule_token(r, r->n_in - 1);
}

/* The body's inputs for a row, without states. */
static const double **row_inputs(const Graph *body, const double *const *in, int64_t row) {
  const double **input = alloc((size_t)(body->inputs.n + 1) * sizeof *input);
  const int *operand = scan_operands(body);
  for (int i = 0; i < body->inputs.n; i++) {
    const Shape *s = &body->values.at[body->inputs.at[i].value].shape;
    input[i] = operand[i] < 0 ? NULL : in[operand[i]] + (s->batched ? row * shape_elements(s) : 0);
  }
  return input;
}

/* Kept states have the contents of earlier calls. */
static void evaluate_cached_scan(const Graph *g, int node, int64_t batch, const double *const *in,
                                 double *const *out) {
  const Node *n = &g->nodes.at[node];
  const Graph *body = scan_body(g, n);
  const ScanLoop *l = &body->loop;
  const double *position = in[n->n_in - 2], *sequence = in[n->n_in - 1];
  for (int64_t row = 0; row < batch; row++) {
    if (sequence[row] >= node_number(n, "samples"))
      continue;
    const double **input = row_inputs(body, in, row);
    for (int i = 0; i < l->states; i++) {
      const Shape *s = &body->values.at[body->inputs.at[l->scanned + i].value].shape;
      const double *kept = out[l->stacked + i] + (int64_t)sequence[row] * shape_elements(s);
      if (position[row] > 0)
        input[l->scanned + i] = kept;
      else if (!input[l->scanned + i])
        input[l->scanned + i] = alloc((size_t)(shape_elements(s) + 1) * sizeof **input);
    }
    double **value = interpret(body, 1, input, NULL);
    for (int i = 0; i < n->n_out; i++) {
      const int64_t size = shape_elements(&body->values.at[body->figures.at[i].value].shape);
      memcpy(out[i] + (i < l->stacked ? row : (int64_t)sequence[row]) * size, value[body->figures.at[i].value],
             (size_t)size * sizeof **out);
    }
  }
}

/* The step of a scan for rows of sequences: scanned values and results have size 1 along the axis of steps. */
const Op op_cached_scan = {
    .name = "cached_scan",
    .signature =
        "cached_scan(x, initial, captured, position[1], sequence[1], body, digest, narrow, samples, stacked)",
    .kind = OP_CALL,
    .loops = true,
    .internal = true,
    .first_kept = -1,
    .min_in = CACHED_OPERANDS,
    .max_in = -1,
    .attr = {{"body", ATTR_INT, true, 0},
             {"digest", ATTR_TEXT, true, 0},
             {"narrow", ATTR_LIST, true, 0},
             {"samples", ATTR_INT, true, 0},
             {"stacked", ATTR_INT, true, 0}},
    .shape = shape_cached_scan,
    .cost = cost_scan,
    .evaluate = evaluate_cached_scan,
    .call = call_scan,
    .scratch = scratch_scan,
    .stays_f32 = scan_stays_f32,
};

void decode_to_scan(const Graph *g, Graph *body, Decoded *to) {
  to->op = &op_cached_scan;
  memset(to->attr, 0, sizeof to->attr);
  scan_attributes((Graph *)g, body, to->attr);
  to->attr[4].number = body->loop.stacked;
  to->cached = to->state = true;
  to->results = body->loop.stacked;
}

/* ---- of a scan ------------------------------------------------------------------------------------------- */

/* A product of one row with a matrix that all samples share reads the matrix once. */
static const Op *op_of_row(const Graph *g, const Node *n) {
  const Shape *b = n->op == &op_matmul ? &g->values.at[n->in[1]].shape : NULL;
  return b && b->rank == 2 && !b->batched ? &op_few_rows_matmul : n->op;
}

/* The body with one step. Scanned values differ between rows, even if they are the same for all samples. */
static Graph *one_step(const Graph *g, const Graph *body) {
  ScanLoop loop = body->loop;
  loop.steps = 1;
  loop.cached = true;
  Graph *b = body_new(g, loop);
  int *value = alloc((size_t)(body->values.n + 1) * sizeof *value);
  b->scopes = body->scopes;
  for (int i = 0; i < body->inputs.n; i++) {
    Value like = body->values.at[body->inputs.at[i].value];
    if (i < loop.scanned)
      like.shape.batched = true, like.shape.dim[0] = 1;
    value[body->inputs.at[i].value] = graph_operand(b, body->inputs.at[i].name, &like);
  }
  for (int i = 0; i < body->nodes.n; i++) {
    const Node *n = &body->nodes.at[i];
    int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
    if (n->op == &op_operand)
      continue;
    for (int k = 0; k < n->n_in; k++)
      in[k] = value[n->in[k]];
    const int made = graph_node(b, op_of_row(body, n), in, n->n_in, n->attr, n->scope, n->span);
    ensure(made >= 0);
    for (int k = 0; k < n->n_out; k++) {
      const Value *from = &body->values.at[n->out[k]];
      Value *to = &b->values.at[graph_output(b, made, k)];
      to->name = from->name, to->named_in = from->named_in, to->span = from->span;
      value[n->out[k]] = graph_output(b, made, k);
    }
  }
  for (int i = 0; i < body->figures.n; i++)
    graph_output_figure(b, body->figures.at[i].output, value[body->figures.at[i].value], body->figures.at[i].span);
  return b;
}

/* Over all positions, forward; no operand but the scanned ones depends on positions. */
int decode_scan(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Graph *body = scan_body(g, &g->nodes.at[node]);
  const int *operand = scan_operands(body);
  for (int i = 0; i < body->inputs.n; i++) {
    const bool scanned = i < body->loop.scanned, batched = body->values.at[body->inputs.at[i].value].shape.batched;
    const int along = operand[i] < 0 ? -1 : axis[operand[i]];
    if (along >= 0 ? !scanned || along > 0 : scanned && (batched || operand[i] >= 64))
      return -1;
    if (scanned && along < 0 && body->loop.steps < context)
      return -1;
    if (scanned && along < 0)
      to->rows |= (uint64_t)1 << operand[i];
  }
  if (body->loop.reverse || !body->loop.stacked)
    return -1;
  decode_to_scan(g, one_step(g, body), to);
  return 0;
}

/* ---- of a convolution ------------------------------------------------------------------------------------- */

static int64_t pair_of(const Node *n, const char *name, int axis) { return node_attr(n, name)->list[axis]; }

static int body_node(Graph *b, const Op *op, const int *in, int n_in, const Attr *attr, const char *name) {
  const int made = graph_node(b, op, in, n_in, attr, 0, NO_SPAN);
  ensure(made >= 0);
  b->values.at[graph_output(b, made, 0)].name = intern(name);
  return graph_output(b, made, 0);
}

/* A body whose state is the `before` rows of x in front of the step's, along this axis of the image. */
static Graph *window_body(const Graph *g, int node, int axis, int64_t before) {
  const Node *n = &g->nodes.at[node];
  Value x = g->values.at[n->in[0]], weight = g->values.at[n->in[1]];
  const int64_t channels = x.shape.dim[2];
  Graph *b =
      body_new(g, (ScanLoop){.steps = 1, .cached = true, .scanned = 1, .states = 1, .stacked = 1, .zeros = 1});
  graph_scope(b, -1, intern(""), g->scopes.at[0].layer, NO_SPAN);
  x.shape = (Shape){.batched = true, .rank = 3, .dim = {1, 1, channels}};
  const int rows = graph_operand(b, x.name, &x);
  x.shape = (Shape){.batched = true, .rank = 2, .dim = {before, channels}};
  const int earlier = graph_operand(b, intern("earlier"), &x), w = graph_operand(b, weight.name, &weight);
  const int row = body_node(b, &op_step, &rows, 1, NULL, "row");
  const int window = body_node(b, &op_concat, (int[]){earlier, row}, 2, (Attr[MAX_ATTR]){{.number = 0}}, "window");
  Shape image = {.rank = 3, .dim = {1, 1, channels}}, out = {.rank = 2, .dim = {1, weight.shape.dim[0]}};
  image.dim[axis] = before + 1;
  const int seen =
      body_node(b, &op_reshape, &window, 1, (Attr[MAX_ATTR]){{.n = image.rank, .list = image.dim}}, "window");
  Attr attr[MAX_ATTR] = {n->attr[0], n->attr[1], n->attr[2], n->attr[3]};
  int64_t none[2] = {0, 0};
  attr[1] = (Attr){.n = 2, .list = alloc_copy(none, sizeof none)};
  const int made = body_node(b, &op_convolution, (int[]){seen, w}, 2, attr, "y");
  const int y = body_node(b, &op_reshape, &made, 1, (Attr[MAX_ATTR]){shape_attr(&out)}, "y");
  const int last =
      body_node(b, &op_slice, &window, 1,
                (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}, {.number = (double)before + 1}}, "last");
  graph_output_figure(b, intern("y"), y, NO_SPAN);
  graph_output_figure(b, intern("last"), last, NO_SPAN);
  return b;
}

/* Along one axis of an image with a single row or column, with zeros in front of the first position. */
int decode_convolution(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Node *n = &g->nodes.at[node];
  const Shape *x = in_shape(g, node, 0), *weight = in_shape(g, node, 1);
  const int along = axis[0], other = 1 - along;
  (void)context;
  if (axis[1] >= 0 || along < 0 || along > 1 || x->dim[other] != 1 || weight->dim[2 + other] != 1 ||
      pair_of(n, "padding", other) != 0 || pair_of(n, "stride", along) != 1 || pair_of(n, "stride", other) != 1)
    return -1;
  const int64_t before = pair_of(n, "dilation", along) * (weight->dim[2 + along] - 1);
  if (pair_of(n, "padding", along) != before)
    return -1;
  if (before)
    decode_to_scan(g, window_body(g, node, along, before), to);
  return along;
}

/* ---- of a delay --------------------------------------------------------------------------------------------- */

/* A body whose state is the last `by` rows of x, and whose result the first of them. */
static Graph *delay_body(const Graph *g, int node, int64_t by) {
  Value x = g->values.at[g->nodes.at[node].in[0]];
  Graph *b =
      body_new(g, (ScanLoop){.steps = 1, .cached = true, .scanned = 1, .states = 1, .stacked = 1, .zeros = 1});
  graph_scope(b, -1, intern(""), g->scopes.at[0].layer, NO_SPAN);
  x.shape.batched = true;
  x.shape.dim[0] = 1;
  const int rows = graph_operand(b, x.name, &x);
  x.shape.dim[0] = by;
  const int earlier = graph_operand(b, intern("earlier"), &x);
  const int row = body_node(b, &op_step, &rows, 1, NULL, "row");
  Shape one = x.shape;
  one.dim[0] = 1;
  const int last = body_node(b, &op_reshape, &row, 1, (Attr[MAX_ATTR]){shape_attr(&one)}, "last");
  const int window =
      body_node(b, &op_concat, (int[]){earlier, last}, 2, (Attr[MAX_ATTR]){{.number = 0}}, "window");
  const int first =
      body_node(b, &op_slice, &earlier, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = 0}, {.number = 1}}, "first");
  const int y = body_node(b, &op_reshape, &first, 1, (Attr[MAX_ATTR]){shape_attr(&b->values.at[row].shape)}, "y");
  const int next =
      by == 1 ? last
              : body_node(b, &op_slice, &window, 1,
                          (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}, {.number = (double)by + 1}}, "next");
  graph_output_figure(b, intern("y"), y, NO_SPAN);
  graph_output_figure(b, intern("last"), next, NO_SPAN);
  return b;
}

/* `before` rows of zeros, then all positions but the last `before` ones: position p has the row of p - before. */
int decode_pad(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Node *n = &g->nodes.at[node];
  const int64_t before = node_int(n, "before");
  const int along = (int)node_int(n, "axis");
  if (axis[0] != along)
    return axis[0];
  if (along != 0 || node_int(n, "after") != 0 || before < 1 || out_shape(g, node, 0)->dim[0] != context)
    return -1;
  decode_to_scan(g, delay_body(g, node, before), to);
  return 0;
}
