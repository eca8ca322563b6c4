/* Compile-time execution of statements. */
#include "elaborate/internal.h"

#include <string.h>

/* ---- variables ----------------------------------------------------------------------------- */

enum { MANY_VARIABLES = 16 }; /* below this, a linear search is as fast */

static void keep_place(Frame *f, int place) {
  Variable *v = &f->variables.at[place];
  v->hidden = table_number(&f->places, &v->name);
  table_set_number(&f->places, &v->name, place);
}

static void variable_push(Frame *f, Variable v) {
  push(&f->variables, v);
  if (f->variables.n < MANY_VARIABLES && !f->places.room)
    return;
  const int first = f->places.room ? f->variables.n - 1 : 0;
  f->places.key_bytes = sizeof v.name;
  for (int i = first; i < f->variables.n; i++)
    keep_place(f, i);
}

void variable_declare(Frame *f, Name name, Val v, bool scoped, Span span) {
  variable_push(f, (Variable){.name = name, .val = v, .scoped = scoped, .span = span});
}

void variable_set(Frame *f, Name name, Val v, Span span) {
  Variable *old = variable_find(f, name);
  if (!old) {
    variable_declare(f, name, v, false, span);
    return;
  }
  old->val = v;
  old->span = span;
  old->assignment = NULL;
}

static void run_statement(Elaborator *e, Frame *f, const Ast *a);

static void remember_gone(Frame *f, const Variable *v) {
  f->gone.key_bytes = sizeof v->name;
  table_set(&f->gone, &v->name, alloc_copy(v, sizeof *v));
}

/* Parameters end with their block; assigned variables remain. */
void leave_block(Frame *f, int had) {
  const int n = f->variables.n;
  for (int i = n - 1; i >= had && f->places.room; i--)
    table_set_number(&f->places, &f->variables.at[i].name, f->variables.at[i].hidden);
  f->variables.n = had;
  for (int i = had; i < n; i++) {
    const Variable v = f->variables.at[i];
    if (v.scoped)
      remember_gone(f, &v);
    else
      variable_push(f, v);
  }
}

static void run_inner(Elaborator *e, Frame *f, const Ast *block) {
  int had = f->variables.n;
  run_block(e, f, block);
  leave_block(f, had);
}

/* Whether to stop after a statement or loop pass, because there are too many statements or errors. */
static bool exhausted(Elaborator *e, const Frame *f, const Ast *a) {
  if (error_count() - e->errors >= MOST_ERRORS && e->statements <= MAX_STATEMENTS) {
    if (diagnostic_last())
      help(diagnostic_last(), "too many errors: pdc does not read further");
    e->statements = MAX_STATEMENTS + 1;
  }
  if (e->statements <= MAX_STATEMENTS && e->statements++ == MAX_STATEMENTS)
    fail(f, a->span, "PD0211", "the model runs more than %d statements and passes through loops", MAX_STATEMENTS);
  return e->statements > MAX_STATEMENTS;
}

void run_block(Elaborator *e, Frame *f, const Ast *block) {
  for (int i = 0; i < block->list.n; i++) {
    int errors = error_count();
    if (exhausted(e, f, block->list.at[i]))
      f->returned = f->doubtful = true;
    else
      run_statement(e, f, block->list.at[i]);
    if (in_standard(f) && error_count() > errors)
      f->returned = true; /* later errors would be consequences of this one */
    if (!f->returned)
      continue;
    if (block->list.at[i]->kind == AST_RETURN && i + 1 < block->list.n)
      fail(f, block->list.at[i + 1]->span, "PD0112", "statements after 'return' have no effect");
    return;
  }
}

/* ---- assignment ---------------------------------------------------------------------------- */

void name_value(Elaborator *e, const Frame *f, Val v, Name name, int values_before) {
  if (v.kind != VAL_TENSOR || v.value < values_before)
    return;
  Value *value = &e->g->values.at[v.value];
  if (e->g->nodes.at[value->node].op->kind == OP_SOURCE)
    return;
  value->name = name;
  value->named_in = f->scope;
}

/* Evaluates the right side of `name = a`; `name` is NULL if several names share it. */
static Val evaluate_right_side(Elaborator *e, Frame *f, const Ast *a, Name name) {
  if (a->kind != AST_CALL && a->kind != AST_LABEL)
    return evaluate(e, f, a);
  bool labelled = a->kind == AST_LABEL;
  f->result_hint = name;
  Val v = evaluate_call(e, f, labelled ? a->b : a, labelled ? a->a : NULL);
  look_at(e, a, v);
  return v;
}

