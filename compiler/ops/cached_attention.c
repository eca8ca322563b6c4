/* Causal attention of rows, each one position of a sequence, to earlier ones (row `position` of op_attention), for
 * text generation. The call keeps keys and values of each sequence's earlier positions in caches, those of position p in
 * row p % context, and adds those of all rows to them before a row attends. With a window, a cache has room for the window
 * and for the rows of a call. A bias by distance and sinks are those of op_attention, between the values and the position. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

enum { QUERY, KEY, VALUE }; /* operands; the last ones are the position and the sequence */

static int position_operand(const Node *n) { return n->n_in - 2; }
static int sequence_operand(const Node *n) { return n->n_in - 1; }

/* The index of the bias, [heads, 1, distances], or of the sinks, [heads]; -1: none. */
static int operand_of_rank(const Graph *g, const Node *n, int rank) {
  for (int i = VALUE + 1; i < position_operand(n); i++)
    if (g->values.at[n->in[i]].shape.rank == rank)
      return i;
  return -1;
}
static int bias_operand(const Graph *g, const Node *n) { return operand_of_rank(g, n, 3); }
static int sinks_operand(const Graph *g, const Node *n) { return operand_of_rank(g, n, 1); }

static bool shape_cached_attention(ShapeRule *r) {
  const Shape *q = rule_shape(r, QUERY), *k = rule_shape(r, KEY), *v = rule_shape(r, VALUE);
  ensure(q->rank == 3 && k->rank == 3 && v->rank == 3 && q->dim[1] == 1 && k->dim[1] == 1);
  ensure(k->dim[0] == v->dim[0] && v->dim[1] == 1);
  ensure(q->dim[2] == k->dim[2] && q->dim[0] % k->dim[0] == 0 && q->batched && k->batched);
  rule_result(r, shape_with(*q, 2, v->dim[2]));
  for (r->n_out = 1; r->n_out < 3; r->n_out++) {
    const int64_t size = rule_shape(r, r->n_out)->dim[2];
    r->out[r->n_out].type = TYPE_F32;
    r->out[r->n_out].shape =
        (Shape){.rank = 4, .dim = {rule_int(r, "samples"), k->dim[0], rule_int(r, "context"), size}};
  }
  return rule_token(r, r->n_in - 2) && rule_token(r, r->n_in - 1);
}

/* Costs of a full context, the worst case that plans must allow for. */
static OpCost cost_cached_attention(const Graph *g, int node) {
  const Shape *q = in_shape(g, node, QUERY);
  double products = (double)q->dim[0] * (double)out_shape(g, node, 1)->dim[2];
  const double sizes = (double)(q->dim[2] + out_shape(g, node, 0)->dim[2]);
  return (
      OpCost){.matmul_flops = 2 * products * sizes, .other_flops = 14 * products, .bytes = node_bytes(g, node)};
}

/* The caches are out[1] and out[2], with the contents of earlier calls. */
static void evaluate_cached_attention(const Graph *g, int node, int64_t batch, const double *const *in,
                                      double *const *out) {
  const Shape *q = in_shape(g, node, QUERY), *cache = out_shape(g, node, 1);
  int64_t heads = q->dim[0], size = q->dim[2], kv_heads = cache->dim[1], context = cache->dim[2];
  int64_t value_size = out_shape(g, node, 0)->dim[2];
  const Node *n = &g->nodes.at[node];
  const double *position = in[position_operand(n)], *sequence = in[sequence_operand(n)];
  const int bias = bias_operand(g, n), sinks = sinks_operand(g, n);
  const int64_t distances = bias < 0 ? 0 : in_shape(g, node, bias)->dim[2];
  double scale = node_number(n, "scale"), softcap = node_number(n, "softcap"), *p = alloc(context * sizeof *p);
  int64_t samples = cache->dim[0], window = (int64_t)node_number(n, "window");
  for (int64_t row = 0; row < batch; row++)
    for (int64_t kv = 0; kv < kv_heads && sequence[row] < (double)samples; kv++) {
      int64_t of = (int64_t)sequence[row] * kv_heads + kv;
      int64_t to = of * context + (int64_t)position[row] % context;
      memcpy(out[1] + to * size, in[KEY] + (row * kv_heads + kv) * size, size * sizeof **out);
      memcpy(out[2] + to * value_size, in[VALUE] + (row * kv_heads + kv) * value_size, value_size * sizeof **out);
    }
  for (int64_t h = 0; h < batch * heads; h++) {
    int64_t row = h / heads, kv = (int64_t)sequence[row] * kv_heads + h % heads / (heads / kv_heads);
    int64_t end = (int64_t)position[row] + 1, first = window > 0 && end > window ? end - window : 0;
    if (sequence[row] >= (double)samples)
      continue;
    double *keys = out[1] + kv * context * size, *values = out[2] + kv * context * value_size;
    double top = sinks < 0 ? -INFINITY : in[sinks][h % heads], sum = 0;
    memset(out[0] + h * value_size, 0, value_size * sizeof **out);
    for (int64_t j = first; j < end; j++) {
      double score = 0;
      for (int64_t i = 0; i < size; i++)
        score += scale * in[QUERY][h * size + i] * keys[j % context * size + i];
      p[j - first] = softcap > 0 ? softcap * tanh(score / softcap) : score;
      p[j - first] += bias < 0 ? 0 : in[bias][h % heads * distances + distances / 2 + j - end + 1];
      top = fmax(top, p[j - first]);
    }
    for (int64_t j = first; j < end; j++)
      sum += exp(p[j - first] - top);
    sum += sinks < 0 ? 0 : exp(in[sinks][h % heads] - top);
    for (int64_t j = first; j < end; j++)
      for (int64_t i = 0; i < value_size; i++)
        out[0][h * value_size + i] += exp(p[j - first] - top) / sum * values[j % context * value_size + i];
  }
}

