/* Bytes of pieces and stages, counted from the graph: the planner's estimates. */
#include <string.h>

#include "ops/op.h"
#include "optimizers/optimizer.h"
#include "plan/cost/cost.h"

/* The structs of weights and gradients align members to 64 bytes. */
static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
static int64_t padded_bytes(int64_t elements) { return padded(elements * 4); }

int64_t value_bytes(const Planner *r, int value, int64_t b) {
  return padded(shape_elements(&r->g->values.at[value].shape) * b * (r->bf16[value] ? 2 : 4));
}

/* Values that backward nodes read. Pointwise values with only pointwise readers are rematerialised. */
bool *saved_values(const Graph *g) {
  bool *kept = alloc((size_t)g->values.n + 1);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      int v = root_value(g, g->nodes.at[i].in[k]);
      const Node *made = &g->nodes.at[g->values.at[v].node];
      if (g->values.at[v].node >= g->n_forward || made->op->kind == OP_SOURCE || !g->values.at[v].shape.batched)
        continue;
      bool rematerialised = made->op->kind == OP_POINTWISE && g->nodes.at[i].op->kind == OP_POINTWISE;
      kept[v] |= !rematerialised;
    }
  return kept;
}

int64_t *saved_bytes(const Planner *r, const int *piece, int64_t b) {
  const Graph *g = r->g;
  int64_t *saved = alloc((size_t)r->p->n * sizeof *saved);
  const bool *kept = saved_values(g);
  for (int v = 0; v < g->values.n; v++)
    if (kept[v])
      saved[piece[g->values.at[v].node]] += value_bytes(r, v, b);
  return saved;
}

/* Temporaries of a piece: outputs of its calls in one direction, the larger of both. */
int64_t *work_bytes(const Planner *r, const int *piece, int64_t b) {
  const Graph *g = r->g;
  const Pieces *p = r->p;
  int64_t *forward = alloc((size_t)p->n * sizeof *forward), *backward = alloc((size_t)p->n * sizeof *backward);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->kind != OP_CALL && n->op->kind != OP_CONCAT)
      continue;
    for (int k = 0; k < n->n_out; k++)
      if (g->values.at[n->out[k]].shape.batched)
        (i < g->n_forward ? forward : backward)[piece[i]] += value_bytes(r, n->out[k], b);
  }
  for (int k = 0; k < p->n; k++)
    forward[k] = forward[k] > backward[k] ? forward[k] : backward[k];
  return forward;
}

int64_t *input_bytes(const Planner *r, int64_t b) {
  const Graph *g = r->g;
  const Pieces *p = r->p;
  int64_t *bytes = alloc((size_t)p->n * sizeof *bytes);
  int *seen = alloc((size_t)(g->values.n + 1) * sizeof *seen);
  for (int k = 0; k < p->n; k++)
    for (int i = p->at[k].first; i < p->at[k].end; i++)
      for (int j = 0; j < g->nodes.at[i].n_in; j++) {
        int v = root_value(g, g->nodes.at[i].in[j]);
        if (g->nodes.at[g->values.at[v].node].op->source != SOURCE_INPUT || seen[v] == k + 1)
          continue;
        seen[v] = k + 1;
        bytes[k] += value_bytes(r, v, b);
      }
  return bytes;
}

int64_t *cache_bytes(const Planner *r, const int *piece, int64_t b) {
  const Graph *g = r->g;
  int64_t *bytes = alloc((size_t)r->p->n * sizeof *bytes);
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_out; k++)
      if (node_keeps(n, k))
        bytes[piece[i]] += value_bytes(r, n->out[k], g->values.at[n->out[k]].shape.batched ? b : 1);
  }
  return bytes;
}

/* An update reads and writes an average of the weights like a moment. */
static int64_t moment_bytes(const Graph *g, const UpdateRule *rule, int param) {
  bool averaged = g->train.ema > 0 && !g->inference;
  Shape whole = padded_shape(&g->params.at[param]);
  int64_t bytes = averaged ? padded_bytes(shape_elements(&whole)) : 0;
  for (int i = 0; i < rule->n_moments && !g->inference; i++) {
    if (rule->moment_shape[i] && !is_trained(&g->params.at[param]))
      continue;
    Shape shape = rule->moment_shape[i] ? moment_shape(rule, i, &g->params.at[param]) : whole;
    bytes += padded_bytes(shape_elements(&shape));
  }
  return bytes;
}

