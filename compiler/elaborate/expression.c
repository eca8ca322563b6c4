/* Expressions: compile-time values are computed; tensor operations become nodes. */
#include "elaborate/internal.h"

#include <math.h>
#include <string.h>

/* ---- nodes --------------------------------------------------------------------------------- */

static bool small_enough(const Frame *f, const Shape *s, Span whole) {
  double n = 1;
  for (int i = 0; i < s->rank; i++)
    n *= (double)s->dim[i];
  if (n <= 0x1p45)
    return true;
  fail(f, whole, "PD0322", "a value of shape %s is too large", shape_text(s));
  return false;
}

/* `at`: the operator, for diagnostics; `whole`: the expression, for notes. */
static int build_node(Elaborator *e, const Frame *f, const Op *op, const int *in, int n_in, const Attr *attr,
                      Span at, Span whole) {
  int node = graph_node(e->g, op, in, n_in, attr, f->scope, at);
  if (node < 0) {
    Diagnostic *d = diagnostic_last();
    ensure(d);
    note_calls(f, d);
    return -1;
  }
  Node *n = &e->g->nodes.at[node];
  n->span = whole;
  for (int i = 0; i < n->n_out; i++) {
    e->g->values.at[n->out[i]].span = whole;
    if (!small_enough(f, &e->g->values.at[n->out[i]].shape, whole))
      return -1;
  }
  return node;
}

Val build(Elaborator *e, const Frame *f, const Op *op, const int *in, int n_in, const Attr *attr, Span at,
          Span whole) {
  int node = build_node(e, f, op, in, n_in, attr, at, whole);
  if (node < 0)
    return POISON;
  const Node *n = &e->g->nodes.at[node];
  int results = op->kind == OP_VIEW ? n->n_out : op->results ? op->results : 1;
  if (results == 1)
    return val_tensor(n->out[0]);
  Val all = {.kind = VAL_SEVERAL, .n = results, .list = alloc((size_t)results * sizeof(Val))};
  for (int i = 0; i < results; i++)
    all.list[i] = val_tensor(n->out[i]);
  return all;
}

bool attribute_value(Elaborator *e, const Frame *f, const OpAttr *attr, Val v, Span where, Attr *out) {
  const char *what = format("'%s'", attr->name);
  bool truth;
  int64_t whole;
  switch (attr->kind) {
  case ATTR_NUMBER: return want_number(e, f, v, where, what, &out->number);
  case ATTR_INT:
    if (!want_whole(e, f, v, where, what, &whole))
      return false;
    out->number = (double)whole;
    return true;
  case ATTR_BOOL:
    if (!want_bool(e, f, v, where, what, &truth))
      return false;
    out->number = truth;
    return true;
  case ATTR_TEXT:
    if (v.kind != VAL_STRING && v.kind != VAL_WORD) {
      if (v.kind != VAL_POISON)
        fail(f, where, "PD0207", "%s must be a string, but is %s", what, val_kind(e, v));
      return false;
    }
    out->text = v.word;
    return true;
  case ATTR_PAIR:
    if (v.kind != VAL_NUMBER)
      break;
    if (!want_whole(e, f, v, where, what, &whole))
      return false;
    out->number = (double)whole;
    return true;
  case ATTR_LIST: break;
  }
  bool pair = attr->kind == ATTR_PAIR;
  if (v.kind != VAL_LIST || (pair && v.n != 2)) {
    if (v.kind != VAL_POISON)
      fail(f, where, "PD0207", "%s must be a %s, but is %s", what,
           pair ? "number or a list of two" : "list of numbers", val_kind(e, v));
    return false;
  }
  out->n = v.n;
  out->list = alloc((size_t)v.n * sizeof *out->list);
  for (int i = 0; i < v.n; i++)
    if (!want_whole(e, f, v.list[i], where, format("element %d of %s", i, what), &out->list[i]))
      return false;
  return true;
}

/* ---- names and members --------------------------------------------------------------------- */

