/* Calls of primitives. */
#include "elaborate/internal.h"

#include <math.h>
#include <string.h>

#include "ops/rules.h"

static int attribute_index(const Op *op, Name name) {
  for (int i = 0; i < MAX_ATTR && op->attr[i].name; i++)
    if (op->attr[i].name[0] != '$' && strcmp(op->attr[i].name, name) == 0)
      return i;
  return -1;
}

static int next_attribute(const Op *op, const bool *given) {
  for (int i = 0; i < MAX_ATTR && op->attr[i].name; i++)
    if (op->attr[i].name[0] != '$' && !given[i])
      return i;
  return -1;
}

typedef struct Operand {
  Val val;
  Span span;
} Operand; /* tensors and numbers */
typedef Vec(Operand) Operands;

static bool list_of_tensors(Val v) {
  for (int i = 0; i < v.n; i++)
    if (v.list[i].kind != VAL_TENSOR)
      return false;
  return v.kind == VAL_LIST && v.n > 0;
}

/* Warns that max(x, 0) reduces axis 0, because the larger of x and 0 may be meant. */
static void warn_of_axis(const Frame *f, const Op *op, const Ast *argument, bool fits) {
  const char *axis = op->attr[0].name, *text = ast_text(argument->a);
  Diagnostic *d = diagnostic_last();
  if (fits) {
    d = warning_at(argument->span, "PD0219", "the second argument of '%s' is its %s", op->name, axis);
    note_calls(f, d);
    help(d, "name the argument to make that clear: '%s(x, %s = %s)'", op->name, axis, text);
  }
  help(d, "for the elementwise choice write '%s(x, %s)'", op->by_element, text);
}

/* Assignment of a call's arguments to operands and attributes. */
typedef struct Sorting {
  Frame *f;
  const Op *op;
  Operands *operands;
  Attr *attr;
  bool given[MAX_ATTR]; /* attributes */
  int missing;          /* operands that are `none` */
  const Ast *named[MAX_OPTIONAL];
  Operand by_name[MAX_OPTIONAL]; /* optional operands with a name in the call */
} Sorting;

static bool is_none(Val v) { return v.kind == VAL_WORD && strcmp(v.word, "none") == 0; }

/* Adds an unnamed argument that is an operand, a list of operands or `none`; false: it is an attribute. */
static bool take_operand(Sorting *s, const Ast *a, Val v) {
  const Op *op = s->op;
  Operands *o = s->operands;
  const bool wanting = o->n < op->min_in && v.kind == VAL_NUMBER && op->kind == OP_POINTWISE;
  if (v.kind == VAL_TENSOR || wanting) {
    push(o, ((Operand){v, a->span}));
    return true;
  }
  if (is_none(v) && o->n >= op->min_in && o->n + s->missing < op->max_in) {
    s->missing++;
    return true;
  }
  if (op->max_in >= 0 || !list_of_tensors(v))
    return false;
  for (int k = 0; k < v.n; k++)
    push(o, ((Operand){v.list[k], a->span}));
  return true;
}

static int optional_index(const Op *op, Name name) {
  for (int i = 0; i < MAX_OPTIONAL && op->optional[i]; i++)
    if (strcmp(op->optional[i], name) == 0)
      return i;
  return -1;
}

/* Records an optional operand that was given by name. `none` stands for a missing operand. False after a diagnostic. */
static bool take_named(const Elaborator *e, Sorting *s, const Ast *a, Val v, int which) {
  if (s->named[which] || s->operands->n + s->missing > s->op->min_in + which)
    fail(s->f, a->span, "PD0206", "'%s' is given twice", a->name);
  else if (!is_none(v) && v.kind != VAL_TENSOR)
    fail(s->f, a->a->span, "PD0207", "'%s' of '%s' must be a tensor, but is %s", a->name, s->op->name,
         val_kind(e, v));
  else {
    s->named[which] = is_none(v) ? NULL : a;
    s->by_name[which] = (Operand){v, a->span};
    return true;
  }
  return false;
}

