/* The recurrence of an LSTM layer in one direction (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997;
 * Gers et al., "Learning to Forget", 2000). The input's contribution to the gates is an operand for all steps, so
 * it is one ordinary matrix product. Gates are ordered i, f, g, o, as in PyTorch:
 *   c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c').
 * The gradient of the weight is an ordinary product, too: of the gates' gradients and the states before each
 * step, both written by the backward kernel. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

enum { GATES = 4, FORGET_GATE = 1, CELL_GATE = 2, OUT_GATE = 3 };

/* The optional operands that are present, in their order. */
typedef enum {
  HAS_STATE = 1, /* h0 and c0 */
  HAS_LENGTHS = 2,
  HAS_DH = 4, /* of the gradient: gradients of h, h_n, c_n */
  HAS_DH_N = 8,
  HAS_DC_N = 16
} Has;

/* The operands' indices; -1: absent. */
typedef struct Operands {
  int h0, c0, lengths, dh, dh_n, dc_n, n;
} Operands;

static Operands operands(unsigned has, int first) {
  Operands o = {-1, -1, -1, -1, -1, -1, first};
  if (has & HAS_STATE)
    o.h0 = o.n++, o.c0 = o.n++;
  if (has & HAS_LENGTHS)
    o.lengths = o.n++;
  if (has & HAS_DH)
    o.dh = o.n++;
  if (has & HAS_DH_N)
    o.dh_n = o.n++;
  if (has & HAS_DC_N)
    o.dc_n = o.n++;
  return o;
}

/* Optional operands after gates and weight: lengths, two states, or both. */
static unsigned forward_has(int n_in) { return (n_in % 2 ? HAS_LENGTHS : 0u) | (n_in >= 4 ? HAS_STATE : 0u); }

/* ---- shapes ------------------------------------------------------------------------------------- */

static bool lstm_fails(ShapeRule *r, int operand, int axis, const char *why) {
  Diagnostic *d = error_at(r->span, "PD0316", "'lstm' needs %s, but operand %d is %s", why, operand + 1,
                           rule_operand(r, operand));
  rule_underline(r, d);
  rule_origin(r, d, operand, axis);
  return false;
}

static bool check_lengths(ShapeRule *r, int operand, int64_t steps) {
  const Value *v = rule_value(r, operand);
  if (!rule_token(r, operand))
    return false;
  if (!v->shape.batched || shape_elements(&v->shape) != 1)
    return lstm_fails(r, operand, v->shape.rank - 1, "one length per sample");
  if (v->classes <= steps + 1)
    return true;
  Diagnostic *d = error_at(r->span, "PD0316", "'lstm' has %lld steps, but '%s' may hold lengths up to %lld",
                           (long long)steps, v->name, (long long)v->classes - 1);
  rule_underline(r, d);
  note_at(d, v->span, "the lengths come from here");
  return false;
}

static bool shape_lstm(ShapeRule *r) {
  if (!rule_f32(r, 0) || !rule_f32(r, 1))
    return false;
  const Shape *gates = rule_shape(r, 0), *weight = rule_shape(r, 1);
  if (weight->rank != 2 || weight->batched || weight->dim[0] != GATES * weight->dim[1])
    return lstm_fails(r, 1, weight->rank - 1, "a weight [4 hidden, hidden], the same for all samples");
  int64_t hidden = weight->dim[1];
  if (gates->rank != 2 || !gates->batched || gates->dim[1] != GATES * hidden)
    return lstm_fails(r, 0, gates->rank - 1,
                      format("gates [length, %lld] of each sample", (long long)(GATES * hidden)));
  Operands o = operands(forward_has(r->n_in), 2);
  Shape state = {.batched = true, .rank = 1, .dim = {hidden}};
  for (int i = o.h0; o.h0 >= 0 && i <= o.c0; i++) {
    if (!rule_f32(r, i))
      return false;
    if (!shape_equal(rule_shape(r, i), &state))
      return lstm_fails(r, i, rule_shape(r, i)->rank - 1,
                        format("a state [%lld] of each sample", (long long)hidden));
  }
  if (o.lengths >= 0 && !check_lengths(r, o.lengths, gates->dim[0]))
    return false;
  const Shape h = shape_with(*gates, 1, hidden), shapes[] = {h, state, state, h, *gates};
  r->n_out = sizeof shapes / sizeof *shapes;
  for (int i = 0; i < r->n_out; i++) {
    r->out[i].type = TYPE_F32;
    r->out[i].shape = shapes[i];
  }
  return true;
}

/* ---- derivative ----------------------------------------------------------------------------------- */

