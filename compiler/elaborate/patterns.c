/* Parameter patterns (pattern.h) in `train`: frozen parameters, groups, and exceptions of a hidden-matrix
 * optimizer. */
#include "elaborate/internal.h"
#include "optimizers/hidden.h"
#include "optimizers/optimizer.h"
#include "shared/stacked.h"
#include "pd_runtime.h"

#include <string.h>

/* ---- patterns and their matches ---------------------------------------------------------------- */

static bool contains(const char *name, struct pd_range part) {
  size_t n = strlen(name);
  for (size_t i = 0; part.n > 0 && i + part.n <= n; i++)
    if (!memcmp(name + i, part.at, part.n))
      return true;
  return false;
}

/* A parameter that illustrates the names: one that contains the alternative, else the first. */
static const Param *example(const Graph *g, struct pd_range part, bool *inside) {
  const Param *first = NULL;
  *inside = true;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    if (!p->buffer && contains(p->name, part))
      return p;
    if (!p->buffer && !first)
      first = p;
  }
  *inside = false;
  return first;
}

/* The span of an alternative in its string, if the string has no escapes. */
static Span span_of(const Ast *pattern, struct pd_range part) {
  Span s = pattern->span;
  if (s.line != s.end_line || s.end_column - s.column != (int)strlen(pattern->text) + 2 || part.n == 0)
    return s;
  s.column += 1 + (int)(part.at - pattern->text);
  s.end_column = s.column + (int)part.n;
  return s;
}

static bool matches_without(struct pd_range part, const char *name, const char *end) {
  const size_t n = strlen(name), m = strlen(end);
  const bool ends = m && n > m && !strcmp(name + n - m, end);
  return pd_alternative_matches(part, format("%.*s", (int)(ends ? n - m : n), name));
}

const Param *stack_of_matched(const Graph *g, struct pd_range part, const char *end) {
  for (int k = 0; k < g->params.n; k++) {
    const Param *p = &g->params.at[k];
    for (int form = 0; form < PD_STACKED_FORMS && p->shape.rank == 3; form++) {
      const int parts = pd_stacked_parts(p->name, form);
      for (int64_t i = 0; i < p->shape.dim[0] * parts; i++)
        if (matches_without(part, pd_stacked_name(p->name, form, i / parts, (int)(i % parts)), end))
          return p;
    }
  }
  return NULL;
}

static void tell_nothing_met(const Graph *g, const Ast *pattern, struct pd_range part) {
  Diagnostic *d =
      warning_at(span_of(pattern, part), "PD0410", "no parameter matches '%.*s'", (int)part.n, part.at);
  bool inside;
  const Param *p = example(g, part, &inside), *stack = stack_of_matched(g, part, "");
  if (stack)
    help(d, "'%s' is one parameter of all experts: a pattern selects all or none", stack->name);
  else if (inside)
    help(d, "a pattern matches whole parts of names: '*%.*s*' matches '%s'", (int)part.n, part.at, p->name);
  else if (p)
    help(d, "a parameter of this model is '%s'", p->name);
}

/* Warns of each alternative that matches no parameter; buffers do not count. */
static void check_alternatives(const Graph *g, const Ast *pattern) {
  const char *rest = pattern->text;
  struct pd_range part;
  while (pd_pattern_next(&rest, &part)) {
    bool met = false;
    for (int i = 0; i < g->params.n && !met; i++)
      met = !g->params.at[i].buffer && pd_alternative_matches(part, g->params.at[i].name);
    if (!met)
      tell_nothing_met(g, pattern, part);
  }
}

/* ---- freeze and train_only ---------------------------------------------------------------------- */

typedef struct Statement {
  const char *name, *example;
} Statement;
static const Statement freeze = {"freeze", "for example 'freeze=\"wte|h.0\"'; 'freeze=none' freezes nothing"};
static const Statement train_only = {"train_only",
                                     "for example 'train_only=\"head\"'; 'train_only=none' trains all parameters"};

typedef Vec(Selection) Selections;

