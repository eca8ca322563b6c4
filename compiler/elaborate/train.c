/* Settings of `train`: defaults, and overrides from the command line. */
#include "elaborate/internal.h"
#include "optimizers/lr_schedule.h"
#include "schedule/program.h"

#include <math.h>
#include <string.h>

const char *const train_setting_names[] = {"batch",    "optimizer",        "lr_schedule",   "clip_norm", "ema",
                                           "pipeline", "delay_correction", "vertical_sync", "chunks",    NULL};

bool is_train_setting(Name name) {
  for (int i = 0; train_setting_names[i]; i++)
    if (strcmp(name, train_setting_names[i]) == 0)
      return true;
  return false;
}

/* ---- arguments of optimizers and schedules ------------------------------------------------- */

typedef struct Argument {
  const char *name;
  int numbers; /* how many numbers within `bounds` are stored from `number` on */
  double *number;
  Bounds bounds;
  bool whole;            /* requires an integer */
  bool truth;            /* accepts true or false instead */
  bool *decay_all;       /* accepts a word for weight decay instead */
  const Ast **pattern;   /* accepts a parameter-name pattern instead */
  const double *example; /* an example value, if `numbers` > 1 */
} Argument;

static const Bounds not_negative = {.most = HUGE_VAL};
static const Bounds batches = {.least = 1, .most = 0x1p53, .below = true};

static bool in_range(Elaborator *e, const Frame *f, const Ast *a, const char *name, Bounds bounds, double *x) {
  double got;
  if (!want_number(e, f, evaluate(e, (Frame *)f, a), a->span, format("'%s'", name), &got))
    return false;
  if (isfinite(got) && within(bounds, got)) {
    *x = got;
    return true;
  }
  error_at(a->span, "PD0402", "'%s' must be %s, but is %.15g", name, bounds_text(bounds), got);
  return false;
}

static void read_several(Elaborator *e, const Frame *f, const Argument *to, const Ast *a) {
  if ((a->kind != AST_TUPLE && a->kind != AST_LIST) || a->list.n != to->numbers) {
    Text example = {0};
    for (int i = 0; i < to->numbers; i++)
      text_add(&example, "%s%g", i ? ", " : "", to->example[i]);
    help(error_at(a->span, "PD0402", "'%s' needs %s numbers", to->name, to->numbers == 2 ? "two" : "three"),
         "for example '%s = (%s)'", to->name, example.at);
    return;
  }
  for (int i = 0; i < to->numbers; i++)
    in_range(e, f, a->list.at[i], to->name, to->bounds, &to->number[i]);
}

static void read_decay(bool *decay_all, const Ast *a) {
  bool all = a->kind == AST_NAME && strcmp(a->name, "all") == 0;
  if (all || (a->kind == AST_NAME && strcmp(a->name, "matrices") == 0)) {
    *decay_all = all;
    return;
  }
  help(error_at(a->span, "PD0402", "'decay' must be 'matrices' or 'all', not '%s'", ast_text(a)),
       "'matrices' decays parameters of two or more axes, 'all' decays every parameter");
}

static void read_pattern(const Argument *to, const Ast *a) {
  bool none = a->kind == AST_NAME && !strcmp(a->name, "none");
  if (a->kind == AST_STRING || none)
    *to->pattern = none ? NULL : a;
  else
    help(error_at(a->span, "PD0402", "'%s' takes a pattern in quotes, not '%s'", to->name, ast_text(a)),
         "for example '%s = \"head | wte\"'", to->name);
}

static void read_argument(Elaborator *e, const Frame *f, const Argument *to, const Ast *a) {
  double number;
  bool truth;
  if (to->numbers > 1)
    read_several(e, f, to, a);
  else if (to->pattern)
    read_pattern(to, a);
  else if (to->truth) {
    if (want_bool(e, f, evaluate(e, (Frame *)f, a), a->span, format("'%s'", to->name), &truth))
      *to->number = truth;
  } else if (to->decay_all)
    read_decay(to->decay_all, a);
  else if (in_range(e, f, a, to->name, to->bounds, &number)) {
    if (!to->whole || number == floor(number))
      *to->number = number;
    else
      error_at(a->span, "PD0208", "'%s' must be a whole number, but is %.15g", to->name, number);
  }
}