/* Whether updates write a new version of the weights. With f32 masters, updates are in place. */
static bool updates_apart(const Planner *r) {
  return (r->traits.two_versions || r->traits.every_round) && r->target.precision != PRECISION_BF16;
}

/* Seconds of the rule and the gradient norm, scaled by stream rates on other devices. */
static double measured_update(const Planner *r, const Held *held, const Rates *rates) {
  double elements = (double)held->masters / 4;
  double scale = r->profile->device ? r->profile->rates.stream / rates->stream : 1;
  return elements * scale * ((updates_apart(r) ? r->profile->apart : r->profile->update) + r->profile->norm);
}

/* An update reads and writes moments, and streams the parameter as often as the rule requires. The gradient is
 * read once more for its norm, even without clipping. Products cost the same as in nodes. */
static double update_seconds(const Planner *r, const UpdateRule *rule, const Rates *rates, int param,
                             const Held *held) {
  const Graph *g = r->g;
  const Param *p = &g->params.at[param];
  if (g->inference)
    return 0;
  if (r->profile && r->profile->update > 0)
    return measured_update(r, held, rates);
  double bytes = (double)held->masters * (rule->traffic + 1) + 2 * (double)held->moments;
  double products = rule->products && is_trained(p) ? rule->products(&g->train, p) : 0;
  return bytes / rates->stream + products / rates->product / rates->threads;
}

Held parameter_held(const Planner *r, const Rates *rates, int param) {
  const UpdateRule *rule = update_rule(&r->g->train);
  const Param *p = &r->g->params.at[param];
  if (p->frozen)
    return (Held){.frozen = value_bytes(r, p->value, 1)};
  Shape whole = padded_shape(p);
  Held held = {.weights = value_bytes(r, p->value, 1),
               .masters = padded_bytes(shape_elements(&whole)),
               .moments = moment_bytes(r->g, rule, param)};
  held.update = update_seconds(r, rule, rates, param, &held);
  return held;
}

const Holdings *model_holdings(const Planner *r, const Rates *rates) {
  const Graph *g = r->g;
  Ints *users = alloc((size_t)(g->params.n + 1) * sizeof *users);
  Holding *holding = alloc((size_t)(g->params.n + 1) * sizeof *holding);
  for (int k = 0; k < r->p->n; k++)
    for (int m = 0; m < r->p->at[k].params.n; m++)
      push(&users[r->p->at[k].params.at[m]], k);
  for (int q = 0; q < g->params.n; q++)
    holding[q] = (Holding){parameter_held(r, rates, q), users[q].n, users[q].at};
  return holdings_make(r->p->n, holding, g->params.n);
}

/* One accumulator per use with a gradient; none for inference. */
int64_t *accumulator_bytes(const Graph *g, const Pieces *p, const int *piece) {
  int64_t *bytes = alloc((size_t)p->n * sizeof *bytes);
  for (int i = 0; i < g->params.n && !g->inference; i++) {
    const Param *q = &g->params.at[i];
    for (int k = 0; k < q->uses.n; k++)
      if (k >= q->gradients.n || q->gradients.at[k] >= 0)
        bytes[piece[q->uses.at[k]]] += padded_bytes(shape_elements(&q->shape));
  }
  return bytes;
}

int64_t *deferred_bytes(const Planner *r, const int *piece, int64_t b) {
  const Graph *g = r->g;
  int64_t *bytes = alloc((size_t)r->p->n * sizeof *bytes);
  bool *seen = alloc((size_t)g->values.n + 1);
  const bool *product = weight_products(g);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; product[i] && k < g->nodes.at[i].n_in; k++) {
      int v = root_value(g, g->nodes.at[i].in[k]);
      if (seen[v] || g->values.at[v].node < g->n_forward || !g->values.at[v].shape.batched)
        continue;
      seen[v] = true;
      bytes[piece[i]] += value_bytes(r, v, b);
    }
  return bytes;
}
