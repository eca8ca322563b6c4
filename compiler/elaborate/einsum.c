/* einsum("b h i d, b h j d -> b h i j", x, y): sums of products by the names of axes, written as permutes, sums and matrix
 * products. Several values are multiplied from left to right. */
#include "elaborate/internal.h"

#include <string.h>

#include "ops/rules.h"

enum { MOST_OPERANDS = 8 };

/* A value and the names of its axes. */
typedef struct Term {
  int value, n;
  Name axis[MAX_RANK];
} Term;

typedef struct Einsum {
  Elaborator *e;
  Frame *f;
  Span equation, whole;
  int n;
  Term operand[MOST_OPERANDS], result; /* value -1: the equation alone */
} Einsum;

static const Shape *shape_of(const Einsum *s, const Term *t) { return &s->e->g->values.at[t->value].shape; }

static bool fails(const Einsum *s, const char *text) {
  Diagnostic *d = fail(s->f, s->equation, "PD0319", "%s", text);
  help(
      d,
      "name the axes of each value, then those of the result: 'einsum(\"i k, k j -> i j\", x, y)'; samples have no axis");
  return false;
}

static int index_of(const Term *t, Name axis) {
  for (int i = 0; i < t->n; i++)
    if (t->axis[i] == axis)
      return i;
  return -1;
}

/* ---- the equation ------------------------------------------------------------------------------------- */

/* "b h i" are names; "bhi" are letters. */
static bool parse_axes(Einsum *s, const char *text, size_t n, Term *to) {
  const char *end = text + n;
  bool spaced = false;
  while (text < end && *text == ' ')
    text++;
  while (end > text && end[-1] == ' ')
    end--;
  for (const char *p = text; p < end; p++)
    spaced |= *p == ' ';
  *to = (Term){.value = -1};
  for (const char *p = text; p < end;) {
    const size_t letters = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    const size_t length = !spaced && letters ? 1 : letters;
    if (!length || p + length > end)
      return fails(s, format("'%.*s' is no axis: einsum takes names of axes, without '...'", (int)(end - p), p));
    const Name axis = intern(format("%.*s", (int)length, p));
    if (index_of(to, axis) >= 0)
      return fails(s, format("axis '%s' stands twice in one term: einsum takes no diagonals", axis));
    if (to->n == MAX_RANK)
      return fails(s, format("einsum takes terms of at most %d axes", MAX_RANK));
    to->axis[to->n++] = axis;
    for (p += length; p < end && *p == ' ';)
      p++;
  }
  return true;
}

static bool parse(Einsum *s, const char *text) {
  const char *arrow = strstr(text, "->"), *at = text;
  int n = 0;
  if (!arrow)
    return fails(s, "einsum needs '->' and the axes of the result");
  if (!parse_axes(s, arrow + 2, strlen(arrow + 2), &s->result))
    return false;
  for (bool more = true; more; at++, n++) {
    const size_t length = strcspn(at, ",-");
    more = at[length] == ',';
    if (n == s->n)
      return fails(s, "the equation has more terms than einsum has values");
    const int value = s->operand[n].value;
    if (!parse_axes(s, at, length, &s->operand[n]))
      return false;
    s->operand[n].value = value;
    at += length;
  }
  return n == s->n || fails(s, "the equation has fewer terms than einsum has values");
}

/* Each axis has one size, and those of the result are known. */
static bool check(const Einsum *s) {
  int64_t size[MOST_OPERANDS * MAX_RANK];
  Name name[MOST_OPERANDS * MAX_RANK];
  int n = 0;
  for (int i = 0; i < s->n; i++) {
    const Shape *shape = shape_of(s, &s->operand[i]);
    if (shape->rank != s->operand[i].n)
      return fails(s, format("term %d has %d axes, but its value has shape %s", i + 1, s->operand[i].n,
                             shape_text(shape)));
    for (int k = 0; k < shape->rank; k++) {
      int at = 0;
      while (at < n && name[at] != s->operand[i].axis[k])
        at++;
      if (at < n && size[at] != shape->dim[k])
        return fails(s, format("axis '%s' has %lld elements and %lld", name[at], (long long)size[at],
                               (long long)shape->dim[k]));
      name[at] = s->operand[i].axis[k];
      size[at] = shape->dim[k];
      n += at == n;
    }
  }
  for (int k = 0; k < s->result.n; k++) {
    int at = 0;
    while (at < n && name[at] != s->result.axis[k])
      at++;
    if (at == n)
      return fails(s, format("axis '%s' of the result is in no other term: einsum repeats nothing",
                             s->result.axis[k]));
  }
  return true;
}