static void read_arguments(Elaborator *e, const Frame *f, const Ast *call, Name name, const Argument *list,
                           int n) {
  enum { MOST = MAX_OPTIMIZER_ARGUMENTS + 3 };
  _Static_assert((int)MAX_LR_ARGUMENTS <= (int)MOST, "room for either's");
  const char *names[MOST];
  bool given[MOST] = {false};
  Text signature = {0};
  ensure(n <= MOST);
  for (int i = 0; i < n; i++) {
    names[i] = list[i].name;
    text_add(&signature, "%s%s", i ? ", " : "", names[i]);
  }
  for (int i = 0; call->kind == AST_CALL && i < call->list.n; i++) {
    const Ast *a = call->list.at[i];
    int which = a->name ? 0 : i;
    while (a->name && which < n && strcmp(names[which], a->name) != 0)
      which++;
    if (which < n && !given[which]) {
      given[which] = true;
      read_argument(e, f, &list[which], a->a);
      continue;
    }
    Diagnostic *d = which < n ? error_at(a->span, "PD0206", "'%s' is given twice", names[which])
                    : a->name ? error_at(a->span2, "PD0203", "'%s' has no setting '%s'", name, a->name)
                              : error_at(a->span, "PD0204", "too many arguments for '%s'", name);
    const char *like = a->name && which >= n ? nearest(a->name, names, n) : NULL;
    if (like)
      help(d, "did you mean '%s'?", like);
    help(d, "its signature is '%s(%s)'", name, n ? signature.at : "");
  }
}

/* Arguments of -D override all other sources. */
static void read_defined(Elaborator *e, const Frame *f, DefineOwner owner, const Argument *list, int n) {
  for (int i = 0; i < n; i++) {
    const Ast *define = define_take(e, owner, intern(list[i].name));
    if (define)
      read_argument(e, f, &list[i], define);
  }
}

/* The function name of "adamw(...)" or "adamw"; NULL after a diagnostic. */
static Name function_name(const Ast *a, const char *const *known, int n, const char *what) {
  Name name = a->kind == AST_NAME ? a->name : a->kind == AST_CALL && a->a->kind == AST_NAME ? a->a->name : NULL;
  for (int i = 0; name && i < n; i++)
    if (strcmp(known[i], name) == 0)
      return name;
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_add(&t, "%s'%s'", i == 0 ? "" : i == n - 1 ? " and " : ", ", known[i]);
  Diagnostic *d = error_at(a->kind == AST_CALL ? a->a->span : a->span, "PD0404", "unknown %s '%s'", what,
                           name ? name : ast_text(a));
  const char *like = name ? nearest(name, known, n) : NULL;
  if (like)
    help(d, "did you mean '%s'?", like);
  help(d, "there are %s", t.at);
  return NULL;
}

/* ---- the optimizer's ------------------------------------------------------------------------- */

enum { MAX_ARGUMENTS = MAX_OPTIMIZER_ARGUMENTS + 3 };

/* Lists an optimizer's arguments with their destinations, and returns their count. exceptions NULL: a group, which
 * has none. */
static int optimizer_arguments(const Optimizer *o, double *lr, double *number, const Ast **exceptions,
                               bool *decay_all, Argument *list) {
  int n = 0;
  list[n++] = (Argument){.name = "lr", .numbers = 1, .number = lr, .bounds = not_negative};
  for (int i = 0; i < optimizer_n_arguments(o); i++)
    list[n++] = (Argument){.name = o->argument[i].name,
                           .numbers = o->argument[i].numbers,
                           .number = &number[optimizer_number(o, i)],
                           .bounds = o->argument[i].bounds,
                           .whole = o->argument[i].whole,
                           .truth = o->argument[i].truth,
                           .example = o->argument[i].standard};
  if (o->others && exceptions)
    list[n++] = (Argument){.name = o->others, .pattern = exceptions};
  list[n++] = (Argument){.name = "decay", .decay_all = decay_all};
  return n;
}

static void declare_attributes(const Elaborator *e, Frame *f) {
  for (int i = 0; i < e->n_attributes; i++)
    variable_declare(f, e->attributes[i].name, e->attributes[i].val, false, e->attributes[i].span);
}

