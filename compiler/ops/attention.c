/* Scaled dot-product attention: o = softmax(scale q k^T, masked) v, separately for each head. Groups of query
 * heads may share a head of keys and values. Scores are never stored: the second output, the log of each row's sum
 * of exponentials, suffices for the backward pass to recompute them (Dao et al., "FlashAttention", 2022). The last
 * operands of both passes are optional, in this order: a mask, [1 or length, keys], documents, tokens [length], a bias,
 * [heads, length, keys] or by distance [heads, 1, length + keys - 1], and sinks, [heads]. */
#include <math.h>
#include <string.h>

#include "ops/attention.h"
#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

typedef struct Sizes {
  int64_t heads, group, length, keys, size; /* group: query heads per key head */
  int64_t value_size;
  bool causal;
  int64_t window; /* 0: none */
  double scale, softcap;
  const Shape *mask, *documents, *bias, *sinks; /* NULL: none */
} Sizes;

/* The index of the operand; -1: the node lacks it. */
static int optional_operand(const Node *n, Optional wanted) {
  const int64_t given = node_int(n, "$optional");
  int i = n->op->min_in;
  for (int kind = 0; kind < (int)wanted; kind++)
    i += given >> kind & 1;
  return given >> wanted & 1 ? i : -1;
}

/* The index among the signature's operands. */
static int signature_operand(const Node *n, int i) {
  for (int kind = 0; i >= n->op->min_in && kind < (int)N_OPTIONAL; kind++)
    if (optional_operand(n, kind) == i)
      return n->op->min_in + kind;
  return i;
}

static const Shape *optional_shape(const Graph *g, int node, Optional wanted) {
  int i = optional_operand(&g->nodes.at[node], wanted);
  return i < 0 ? NULL : in_shape(g, node, i);
}

static Sizes attention_sizes(const Graph *g, int node) {
  const Shape *q = in_shape(g, node, 0), *k = in_shape(g, node, 1);
  const Node *n = &g->nodes.at[node];
  return (Sizes){.heads = q->dim[0],
                 .group = q->dim[0] / k->dim[0],
                 .length = q->dim[1],
                 .keys = k->dim[1],
                 .size = q->dim[2],
                 .value_size = in_shape(g, node, 2)->dim[2],
                 .causal = node_int(n, "causal") != 0,
                 .window = node_int(n, "window"),
                 .scale = node_number(n, "scale"),
                 .softcap = node_number(n, "softcap"),
                 .mask = optional_shape(g, node, MASK),
                 .documents = optional_shape(g, node, DOCUMENTS),
                 .bias = optional_shape(g, node, BIAS),
                 .sinks = optional_shape(g, node, SINKS)};
}

/* A window that hides no key becomes 0. */
static bool check_window(ShapeRule *r) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1);
  Attr *window = rule_attr(r, "window");
  if (window->number < 0 || rule_attr(r, "softcap")->number < 0) {
    const char *which = window->number < 0 ? "window" : "softcap";
    Diagnostic *d =
        error_at(r->span, "PD0308", "'%s' of 'scaled_dot_product_attention' is %g, but must be 0 or more", which,
                 rule_attr(r, which)->number);
    help(d, "0 means that there is none");
    return false;
  }
  if (window->number > 0 && q->dim[1] != k->dim[1])
    return attention_fails(r, "with a window needs the same number of keys and queries", 1, 1);
  if (window->number >= (double)q->dim[1])
    window->number = 0;
  return true;
}

