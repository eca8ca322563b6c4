/* Compile-time functions. */
#include "elaborate/internal.h"

#include <math.h>
#include <string.h>

const char *const builtin_names[] = {"min",      "max",     "floor",   "ceil",    "size",   "shape",
                                     "rank",     "len",     "as_pair", "classes", "normal", "uniform",
                                     "constant", "require", "expect",  "token",   "einsum", NULL};

bool builtin_known(Name name) {
  for (int i = 0; builtin_names[i]; i++)
    if (*name == *builtin_names[i] && strcmp(name, builtin_names[i]) == 0)
      return true;
  return false;
}

static bool count(Frame *f, Name name, const Ast *call, int least, int most, const char *signature) {
  for (int i = 0; i < call->list.n; i++)
    if (call->list.at[i]->name) {
      help(fail(f, call->list.at[i]->span2, "PD0203", "'%s' takes no named arguments", name),
           "its signature is '%s'", signature);
      return false;
    }
  if (call->list.n >= least && call->list.n <= most)
    return true;
  Diagnostic *d = fail(f, call->span, call->list.n < least ? "PD0205" : "PD0204",
                       "'%s' does not take %d argument%s", name, call->list.n, call->list.n == 1 ? "" : "s");
  help(d, "its signature is '%s'", signature);
  return false;
}

/* min and max of numbers, or of one list of numbers. */
static Val extreme(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args) {
  bool greatest = name[1] == 'a', list = call->list.n == 1 && args[0].kind == VAL_LIST && args[0].n > 0;
  if (!count(f, name, call, 1, 100, format("%s(a, b, ..)", name)))
    return POISON;
  int n = list ? args[0].n : call->list.n;
  double best = 0, x;
  for (int i = 0; i < n; i++) {
    Val v = list ? args[0].list[i] : args[i];
    if (v.kind == VAL_TENSOR) {
      Diagnostic *d = fail(f, call->list.at[list ? 0 : i]->span, "PD0207",
                           "'%s' compares numbers known at compile time, but this is %s", name, val_kind(e, v));
      help(d, "'%s(a, b)' compares tensors by element; '%s' is the %s along an axis",
           greatest ? "maximum" : "minimum", greatest ? "max(x, axis = -1)" : "-max(-x, axis = -1)",
           greatest ? "largest" : "smallest");
      return POISON;
    }
    if (!want_number(e, f, v, call->list.at[list ? 0 : i]->span, format("an argument of '%s'", name), &x))
      return POISON;
    if (i == 0 || (greatest ? x > best : x < best))
      best = x;
  }
  return val_number(best);
}

static Val initial(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args) {
  bool normal = name[0] == 'n', uniform = name[0] == 'u';
  double x;
  if (!count(f, name, call, 1, 1, normal ? "normal(deviation)" : uniform ? "uniform(bound)" : "constant(value)"))
    return POISON;
  if (!want_number(e, f, args[0], call->list.at[0]->span, format("the argument of '%s'", name), &x))
    return POISON;
  if (x < 0 && (normal || uniform)) {
    fail(f, call->list.at[0]->span, "PD0215", "'%s' needs a number that is not negative, but has %.15g", name, x);
    return POISON;
  }
  return (Val){.kind = VAL_INIT,
               .number = x,
               .init = normal    ? INIT_NORMAL
                       : uniform ? INIT_UNIFORM
                                 : INIT_CONSTANT};
}

/* "'x' is a tensor of shape [4], 'target' is a tensor of shape [1]" */
static const char *arguments_text(const Elaborator *e, Frame *f) {
  Text t = {0};
  for (int i = 0; i < f->layer->ast->list.n; i++) {
    Name name = f->layer->ast->list.at[i]->name;
    text_add(&t, "%s'%s' is %s", i ? ", " : "", name, val_kind(e, variable_find(f, name)->val));
  }
  return t.at ? t.at : "";
}

typedef Vec(Name) NameList;

static void add_named(const Ast *a, NameList *names) {
  if (!a)
    return;
  if (a->kind == AST_NAME) {
    for (int i = 0; i < names->n; i++)
      if (names->at[i] == a->name)
        return;
    push(names, a->name);
  }
  add_named(a->a, names);
  add_named(a->b, names);
  add_named(a->c, names);
  for (int i = 0; i < a->list.n; i++)
    add_named(a->list.at[i], names);
}

/* Values of a condition's variables: ": 'width' is the number 250, 'n_head' is the number 4". */
static const char *named_text(const Elaborator *e, Frame *f, const Ast *condition) {
  NameList names = {0};
  Text t = {0};
  add_named(condition, &names);
  for (int i = 0; i < names.n; i++) {
    const Variable *v = variable_find(f, names.at[i]);
    if (v && v->val.kind != VAL_LAYER)
      text_add(&t, "%s'%s' is %s", t.n ? ", " : ": ", names.at[i], val_kind(e, v->val));
  }
  return t.at ? t.at : "";
}