Variable *variable_find(Frame *f, Name name) {
  if (f->places.room) {
    const int place = table_number(&f->places, &name);
    return place >= 0 ? &f->variables.at[place] : NULL;
  }
  for (int i = f->variables.n - 1; i >= 0; i--)
    if (f->variables.at[i].name == name)
      return &f->variables.at[i];
  return NULL;
}

static const char *const words[] = {"in_out", "out_in", "none", NULL};

bool predefined(Name name, Val *v) {
  if (strcmp(name, "zeros") == 0 || strcmp(name, "ones") == 0) {
    *v = (Val){.kind = VAL_INIT, .init = name[0] == 'z' ? INIT_ZEROS : INIT_ONES};
    return true;
  }
  if (strcmp(name, "pi") == 0) {
    *v = val_number(3.141592653589793);
    return true;
  }
  for (int i = 0; words[i]; i++)
    if (strcmp(name, words[i]) == 0) {
      *v = (Val){.kind = VAL_WORD, .word = name};
      return true;
    }
  return false;
}

static bool callable(const Elaborator *e, const Frame *f, Name name, Val *v) {
  *v = (Val){.kind = VAL_LAYER, .word = name};
  return find_callable(e, f, name, &v->layer, &v->op) || builtin_known(name);
}

static Val unknown_name(const Elaborator *e, Frame *f, Name name, Span where) {
  if (f->doubtful)
    return POISON;
  const Variable *gone = table_find(&f->gone, &name);
  if (gone && gone->of_scan) {
    Diagnostic *d =
        fail(f, where, "PD0116", "'%s' is a variable of the body of a scan, and unknown behind it", name);
    note_at(d, gone->span, "it gets its value here");
    help(d, "return it from the body, or carry it as a state: 'y, last = scan(..) { .. return %s; }'", name);
    variable_declare(f, name, POISON, false, where);
    return POISON;
  }
  Diagnostic *d = fail(f, where, "PD0101", "unknown name '%s'", name);
  variable_declare(f, name, POISON, false, where); /* reported once */
  if (gone) {
    note_at(d, gone->span, "this name is valid only within its block");
    help(d,
         "parameters and counters are valid within their block; assign the value to a variable to use it later");
    return POISON;
  }
  if (advise(d, name))
    return POISON;
  Vec(const char *) known = {0};
  for (int i = 0; i < f->variables.n - 1; i++)
    push(&known, f->variables.at[i].name);
  for (int i = 0; i < f->instance->children.n; i++)
    if (f->instance->children.at[i]->named_by != NAMED_BY_LAYER)
      push(&known, f->instance->children.at[i]->name);
  for (int i = 0; i < e->layers.n; i++)
    push(&known, e->layers.at[i]->name);
  const char *like = nearest(name, known.at, known.n);
  if (like)
    help(d, "did you mean '%s'?", like);
  return POISON;
}

static Val evaluate_name(Elaborator *e, Frame *f, const Ast *a) {
  Variable *v = variable_find(f, a->name);
  if (v) {
    assignment_read(f, a->name);
    return v->val;
  }
  Val known;
  if (callable(e, f, a->name, &known)) {
    warn_of_label(e, f, a->name, a->span);
    return known;
  }
  Instance *i = instance_find(f, a->name);
  if (i)
    return (Val){.kind = VAL_INSTANCE, .instance = i};
  if (predefined(a->name, &known))
    return known;
  return unknown_name(e, f, a->name, a->span);
}