/* Fills in the default scale, 1 / sqrt(size). */
static bool shape_attention(ShapeRule *r) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1), *v = rule_shape(r, 2);
  for (int i = 0; i < 3; i++)
    if (!rule_f32(r, i))
      return false;
  if (q->rank != 3 || k->rank != 3 || v->rank != 3)
    return attention_fails(r, "needs [heads, length, size] per sample", 0, -1);
  if (q->batched != k->batched || q->batched != v->batched)
    return attention_fails(r, "needs three values per sample", 0, -1);
  if (k->dim[0] != v->dim[0] || k->dim[1] != v->dim[1])
    return attention_fails(r, "needs keys and values of the same heads and length", 2,
                           k->dim[0] != v->dim[0] ? 0 : 1);
  if (q->dim[2] != k->dim[2])
    return attention_fails(r, "needs queries and keys of the same size", 1, 2);
  if (q->dim[0] % k->dim[0])
    return attention_fails(r, "needs key heads that divide the query heads", 1, 0);
  bool causal = rule_int(r, "causal") != 0;
  if (causal && q->dim[1] != k->dim[1])
    return attention_fails(r, "with a causal mask needs the same number of keys and queries", 1, 1);
  if (!check_window(r) || !attention_check_optional(r))
    return false;
  Attr *scale = rule_attr(r, "scale");
  if (scale->number == 0)
    scale->number = 1 / sqrt((double)q->dim[2]);
  rule_result(r, shape_with(*q, 2, v->dim[2]));
  r->out[1].type = TYPE_F32;
  r->out[1].shape = (Shape){.batched = q->batched, .rank = 2, .dim = {q->dim[0], q->dim[1]}};
  r->n_out = 2;
  return true;
}

/* Indices into op_attention's and op_attention_gradient's attributes. */
enum { OPTIONAL = 4, NAMES = 5, WANTED = 5 };

/* The index of the gradient's output; -1: not wanted. */
static int gradient_output(const Node *n, Optional of) {
  const int64_t wanted = node_int(n, "$wanted");
  return wanted >> of & 1 ? 3 + (of == SINKS && wanted >> BIAS & 1) : -1;
}

static void derive_attention(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  if (grad_of(d, node, 0) < 0)
    return;
  const Node *n = &g->nodes.at[node];
  const int required = op_attention_gradient.min_in, optional = n->n_in - n->op->min_in;
  int in[6 + N_OPTIONAL] = {n->in[0], n->in[1], n->in[2], n->out[0], n->out[1], grad_of(d, node, 0)};
  for (int i = 0; i < optional; i++)
    in[required + i] = n->in[n->op->min_in + i];
  Attr attr[MAX_ATTR];
  memcpy(attr, n->attr, sizeof attr);
  attr[WANTED].number = 0;
  for (Optional kind = BIAS; kind <= SINKS; kind++)
    if (optional_operand(n, kind) >= 0 && grad_wanted(d, node, optional_operand(n, kind)))
      attr[WANTED].number += 1 << kind;
  const int dq = grad_build(d, node, &op_attention_gradient, in, required + optional, attr);
  const int made = g->values.at[dq].node;
  for (int i = 0; i < 3; i++)
    if (grad_wanted(d, node, i))
      grad_add(d, node, i, graph_output(g, made, i));
  for (Optional kind = BIAS; kind <= SINKS; kind++)
    if (gradient_output(&g->nodes.at[made], kind) >= 0)
      grad_add(d, node, optional_operand(&g->nodes.at[node], kind),
               graph_output(g, made, gradient_output(&g->nodes.at[made], kind)));
}

/* Pairs of a query and a key that it sees; a causal mask leaves half. Documents are not known, and may be one. */
static double visible_pairs(const Sizes *s) {
  const double length = (double)s->length, window = (double)s->window;
  const double all = window > 0 ? window * (2 * length - window) : length * (double)s->keys;
  return s->causal ? all / 2 : all;
}

/* Two products for each pair, of the sizes of keys and of values. */
static double attention_flops(const Graph *g, int node) {
  Sizes s = attention_sizes(g, node);
  return 2.0 * (double)s.heads * visible_pairs(&s) * (double)(s.size + s.value_size);
}

static OpProducts attention_products(const Graph *g, int node, bool backward) {
  Sizes s = attention_sizes(g, node);
  return (OpProducts){.kind = PRODUCTS_OF_ATTENTION,
                      .samples = in_shape(g, node, 0)->batched ? SAMPLES_TIMES : SAMPLES_NOWHERE,
                      .times = (double)s.heads,
                      .m = (double)s.length,
                      .n = (double)s.keys,
                      .k = (double)(s.size + s.value_size) / 2,
                      .causal = s.causal,
                      .backward = backward};
}

static double attention_scores(const Graph *g, int node) {
  Sizes s = attention_sizes(g, node);
  return (double)s.heads * visible_pairs(&s);
}