static void run_assign(Elaborator *e, Frame *f, const Ast *a) {
  int before = e->g->values.n, n = a->list.n;
  Val v = evaluate_right_side(e, f, a->a, n == 1 ? a->list.at[0]->name : NULL);
  if (v.kind == VAL_LIST && n > 1)
    v.kind = VAL_SEVERAL;
  if (v.kind != VAL_POISON && (v.kind == VAL_SEVERAL ? v.n : 1) != n) {
    Diagnostic *d = fail(f, a->a->span, "PD0212", "%d value%s for %d variable%s", v.kind == VAL_SEVERAL ? v.n : 1,
                         (v.kind == VAL_SEVERAL ? v.n : 1) == 1 ? "" : "s", n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++)
      underline(d, a->list.at[i]->span);
    if (n == 1)
      help(d, "use one variable per value: 'a, b = ...'");
    v = POISON;
  }
  Assignment *assignment = assignment_note(e, f, a, v);
  for (int i = 0; i < n; i++) {
    Val one = v.kind == VAL_SEVERAL ? v.list[i] : v;
    name_value(e, f, one, a->list.at[i]->name, before);
    variable_set(f, a->list.at[i]->name, one, a->list.at[i]->span);
    variable_find(f, a->list.at[i]->name)->assignment = assignment;
  }
}

/* ---- declarations -------------------------------------------------------------------------- */

bool evaluate_shape(Elaborator *e, Frame *f, const Ast *a, Shape *s) {
  bool good = true;
  *s = (Shape){0};
  if (a->list.n > MAX_RANK) {
    fail(f, a->span, "PD0310", "a shape has at most %d axes, and this has %d", MAX_RANK, a->list.n);
    return false;
  }
  double elements = 1;
  for (int i = 0; i < a->list.n; i++) {
    const Ast *dim = a->list.at[i];
    if (dim->kind == AST_RANGE) {
      fail(f, dim->span, "PD0321", "'..' is for signatures and slices; a declaration needs every size");
      return false;
    }
    bool sized = want_size(e, f, evaluate(e, f, dim), dim->span, &s->dim[s->rank++]);
    if (!sized && dim->kind == AST_NAME)
      variable_set(f, dim->name, POISON, dim->span); /* reported once */
    good = good && sized;
    elements *= (double)s->dim[i];
  }
  if (good && elements > 0x1p40) {
    fail(f, a->span, "PD0322", "'%s' of shape %s is too large", a->name, shape_text(s));
    return false;
  }
  return good;
}

bool only_in_model(Frame *f, const Ast *a, const char *what) {
  if (!f->caller && !f->loops)
    return true;
  if (f->loops)
    fail(f, a->span, "PD0116", "%s cannot be in the body of a scan", what);
  else
    fail(f, a->span, "PD0111", "%s belongs in the model, not in a layer", what);
  return false;
}

static Val initial_value(Elaborator *e, Frame *f, const Ast *a) {
  if (!a->a) {
    bool buffer = a->kind == AST_BUFFER;
    help(fail(f, a->span, "PD0215", "the %s '%s' has no initial value", buffer ? "buffer" : "parameter", a->name),
         "for example '%s %s[...] = zeros;' (or ones, constant(c), uniform(bound), normal(deviation))",
         buffer ? "buffer" : "param", a->name);
    return POISON;
  }
  Val init = evaluate(e, f, a->a);
  if (init.kind == VAL_NUMBER)
    init = (Val){.kind = VAL_INIT, .init = INIT_CONSTANT, .number = init.number};
  if (init.kind == VAL_INIT || init.kind == VAL_POISON)
    return init;
  help(fail(f, a->a->span, "PD0215", "an initial value is expected, but this is %s", val_kind(e, init)),
       "initial values are zeros, ones, constant(c), uniform(bound) and normal(deviation)");
  return POISON;
}

/* "stored = in_out": files hold the transposed matrix. */
static bool stored_in_out(Elaborator *e, Frame *f, const Ast *option, const Param *p) {
  Val v = evaluate(e, f, option->a);
  bool in_out = v.kind == VAL_WORD && strcmp(v.word, "in_out") == 0;
  if (!in_out && v.kind != VAL_POISON && !(v.kind == VAL_WORD && strcmp(v.word, "out_in") == 0))
    fail(f, option->a->span, "PD0207", "a matrix is stored 'out_in' or 'in_out', not as %s", val_kind(e, v));
  if (!in_out || p->shape.rank == 2)
    return in_out;
  fail(f, option->span, "PD0215", "only a matrix can be stored 'in_out', but '%s' has shape %s", p->name,
       shape_text(&p->shape));
  return false;
}