/* Adds the patterns of a -D. */
static void add_defined(Selections *to, const Statement *s, const Ast *a) {
  for (int i = 0; i < a->list.n && (a->kind == AST_LIST || a->kind == AST_TUPLE); i++)
    add_defined(to, s, a->list.at[i]);
  if (a->kind == AST_FREEZE)
    check_exception(a);
  if (a->kind == AST_STRING || a->kind == AST_FREEZE)
    push(to, a->kind == AST_STRING ? (Selection){.pattern = a} : (Selection){a->a, a->b});
  else if (a->kind != AST_LIST && a->kind != AST_TUPLE && !(a->kind == AST_NAME && !strcmp(a->name, "none")))
    help(error_at(a->span, "PD0402", "'%s' takes a pattern in quotes, not '%s'", s->name, ast_text(a)), "%s",
         s->example);
}

/* The statements of the file, or the -D that replaces them. */
static Selections read_selections(const Elaborator *e, const Statement *s) {
  Selections list = {0};
  const Ast *define = define_take(e, OWNER_TRAIN, intern(s->name));
  if (define)
    add_defined(&list, s, define);
  for (int i = 0; !define && e->train && i < e->train->list.n; i++) {
    const Ast *a = e->train->list.at[i];
    if (a->kind == AST_FREEZE && !strcmp(a->name, s->name))
      push(&list, ((Selection){a->a, a->b}));
  }
  return list;
}

void read_frozen(Elaborator *e) {
  Selections frozen = read_selections(e, &freeze), only = read_selections(e, &train_only);
  for (int i = 0; i < frozen.n; i++)
    push(&e->frozen, frozen.at[i]);
  for (int i = 0; i < only.n; i++)
    push(&e->only, only.at[i]);
}

static bool selects(const Selection *s, const Param *p) {
  return !p->buffer && pd_pattern_matches(s->pattern->text, p->name) &&
         !(s->except && pd_pattern_matches(s->except->text, p->name));
}

/* Warns of patterns without effect. */
static void check_selection(const Graph *g, const Selection *s) {
  check_alternatives(g, s->pattern);
  if (!s->except)
    return;
  check_alternatives(g, s->except);
  const Param *matched = NULL;
  bool excepted = false;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    const bool match = !p->buffer && pd_pattern_matches(s->except->text, p->name);
    matched = match ? p : matched;
    excepted |= match && pd_pattern_matches(s->pattern->text, p->name);
  }
  if (matched && !excepted)
    help(warning_at(s->except->span, "PD0410", "this exception has no effect: '%s' matches nothing of it",
                    s->pattern->text),
         "'%s' matches the exception only", matched->name);
}

/* Warns of a `train_only` whose parameters `freeze` excludes, all of them. */
static void check_chosen(const Graph *g, const Selection *s) {
  bool any = false, trained = false;
  for (int i = 0; i < g->params.n; i++) {
    any |= selects(s, &g->params.at[i]);
    trained |= selects(s, &g->params.at[i]) && !g->params.at[i].frozen;
  }
  if (any && !trained)
    help(warning_at(s->pattern->span, "PD0410", "every parameter that '%s' selects is frozen", s->pattern->text),
         "'freeze' comes before 'train_only'; leave the parameters out of one of them");
}

void freeze_parameters(Elaborator *e) {
  Graph *g = e->g;
  bool trains = false;
  for (int i = 0; i < e->frozen.n; i++)
    check_selection(g, &e->frozen.at[i]);
  for (int i = 0; i < e->only.n; i++)
    check_selection(g, &e->only.at[i]);
  for (int k = 0; k < g->params.n && !g->inference; k++) { /* inference graphs train nothing */
    Param *p = &g->params.at[k];
    bool chosen = e->only.n == 0;
    for (int i = 0; i < e->only.n; i++)
      chosen |= selects(&e->only.at[i], p);
    p->frozen |= !p->buffer && !chosen;
    for (int i = 0; i < e->frozen.n; i++)
      p->frozen |= selects(&e->frozen.at[i], p);
  }
  for (int k = 0; k < g->params.n; k++)
    trains |= is_trained(&g->params.at[k]);
  for (int i = 0; i < e->only.n && trains && !g->inference; i++)
    check_chosen(g, &e->only.at[i]);
  if (!trains && e->frozen.n + e->only.n)
    error_at((e->frozen.n ? e->frozen.at[e->frozen.n - 1] : e->only.at[e->only.n - 1]).pattern->span, "PD0411",
             "every parameter of the model '%s' is frozen: there is nothing to train", e->model->name);
}

/* ---- groups ---------------------------------------------------------------------------------------- */

