/* Warnings for valid models that train less than they appear to: unread values and inputs, and losses and
 * parameters without a gradient. */
#include "elaborate/internal.h"

#include <string.h>

/* Properties of a value of the forward graph. */
typedef struct Facts {
  bool to_unread; /* an unread assignment depends on it */
  bool to_loss;   /* a loss with a gradient depends on it */
  bool graded;    /* a loss's gradient reaches it */
  bool depends;   /* depends on a trainable parameter, neither frozen nor a buffer */
  bool trained;   /* depends on a trainable parameter that its gradient reaches */
} Facts;

typedef struct Check {
  const Graph *g;
  Facts *facts; /* by value */
} Check;

/* ---- assignments --------------------------------------------------------------------------- */

Assignment *assignment_note(Elaborator *e, const Frame *f, const Ast *a, Val v) {
  if (in_standard(f))
    return NULL;
  Assignment *made = table_find(&e->assignments, &a);
  if (!made) {
    made = alloc(sizeof *made);
    made->ast = a;
    e->assignments.key_bytes = sizeof(Ast *);
    table_add(&e->assignments, &a, made);
    push(&e->assigned, made);
  }
  for (int i = 0; i < (v.kind == VAL_SEVERAL ? v.n : 1); i++) {
    Val one = v.kind == VAL_SEVERAL ? v.list[i] : v;
    if (one.kind == VAL_TENSOR)
      push(&made->values, one.value);
  }
  return made;
}

void assignment_read(Frame *f, Name name) {
  const Variable *v = variable_find(f, name);
  if (v && v->assignment)
    v->assignment->read = true;
}

void assignments_skip(Frame *f, const Ast *a) {
  if (!a)
    return;
  if (a->kind == AST_NAME)
    assignment_read(f, a->name);
  assignments_skip(f, a->a);
  assignments_skip(f, a->b);
  assignments_skip(f, a->c);
  for (int i = 0; i < a->list.n; i++)
    assignments_skip(f, a->list.at[i]);
}

static void warn_of_unread(const Assignment *a) {
  Text names = {0};
  int n = a->ast->list.n;
  for (int i = 0; i < n; i++)
    text_add(&names, "%s'%s'", i == 0 ? "" : i + 1 < n ? ", " : " or ", a->ast->list.at[i]->name);
  Diagnostic *d = warning_at(a->ast->list.at[0]->span, "PD0341", "nothing reads %s", names.at);
  help(d, "use the value, or remove the line");
}

/* ---- dependencies between values ----------------------------------------------------------- */

static const Param *trained_param(const Graph *g, int value) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  const Param *p = n->op->source == SOURCE_PARAMETER ? &g->params.at[node_int(n, "index")] : NULL;
  return p && is_trained(p) ? p : NULL;
}

static void find_dependence(Check *c) {
  for (int i = 0; i < c->g->nodes.n; i++) {
    const Node *n = &c->g->nodes.at[i];
    Facts *out = &c->facts[n->out[0]];
    out->depends = out->trained = trained_param(c->g, n->out[0]) != NULL;
    for (int k = 0; k < n->n_in; k++) {
      out->depends |= c->facts[n->in[k]].depends;
      out->trained |= c->facts[n->in[k]].trained && node_passes_gradient(n, k);
    }
    for (int k = 1; k < n->n_out; k++) {
      c->facts[n->out[k]].depends = out->depends;
      c->facts[n->out[k]].trained = out->trained;
    }
  }
}

static void find_use(Check *c, const Elaborator *e) {
  const Graph *g = c->g;
  for (int i = 0; i < g->n_losses; i++) {
    Facts *loss = &c->facts[g->figures.at[i].value];
    loss->graded = loss->to_loss = loss->trained;
  }
  for (int i = 0; i < e->assigned.n; i++)
    for (int k = 0; k < e->assigned.at[i]->values.n && !e->assigned.at[i]->read; k++)
      c->facts[e->assigned.at[i]->values.at[k]].to_unread = true;
  for (int i = g->nodes.n - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    Facts out = {0};
    for (int k = 0; k < n->n_out; k++) {
      const Facts *f = &c->facts[n->out[k]];
      out = (Facts){out.to_unread | f->to_unread, out.to_loss | f->to_loss, out.graded | f->graded, false, false};
    }
    for (int k = 0; k < n->n_in; k++) {
      Facts *in = &c->facts[n->in[k]];
      in->to_unread |= out.to_unread;
      in->to_loss |= out.to_loss;
      in->graded |= out.graded && node_passes_gradient(n, k);
    }
  }
}