/* "zero_row = 0": the index of a table row initialized to zeros; `none`: no such row. */
static int64_t zero_row(Elaborator *e, Frame *f, const Ast *option, const Param *p) {
  Val v = evaluate(e, f, option->a);
  int64_t row;
  if (v.kind == VAL_POISON || (v.kind == VAL_WORD && strcmp(v.word, "none") == 0))
    return -1;
  if (!want_whole(e, f, v, option->a->span, "'zero_row'", &row))
    return -1;
  if (p->shape.rank == 2 && row >= 0 && row < p->shape.dim[0])
    return row;
  fail(f, option->span, "PD0215", "'zero_row' is a row of a matrix, but '%s' has shape %s and no row %lld",
       p->name, shape_text(&p->shape), (long long)row);
  return -1;
}

static void read_option(Elaborator *e, Frame *f, const Ast *option, Param *p) {
  if (!option || strcmp(option->name, "suffix") == 0)
    return;
  if (strcmp(option->name, "stored") == 0)
    p->stored_in_out = stored_in_out(e, f, option, p);
  else if (strcmp(option->name, "zero_row") == 0)
    p->zero_row = zero_row(e, f, option, p);
  else
    help(fail(f, option->span2, "PD0203", "a parameter has no option '%s'", option->name),
         "its options are 'stored = in_out', 'suffix = \"_l0\"' and 'zero_row = 0'");
}

#define NAME_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

/* The parameter's name in its instance: the variable's name plus the suffix, as in "suffix = "_l0"". NULL after a
 * diagnostic. */
static Name param_name(Elaborator *e, Frame *f, const Ast *a) {
  if (!a->b || strcmp(a->b->name, "suffix") != 0)
    return a->name;
  Val v = evaluate(e, f, a->b->a);
  if (v.kind == VAL_POISON)
    return NULL;
  if (v.kind == VAL_STRING && strspn(v.word, NAME_LETTERS) == strlen(v.word))
    return internf("%s%s", a->name, v.word);
  fail(f, a->b->a->span, "PD0215", "a suffix is a string of letters, digits and '_', but this is %s",
       val_kind(e, v));
  return NULL;
}

/* Returns the existing parameter of an instance that is called again. */
static Val param_again(Elaborator *e, Frame *f, const Ast *a, InstanceParam *had, const Shape *s) {
  if (had->param < 0)
    return POISON;
  const Param *p = &e->g->params.at[had->param];
  if (had->call == f->instance->calls) {
    Diagnostic *d = fail(f, a->span2, "PD0106", "a parameter named '%s' is already declared here", p->name);
    note_at(d, p->span, "the first one is here");
    help(d, "declare the parameter in a layer and call that layer with a label such as 'part[i]: ...'");
    return POISON;
  }
  had->call = f->instance->calls;
  if (p->buffer) {
    Diagnostic *d =
        fail(f, a->span, "PD0340", "'%s' keeps statistics in the buffer '%s' and cannot be called again",
             f->instance->path, p->name);
    note_at(d, f->instance->span, "the first call is here");
    help(d, "use another label: an instance with buffers of its own");
    return POISON;
  }
  if (shape_equal(&p->shape, s))
    return val_tensor(p->value);
  Diagnostic *d =
      fail(f, a->span, "PD0106", "the parameter '%s' of shape %s is shared by this call, which needs %s", p->name,
           shape_text(&p->shape), shape_text(s));
  note_at(d, f->instance->span, "the first call is here");
  return POISON;
}

static Val param_new(Elaborator *e, Frame *f, const Ast *a, Name own, const Shape *s, Val init) {
  Name name = f->instance->path[0] ? internf("%s.%s", f->instance->path, own) : own;
  const int other = table_number(&e->param_names, &name);
  if (other >= 0) {
    Diagnostic *d = fail(f, a->span2, "PD0106", "a parameter named '%s' already exists", name);
    note_at(d, e->g->params.at[other].span, "the first one is here");
    help(d, "change one of the two labels: both instances have the same path");
    return POISON;
  }
  int param = graph_param(e->g, name, *s, f->scope, a->span);
  Param *p = &e->g->params.at[param];
  p->init = init.init;
  p->init_value = init.number;
  p->buffer = a->kind == AST_BUFFER;
  read_option(e, f, a->b, p);
  instance_add_param(f->instance, (InstanceParam){own, param, f->instance->calls});
  e->param_names.key_bytes = sizeof name;
  table_set_number(&e->param_names, &name, param);
  return val_tensor(e->g->params.at[param].value);
}

