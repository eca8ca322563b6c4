/* Causal attention of one position of each sequence to earlier ones (row `position` of op_attention), for text
 * generation. The call keeps keys and values of the last `context` positions, those of position p in row p % context of
 * caches. With a window, `context` is the window. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_runtime.h"

enum { QUERY, KEY, VALUE, POSITION }; /* operands */

static bool shape_cached_attention(ShapeRule *r) {
  const Shape *q = rule_shape(r, QUERY), *k = rule_shape(r, KEY), *v = rule_shape(r, VALUE);
  ensure(q->rank == 3 && k->rank == 3 && shape_equal(k, v) && q->dim[1] == 1 && k->dim[1] == 1);
  ensure(q->dim[2] == k->dim[2] && q->dim[0] % k->dim[0] == 0 && q->batched && k->batched);
  rule_result(r, *q);
  for (r->n_out = 1; r->n_out < 3; r->n_out++) {
    r->out[r->n_out].type = TYPE_F32;
    r->out[r->n_out].shape = shape_with(*k, 1, rule_int(r, "context"));
  }
  return rule_token(r, POSITION);
}

/* Costs of a full context, the worst case that plans must allow for. */
static OpCost cost_cached_attention(const Graph *g, int node) {
  const Shape *q = in_shape(g, node, QUERY);
  double products = (double)q->dim[0] * (double)out_shape(g, node, 1)->dim[1];
  return (OpCost){.matmul_flops = 4 * products * (double)q->dim[2],
                  .other_flops = 14 * products,
                  .bytes = node_bytes(g, node)};
}

/* The caches are out[1] and out[2], with the contents of earlier calls. */
static void evaluate_cached_attention(const Graph *g, int node, int64_t batch, const double *const *in,
                                      double *const *out) {
  const Shape *q = in_shape(g, node, QUERY), *cache = out_shape(g, node, 1);
  int64_t heads = q->dim[0], size = q->dim[2], context = cache->dim[1], group = heads / cache->dim[0];
  double scale = node_number(&g->nodes.at[node], "scale"), *p = alloc(context * sizeof *p);
  double softcap = node_number(&g->nodes.at[node], "softcap");
  for (int64_t h = 0; h < batch * heads; h++) {
    int64_t kv = h / group, position = (int64_t)in[POSITION][h / heads], at = position % context;
    int64_t rows = position < context ? position + 1 : context;
    double *keys = out[1] + kv * context * size, *values = out[2] + kv * context * size, top = -INFINITY, sum = 0;
    memcpy(keys + at * size, in[KEY] + kv * size, size * sizeof *keys);
    memcpy(values + at * size, in[VALUE] + kv * size, size * sizeof *values);
    memset(out[0] + h * size, 0, size * sizeof **out);
    for (int64_t j = 0; j < rows; j++) {
      p[j] = 0;
      for (int64_t i = 0; i < size; i++)
        p[j] += scale * in[QUERY][h * size + i] * keys[j * size + i];
      p[j] = softcap > 0 ? softcap * tanh(p[j] / softcap) : p[j];
      top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < rows; j++)
      sum += exp(p[j] - top);
    for (int64_t j = 0; j < rows; j++)
      for (int64_t i = 0; i < size; i++)
        out[0][h * size + i] += exp(p[j] - top) / sum * values[j * size + i];
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
  field_int(c, "heads", q->dim[1]);
  field_int(c, "kv_heads", cache->dim[1]);
  field_int(c, "context", cache->dim[2]);
  field_int(c, "size", q->dim[3]);
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

/* q[heads, 1, size] and k, v[n, 1, size] at position[1]: [heads, 1, size], and the caches of keys and values,
 * [n, context, size] each. */
const Op op_cached_attention = {
    .name = "cached_attention",
    .signature = "cached_attention(q[heads, 1, size], k[n, 1, size], v, position[1], context, scale, softcap)",
    .kind = OP_CALL,
    .strided_out = true,
    .internal = true,
    .first_kept = 1,
    .min_in = 4,
    .max_in = 4,
    .attr = {{"context", ATTR_INT, true, 0}, {"scale", ATTR_NUMBER, true, 0}, {"softcap", ATTR_NUMBER, true, 0}},
    .shape = shape_cached_attention,
    .cost = cost_cached_attention,
    .evaluate = evaluate_cached_attention,
    .call = call_cached_attention,
    .stays_f32 = all_stays_f32,
};