/* The index of the argument's attribute; -1 after a diagnostic. */
static int attribute_of(const Sorting *s, const Ast *a) {
  const int which = a->name ? attribute_index(s->op, a->name) : next_attribute(s->op, s->given);
  if (which >= 0 && !s->given[which])
    return which;
  Diagnostic *d = which >= 0 ? fail(s->f, a->span, "PD0206", "'%s' is given twice", a->name)
                  : a->name  ? fail(s->f, a->span2, "PD0203", "'%s' has no attribute '%s'", s->op->name, a->name)
                             : fail(s->f, a->span, "PD0204", "too many arguments for '%s'", s->op->name);
  if (a->name && which < 0)
    advise(d, a->name);
  help(d, "its signature is '%s'", s->op->signature);
  return -1;
}

/* False after a diagnostic: the value does not fit the attribute. `none` means the default of a number. */
static bool take_attribute(Elaborator *e, Sorting *s, const Ast *a, Val v, int which) {
  const Op *op = s->op;
  const AttrKind kind = op->attr[which].kind;
  s->given[which] = true;
  if (is_none(v) && !op->attr[which].required && (kind == ATTR_NUMBER || kind == ATTR_INT))
    return true;
  const bool fits = attribute_value(e, s->f, &op->attr[which], v, a->a->span, &s->attr[which]);
  if (!a->name && op->by_element)
    warn_of_axis(s->f, op, a, fits);
  if (!fits && op->attr[which].kind == ATTR_LIST && v.kind == VAL_NUMBER)
    help(diagnostic_last(), "write a list in brackets: '[%s]'", ast_text(a->a));
  return fits;
}

static bool has_required(const Sorting *s, const Ast *call) {
  for (int i = 0; i < MAX_ATTR && s->op->attr[i].name; i++)
    if (s->op->attr[i].required && !s->given[i]) {
      Diagnostic *d =
          fail(s->f, call->span, "PD0205", "'%s' needs its attribute '%s'", s->op->name, s->op->attr[i].name);
      help(d, "its signature is '%s'", s->op->signature);
      return false;
    }
  return true;
}

/* Appends the named operands, and tells the op their names. */
static void add_named(Sorting *s) {
  int names = 0;
  while (names < MAX_ATTR && s->op->attr[names].name && strcmp(s->op->attr[names].name, "$names") != 0)
    names++;
  const bool tells = names < MAX_ATTR && s->op->attr[names].name;
  double unit = pow(OPTIONAL_NAMES, s->operands->n - s->op->min_in);
  for (int i = 0; i < MAX_OPTIONAL; i++)
    if (s->named[i]) {
      push(s->operands, s->by_name[i]);
      if (tells)
        s->attr[names].number += unit * (i + 1);
      unit *= OPTIONAL_NAMES;
    }
}

/* Sorts arguments into operands (tensors first, in order) and attributes. An optional operand may be `none`. */
static bool sort_arguments(Elaborator *e, Frame *f, const Op *op, const Ast *call, const Val *args, Operands *o,
                           Attr *attr) {
  Sorting s = {.f = f, .op = op, .operands = o, .attr = attr};
  bool good = true;
  for (int i = 0; i < MAX_ATTR && op->attr[i].name; i++)
    attr[i].number = op->attr[i].fallback;
  for (int i = 0; i < call->list.n; i++) {
    const Ast *a = call->list.at[i];
    if (!a->name && take_operand(&s, a, args[i]))
      continue;
    if (!a->name && o->n < op->min_in && op->kind == OP_POINTWISE) {
      fail(f, a->span, "PD0207", "an operand of '%s' must be a tensor or a number, but is %s", op->name,
           val_kind(e, args[i]));
      return false;
    }
    if (!a->name && op->by_element && i == 0 && call->list.n > 1) { /* max(0, x) */
      Diagnostic *d =
          fail(f, a->span, "PD0207", "'%s' reduces a tensor along an axis, but its first argument is %s", op->name,
               val_kind(e, args[0]));
      help(d, "for the elementwise choice write '%s(%s, %s)'", op->by_element, ast_text(a->a),
           ast_text(call->list.at[1]->a));
      return false;
    }
    const int optional = a->name ? optional_index(op, a->name) : -1;
    if (optional >= 0) {
      if (!take_named(e, &s, a, args[i], optional))
        return false;
      continue;
    }
    const int which = attribute_of(&s, a);
    if (which < 0)
      return false;
    const bool fits = take_attribute(e, &s, a, args[i], which);
    if (!fits && !a->name)
      return false;
    good = fits && good;
  }
  add_named(&s);
  return good && has_required(&s, call);
}