void train_argument_names(const Elaborator *e, DefineOwner owner, Words *names) {
  Train t = e->g->train; /* provides storage for the numbers */
  const Ast *exceptions;
  Argument list[MAX_ARGUMENTS];
  int n = owner == OWNER_OPTIMIZER
              ? optimizer_arguments(t.optimizer, &t.lr, t.number, &exceptions, &t.decay_all, list)
              : 0;
  for (int i = 0; i < n; i++)
    push(names, list[i].name);
  for (int i = 0; owner == OWNER_LR_SCHEDULE && i < lr_schedule_n_arguments(t.lr_schedule); i++)
    push(names, t.lr_schedule->argument[i].name);
}

/* In a group's expressions, names of the optimizer's arguments mean the optimizer's values. Refuses a name that is
 * an attribute as well. */
static bool check_group_names(const Elaborator *e, const Ast *a, const Argument *list, int n) {
  bool good = true;
  for (int i = 0; a->kind == AST_NAME && i < n; i++)
    for (int k = 0; k < e->n_attributes; k++)
      if (e->attributes[k].name == a->name && !strcmp(list[i].name, a->name)) {
        Diagnostic *d =
            error_at(a->span, "PD0720",
                     "'%s' is ambiguous: it is an attribute of the model and an argument of the optimizer",
                     a->name);
        note_at(d, e->attributes[k].span, "the attribute is declared here");
        help(d, "rename the attribute");
        good = false;
      }
  const Ast *kid[] = {a->a, a->b, a->c};
  for (int i = 0; i < 3; i++)
    good &= !kid[i] || check_group_names(e, kid[i], list, n);
  for (int i = 0; i < a->list.n; i++)
    good &= check_group_names(e, a->list.at[i], list, n);
  return good;
}

static bool mentions(const Ast *a, Name name) {
  if (a->kind == AST_NAME && a->name == name)
    return true;
  const Ast *kid[] = {a->a, a->b, a->c};
  for (int i = 0; i < 3; i++)
    if (kid[i] && mentions(kid[i], name))
      return true;
  for (int i = 0; i < a->list.n; i++)
    if (mentions(a->list.at[i], name))
      return true;
  return false;
}

/* A group's own value stays where -D gives the optimizer's; 0 turns something off. */
static void warn_of_own(const Elaborator *e, const Ast *a, double value) {
  const Ast *given = define_take(e, OWNER_OPTIMIZER, a->name);
  if (!given || value == 0 || mentions(a->a, a->name))
    return;
  Diagnostic *d = warning_at(given->span, "PD0419", "'%s' does not change this group's own '%s', %.15g", a->name,
                             a->name, value);
  note_at(d, a->span2, "the group sets it here");
  help(d, "write it with the optimizer's value, '%s = FACTOR * %s;'", a->name, a->name);
}

/* Reads a group's setting by argument name. In its expression, that name means the optimizer's value. */
static void read_group_setting(Elaborator *e, const Frame *f, const Ast *group, int i, const Argument *list,
                               int n) {
  const Ast *a = group->list.at[i];
  const char *names[MAX_ARGUMENTS];
  for (int k = 0; k < i; k++)
    if (group->list.at[k]->name == a->name) {
      note_at(error_at(a->span2, "PD0403", "'%s' is set twice", a->name), group->list.at[k]->span2,
              "the first setting is here");
      return;
    }
  for (int k = 0; k < n; k++) {
    names[k] = list[k].name;
    if (!strcmp(list[k].name, a->name)) {
      read_argument(e, f, &list[k], a->a);
      if (list[k].numbers == 1)
        warn_of_own(e, a, *list[k].number);
      return;
    }
  }
  Diagnostic *d = error_at(a->span2, "PD0401", "a group has no setting '%s'", a->name);
  const char *like = nearest(a->name, names, n);
  const char *others = e->g->train.optimizer->others;
  if (like)
    help(d, "did you mean '%s'?", like);
  else if (others && !strcmp(a->name, others))
    help(d, "'%s' belongs to the optimizer: one pattern for all groups", others);
  else
    help(d, "the settings of a group are the arguments of the optimizer");
}