static void run_param(Elaborator *e, Frame *f, const Ast *a) {
  Shape s;
  if (a->kind == AST_BUFFER && e->within)
    help(fail(f, a->span, "PD0313", "a buffer cannot be in the body of a scan"),
         "a step sees no statistics over samples; use layer_norm or group_norm instead of batch_norm");
  bool shaped = evaluate_shape(e, f, a, &s);
  Val init = initial_value(e, f, a), v = POISON;
  Name name = param_name(e, f, a);
  InstanceParam *had = name ? instance_param(f->instance, name) : NULL;
  if (had && shaped)
    v = param_again(e, f, a, had, &s);
  else if (!had && shaped && name && init.kind == VAL_INIT)
    v = param_new(e, f, a, name, &s, init);
  else if (!had)
    instance_add_param(f->instance, (InstanceParam){name ? name : a->name, -1, f->instance->calls});
  variable_declare(f, a->name, v, true, a->span);
}

/* ---- control ------------------------------------------------------------------------------- */

void spoil(Frame *f, const Ast *a) {
  if (!a)
    return;
  if (a->kind == AST_RETURN)
    f->doubtful = true;
  for (int i = 0; (a->kind == AST_ASSIGN || a->kind == AST_SCAN) && i < a->list.n; i++)
    variable_set(f, a->list.at[i]->name, POISON, a->list.at[i]->span);
  if (a->kind == AST_LABEL) {
    const Ast *root = a->a;
    while (root->kind != AST_NAME)
      root = root->a;
    if (!variable_find(f, root->name))
      variable_declare(f, root->name, POISON, false, root->span);
  }
  spoil(f, a->a);
  spoil(f, a->b);
  spoil(f, a->c);
  for (int i = 0; i < a->list.n; i++)
    spoil(f, a->list.at[i]);
}

static void run_if(Elaborator *e, Frame *f, const Ast *a) {
  bool holds;
  Val condition = evaluate(e, f, a->a);
  const char *what = a->a->kind == AST_NAME ? format("'%s'", a->a->name) : "the condition";
  if (!want_bool(e, f, condition, a->a->span, what, &holds)) {
    if (condition.kind != VAL_POISON && in_standard(f))
      help(diagnostic_last(), "its signature is '%s'", layer_signature(f->layer, true));
    spoil(f, a->b);
    spoil(f, a->c);
    return;
  }
  const Ast *branch = holds ? a->b : a->c;
  assignments_skip(f, holds ? a->c : a->b);
  if (!branch)
    return;
  if (branch->kind == AST_IF)
    run_if(e, f, branch);
  else
    run_inner(e, f, branch);
}

static bool loop_once(Elaborator *e, Frame *f, const Ast *a, Val v) {
  int had = f->variables.n;
  Name outer = f->counter;
  f->counter = a->name;
  variable_declare(f, a->name, v, true, a->span2);
  if (exhausted(e, f, a))
    f->returned = f->doubtful = true;
  else
    run_block(e, f, a->b);
  leave_block(f, had);
  f->counter = outer;
  return !f->returned;
}

static void run_for(Elaborator *e, Frame *f, const Ast *a) {
  int64_t from, to;
  if (a->a->kind != AST_RANGE) {
    Val v = evaluate(e, f, a->a);
    if (v.kind != VAL_LIST && v.kind != VAL_POISON)
      help(fail(f, a->a->span, "PD0207", "'for' runs over a list or a range, not over %s", val_kind(e, v)),
           "'0..n' counts from 0 to n - 1");
    if (v.kind != VAL_LIST)
      spoil(f, a->b);
    if (v.kind == VAL_LIST && v.n == 0)
      assignments_skip(f, a->b);
    for (int i = 0; v.kind == VAL_LIST && i < v.n; i++)
      if (!loop_once(e, f, a, v.list[i]))
        return;
    return;
  }
  bool good = want_whole(e, f, evaluate(e, f, a->a->a), a->a->a->span, "the start of the range", &from);
  good = want_whole(e, f, evaluate(e, f, a->a->b), a->a->b->span, "the end of the range", &to) && good;
  if (good && to <= from)
    assignments_skip(f, a->b);
  if (good && to - from > MAX_REPEAT) {
    fail(f, a->a->span, "PD0211", "'for' repeats at most %d times, and this would %lld", MAX_REPEAT,
         (long long)(to - from));
    good = false;
  }
  if (!good)
    spoil(f, a->b);
  for (int64_t i = from; good && i < to; i++)
    if (!loop_once(e, f, a, val_number((double)i)))
      return;
}

