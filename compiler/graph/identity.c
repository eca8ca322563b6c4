#include "graph/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "graph/text.h"
#include "graph/traits.h"
#include "ops/op.h"
#include "optimizers/lr_schedule.h"

enum { DIGITS = 16 };

/* A part of the model: the text to digest. */
typedef struct Part {
  Name name;
  Text text;
  int n_values; /* values numbered already */
} Part;

typedef struct Survey {
  const Graph *g;
  Vec(Part) parts;
  Table part_of; /* index by name */
  bool *counts;  /* by node: a loss depends on it, and it exists outside training too */
  int *part;     /* by node */
  int *local;    /* by value: its index in its part */
} Survey;

/* ---- parts ------------------------------------------------------------------------------------- */

static const char *part_name(const Graph *g, int scope) {
  int at = scope;
  while (at > 0 && g->scopes.at[at].parent > 0)
    at = g->scopes.at[at].parent;
  return at > 0 ? g->scopes.at[at].path : "the model's own";
}

static int part_named(Survey *s, const char *name) {
  const Name key = intern(name);
  int part = table_number(&s->part_of, &key);
  if (part >= 0)
    return part;
  part = s->parts.n;
  push(&s->parts, (Part){.name = key});
  table_set_number(&s->part_of, &key, part);
  return part;
}

/* The value, without operations that exist only in training. */
static int value_behind(const Graph *g, int v) {
  while (g->nodes.at[g->values.at[v].node].op->trains)
    v = g->nodes.at[g->values.at[v].node].in[0];
  return v;
}

/* Marks nodes that losses depend on; nodes are in topological order. */
static void mark(Survey *s) {
  const Graph *g = s->g;
  for (int i = 0; i < g->n_losses; i++)
    s->counts[g->values.at[g->figures.at[i].value].node] = true;
  for (int i = g->n_forward - 1; i >= 0; i--)
    for (int k = 0; s->counts[i] && k < g->nodes.at[i].n_in; k++)
      s->counts[g->values.at[g->nodes.at[i].in[k]].node] = true;
}

/* ---- their texts ------------------------------------------------------------------------------- */

/* The shortest text that reads back as the number. */
static const char *number_text(double x) {
  const char *text = "";
  for (int digits = 15; digits <= 17; digits++) {
    text = format("%.*g", digits, x);
    if (strtod(text, NULL) == x)
      break;
  }
  return text;
}

static void add_attributes(Text *t, const Node *n) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++) {
    const Attr *a = &n->attr[i];
    if (n->op->loops && i == 0) /* the number of a body, which changes with other parts; its digest follows */
      continue;
    text_add(t, " %s=", n->op->attr[i].name);
    if (n->op->attr[i].kind == ATTR_TEXT)
      text_add(t, "\"%s\"", a->text ? a->text : "");
    else if (n->op->attr[i].kind != ATTR_LIST && n->op->attr[i].kind != ATTR_PAIR)
      text_add(t, "%s", number_text(a->number));
    else
      for (int k = 0; k < a->n; k++)
        text_add(t, "%s%lld", k ? "," : "", (long long)a->list[k]);
  }
}

/* Identifies parameters and inputs by name, because indices change with other parts. */
static void add_source(Text *t, const Graph *g, const Node *n) {
  if (n->op->source == SOURCE_PARAMETER) {
    const Param *p = &g->params.at[(int)n->attr[0].number];
    text_add(t, " %s %s", p->buffer ? "buffer" : "parameter", p->name);
    return;
  }
  const Input *in = &g->inputs.at[(int)n->attr[0].number];
  text_add(t, " %s %s", in->target ? "target" : "input", in->name);
  if (in->origin != ORIGIN_FILE)
    text_add(t, " %s of %s", origin_names[in->origin], in->from >= 0 ? g->inputs.at[in->from].name : "");
  for (int i = 0; i < in->numbers.n; i++)
    text_add(t, " %s", number_text(in->numbers.at[i]));
}

static void add_operand(Survey *s, Text *t, int part, int value) {
  int v = value_behind(s->g, value), from = s->part[s->g->values.at[v].node];
  if (from == part)
    text_add(t, " %%%d", s->local[v]);
  else
    text_add(t, " %s%%%d", s->parts.at[from].name, s->local[v]);
}

static void add_node(Survey *s, int index) {
  const Node *n = &s->g->nodes.at[index];
  int part = s->part[index];
  Text t = {0};
  text_add(&t, "%s", n->op->name);
  if (n->op->source != SOURCE_NONE)
    add_source(&t, s->g, n);
  else
    add_attributes(&t, n);
  for (int i = 0; i < n->n_in; i++)
    add_operand(s, &t, part, n->in[i]);
  for (int i = 0; i < n->n_out; i++) {
    const Value *v = &s->g->values.at[n->out[i]];
    s->local[n->out[i]] = s->parts.at[part].n_values++;
    text_add(&t, " %s%s", v->shape.batched ? "b" : "", shape_text(&v->shape));
    if (v->type == TYPE_TOKEN)
      text_add(&t, " of %lld", (long long)v->classes);
  }
  text_add(&s->parts.at[part].text, "%s\n", t.at);
}