static Val member_of(Elaborator *e, Frame *f, const Ast *a, Instance *of, Name member) {
  if (of->poisoned)
    return POISON;
  const InstanceParam *p = instance_param(of, member);
  if (p)
    return p->param < 0 ? POISON : val_tensor(e->g->params.at[p->param].value);
  Instance *part = of->children.n ? table_find(&of->by_name, &member) : NULL;
  if (part)
    return (Val){.kind = VAL_INSTANCE, .instance = part};
  Diagnostic *d = fail(f, a->span2, "PD0105", "'%s' has no parameter or part named '%s'", of->path, member);
  note_at(d, of->span, "'%s' is this '%s'", of->path, of->layer->name);
  if (a->a->kind == AST_NAME)
    advise_method(e, f, d, a->a->name, member);
  Text t = {0};
  Vec(const char *) known = {0};
  for (int i = 0; i < of->params.n; i++)
    push(&known, of->params.at[i].name);
  for (int i = 0; i < of->children.n; i++)
    push(&known, of->children.at[i]->name);
  for (int i = 0; i < known.n && i < 12; i++)
    text_add(&t, "%s'%s'", i ? ", " : "", known.at[i]);
  if (known.n)
    help(d, "it has the members %s", t.at);
  return POISON;
}

/* The path of a nested instance, such as "h[0].attn". An instance whose label has several parts is a child with a
 * dotted name. NULL if the expression is not a path. */
static Name instance_path(Elaborator *e, Frame *f, const Ast *a) {
  const Ast *root = a;
  while (root->kind == AST_INDEX || root->kind == AST_MEMBER)
    root = root->a;
  if (root->kind != AST_NAME || root == a || variable_find(f, root->name))
    return NULL;
  if (!instance_has_prefix(f, root->name))
    return NULL;
  return label_text(e, f, a);
}

static Val evaluate_member(Elaborator *e, Frame *f, const Ast *a) {
  bool name = a->a->kind == AST_NAME && strcmp(a->name, "T") != 0;
  const Variable *variable = name ? variable_find(f, a->a->name) : NULL;
  Instance *named =
      name && !(variable && variable->val.kind == VAL_INSTANCE) ? instance_find(f, a->a->name) : NULL;
  if (named)
    assignment_read(f, a->a->name);
  if (named)
    return member_of(e, f, a, named, a->name);
  Name path = instance_path(e, f, a);
  Instance *whole = path ? instance_find(f, path) : NULL;
  if (whole)
    return (Val){.kind = VAL_INSTANCE, .instance = whole};
  Val v = evaluate(e, f, a->a);
  if (v.kind == VAL_POISON)
    return POISON;
  if (v.kind == VAL_INSTANCE)
    return member_of(e, f, a, v.instance, a->name);
  if (strcmp(a->name, "T") == 0 && v.kind == VAL_TENSOR) {
    if (e->g->values.at[v.value].shape.rank < 2) {
      underline(fail(f, a->span2, "PD0303", "'.T' swaps the last two axes, but this is %s", val_kind(e, v)),
                a->a->span);
      return POISON;
    }
    Attr attr[MAX_ATTR] = {{.number = -2}, {.number = -1}};
    return build(e, f, &op_transpose, &v.value, 1, attr, a->span, a->span);
  }
  Diagnostic *d = fail(f, a->span2, "PD0105", "%s has no member '%s'", val_kind(e, v), a->name);
  underline(d, a->a->span);
  if (v.kind == VAL_TENSOR)
    advise_method(e, f, d, a->a->kind == AST_NAME ? a->a->name : "x", a->name);
  if (v.kind == VAL_TENSOR)
    help(d, "a tensor has only '.T'; write the instance to name a parameter: 'wte.weight'");
  if (v.kind == VAL_LAYER && v.layer)
    help(d, "name an instance by its label: 'label: %s(...)', then 'label.%s'", v.word, a->name);
  return POISON;
}

/* ---- subscripts ---------------------------------------------------------------------------- */