/* ---- steps -------------------------------------------------------------------------------------------- */

/* False after a diagnostic. */
static bool apply(const Einsum *s, const Op *op, const int *in, int n_in, const Attr *attr, int *value) {
  const Val v = build(s->e, s->f, op, in, n_in, attr, s->whole, s->whole);
  *value = v.kind == VAL_TENSOR ? v.value : -1;
  return *value >= 0;
}

/* Puts the axes into this order. */
static bool order(const Einsum *s, Term *t, const Name *axis) {
  int dims[MAX_RANK];
  bool same = true;
  for (int i = 0; i < t->n; i++) {
    dims[i] = index_of(t, axis[i]);
    same &= dims[i] == i;
  }
  memcpy(t->axis, axis, (size_t)t->n * sizeof *axis);
  Attr attr[MAX_ATTR] = {{0}};
  const Op *op = same ? NULL : op_of_order(t->n, dims, attr);
  return same || apply(s, op, &t->value, 1, attr, &t->value);
}

static bool reshape(const Einsum *s, int *value, int n, const int64_t *dim) {
  Shape shape = {.rank = n};
  memcpy(shape.dim, dim, (size_t)n * sizeof *dim);
  return apply(s, &op_reshape, value, 1, (Attr[MAX_ATTR]){shape_attr(&shape)}, value);
}

/* Whether the result or an operand from `first` on has the axis. */
static bool is_needed(const Einsum *s, int first, Name axis) {
  bool needed = index_of(&s->result, axis) >= 0;
  for (int i = first; i < s->n; i++)
    needed |= index_of(&s->operand[i], axis) >= 0;
  return needed;
}

/* Sums over axes that nothing else has. */
static bool sum_alone(const Einsum *s, Term *t, const Term *other, int next) {
  Name axis[MAX_RANK];
  int64_t dim[MAX_RANK], summed = 1;
  int kept = 0, last = t->n;
  for (int i = t->n - 1; i >= 0; i--)
    if (!is_needed(s, next, t->axis[i]) && (!other || index_of(other, t->axis[i]) < 0)) {
      axis[--last] = t->axis[i];
      summed *= shape_of(s, t)->dim[i];
    }
  for (int i = 0; i < t->n && last < t->n; i++)
    if (is_needed(s, next, t->axis[i]) || (other && index_of(other, t->axis[i]) >= 0)) {
      dim[kept] = shape_of(s, t)->dim[i];
      axis[kept++] = t->axis[i];
    }
  if (last == t->n)
    return true;
  if (!order(s, t, axis))
    return false;
  t->n = kept;
  dim[kept] = summed;
  return reshape(s, &t->value, kept + 1, dim) &&
         apply(s, &op_sum, &t->value, 1, (Attr[MAX_ATTR]){{.number = -1}}, &t->value) &&
         reshape(s, &t->value, kept, dim);
}

/* Kinds of axes of a product of two terms. */
typedef enum { TOGETHER, OWN, SUMMED } Kind;

static Kind kind_of(const Einsum *s, const Term *other, int next, Name axis) {
  if (index_of(other, axis) < 0)
    return OWN;
  return is_needed(s, next, axis) ? TOGETHER : SUMMED;
}

/* As a matrix [together, own, summed] or [together, summed, own]; the axes' names and sizes by kind, in the order of
 * `like` for those that both have. */
