/* Finds the legal cuts between stages, and the values that cross them. */
#include "cut/cut.h"

#include "cut/names.h"
#include "ops/op.h"

typedef struct Cut {
  const Graph *g;
  int *last_use;  /* by value: the last forward node that reads it, or -1 */
  bool *returned; /* by value, for the current cut: it crosses back as a gradient */
} Cut;

static const Node *maker(const Graph *g, int value) { return &g->nodes.at[g->values.at[value].node]; }

/* Values without inputs can be recomputed on any stage. */
static bool is_source(const Graph *g, int value) { return maker(g, value)->op->kind == OP_SOURCE; }

/* A node's place in forward order: its own, or that of its forward node. */
static int position(const Graph *g, int node) { return node < g->n_forward ? node : g->nodes.at[node].serves; }

static int *find_last_uses(const Graph *g) {
  int *last = alloc((size_t)(g->values.n + 1) * sizeof *last);
  for (int v = 0; v < g->values.n; v++)
    last[v] = -1;
  for (int i = 0; i < g->n_forward; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      last[g->nodes.at[i].in[k]] = i;
  return last;
}

static bool crosses(const Cut *c, int value, int first) {
  return c->g->values.at[value].node < first && c->last_use[value] >= first && !is_source(c->g, value);
}

/* The sum of gradients over the value's uses at or after `first`; -1: no gradient. */
static int gradient_at(const Graph *g, int value, int first) {
  const Value *v = &g->values.at[value];
  for (int i = 0; i < v->uses.n && i < v->gradients.n; i++)
    if (v->uses.at[i] >= first)
      return v->gradients.at[i];
  return -1;
}

static bool can_be_sent(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  return v->shape.batched && v->type == TYPE_F32 && !maker(g, value)->op->stays;
}

int find_obstacle(const Graph *g, int first) {
  Cut c = {.g = g, .last_use = find_last_uses(g)};
  for (int v = 0; v < g->values.n; v++)
    if (crosses(&c, v, first) && !can_be_sent(g, v))
      return v;
  return -1;
}

/* Lists the values that cross before node `first`; false: some cannot be sent. */
static bool crossing_at(const Cut *c, int first, Piece *p) {
  const Graph *g = c->g;
  p->crossing = p->gradients = (Ints){0};
  for (int v = 0; v < g->values.n && g->values.at[v].node < first; v++) {
    if (!crosses(c, v, first))
      continue;
    if (!can_be_sent(g, v))
      return false;
    push(&p->crossing, v);
    push(&p->gradients, gradient_at(g, v, first));
  }
  return p->crossing.n > 0;
}

/* Whether a node may read a value even if the cut before `first` separates them. */
static bool may_read(const Cut *c, int value, int reader, int first) {
  const Graph *g = c->g;
  int node = g->values.at[value].node;
  bool made_before = position(g, node) < first, read_before = position(g, reader) < first;
  if (made_before == read_before || is_source(g, value))
    return true;
  if (node < g->n_forward)
    return made_before && crosses(c, value, first);
  return !made_before && c->returned[value];
}

/* Backward nodes may read only values of their side of the cut, and crossing values. */
static bool backward_allows(const Cut *c, int first, const Piece *p) {
  const Graph *g = c->g;
  bool allowed = true;
  for (int i = 0; i < p->gradients.n; i++)
    if (p->gradients.at[i] >= 0)
      c->returned[p->gradients.at[i]] = true;
  for (int i = g->n_forward; i < g->nodes.n && allowed; i++)
    for (int k = 0; k < g->nodes.at[i].n_in && allowed; k++)
      allowed = may_read(c, g->nodes.at[i].in[k], i, first);
  for (int i = 0; i < p->gradients.n; i++)
    if (p->gradients.at[i] >= 0)
      c->returned[p->gradients.at[i]] = false;
  return allowed;
}

/* The later side must compute a gradient that is sent, in its value's shape. */
static bool gradients_fit(const Graph *g, int first, const Piece *p) {
  for (int i = 0; i < p->crossing.n; i++) {
    int y = p->gradients.at[i];
    if (y < 0)
      continue;
    const Value *v = &g->values.at[p->crossing.at[i]], *d = &g->values.at[y];
    if (d->node < g->n_forward || position(g, d->node) < first || !shape_equal(&v->shape, &d->shape))
      return false;
  }
  return true;
}

static void list_returned(Piece *p) {
  for (int i = 0; i < p->gradients.n; i++) {
    bool listed = p->gradients.at[i] < 0;
    for (int k = 0; k < i; k++)
      listed |= p->gradients.at[k] == p->gradients.at[i];
    if (!listed)
      push(&p->returned, p->gradients.at[i]);
  }
}

static bool computes(const Graph *g, int first, int end) {
  for (int i = first; i < end; i++)
    if (g->nodes.at[i].op->kind != OP_SOURCE && g->nodes.at[i].op->kind != OP_VIEW)
      return true;
  return false;
}

/* Finds the parameters of each piece in order of declaration: those it uses, and unused ones declared in it. */
static void find_params(const Graph *g, Pieces *p) {
  int *param = alloc((size_t)(g->values.n + 1) * sizeof *param);
  for (int i = 0; i < g->params.n; i++)
    param[g->params.at[i].value] = i + 1;
  int *seen = alloc((size_t)(g->params.n + 1) * sizeof *seen);
  for (int k = 0; k < p->n; k++) {
    Piece *piece = &p->at[k];
    for (int i = piece->first; i < piece->end; i++)
      for (int j = 0; j < g->nodes.at[i].n_in; j++)
        seen[param[g->nodes.at[i].in[j]]] = k + 1;
    for (int i = 0; i < g->params.n; i++) {
      int declared = g->values.at[g->params.at[i].value].node;
      bool unused = g->params.at[i].uses.n == 0 && declared >= piece->first && declared < piece->end;
      if (seen[i + 1] == k + 1 || unused)
        push(&piece->params, i);
    }
  }
}

/* ---- sweeping over the graph ------------------------------------------------------------------ */

/* Incremental form of the definitions above: makes listing all cuts linear in the model. pieces_verify() checks
 * the result by the definitions. */
typedef struct Sweep {
  Cut cut;
  Ints live;      /* forward values that cross before the current node, ascending */
  int next_value; /* values from here on are computed by the current node or later */
  int *forbidden; /* by node: change in the number of reads that forbid the cut before it */
  int barred;     /* reads that forbid the current cut */
  Ints *begin;    /* by node: values of backward nodes that must come back over cuts from here on */
  Ints back;      /* those that must come back over the current cut */
} Sweep;

static void forbid(Sweep *s, int first, int last) {
  if (first <= last)
    s->forbidden[first]++, s->forbidden[last + 1]--;
}

/* Evaluates may_read() for all cuts between producer and reader. */
static void find_barriers(Sweep *s, const Graph *g) {
  int *earliest = alloc((size_t)(g->values.n + 1) * sizeof *earliest); /* reader of a backward value, plus 1 */
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      int v = g->nodes.at[i].in[k], node = g->values.at[v].node;
      int made = position(g, node), read = position(g, i), last = s->cut.last_use[v];
      if (is_source(g, v) || made == read)
        continue;
      if (node < g->n_forward && made < read)
        forbid(s, (last > made ? last : made) + 1, read);
      else if (node < g->n_forward || made < read)
        forbid(s, (made < read ? made : read) + 1, made < read ? read : made);
      else if (!earliest[v] || read + 1 < earliest[v])
        earliest[v] = read + 1;
    }
  for (int v = 0; v < g->values.n; v++)
    if (earliest[v])
      push(&s->begin[earliest[v]], v);
}

