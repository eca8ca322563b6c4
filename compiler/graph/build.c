/* Builds a Graph node by node; answers simple questions about shapes. */
#include "graph/graph.h"

#include <string.h>

#include "ops/op.h"
#include "optimizers/lr_schedule.h"

Graph *graph_new(Name name) {
  Graph *g = alloc(sizeof *g);
  g->name = name;
  g->bodies = alloc(sizeof *g->bodies);
  optimizer_set(&g->train, &optimizer_sgd);
  lr_schedule_set(&g->train, &lr_schedule_constant);
  return g;
}

int graph_scope(Graph *g, int parent, Name path, Name layer, Span span) {
  ensure(parent < g->scopes.n);
  push(&g->scopes, (Scope){path, layer, parent, span, false});
  return g->scopes.n - 1;
}

static Attr *copy_attributes(const Op *op, const Attr *attr) {
  Attr *copy = alloc(MAX_ATTR * sizeof *copy);
  for (int i = 0; i < MAX_ATTR && op->attr[i].name; i++) {
    if (!attr)
      copy[i].number = op->attr[i].fallback;
    else
      copy[i] = attr[i];
    if (copy[i].n > 0)
      copy[i].list = alloc_copy(copy[i].list, copy[i].n * sizeof *copy[i].list);
  }
  return copy;
}

static bool operand_count_fits(const Op *op, int n_in, Span span) {
  if (n_in >= op->min_in && (op->max_in < 0 || n_in <= op->max_in))
    return true;
  Diagnostic *d =
      error_at(span, "PD0201", "'%s' does not take %d operand%s", op->name, n_in, n_in == 1 ? "" : "s");
  help(d, "its signature is '%s'", op->signature);
  if (op->by_element && n_in == 2)
    help(d, "for the elementwise choice write '%s(a, b)'", op->by_element);
  return false;
}

static int append(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int scope, Span span,
                  int serves) {
  for (int i = 0; i < n_in; i++)
    ensure(in[i] >= 0 && in[i] < g->values.n);
  ensure(scope >= 0 && scope < g->scopes.n);
  if (!operand_count_fits(op, n_in, span))
    return -1;
  ShapeRule r = {
      .g = g, .op = op, .in = in, .n_in = n_in, .attr = copy_attributes(op, attr), .scope = scope, .span = span};
  if (!op->shape(&r))
    return -1;
  Node n = {
      .op = op, .attr = r.attr, .n_in = n_in, .n_out = r.n_out, .scope = scope, .span = span, .serves = serves};
  n.in = alloc_copy(in, n_in * sizeof *in);
  n.out = alloc(r.n_out * sizeof *n.out);
  for (int i = 0; i < r.n_out; i++) {
    n.out[i] = g->values.n;
    push(&g->values, (Value){.name = intern(op->name),
                             .named_in = -1,
                             .type = r.out[i].type,
                             .classes = r.out[i].classes,
                             .shape = r.out[i].shape,
                             .node = g->nodes.n,
                             .output = i,
                             .span = span});
  }
  push(&g->nodes, n);
  return g->nodes.n - 1;
}

/* A node with a parameter at several inputs counts as one use. */
static void note_param_uses(Graph *g, int node) {
  const Node *n = &g->nodes.at[node];
  for (int i = 0; i < n->n_in; i++) {
    const Node *from = &g->nodes.at[g->values.at[n->in[i]].node];
    if (from->op->source != SOURCE_PARAMETER)
      continue;
    Param *p = &g->params.at[node_int(from, "index")];
    if (!p->uses.n || p->uses.at[p->uses.n - 1] != node)
      push(&p->uses, node);
  }
}

int graph_node(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int scope, Span span) {
  ensure(g->n_forward == g->nodes.n);
  int node = append(g, op, in, n_in, attr, scope, span, -1);
  if (node < 0)
    return -1;
  g->n_forward = g->nodes.n;
  note_param_uses(g, node);
  return node;
}

int graph_backward_node(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr, int serves) {
  ensure(serves >= 0 && serves < g->n_forward);
  const Node *forward = &g->nodes.at[serves];
  return append(g, op, in, n_in, attr, forward->scope, forward->span, serves);
}

/* ---- sources ------------------------------------------------------------------------------- */

static Attr list_attr(const Shape *s) {
  return (Attr){.n = s->rank, .list = alloc_copy(s->dim, s->rank * sizeof s->dim[0])};
}