static bool as_matrix(const Einsum *s, Term *t, const Term *other, const Term *like, int next, const Kind *kinds,
                      Term part[3], int64_t size[3], int64_t *dims) {
  Name axis[MAX_RANK];
  int n = 0;
  for (int k = 0; k < 3; k++) {
    const Term *from = kinds[k] == OWN ? t : like;
    part[k].n = 0;
    size[k] = 1;
    for (int i = 0; i < from->n; i++) {
      const int at = index_of(t, from->axis[i]);
      if (at < 0 || kind_of(s, other, next, from->axis[i]) != kinds[k])
        continue;
      size[k] *= shape_of(s, t)->dim[at];
      dims[n] = shape_of(s, t)->dim[at];
      part[k].axis[part[k].n++] = axis[n++] = from->axis[i];
    }
  }
  return order(s, t, axis) &&
         reshape(s, &t->value, part[0].n ? 3 : 2, part[0].n ? size : (int64_t[]){size[1], size[2]});
}

/* x becomes the product of x and y, without the axes that only they have. */
static bool multiply(const Einsum *s, Term *x, Term y, int next) {
  static const Kind left[3] = {TOGETHER, OWN, SUMMED}, right[3] = {TOGETHER, SUMMED, OWN};
  if (!sum_alone(s, x, &y, next) || !sum_alone(s, &y, x, next))
    return false;
  if (shape_of(s, &y)->batched &&
      !shape_of(s, x)->batched) { /* matrices that all samples share stand on the right */
    const Term z = *x;
    *x = y, y = z;
  }
  const Term whole = *x;
  Term of_x[3], of_y[3];
  int64_t size_x[3], size_y[3], dim_x[MAX_RANK], dim_y[MAX_RANK], dim[2 * MAX_RANK];
  if (!as_matrix(s, x, &y, &whole, next, left, of_x, size_x, dim_x) ||
      !as_matrix(s, &y, &whole, &whole, next, right, of_y, size_y, dim_y))
    return false;
  if (of_x[0].n && shape_of(s, x)->batched && !shape_of(s, &y)->batched) {
    const Shape shape = *shape_of(s, &y);
    if (!apply(s, &op_expand, &y.value, 1, (Attr[MAX_ATTR]){shape_attr(&shape), {.number = true}}, &y.value))
      return false;
  }
  const int in[] = {x->value, y.value}, own = of_x[0].n + of_x[1].n, n = own + of_y[2].n;
  if (n > MAX_RANK)
    return fails(s, format("a product of two terms has %d axes; einsum takes at most %d", n, MAX_RANK));
  memcpy(dim, dim_x, (size_t)own * sizeof *dim);
  memcpy(dim + own, dim_y + of_y[0].n + of_y[1].n, (size_t)of_y[2].n * sizeof *dim);
  memcpy(x->axis + own, of_y[2].axis, (size_t)of_y[2].n * sizeof *x->axis);
  x->n = n;
  return apply(s, &op_matmul, in, 2, NULL, &x->value) && reshape(s, &x->value, n, dim);
}

Val einsum(Elaborator *e, Frame *f, const Ast *call, const Val *args) {
  Einsum s = {.e = e, .f = f, .whole = call->span, .n = call->list.n - 1};
  if (call->list.n < 2 || call->list.n > MOST_OPERANDS + 1 || args[0].kind != VAL_STRING) {
    Diagnostic *d = fail(f, call->span, "PD0205", "'einsum' takes an equation and up to %d values", MOST_OPERANDS);
    help(d, "its signature is 'einsum(equation, x, ..)', such as 'einsum(\"i k, k j -> i j\", x, y)'");
    return (Val){.kind = VAL_POISON};
  }
  s.equation = call->list.at[0]->span;
  for (int i = 0; i < s.n; i++)
    if ((s.operand[i].value = want_tensor(e, f, args[i + 1], call->list.at[i + 1]->span, "an operand")) < 0)
      return (Val){.kind = VAL_POISON};
  bool good = parse(&s, args[0].word) && check(&s);
  Term x = s.operand[0];
  for (int i = 1; i < s.n && good; i++)
    good = multiply(&s, &x, s.operand[i], i + 1);
  good = good && sum_alone(&s, &x, NULL, s.n) && order(&s, &x, s.result.axis);
  return good ? (Val){.kind = VAL_TENSOR, .value = x.value} : (Val){.kind = VAL_POISON};
}