static void run_return(Elaborator *e, Frame *f, const Ast *a) {
  if (!f->caller && !f->loops) {
    help(fail(f, a->span2, "PD0111", "'return' is for layers; a model ends with its loss"), "write 'loss ...;'");
    return;
  }
  Val all = {.kind = VAL_SEVERAL, .n = a->list.n, .list = alloc((size_t)a->list.n * sizeof(Val))};
  for (int i = 0; i < a->list.n; i++)
    all.list[i] = evaluate(e, f, a->list.at[i]);
  f->result = a->list.n == 1 ? all.list[0] : all;
  f->returned = true;
}

/* The value; -1 after a diagnostic or for POISON. */
static int want_figure(Elaborator *e, Frame *f, Val v, const Ast *a, const char *what, const char *example) {
  if (v.kind == VAL_POISON)
    return -1;
  const Value *x = v.kind == VAL_TENSOR ? &e->g->values.at[v.value] : NULL;
  if (x && x->type == TYPE_F32 && x->shape.batched)
    return v.value;
  Diagnostic *d =
      fail(f, a->span, "PD0323", "a %s needs numbers of each sample, but this is %s%s", what, val_kind(e, v),
           x && x->type == TYPE_TOKEN ? " of tokens"
           : x                        ? " that is the same for all samples"
                                      : "");
  if (x && x->type == TYPE_F32)
    help(d, "add the value to numbers of each sample: '%s%s %s + penalty;'", what, *what == 'm' ? " NAME =" : "",
         example);
  else
    help(d, "'%s' takes the mean over all elements of a value such as '%s'", what, example);
  return -1;
}

static int want_output(Elaborator *e, Frame *f, Val v, const Ast *a) {
  const Value *x = v.kind == VAL_TENSOR ? &e->g->values.at[v.value] : NULL;
  if (v.kind == VAL_POISON || (x && x->type == TYPE_F32 && x->shape.batched))
    return v.kind == VAL_POISON ? -1 : v.value;
  Diagnostic *d =
      fail(f, a->span, "PD0802", "an output is computed from the inputs, but this is %s%s", val_kind(e, v),
           x && x->type == TYPE_TOKEN ? " of tokens"
           : x                        ? " that is the same for all samples"
                                      : "");
  help(d, "'output logits;' writes the logits of every sample");
  return -1;
}

static void run_loss(Elaborator *e, Frame *f, const Ast *a) {
  if (!only_in_model(f, a, "'loss'"))
    return;
  Val v = evaluate(e, f, a->a);
  graph_loss(e->g, want_figure(e, f, v, a->a, "loss", "cross_entropy(logits, next)"), a->span);
}

/* Whether log lines have a field of this name; validation fields start with "validation_". */
static bool is_log_field(Name name) {
  static const char *const fields[] = {"step", "loss",    "grad_norm", "lr", "samples_per_s", "tokens_per_s", "ms",
                                       "mfu",  "samples", "event",     NULL};
  static const char validation[] = "validation_";
  for (int i = 0; fields[i]; i++)
    if (strcmp(name, fields[i]) == 0)
      return true;
  return strncmp(name, validation, strlen(validation)) == 0;
}

/* "balance", or with an index "balance.0", as for instances. NULL after a diagnostic. */
static Name figure_name(Elaborator *e, Frame *f, const Ast *a) {
  if (!a->list.n)
    return a->name;
  Ast *name = ast_new(AST_NAME, a->span2), *label = ast_new(AST_INDEX, a->span2);
  name->name = a->name;
  label->a = name;
  label->list = a->list;
  return label_text(e, f, label);
}

/* Reports a repeated name; in a loop, suggests its index. */
static void declared_again(Frame *f, const Ast *a, const char *what, Name name, Span first) {
  Diagnostic *d = fail(f, a->span2, "PD0104", "%s named '%s' is already declared", what, name);
  if (f->counter && !a->list.n)
    help(d, "use the loop counter in the name: '%s[%s]'", name, f->counter);
  note_at(d, first, "the first one is here");
}

