/* Which operands of attention are given, and whether they fit. */
#include "ops/attention.h"

bool attention_fails(ShapeRule *r, const char *why, int operand, int axis) {
  Diagnostic *d =
      error_at(r->span, "PD0308", "'scaled_dot_product_attention' %s, but has q %s, k %s and v %s", why,
               shape_text(rule_shape(r, 0)), shape_text(rule_shape(r, 1)), shape_text(rule_shape(r, 2)));
  rule_underline(r, d);
  rule_origin(r, d, operand, axis);
  return false;
}

static bool check_mask(ShapeRule *r, int i) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1), *mask = rule_shape(r, i);
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
  rule_origin(r, d, i, mask->rank - 1);
  if (mask->rank == 1 && mask->dim[0] == k->dim[1])
    help(d, "use 'unsqueeze(mask, 0)' for one mask for all queries; 'documents' are an input of type token");
  if (mask->rank == 3)
    help(d, "numbers for each head are a bias, by name: 'bias = x'");
  return false;
}

static bool check_documents(ShapeRule *r, int i) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1), *documents = rule_shape(r, i);
  if (q->dim[1] != k->dim[1])
    return attention_fails(r, "with documents needs the same number of keys and queries", 1, 1);
  if (documents->rank == 1 && documents->dim[0] == q->dim[1] && (q->batched || !documents->batched))
    return true;
  Diagnostic *d =
      error_at(r->span, "PD0308", "'scaled_dot_product_attention' of q %s needs documents [%lld]%s, but has %s",
               shape_text(q), (long long)q->dim[1], q->batched ? "" : " that are no sample's",
               shape_text(documents));
  rule_underline(r, d);
  rule_origin(r, d, i, documents->rank - 1);
  help(d, "documents are a number for each position: 'input documents[%lld] : token(%lld);'", (long long)q->dim[1],
       (long long)q->dim[1]);
  return false;
}

bool attention_by_distance(const Shape *bias, const Shape *q, const Shape *k) {
  return bias->dim[1] == 1 && bias->dim[2] == q->dim[1] + k->dim[1] - 1;
}

static bool check_bias(ShapeRule *r, int i) {
  const Shape *q = rule_shape(r, 0), *k = rule_shape(r, 1), *bias = rule_shape(r, i);
  const bool heads = bias->rank == 3 && bias->dim[0] == q->dim[0] && (q->batched || !bias->batched);
  if (heads && (attention_by_distance(bias, q, k) || (bias->dim[1] == q->dim[1] && bias->dim[2] == k->dim[1])))
    return true;
  const long long of_heads = q->dim[0], length = q->dim[1], keys = k->dim[1];
  Diagnostic *d =
      error_at(r->span, "PD0308",
               "'scaled_dot_product_attention' of q %s and k %s needs a bias [%lld, %lld, %lld], or by "
               "distance [%lld, 1, %lld]%s, but has %s",
               shape_text(q), shape_text(k), of_heads, length, keys, of_heads, length + keys - 1,
               q->batched ? "" : " that is no sample's", shape_text(bias));
  rule_underline(r, d);
  rule_origin(r, d, i, bias->rank - 1);
  if (bias->rank == 2 || (bias->rank == 3 && bias->dim[0] == 1))
    help(d, "for one bias for all heads use 'expand(.., [%lld, %lld, %lld])', or 'mask' if it needs no gradient",
         of_heads, length, keys);
  return false;
}

static bool check_sinks(ShapeRule *r, int i) {
  const Shape *q = rule_shape(r, 0), *sinks = rule_shape(r, i);
  if (sinks->rank == 1 && sinks->dim[0] == q->dim[0] && (q->batched || !sinks->batched))
    return true;
  Diagnostic *d =
      error_at(r->span, "PD0308", "'scaled_dot_product_attention' of q %s needs sinks [%lld]%s, but has %s",
               shape_text(q), (long long)q->dim[0], q->batched ? "" : " that are no sample's", shape_text(sinks));
  rule_underline(r, d);
  rule_origin(r, d, i, sinks->rank - 1);
  help(d, "sinks are a score for each head, such as 'param sinks[%lld] = zeros;'", (long long)q->dim[0]);
  return false;
}

/* Each optional operand at most once, in order; a bias and sinks have names. Fills in which ones are there. */
bool attention_check_optional(ShapeRule *r) {
  static bool (*const check[N_OPTIONAL])(ShapeRule *, int) = {check_mask, check_documents, check_bias,
                                                              check_sinks};
  int64_t given = 0, names = rule_int(r, "$names");
  for (int i = r->op->min_in; i < r->n_in; i++, names /= OPTIONAL_NAMES) {
    const int64_t name = names % OPTIONAL_NAMES;
    const Optional unnamed = rule_value(r, i)->type == TYPE_TOKEN ? DOCUMENTS : MASK;
    const Optional kind = name ? (Optional)(name - 1) : unnamed;
    if (given >> kind)
      return attention_fails(r, "takes a mask, then documents, which are tokens; a bias and sinks by name", i, -1);
    if ((rule_value(r, i)->type == TYPE_TOKEN) != (kind == DOCUMENTS)) {
      attention_fails(r, kind == DOCUMENTS ? "takes tokens as documents" : "takes tokens only as documents", i,
                      -1);
      return false;
    }
    if (!check[kind](r, i))
      return false;
    given |= 1 << kind;
  }
  rule_attr(r, "$optional")->number = (double)given;
  return true;
}
