/* The statement `y, h_n = scan(x_t in x, h = h_0) { .. }`. Its body runs once, on marks: the row of a step and the
 * states before it. bodies.c turns the nodes between the marks into the body of a scan after elaboration. */
#include "elaborate/internal.h"

#include <string.h>

/* A loop under construction. */
typedef struct Scan {
  int number;
  int64_t steps; /* 0: no scanned value yet */
  int64_t keep;  /* steps between kept states; 0: not given */
  bool reverse, good;
  Vec(const Ast *) scanned, states; /* arguments */
  Ints state;                       /* the marks of `states` */
} Scan;

static void declare(Elaborator *e, Frame *f, const Ast *argument, const Op *mark, int value, int number) {
  Attr attr[MAX_ATTR] = {{.number = number}};
  Val v = build(e, f, mark, &value, 1, attr, argument->span, argument->span);
  if (v.kind == VAL_TENSOR) {
    e->g->values.at[v.value].name = argument->name;
    e->g->values.at[v.value].named_in = f->scope;
  }
  variable_declare(f, argument->name, v, true, argument->span2);
}

static bool no_tensor(Elaborator *e, Frame *f, const Ast *a, Val v, const char *what) {
  if (v.kind == VAL_POISON)
    return true;
  if (v.kind == VAL_TENSOR)
    return false;
  Diagnostic *d =
      fail(f, a->a->span, "PD0312", "%s '%s' must be a tensor, but is %s", what, a->name, val_kind(e, v));
  help(d, "write zeros as 'full(0, [size])'");
  return true;
}

/* `x_t in x`: rows of x. */
static bool bind_scanned(Elaborator *e, Frame *f, const Ast *a, Val v, Scan *s) {
  if (no_tensor(e, f, a, v, "the scanned value"))
    return false;
  const Shape shape = e->g->values.at[v.value].shape;
  if (shape.rank == MAX_RANK) {
    fail(f, a->a->span, "PD0312", "'%s' is a row of a value with %d axes; the limit is %d", a->name, MAX_RANK,
         MAX_RANK - 1);
    return false;
  }
  if (shape.rank == 0) {
    fail(f, a->a->span, "PD0312", "'%s' runs over the first axis of a value, but this has none", a->name);
    return false;
  }
  if (s->steps && s->steps != shape.dim[0]) {
    Diagnostic *d = fail(f, a->a->span, "PD0312", "'%s' has %lld steps, but '%s' has %lld", a->name,
                         (long long)shape.dim[0], s->scanned.at[0]->name, (long long)s->steps);
    note_at(d, s->scanned.at[0]->span, "the other scanned value is here");
    return false;
  }
  s->steps = shape.dim[0];
  push(&s->scanned, a);
  declare(e, f, a, &op_step, v.value, s->number);
  return true;
}

/* `h = h_0`: a state with its initial value. */
static bool bind_state(Elaborator *e, Frame *f, const Ast *a, Val v, Scan *s) {
  if (no_tensor(e, f, a, v, "the initial value of"))
    return false;
  if (e->g->values.at[v.value].type != TYPE_F32) {
    fail(f, a->a->span, "PD0312", "the state '%s' must hold numbers, but its initial value holds tokens", a->name);
    return false;
  }
  if (s->states.n == MAX_STATES) {
    fail(f, a->span, "PD0312", "a scan carries at most %d states", MAX_STATES);
    return false;
  }
  push(&s->states, a);
  push(&s->state, e->g->values.n);
  declare(e, f, a, &op_state, v.value, s->number);
  return true;
}

static bool bind(Elaborator *e, Frame *f, const Ast *a, Val v, Scan *s) {
  if (!a->name) {
    help(fail(f, a->span, "PD0116", "the arguments of a scan have names"),
         "'x_t in x' takes the rows of x, 'h = h_0' carries a state from step to step");
    return false;
  }
  if (strcmp(a->name, "reverse") == 0 && !a->text)
    return want_bool(e, f, v, a->a->span, "'reverse'", &s->reverse);
  if (strcmp(a->name, "keep") == 0 && !a->text && v.kind == VAL_WORD && strcmp(v.word, "none") == 0)
    return true;
  if (strcmp(a->name, "keep") == 0 && !a->text)
    return want_size(e, f, v, a->a->span, &s->keep);
  return a->text ? bind_scanned(e, f, a, v, s) : bind_state(e, f, a, v, s);
}

