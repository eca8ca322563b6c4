/* Runs the steps, shares equal nodes and removes dead ones. */
#include "simplify/simplify.h"

#include <string.h>

#include "simplify/rules.h"

/* State of a written value. sole: a copy with one forward reader, named in `from`; taken: it replaces a value of
 * `from`. */
typedef struct Standing {
  bool sole, taken;
} Standing;

typedef struct Share {
  Rewrite *w;
  int *readers;           /* by value of from: number of forward readers */
  bool *read_elsewhere;   /* by value of from: has a forward reader in another run */
  bool *read_later;       /* by value of from: has a backward reader in another run */
  bool *figure;           /* by value of from: is a loss or a metric */
  bool *returned;         /* by value of from: is a gradient of a parameter or value */
  Vec(Standing) standing; /* by value of to */
  Ints bucket[1024];      /* nodes of `to` by hash */
} Share;

/* ---- equal nodes -------------------------------------------------------------------------------- */

static uint64_t hash_add(uint64_t h, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
  return h;
}

static uint64_t node_hash(const Rewrite *w, int node) {
  const Node *n = &w->to->nodes.at[node];
  bool forward = n->serves < 0;
  uint64_t h = hash_add(0xcbf29ce484222325u, &n->op, sizeof n->op);
  h = hash_add(h, &w->run_to.at[node], sizeof(int));
  h = hash_add(h, &forward, sizeof forward);
  return hash_add(h, n->in, n->n_in * sizeof *n->in);
}

static bool same_attributes(const Node *a, const Node *b) {
  for (int i = 0; i < MAX_ATTR && a->op->attr[i].name; i++) {
    const Attr *x = &a->attr[i], *y = &b->attr[i];
    if (x->number != y->number || x->text != y->text || x->n != y->n)
      return false;
    if (x->n && memcmp(x->list, y->list, x->n * sizeof *x->list))
      return false;
  }
  return true;
}

static bool same_node(const Rewrite *w, int i, int k) {
  const Node *a = &w->to->nodes.at[i], *b = &w->to->nodes.at[k];
  return a->op == b->op && w->run_to.at[i] == w->run_to.at[k] && (a->serves < 0) == (b->serves < 0) &&
         a->n_in == b->n_in && !memcmp(a->in, b->in, a->n_in * sizeof *a->in) && same_attributes(a, b);
}

/* An earlier equal node of the same run and direction, or -1; registers the node. */
static int find_equal(Share *s, int node) {
  const Graph *g = s->w->to;
  if (g->nodes.at[node].op->source != SOURCE_NONE || (is_forward(g, node) && reads_param(g, node)))
    return -1;
  uint64_t h = node_hash(s->w, node) % (sizeof s->bucket / sizeof s->bucket[0]);
  for (int i = 0; i < s->bucket[h].n; i++)
    if (same_node(s->w, s->bucket[h].at[i], node))
      return s->bucket[h].at[i];
  push(&s->bucket[h], node);
  return -1;
}

/* ---- replacing a value by another ----------------------------------------------------------------- */

/* Whether one of the first `most` operands is the value. */
static bool reads(const Node *n, int most, int value) {
  bool any = false;
  for (int i = 0; i < most; i++)
    any |= n->in[i] == value;
  return any;
}

static void find_readers(Share *s) {
  const Graph *g = s->w->from;
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      int v = g->nodes.at[i].in[k];
      bool elsewhere = s->w->run[g->values.at[v].node] != s->w->run[i];
      s->readers[v] += is_forward(g, i) && !reads(&g->nodes.at[i], k, v);
      *(is_forward(g, i) ? &s->read_elsewhere[v] : &s->read_later[v]) |= elsewhere;
    }
  for (int i = 0; i < g->figures.n; i++)
    s->figure[g->figures.at[i].value] = true;
}

static void note_returned(Share *s, const Ints *gradients) {
  for (int i = 0; i < gradients->n; i++)
    if (gradients->at[i] >= 0)
      s->returned[gradients->at[i]] = true;
}

static Share *share_begin(Graph *g) {
  Share *s = alloc(sizeof *s);
  s->w = rewrite_begin(g);
  s->readers = alloc((g->values.n + 1) * sizeof *s->readers);
  s->read_elsewhere = alloc(g->values.n + 1);
  s->read_later = alloc(g->values.n + 1);
  s->figure = alloc(g->values.n + 1);
  s->returned = alloc(g->values.n + 1);
  find_readers(s);
  for (int v = 0; v < g->values.n; v++)
    note_returned(s, &g->values.at[v].gradients);
  for (int i = 0; i < g->params.n; i++)
    note_returned(s, &g->params.at[i].gradients);
  return s;
}

