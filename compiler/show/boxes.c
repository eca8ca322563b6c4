/* The graph as boxes and edges. A box is an instance, or a run of the model's own operations; edges are values
 * between boxes. */
#include <string.h>

#include "ops/op.h"
#include "show/show.h"

static int part_of_piece(const Plan *plan, int piece) {
  int part = 0;
  while (plan && part + 1 < plan_parts(plan) && piece >= plan->stage[part + 1].first_piece)
    part++;
  return part;
}

/* The source value of a view, or the value itself. */
static int whole_value(const Graph *g, int value) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  while (n->op->kind == OP_VIEW && n->n_in > 0) {
    value = n->in[0];
    n = &g->nodes.at[g->values.at[value].node];
  }
  return value;
}

static double node_products(const Graph *g, const Node *n, int i) {
  return n->op->cost ? n->op->cost(g, i).matmul_flops : 0;
}

/* The box for a node: that of its instance in this part, or the current run of operations. */
static int box_for(const Show *s, Boxes *b, int scope, int part, int last) {
  const Outlined *at = &s->outline->at[scope];
  bool run = scope == 0 || (!at->leaf && at->depth < s->depth);
  for (int i = run && last >= 0 ? last : 0; i < b->boxes.n && (!run || i == last); i++)
    if (b->boxes.at[i].scope == scope && b->boxes.at[i].part == part && b->boxes.at[i].run == run)
      return i;
  Box box = {.scope = scope, .part = part, .run = run, .output = ""};
  if (!run) {
    const Scope *instance = &s->g->scopes.at[scope];
    box.label = *instance->path ? instance->path : instance->layer;
    box.layer = instance->layer;
    box.output = at->output;
  }
  push(&b->boxes, box);
  return b->boxes.n - 1;
}

/* "add, matmul" */
static void add_operation(Box *box, const Graph *g, const Node *n) {
  const char *said = box->label ? box->label : "";
  size_t length = strlen(n->op->name);
  const char *at = strstr(said, n->op->name);
  if (at && (at == said || at[-1] == ' ') && (at[length] == ',' || !at[length]))
    return;
  box->label = *said ? internf("%s, %s", said, n->op->name) : n->op->name;
  box->output = shape_text(&g->values.at[n->out[0]].shape);
}

static void add_input(Box *box, Name name) {
  for (int i = 0; i < box->inputs.n; i++)
    if (box->inputs.at[i] == name)
      return;
  push(&box->inputs, name);
}

static void add_edge(Boxes *b, const Value *v, Name parameter, int from, int to) {
  double bytes = 4 * (double)shape_elements(&v->shape);
  for (int i = 0; i < b->edges.n; i++)
    if (b->edges.at[i].from == from && b->edges.at[i].to == to && b->edges.at[i].parameter == parameter) {
      b->edges.at[i].bytes += bytes;
      return;
    }
  push(&b->edges, ((Edge){from, to, v->shape, bytes, parameter}));
}

/* The box of this node's parameter, the first of its instance; -1: none. */
static int owner_of(const Show *s, const Boxes *b, const Node *parameter) {
  int scope = scope_shown(s->g, s->outline, parameter->scope, s->depth);
  for (int i = 0; i < b->boxes.n; i++)
    if (b->boxes.at[i].scope == scope && !b->boxes.at[i].run)
      return i;
  return -1;
}

/* Adds the node's inputs from other boxes and from data. `seen`: by value, 1 + the last box that read it. */
static void add_reads(const Show *s, Boxes *b, const int *box, int *seen, int node) {
  const Graph *g = s->g;
  const Node *n = &g->nodes.at[node];
  int to = box[node];
  for (int k = 0; k < n->n_in; k++) {
    int v = whole_value(g, n->in[k]);
    const Node *by = &g->nodes.at[g->values.at[v].node];
    bool parameter = by->op->source == SOURCE_PARAMETER;
    int from = parameter ? owner_of(s, b, by) : box[g->values.at[v].node];
    if (by->op->source == SOURCE_INPUT)
      add_input(&b->boxes.at[to], g->inputs.at[(int)by->attr[0].number].name);
    bool own = parameter && from >= 0 && b->boxes.at[from].scope == b->boxes.at[to].scope;
    if (from < 0 || from == to || own || seen[v] == to + 1)
      continue;
    seen[v] = to + 1;
    add_edge(b, &g->values.at[v], parameter ? g->params.at[(int)by->attr[0].number].name : NULL, from, to);
  }
}