/* Operations for a score: the softmax, the cap and the bias. */
static double score_flops(const Graph *g, int node, double softmax) {
  const Node *n = &g->nodes.at[node];
  return softmax + (node_number(n, "softcap") > 0 ? 20 : 0) + (optional_operand(n, BIAS) < 0 ? 0 : 2);
}

static OpCost cost_attention(const Graph *g, int node) {
  double flops = attention_flops(g, node);
  return (OpCost){.matmul_flops = flops,
                  .other_flops = attention_scores(g, node) * score_flops(g, node, 14),
                  .bytes = node_bytes(g, node),
                  .products = attention_products(g, node, false)};
}

/* The optional operands of a sample's head; NULL: none. */
typedef struct Seen {
  const Sizes *s;
  const double *mask, *documents, *bias, *sink;
} Seen;

static const double *sample_part(const Shape *shape, const double *x, int64_t sample) {
  return shape && shape->batched ? x + sample * shape_elements(shape) : x;
}

/* head: counted over the heads of all samples */
static Seen seen_by(const Graph *g, int node, const Sizes *s, const double *const *in, int64_t head) {
  const Node *n = &g->nodes.at[node];
  const int64_t sample = head / s->heads, own = head % s->heads;
  const int mask = optional_operand(n, MASK), documents = optional_operand(n, DOCUMENTS),
            bias = optional_operand(n, BIAS), sinks = optional_operand(n, SINKS);
  return (Seen){s, mask < 0 ? NULL : sample_part(s->mask, in[mask], sample),
                documents < 0 ? NULL : sample_part(s->documents, in[documents], sample),
                bias < 0 ? NULL : sample_part(s->bias, in[bias], sample) + own * s->bias->dim[1] * s->bias->dim[2],
                sinks < 0 ? NULL : sample_part(s->sinks, in[sinks], sample) + own};
}

/* The index of a score's number in the head's bias. */
static int64_t bias_at(const Sizes *s, int64_t row, int64_t key) {
  return s->bias->dim[1] == s->length && s->bias->dim[2] == s->keys ? row * s->keys + key
                                                                    : key - row + s->length - 1;
}

/* Whether a row's position and a key's are in one run of equal numbers. */
static bool shares_document(const double *number, int64_t row, int64_t key) {
  for (int64_t i = key < row ? key : row; number && i < (key < row ? row : key); i++)
    if (number[i] != number[i + 1])
      return false;
  return true;
}

static bool sees(const Seen *seen, int64_t row, int64_t key) {
  const Sizes *s = seen->s;
  const bool near = s->window == 0 || (row - key < s->window && key - row < s->window);
  return near && !(s->causal && key > row) && shares_document(seen->documents, row, key);
}

/* Row r of one head of one sample: probabilities p of its keys, 0 where it sees none, and, unless NULL, the slopes of
 * scores by scaled products. */
static void probabilities(const Seen *seen, const double *q, const double *k, int64_t row, double *p,
                          double *slope, double *lse) {
  const Sizes *s = seen->s;
  double top = seen->sink ? *seen->sink : -INFINITY, sum = 0;
  for (int64_t j = 0; j < s->keys; j++) {
    double score = 0, added = seen->mask ? seen->mask[(s->mask->dim[0] > 1 ? row * s->keys : 0) + j] : 0;
    for (int64_t i = 0; i < s->size; i++)
      score += s->scale * q[row * s->size + i] * k[j * s->size + i];
    const double t = s->softcap > 0 ? tanh(score / s->softcap) : 0;
    if (slope)
      slope[j] = 1 - t * t;
    score = s->softcap > 0 ? s->softcap * t : score;
    score += seen->bias ? seen->bias[bias_at(s, row, j)] : 0;
    p[j] = sees(seen, row, j) && added > PD_ATTENTION_HIDDEN ? score + added : -INFINITY;
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j < s->keys && top > -INFINITY; j++)
    sum += exp(p[j] - top);
  sum += seen->sink ? exp(*seen->sink - top) : 0;
  *lse = sum > 0 ? top + log(sum) : INFINITY; /* a row without visible keys: probabilities of 0 */
  for (int64_t j = 0; j < s->keys; j++)
    p[j] = exp(p[j] - *lse);
}

