#include "ops/rules.h"

#include <string.h>

/* ---- inputs of a rule --------------------------------------------------------------------------- */

bool rule_result(ShapeRule *r, Shape s) {
  r->n_out = 1;
  r->out[0].type = TYPE_F32;
  r->out[0].shape = s;
  return true;
}

bool rule_view(ShapeRule *r, Shape s) {
  rule_result(r, s);
  r->out[0].type = rule_value(r, 0)->type;
  r->out[0].classes = rule_value(r, 0)->classes;
  return true;
}

const char *op_spelling(const Op *op) { return op->infix ? op->infix : op->name; }

Attr *rule_attr(ShapeRule *r, const char *name) {
  for (int i = 0; i < MAX_ATTR && r->op->attr[i].name; i++)
    if (!strcmp(r->op->attr[i].name, name))
      return &r->attr[i];
  BUG("'%s' has no attribute '%s'", r->op->name, name);
}

int64_t rule_int(ShapeRule *r, const char *name) { return (int64_t)rule_attr(r, name)->number; }

/* ---- diagnostics ---------------------------------------------------------------------------- */

const char *rule_operand(const ShapeRule *r, int i) {
  const Value *v = rule_value(r, i);
  bool known = v->named_in == r->scope || r->g->nodes.at[v->node].op->source != SOURCE_NONE;
  return known ? format("'%s' of shape %s", v->name, shape_text(&v->shape))
               : format("the value of shape %s", shape_text(&v->shape));
}

void rule_underline(ShapeRule *r, Diagnostic *d) {
  for (int i = 0; i < r->n_in; i++) {
    Span s = rule_value(r, i)->span;
    if (s.file == r->span.file && s.line == r->span.line && s.end_line == r->span.line)
      underline(d, s);
  }
}

/* The axis of a view's input that becomes the output's axis, both counted from the left, or -1. */
static int axis_of_input(const Graph *g, int node, int output, int axis) {
  const Shape *s = in_shape(g, node, 0);
  Place from = {.rank = s->rank + s->batched}, to;
  for (int64_t i = from.rank - 1, stride = 1; i >= 0; stride *= from.dim[i], i--) {
    from.dim[i] = s->batched && i == 0 ? 2 : s->dim[i - s->batched];
    from.stride[i] = from.dim[i] > 1 ? stride : 0;
  }
  if (!g->nodes.at[node].op->view(g, node, output, &from, &to))
    return -1;
  for (int i = s->batched; i < from.rank; i++)
    if (from.stride[i] == to.stride[axis + s->batched] && from.dim[i] == to.dim[axis + s->batched])
      return i - s->batched;
  return -1;
}

/* The operand that gave v its size at *axis, from the left, if a view or an elementwise operation made v; moves
 * *axis there. Else -1. */
static int size_came_from(const Graph *g, int value, int *axis) {
  const Value *v = &g->values.at[value];
  const Node *n = &g->nodes.at[v->node];
  if (n->op->kind == OP_VIEW) {
    *axis = axis_of_input(g, v->node, v->output, *axis);
    return *axis < 0 ? -1 : n->in[0];
  }
  for (int i = 0; n->op->kind == OP_POINTWISE && i < n->n_in; i++) {
    const Shape *s = in_shape(g, v->node, i);
    int own = s->rank - v->shape.rank + *axis;
    if (own < 0 || s->dim[own] != v->shape.dim[*axis])
      continue;
    *axis = own;
    return n->in[i];
  }
  return -1;
}

void rule_origin(ShapeRule *r, Diagnostic *d, int i, int axis) {
  const Graph *g = r->g;
  if (axis < 0 || axis >= rule_shape(r, i)->rank)
    return;
  const Value *v = rule_value(r, i);
  int origin = r->in[i], at = axis;
  for (int next = origin; next >= 0; next = size_came_from(g, origin, &at))
    origin = next;
  note_at(d, g->values.at[origin].span, "%s gets its size %lld at axis %d here", rule_operand(r, i),
          (long long)v->shape.dim[axis], axis);
}

bool rule_f32(ShapeRule *r, int i) {
  if (rule_value(r, i)->type == TYPE_F32)
    return true;
  Diagnostic *d = error_at(r->span, "PD0306", "'%s' needs numbers, but operand %d, %s, holds tokens",
                           op_spelling(r->op), i + 1, rule_operand(r, i));
  rule_underline(r, d);
  note_at(d, rule_value(r, i)->span, "the tokens come from here");
  help(d, "use 'embedding' or 'one_hot' to turn tokens into numbers");
  return false;
}