/* Primitives reduce the last axis, so another axis is transposed there and back. */
static Val reduce_axis(Elaborator *e, Frame *f, const Op *op, int x, Attr *attr, Span whole) {
  int rank = e->g->values.at[x].shape.rank;
  double axis = attr[0].number < 0 ? attr[0].number + rank : attr[0].number;
  if (axis < 0 || axis >= rank || axis == rank - 1)
    return build(e, f, op, &x, 1, attr, whole, whole);
  Attr swap[MAX_ATTR] = {{.number = axis}, {.number = -1}};
  Val v = build(e, f, &op_transpose, &x, 1, swap, whole, whole);
  attr[0].number = -1;
  if (v.kind == VAL_TENSOR)
    v = build(e, f, op, &v.value, 1, attr, whole, whole);
  if (v.kind == VAL_TENSOR)
    v = build(e, f, &op_transpose, &v.value, 1, swap, whole, whole);
  return v;
}

/* Arguments of a reduction beside those that sort_arguments() takes. */
typedef struct ReduceArguments {
  Ast *call;       /* without them */
  Val *args;       /* its */
  const Val *axes; /* a list; NULL: the attribute */
  Span span;       /* of the axes */
  bool drop;       /* keepdim = false */
} ReduceArguments;

/* False after a diagnostic. */
static bool take_reduction(Elaborator *e, Frame *f, const Ast *call, const Val *args, ReduceArguments *r) {
  *r = (ReduceArguments){.call = alloc_copy(call, sizeof *call),
                         .args = alloc((call->list.n + 1) * sizeof *r->args)};
  memset(&r->call->list, 0, sizeof r->call->list);
  for (int i = 0; i < call->list.n; i++) {
    Ast *a = call->list.at[i];
    const bool named = a->name && strcmp(a->name, "axis") == 0;
    bool keep = true;
    if (a->name && strcmp(a->name, "keepdim") == 0) {
      if (!want_bool(e, f, args[i], a->a->span, "'keepdim'", &keep))
        return false;
      r->drop = !keep;
    } else if ((named || (!a->name && i == 1)) && args[i].kind == VAL_LIST && !list_of_tensors(args[i])) {
      r->axes = &args[i];
      r->span = a->span;
    } else {
      r->args[r->call->list.n] = args[i];
      push(&r->call->list, a);
    }
  }
  return true;
}

/* Marks an axis of `rank`, which must be new; false after a diagnostic. */
static bool mark_axis(Elaborator *e, Frame *f, Val v, Span span, int rank, bool *reduced) {
  int64_t axis;
  if (!want_whole(e, f, v, span, "an axis", &axis))
    return false;
  const int64_t from_left = axis < 0 ? axis + rank : axis;
  if (from_left < 0 || from_left >= rank) {
    fail(f, span, "PD0303", "a value of %d axes has no axis %lld", rank, (long long)axis);
    return false;
  }
  if (reduced[from_left]) {
    fail(f, span, "PD0206", "axis %lld is given twice", (long long)axis);
    return false;
  }
  return reduced[from_left] = true;
}

static bool mark_axes(Elaborator *e, Frame *f, const ReduceArguments *r, const Attr *attr, int rank,
                      bool *reduced) {
  if (!r->axes)
    return mark_axis(e, f, val_number(attr[0].number), r->call->span, rank, reduced);
  if (r->axes->n == 0)
    fail(f, r->span, "PD0303", "a reduction needs an axis");
  for (int i = 0; i < r->axes->n; i++)
    if (!mark_axis(e, f, r->axes->list[i], r->span, rank, reduced))
      return false;
  return r->axes->n > 0;
}