static Sweep sweep_make(const Graph *g) {
  size_t n = (size_t)g->n_forward + 2;
  Sweep s = {.cut = {.g = g, .last_use = find_last_uses(g), .returned = alloc((size_t)g->values.n + 1)},
             .forbidden = alloc(n * sizeof(int)),
             .begin = alloc(n * sizeof(Ints))};
  find_barriers(&s, g);
  return s;
}

/* Advances to the cut before node `first`. */
static void sweep_to(Sweep *s, int first) {
  const Graph *g = s->cut.g;
  int kept = 0;
  while (s->next_value < g->values.n && g->values.at[s->next_value].node < first)
    push(&s->live, s->next_value++);
  for (int i = 0; i < s->live.n; i++)
    if (crosses(&s->cut, s->live.at[i], first))
      s->live.at[kept++] = s->live.at[i];
  s->live.n = kept;
  for (int i = 0; i < s->begin[first].n; i++)
    push(&s->back, s->begin[first].at[i]);
  kept = 0;
  for (int i = 0; i < s->back.n; i++)
    if (position(g, g->values.at[s->back.at[i]].node) >= first)
      s->back.at[kept++] = s->back.at[i];
  s->back.n = kept;
  s->barred += s->forbidden[first];
}

static bool all_come_back(const Sweep *s, const Piece *p) {
  bool all = true;
  for (int i = 0; i < p->gradients.n; i++)
    if (p->gradients.at[i] >= 0)
      s->cut.returned[p->gradients.at[i]] = true;
  for (int i = 0; i < s->back.n; i++)
    all &= s->cut.returned[s->back.at[i]];
  for (int i = 0; i < p->gradients.n; i++)
    if (p->gradients.at[i] >= 0)
      s->cut.returned[p->gradients.at[i]] = false;
  return all;
}

