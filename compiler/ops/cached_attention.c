/* Causal attention of rows, each one position of a sequence, to earlier ones (row `position` of op_attention), for
 * text generation. The call keeps keys and values of each sequence's earlier positions in caches, those of position p in
 * row p % context, and adds those of all rows to them before a row attends. With a window, a cache has room for the window
 * and for the rows of a call. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

enum { QUERY, KEY, VALUE, POSITION, SEQUENCE }; /* operands */

static bool shape_cached_attention(ShapeRule *r) {
  const Shape *q = rule_shape(r, QUERY), *k = rule_shape(r, KEY), *v = rule_shape(r, VALUE);
  ensure(q->rank == 3 && k->rank == 3 && shape_equal(k, v) && q->dim[1] == 1 && k->dim[1] == 1);
  ensure(q->dim[2] == k->dim[2] && q->dim[0] % k->dim[0] == 0 && q->batched && k->batched);
  rule_result(r, *q);
  const Shape cache = {.rank = 4, .dim = {rule_int(r, "samples"), k->dim[0], rule_int(r, "context"), k->dim[2]}};
  for (r->n_out = 1; r->n_out < 3; r->n_out++) {
    r->out[r->n_out].type = TYPE_F32;
    r->out[r->n_out].shape = cache;
  }
  return rule_token(r, POSITION) && rule_token(r, SEQUENCE);
}

/* Costs of a full context, the worst case that plans must allow for. */
static OpCost cost_cached_attention(const Graph *g, int node) {
  const Shape *q = in_shape(g, node, QUERY);
  double products = (double)q->dim[0] * (double)out_shape(g, node, 1)->dim[2];
  return (OpCost){.matmul_flops = 4 * products * (double)q->dim[2],
                  .other_flops = 14 * products,
                  .bytes = node_bytes(g, node)};
}

/* The caches are out[1] and out[2], with the contents of earlier calls. */
static void evaluate_cached_attention(const Graph *g, int node, int64_t batch, const double *const *in,
                                      double *const *out) {
  const Shape *q = in_shape(g, node, QUERY), *cache = out_shape(g, node, 1);
  int64_t heads = q->dim[0], size = q->dim[2], kv_heads = cache->dim[1], context = cache->dim[2];
  const Node *n = &g->nodes.at[node];
  double scale = node_number(n, "scale"), softcap = node_number(n, "softcap"), *p = alloc(context * sizeof *p);
  int64_t samples = cache->dim[0], window = (int64_t)node_number(n, "window");
  for (int64_t row = 0; row < batch; row++)
    for (int64_t kv = 0; kv < kv_heads && in[SEQUENCE][row] < (double)samples; kv++) {
      int64_t of = (int64_t)in[SEQUENCE][row] * kv_heads + kv;
      int64_t to = (of * context + (int64_t)in[POSITION][row] % context) * size;
      memcpy(out[1] + to, in[KEY] + (row * kv_heads + kv) * size, size * sizeof **out);
      memcpy(out[2] + to, in[VALUE] + (row * kv_heads + kv) * size, size * sizeof **out);
    }
  for (int64_t h = 0; h < batch * heads; h++) {
    int64_t row = h / heads, kv = (int64_t)in[SEQUENCE][row] * kv_heads + h % heads / (heads / kv_heads);
    int64_t end = (int64_t)in[POSITION][row] + 1, first = window > 0 && end > window ? end - window : 0;
    if (in[SEQUENCE][row] >= (double)samples)
      continue;
    double *keys = out[1] + kv * context * size, *values = out[2] + kv * context * size, top = -INFINITY, sum = 0;
    memset(out[0] + h * size, 0, size * sizeof **out);
    for (int64_t j = first; j < end; j++) {
      double score = 0;
      for (int64_t i = 0; i < size; i++)
        score += scale * in[QUERY][h * size + i] * keys[j % context * size + i];
      p[j - first] = softcap > 0 ? softcap * tanh(score / softcap) : score;
      top = fmax(top, p[j - first]);
    }
    for (int64_t j = first; j < end; j++)
      sum += exp(p[j - first] - top);
    for (int64_t j = first; j < end; j++)
      for (int64_t i = 0; i < size; i++)
        out[0][h * size + i] += exp(p[j - first] - top) / sum * values[j % context * size + i];
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
  const Place *q = &site->in[QUERY], *cache = &site->out[1];
  c->function = c->object = "pd_cached_attention";
  field_int(c, "batch", q->dim[0]);
  field_int(c, "sequences", cache->dim[0]);
  field_int(c, "heads", q->dim[1]);
  field_int(c, "kv_heads", cache->dim[1]);
  field_int(c, "context", cache->dim[2]);
  field_int(c, "size", q->dim[3]);
  if (node_number(site->node, "window") > 0)
    field_int(c, "window", (int64_t)node_number(site->node, "window"));
  field_float(c, "scale", node_number(site->node, "scale"));
  if (node_number(site->node, "softcap") > 0)
    field_float(c, "softcap", node_number(site->node, "softcap"));
  field_strides(c, "q", q);
  field_strides(c, "k", &site->in[KEY]);
  field_strides(c, "v", &site->in[VALUE]);
  field_strides(c, "o", &site->out[0]);
  pass_object(c);
  for (int i = 0; i < site->n_in; i++)
    pass_place(c, &site->in[i]);
  for (int i = 0; i < site->n_out; i++)
    pass_place(c, &site->out[i]);
}

/* q[heads, 1, size] and k, v[n, 1, size] at position[1] of sequence[1]: [heads, 1, size], and the caches of keys and
 * values, [samples, n, context, size] each. */
const Op op_cached_attention = {
    .name = "cached_attention",
    .signature = "cached_attention(q[heads, 1, size], k[n, 1, size], v, position[1], sequence[1], context, scale, "
                 "softcap, window, samples)",
    .kind = OP_CALL,
    .strided_out = true,
    .internal = true,
    .first_kept = 1,
    .min_in = 5,
    .max_in = 5,
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
