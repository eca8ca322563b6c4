/* Scaled dot-product attention: o = softmax(scale q k^T, masked) v, separately for each head. Groups of query
 * heads may share a head of keys and values. Scores are never stored: the second output, the log of each row's sum
 * of exponentials, suffices for the backward pass to recompute them (Dao et al., "FlashAttention", 2022). An
 * optional mask, [1 or length, keys], is the last operand of both passes. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_runtime.h"

typedef struct Sizes {
  int64_t heads, group, length, keys, size; /* group: query heads per key head */
  bool causal;
  double scale;
  const Shape *mask; /* NULL: no mask */
} Sizes;

/* Index of the mask among the operands: after the required ones. */
enum { FORWARD_MASK = 3, BACKWARD_MASK = 6 };

static Sizes attention_sizes(const Graph *g, int node) {
  const Shape *q = in_shape(g, node, 0), *k = in_shape(g, node, 1);
  const Node *n = &g->nodes.at[node];
  int mask = n->op->min_in;
  return (Sizes){q->dim[0],
                 q->dim[0] / k->dim[0],
                 q->dim[1],
                 k->dim[1],
                 q->dim[2],
                 node_int(n, "causal") != 0,
                 node_number(n, "scale"),
                 n->n_in > mask ? in_shape(g, node, mask) : NULL};
}

static bool attention_fails(ShapeRule *r, const char *why, int operand, int axis) {
  Diagnostic *d =
      error_at(r->span, "PD0308", "'scaled_dot_product_attention' %s, but has q %s, k %s and v %s", why,
               shape_text(rule_shape(r, 0)), shape_text(rule_shape(r, 1)), shape_text(rule_shape(r, 2)));
  rule_underline(r, d);
  rule_origin(r, d, operand, axis);
  return false;
}

static bool check_mask(ShapeRule *r) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1), *mask = rule_shape(r, FORWARD_MASK);
  bool rows = mask->rank == 2 && (mask->dim[0] == 1 || mask->dim[0] == q->dim[1]);
  if (rows && mask->dim[1] == k->dim[1] && (q->batched || !mask->batched))
    return true;
  const char *whose = q->batched ? "" : " that is no sample's";
  long long length = (long long)q->dim[1], keys = (long long)k->dim[1];
  Diagnostic *d = error_at(r->span, "PD0308",
                           "'scaled_dot_product_attention' of q %s and k %s needs a mask [1, %lld] or "
                           "[%lld, %lld]%s, but has %s",
                           shape_text(q), shape_text(k), keys, length, keys, whose, shape_text(mask));
  rule_underline(r, d);
  rule_origin(r, d, FORWARD_MASK, mask->rank - 1);
  if (mask->rank == 1 && mask->dim[0] == k->dim[1])
    help(d, "use 'unsqueeze(mask, 0)' for one mask for all queries");
  return false;
}

/* Fills in the default scale, 1 / sqrt(size). */
static bool shape_attention(ShapeRule *r) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1), *v = rule_shape(r, 2);
  if (!rule_all_f32(r))
    return false;
  if (q->rank != 3 || k->rank != 3 || v->rank != 3)
    return attention_fails(r, "needs [heads, length, size] per sample", 0, -1);
  if (q->batched != k->batched || q->batched != v->batched)
    return attention_fails(r, "needs three values per sample", 0, -1);
  if (!shape_equal(k, v))
    return attention_fails(r, "needs keys and values of the same shape", 2, 0);
  if (q->dim[2] != k->dim[2])
    return attention_fails(r, "needs queries and keys of the same size", 1, 2);
  if (q->dim[0] % k->dim[0])
    return attention_fails(r, "needs key heads that divide the query heads", 1, 0);
  bool causal = rule_int(r, "causal") != 0;
  if (causal && q->dim[1] != k->dim[1])
    return attention_fails(r, "with a causal mask needs the same number of keys and queries", 1, 1);
  if (r->n_in > FORWARD_MASK && !check_mask(r))
    return false;
  Attr *scale = rule_attr(r, "scale");
  if (scale->number == 0)
    scale->number = 1 / sqrt((double)q->dim[2]);
  rule_result(r, *q);
  r->out[1].type = TYPE_F32;
  r->out[1].shape = (Shape){.batched = q->batched, .rank = 2, .dim = {q->dim[0], q->dim[1]}};
  r->n_out = 2;
  return true;
}