/* Reduces the axes one by one, the last one first, and drops them unless they stay. */
static Val reduce_axes(Elaborator *e, Frame *f, const Op *op, const ReduceArguments *r, int x, Attr *attr) {
  const Shape shape = e->g->values.at[x].shape;
  bool reduced[MAX_RANK] = {false};
  Shape left = {.rank = 0};
  Val v = {.kind = VAL_TENSOR, .value = x};
  if (!mark_axes(e, f, r, attr, shape.rank, reduced))
    return POISON;
  for (int axis = shape.rank - 1; axis >= 0 && v.kind == VAL_TENSOR; axis--)
    if (reduced[axis]) {
      attr[0].number = axis;
      v = reduce_axis(e, f, op, v.value, attr, r->call->span);
    }
  for (int axis = 0; axis < shape.rank; axis++)
    if (!reduced[axis])
      left.dim[left.rank++] = shape.dim[axis];
  if (!r->drop || v.kind != VAL_TENSOR)
    return v;
  return build(e, f, &op_reshape, &v.value, 1, (Attr[MAX_ATTR]){shape_attr(&left)}, r->call->span, r->call->span);
}

/* Repeats values that all samples share for each sample, if another operand is one of each sample. */
static void share_operands(Elaborator *e, Frame *f, const Op *op, Ints *in, Span span) {
  bool batched = false;
  for (int i = 0; i < in->n && op->kind == OP_CONCAT; i++)
    batched |= e->g->values.at[in->at[i]].shape.batched;
  for (int i = 0; i < in->n && batched; i++) {
    const Shape s = e->g->values.at[in->at[i]].shape;
    if (s.batched || e->g->values.at[in->at[i]].type != TYPE_F32)
      continue;
    const Val v =
        build(e, f, &op_expand, &in->at[i], 1, (Attr[MAX_ATTR]){shape_attr(&s), {.number = true}}, span, span);
    if (v.kind == VAL_TENSOR)
      in->at[i] = v.value;
  }
}

static Val fold_numbers(const Frame *f, const Op *op, const Ast *call, const Operands *o, const Attr *attr) {
  double number[4];
  ensure(o->n <= 4);
  for (int i = 0; i < o->n; i++)
    number[i] = o->at[i].val.number;
  double x = op->fold(number, attr);
  if (isfinite(x))
    return val_number(x);
  fail(f, call->span, "PD0213", "'%s' of %.15g has no finite value", op->name, number[0]);
  return POISON;
}

Val call_op(Elaborator *e, Frame *f, const Op *op, const Ast *call, const Val *args) {
  Operands o = {0};
  Attr attr[MAX_ATTR] = {{0}};
  ReduceArguments reduction = {0};
  if (op->kind == OP_REDUCE) {
    if (!take_reduction(e, f, call, args, &reduction))
      return POISON;
    call = reduction.call;
    args = reduction.args;
  }
  if (!sort_arguments(e, f, op, call, args, &o, attr))
    return POISON;
  bool tensors = false;
  for (int i = 0; i < o.n; i++)
    tensors |= o.at[i].val.kind == VAL_TENSOR;
  if (op->fold && !tensors && o.n == op->min_in && o.n > 0)
    return fold_numbers(f, op, call, &o, attr);
  Ints in = {0};
  for (int i = 0; i < o.n; i++)
    push(&in, want_tensor(e, f, o.at[i].val, o.at[i].span, "an operand"));
  if (op->kind == OP_REDUCE && in.n == 1 && (reduction.axes || reduction.drop))
    return reduce_axes(e, f, op, &reduction, in.at[0], attr);
  if (op->kind == OP_REDUCE && in.n == 1)
    return reduce_axis(e, f, op, in.at[0], attr, call->span);
  share_operands(e, f, op, &in, call->span);
  int errors = error_count();
  Val v = build(e, f, op, in.at, in.n, attr, call->span, call->span);
  if (error_count() > errors && !in_standard(f))
    for (int i = 0; i < call->list.n; i++)
      underline(diagnostic_last(), call->list.at[i]->span);
  return v;
}