static void derive_lstm(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const Node *n = &g->nodes.at[node];
  unsigned has = forward_has(n->n_in);
  Operands o = operands(has, 2);
  int in[12] = {n->in[1], n->out[0], n->out[3], n->out[4]}, n_in = 4;
  for (int i = 2; i < n->n_in; i++)
    in[n_in++] = n->in[i];
  for (int i = 0; i < 3; i++)
    if (grad_of(d, node, i) >= 0) {
      in[n_in++] = grad_of(d, node, i);
      has |= (unsigned)HAS_DH << i;
    }
  Attr attr[MAX_ATTR] = {n->attr[0], {.number = has}};
  int d_gates = grad_build(d, node, &op_lstm_gradient, in, n_in, attr), made = g->values.at[d_gates].node;
  int previous = graph_output(g, made, 1);
  if (grad_wanted(d, node, 1))
    grad_add(d, node, 1, grad_2(d, node, &op_weight_gradient, d_gates, previous));
  grad_add(d, node, 0, d_gates);
  for (int i = o.h0; o.h0 >= 0 && i <= o.c0; i++)
    grad_add(d, node, i, graph_output(g, made, 2 + i - o.h0));
}

/* A product of state and weight per step; a dozen operations for each of a cell's five functions. */
static OpCost cost_lstm(const Graph *g, int node) {
  const Shape *h = out_shape(g, node, 0);
  double cells = (double)shape_elements(h), hidden = (double)h->dim[1];
  return (
      OpCost){.matmul_flops = 2 * GATES * cells * hidden, .other_flops = 60 * cells, .bytes = node_bytes(g, node)};
}

/* ---- reference in double -------------------------------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static int64_t steps_of(const double *lengths, int64_t sample, int64_t length) {
  return lengths ? (int64_t)lengths[sample] : length;
}

static int64_t row_of_step(int64_t k, int64_t steps, bool reverse) { return reverse ? steps - 1 - k : k; }

static const double *operand_of(const double *const *in, int index) { return index < 0 ? NULL : in[index]; }

static void evaluate_step(const double *x, const double *w, int64_t hidden, double *h, double *c, double *gate) {
  for (int64_t row = 0; row < GATES * hidden; row++) {
    gate[row] = x[row];
    for (int64_t j = 0; j < hidden; j++)
      gate[row] += w[row * hidden + j] * h[j];
    gate[row] = row / hidden == CELL_GATE ? tanh(gate[row]) : sigmoid(gate[row]);
  }
  for (int64_t j = 0; j < hidden; j++) {
    c[j] = gate[FORGET_GATE * hidden + j] * c[j] + gate[j] * gate[CELL_GATE * hidden + j];
    h[j] = gate[OUT_GATE * hidden + j] * tanh(c[j]);
  }
}

static void evaluate_lstm(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Node *n = &g->nodes.at[node];
  Operands o = operands(forward_has(n->n_in), 2);
  const double *h0 = operand_of(in, o.h0), *c0 = operand_of(in, o.c0), *lengths = operand_of(in, o.lengths);
  int64_t length = in_shape(g, node, 0)->dim[0], hidden = in_shape(g, node, 1)->dim[1];
  bool reverse = node_int(n, "reverse") != 0;
  for (int i = 0; i < n->n_out; i++)
    memset(out[i], 0, (size_t)batch_elements(out_shape(g, node, i), batch) * sizeof *out[i]);
  for (int64_t b = 0; b < batch; b++) {
    double *h = out[1] + b * hidden, *c = out[2] + b * hidden;
    for (int64_t j = 0; j < hidden && h0; j++)
      h[j] = h0[b * hidden + j], c[j] = c0[b * hidden + j];
    int64_t steps = steps_of(lengths, b, length);
    for (int64_t k = 0; k < steps; k++) {
      int64_t at = b * length + row_of_step(k, steps, reverse);
      evaluate_step(in[0] + at * GATES * hidden, in[1], hidden, h, c, out[4] + at * GATES * hidden);
      memcpy(out[0] + at * hidden, h, (size_t)hidden * sizeof *h);
      memcpy(out[3] + at * hidden, c, (size_t)hidden * sizeof *c);
    }
  }
}

/* ---- lstm_gradient(weight, h, c, gates, ..) -> d_gates, previous, and with a state before dh0, dc0 ------ */

static unsigned gradient_has(const Node *n) { return (unsigned)node_int(n, "has"); }

static bool shape_lstm_gradient(ShapeRule *r) {
  unsigned has = (unsigned)rule_int(r, "has");
  Operands o = operands(has, 4);
  ensure(o.n == r->n_in && shape_equal(rule_shape(r, 1), rule_shape(r, 2)));
  const Shape *gates = rule_shape(r, 3), *h = rule_shape(r, 1);
  Shape state = {.batched = true, .rank = 1, .dim = {h->dim[1]}};
  const Shape shapes[] = {*gates, *h, state, state};
  r->n_out = has & HAS_STATE ? 4 : 2;
  for (int i = 0; i < r->n_out; i++) {
    r->out[i].type = TYPE_F32;
    r->out[i].shape = shapes[i];
  }
  return true;
}