static void derive_attention(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  if (grad_of(d, node, 0) < 0)
    return;
  const Node *n = &g->nodes.at[node];
  bool masked = n->n_in > FORWARD_MASK;
  int in[7] = {
      n->in[0], n->in[1], n->in[2], n->out[0], n->out[1], grad_of(d, node, 0), masked ? n->in[FORWARD_MASK] : -1};
  int dq = grad_build(d, node, &op_attention_gradient, in, masked ? 7 : 6, n->attr);
  int made = g->values.at[dq].node;
  for (int i = 0; i < 3; i++)
    if (grad_wanted(d, node, i))
      grad_add(d, node, i, graph_output(g, made, i));
}

/* Two products of length x keys x size per head; a causal mask counts half of each. */
static double attention_flops(const Graph *g, int node) {
  Sizes s = attention_sizes(g, node);
  return 4.0 * (double)s.heads * (double)s.length * (double)s.keys * (double)s.size * (s.causal ? 0.5 : 1);
}

static OpProducts attention_products(const Graph *g, int node, bool backward) {
  Sizes s = attention_sizes(g, node);
  return (OpProducts){.kind = PRODUCTS_OF_ATTENTION,
                      .samples = in_shape(g, node, 0)->batched ? SAMPLES_TIMES : SAMPLES_NOWHERE,
                      .times = (double)s.heads,
                      .m = (double)s.length,
                      .n = (double)s.keys,
                      .k = (double)s.size,
                      .causal = s.causal,
                      .backward = backward};
}

static OpCost cost_attention(const Graph *g, int node) {
  double flops = attention_flops(g, node), size = (double)in_shape(g, node, 0)->dim[2];
  return (OpCost){.matmul_flops = flops,
                  .other_flops = flops / (4 * size) * 14,
                  .bytes = node_bytes(g, node),
                  .products = attention_products(g, node, false)};
}

/* The sample's part of a mask. */
static const double *sample_mask(const Sizes *s, const double *mask, int64_t sample) {
  return s->mask && s->mask->batched ? mask + sample * shape_elements(s->mask) : mask;
}

/* Row r of one head of one sample: probabilities of its keys; returns the number of keys. */
static int64_t probabilities(const Sizes *s, const double *q, const double *k, const double *mask, int64_t row,
                             double *p, double *lse) {
  int64_t keys = s->causal ? row + 1 : s->keys;
  double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; j++) {
    double score = 0;
    for (int64_t i = 0; i < s->size; i++)
      score += q[row * s->size + i] * k[j * s->size + i];
    p[j] = score * s->scale;
    if (s->mask) {
      double added = mask[(s->mask->dim[0] > 1 ? row * s->keys : 0) + j];
      p[j] = added <= PD_ATTENTION_HIDDEN ? -INFINITY : p[j] + added;
    }
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j < keys && top > -INFINITY; j++)
    sum += exp(p[j] - top);
  *lse = sum > 0 ? top + log(sum) : INFINITY; /* a row without visible keys: probabilities of 0 */
  for (int64_t j = 0; j < keys; j++)
    p[j] = exp(p[j] - *lse);
  return keys;
}

static void evaluate_attention(const Graph *g, int node, int64_t batch, const double *const *in,
                               double *const *out) {
  Sizes s = attention_sizes(g, node);
  double *p = alloc(s.keys * sizeof *p);
  int64_t heads = s.heads * (in_shape(g, node, 0)->batched ? batch : 1);
  for (int64_t h = 0; h < heads; h++) {
    const double *q = in[0] + h * s.length * s.size;
    const double *k = in[1] + h / s.group * s.keys * s.size, *v = in[2] + h / s.group * s.keys * s.size;
    const double *mask = s.mask ? sample_mask(&s, in[FORWARD_MASK], h / s.heads) : NULL;
    for (int64_t row = 0; row < s.length; row++) {
      double *o = out[0] + (h * s.length + row) * s.size;
      int64_t keys = probabilities(&s, q, k, mask, row, p, &out[1][h * s.length + row]);
      memset(o, 0, s.size * sizeof *o);
      for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < s.size; i++)
          o[i] += p[j] * v[j * s.size + i];
    }
  }
}

/* ---- attention_gradient(q, k, v, o, lse, d_o, mask) -> dq, dk, dv ------------------------------- */

static bool shape_attention_gradient(ShapeRule *r) {
  ensure(shape_equal(rule_shape(r, 0), rule_shape(r, 3)) && shape_equal(rule_shape(r, 0), rule_shape(r, 5)));
  for (int i = 0; i < 3; i++) {
    r->out[i].type = TYPE_F32;
    r->out[i].shape = *rule_shape(r, i);
  }
  r->n_out = 3;
  return true;
}

/* Twice the forward; the model's operations exclude recomputed scores. */
static OpCost cost_attention_gradient(const Graph *g, int node) {
  double forward = attention_flops(g, node), size = (double)in_shape(g, node, 0)->dim[2];
  return (OpCost){.matmul_flops = 2 * forward,
                  .other_flops = forward / 2 + forward / (4 * size) * 18,
                  .bytes = node_bytes(g, node),
                  .products = attention_products(g, node, true)};
}