int graph_param(Graph *g, Name name, Shape shape, int scope, Span span) {
  ensure(!shape.batched);
  int index = g->params.n;
  push(&g->params,
       (Param){.name = name, .shape = shape, .init = INIT_ZEROS, .zero_row = -1, .value = -1, .span = span});
  Attr attr[MAX_ATTR] = {{.number = index}};
  int node = graph_node(g, &op_param, NULL, 0, attr, scope, span);
  int value = graph_output(g, node, 0);
  g->params.at[index].value = value;
  g->values.at[value].name = name;
  return index;
}

int graph_input(Graph *g, Name name, bool target, Type type, int64_t classes, Shape shape, Span span) {
  int index = g->inputs.n;
  Attr attr[MAX_ATTR] = {
      {.number = index}, {.number = type == TYPE_TOKEN}, {.number = (double)classes}, list_attr(&shape)};
  int node = graph_node(g, &op_input, NULL, 0, attr, 0, span);
  int value = graph_output(g, node, 0);
  push(&g->inputs, ((Input){.name = name, .target = target, .value = value, .span = span, .from = -1}));
  g->values.at[value].name = name;
  return index;
}

int graph_operand(Graph *g, Name name, const Value *like) {
  int index = g->inputs.n;
  Attr attr[MAX_ATTR] = {{.number = index},
                         {.number = like->type == TYPE_TOKEN},
                         {.number = (double)like->classes},
                         {.number = like->shape.batched},
                         list_attr(&like->shape)};
  int node = graph_node(g, &op_operand, NULL, 0, attr, 0, like->span);
  int value = graph_output(g, node, 0);
  push(&g->inputs, ((Input){.name = name, .value = value, .span = like->span, .from = -1}));
  g->values.at[value].name = name;
  return value;
}

int graph_constant(Graph *g, double value, int scope, Span span) {
  Attr attr[MAX_ATTR] = {{.number = value}};
  return graph_output(g, graph_node(g, &op_constant, NULL, 0, attr, scope, span), 0);
}

static void insert_figure(Graph *g, int at, Figure f) {
  push(&g->figures, f);
  for (int i = g->figures.n - 1; i > at; i--)
    g->figures.at[i] = g->figures.at[i - 1];
  g->figures.at[at] = f;
}

void graph_loss(Graph *g, int value, Span span) {
  insert_figure(g, g->n_losses++, (Figure){.value = value, .span = span});
}

void graph_metric(Graph *g, Name name, Name of_mean, int value, Span span) {
  Figure f = {.metric = name, .of_mean = of_mean, .value = value, .span = span};
  insert_figure(g, graph_n_logged(g), f);
}

void graph_output_figure(Graph *g, Name name, int value, Span span) {
  g->n_outputs++;
  push(&g->figures, ((Figure){.output = name, .value = value, .span = span}));
}

/* ---- shapes, runs -------------------------------------------------------------------------- */

int64_t shape_elements(const Shape *s) {
  int64_t n = 1;
  for (int i = 0; i < s->rank; i++)
    n *= s->dim[i];
  return n;
}

int64_t layout_runs(const Shape *s, Layout layout) {
  int64_t runs = layout.blocks;
  for (int i = 0; i < layout.axis; i++)
    runs *= s->dim[i];
  return runs;
}

int64_t param_elements(const Graph *g, const Param *p) {
  int64_t part = shape_elements(&p->shape);
  if (p->layout.kind != LAYOUT_SPLIT)
    return part;
  return part * g->shards - (p->surplus ? part / p->shape.dim[0] * p->surplus : 0);
}

bool shape_equal(const Shape *a, const Shape *b) {
  if (a->batched != b->batched || a->rank != b->rank)
    return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i])
      return false;
  return true;
}

const char *shape_text(const Shape *s) {
  Text t = {0};
  text_add(&t, "[");
  for (int i = 0; i < s->rank; i++)
    text_add(&t, "%s%lld", i ? ", " : "", (long long)s->dim[i]);
  text_add(&t, "]");
  return t.at;
}

int *graph_runs(const Graph *g) {
  int *run = alloc((g->nodes.n + 1) * sizeof *run);
  int current = 0;
  if (g->loop.steps)
    return run;
  for (int i = 0; i < g->n_forward; i++) {
    if (i > 0 && g->nodes.at[i].scope != g->nodes.at[i - 1].scope)
      current++;
    run[i] = current;
  }
  for (int i = g->n_forward; i < g->nodes.n; i++)
    run[i] = run[g->nodes.at[i].serves];
  return run;
}

int64_t graph_tokens_per_sample(const Graph *g) {
  for (int i = 0; i < g->inputs.n; i++) {
    const Value *v = &g->values.at[g->inputs.at[i].value];
    if (!g->inputs.at[i].target && v->type == TYPE_TOKEN)
      return shape_elements(&v->shape);
  }
  return 0;
}