static void evaluate_attention(const Graph *g, int node, int64_t batch, const double *const *in,
                               double *const *out) {
  Sizes s = attention_sizes(g, node);
  double *p = alloc(s.keys * sizeof *p);
  int64_t heads = s.heads * (in_shape(g, node, 0)->batched ? batch : 1);
  for (int64_t h = 0; h < heads; h++) {
    const double *q = in[0] + h * s.length * s.size;
    const double *k = in[1] + h / s.group * s.keys * s.size, *v = in[2] + h / s.group * s.keys * s.value_size;
    const Seen seen = seen_by(g, node, &s, in, h);
    for (int64_t row = 0; row < s.length; row++) {
      double *o = out[0] + (h * s.length + row) * s.value_size;
      probabilities(&seen, q, k, row, p, NULL, &out[1][h * s.length + row]);
      memset(o, 0, s.value_size * sizeof *o);
      for (int64_t j = 0; j < s.keys; j++)
        for (int64_t i = 0; i < s.value_size; i++)
          o[i] += p[j] * v[j * s.value_size + i];
    }
  }
}

/* ---- attention_gradient(q, k, v, o, lse, d_o, optional operands) -> dq, dk, dv, d_bias, d_sinks ------------- */

static bool shape_attention_gradient(ShapeRule *r) {
  ensure(shape_equal(rule_shape(r, 3), rule_shape(r, 5)));
  const int64_t wanted = rule_int(r, "$wanted"), given = rule_int(r, "$optional");
  r->n_out = 0;
  for (int i = 0; i < 3; i++)
    r->out[r->n_out++].shape = *rule_shape(r, i);
  for (int i = r->op->min_in, kind = 0; kind < (int)N_OPTIONAL; i += given >> kind & 1, kind++)
    if (wanted >> kind & 1)
      r->out[r->n_out++].shape = *rule_shape(r, i);
  for (int i = 0; i < r->n_out; i++)
    r->out[i].type = TYPE_F32;
  return true;
}

/* Twice the forward; the model's operations exclude recomputed scores. */
static OpCost cost_attention_gradient(const Graph *g, int node) {
  double forward = attention_flops(g, node);
  return (OpCost){.matmul_flops = 2 * forward,
                  .other_flops = forward / 2 + attention_scores(g, node) * score_flops(g, node, 18),
                  .bytes = node_bytes(g, node),
                  .products = attention_products(g, node, true)};
}

static void evaluate_attention_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                        double *const *out) {
  Sizes s = attention_sizes(g, node);
  double *p = alloc(s.keys * sizeof *p), *slope = alloc(s.keys * sizeof *slope), lse;
  int64_t heads = s.heads * (in_shape(g, node, 0)->batched ? batch : 1);
  const Node *n = &g->nodes.at[node];
  const int d_bias = gradient_output(n, BIAS), d_sinks = gradient_output(n, SINKS);
  for (int i = 0; i < n->n_out; i++)
    memset(out[i], 0, batch_elements(out_shape(g, node, i), batch) * sizeof *out[i]);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at_q = h * s.length * s.size, at_k = h / s.group * s.keys * s.size;
    int64_t at_o = h * s.length * s.value_size, at_v = h / s.group * s.keys * s.value_size;
    const double *q = in[0] + at_q, *k = in[1] + at_k, *v = in[2] + at_v, *d_o = in[5] + at_o, *o = in[3] + at_o;
    const Seen seen = seen_by(g, node, &s, in, h);
    const double *bias = d_bias < 0 ? NULL : in[optional_operand(n, BIAS)],
                 *sinks = d_sinks < 0 ? NULL : in[optional_operand(n, SINKS)];
    double *dq = out[0] + at_q, *dk = out[1] + at_k, *dv = out[2] + at_v;
    for (int64_t row = 0; row < s.length; row++) {
      probabilities(&seen, q, k, row, p, slope, &lse);
      double dot = 0; /* d_o . o of the row */
      for (int64_t i = 0; i < s.value_size; i++)
        dot += d_o[row * s.value_size + i] * o[row * s.value_size + i];
      if (sinks)
        out[d_sinks][seen.sink - sinks] -= exp(*seen.sink - lse) * dot;
      for (int64_t j = 0; j < s.keys; j++) {
        double dp = 0;
        for (int64_t i = 0; i < s.value_size; i++) {
          dp += d_o[row * s.value_size + i] * v[j * s.value_size + i];
          dv[j * s.value_size + i] += p[j] * d_o[row * s.value_size + i];
        }
        if (bias)
          out[d_bias][seen.bias - bias + bias_at(&s, row, j)] += p[j] * (dp - dot);
        double d_score = p[j] * (dp - dot) * slope[j] * s.scale;
        for (int64_t i = 0; i < s.size; i++) {
          dq[row * s.size + i] += d_score * k[j * s.size + i];
          dk[j * s.size + i] += d_score * q[row * s.size + i];
        }
      }
    }
  }
}