static void evaluate_attention_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                        double *const *out) {
  Sizes s = attention_sizes(g, node);
  double *p = alloc(s.keys * sizeof *p), lse;
  int64_t heads = s.heads * (in_shape(g, node, 0)->batched ? batch : 1);
  for (int i = 0; i < 3; i++)
    memset(out[i], 0, batch_elements(out_shape(g, node, i), batch) * sizeof *out[i]);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at_q = h * s.length * s.size, at_k = h / s.group * s.keys * s.size;
    const double *q = in[0] + at_q, *k = in[1] + at_k, *v = in[2] + at_k, *d_o = in[5] + at_q;
    const double *mask = s.mask ? sample_mask(&s, in[BACKWARD_MASK], h / s.heads) : NULL;
    double *dq = out[0] + at_q, *dk = out[1] + at_k, *dv = out[2] + at_k;
    for (int64_t row = 0; row < s.length; row++) {
      int64_t keys = probabilities(&s, q, k, mask, row, p, &lse);
      double dot = 0; /* d_o . o of the row */
      for (int64_t i = 0; i < s.size; i++)
        dot += d_o[row * s.size + i] * in[3][at_q + row * s.size + i];
      for (int64_t j = 0; j < keys; j++) {
        double dp = 0;
        for (int64_t i = 0; i < s.size; i++) {
          dp += d_o[row * s.size + i] * v[j * s.size + i];
          dv[j * s.size + i] += p[j] * d_o[row * s.size + i];
        }
        double d_score = p[j] * (dp - dot) * s.scale;
        for (int64_t i = 0; i < s.size; i++) {
          dq[row * s.size + i] += d_score * k[j * s.size + i];
          dk[j * s.size + i] += d_score * q[row * s.size + i];
        }
      }
    }
  }
}

/* ---- as calls of pd_attention_forward and pd_attention_backward ------------------------------------- */

/* NULL: no mask. */
static const Place *mask_place(const Site *site) {
  int mask = site->node->op->min_in;
  return site->n_in > mask ? &site->in[mask] : NULL;
}

/* Stride between rows of a mask; one row serves all queries. */
static int64_t mask_stride(const Place *mask) {
  int rows = mask->rank - 2;
  return mask->dim[rows] > 1 ? mask->stride[rows] : 0;
}

static struct pd_attention describe_attention(const Site *site) {
  const Place *q = &site->in[0], *k = &site->in[1], *mask = mask_place(site);
  int n = q->rank;
  return (struct pd_attention){
      .batch = n == 4 ? q->dim[0] : 1,
      .heads = q->dim[n - 3],
      .kv_heads = k->dim[n - 3],
      .length = q->dim[n - 2],
      .kv_length = k->dim[n - 2],
      .size = q->dim[n - 1],
      .causal = node_int(site->node, "causal") != 0,
      .masked = mask != NULL,
      .mask = {mask && mask->rank == 3 ? mask->stride[0] : 0, mask ? mask_stride(mask) : 0},
      .scale = (float)node_number(site->node, "scale"),
  };
}

/* Strides of samples, heads and rows; elements of a row are contiguous. */
static void field_strides(Call *c, const char *name, const Place *p) {
  static const char *const members[] = {"batch", "head", "row"};
  int n = p->rank;
  ensure(p->stride[n - 1] == 1 || p->dim[n - 1] == 1);
  field_struct(c, name, 3, members, (int64_t[]){n == 4 ? p->stride[0] : 0, p->stride[n - 3], p->stride[n - 2]});
}

static void attention_fields(const Site *site, Call *c) {
  struct pd_attention a = describe_attention(site);
  c->object = "pd_attention";
  field_int(c, "batch", a.batch);
  field_int(c, "heads", a.heads);
  field_int(c, "kv_heads", a.kv_heads);
  field_int(c, "length", a.length);
  field_int(c, "kv_length", a.kv_length);
  field_int(c, "size", a.size);
  field_bool(c, "causal", a.causal);
  field_float(c, "scale", (double)a.scale);
  field_strides(c, "q", &site->in[0]);
  field_strides(c, "k", &site->in[1]);
  field_strides(c, "v", &site->in[2]);
}

static void attention_arguments(const Site *site, Call *c) {
  struct pd_attention a = describe_attention(site);
  if (a.masked) {
    static const char *const members[] = {"batch", "row"};
    field_bool(c, "masked", true);
    field_struct(c, "mask", 2, members, (int64_t[]){a.mask.batch, a.mask.row});
  }
  pass_object(c);
  for (int i = 0; i < site->n_in; i++)
    pass_place(c, &site->in[i]);
  for (int i = 0; i < site->n_out; i++)
    pass_place(c, &site->out[i]);
  pass_scratch(c);
}

