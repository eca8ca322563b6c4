/* Recomputation by layer: bytes and seconds of pieces that compute their forward values again in the backward pass
 * (fuse/recompute.c), and levels of it for the search. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether the region is an indexed instance, such as "h.3". */
static bool is_indexed(Name path) { return path[0] && isdigit((unsigned char)path[strlen(path) - 1]); }

static int first_computation(const Graph *g, const Piece *p) {
  for (int i = p->first; i < p->end; i++)
    if (g->nodes.at[i].op->kind != OP_SOURCE && g->nodes.at[i].op->kind != OP_VIEW)
      return i;
  return p->first;
}

/* By piece: the outermost layer around it that fuses into loops, as one unit; else the piece alone. */
static int *find_units(const Graph *g, const Pieces *p) {
  const bool *calls = scopes_with_calls(g);
  int *unit = alloc((size_t)p->n * sizeof *unit);
  for (int k = 0, last = -1; k < p->n; k++) {
    int around = -1;
    for (int s = g->nodes.at[first_computation(g, &p->at[k])].scope; s >= 0 && !calls[s];
         s = g->scopes.at[s].parent)
      around = g->scopes.at[s].path[0] ? s : around;
    unit[k] = k == 0 ? 0 : unit[k - 1] + (around < 0 || around != last);
    last = around;
  }
  return unit;
}

/* By value, for a model whose pieces all recompute. */
typedef struct Recomputed {
  bool *kept;  /* saved: it leaves its region, or enters one that reads it again */
  bool *again; /* computed again */
  bool *late;  /* and read by products for weight gradients */
} Recomputed;

/* Whether it is a product with its bias, which calls write, although the addition is pointwise. */
static bool is_biased_product(const Graph *g, const Node *n) {
  bool product = false;
  for (int k = 0; n->op->adds_bias && k < n->n_in; k++)
    product |= g->nodes.at[g->values.at[n->in[k]].node].op->takes_bias;
  return product;
}

/* By value: forward saves it. Unlike saved_values() with products that get a bias. */
static bool *find_saved(const Graph *g) {
  bool *saved = saved_values(g);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      const int v = root_value(g, g->nodes.at[i].in[k]), made = g->values.at[v].node;
      saved[v] |= made < g->n_forward && g->values.at[v].shape.batched && is_biased_product(g, &g->nodes.at[made]);
    }
  return saved;
}

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

void again_costs(const Planner *r, const int *piece, int64_t b, const double *node_seconds, Costs *c) {
  const Graph *g = r->g;
  const size_t n = (size_t)r->p->n, values = (size_t)g->values.n + 1;
  const int *region = region_of_nodes(g);
  const Recomputed s = {alloc(values), alloc(values), alloc(values)};
  const bool *saved = find_saved(g);
  int64_t *gain = alloc(n * sizeof *gain), *late = alloc(n * sizeof *late),
          *all_saved = alloc(n * sizeof *all_saved);
  double *repeat = alloc(n * sizeof *repeat), *all = alloc(n * sizeof *all);
  int *block = alloc(n * sizeof *block);
  bool *within = alloc(n);
  find_readers(g, saved, region, &s);
  const bool *repeated = repeat_operands(g, region, &s);
  for (int v = 0; v < g->values.n; v++) {
    const int made = g->values.at[v].node;
    if (made >= g->n_forward || !g->values.at[v].shape.batched)
      continue;
    all_saved[piece[made]] += saved[v] ? value_bytes(r, v, b) : 0;
    if (saved[v] != s.kept[v])
      gain[piece[made]] += s.kept[v] ? -value_bytes(r, v, b) : value_bytes(r, v, b);
    if (s.late[v] && !s.kept[v])
      late[piece[made]] += value_bytes(r, v, b);
  }
  for (int i = 0; i < g->n_forward; i++) {
    all[piece[i]] += node_seconds[i];
    repeat[piece[i]] += repeated[i] ? node_seconds[i] : 0;
  }
  for (size_t k = 0; k < n; k++) {
    repeat[k] = all[k] > 0 ? c->forward[k] * (repeat[k] / all[k]) : 0;
    const int first = first_computation(g, &r->p->at[k]);
    block[k] = region[first];
    within[k] = is_indexed(region_path(g->scopes.at[g->nodes.at[first].scope].path));
  }
  c->all_saved = all_saved, c->gain = gain, c->late = late, c->repeat = repeat, c->unit = find_units(g, r->p),
  c->block = block, c->within = within;
}

Costs *costs_recomputing(const Costs *c, const bool *again) {
  const size_t n = (size_t)c->n;
  Costs *to = alloc_copy(c, sizeof *c);
  int64_t *saved = alloc_copy(c->saved, n * sizeof *saved), *work = alloc_copy(c->work, n * sizeof *work);
  int64_t *deferred = alloc_copy(c->deferred, n * sizeof *deferred);
  double *backward = alloc_copy(c->backward, n * sizeof *backward);
  int64_t *lasting = c->again_lasting ? alloc(n * sizeof *lasting) : NULL;
  for (int i = 0, end; i < c->n; i = end) { /* a run of recomputed pieces of one block */
    int64_t bytes = 0;
    for (end = i; end < c->n && again[end] && c->block[end] == c->block[i]; end++)
      bytes += c->gain[end] - (c->again_lasting ? c->again_lasting[end] : 0);
    for (int k = i; k < end; k++) {
      saved[k] = saved[k] > c->gain[k] ? saved[k] - c->gain[k] : 0;
      deferred[k] += c->late[k];
      backward[k] += c->repeat[k];
      if (lasting)
        lasting[k] = c->again_lasting[k];
      work[k] = work[k] > bytes ? work[k] : bytes;
    }
    end += end == i;
  }
  to->lasting = lasting, to->saved = saved, to->work = work, to->deferred = deferred, to->backward = backward;
  to->plain = c->plain ? c->plain : c;
  return to;
}