/* ---- barriers to gradients, and their places ------------------------------------------------- */

/* The span of a place; for a standard layer, that of its call. */
static Span outside(const Graph *g, int scope, Span span) {
  for (; scope >= 0; scope = g->scopes.at[scope].parent)
    if (g->scopes.at[scope].standard)
      span = g->scopes.at[scope].span;
  return span;
}

/* "mask", of "attention(q[heads, length, size], k, v, mask, causal = false)". */
static const char *operand_name(const Op *op, int operand) {
  const char *p = strchr(op->signature, '(');
  for (int depth = 0; p && *p && operand >= 0; p++) {
    depth += *p == '[';
    depth -= *p == ']';
    if (depth == 0 && (*p == '(' || *p == ',') && operand-- == 0)
      return format("%.*s", (int)strcspn(p + 1 + (p[1] == ' '), "[,)"), p + 1 + (p[1] == ' '));
  }
  return format("operand %d", operand + 1);
}

/* A node that blocks the gradient of an operand. node -1: none. */
typedef struct Barrier {
  int node, operand;
} Barrier;

static Span barrier_span(const Graph *g, Barrier b) {
  return outside(g, g->nodes.at[b.node].scope, g->nodes.at[b.node].span);
}

/* "no gradient passes through 'greater'" */
static const char *barrier_text(const Graph *g, Barrier b) {
  const Op *op = g->nodes.at[b.node].op;
  if (!op->derivative)
    return format("no gradient passes through '%s'", op->name);
  return format("'%s' passes no gradient to its operand '%s'", op->name,
                operand_name(op, node_operand(&g->nodes.at[b.node], b.operand)));
}

/* The first node that blocks the gradient of a loss on its way to this parameter. */
static Barrier barrier_before_param(const Check *c, const Param *p) {
  const Graph *g = c->g;
  bool *from = alloc((size_t)g->values.n + 1);
  from[p->value] = true;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_in; k++) {
      if (!from[n->in[k]])
        continue;
      if (!node_passes_gradient(n, k) && c->facts[n->out[0]].to_loss)
        return (Barrier){i, k};
      for (int m = 0; m < n->n_out; m++)
        from[n->out[m]] = true;
    }
  }
  return (Barrier){-1, 0};
}

/* The last node that the gradient of a loss reaches on its way to parameters. */
static Barrier barrier_behind_loss(const Check *c, int value) {
  const Graph *g = c->g;
  bool *to = alloc((size_t)g->values.n + 1);
  to[value] = true;
  for (int i = g->nodes.n - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    bool leads = false;
    for (int m = 0; m < n->n_out; m++)
      leads |= to[n->out[m]];
    for (int k = 0; k < n->n_in && leads; k++) {
      if (!node_passes_gradient(n, k) && c->facts[n->in[k]].depends)
        return (Barrier){i, k};
      to[n->in[k]] |= node_passes_gradient(n, k);
    }
  }
  return (Barrier){-1, 0};
}

/* ---- the warnings -------------------------------------------------------------------------- */

static void warn_of_losses(const Check *c) {
  for (int i = 0; i < c->g->n_losses; i++) {
    const Figure *loss = &c->g->figures.at[i];
    if (c->facts[loss->value].trained)
      continue;
    Barrier b = barrier_behind_loss(c, loss->value);
    Diagnostic *d = warning_at(loss->span, "PD0343", "this loss trains no parameter: %s",
                               b.node < 0 ? "it does not depend on a trained parameter"
                                          : "its gradient does not reach a parameter");
    if (b.node >= 0)
      note_at(d, barrier_span(c->g, b), "%s", barrier_text(c->g, b));
    help(d, "use 'metric NAME = ...;' to log a value without training on it");
  }
}

/* Parameters in one message, with a common cause. */
typedef struct Untrained {
  Barrier barrier; /* node -1: no loss depends on them */
  Span span;
  Ints params;
} Untrained;

/* "detach(weight)" freezes a weight intentionally. */
static bool is_deliberate(const Graph *g, Barrier b, const Param *p) {
  const Node *n = &g->nodes.at[b.node];
  return n->op == &op_detach && n->in[0] == p->value;
}