static void call_attention(const Site *site, Call *c) {
  c->function = mask_place(site) ? "pd_masked_attention_forward" : "pd_attention_forward";
  attention_fields(site, c);
  field_strides(c, "o", &site->out[0]);
  attention_arguments(site, c);
}

static void call_attention_gradient(const Site *site, Call *c) {
  c->function = mask_place(site) ? "pd_masked_attention_backward" : "pd_attention_backward";
  attention_fields(site, c);
  field_strides(c, "o", &site->in[3]);
  field_strides(c, "dq", &site->out[0]);
  field_strides(c, "dk", &site->out[1]);
  field_strides(c, "dv", &site->out[2]);
  field_strides(c, "d_o", &site->in[5]);
  attention_arguments(site, c);
}

static int64_t scratch_attention(const Site *site) {
  struct pd_attention a = describe_attention(site);
  return site->library->attention(&a, site->threads, site->workspaces);
}

static int64_t scratch_attention_gradient(const Site *site) {
  struct pd_attention a = describe_attention(site);
  return site->library->attention_backward(&a, site->threads, site->workspaces);
}

/* ---- one position ------------------------------------------------------------------------------- */

static bool is_causal(const Graph *g, int node) { return node_int(&g->nodes.at[node], "causal") != 0; }

static int decode_attention(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Node *n = &g->nodes.at[node];
  if (!is_causal(g, node) || n->n_in > FORWARD_MASK || axis[0] != 1 || axis[1] != 1 || axis[2] != 1)
    return -1;
  to->op = &op_cached_attention;
  to->attr[0].number = (double)context;
  to->attr[1].number = node_number(n, "scale");
  to->cached = true;
  return 1;
}

/* ---- the primitives ----------------------------------------------------------------------------- */

/* The mask and the softmax's denominator stay in f32. */
static bool softmax_stays_f32(const Node *n, bool result, int index) {
  (void)n;
  return index == (result ? 1 : 3);
}

static bool gradient_stays_f32(const Node *n, bool result, int index) {
  (void)n;
  return !result && (index == 4 || index == 6);
}

/* Heads are independent; heads that share keys and values stay together. */
static bool divide_attention(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Node *n = &g->nodes.at[node];
  if (k != 0 || split.axis != 0 || split.blocks != 1)
    return false;
  for (int i = 0; i < n->n_in + n->n_out; i++) /* all but the mask */
    if (i != n->op->min_in || n->n_in == n->op->min_in)
      layout[i] = split;
  return true;
}

/* softmax(q @ k.T * scale + mask) @ v for each head: q, k and v are [heads, length, size], the result has q's
 * shape. Groups of q's heads share the heads of k and v if these have fewer. The mask is optional: [1, keys] or
 * [length, keys], for all heads, without a gradient. Values of -10000 or less hide the key; a position without
 * visible keys gets zeros. causal: position i sees only positions 0 to i. scale 0 means 1 / sqrt(size). */
const Op op_attention = {
    .name = "scaled_dot_product_attention",
    .signature = "scaled_dot_product_attention(q[heads, length, size], k, v, mask, causal = false, scale = 0)",
    .kind = OP_CALL,
    .strided_out = true,
    .divide = divide_attention,
    .min_in = FORWARD_MASK,
    .max_in = FORWARD_MASK + 1,
    .no_gradient = 1u << FORWARD_MASK,
    .attr = {{"causal", ATTR_BOOL, false, 0}, {"scale", ATTR_NUMBER, false, 0}},
    .shape = shape_attention,
    .derivative = derive_attention,
    .cost = cost_attention,
    .evaluate = evaluate_attention,
    .call = call_attention,
    .scratch = scratch_attention,
    .decode = decode_attention,
    .causal = is_causal,
    .stays_f32 = softmax_stays_f32,
};

const Op op_attention_gradient = {
    .name = "attention_gradient",
    .signature = "attention_gradient(q, k, v, o, lse, d_o, mask, causal, scale)",
    .kind = OP_CALL,
    .strided_out = true,
    .internal = true,
    .divide = divide_attention,
    .min_in = BACKWARD_MASK,
    .max_in = BACKWARD_MASK + 1,
    .attr = {{"causal", ATTR_BOOL, true, 0}, {"scale", ATTR_NUMBER, true, 0}},
    .shape = shape_attention_gradient,
    .cost = cost_attention_gradient,
    .evaluate = evaluate_attention_gradient,
    .call = call_attention_gradient,
    .scratch = scratch_attention_gradient,
    .stays_f32 = gradient_stays_f32,
};
