/* Recomputation by layer: bytes and seconds of pieces that compute their forward values again in the backward pass
 * (fuse/recompute.c), and levels of it for the search. */
#include <math.h>
#include <stdlib.h>

#include "fuse/kernel.h"
#include "ops/op.h"
#include "plan/cost/cost.h"

/* ---- costs of pieces ------------------------------------------------------------------------------------ */

/* By forward node: its region, as fuse() divides them. */
static int *region_of_nodes(const Graph *g) {
  int *region = alloc((size_t)(g->n_forward + 1) * sizeof *region), n = 0;
  Name last = NULL;
  for (int i = 0; i < g->n_forward; i++) {
    const Name path = region_path(g->scopes.at[g->nodes.at[i].scope].path);
    n += last && path != last;
    region[i] = n;
    last = path;
  }
  return region;
}

/* By value, for a model whose pieces all recompute. */
typedef struct Recomputed {
  bool *kept;  /* saved: it leaves its region, or enters one that reads it again */
  bool *again; /* computed again */
  bool *late;  /* and read by products for weight gradients */
} Recomputed;

static void find_readers(const Graph *g, const bool *saved, const int *region, const Recomputed *s) {
  const bool *product = weight_products(g);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      const int v = root_value(g, g->nodes.at[i].in[k]), made = g->values.at[v].node;
      if (!saved[v])
        continue;
      const bool own = region[made] == region[g->nodes.at[i].serves];
      s->again[v] |= own;
      s->late[v] |= own && product[i];
      s->kept[v] |= !own;
    }
}

/* Operands of repeated nodes: within their region repeated, too; of other regions saved. By node: repeated. */
static bool *repeat_operands(const Graph *g, const int *region, const Recomputed *s) {
  bool *repeated = alloc((size_t)g->n_forward + 1);
  for (int i = g->n_forward - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_out; k++)
      repeated[i] |= s->again[n->out[k]] && !s->kept[n->out[k]];
    for (int k = 0; repeated[i] && k < n->n_in; k++) {
      const int v = root_value(g, n->in[k]), made = g->values.at[v].node;
      if (g->nodes.at[made].op->kind == OP_SOURCE || !g->values.at[v].shape.batched)
        continue;
      (region[made] == region[i] ? s->again : s->kept)[v] = true;
    }
  }
  return repeated;
}

void again_costs(const Planner *r, const int *piece, int64_t b, const bool *saved, const double *node_seconds,
                 Costs *c) {
  const Graph *g = r->g;
  const size_t n = (size_t)r->p->n, values = (size_t)g->values.n + 1;
  const int *region = region_of_nodes(g);
  const Recomputed s = {alloc(values), alloc(values), alloc(values)};
  int64_t *kept = alloc(n * sizeof *kept), *late = alloc(n * sizeof *late);
  double *repeat = alloc(n * sizeof *repeat), *all = alloc(n * sizeof *all);
  int *block = alloc(n * sizeof *block);
  find_readers(g, saved, region, &s);
  const bool *repeated = repeat_operands(g, region, &s);
  for (int v = 0; v < g->values.n; v++) {
    const int made = g->values.at[v].node;
    if (made >= g->n_forward || !g->values.at[v].shape.batched)
      continue;
    if (s.kept[v])
      kept[piece[made]] += value_bytes(r, v, b);
    else if (s.late[v])
      late[piece[made]] += value_bytes(r, v, b);
  }
  for (int i = 0; i < g->n_forward; i++) {
    all[piece[i]] += node_seconds[i];
    repeat[piece[i]] += repeated[i] ? node_seconds[i] : 0;
  }
  for (size_t k = 0; k < n; k++) {
    repeat[k] = all[k] > 0 ? c->forward[k] * (repeat[k] / all[k]) : 0;
    block[k] = region[r->p->at[k].first];
    kept[k] = kept[k] < c->saved[k] ? kept[k] : c->saved[k];
  }
  c->kept = kept, c->late = late, c->repeat = repeat, c->block = block;
}

Costs *costs_recomputing(const Costs *c, const bool *again) {
  const size_t n = (size_t)c->n;
  Costs *to = alloc_copy(c, sizeof *c);
  int64_t *saved = alloc_copy(c->saved, n * sizeof *saved), *work = alloc_copy(c->work, n * sizeof *work);
  int64_t *deferred = alloc_copy(c->deferred, n * sizeof *deferred);
  double *backward = alloc_copy(c->backward, n * sizeof *backward);
  for (int i = 0, end; i < c->n; i = end) { /* a run of recomputed pieces of one block */
    int64_t bytes = 0;
    for (end = i; end < c->n && again[end] && c->block[end] == c->block[i]; end++)
      bytes += c->saved[end] - c->kept[end];
    for (int k = i; k < end; k++) {
      saved[k] = c->kept[k];
      deferred[k] += c->late[k];
      backward[k] += c->repeat[k];
      work[k] = work[k] > bytes ? work[k] : bytes;
    }
    end += end == i;
  }
  to->saved = saved, to->work = work, to->deferred = deferred, to->backward = backward;
  to->plain = c->plain ? c->plain : c;
  return to;
}

/* ---- levels --------------------------------------------------------------------------------------------- */

/* A piece's place in the order in which levels add pieces. */
typedef struct Gain {
  int piece;
  double bytes; /* saved a second of forward work */
  unsigned turn;
} Gain;

/* Most bytes a second first; among equal pieces, such as blocks, evenly over the model. */
static int by_gain(const void *a, const void *b) {
  const Gain *x = a, *y = b;
  if (x->bytes < y->bytes * (1 - 1e-6) || y->bytes < x->bytes * (1 - 1e-6))
    return x->bytes < y->bytes ? 1 : -1;
  return x->turn != y->turn ? (x->turn > y->turn ? 1 : -1) : x->piece - y->piece;
}

/* The bits of a number in reverse: 0, 4, 2, 6, 1, 5, 3, 7 divides any range evenly. */
static unsigned reversed(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++)
    y |= (x >> i & 1) << (31 - i);
  return y;
}

Ints again_order(const Costs *c) {
  Vec(Gain) gains = {0};
  Ints order = {0};
  for (int i = 0; c->kept && i < c->n; i++)
    if (c->saved[i] > c->kept[i])
      push(&gains, (Gain){i, (double)(c->saved[i] - c->kept[i]) / fmax(c->repeat[i], 1e-12), 0});
  for (int i = 0; i < gains.n; i++) {
    unsigned before = 0; /* equal pieces before this one */
    for (int j = 0; j < i; j++)
      before += fabs(gains.at[j].bytes - gains.at[i].bytes) <= 1e-6 * gains.at[i].bytes;
    gains.at[i].turn = reversed(before);
  }
  if (gains.n > 0)
    qsort(gains.at, (size_t)gains.n, sizeof *gains.at, by_gain);
  for (int i = 0; i < gains.n; i++)
    push(&order, gains.at[i].piece);
  return order;
}