void read_group(Elaborator *e, const Ast *a, ParameterGroup *to) {
  const Train *t = &e->g->train;
  Instance nothing = {.path = intern("")};
  Frame f = {.instance = &nothing};
  Argument list[MAX_ARGUMENTS];
  *to = (ParameterGroup){.pattern = intern(a->a->text), .lr = t->lr, .decay_all = t->decay_all, .span = a->span};
  memcpy(to->number, t->number, sizeof to->number);
  int n = optimizer_arguments(t->optimizer, &to->lr, to->number, NULL, &to->decay_all, list);
  declare_attributes(e, &f);
  for (int i = 0; i < n; i++)
    if (list[i].numbers == 1)
      variable_declare(&f, intern(list[i].name),
                       list[i].truth ? val_bool(*list[i].number != 0) : val_number(*list[i].number), false,
                       a->span);
  for (int i = 0; i < a->list.n; i++)
    if (check_group_names(e, a->list.at[i]->a, list, n))
      read_group_setting(e, &f, a, i, list, n);
}

/* ---- settings ------------------------------------------------------------------------------ */

/* Sets the optimizer that `a` calls; false after a diagnostic. */
static bool choose_optimizer(Elaborator *e, const Ast *a) {
  enum { MOST = 16 };
  const char *known[MOST];
  int n = 0;
  for (; all_optimizers[n]; n++) {
    ensure(n < MOST);
    known[n] = all_optimizers[n]->name;
  }
  Name name = function_name(a, known, n, "optimizer");
  if (!name)
    return false;
  optimizer_set(&e->g->train, optimizer_find(name));
  e->optimizer = a;
  return true;
}

/* a NULL: the default optimizer. */
static void set_optimizer(Elaborator *e, const Frame *f, const Ast *a) {
  Train *t = &e->g->train;
  Argument list[MAX_ARGUMENTS];
  if (a && !choose_optimizer(e, a))
    return;
  int arguments = optimizer_arguments(t->optimizer, &t->lr, t->number, &e->exceptions, &t->decay_all, list);
  if (a)
    read_arguments(e, f, a, intern(t->optimizer->name), list, arguments);
  read_defined(e, f, OWNER_OPTIMIZER, list, arguments);
}

/* Checks that need all arguments, taken from `t`. */
static void check_lr_schedule(const Train *t, Span at) {
  const LrSchedule *s = t->lr_schedule;
  for (int i = 0; i < lr_schedule_n_arguments(s); i++) {
    const LrArgument *argument = &s->argument[i];
    if (isnan(t->lr_number[i])) {
      Diagnostic *d = error_at(at, "PD0402", "'%s' needs '%s', %s", s->name, argument->name, argument->means);
      help(d, "for example '%s'", s->example);
      return;
    }
    if (argument->at_most_lr && t->lr_number[i] > t->lr) {
      error_at(at, "PD0402", "'%s' (%.15g) must be at most the optimizer's 'lr' (%.15g)", argument->name,
               t->lr_number[i], t->lr);
      return;
    }
  }
  const char *refused = s->refuse ? s->refuse(t->lr_number) : NULL;
  if (refused)
    error_at(at, "PD0402", "%s", refused);
}

/* Sets the learning-rate schedule that `a` calls; false after a diagnostic. */
static bool choose_lr_schedule(Elaborator *e, const Ast *a) {
  enum { MOST = 16 };
  const char *known[MOST];
  int n = 0;
  for (; all_lr_schedules[n]; n++) {
    ensure(n < MOST);
    known[n] = all_lr_schedules[n]->name;
  }
  Name name = function_name(a, known, n, "schedule of the learning rate");
  if (!name)
    return false;
  lr_schedule_set(&e->g->train, lr_schedule_find(name));
  return true;
}

/* a NULL: the default schedule. */
static void set_lr_schedule(Elaborator *e, const Frame *f, const Ast *a) {
  Train *t = &e->g->train;
  Argument list[MAX_LR_ARGUMENTS];
  if (a && !choose_lr_schedule(e, a))
    return;
  const LrSchedule *s = t->lr_schedule;
  int arguments = lr_schedule_n_arguments(s), errors = error_count();
  for (int i = 0; i < arguments; i++)
    list[i] = (Argument){.name = s->argument[i].name,
                         .numbers = 1,
                         .number = &t->lr_number[i],
                         .bounds = s->argument[i].bounds,
                         .whole = s->argument[i].whole};
  if (a)
    read_arguments(e, f, a, intern(s->name), list, arguments);
  read_defined(e, f, OWNER_LR_SCHEDULE, list, arguments);
  if (error_count() == errors)
    check_lr_schedule(t, a ? a->span : t->span);
}

/* Refuses a correction that the optimizer does not support, after its arguments are checked. `auto` then corrects nothing,
 * so that a model may be built with any optimizer. */