static Val index_list(Elaborator *e, Frame *f, const Ast *a, Val v) {
  const Ast *s = a->list.at[0];
  int64_t from = 0, to = v.n;
  if (a->list.n != 1) {
    fail(f, a->span, "PD0321", "a list takes one subscript, not %d", a->list.n);
    return POISON;
  }
  bool range = s->kind == AST_RANGE;
  const Ast *first = range ? s->a : s, *last = range ? s->b : NULL;
  if (first && !want_whole(e, f, evaluate(e, f, first), first->span, "a subscript", &from))
    return POISON;
  if (last && !want_whole(e, f, evaluate(e, f, last), last->span, "a subscript", &to))
    return POISON;
  if (from < 0)
    from += v.n;
  if (to < 0)
    to += v.n;
  if (from < 0 || (!range && from >= v.n) || from > to || to > v.n) {
    fail(f, s->span, "PD0214", "the list has %d elements, and the index is '%s'", v.n, ast_text(s));
    return POISON;
  }
  return range ? val_list(VAL_LIST, v.list + from, (int)(to - from)) : v.list[from];
}

/* Slices one axis of x[...] unless the subscript selects all of it. `drop` is set for a number, which removes the
 * axis. */
static bool slice_axis(Elaborator *e, Frame *f, const Ast *s, int axis, int *x, bool *drop, Span whole) {
  int64_t size = e->g->values.at[*x].shape.dim[axis], from = 0, to = size;
  const Ast *first = s->kind == AST_RANGE ? s->a : s, *last = s->kind == AST_RANGE ? s->b : NULL;
  if (first && !want_whole(e, f, evaluate(e, f, first), first->span, "a subscript", &from))
    return false;
  if (last && !want_whole(e, f, evaluate(e, f, last), last->span, "a subscript", &to))
    return false;
  if (from < 0)
    from += size;
  if (to < 0)
    to += size;
  *drop = s->kind != AST_RANGE;
  if (*drop)
    to = from + 1;
  if (from < 0 || to > size || from >= to) {
    Diagnostic *d = fail(f, s->span, "PD0305", "axis %d has size %lld: '%s' is %s", axis, (long long)size,
                         ast_text(s), from >= to ? "empty" : "out of range");
    note_at(d, e->g->values.at[*x].span, "the value comes from here");
    return false;
  }
  if (from == 0 && to == size)
    return true;
  Attr attr[MAX_ATTR] = {{.number = axis}, {.number = (double)from}, {.number = (double)to}};
  Val v = build(e, f, &op_slice, x, 1, attr, whole, whole);
  *x = v.value;
  return v.kind == VAL_TENSOR;
}

static Val index_tensor(Elaborator *e, Frame *f, const Ast *a, int x) {
  Shape s = e->g->values.at[x].shape, kept = {.batched = s.batched};
  int rest = -1, n = a->list.n;
  for (int i = 0; i < n; i++) {
    const Ast *sub = a->list.at[i];
    if (sub->kind != AST_RANGE || sub->a || sub->b)
      continue;
    if (rest >= 0) {
      help(fail(f, sub->span, "PD0321", "a subscript can contain '..' once only"),
           "write '0..' for one whole axis");
      return POISON;
    }
    rest = i;
  }
  if (n - (rest >= 0) > s.rank) {
    fail(f, a->span, "PD0321", "%d subscripts for a value of shape %s", n - (rest >= 0), shape_text(&s));
    return POISON;
  }
  bool dropped = false;
  int axis = 0;
  for (int i = 0; i < n; i++) {
    bool drop = false;
    if (i == rest) {
      for (int k = 0; k < s.rank - (n - 1); k++, axis++)
        kept.dim[kept.rank++] = s.dim[axis];
      continue;
    }
    if (!slice_axis(e, f, a->list.at[i], axis, &x, &drop, a->span))
      return POISON;
    if (!drop)
      kept.dim[kept.rank++] = e->g->values.at[x].shape.dim[axis];
    dropped |= drop;
    axis++;
  }
  if (!dropped)
    return val_tensor(x);
  for (; axis < s.rank; axis++)
    kept.dim[kept.rank++] = s.dim[axis];
  Attr attr[MAX_ATTR] = {{.n = kept.rank, .list = kept.dim}};
  return build(e, f, &op_reshape, &x, 1, attr, a->span, a->span);
}