/* ---- levels --------------------------------------------------------------------------------------------- */

/* Pieces [first, end) of a unit that saves bytes by recomputation. Units of equal density, such as those of blocks, are
 * one class. */
typedef struct Gain {
  int first, end, class;
  double bytes, seconds;
  double density; /* bytes a second of repeated work */
  unsigned turn;  /* within the class, evenly over the model */
} Gain;
typedef Vec(Gain) Gains;

static bool alike(double a, double b) { return fabs(a - b) <= 1e-6 * fmax(a, b); }

static int by_density(const void *a, const void *b) {
  const Gain *x = a, *y = b;
  return x->density != y->density ? (x->density < y->density ? 1 : -1) : x->first - y->first;
}

static int by_turn(const void *a, const void *b) {
  const Gain *x = a, *y = b;
  return x->class != y->class ? x->class - y->class : (x->turn > y->turn) - (x->turn < y->turn);
}

/* The bits of a number in reverse: 0, 4, 2, 6, 1, 5, 3, 7 divides any range evenly. */
static unsigned reversed(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++)
    y |= (x >> i & 1) << (31 - i);
  return y;
}

/* By falling density. */
static Gains find_gains(const Costs *c) {
  Gains gains = {0};
  for (int i = 0, end; i < c->n; i = end) {
    Gain x = {.first = i};
    for (end = i; end < c->n && c->unit[end] == c->unit[i]; end++)
      x.bytes += (double)c->gain[end], x.seconds += c->repeat[end];
    x.end = end;
    x.density = x.bytes / fmax(x.seconds, 1e-12);
    if (x.bytes > 0)
      push(&gains, x);
  }
  if (gains.n > 0)
    qsort(gains.at, (size_t)gains.n, sizeof *gains.at, by_density);
  for (int i = 1, before = 0; i < gains.n; i++) {
    const bool same = alike(gains.at[i].density, gains.at[i - 1].density);
    before = same ? before + 1 : 0;
    gains.at[i].class = gains.at[i - 1].class + !same;
    gains.at[i].turn = reversed((unsigned)before);
  }
  if (gains.n > 0)
    qsort(gains.at, (size_t)gains.n, sizeof *gains.at, by_turn);
  return gains;
}

static void add_level(Spans *s, Spans *level, const bool **again, const bool *now) {
  const int l = s->n_levels++;
  again[l] = alloc_copy(now, (size_t)s->c->n);
  level[l] = spans_make(costs_recomputing(s->c, again[l]));
  level[l].missed = s->missed;
  level[l].missed_before = s->missed_before;
  level[l].missed_behind = s->missed_behind;
}

/* Whether a level may end behind this piece: behind a class, or within one that takes long, behind one of its `parts`. */
static bool may_end(const Gains *gains, int i, int first, double forward, int parts) {
  static const double LONG = 0.05;
  int end = i + 1;
  while (end < gains->n && gains->at[end].class == gains->at[i].class)
    end++;
  const int n = end - first;
  return end == i + 1 ||
         (gains->at[i].seconds * n > LONG * forward && (i + 1 - first) % ((n + parts - 1) / parts) == 0);
}

/* The last level has whole blocks, or all pieces of a model without blocks. */
static void add_blocks(Spans *s, Spans *level, const bool **again, bool *now) {
  const Costs *c = s->c;
  bool blocks = false;
  for (int i = 0; i < c->n; i++)
    blocks |= c->within[i];
  for (int i = 0; i < c->n; i++)
    now[i] = c->within[i] || !blocks;
  add_level(s, level, again, now);
}

void spans_add_levels(Spans *s, Costs *c, int most, int parts) {
  c->saved = c->all_saved;
  *s = spans_make(c);
  const Gains gains = find_gains(c);
  Spans *level = alloc((size_t)(most + 1) * sizeof *level);
  const bool **again = alloc((size_t)(most + 1) * sizeof *again);
  bool *now = alloc((size_t)c->n);
  double all = 0, bytes = 0;
  for (int i = 0; i < gains.n; i++)
    all += gains.at[i].bytes;
  for (int i = 0, first = 0; i < gains.n; i++) {
    first = i > 0 && gains.at[i].class != gains.at[i - 1].class ? i : first;
    for (int k = gains.at[i].first; k < gains.at[i].end; k++)
      now[k] = true;
    bytes += gains.at[i].bytes;
    const bool enough =
        bytes * most >= all * (s->n_levels + 1) && may_end(&gains, i, first, s->forward[c->n], parts);
    if (s->n_levels < most && (i + 1 == gains.n || enough))
      add_level(s, level, again, now);
  }
  add_blocks(s, level, again, now);
  s->level = level;
  s->again = again;
}