static void add_function(Identity *to, const Graph *g) {
  Survey s = {.g = g,
              .part_of.key_bytes = sizeof(Name),
              .counts = alloc((size_t)g->nodes.n * sizeof *s.counts),
              .part = alloc((size_t)g->nodes.n * sizeof *s.part),
              .local = alloc((size_t)g->values.n * sizeof *s.local)};
  mark(&s);
  for (int i = 0; i < g->n_forward; i++) {
    if (!s.counts[i] || g->nodes.at[i].op->trains)
      continue;
    s.part[i] = part_named(&s, part_name(g, g->nodes.at[i].scope));
    add_node(&s, i);
  }
  int losses = part_named(&s, "losses");
  Text t = {0};
  for (int i = 0; i < g->n_losses; i++)
    add_operand(&s, &t, losses, g->figures.at[i].value);
  text_add(&s.parts.at[losses].text, "%s", t.at ? t.at : "");
  for (int i = 0; i < s.parts.n; i++) {
    const Part *p = &s.parts.at[i];
    const char *hash = sha256_hex(p->text.at, strlen(p->text.at));
    push(&to->function, (Setting){p->name, format("%.*s", DIGITS, hash)});
  }
}

/* ---- settings ---------------------------------------------------------------------------------- */

static void add(Identity *to, const char *name, const char *value) { push(&to->settings, (Setting){name, value}); }

static const char *arguments_text(const Train *t, double lr, const double *number) {
  Text text = {0};
  text_add(&text, "lr=%s", number_text(lr));
  for (int i = 0; i < optimizer_n_numbers(t->optimizer); i++)
    text_add(&text, " %s=%s", optimizer_field(t->optimizer, i), number_text(number[i]));
  return text.at;
}

static const char *lr_schedule_text(const Train *t) {
  Text text = {0};
  text_add(&text, "%s", t->lr_schedule->name);
  for (int i = 0; i < lr_schedule_n_arguments(t->lr_schedule); i++)
    text_add(&text, " %s=%s", t->lr_schedule->argument[i].name, number_text(t->lr_number[i]));
  return text.at;
}

/* Records arguments of training-only operations, such as dropout probabilities, once each. */
static void add_training_ops(Identity *to, const Graph *g) {
  typedef struct Given {
    Name op, arguments;
  } Given;
  Table given = {.key_bytes = sizeof(Given)}, texts = {.key_bytes = sizeof(Name)}; /* Text by op */
  Vec(Name) ops = {0};
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    if (!n->op->trains)
      continue;
    Text t = {0};
    for (int k = 0; k < MAX_ATTR && n->op->attr[k].name; k++)
      if (n->op->attr[k].name[0] != '$' && n->op->attr[k].kind == ATTR_NUMBER)
        text_add(&t, "%s%s=%s", t.n ? " " : "", n->op->attr[k].name, number_text(n->attr[k].number));
    const Given one = {intern(n->op->name), t.at ? intern(t.at) : NULL};
    if (!t.at || table_find(&given, &one))
      continue;
    table_add(&given, &one, to);
    Text *all = table_find(&texts, &one.op);
    if (!all) {
      all = alloc(sizeof *all);
      *all = (Text){0};
      table_add(&texts, &one.op, all);
      push(&ops, one.op);
    }
    text_add(all, "%s%s", all->n ? ", " : "", t.at);
  }
  for (int i = 0; i < ops.n; i++) {
    const Text *all = table_find(&texts, &ops.at[i]);
    add(to, ops.at[i], all->at);
  }
}

static void add_settings(Identity *to, const Graph *g) {
  const Train *t = &g->train;
  Text frozen = {0};
  add(to, "optimizer", t->optimizer->name);
  add(to, "lr", number_text(t->lr));
  for (int i = 0; i < optimizer_n_numbers(t->optimizer); i++)
    add(to, optimizer_field(t->optimizer, i), number_text(t->number[i]));
  add(to, "decay_all", t->decay_all ? "true" : "false");
  add(to, "lr_schedule", lr_schedule_text(t));
  add(to, "clip_norm", number_text(t->clip_norm));
  add(to, "ema", number_text(t->ema));
  if (t->correction.ahead > 0 || t->correction.damping > 0)
    add(to, "delay_correction",
        format("%supdates=%s damping=%s", t->correction.automatic ? "auto " : "", number_text(t->correction.ahead),
               number_text(t->correction.damping)));
  for (int i = 0; i < t->groups.n; i++)
    add(to, format("group '%s'", t->groups.at[i].pattern),
        format("%s%s", arguments_text(t, t->groups.at[i].lr, t->groups.at[i].number),
               t->groups.at[i].decay_all ? " decay_all" : ""));
  for (int i = 0; i < g->params.n; i++)
    if (g->params.at[i].frozen)
      text_add(&frozen, "%s%s", frozen.n ? " " : "", g->params.at[i].name);
  add(to, "freeze", !frozen.n ? "none" : format("%.*s", DIGITS, sha256_hex(frozen.at, frozen.n)));
  add_training_ops(to, g);
}

Identity *graph_identity(const Graph *g) {
  Identity *to = alloc(sizeof *to);
  add_function(to, g);
  add_settings(to, g);
  to->traits = graph_traits(g);
  return to;
}