/* Whether the current cut, before node `first`, is legal; lists its crossing values. */
static bool legal(const Sweep *s, int first, Piece *p) {
  const Graph *g = s->cut.g;
  if (g->nodes.at[first].scope == g->nodes.at[first - 1].scope || s->barred > 0 || s->live.n == 0)
    return false;
  for (int i = 0; i < s->live.n; i++)
    if (!can_be_sent(g, s->live.at[i]))
      return false;
  for (int i = 0; i < s->live.n; i++) {
    push(&p->crossing, s->live.at[i]);
    push(&p->gradients, gradient_at(g, s->live.at[i], first));
  }
  return gradients_fit(g, first, p) && all_come_back(s, p);
}

Pieces cut(const Graph *g) {
  Sweep s = sweep_make(g);
  Vec(Piece) pieces = {0};
  push(&pieces, (Piece){.first = 0});
  name_first_piece(g, &pieces.at[0]);
  for (int first = 1; first < g->n_forward; first++) {
    Piece piece = {.first = first};
    sweep_to(&s, first);
    if (!legal(&s, first, &piece))
      continue;
    list_returned(&piece);
    name_boundary(g, first, &piece);
    Piece *last = &pieces.at[pieces.n - 1];
    if (computes(g, last->first, first))
      push(&pieces, piece);
    else
      for (int i = 0; i < piece.names.n && pieces.n > 1; i++)
        push(&last->names, piece.names.at[i]);
  }
  if (pieces.n > 1 && !computes(g, pieces.at[pieces.n - 1].first, g->n_forward))
    pieces.n--;
  Pieces p = {pieces.at, pieces.n};
  for (int i = 0; i < p.n; i++)
    p.at[i].end = i + 1 < p.n ? p.at[i + 1].first : g->n_forward;
  find_params(g, &p);
  name_pieces(&p);
  return p;
}

/* ---- checking, printing ---------------------------------------------------------------------- */

void pieces_verify(const Graph *g, const Pieces *p) {
  Cut c = {.g = g, .last_use = find_last_uses(g), .returned = alloc((size_t)g->values.n + 1)};
  ensure(p->n > 0 && p->at[0].first == 0 && p->at[p->n - 1].end == g->n_forward);
  ensure(p->at[0].crossing.n == 0);
  for (int i = 1; i < p->n; i++) {
    const Piece *piece = &p->at[i];
    ensure(piece->first == p->at[i - 1].end && piece->first < piece->end);
    ensure(piece->crossing.n > 0 && piece->crossing.n == piece->gradients.n);
    Piece again = {0};
    ensure(crossing_at(&c, piece->first, &again) && again.crossing.n == piece->crossing.n);
    for (int k = 0; k < again.crossing.n; k++)
      ensure(again.crossing.at[k] == piece->crossing.at[k] && again.gradients.at[k] == piece->gradients.at[k]);
    ensure(gradients_fit(g, piece->first, piece) && backward_allows(&c, piece->first, piece));
    for (int k = 0; k < i; k++)
      ensure(p->at[k].name != piece->name);
  }
}

void pieces_dump(const Graph *g, const Pieces *p, FILE *out) {
  for (int i = 0; i < p->n; i++) {
    const Piece *piece = &p->at[i];
    fprintf(out, "piece %d nodes %d..%d \"%s\"", i, piece->first, piece->end, piece->name);
    for (int k = 1; k < piece->names.n; k++)
      fprintf(out, " \"%s\"", piece->names.at[k]);
    for (int k = 0; k < piece->crossing.n; k++) {
      const Value *v = &g->values.at[piece->crossing.at[k]];
      fprintf(out, "\n  crossing v%d %s %s", piece->crossing.at[k], v->name, shape_text(&v->shape));
      if (piece->gradients.at[k] >= 0)
        fprintf(out, " gradient v%d", piece->gradients.at[k]);
    }
    for (int k = 0; k < piece->params.n; k++)
      fprintf(out, "\n  param %s", g->params.at[piece->params.at[k]].name);
    fputc('\n', out);
  }
}