/* require: reports a false condition as an error; expect: as a warning. */
static Val require(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args) {
  bool holds, warns = name[0] == 'e';
  if (!count(f, name, call, 2, 2, format("%s(condition, \"what %s hold\")", name, warns ? "should" : "must")))
    return POISON;
  if (!want_bool(e, f, args[0], call->list.at[0]->span, "the condition", &holds))
    return POISON;
  if (args[1].kind != VAL_STRING) {
    fail(f, call->list.at[1]->span, "PD0207", "the message must be a string, but is %s", val_kind(e, args[1]));
    return POISON;
  }
  if (holds)
    return val_bool(true);
  /* the caller violated the requirement: report at its call */
  if (warns) {
    Diagnostic *d = warning_at(f->caller ? f->call : call->span, "PD0218", "%s", args[1].word);
    if (f->caller) {
      note_calls(f->caller, d);
      note_at(d, call->list.at[0]->span, "'%s' expects this; %s", f->layer->name, arguments_text(e, f));
    }
    return val_bool(true);
  }
  Diagnostic *d = f->caller ? fail(f->caller, f->call, "PD0210", "%s", args[1].word)
                            : error_at(call->span, "PD0210", "%s", args[1].word);
  if (f->caller) {
    note_at(d, call->list.at[0]->span, "'%s' requires this%s", f->layer->name, named_text(e, f, call->list.at[0]));
    f->returned = true;
  }
  return POISON;
}

/* as_pair(x): a number x becomes [x, x]; a list of two is unchanged. */
static Val as_pair(Elaborator *e, Frame *f, const Ast *call, const Val *args) {
  if (!count(f, "as_pair", call, 1, 1, "as_pair(x)"))
    return POISON;
  if (args[0].kind == VAL_NUMBER)
    return val_list(VAL_LIST, (Val[]){args[0], args[0]}, 2);
  if (args[0].kind == VAL_LIST && args[0].n == 2)
    return args[0];
  fail(f, call->list.at[0]->span, "PD0207", "'as_pair' needs a number or a list of two, but has %s",
       val_kind(e, args[0]));
  return POISON;
}

/* size(x, axis), shape(x), rank(x), len(list), classes(tokens) */
static Val measure(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args) {
  bool size = strcmp(name, "size") == 0, list = strcmp(name, "len") == 0;
  int64_t axis = 0;
  if (!count(f, name, call, 1 + size, 1 + size, size ? "size(x, axis)" : format("%s(x)", name)))
    return POISON;
  bool number = args[0].kind == VAL_NUMBER && (name[0] == 'r' || strcmp(name, "shape") == 0);
  if (list ? args[0].kind != VAL_LIST : args[0].kind != VAL_TENSOR && !number) {
    fail(f, call->list.at[0]->span, "PD0207", "'%s' needs a %s, but has %s", name, list ? "list" : "tensor",
         val_kind(e, args[0]));
    return POISON;
  }
  if (list)
    return val_number(args[0].n);
  if (number)
    return name[0] == 'r' ? val_number(0) : val_list(VAL_LIST, NULL, 0);
  const Value *x = &e->g->values.at[args[0].value];
  if (name[0] == 'r')
    return val_number(x->shape.rank);
  if (name[0] == 'c') {
    if (x->type == TYPE_TOKEN)
      return val_number((double)x->classes);
    help(fail(f, call->list.at[0]->span, "PD0207", "only tokens have classes, and '%s' holds numbers", x->name),
         "tokens come from a declaration such as 'input tokens[128] : token(256);'");
    return POISON;
  }
  if (size) {
    if (!want_whole(e, f, args[1], call->list.at[1]->span, "the axis", &axis))
      return POISON;
    if (axis < 0)
      axis += x->shape.rank;
    if (axis >= 0 && axis < x->shape.rank)
      return val_number((double)x->shape.dim[axis]);
    fail(f, call->list.at[1]->span, "PD0303", "a value of shape %s has no such axis", shape_text(&x->shape));
    return POISON;
  }
  Val v = {.kind = VAL_LIST, .n = x->shape.rank, .list = alloc((size_t)x->shape.rank * sizeof(Val))};
  for (int i = 0; i < v.n; i++)
    v.list[i] = val_number((double)x->shape.dim[i]);
  return v;
}

Val builtin_call(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args) {
  double x;
  if (strcmp(name, "min") == 0 || strcmp(name, "max") == 0)
    return extreme(e, f, name, call, args);
  if (strcmp(name, "as_pair") == 0)
    return as_pair(e, f, call, args);
  if (strcmp(name, "require") == 0 || strcmp(name, "expect") == 0)
    return require(e, f, name, call, args);
  if (strcmp(name, "normal") == 0 || strcmp(name, "uniform") == 0 || strcmp(name, "constant") == 0)
    return initial(e, f, name, call, args);
  if (strcmp(name, "floor") == 0 || strcmp(name, "ceil") == 0) {
    if (!count(f, name, call, 1, 1, format("%s(x)", name)))
      return POISON;
    if (!want_number(e, f, args[0], call->list.at[0]->span, format("the argument of '%s'", name), &x))
      return POISON;
    return val_number(name[0] == 'f' ? floor(x) : ceil(x));
  }
  if (strcmp(name, "einsum") == 0)
    return einsum(e, f, call, args);
  if (strcmp(name, "token") == 0) {
    fail(f, call->span, "PD0111", "'token(classes)' is the type of an input or a target, not a value");
    return POISON;
  }
  return measure(e, f, name, call, args);
}