/* Adds to each box the parameters of its instance that its part uses. */
static void add_parameters(const Show *s, Boxes *b) {
  const Graph *g = s->g;
  int *counted = alloc((size_t)(g->params.n + 1) * sizeof *counted); /* 1 + the last part that counted it */
  for (int piece = 0; piece < s->p->n; piece++)
    for (int k = 0; k < s->p->at[piece].params.n; k++) {
      int q = s->p->at[piece].params.at[k], part = part_of_piece(s->plan, piece);
      const Node *made = &g->nodes.at[g->values.at[g->params.at[q].value].node];
      int scope = scope_shown(g, s->outline, made->scope, s->depth);
      for (int i = 0; i < b->boxes.n && counted[q] != part + 1 && !g->params.at[q].buffer; i++)
        if (b->boxes.at[i].scope == scope && b->boxes.at[i].part == part) {
          b->boxes.at[i].parameters += (double)shape_elements(&g->params.at[q].shape);
          counted[q] = part + 1;
        }
    }
}

/* By visible scope: whether it computes anything. */
static bool *find_computing(const Show *s) {
  bool *computes = alloc((size_t)s->g->scopes.n);
  for (int i = 0; i < s->g->n_forward; i++) {
    const Node *n = &s->g->nodes.at[i];
    if (n->op->kind != OP_SOURCE && n->op->kind != OP_VIEW)
      computes[scope_shown(s->g, s->outline, n->scope, s->depth)] = true;
  }
  return computes;
}

/* Whether a node makes a box: it computes, or is a parameter of an instance that only provides parameters. */
static bool has_box(const Node *n, int scope, const bool *computes) {
  return n->op->kind == OP_SOURCE ? n->op->source == SOURCE_PARAMETER && scope > 0 && !computes[scope]
                                  : n->op->kind != OP_VIEW;
}

Boxes boxes_make(const Show *s) {
  const Graph *g = s->g;
  Boxes b = {0};
  int *box = alloc((size_t)(g->n_forward + 1) * sizeof *box),
      *seen = alloc((size_t)(g->values.n + 1) * sizeof *seen);
  const bool *computes = find_computing(s);
  for (int piece = 0, last = -1; piece < s->p->n; piece++)
    for (int i = s->p->at[piece].first; i < s->p->at[piece].end; i++) {
      const Node *n = &g->nodes.at[i];
      int scope = scope_shown(g, s->outline, n->scope, s->depth);
      box[i] = -1;
      if (!has_box(n, scope, computes))
        continue;
      last = box[i] = box_for(s, &b, scope, part_of_piece(s->plan, piece), last);
      b.boxes.at[last].operations += node_products(g, n, i);
      if (b.boxes.at[last].run)
        add_operation(&b.boxes.at[last], g, n);
    }
  for (int i = 0; i < g->n_forward; i++)
    if (box[i] >= 0)
      add_reads(s, &b, box, seen, i);
  add_parameters(s, &b);
  return b;
}

void crossing_bytes(const Show *s, int part, double *down, double *up) {
  const Graph *g = s->g;
  const Piece *piece = &s->p->at[s->plan->stage[part].first_piece];
  const bool *bf16 = values_in_bf16(g, s->plan->target.precision);
  double b = (double)s->plan->pipeline.microbatch;
  *down = *up = 0;
  for (int i = 0; i < piece->crossing.n; i++) {
    int v = piece->crossing.at[i];
    *down += b * (bf16[v] ? 2 : 4) * (double)shape_elements(&g->values.at[v].shape);
  }
  for (int i = 0; i < piece->returned.n; i++) {
    int v = piece->returned.at[i];
    *up += b * (bf16[v] ? 2 : 4) * (double)shape_elements(&g->values.at[v].shape);
  }
}