/* Declares the variables of the body. All arguments are evaluated before. */
static void bind_all(Elaborator *e, Frame *f, const Ast *call, Scan *s) {
  Val *given = alloc((size_t)(call->list.n + 1) * sizeof *given);
  for (int i = 0; i < call->list.n; i++)
    given[i] = evaluate(e, f, call->list.at[i]->a);
  for (int i = 0; i < call->list.n; i++) {
    for (int k = 0; k < i; k++)
      if (call->list.at[i]->name && call->list.at[i]->name == call->list.at[k]->name && s->good) {
        fail(f, call->list.at[i]->span, "PD0206", "'%s' is given twice", call->list.at[i]->name);
        s->good = false;
      }
    s->good = bind(e, f, call->list.at[i], given[i], s) && s->good;
  }
  if (s->good && !s->steps) {
    help(fail(f, call->span, "PD0116", "a scan needs a value to run over"),
         "'x_t in x' names the row of each step: 'y, h_n = scan(x_t in x, h = h_0) { ... }'");
    s->good = false;
  }
  if (s->good && s->keep && s->steps % s->keep) {
    Diagnostic *d = fail(f, call->span, "PD0312", "'keep' is %lld, which does not divide the %lld steps",
                         (long long)s->keep, (long long)s->steps);
    int64_t below = s->keep < s->steps ? s->keep : s->steps;
    while (s->steps % below)
      below--;
    help(d, "write 'keep = %lld'", (long long)below);
    s->good = false;
  }
}

/* ---- results of a step ------------------------------------------------------------------------------- */

/* The values of a step's results; n: their number, -1 after a diagnostic. */
static int step_results(Elaborator *e, Frame *f, const Ast *a, Ints *results) {
  Val v = f->result;
  const int n = !f->returned ? 0 : v.kind == VAL_SEVERAL ? v.n : 1;
  for (int i = 0; i < n; i++) {
    Val one = v.kind == VAL_SEVERAL ? v.list[i] : v;
    if (one.kind == VAL_POISON)
      return -1;
    const Value *x = one.kind == VAL_TENSOR ? &e->g->values.at[one.value] : NULL;
    if (!x || x->type != TYPE_F32 || x->shape.rank >= MAX_RANK - 1) {
      fail(f, a->a->span, "PD0312", "result %d of a step must be numbers with at most %d axes, but is %s", i + 1,
           MAX_RANK - 2, val_kind(e, one));
      return -1;
    }
    push(results, one.value);
  }
  return n;
}

/* A value that all samples share, for each sample. */
static int of_each_sample(Elaborator *e, Frame *f, int value, Span span) {
  const Value *v = &e->g->values.at[value];
  if (v->shape.batched || v->type != TYPE_F32)
    return value;
  Shape s = v->shape;
  Attr attr[MAX_ATTR] = {{.n = s.rank, .list = alloc_copy(s.dim, sizeof s.dim)}, {.number = true}};
  const int node = graph_node(e->g, &op_expand, &value, 1, attr, f->scope, span);
  ensure(node >= 0);
  return graph_output(e->g, node, 0);
}

/* Adds the states after the step to `results`; false after a diagnostic. */
static bool states_after(Elaborator *e, Frame *f, const Scan *s, Ints *results) {
  for (int i = 0; i < s->states.n; i++) {
    const Ast *a = s->states.at[i];
    Variable *v = variable_find(f, a->name);
    if (v->assignment)
      v->assignment->read = true;
    if (v->val.kind == VAL_POISON)
      return false;
    const Shape before = e->g->values.at[s->state.at[i]].shape;
    if (v->val.kind == VAL_TENSOR)
      v->val.value = of_each_sample(e, f, v->val.value, a->span);
    const Value *after = v->val.kind == VAL_TENSOR ? &e->g->values.at[v->val.value] : NULL;
    if (!after || after->type != TYPE_F32 || !shape_equal(&after->shape, &before)) {
      Diagnostic *d = fail(f, v->span, "PD0312", "the state '%s' of shape %s becomes %s", a->name,
                           shape_text(&before), val_kind(e, v->val));
      note_at(d, a->span, "its initial value is here");
      help(d, "a state keeps its shape from step to step");
      return false;
    }
    push(results, v->val.value);
  }
  return true;
}

