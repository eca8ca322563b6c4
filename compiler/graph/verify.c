/* Invariants of every Graph between passes. */
#include "graph/graph.h"
#include "ops/op.h"

#define HOLDS(condition) \
  ((condition) ? (void)0 : BUG("graph '%s': node %d (%s): %s", g->name, i, n->op->name, #condition))

static void verify_node(const Graph *g, int i) {
  const Node *n = &g->nodes.at[i];
  HOLDS(n->n_out >= 1);
  HOLDS(n->scope >= 0 && n->scope < g->scopes.n);
  HOLDS(n->n_in >= n->op->min_in && (n->op->max_in < 0 || n->n_in <= n->op->max_in));
  HOLDS((i < g->n_forward) == (n->serves < 0));
  HOLDS(n->serves < g->n_forward);
  for (int k = 0; k < n->n_in; k++) {
    HOLDS(n->in[k] >= 0 && n->in[k] < g->values.n);
    HOLDS(g->values.at[n->in[k]].node < i);
  }
  for (int k = 0; k < n->n_out; k++) {
    HOLDS(n->out[k] >= 0 && n->out[k] < g->values.n);
    const Value *v = &g->values.at[n->out[k]];
    HOLDS(v->node == i && v->output == k);
    HOLDS(v->shape.rank >= 0 && v->shape.rank <= MAX_RANK);
    for (int d = 0; d < v->shape.rank; d++)
      HOLDS(v->shape.dim[d] >= 1);
  }
}

/* The op's shape rule must agree with the node's outputs. */
static void verify_shapes(const Graph *g, int i) {
  const Node *n = &g->nodes.at[i];
  ShapeRule *r = alloc(sizeof *r);
  *r = (ShapeRule){.g = (Graph *)g, .op = n->op, .in = n->in, .n_in = n->n_in, .scope = n->scope, .span = n->span};
  r->attr = alloc_copy(n->attr, MAX_ATTR * sizeof *n->attr);
  HOLDS(n->op->shape(r));
  HOLDS(r->n_out == n->n_out);
  for (int k = 0; k < n->n_out; k++) {
    const Value *v = &g->values.at[n->out[k]];
    HOLDS(v->type == r->out[k].type && shape_equal(&v->shape, &r->out[k].shape));
  }
}

static void verify_param(const Graph *g, const Param *p) {
  ensure(p->value >= 0 && p->value < g->values.n);
  const Shape padded = padded_shape(p);
  ensure(p->padding == 0 || (p->padding > 0 && p->shape.rank == 2));
  ensure(shape_equal(&padded, &g->values.at[p->value].shape) && !p->shape.batched);
  ensure(p->gradients.n == 0 || p->gradients.n == p->uses.n);
  ensure((!p->frozen && !p->group) || !p->buffer);
  ensure(!p->hidden || (is_trained(p) && p->shape.rank == 2));
  ensure(p->group >= 0 && p->group <= g->train.groups.n);
  for (int k = 0; k < p->gradients.n && p->frozen; k++)
    ensure(p->gradients.at[k] < 0);
  bool unread = g->inference && p->uses.n == 0; /* no output depends on the values that it would normalise */
  ensure(!p->buffer || unread || (p->uses.n == 1 && (p->gradients.n == 0 || p->gradients.at[0] >= 0)));
  for (int k = 0; k < p->uses.n; k++) {
    ensure(p->uses.at[k] >= 0 && p->uses.at[k] < g->n_forward && (k == 0 || p->uses.at[k] > p->uses.at[k - 1]));
    const Node *use = &g->nodes.at[p->uses.at[k]];
    bool reads = false;
    for (int i = 0; i < use->n_in; i++)
      reads |= use->in[i] == p->value;
    ensure(reads);
  }
  for (int k = 0; k < p->gradients.n; k++) {
    int gradient = p->gradients.at[k];
    ensure(gradient < g->values.n);
    ensure(gradient < 0 || shape_equal(&g->values.at[gradient].shape, &padded));
  }
}

static void verify_uses(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  ensure(v->uses.n == v->gradients.n);
  for (int k = 0; k < v->uses.n; k++) {
    int gradient = v->gradients.at[k];
    ensure(v->uses.at[k] >= 0 && v->uses.at[k] < g->n_forward && gradient < g->values.n);
    ensure(gradient < 0 || shape_equal(&g->values.at[gradient].shape, &v->shape));
  }
}

/* The source of a computed input must precede it and have tokens; its numbers must fit its origin. */
static void verify_input(const Graph *g, int i) {
  static const int numbers[] = {
      [ORIGIN_LENGTHS] = 1,  [ORIGIN_PRESENT] = 1, [ORIGIN_COUNTED] = 1, [ORIGIN_SHIFTED] = 1,
      [ORIGIN_SEGMENTS] = 2, [ORIGIN_MASKED] = 2,  [ORIGIN_CHOSEN] = 0};
  const Input *in = &g->inputs.at[i];
  ensure(in->value >= 0 && in->value < g->values.n);
  if (in->origin == ORIGIN_IMAGE)
    ensure(in->numbers.n == 2 * g->values.at[in->value].shape.dim[0]);
  if (in->origin <= ORIGIN_IMAGE)
    return;
  if (in->origin >= ORIGIN_NORMAL_NOISE) {
    ensure(in->from < 0 && in->numbers.n == 0);
    ensure((g->values.at[in->value].type == TYPE_TOKEN) == (in->origin == ORIGIN_RANDOM_INT));
    return;
  }
  ensure(in->from >= 0 && in->from < i);
  const Input *from = &g->inputs.at[in->from];
  ensure(g->values.at[from->value].type == TYPE_TOKEN);
  ensure(in->origin != ORIGIN_CHOSEN || from->origin == ORIGIN_MASKED);
  ensure(in->numbers.n == numbers[in->origin] ||
         (in->origin == ORIGIN_MASKED && in->numbers.n > numbers[in->origin]));
}

static void verify_loop(const Graph *g) {
  const ScanLoop *l = &g->loop;
  ensure(l->steps > 0 && g->inference && g->params.n == 0);
  ensure(l->scanned >= 0 && l->states >= 0 && l->stacked >= 0 && l->states <= MAX_STATES);
  ensure(l->scanned + l->states <= g->inputs.n && l->stacked + l->states == g->figures.n);
  for (int i = 0; i < l->states; i++)
    ensure(shape_equal(&g->values.at[g->inputs.at[l->scanned + i].value].shape,
                       &g->values.at[g->figures.at[l->stacked + i].value].shape));
}

static void verify_graph(const Graph *g) {
  ensure(g->scopes.n > 0 && g->n_forward <= g->nodes.n);
  ensure(!g->inference || g->n_forward == g->nodes.n);
  ensure(g->n_outputs == 0 || g->inference);
  for (int i = 0; i < g->nodes.n; i++)
    verify_node(g, i);
  for (int i = 0; i < g->nodes.n; i++)
    verify_shapes(g, i);
  for (int i = 0; i < g->params.n; i++)
    verify_param(g, &g->params.at[i]);
  for (int v = 0; v < g->values.n; v++)
    verify_uses(g, v);
  for (int i = 0; i < g->inputs.n; i++)
    verify_input(g, i);
  for (int i = 0; i < g->figures.n; i++) {
    const Figure *f = &g->figures.at[i];
    ensure(f->value >= 0 && f->value < g->values.n);
    ensure(g->values.at[f->value].shape.batched || g->loop.steps);
    ensure((f->metric != NULL) == (i >= g->n_losses && i < graph_n_logged(g)));
    ensure((f->output != NULL) == (i >= graph_n_logged(g)));
  }
}

void graph_verify(const Graph *g) {
  verify_graph(g);
  for (int i = 0; i < g->bodies->n; i++) {
    verify_loop(g->bodies->at[i]);
    verify_graph(g->bodies->at[i]);
  }
}
