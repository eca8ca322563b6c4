#include "autodiff/autodiff.h"

#include "simplify/simplify.h"

struct Gradients {
  Graph *g;
  int n_values;  /* number of forward values */
  bool *wanted;  /* by forward value: f32 and dependent on a parameter */
  int *gradient; /* by forward value: the accumulated sum; -1: no contribution yet */
  int *run;      /* by forward node, as from graph_runs() */
};

static const Param *param_of(const Graph *g, int value) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  return n->op->source == SOURCE_PARAMETER ? &g->params.at[node_int(n, "index")] : NULL;
}

/* ---- interface for derivative rules ------------------------------------------------------------- */

Graph *grad_graph(Gradients *d) { return d->g; }

int grad_of(Gradients *d, int node, int output) { return d->gradient[graph_output(d->g, node, output)]; }

bool grad_wanted(Gradients *d, int node, int input) { return d->wanted[d->g->nodes.at[node].in[input]]; }

int grad_build(Gradients *d, int node, const Op *op, const int *in, int n_in, const Attr *attr) {
  int made = graph_backward_node(d->g, op, in, n_in, attr, node);
  if (made < 0)
    BUG("the derivative of '%s' builds a '%s' that does not fit", d->g->nodes.at[node].op->name, op->name);
  return graph_output(d->g, made, 0);
}

int grad_constant(Gradients *d, int node, double x) {
  return grad_build(d, node, &op_constant, NULL, 0, (Attr[MAX_ATTR]){{.number = x}});
}

/* The sum for a value's gradient. Each reader of a parameter has its own sum; other values have one. */
static int *sum_of(Gradients *d, int node, int value) {
  const Param *p = param_of(d->g, value);
  if (!p)
    return &d->gradient[value];
  for (int k = 0; k < p->uses.n; k++)
    if (p->uses.at[k] == node)
      return &p->gradients.at[k];
  BUG("parameter '%s' does not know the node that reads it", p->name);
}

void grad_add(Gradients *d, int node, int input, int value) {
  int to = d->g->nodes.at[node].in[input];
  if (!d->wanted[to])
    return;
  ensure(shape_equal(&d->g->values.at[to].shape, &d->g->values.at[value].shape));
  int *sum = sum_of(d, node, to);
  *sum = *sum < 0 ? value : grad_2(d, node, &op_add, *sum, value);
}

void grad_add_broadcast(Gradients *d, int node, int input, int value) {
  int to = d->g->nodes.at[node].in[input];
  if (!d->wanted[to])
    return;
  Shape s = d->g->values.at[to].shape;
  if (!shape_equal(&s, &d->g->values.at[value].shape)) {
    Attr attr[MAX_ATTR] = {{.n = s.rank, .list = s.dim}, {.number = s.batched}};
    value = grad_build(d, node, &op_sum_to, &value, 1, attr);
  }
  grad_add(d, node, input, value);
}

void grad_share(Gradients *d, int node, int input, int value) {
  int *share = sum_of(d, node, d->g->nodes.at[node].in[input]);
  ensure(*share < 0);
  *share = value;
}

/* ---- the pass ------------------------------------------------------------------------------------ */

static void find_wanted(Gradients *d) {
  const Graph *g = d->g;
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    bool wanted = n->op->source == SOURCE_PARAMETER && is_trained(&g->params.at[node_int(n, "index")]);
    for (int k = 0; k < n->n_in && n->op->derivative; k++)
      wanted |= d->wanted[n->in[k]];
    for (int k = 0; k < n->n_out; k++)
      d->wanted[n->out[k]] = wanted && g->values.at[n->out[k]].type == TYPE_F32;
  }
}

/* The model's loss is the mean over the first loss's elements. The update divides by their number, so another
 * loss's elements have weight N_0 / N_i. */