static Val evaluate_index(Elaborator *e, Frame *f, const Ast *a) {
  Name path = instance_path(e, f, a);
  if (path) {
    Instance *i = instance_find(f, path);
    if (i)
      return (Val){.kind = VAL_INSTANCE, .instance = i};
    if (!f->doubtful)
      fail(f, a->span, "PD0105", "there is no instance '%s'", path);
    return POISON;
  }
  Val v = evaluate(e, f, a->a);
  if (v.kind == VAL_POISON)
    return POISON;
  if (v.kind == VAL_LIST)
    return index_list(e, f, a, v);
  if (v.kind == VAL_TENSOR)
    return index_tensor(e, f, a, v.value);
  fail(f, a->a->span, "PD0207", "tensors and lists have subscripts, but this is %s", val_kind(e, v));
  return POISON;
}

/* ---- operators ----------------------------------------------------------------------------- */

typedef struct Infix {
  const char *text;
  const Op *op;
  bool swapped;
} Infix;

static const Infix infixes[] = {{"+", &op_add, false},    {"-", &op_sub, false},    {"*", &op_mul, false},
                                {"/", &op_div, false},    {"@", &op_matmul, false}, {">", &op_greater, false},
                                {"<", &op_greater, true}, {"==", &op_equal, false}};

/* Comparisons that no primitive makes, by one that exists. */
static const struct {
  const char *text, *instead;
} negated[] = {{">=", "1 - (a < b)"}, {"<=", "1 - (a > b)"}, {"!=", "1 - (a == b)"}};

static Val tensor_operator(Elaborator *e, Frame *f, const Ast *at, Val a, Val b) {
  for (size_t i = 0; i < sizeof infixes / sizeof *infixes; i++) {
    if (strcmp(at->name, infixes[i].text) != 0)
      continue;
    int in[2] = {want_tensor(e, f, a, at->a->span, "this side of the operator"),
                 want_tensor(e, f, b, at->b->span, "this side of the operator")};
    if (in[0] < 0 || in[1] < 0)
      return POISON;
    int swapped[2] = {in[1], in[0]};
    int errors = error_count();
    Val v = build(e, f, infixes[i].op, infixes[i].swapped ? swapped : in, 2, NULL, at->span2, at->span);
    if (e->options->lora && infixes[i].op == &op_matmul)
      v = lora_adapt(e, f, in, v, at->span);
    if (error_count() > errors && !in_standard(f)) {
      underline(diagnostic_last(), at->a->span);
      underline(diagnostic_last(), at->b->span);
    }
    return v;
  }
  Diagnostic *d =
      fail(f, at->span2, "PD0207", "'%s' works on numbers known at compile time, not on tensors", at->name);
  underline(d, at->a->span);
  underline(d, at->b->span);
  for (size_t i = 0; i < sizeof negated / sizeof *negated; i++)
    if (!strcmp(at->name, negated[i].text))
      help(d, "'a %s b' by element is '%s'", at->name, negated[i].instead);
  return POISON;
}

static Val evaluate_binary(Elaborator *e, Frame *f, const Ast *a) {
  bool and = strcmp(a->name, "and") == 0;
  Val left = evaluate(e, f, a->a);
  if (and || strcmp(a->name, "or") == 0) {
    bool x, y;
    const char *what = and? "each side of 'and'" : "each side of 'or'";
    if (!want_bool(e, f, left, a->a->span, what, &x))
      return POISON;
    if (x != and)
      return left;
    return want_bool(e, f, evaluate(e, f, a->b), a->b->span, what, &y) ? val_bool(y) : POISON;
  }
  if (left.kind == VAL_POISON && in_standard(f))
    return POISON;
  Val right = evaluate(e, f, a->b);
  if (left.kind == VAL_POISON || right.kind == VAL_POISON)
    return POISON;
  bool tensors = left.kind == VAL_TENSOR && right.kind == VAL_TENSOR;
  if (tensors || (left.kind == VAL_TENSOR && right.kind == VAL_NUMBER) ||
      (left.kind == VAL_NUMBER && right.kind == VAL_TENSOR))
    return tensor_operator(e, f, a, left, right);
  return val_operator(e, f, a, left, right);
}