/* Variables from before the loop keep their values: a step cannot change them. */
static bool unchanged(Frame *f, const Variable *before, int n) {
  bool good = true;
  for (int i = 0; i < n; i++) {
    Variable *v = &f->variables.at[i];
    if (val_equal(v->val, before[i].val) || v->val.kind == VAL_LIST || v->val.kind == VAL_POISON)
      continue;
    if (good) {
      Diagnostic *d =
          fail(f, v->span, "PD0116", "a step of a scan cannot assign '%s', which is from outside", v->name);
      note_at(d, before[i].span, "it gets its value here");
      help(d, "carry it as a state, '%s = %s' among the scan's arguments, or use another name", v->name, v->name);
    }
    good = false;
    v->val = before[i].val;
  }
  return good;
}

static Val run_body(Elaborator *e, Frame *f, const Ast *a, Scan *s) {
  const int had = f->variables.n;
  bind_all(e, f, a->a, s);
  const Variable *before = alloc_copy(f->variables.at, (size_t)(had + 1) * sizeof *before);
  const Frame outer = *f;
  Ints results = {0};
  int n = -1;
  f->loops++;
  e->within++;
  f->returned = false;
  f->counter = NULL;
  if (s->good)
    run_block(e, f, a->b);
  else
    spoil(f, a->b);
  if (s->good && (n = step_results(e, f, a, &results)) >= 0 && !states_after(e, f, s, &results))
    n = -1;
  for (int i = had; i < f->variables.n; i++)
    f->variables.at[i].scoped = f->variables.at[i].of_scan = true;
  leave_block(f, had);
  if (!unchanged(f, before, had))
    n = -1;
  e->within--;
  f->loops = outer.loops, f->counter = outer.counter, f->returned = outer.returned, f->result = outer.result;
  if (n < 0)
    return POISON;
  if (results.n == 0) {
    fail(f, a->a->span, "PD0116", "this scan has neither a result nor a state");
    return POISON;
  }
  Attr attr[MAX_ATTR] = {{.number = s->number},
                         {.number = (double)s->steps},
                         {.number = n},
                         {.number = s->reverse},
                         {.number = (double)s->keep}};
  int node = graph_node(e->g, &op_recurrence, results.at, results.n, attr, f->scope, a->a->span);
  ensure(node >= 0);
  Val all = {.kind = VAL_SEVERAL, .n = results.n, .list = alloc((size_t)results.n * sizeof(Val))};
  for (int i = 0; i < results.n; i++)
    all.list[i] = val_tensor(graph_output(e->g, node, i));
  for (int i = n; i < results.n; i++)
    e->g->values.at[all.list[i].value].name = s->states.at[i - n]->name;
  if (n > 0 && a->list.n == n)
    all.n = n; /* without the last states */
  return all;
}

void run_scan(Elaborator *e, Frame *f, const Ast *a) {
  Scan s = {.number = ++e->loops, .good = true};
  Val v = run_body(e, f, a, &s);
  if (v.kind == VAL_SEVERAL && v.n != a->list.n) {
    int stacked = v.n - s.states.n;
    Diagnostic *d = fail(f, a->a->span, "PD0212", "%d result%s and %d last state%s for %d variable%s", stacked,
                         stacked == 1 ? "" : "s", s.states.n, s.states.n == 1 ? "" : "s", a->list.n,
                         a->list.n == 1 ? "" : "s");
    help(d, "name the returned values, then either all last states or none");
    v = POISON;
  }
  Assignment *assignment = assignment_note(e, f, a, v);
  for (int i = 0; i < a->list.n; i++) {
    Val one = v.kind == VAL_SEVERAL ? v.list[i] : POISON;
    name_value(e, f, one, a->list.at[i]->name, 0);
    variable_set(f, a->list.at[i]->name, one, a->list.at[i]->span);
    variable_find(f, a->list.at[i]->name)->assignment = assignment;
  }
}