static void check_correction(Train *t, const Ast *a, bool automatic) {
  const Optimizer *o = t->optimizer;
  const char *as_given = o->momentum < 0 ? "" : " as given";
  if (automatic && !keeps_momentum(t)) {
    t->correction = (DelayCorrection){0};
    t->correction_lost = true;
  } else if (t->correction.damping > 0 && update_rule(t)->whole_tensors) {
    Diagnostic *d = error_at(a->span, "PD0416",
                             "'delay_correction': the steps of '%s' depend on whole parameters and "
                             "cannot be damped",
                             o->name);
    help(d, "leave out 'damping'");
  } else if (!keeps_momentum(t) && t->correction.ahead > 0) {
    Diagnostic *d = error_at(a->span, "PD0416", "'delay_correction': '%s'%s has no momentum to extrapolate",
                             o->name, as_given);
    help(d, "use %s, or 'delay_correction = none'",
         o->momentum < 0 ? "an optimizer with a momentum" : "a momentum above 0");
  }
}

static void set_delay_correction(Elaborator *e, const Frame *f, const Ast *a) {
  static const char *const known[] = {"none", "auto", "extrapolate"};
  static const Bounds updates = {.most = 1e6};
  Train *t = &e->g->train;
  const Name name = function_name(a, known, 3, "correction of the delay");
  if (!name)
    return;
  const bool given = !strcmp(name, "extrapolate"), automatic = !strcmp(name, "auto");
  t->correction = automatic ? t->optimizer->correction : (DelayCorrection){.ahead = given ? 2 : 0};
  t->correction.automatic = automatic;
  const Argument list[] = {
      {.name = "updates", .numbers = 1, .number = &t->correction.ahead, .bounds = updates},
      {.name = "damping", .numbers = 1, .number = &t->correction.damping, .bounds = {.most = 1, .below = true}}};
  read_arguments(e, f, a, name, list, given ? 2 : 0);
  if (error_count() == 0)
    check_correction(t, a, automatic);
  t->correction_given = given;
  t->correction_span = a->span;
}

static void set_pipeline(Elaborator *e, const Ast *a) {
  Name name = a->kind == AST_NAME || a->kind == AST_WORD ? a->name : intern(ast_text(a));
  e->g->train.pipeline_span = a->span;
  if (schedule_known(name) || !strcmp(name, "auto")) { /* the planner chooses */
    e->g->train.pipeline = name;
    return;
  }
  int n;
  const char *const *known = schedule_names(&n);
  Diagnostic *d = error_at(a->span, "PD0702", "unknown schedule '%s'", name);
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_add(&t, "%s'%s'", i == 0 ? "" : i == n - 1 ? " and " : ", ", known[i]);
  help(d, "there are %s", t.at);
}

static void set_vertical_sync(Elaborator *e, Frame *f, const Ast *a) {
  want_bool(e, f, evaluate(e, f, a), a->span, "'vertical_sync'", &e->g->train.vertical_sync);
}

static void set_batch(Elaborator *e, const Frame *f, const Ast *a) {
  double batch = (double)e->g->train.batch;
  read_argument(e, f,
                &(Argument){.name = "batch", .numbers = 1, .number = &batch, .bounds = batches, .whole = true}, a);
  e->g->train.batch = (int64_t)batch;
}

static void set_chunks(Elaborator *e, Frame *f, const Ast *a) {
  int64_t chunks;
  if (!want_whole(e, f, evaluate(e, f, a), a->span, "'chunks'", &chunks))
    return;
  if (chunks >= 1 && chunks <= MOST_INTERLEAVED)
    e->g->train.chunks = chunks;
  else
    error_at(a->span, "PD0402", "'chunks' must be from 1 to %d, but is %lld", MOST_INTERLEAVED, (long long)chunks);
}