/* `declared`: earlier statements of this kind, by name. Adds the statement if it is the first of its name. */
static bool is_first(Frame *f, const Ast *a, const char *what, Name name, Table *declared) {
  const Ast *first = table_find(declared, &name);
  if (first) {
    declared_again(f, a, what, name, first->span);
    return false;
  }
  declared->key_bytes = sizeof name;
  table_add(declared, &name, (void *)a);
  return true;
}

static bool metric_name_is_free(Elaborator *e, Frame *f, const Ast *a, Name name) {
  if (is_log_field(name)) {
    fail(f, a->span2, "PD0104", "'%s' is a field of every log and cannot name a metric", name);
    return false;
  }
  return is_first(f, a, "a metric", name, &e->metrics);
}

/* The function name in "of_mean = exp". NULL without the option, or after a diagnostic. */
static Name of_mean(Elaborator *e, Frame *f, const Ast *option) {
  if (!option)
    return NULL;
  if (strcmp(option->name, "of_mean") != 0) {
    help(fail(f, option->span2, "PD0203", "a metric has no option '%s'", option->name),
         "the option is 'of_mean = exp' or 'of_mean = sqrt'");
    return NULL;
  }
  Val v = evaluate(e, f, option->a);
  bool known = v.kind == VAL_LAYER && v.op && (!strcmp(v.word, "exp") || !strcmp(v.word, "sqrt"));
  if (known)
    return v.word;
  if (v.kind != VAL_POISON)
    fail(f, option->a->span, "PD0207", "'of_mean' must be 'exp' or 'sqrt', not %s", val_kind(e, v));
  return NULL;
}

static void run_metric(Elaborator *e, Frame *f, const Ast *a) {
  if (!only_in_model(f, a, "'metric'"))
    return;
  Name name = figure_name(e, f, a);
  if (!name)
    return;
  int before = e->g->values.n;
  Val v = evaluate_right_side(e, f, a->a, name);
  name_value(e, f, v, name, before);
  bool is_free = metric_name_is_free(e, f, a, name);
  Name function = of_mean(e, f, a->b);
  int value = want_figure(e, f, v, a->a, "metric", "accuracy(logits, label)");
  if (is_free)
    graph_metric(e->g, name, function, value, a->span);
}

/* A training graph checks an output and omits it. */
static void run_output(Elaborator *e, Frame *f, const Ast *a) {
  if (!only_in_model(f, a, "'output'"))
    return;
  Name name = figure_name(e, f, a);
  if (!name)
    return;
  Ast *named = ast_new(AST_NAME, a->span2);
  named->name = name;
  int before = e->g->values.n;
  Val v = a->a ? evaluate_right_side(e, f, a->a, name) : evaluate(e, f, named);
  if (a->a)
    name_value(e, f, v, name, before);
  bool is_free = is_first(f, a, "an output", name, &e->outputs);
  int value = want_output(e, f, v, a->a ? a->a : named);
  if (is_free && value >= 0)
    graph_output_figure(e->g, name, value, a->span);
}

static void run_expression(Elaborator *e, Frame *f, const Ast *a) {
  bool require = a->a->kind == AST_CALL && a->a->a->kind == AST_NAME &&
                 (strcmp(a->a->a->name, "require") == 0 || strcmp(a->a->a->name, "expect") == 0);
  bool call = a->a->kind == AST_CALL || a->a->kind == AST_LABEL;
  Val v = call ? evaluate_call(e, f, a->a->kind == AST_LABEL ? a->a->b : a->a,
                               a->a->kind == AST_LABEL ? a->a->a : NULL)
               : evaluate(e, f, a->a);
  if (require || v.kind == VAL_POISON)
    return;
  help(fail(f, a->span, "PD0113", "nothing uses this value"), "assign it: 'x = %s;'", ast_text(a->a));
}

static void run_statement(Elaborator *e, Frame *f, const Ast *a) {
  switch (a->kind) {
  case AST_ASSIGN: run_assign(e, f, a); break;
  case AST_SCAN: run_scan(e, f, a); break;
  case AST_EXPRESSION: run_expression(e, f, a); break;
  case AST_PARAM:
  case AST_BUFFER: run_param(e, f, a); break;
  case AST_INPUT:
  case AST_TARGET: run_input(e, f, a); break;
  case AST_LOSS: run_loss(e, f, a); break;
  case AST_METRIC: run_metric(e, f, a); break;
  case AST_OUTPUT: run_output(e, f, a); break;
  case AST_RETURN: run_return(e, f, a); break;
  case AST_IF: run_if(e, f, a); break;
  case AST_FOR: run_for(e, f, a); break;
  default: BUG("no statement: %d", a->kind);
  }
}