/* ---- as calls of pd_attention_forward and pd_attention_backward ------------------------------------- */

/* NULL: the node lacks the operand. */
static const Place *optional_place(const Site *site, Optional wanted) {
  const int i = optional_operand(site->node, wanted);
  return i < 0 ? NULL : &site->in[i];
}

/* Stride between rows of a mask; one row serves all queries. */
static int64_t mask_stride(const Place *mask) {
  int rows = mask->rank - 2;
  return mask->dim[rows] > 1 ? mask->stride[rows] : 0;
}

static struct pd_attention describe_attention(const Site *site) {
  const Place *q = &site->in[0], *k = &site->in[1], *v = &site->in[2], *mask = optional_place(site, MASK),
              *documents = optional_place(site, DOCUMENTS), *bias = optional_place(site, BIAS);
  const bool gradient = site->node->op == &op_attention_gradient;
  int n = q->rank;
  return (struct pd_attention){
      .batch = n == 4 ? q->dim[0] : 1,
      .heads = q->dim[n - 3],
      .kv_heads = k->dim[n - 3],
      .length = q->dim[n - 2],
      .kv_length = k->dim[n - 2],
      .size = q->dim[n - 1],
      .value_size = v->dim[n - 1] == q->dim[n - 1] ? 0 : v->dim[n - 1],
      .causal = node_int(site->node, "causal") != 0,
      .masked = mask != NULL,
      .parted = documents != NULL,
      .biased = bias != NULL,
      .by_distance = bias && bias->dim[bias->rank - 2] != q->dim[n - 2],
      .bias_gradient = gradient && gradient_output(site->node, BIAS) >= 0,
      .has_sinks = optional_place(site, SINKS) != NULL,
      .window = node_int(site->node, "window"),
      .scale = (float)node_number(site->node, "scale"),
      .softcap = (float)node_number(site->node, "softcap"),
      .mask = {mask && mask->rank == 3 ? mask->stride[0] : 0, mask ? mask_stride(mask) : 0},
      .documents = {documents && documents->rank == 2 ? documents->stride[0] : 0},
  };
}

/* Strides of samples, heads and rows; elements of a row are contiguous. NULL: nothing. */
static void field_strides(Call *c, const char *name, const Place *p) {
  static const char *const members[] = {"batch", "head", "row"};
  if (!p)
    return;
  int n = p->rank;
  ensure(p->stride[n - 1] == 1 || p->dim[n - 1] == 1);
  field_struct(c, name, 3, members, (int64_t[]){n == 4 ? p->stride[0] : 0, p->stride[n - 3], p->stride[n - 2]});
}

/* The same of a number for each head. */
static void field_sinks(Call *c, const char *name, const Place *p) {
  static const char *const members[] = {"batch"};
  if (!p)
    return;
  ensure(p->stride[p->rank - 1] == 1 || p->dim[p->rank - 1] == 1);
  field_struct(c, name, 1, members, (int64_t[]){p->rank == 2 ? p->stride[0] : 0});
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
  if (a.value_size)
    field_int(c, "value_size", a.value_size);
  field_bool(c, "causal", a.causal);
  if (a.masked)
    field_bool(c, "masked", true);
  if (a.parted)
    field_bool(c, "parted", true);
  if (a.biased)
    field_bool(c, "biased", true);
  if (a.by_distance)
    field_bool(c, "by_distance", true);
  if (a.bias_gradient)
    field_bool(c, "bias_gradient", true);
  if (a.has_sinks)
    field_bool(c, "has_sinks", true);
  if (a.window)
    field_int(c, "window", a.window);
  field_float(c, "scale", (double)a.scale);
  if (a.softcap > 0)
    field_float(c, "softcap", (double)a.softcap);
  field_strides(c, "q", &site->in[0]);
  field_strides(c, "k", &site->in[1]);
  field_strides(c, "v", &site->in[2]);
}