static Val evaluate_unary(Elaborator *e, Frame *f, const Ast *a) {
  Val v = evaluate(e, f, a->a);
  bool x;
  if (v.kind == VAL_POISON)
    return POISON;
  if (a->name[0] == 'n')
    return want_bool(e, f, v, a->a->span, "what 'not' negates", &x) ? val_bool(!x) : POISON;
  if (v.kind == VAL_NUMBER)
    return val_number(-v.number);
  int in = want_tensor(e, f, v, a->a->span, "what '-' negates");
  return in < 0 ? POISON : build(e, f, &op_neg, &in, 1, NULL, a->span2, a->span);
}

static Val evaluate_list(Elaborator *e, Frame *f, const Ast *a) {
  Val all = {.kind = VAL_LIST, .n = a->list.n, .list = alloc((size_t)a->list.n * sizeof(Val))};
  for (int i = 0; i < a->list.n; i++)
    if ((all.list[i] = evaluate(e, f, a->list.at[i])).kind == VAL_POISON)
      all.kind = VAL_POISON;
  return all;
}

/* Reports several values in a place for one. */
static Val only_one(const Elaborator *e, const Frame *f, const Ast *a, Val v) {
  if (v.kind != VAL_SEVERAL)
    return v;
  help(fail(f, a->span, "PD0212", "this gives %s where one value is needed", val_kind(e, v)),
       "assign the values first: 'a, b = ...'");
  return POISON;
}

static bool covers(Span s, int line, int column) {
  return (s.line < line || (s.line == line && s.column <= column)) &&
         (s.end_line > line || (s.end_line == line && s.end_column >= column));
}

static bool is_smaller(Span a, Span b) {
  int lines_a = a.end_line - a.line, lines_b = b.end_line - b.line;
  return lines_a != lines_b ? lines_a < lines_b : a.end_column - a.column < b.end_column - b.column;
}

void look_at(const Elaborator *e, const Ast *a, Val v) {
  Look *look = e->options->look;
  if (!look || a->span.file != e->looked || v.kind == VAL_POISON || !covers(a->span, look->line, look->column))
    return;
  if (look->span.line && !is_smaller(a->span, look->span))
    return;
  look->span = a->span;
  look->text = v.kind == VAL_NUMBER ? format("%.10g", v.number) : val_kind(e, v);
}

static Val value_of(Elaborator *e, Frame *f, const Ast *a) {
  f->result_hint = NULL;
  switch (a->kind) {
  case AST_NUMBER: return val_number(a->number);
  case AST_QUANTITY: return (Val){.kind = VAL_QUANTITY, .number = a->number, .word = a->name};
  case AST_WORD: return (Val){.kind = VAL_WORD, .word = a->name};
  case AST_STRING: return (Val){.kind = VAL_STRING, .word = intern(a->text)};
  case AST_BOOL: return val_bool(a->number != 0);
  case AST_NAME: return evaluate_name(e, f, a);
  case AST_LIST:
  case AST_TUPLE: return evaluate_list(e, f, a);
  case AST_UNARY: return evaluate_unary(e, f, a);
  case AST_BINARY: return evaluate_binary(e, f, a);
  case AST_CALL: return only_one(e, f, a, evaluate_call(e, f, a, NULL));
  case AST_LABEL: return only_one(e, f, a, evaluate_call(e, f, a->b, a->a));
  case AST_INDEX: return evaluate_index(e, f, a);
  case AST_MEMBER: return evaluate_member(e, f, a);
  default: BUG("no expression: %d", a->kind);
  }
}

Val evaluate(Elaborator *e, Frame *f, const Ast *a) {
  Val v = value_of(e, f, a);
  look_at(e, a, v);
  return v;
}