bool rule_all_f32(ShapeRule *r) {
  for (int i = 0; i < r->n_in; i++)
    if (!rule_f32(r, i))
      return false;
  return true;
}

bool rule_token(ShapeRule *r, int i) {
  if (rule_value(r, i)->type == TYPE_TOKEN)
    return true;
  Diagnostic *d = error_at(r->span, "PD0306", "'%s' needs tokens as operand %d, but %s holds numbers",
                           op_spelling(r->op), i + 1, rule_operand(r, i));
  rule_underline(r, d);
  help(d, "tokens come from a declaration such as 'input tokens[128] : token(256);'");
  return false;
}

bool rule_buffer(ShapeRule *r, int i) {
  const Value *v = rule_value(r, i);
  const Node *n = &r->g->nodes.at[v->node];
  if (n->op->source == SOURCE_PARAMETER && r->g->params.at[node_int(n, "index")].buffer)
    return true;
  Diagnostic *d =
      error_at(r->span, "PD0340", "'%s' needs a buffer, and '%s' is not a buffer", r->op->name, v->name);
  note_at(d, v->span, "the value comes from here");
  help(d, "declare a buffer: 'buffer %s[...] = zeros;'", v->name);
  return false;
}

void rule_key(ShapeRule *r, const char *prefix) {
  Attr *key = rule_attr(r, "$key");
  Name path = r->g->scopes.at[r->scope].path;
  int before = 0;
  for (int i = 0; i < r->g->n_forward && !key->text; i++) {
    const Node *n = &r->g->nodes.at[i];
    before += n->op == r->op && r->g->scopes.at[n->scope].path == path;
  }
  if (!key->text)
    key->text = internf("%s/%s%d", path, prefix, before);
}

bool rule_axis(ShapeRule *r, const char *attr, int rank) {
  Attr *a = rule_attr(r, attr);
  int64_t axis = (int64_t)a->number;
  if (axis < -rank || axis >= rank) {
    Diagnostic *d = error_at(r->span, "PD0303", "'%s' has no axis %lld in a value of shape %s", op_spelling(r->op),
                             (long long)axis, shape_text(rule_shape(r, 0)));
    rule_underline(r, d);
    if (rank)
      help(d, "axes count from 0 to %d, or from the right from -1 to -%d; the microbatch does not count", rank - 1,
           rank);
    return false;
  }
  a->number = (double)(axis < 0 ? axis + rank : axis);
  return true;
}

bool rule_sizes(ShapeRule *r, const char *attr, Shape *s) {
  const Attr *a = rule_attr(r, attr);
  if (a->n > MAX_RANK) {
    error_at(r->span, "PD0310", "a shape has at most %d axes, but this '%s' has %d", MAX_RANK, op_spelling(r->op),
             a->n);
    return false;
  }
  s->rank = a->n;
  for (int i = 0; i < a->n; i++) {
    s->dim[i] = a->list[i];
    if (a->list[i] < 1) {
      error_at(r->span, "PD0304", "'%s' is asked for a size of %lld at axis %d", op_spelling(r->op),
               (long long)a->list[i], i);
      return false;
    }
  }
  return true;
}

