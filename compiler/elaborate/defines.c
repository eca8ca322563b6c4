/* -D: attributes of the model, settings of training, and arguments of optimizer and learning-rate schedule. The
 * owner may precede the name, as in "optimizer.lr". */
#include "elaborate/internal.h"
#include "optimizers/lr_schedule.h"

#include <string.h>

typedef struct Owner {
  const char *name;
  const char *article, *member; /* description of the owner's names in messages */
} Owner;

static const Owner owners[] = {[OWNER_MODEL] = {"model", "an", "attribute of the model"},
                               [OWNER_TRAIN] = {"train", "a", "setting of the training"},
                               [OWNER_OPTIMIZER] = {"optimizer", "an", "argument of the optimizer"},
                               [OWNER_LR_SCHEDULE] = {"lr_schedule", "an",
                                                      "argument of the learning rate's schedule"}};

void read_defines(Elaborator *e) {
  for (int i = 0; i < e->options->n_define; i++) {
    Ast *a = parse_define(e->options->define[i]);
    if (!a)
      continue;
    if (a->a->kind == AST_FREEZE && strcmp(a->name, "freeze") && strcmp(a->name, "train_only")) {
      help(error_at(a->span2, "PD0401", "the setting '%s' has no pattern", a->name),
           "only 'freeze' and 'train_only' take a pattern and its exceptions");
      continue;
    }
    push(&e->defines, a);
    e->defined.key_bytes = sizeof a->name;
    AstList *same = table_find(&e->defined, &a->name);
    if (!same) {
      AstList none = {0};
      same = alloc_copy(&none, sizeof none);
      table_add(&e->defined, &a->name, same);
    }
    push(same, a);
  }
}

static void add_names(const Elaborator *e, DefineOwner owner, Words *names) {
  for (int k = 0; owner == OWNER_MODEL && k < e->model->list.n; k++)
    push(names, e->model->list.at[k]->name);
  for (int k = 0; owner == OWNER_TRAIN && train_setting_names[k]; k++)
    push(names, train_setting_names[k]);
  if (owner == OWNER_TRAIN) {
    push(names, "freeze");
    push(names, "train_only");
  }
  train_argument_names(e, owner, names);
}

static bool has_name(const Elaborator *e, DefineOwner owner, Name name) {
  Words names = {0};
  if (owner == OWNER_MODEL)
    return table_number(&e->formals, &name) >= 0;
  add_names(e, owner, &names);
  for (int i = 0; i < names.n; i++)
    if (!strcmp(names.at[i], name))
      return true;
  return false;
}

/* Whether a definition applies to `owner`. The first owner takes an ambiguous name, which check_defines() then
 * refuses. */
static bool is_for(const Elaborator *e, const Ast *a, DefineOwner owner) {
  if (a->text)
    return !strcmp(a->text, owners[owner].name);
  for (int o = 0; o < (int)owner; o++)
    if (has_name(e, (DefineOwner)o, a->name))
      return false;
  return true;
}

const Ast *define_take(const Elaborator *e, DefineOwner owner, Name name) {
  const AstList *same = table_find(&e->defined, &name);
  for (int i = same ? same->n - 1 : -1; i >= 0; i--)
    if (is_for(e, same->at[i], owner))
      return same->at[i]->a;
  return NULL;
}

static void tell_unknown(const Elaborator *e, const Ast *a) {
  Words known = {0};
  int owner = -1;
  for (int o = 0; o < N_OWNERS; o++)
    if (!a->text || !strcmp(a->text, owners[o].name)) {
      add_names(e, (DefineOwner)o, &known);
      owner = a->text ? o : owner;
    }
  Diagnostic *d =
      owner >= 0
          ? error_at(a->span2, "PD0216", "'%s' is not %s %s", a->name, owners[owner].article, owners[owner].member)
      : a->text
          ? error_at(a->span2, "PD0216", "'%s' has no settings", a->text)
          : error_at(
                a->span2, "PD0216",
                "'%s' is not an attribute of the model '%s', a training setting or an argument of '%s' or '%s'",
                a->name, e->model->name, e->g->train.optimizer->name, e->g->train.lr_schedule->name);
  const char *like = owner >= 0 ? nearest(a->name, known.at, known.n) : NULL;
  if (like)
    help(d, "did you mean '%s'?", like);
  else if (owner < 0 && a->text)
    help(d, "use 'model', 'train', 'optimizer' or 'lr_schedule'");
  else if (owner < 0)
    advise_setting(d, a->name, known.at, known.n);
}

/* Lists the owners of the name with the qualified name for each. */
static void tell_ambiguous(const Ast *a, const bool *means) {
  Text what = {0}, ways = {0};
  for (int o = 0; o < N_OWNERS; o++)
    if (means[o]) {
      text_add(&what, "%s%s %s", what.n ? " and " : "", owners[o].article, owners[o].member);
      text_add(&ways, "%s'-D %s.%s=...'", ways.n ? " or " : "", owners[o].name, a->name);
    }
  help(error_at(a->span2, "PD0720", "'%s' is ambiguous: it is %s", a->name, what.at), "use %s", ways.at);
}

/* In inference, training settings do not conflict with attributes of the same name. */
void check_defines(const Elaborator *e) {
  for (int i = 0; i < e->defines.n; i++) {
    const Ast *a = e->defines.at[i];
    bool means[N_OWNERS] = {false};
    int n = 0;
    for (int o = 0; o < N_OWNERS; o++) {
      means[o] = (!a->text || !strcmp(a->text, owners[o].name)) && has_name(e, (DefineOwner)o, a->name);
      n += means[o];
    }
    if (n == 0)
      tell_unknown(e, a);
    if (n > 1 && !(e->g->inference && means[OWNER_MODEL]))
      tell_ambiguous(a, means);
  }
}

void warn_of_defines(const Elaborator *e) {
  const char *command = e->options->library      ? "pdc library"
                        : e->options->generation ? "pdc generate"
                                                 : "pdc infer";
  for (int i = 0; i < e->defines.n; i++) {
    const Ast *a = e->defines.at[i];
    bool batch = strcmp(a->name, "batch") == 0;
    bool of_model = (!a->text || !strcmp(a->text, "model")) && has_name(e, OWNER_MODEL, a->name);
    if (of_model || (batch && !e->options->generation))
      continue;
    Diagnostic *d =
        warning_at(a->span2, "PD0820", "'%s' is a training setting and has no effect with '%s'", a->name, command);
    if (batch)
      help(d, "use '--samples N' for the number of sequences generated at the same time");
    else
      help(d, "leave the option out");
  }
}