/* Checks a group's settings by the update rule and schedule of the model. */
static void check_group(const Train *t, const ParameterGroup *group) {
  Train as_group = *t;
  memcpy(as_group.number, group->number, sizeof as_group.number);
  if (update_rule(&as_group) != update_rule(t))
    error_at(group->span, "PD0412", "this group is updated by '%s', but the optimizer's other parameters by '%s'",
             update_rule(&as_group)->name, update_rule(t)->name);
  if (t->lr == 0 && group->lr != 0)
    help(
        error_at(
            group->span, "PD0413",
            "this group has a learning rate, but the optimizer's learning rate is 0, and groups follow the optimizer's schedule"),
        "set the optimizer's learning rate above 0; use 'freeze' for parameters that must not change");
}

static bool in_group(const Param *p, const ParameterGroup *group) {
  return is_trained(p) && pd_pattern_matches(group->pattern, p->name);
}

/* Warns if an earlier group takes some or all of this group's parameters. A special case before a general one is
 * not an overlap. */
static void check_overlap(const Graph *g, int first, int second) {
  const ParameterGroup *a = &g->train.groups.at[first], *b = &g->train.groups.at[second];
  const Param *shared = NULL;
  bool special = true, left = false;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    bool in_a = in_group(p, a), in_b = in_group(p, b);
    if (in_a && in_b && !shared)
      shared = p;
    special &= in_b || !in_a;
    left |= in_b && !in_a;
  }
  if (!shared || (special && left))
    return;
  Diagnostic *d = warning_at(b->span, "PD0414",
                             "'%s' is in this group and in an earlier group; the earlier group's settings apply",
                             shared->name);
  note_at(d, a->span, "the earlier group is here");
}

static void check_trained(const Graph *g, const ParameterGroup *group) {
  bool named = false, trained = false;
  for (int i = 0; i < g->params.n; i++) {
    trained |= in_group(&g->params.at[i], group);
    named |= g->params.at[i].frozen && pd_pattern_matches(group->pattern, g->params.at[i].name);
  }
  if (named && !trained)
    warning_at(group->span, "PD0410", "every parameter that '%s' matches is frozen", group->pattern);
}

void group_parameters(Elaborator *e) {
  Graph *g = e->g;
  Train *t = &g->train;
  for (int i = 0; e->train && i < e->train->list.n; i++) {
    const Ast *a = e->train->list.at[i];
    if (a->kind != AST_GROUP)
      continue;
    ParameterGroup group;
    read_group(e, a, &group);
    check_group(t, &group);
    check_alternatives(g, a->a);
    check_trained(g, &group);
    push(&t->groups, group);
    if (t->groups.n > PD_MAX_GROUPS) {
      error_at(a->span, "PD0402", "there are at most %d groups", PD_MAX_GROUPS);
      return;
    }
  }
  for (int i = 0; i < t->groups.n; i++) {
    for (int k = 0; k < i; k++)
      check_overlap(g, k, i);
    for (int k = 0; k < g->params.n; k++)
      if (!g->params.at[k].group && in_group(&g->params.at[k], &t->groups.at[i]))
        g->params.at[k].group = i + 1;
  }
}

/* ---- hidden matrices -------------------------------------------------------------------------------- */

void find_hidden(Elaborator *e) {
  Graph *g = e->g;
  const Optimizer *o = g->train.optimizer;
  if (e->exceptions)
    check_alternatives(g, e->exceptions);
  if (!o->others || g->inference)
    return;
  const bool *hidden = hidden_matrices(g);
  const Param *excepted = NULL;
  bool any = false;
  for (int i = 0; i < g->params.n; i++) {
    Param *p = &g->params.at[i];
    bool exception = e->exceptions && pd_pattern_matches(e->exceptions->text, p->name);
    p->hidden = hidden[i] && !exception;
    any |= p->hidden;
    if (hidden[i] && exception && !excepted)
      excepted = p;
  }
  if (any)
    return;
  Diagnostic *d =
      warning_at(e->optimizer->span, "PD0415",
                 "the model has no hidden matrix for '%s': '%s' updates all parameters", o->name, o->others);
  if (excepted)
    help(d, "'%s' is a hidden matrix, but '%s' excludes it", excepted->name, o->others);
  else
    help(d, "a hidden matrix has two axes, or is one of a stack of experts, and at least one more matrix product "
            "follows it before the loss");
}