static OpCost cost_lstm_gradient(const Graph *g, int node) {
  const Shape *h = in_shape(g, node, 1);
  double cells = (double)shape_elements(h), hidden = (double)h->dim[1];
  return (
      OpCost){.matmul_flops = 2 * GATES * cells * hidden, .other_flops = 40 * cells, .bytes = node_bytes(g, node)};
}

/* One step backward. gate: after their functions; c, before: the cells after and before; dh, dc: gradients of the
 * state after, replaced by those of the state before. */
static void evaluate_step_back(const double *w, int64_t hidden, const double *gate, const double *c,
                               const double *before, double *dh, double *dc, double *d) {
  const double *in = gate, *forget = gate + hidden, *cell = gate + 2 * hidden, *out = gate + 3 * hidden;
  for (int64_t j = 0; j < hidden; j++) {
    double t = tanh(c[j]), dc_all = dc[j] + dh[j] * out[j] * (1 - t * t);
    d[j] = dc_all * cell[j] * in[j] * (1 - in[j]);
    d[hidden + j] = before ? dc_all * before[j] * forget[j] * (1 - forget[j]) : 0;
    d[2 * hidden + j] = dc_all * in[j] * (1 - cell[j] * cell[j]);
    d[3 * hidden + j] = dh[j] * t * out[j] * (1 - out[j]);
    dc[j] = dc_all * forget[j];
  }
  for (int64_t j = 0; j < hidden; j++) {
    dh[j] = 0;
    for (int64_t row = 0; row < GATES * hidden; row++)
      dh[j] += w[row * hidden + j] * d[row];
  }
}

static void add_to(double *sum, const double *x, int64_t n) {
  for (int64_t i = 0; i < n && x; i++)
    sum[i] += x[i];
}

static void evaluate_lstm_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                   double *const *out) {
  const Node *n = &g->nodes.at[node];
  Operands o = operands(gradient_has(n), 4);
  const double *h0 = operand_of(in, o.h0), *c0 = operand_of(in, o.c0), *lengths = operand_of(in, o.lengths);
  const double *dh_in = operand_of(in, o.dh), *dh_n = operand_of(in, o.dh_n), *dc_n = operand_of(in, o.dc_n);
  int64_t length = in_shape(g, node, 1)->dim[0], hidden = in_shape(g, node, 1)->dim[1];
  bool reverse = node_int(n, "reverse") != 0;
  size_t state = (size_t)hidden * sizeof(double);
  for (int i = 0; i < n->n_out; i++)
    memset(out[i], 0, (size_t)batch_elements(out_shape(g, node, i), batch) * sizeof *out[i]);
  for (int64_t b = 0; b < batch; b++) {
    double *dh = alloc(state), *dc = alloc(state);
    add_to(dh, dh_n ? dh_n + b * hidden : NULL, hidden);
    add_to(dc, dc_n ? dc_n + b * hidden : NULL, hidden);
    int64_t steps = steps_of(lengths, b, length);
    for (int64_t k = steps - 1; k >= 0; k--) {
      int64_t at = (b * length + row_of_step(k, steps, reverse)) * hidden;
      int64_t earlier = (b * length + row_of_step(k - 1, steps, reverse)) * hidden;
      const double *h_before = k > 0 ? in[1] + earlier : h0 ? h0 + b * hidden : NULL;
      const double *c_before = k > 0 ? in[2] + earlier : c0 ? c0 + b * hidden : NULL;
      add_to(dh, dh_in ? dh_in + at : NULL, hidden);
      add_to(out[1] + at, h_before, hidden);
      evaluate_step_back(in[0], hidden, in[3] + GATES * at, in[2] + at, c_before, dh, dc, out[0] + GATES * at);
    }
    if (h0) {
      memcpy(out[2] + b * hidden, dh, state);
      memcpy(out[3] + b * hidden, dc, state);
    }
  }
}

/* ---- as calls of pd_lstm_forward and pd_lstm_backward ----------------------------------------------- */

/* Sizes from h, [batch, length, hidden]. */
static struct pd_lstm describe_lstm(const Site *site, const Place *h) {
  return (struct pd_lstm){.batch = h->dim[0],
                          .length = h->dim[1],
                          .hidden = h->dim[2],
                          .reverse = node_int(site->node, "reverse") != 0};
}

static void lstm_object(Call *c, struct pd_lstm l) {
  c->object = "pd_lstm";
  field_int(c, "batch", l.batch);
  field_int(c, "length", l.length);
  field_int(c, "hidden", l.hidden);
  field_bool(c, "reverse", l.reverse);
  pass_object(c);
}

static void pass_optional(const Site *site, Call *c, int operand) {
  if (operand < 0)
    pass_null(c);
  else
    pass_place(c, &site->in[operand]);
}