/* ---- as a call of pd_cached_attention ------------------------------------------------------------- */

/* Strides of samples and heads; elements of a head are contiguous. */
static void field_strides(Call *c, const char *name, const Place *p) {
  static const char *const members[] = {"batch", "head"};
  ensure(p->rank == 4 && (p->stride[3] == 1 || p->dim[3] == 1));
  field_struct(c, name, 2, members, (int64_t[]){p->stride[0], p->stride[1]});
}

static void call_cached_attention(const Site *site, Call *c) {
  const Place *q = &site->in[QUERY], *cache = &site->out[1], *bias = NULL, *sinks = NULL;
  for (int i = VALUE + 1; i < position_operand(site->node); i++)
    *(site->in[i].rank == 3 ? &bias : &sinks) = &site->in[i];
  c->function = c->object = "pd_cached_attention";
  field_int(c, "batch", q->dim[0]);
  field_int(c, "sequences", cache->dim[0]);
  field_int(c, "heads", q->dim[1]);
  field_int(c, "kv_heads", cache->dim[1]);
  field_int(c, "context", cache->dim[2]);
  field_int(c, "size", q->dim[3]);
  if (site->in[VALUE].dim[3] != q->dim[3])
    field_int(c, "value_size", site->in[VALUE].dim[3]);
  if (bias)
    field_int(c, "distances", bias->dim[2]);
  if (node_number(site->node, "window") > 0)
    field_int(c, "window", (int64_t)node_number(site->node, "window"));
  field_float(c, "scale", node_number(site->node, "scale"));
  if (node_number(site->node, "softcap") > 0)
    field_float(c, "softcap", node_number(site->node, "softcap"));
  field_strides(c, "q", q);
  field_strides(c, "k", &site->in[KEY]);
  field_strides(c, "v", &site->in[VALUE]);
  field_strides(c, "o", &site->out[0]);
  if (bias)
    field_int(c, "bias_head", bias->stride[0]);
  ensure(!sinks || sinks->stride[0] == 1 || sinks->dim[0] == 1);
  ensure(!bias || bias->stride[2] == 1 || bias->dim[2] == 1);
  if (bias || sinks)
    c->function = "pd_biased_cached_attention";
  pass_object(c);
  for (int i = 0; i <= VALUE; i++)
    pass_place(c, &site->in[i]);
  for (int i = 0; i < 2 && (bias || sinks); i++)
    if (i ? sinks : bias)
      pass_place(c, i ? sinks : bias);
    else
      pass_null(c);
  for (int i = position_operand(site->node); i < site->n_in; i++)
    pass_place(c, &site->in[i]);
  for (int i = 0; i < site->n_out; i++)
    pass_place(c, &site->out[i]);
}

/* q[heads, 1, size] and k, v[n, 1, size] at position[1] of sequence[1]: [heads, 1, size of v], and the caches of keys and
 * values, [samples, n, context, size] each. bias[heads, 1, distances] and sinks[heads] are optional. */
const Op op_cached_attention = {
    .name = "cached_attention",
    .signature = "cached_attention(q[heads, 1, size], k[n, 1, size], v, bias, sinks, position[1], sequence[1], "
                 "context, scale, softcap, window, samples)",
    .kind = OP_CALL,
    .strided_out = true,
    .internal = true,
    .first_kept = 1,
    .min_in = 5,
    .max_in = 7,
    .attr = {[CACHED_CONTEXT] = {"context", ATTR_INT, true, 0},
             [CACHED_SCALE] = {"scale", ATTR_NUMBER, true, 0},
             [CACHED_SOFTCAP] = {"softcap", ATTR_NUMBER, true, 0},
             [CACHED_WINDOW] = {"window", ATTR_INT, true, 0},
             [CACHED_SAMPLES] = {"samples", ATTR_INT, true, 0}},
    .shape = shape_cached_attention,
    .cost = cost_cached_attention,
    .evaluate = evaluate_cached_attention,
    .call = call_cached_attention,
    .stays_f32 = all_stays_f32,
};