bool rule_pair(ShapeRule *r, const char *attr, int64_t least) {
  enum { MOST = 1 << 20 };
  Attr *a = rule_attr(r, attr);
  if (a->n == 0) {
    int64_t both = (int64_t)a->number;
    *a = (Attr){.n = 2, .list = alloc_copy((int64_t[]){both, both}, 2 * sizeof both)};
  }
  ensure(a->n == 2);
  a->number = 0;
  for (int i = 0; i < 2; i++)
    if (a->list[i] < least || a->list[i] > MOST) {
      Diagnostic *d = error_at(r->span, "PD0332", "'%s' of '%s' must be from %lld to %d, but is %lld", attr,
                               op_spelling(r->op), (long long)least, MOST, (long long)a->list[i]);
      rule_underline(r, d);
      return false;
    }
  return true;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

bool shape_broadcast(Shape *s, const Shape *with, int *axis) {
  Shape wide = *s;
  wide.batched |= with->batched;
  wide.rank = s->rank > with->rank ? s->rank : with->rank;
  for (int right = 1; right <= wide.rank; right++) {
    int64_t a = right <= s->rank ? s->dim[s->rank - right] : 1;
    int64_t b = right <= with->rank ? with->dim[with->rank - right] : 1;
    if (a != b && a != 1 && b != 1) {
      *axis = s->rank - right;
      return false;
    }
    wide.dim[wide.rank - right] = a == 1 ? b : a;
  }
  *s = wide;
  return true;
}

bool rule_broadcast(ShapeRule *r) {
  Shape s = *rule_shape(r, 0);
  for (int i = 1; i < r->n_in; i++) {
    int axis;
    const Shape *with = rule_shape(r, i);
    if (shape_broadcast(&s, with, &axis))
      continue;
    Diagnostic *d = error_at(r->span, "PD0301", "'%s' needs shapes that broadcast, but has %s and %s",
                             op_spelling(r->op), shape_text(&s), shape_text(with));
    rule_underline(r, d);
    for (int k = 0; k <= i; k++) { /* only operands with a size of their own there */
      const Shape *has = rule_shape(r, k);
      int own = has->rank - (s.rank - axis);
      if (own >= 0 && has->dim[own] != 1)
        rule_origin(r, d, k, own);
    }
    return false;
  }
  return rule_result(r, s);
}

bool shape_pointwise(ShapeRule *r) { return rule_all_f32(r) && rule_broadcast(r); }

Shape shape_with(Shape s, int axis, int64_t size) {
  s.dim[axis] = size;
  return s;
}

Attr shape_attr(const Shape *s) {
  return (Attr){.n = s->rank, .list = alloc_copy(s->dim, s->rank * sizeof s->dim[0])};
}

int64_t batch_elements(const Shape *s, int64_t batch) { return shape_elements(s) * (s->batched ? batch : 1); }

Around around_axis(const Shape *s, int64_t batch, int axis) {
  Around a = {s->batched ? batch : 1, s->dim[axis], 1};
  for (int i = 0; i < s->rank; i++)
    *(i < axis ? &a.outer : &a.inner) *= i == axis ? 1 : s->dim[i];
  return a;
}

/* ---- axes in another order -------------------------------------------------------------------- */

static int attribute_number(const Op *op, const char *name) {
  for (int i = 0; i < MAX_ATTR && op->attr[i].name; i++)
    if (!strcmp(op->attr[i].name, name))
      return i;
  BUG("'%s' has no attribute '%s'", op->name, name);
}

bool reordered_axis(const Graph *g, int node, const int *order, Attr *attr) {
  Attr *axis = &attr[attribute_number(g->nodes.at[node].op, "axis")];
  int k = 0;
  while (order[k] != (int)axis->number)
    k++;
  axis->number = k;
  return true;
}

bool reordered_shape(const Graph *g, int node, const int *order, Attr *attr) {
  Attr *shape = &attr[attribute_number(g->nodes.at[node].op, "shape")];
  const int64_t *old = shape->list;
  shape->list = alloc(shape->n * sizeof *old);
  for (int k = 0; k < shape->n; k++)
    shape->list[k] = old[order[k]];
  return true;
}

bool reordered_alike(const Graph *g, int node, const int *order, Attr *attr) {
  (void)g, (void)node, (void)order, (void)attr;
  return true;
}

bool reordered_before_last(const Graph *g, int node, const int *order, Attr *attr) {
  (void)attr;
  int last = in_shape(g, node, 0)->rank - 1;
  return order[last] == last;
}

/* ---- costs ------------------------------------------------------------------------------------ */

static double input_elements(const Graph *g, int node) {
  double n = 0;
  for (int i = 0; i < g->nodes.at[node].n_in; i++)
    n += (double)shape_elements(in_shape(g, node, i));
  return n;
}

static double output_elements(const Graph *g, int node) {
  double n = 0;
  for (int i = 0; i < g->nodes.at[node].n_out; i++)
    n += (double)shape_elements(out_shape(g, node, i));
  return n;
}

double node_bytes(const Graph *g, int node) { return 4 * (input_elements(g, node) + output_elements(g, node)); }

OpCost cost_none(const Graph *g, int node) {
  (void)g, (void)node;
  return (OpCost){0};
}

OpCost cost_cheap(const Graph *g, int node) {
  return (OpCost){.other_flops = output_elements(g, node), .bytes = node_bytes(g, node)};
}

OpCost cost_expensive(const Graph *g, int node) {
  return (OpCost){.other_flops = 12 * output_elements(g, node), .bytes = node_bytes(g, node)};
}

OpCost cost_inputs(const Graph *g, int node) {
  return (OpCost){.other_flops = input_elements(g, node), .bytes = node_bytes(g, node)};
}

OpCost cost_copy(const Graph *g, int node) { return (OpCost){.bytes = node_bytes(g, node)}; }

bool result_stays_f32(const Node *n, bool result, int index) {
  (void)n, (void)index;
  return result;
}

bool all_stays_f32(const Node *n, bool result, int index) {
  (void)n, (void)result, (void)index;
  return true;
}
