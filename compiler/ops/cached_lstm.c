/* One step of an LSTM (lstm.c) for rows that are each one position of a sequence, for text generation. The call keeps the
 * state of each sequence after its last position. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

enum { GATES = 4, FORGET_GATE = 1, CELL_GATE = 2, OUT_GATE = 3 };
enum { X, WEIGHT, STATE }; /* operands: then h0 and c0 if given, the position and the sequence */
enum { H, KEPT_H, KEPT_C };

static bool has_state(int n_in) { return n_in == 6; }

static bool shape_cached_lstm(ShapeRule *r) {
  const Shape *x = rule_shape(r, X), *w = rule_shape(r, WEIGHT);
  ensure(x->batched && x->rank == 2 && x->dim[0] == 1 && w->rank == 2 && x->dim[1] == w->dim[0]);
  rule_result(r, shape_with(*x, 1, w->dim[1]));
  for (r->n_out = KEPT_H; r->n_out <= KEPT_C; r->n_out++) {
    r->out[r->n_out].type = TYPE_F32;
    r->out[r->n_out].shape = (Shape){.rank = 2, .dim = {rule_int(r, "samples"), w->dim[1]}};
  }
  return rule_token(r, r->n_in - 2) && rule_token(r, r->n_in - 1);
}

static OpCost cost_cached_lstm(const Graph *g, int node) {
  const double hidden = (double)out_shape(g, node, H)->dim[1];
  return (OpCost){.matmul_flops = 2 * GATES * hidden * hidden,
                  .other_flops = 60 * hidden,
                  .bytes = node_bytes(g, node)};
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

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

/* out[KEPT_H] and out[KEPT_C] have the states after earlier calls. */
static void evaluate_cached_lstm(const Graph *g, int node, int64_t batch, const double *const *in,
                                 double *const *out) {
  const Node *n = &g->nodes.at[node];
  const int64_t hidden = in_shape(g, node, WEIGHT)->dim[1], samples = out_shape(g, node, KEPT_H)->dim[0];
  const double *position = in[n->n_in - 2], *sequence = in[n->n_in - 1];
  double *gate = alloc((size_t)(GATES * hidden) * sizeof *gate);
  for (int64_t row = 0; row < batch; row++) {
    if (sequence[row] >= (double)samples)
      continue;
    double *h = out[KEPT_H] + (int64_t)sequence[row] * hidden, *c = out[KEPT_C] + (int64_t)sequence[row] * hidden;
    for (int64_t j = 0; j < hidden && position[row] == 0; j++) {
      h[j] = has_state(n->n_in) ? in[STATE][row * hidden + j] : 0;
      c[j] = has_state(n->n_in) ? in[STATE + 1][row * hidden + j] : 0;
    }
    evaluate_step(in[X] + row * GATES * hidden, in[WEIGHT], hidden, h, c, gate);
    memcpy(out[H] + row * hidden, h, (size_t)hidden * sizeof *h);
  }
}

static void call_cached_lstm(const Site *site, Call *c) {
  c->function = c->object = "pd_cached_lstm";
  field_int(c, "batch", site->in[X].dim[0]);
  field_int(c, "sequences", site->out[KEPT_H].dim[0]);
  field_int(c, "hidden", site->out[KEPT_H].dim[1]);
  pass_object(c);
  pass_place(c, &site->in[X]);
  pass_place(c, &site->in[WEIGHT]);
  for (int i = STATE; i < STATE + 2; i++)
    if (has_state(site->n_in))
      pass_place(c, &site->in[i]);
    else
      pass_null(c);
  pass_place(c, &site->in[site->n_in - 2]);
  pass_place(c, &site->in[site->n_in - 1]);
  for (int i = 0; i < site->n_out; i++)
    pass_place(c, &site->out[i]);
}

/* The state stays in f32 between steps. */
static bool state_stays_f32(const Node *n, bool result, int index) {
  return result ? index != H : has_state(n->n_in) && (index == STATE || index == STATE + 1);
}

/* x[1, 4 * hidden], the input's contribution to the gates at position[1] of sequence[1], with the weight and the state
 * before position 0, zeros by default: the state h, [1, hidden], and the kept states h and c, [samples, hidden] each. */
const Op op_cached_lstm = {
    .name = "cached_lstm",
    .signature = "cached_lstm(gates[1, 4 * hidden], weight[4 * hidden, hidden], h0, c0, position[1], sequence[1], "
                 "samples)",
    .kind = OP_CALL,
    .internal = true,
    .first_kept = KEPT_H,
    .min_in = 4,
    .max_in = 6,
    .attr = {{"samples", ATTR_INT, true, 0}},
    .shape = shape_cached_lstm,
    .cost = cost_cached_lstm,
    .evaluate = evaluate_cached_lstm,
    .call = call_cached_lstm,
    .stays_f32 = state_stays_f32,
};