static void seed_losses_of(Gradients *d, int node) {
  Graph *g = d->g;
  for (int i = g->n_losses - 1; i >= 0; i--) {
    int value = g->figures.at[i].value;
    if (g->values.at[value].node != node || !d->wanted[value] || param_of(g, value))
      continue;
    Shape s = g->values.at[value].shape, first = g->values.at[g->figures.at[0].value].shape;
    double weight = (double)shape_elements(&first) / (double)shape_elements(&s);
    Attr attr[MAX_ATTR] = {{.number = weight}, {.n = s.rank, .list = s.dim}, {.number = s.batched}};
    int seed = grad_build(d, node, &op_full, NULL, 0, attr);
    int *sum = &d->gradient[value];
    *sum = *sum < 0 ? seed : grad_2(d, node, &op_add, *sum, seed);
  }
}

static bool any_gradient(Gradients *d, int node) {
  for (int i = 0; i < d->g->nodes.at[node].n_out; i++)
    if (grad_of(d, node, i) >= 0)
      return true;
  return false;
}

static void note_uses(Graph *g, int n_values) {
  for (int v = 0; v < n_values; v++)
    g->values.at[v].uses = g->values.at[v].gradients = (Ints){0};
  for (int i = 0; i < g->n_forward; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      Value *v = &g->values.at[g->nodes.at[i].in[k]];
      if (g->nodes.at[v->node].op->source == SOURCE_PARAMETER || (v->uses.n && v->uses.at[v->uses.n - 1] == i))
        continue;
      push(&v->uses, i);
      push(&v->gradients, -1);
    }
}

/* Records partial sums after the derivative of `node`: its inputs' sums cover the uses from `node` on. All uses in
 * one run share the sum from the run's first use on, which is complete last. */
static void note_partial_sums(Gradients *d, int node) {
  Graph *g = d->g;
  for (int k = 0; k < g->nodes.at[node].n_in; k++) {
    int value = g->nodes.at[node].in[k];
    if (param_of(g, value))
      continue;
    Value *v = &g->values.at[value];
    for (int u = 0; u < v->uses.n; u++)
      if (v->uses.at[u] >= node && d->run[v->uses.at[u]] == d->run[node])
        v->gradients.at[u] = d->gradient[value];
  }
}

void autodiff_step(Graph *body, bool *wanted, int *gradient) {
  Gradients d = {.g = body, .n_values = body->values.n, .wanted = wanted, .gradient = gradient};
  for (int node = body->n_forward - 1; node >= 0; node--) {
    const Op *op = body->nodes.at[node].op;
    if (op->derivative && op != &op_step && any_gradient(&d, node))
      op->derivative(&d, node);
  }
}

static void save_for_scans(Graph *g) {
  Gradients d = {.g = g, .wanted = alloc((size_t)(g->values.n + 1) * sizeof *d.wanted)};
  find_wanted(&d);
  save_for_derivatives(g, d.wanted);
}

void autodiff(Graph *g) {
  if (g->inference)
    return;
  localise(g);
  save_for_scans(g);
  Gradients d = {.g = g, .n_values = g->values.n};
  d.wanted = alloc(d.n_values * sizeof *d.wanted);
  d.gradient = alloc(d.n_values * sizeof *d.gradient);
  d.run = graph_runs(g);
  for (int v = 0; v < d.n_values; v++)
    d.gradient[v] = -1;
  for (int i = 0; i < g->params.n; i++) {
    Param *p = &g->params.at[i];
    p->gradients = (Ints){0};
    for (int k = 0; k < p->uses.n; k++)
      push(&p->gradients, -1);
  }
  note_uses(g, d.n_values);
  find_wanted(&d);
  for (int node = g->n_forward - 1; node >= 0; node--) {
    seed_losses_of(&d, node);
    const Op *op = g->nodes.at[node].op;
    if (op->derivative && (op->moves_by || any_gradient(&d, node)))
      op->derivative(&d, node);
    note_partial_sums(&d, node);
  }
}