static bool has_gradient(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  for (int i = 0; i < v->gradients.n; i++)
    if (v->gradients.at[i] >= 0)
      return true;
  return false;
}

typedef enum { REFUSED, ALLOWED, INHERITS } Verdict;

/* Whether readers of y, an output of `node` of `from`, may read `x` of `to` instead. Readers in other runs need
 * the gradients that x sums for them. x has those only if it takes over y's. */
static Verdict judge(const Share *s, int node, int y, int x) {
  const Graph *from = s->w->from, *to = s->w->to;
  int maker_of_x = to->values.at[x].node;
  if (!is_forward(from, node))
    return is_forward(to, maker_of_x) && (s->returned[y] || s->read_later[y]) ? REFUSED : ALLOWED;
  if (!s->standing.at[x].taken)
    return INHERITS;
  if (s->figure[y] && s->w->run_to.at[maker_of_x] != s->w->run[node])
    return REFUSED;
  const Node *copy = &to->nodes.at[s->w->node[node]];
  if (s->standing.at[x].sole && reads(copy, copy->n_in, x))
    return INHERITS;
  return !s->read_elsewhere[y] || !has_gradient(from, y) ? ALLOWED : REFUSED;
}

static void stand_for(Share *s, int y, int x, Verdict verdict) {
  Partials *p = &s->w->partials.at[x];
  if (verdict == INHERITS)
    *p = s->w->partials.at[s->w->value[y]];
  s->standing.at[x] = (Standing){verdict == INHERITS && s->readers[y] == 1 && !s->figure[y], true};
  s->w->value[y] = x;
}

/* ---- the steps ------------------------------------------------------------------------------------ */

static void simplify_node(Share *s, int node) {
  Rewrite *w = s->w;
  const Node *old = &w->from->nodes.at[node];
  int *in = alloc(old->n_in * sizeof *in);
  for (int i = 0; i < old->n_in; i++)
    in[i] = w->value[old->in[i]];
  int copy = rewrite_copy(w, node, in, node);
  for (int i = 0; i < old->n_out; i++)
    push(&s->standing, (Standing){s->readers[old->out[i]] == 1 && !s->figure[old->out[i]], true});
  int simpler = rule_apply(w, copy);
  while (s->standing.n < w->to->values.n)
    push(&s->standing, (Standing){false, false});
  if (simpler >= 0) {
    Verdict verdict = judge(s, node, old->out[0], simpler);
    if (verdict != REFUSED) {
      stand_for(s, old->out[0], simpler, verdict);
      return;
    }
  }
  int equal = find_equal(s, copy);
  if (equal < 0)
    return;
  const int *twin = w->to->nodes.at[equal].out;
  for (int i = 0; i < old->n_out; i++)
    if (judge(s, node, old->out[i], twin[i]) != ALLOWED)
      return;
  for (int i = 0; i < old->n_out; i++)
    stand_for(s, old->out[i], twin[i], ALLOWED);
}

static void share(Graph *g) {
  Share *s = share_begin(g);
  for (int i = 0; i < g->nodes.n; i++)
    simplify_node(s, i);
  rewrite_finish(s->w);
}

static void keep(const Graph *g, bool *live, int node) {
  if (live[node])
    return;
  live[node] = true;
  for (int i = 0; i < g->nodes.at[node].n_in; i++)
    keep(g, live, g->values.at[g->nodes.at[node].in[i]].node);
}

/* Removes nodes that no loss, metric or parameter gradient needs. */
static void sweep(Graph *g) {
  bool *live = alloc(g->nodes.n + 1);
  for (int i = 0; i < g->figures.n; i++)
    keep(g, live, g->values.at[g->figures.at[i].value].node);
  for (int i = 0; i < g->inputs.n; i++)
    keep(g, live, g->values.at[g->inputs.at[i].value].node);
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    keep(g, live, g->values.at[p->value].node);
    for (int k = 0; k < p->gradients.n; k++)
      if (p->gradients.at[k] >= 0) {
        keep(g, live, p->uses.at[k]);
        keep(g, live, g->values.at[p->gradients.at[k]].node);
      }
  }
  Rewrite *w = rewrite_begin(g);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    int *in = alloc(n->n_in * sizeof *in);
    for (int k = 0; k < n->n_in && live[i]; k++)
      in[k] = w->value[n->in[k]];
    if (live[i])
      rewrite_copy(w, i, in, i);
  }
  rewrite_finish(w);
}

void simplify(Graph *g) {
  for (int before = -1, round = 0; before != g->nodes.n && round < 8; round++) {
    before = g->nodes.n;
    localise(g);
    share(g);
    sweep(g);
  }
}