static void call_lstm(const Site *site, Call *c) {
  Operands o = operands(forward_has(site->n_in), 2);
  c->function = "pd_lstm_forward";
  lstm_object(c, describe_lstm(site, &site->out[0]));
  pass_place(c, &site->in[0]);
  pass_place(c, &site->in[1]);
  pass_optional(site, c, o.h0);
  pass_optional(site, c, o.c0);
  pass_optional(site, c, o.lengths);
  for (int i = 0; i < site->n_out; i++)
    pass_place(c, &site->out[i]);
  pass_scratch(c);
}

static void call_lstm_gradient(const Site *site, Call *c) {
  Operands o = operands(gradient_has(site->node), 4);
  c->function = "pd_lstm_backward";
  lstm_object(c, describe_lstm(site, &site->in[1]));
  pass_place(c, &site->in[0]);
  pass_optional(site, c, o.h0);
  pass_optional(site, c, o.c0);
  pass_optional(site, c, o.lengths);
  for (int i = 1; i < 4; i++)
    pass_place(c, &site->in[i]);
  pass_optional(site, c, o.dh);
  pass_optional(site, c, o.dh_n);
  pass_optional(site, c, o.dc_n);
  for (int i = 0; i < 4; i++)
    if (i < site->n_out)
      pass_place(c, &site->out[i]);
    else
      pass_null(c);
  pass_scratch(c);
}

static int64_t scratch_lstm(const Site *site) {
  struct pd_lstm l = describe_lstm(site, &site->out[0]);
  return site->library->lstm(&l);
}

static int64_t scratch_lstm_gradient(const Site *site) {
  struct pd_lstm l = describe_lstm(site, &site->in[1]);
  return site->library->lstm_backward(&l);
}

/* Cells, which accumulate over steps, and gates after their functions stay in f32. */
static bool lstm_stays_f32(const Node *n, bool result, int index) {
  enum { C_N = 2, C = 3, AFTER = 4 };
  return result ? index == C_N || index == C || index == AFTER : index == operands(forward_has(n->n_in), 2).c0;
}

static bool gradient_stays_f32(const Node *n, bool result, int index) {
  enum { C = 2, AFTER = 3, DC0 = 3 };
  Operands o = operands(gradient_has(n), 4);
  return result ? index == DC0 : index == C || index == AFTER || index == o.c0 || index == o.dc_n;
}

/* ---- the primitives ----------------------------------------------------------------------------- */

static bool is_forward_lstm(const Graph *g, int node) { return node_int(&g->nodes.at[node], "reverse") == 0; }

/* Forward, over all positions; the states after the last one are not known before it. */
static int decode_lstm(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Operands o = operands(forward_has(g->nodes.at[node].n_in), 2);
  (void)context;
  if (!is_forward_lstm(g, node) || o.lengths >= 0 || axis[0] != 0 ||
      (o.h0 >= 0 && (axis[o.h0] >= 0 || axis[o.c0] >= 0)))
    return -1;
  to->op = &op_cached_lstm;
  to->cached = to->state = true;
  return 0;
}

/* The recurrence of an LSTM: gates has the input's contribution to the gates i, f, g, o at each step, weight is
 * applied to the state. Results are the state h after each step, [length, hidden], and the last h and c, [hidden].
 * The first state is h0 and c0, or zeros. lengths ends each sample early: later rows of h are zeros, and the last
 * state is that at its end. reverse: from a sample's end to its start. */
const Op op_lstm = {
    .name = "lstm",
    .signature = "lstm(gates[length, 4 * hidden], weight[4 * hidden, hidden], h0, c0, lengths, reverse = false)",
    .kind = OP_CALL,
    .min_in = 2,
    .max_in = 5,
    .results = 3,
    .attr = {{"reverse", ATTR_BOOL, false, 0}},
    .shape = shape_lstm,
    .derivative = derive_lstm,
    .cost = cost_lstm,
    .evaluate = evaluate_lstm,
    .call = call_lstm,
    .scratch = scratch_lstm,
    .causal = is_forward_lstm,
    .decode = decode_lstm,
    .stays_f32 = lstm_stays_f32,
};

const Op op_lstm_gradient = {
    .name = "lstm_gradient",
    .signature = "lstm_gradient(weight, h, c, gates, .., reverse, has)",
    .kind = OP_CALL,
    .internal = true,
    .min_in = 5,
    .max_in = 10,
    .attr = {{"reverse", ATTR_BOOL, true, 0}, {"has", ATTR_INT, true, 0}},
    .shape = shape_lstm_gradient,
    .cost = cost_lstm_gradient,
    .evaluate = evaluate_lstm_gradient,
    .call = call_lstm_gradient,
    .scratch = scratch_lstm_gradient,
    .stays_f32 = gradient_stays_f32,
};