static const Place *gradient_place(const Site *site, Optional of) {
  const int i = site->node->op == &op_attention_gradient ? gradient_output(site->node, of) : -1;
  return i < 0 ? NULL : &site->out[i];
}

static void pass_optional(Call *c, const Place *place) {
  if (place)
    pass_place(c, place);
  else
    pass_null(c);
}

/* The function of the fewest arguments. */
static const char *function_of(const Site *site, const char *plain, const char *masked, const char *biased) {
  if (optional_place(site, BIAS) || optional_place(site, SINKS))
    return biased;
  return optional_place(site, MASK) || optional_place(site, DOCUMENTS) ? masked : plain;
}

static void attention_arguments(const Site *site, Call *c) {
  static const char *const mask[] = {"batch", "row"}, *const documents[] = {"batch"};
  struct pd_attention a = describe_attention(site);
  if (a.masked)
    field_struct(c, "mask", 2, mask, (int64_t[]){a.mask.batch, a.mask.row});
  if (a.parted)
    field_struct(c, "documents", 1, documents, (int64_t[]){a.documents.batch});
  field_strides(c, "bias", optional_place(site, BIAS));
  field_strides(c, "d_bias", gradient_place(site, BIAS));
  field_sinks(c, "sinks", optional_place(site, SINKS));
  field_sinks(c, "d_sinks", gradient_place(site, SINKS));
  const bool biased = a.biased || a.has_sinks, gradient = site->node->op == &op_attention_gradient;
  const Optional last = biased ? N_OPTIONAL : a.masked || a.parted ? BIAS : MASK;
  pass_object(c);
  for (int i = 0; i < site->node->op->min_in; i++)
    pass_place(c, &site->in[i]);
  for (Optional kind = 0; kind < last; kind++)
    pass_optional(c, optional_place(site, kind));
  for (int i = 0; i < (gradient ? 3 : 2); i++)
    pass_place(c, &site->out[i]);
  for (Optional kind = BIAS; biased && gradient && kind <= SINKS; kind++)
    pass_optional(c, gradient_place(site, kind));
  pass_scratch(c);
}

static void call_attention(const Site *site, Call *c) {
  c->function =
      function_of(site, "pd_attention_forward", "pd_masked_attention_forward", "pd_biased_attention_forward");
  attention_fields(site, c);
  field_strides(c, "o", &site->out[0]);
  attention_arguments(site, c);
}