static void warn_of_params(const Graph *g, const Untrained *u) {
  enum { NAMED = 3 };
  Text names = {0};
  for (int i = 0; i < u->params.n && i < NAMED; i++)
    text_add(&names, "%s'%s'", i ? ", " : "", g->params.at[u->params.at[i]].name);
  if (u->params.n > NAMED)
    text_add(&names, " and %d more", u->params.n - NAMED);
  const char *plural = u->params.n > 1 ? "s" : "";
  Diagnostic *d = u->barrier.node < 0
                      ? warning_at(u->span, "PD0342", "no loss depends on the parameter%s %s", plural, names.at)
                      : warning_at(u->span, "PD0344", "%s, so the gradient%s of %s %s always zero",
                                   barrier_text(g, u->barrier), plural, names.at, u->params.n > 1 ? "are" : "is");
  help(d, "%s saved with the others, but not trained", u->params.n > 1 ? "they are" : "it is");
}

static bool same_cause(const Untrained *a, const Untrained *b) {
  if (a->barrier.node >= 0 || b->barrier.node >= 0)
    return a->barrier.node == b->barrier.node && a->barrier.operand == b->barrier.operand;
  return a->span.file == b->span.file && a->span.line == b->span.line && a->span.column == b->span.column;
}

/* Whether a loss that trains nothing, reported separately, depends on the parameter. */
static bool leads_to_silent_loss(const Check *c, const Param *p) {
  const Graph *g = c->g;
  bool *from = alloc((size_t)g->values.n + 1);
  from[p->value] = true;
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      for (int m = 0; from[g->nodes.at[i].in[k]] && m < g->nodes.at[i].n_out; m++)
        from[g->nodes.at[i].out[m]] = true;
  for (int i = 0; i < g->n_losses; i++)
    if (from[g->figures.at[i].value] && !c->facts[g->figures.at[i].value].trained)
      return true;
  return false;
}

static void warn_of_untrained(const Check *c) {
  const Graph *g = c->g;
  Vec(Untrained) all = {0};
  for (int i = 0; i < g->params.n && g->n_losses; i++) { /* a model without losses is only for inference */
    const Param *p = &g->params.at[i];
    const Facts *f = &c->facts[p->value];
    bool told = !f->to_loss && (f->to_unread || leads_to_silent_loss(c, p));
    if (!is_trained(p) || f->graded || told)
      continue;
    Untrained u = {.barrier = {-1, 0}};
    if (f->to_loss)
      u.barrier = barrier_before_param(c, p);
    if (f->to_loss && is_deliberate(g, u.barrier, p))
      continue;
    u.span = f->to_loss ? barrier_span(g, u.barrier)
                        : outside(g, g->nodes.at[g->values.at[p->value].node].scope, p->span);
    int k = 0;
    while (k < all.n && !same_cause(&all.at[k], &u))
      k++;
    if (k == all.n)
      push(&all, u);
    push(&all.at[k].params, i);
  }
  for (int i = 0; i < all.n; i++)
    warn_of_params(g, &all.at[i]);
}

static void warn_of_inputs(const Elaborator *e) {
  const Graph *g = e->g;
  bool *read = alloc((size_t)g->values.n + 1);
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      read[g->nodes.at[i].in[k]] = true;
  for (int i = 0; i < g->figures.n; i++)
    read[g->figures.at[i].value] = true;
  for (int i = 0; i < e->shown.n; i++)
    read[e->shown.at[i]] = true;
  for (int i = 0; i < g->inputs.n; i++)
    if (g->inputs.at[i].from >= 0)
      read[g->inputs.at[g->inputs.at[i].from].value] = true;
  for (int i = 0; i < g->inputs.n; i++) {
    const Input *in = &g->inputs.at[i];
    if (read[in->value])
      continue;
    Diagnostic *d =
        warning_at(in->span, "PD0345", "nothing reads the %s '%s'", in->target ? "target" : "input", in->name);
    if (in->from < 0 && in->origin <= ORIGIN_IMAGE)
      help(d, "'--data' still needs a file for it; remove the declaration");
  }
}

void warn_of_model(const Elaborator *e) {
  const Graph *g = e->g;
  Check c = {g, alloc((size_t)(g->values.n + 1) * sizeof *c.facts)};
  find_dependence(&c);
  find_use(&c, e);
  for (int i = 0; i < e->assigned.n; i++)
    if (!e->assigned.at[i]->read && e->assigned.at[i]->values.n)
      warn_of_unread(e->assigned.at[i]);
  warn_of_losses(&c);
  warn_of_untrained(&c);
  warn_of_inputs(e);
}