/* a NULL: the setting is absent, but -D may define its arguments. */
static void set(Elaborator *e, Frame *f, Name name, const Ast *a) {
  Train *t = &e->g->train;
  if (strcmp(name, "optimizer") == 0)
    set_optimizer(e, f, a);
  else if (strcmp(name, "lr_schedule") == 0)
    set_lr_schedule(e, f, a);
  else if (!a)
    return;
  else if (strcmp(name, "pipeline") == 0)
    set_pipeline(e, a);
  else if (strcmp(name, "delay_correction") == 0)
    set_delay_correction(e, f, a);
  else if (strcmp(name, "vertical_sync") == 0)
    set_vertical_sync(e, f, a);
  else if (strcmp(name, "chunks") == 0)
    set_chunks(e, f, a);
  else if (strcmp(name, "clip_norm") == 0)
    in_range(e, f, a, "clip_norm", not_negative, &t->clip_norm);
  else if (strcmp(name, "ema") == 0)
    in_range(e, f, a, "ema", (Bounds){.most = 1, .below = true}, &t->ema);
  else
    set_batch(e, f, a);
}

void check_exception(const Ast *a) {
  if (a->b && strcmp(a->text, "except"))
    help(error_at(a->b->span, "PD0401", "'%s' stands between two patterns", a->text),
         "exceptions follow 'except': '%s %s except %s;'", a->name, ast_text(a->a), ast_text(a->b));
}

/* Checks that `freeze "h.*";` and `group "bias" { ... }` have the form of a pattern statement, not of a
 * setting. */
static bool check_pattern(const Ast *a) {
  bool freeze = strcmp(a->name, "freeze") == 0 || strcmp(a->name, "train_only") == 0,
       group = strcmp(a->name, "group") == 0;
  if (a->kind == AST_FREEZE && freeze)
    check_exception(a);
  if ((a->kind == AST_FREEZE && freeze) || (a->kind == AST_GROUP && group))
    return true;
  if (a->kind == AST_SETTING && !freeze && !group)
    return false;
  Diagnostic *d = a->kind == AST_SETTING
                      ? error_at(a->span2, "PD0401", "'%s' is not a setting", a->name)
                      : error_at(a->span2, "PD0401", "the setting '%s' has no pattern", a->name);
  help(d, "only 'freeze \"PATTERN\";', 'train_only \"PATTERN\";' and 'group \"PATTERN\" { ... }' have patterns");
  return true;
}

void advise_setting(Diagnostic *d, Name name, const char *const *known, int n) {
  const char *like = nearest(name, known, n);
  if (like)
    help(d, "did you mean '%s'?", like);
  else if (!advise(d, name))
    help(d, "the settings are batch, optimizer, lr_schedule, clip_norm, ema, pipeline, delay_correction, "
            "vertical_sync and chunks");
}

/* `first`: earlier settings, by name. */
static void check_setting(Ast *a, Table *first) {
  if (check_pattern(a))
    return;
  if (!is_train_setting(a->name)) {
    Diagnostic *d = error_at(a->span2, "PD0401", "unknown setting '%s'", a->name);
    int n = 0;
    while (train_setting_names[n])
      n++;
    advise_setting(d, a->name, train_setting_names, n);
  }
  const Ast *other = table_find(first, &a->name);
  if (other)
    note_at(error_at(a->span2, "PD0403", "'%s' is set twice", a->name), other->span2, "the first setting is here");
  else
    table_add(first, &a->name, a);
}

void train_settings(Elaborator *e) {
  const Ast *train = e->train;
  Instance nothing = {.path = intern("")};
  Frame f = {.instance = &nothing};
  declare_attributes(e, &f);
  e->g->train = (Train){.batch = 8,
                        .pipeline = intern("flush"),
                        .span = train ? train->span : e->model->span,
                        .pipeline_span = NO_SPAN};
  e->g->train.pipeline_span = e->g->train.span;
  optimizer_set(&e->g->train, &optimizer_adamw);
  lr_schedule_set(&e->g->train, &lr_schedule_constant);
  if (train && train->name != e->model->name) {
    Diagnostic *d =
        error_at(train->span2, "PD0406", "this trains '%s', but the model is '%s'", train->name, e->model->name);
    note_at(d, e->model->span2, "the model is here");
  }
  Table first = {.key_bytes = sizeof(Name)};
  for (int i = 0; train && i < train->list.n; i++)
    check_setting(train->list.at[i], &first);
  for (int s = 0; train_setting_names[s]; s++) {
    Name name = intern(train_setting_names[s]);
    const Ast *value = NULL;
    for (int i = 0; train && i < train->list.n; i++)
      if (train->list.at[i]->name == name && train->list.at[i]->kind == AST_SETTING)
        value = train->list.at[i]->a;
    const Ast *define = define_take(e, OWNER_TRAIN, name);
    set(e, &f, name, define ? define : value);
  }
}