static void call_attention_gradient(const Site *site, Call *c) {
  c->function =
      function_of(site, "pd_attention_backward", "pd_masked_attention_backward", "pd_biased_attention_backward");
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

/* To keys without positions, such as an encoder's: every query sees the same ones. */
static bool is_cross_attention(const Graph *g, int node, const Sizes *s, const int *axis) {
  const Node *n = &g->nodes.at[node];
  const bool one_row = !s->mask || (s->mask->dim[0] == 1 && axis[optional_operand(n, MASK)] < 0);
  return !is_causal(g, node) && axis[0] == 1 && axis[1] < 0 && axis[2] < 0 && node_int(n, "window") == 0 &&
         !s->documents && !s->bias && one_row;
}

/* A bias by distance and sinks stay as they are: neither depends on the position. */
static int decode_attention(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Node *n = &g->nodes.at[node];
  const Sizes s = attention_sizes(g, node);
  if (is_cross_attention(g, node, &s, axis))
    return 1;
  if (!is_causal(g, node) || s.mask || s.documents || axis[0] != 1 || axis[1] != 1 || axis[2] != 1)
    return -1;
  if (s.bias && (s.bias->batched || !attention_by_distance(s.bias, in_shape(g, node, 0), in_shape(g, node, 1))))
    return -1;
  if (s.sinks && s.sinks->batched)
    return -1;
  to->op = &op_cached_attention;
  to->attr[CACHED_CONTEXT].number = (double)context;
  to->attr[CACHED_SCALE].number = node_number(n, "scale");
  to->attr[CACHED_SOFTCAP].number = node_number(n, "softcap");
  to->attr[CACHED_WINDOW].number = node_number(n, "window");
  to->cached = true;
  return 1;
}

/* ---- the primitives ----------------------------------------------------------------------------- */

/* Optional operands, their gradients and the softmax's denominator stay in f32. */
static bool softmax_stays_f32(const Node *n, bool result, int index) {
  return result ? index == 1 : index >= n->op->min_in;
}

static bool gradient_stays_f32(const Node *n, bool result, int index) {
  return result ? index >= 3 : index == 4 || index >= n->op->min_in;
}

/* Heads are independent; heads that share keys and values stay together. */
static bool divide_attention(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Node *n = &g->nodes.at[node];
  if (k != 0 || split.axis != 0 || split.blocks != 1)
    return false;
  const int bias = optional_operand(n, BIAS), sinks = optional_operand(n, SINKS);
  for (int i = 0; i < n->n_in + n->n_out; i++) /* all but masks and documents */
    if (i < n->op->min_in || i >= n->n_in || i == bias || i == sinks)
      layout[i] = split;
  return true;
}

/* softmax(q @ k.T * scale + bias + mask) @ v for each head: q, k and v are [heads, length, size], the result has q's
 * shape, with the size of v. Groups of q's heads share the heads of k and v if these have fewer. scale 0 means 1 / sqrt(size). causal:
 * position i sees only positions 0 to i. window: only positions less than `window` away; 0 means all. softcap: scores s
 * become softcap * tanh(s / softcap) before the mask; 0 means that they stay. The mask is optional: [1, keys] or
 * [length, keys], for all heads, without a gradient. Values of -10000 or less hide the key; a position without visible
 * keys gets zeros. documents are optional: tokens [length], a number for each position. A document is a run of equal
 * numbers; its positions see only each other. Keys that causal, window and documents hide take no time. bias, by name, is optional:
 * a number for each score, [heads, length, keys], or for each distance key - query from 1 - length to keys - 1,
 * [heads, 1, length + keys - 1], with a gradient. sinks are optional: [heads], the score of a key without a value that
 * each query of the head sees. */
const Op op_attention = {
    .name = "scaled_dot_product_attention",
    .signature = "scaled_dot_product_attention(q[heads, length, size], k, v, mask, documents, bias, sinks, "
                 "causal = false, scale = 0, window = 0, softcap = 0)",
    .kind = OP_CALL,
    .strided_out = true,
    .divide = divide_attention,
    .min_in = 3,
    .max_in = 3 + N_OPTIONAL,
    .optional = {"mask", "documents", "bias", "sinks"},
    .operand = signature_operand,
    .no_gradient = 1u << (3 + MASK) | 1u << (3 + DOCUMENTS),
    .attr = {{"causal", ATTR_BOOL, false, 0},
             {"scale", ATTR_NUMBER, false, 0},
             {"window", ATTR_INT, false, 0},
             {"softcap", ATTR_NUMBER, false, 0},
             [OPTIONAL] = {"$optional", ATTR_INT, false, 0},
             [NAMES] = {"$names", ATTR_INT, false, 0}},
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
    .signature =
        "attention_gradient(q, k, v, o, lse, d_o, mask, documents, bias, sinks, causal, scale, window, softcap)",
    .kind = OP_CALL,
    .strided_out = true,
    .internal = true,
    .divide = divide_attention,
    .min_in = 6,
    .max_in = 6 + N_OPTIONAL,
    .attr = {{"causal", ATTR_BOOL, true, 0},
             {"scale", ATTR_NUMBER, true, 0},
             {"window", ATTR_INT, true, 0},
             {"softcap", ATTR_NUMBER, true, 0},
             [OPTIONAL] = {"$optional", ATTR_INT, true, 0},
             [WANTED] = {"$wanted", ATTR_INT, true, 0}},
    .shape = shape_attention_gradient,
    .cost = cost_attention_gradient,
    .evaluate = evaluate_attention_gradient,
    .call = call_attention_gradient,
    .scratch = scratch_attention_gradient,
    .stays_f32 = gradient_stays_f32,
};
