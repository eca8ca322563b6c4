/* Finds the cheapest layouts by a dynamic programme over the graph's nodes. Each forward node is followed by the
 * backward nodes that serve it, so few values are live across a point. A state holds a layout for each live value.
 * Equal states keep only the cheapest; only the best few survive, and the all-whole state, which every node
 * accepts. A tied parameter gets its layout at its first use and pays at its last one, so the best few survive per
 * tied layout. A gradient may be visited before its producer: order affects only the size of states. */
#include "simplify/rewrite.h"
#include "tensor/internal.h"

#include <stdlib.h>
#include <string.h>

enum { BEAM = 4096, MOST_KINDS = 64 };

/* A collective can gather a value split by positions for all readers in one run and direction; the first reader
 * pays. The state records gathered values until the run ends. */
enum { IN_FORWARD = 1, IN_BACKWARD = 2, GATHERED_SHIFT = 6 };

/* A gradient has its value's layout if shapes allow: both cross cuts as messages of equal size. */
typedef Vec(int) Partners;

typedef struct State {
  double seconds;
  int parent, way;
  LayoutId *fresh; /* of values first met in the step */
  LayoutId *at;    /* of values live after the step; higher bits record where they are gathered */
  bool whole;      /* all live values are whole */
  unsigned kind;   /* hash of the layouts of live tied parameters */
} State;

typedef struct Step {
  int node;
  Ways ways;
  Ints fresh, live;  /* values first met; values needed later */
  Vec(State) states; /* valid during the next step */
  int *parent, *way; /* by state: its way back */
  LayoutId *taken;   /* by state and entry of `fresh`: the layout */
} Step;

typedef struct Search {
  const Division *d;
  int n_steps;
  Step *step;
  Partners *partners; /* by value */
  int *last;          /* by value: the last step that needs it */
  bool *tied;         /* by value: a parameter with several uses */
  const int *run;     /* by node */
  bool *kept;         /* by value: a backward pass reads the forward result */
  LayoutId *at;       /* by value, of the current state; NONE: not assigned */
  LayoutId *gathered; /* by value, of the current state: directions of the step's run with a gathered copy */
  Vec(State) found;   /* states after the step, unsorted */
  int *bucket;        /* of a hash table of `found` */
  LayoutId *before;   /* by operand of a node: earlier `gathered`, for backtracking */
  Arena *scratch[2];  /* states of the even and of the odd steps */
  ArenaMark empty[2];
} Search;

enum { NONE = 255, BUCKETS = 1 << 16 };

/* ---- the order ------------------------------------------------------------------------------- */

static int value_at(const Node *n, int k) { return k < n->n_in ? n->in[k] : n->out[k - n->n_in]; }

static void add_pair(Search *s, int value, int gradient) {
  if (gradient < 0)
    return;
  push(&s->partners[value], gradient);
  push(&s->partners[gradient], value);
}

static void find_partners(Search *s) {
  const Graph *g = s->d->g;
  for (int v = 0; v < g->values.n; v++)
    for (int i = 0; i < g->values.at[v].gradients.n; i++)
      add_pair(s, v, g->values.at[v].gradients.at[i]);
  for (int i = 0; i < g->params.n; i++)
    for (int k = 0; k < g->params.at[i].gradients.n; k++)
      add_pair(s, g->params.at[i].value, g->params.at[i].gradients.at[k]);
}

static void order_steps(Search *s) {
  const Graph *g = s->d->g;
  Ints *serving = alloc((size_t)(g->n_forward + 1) * sizeof *serving);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    push(&serving[g->nodes.at[i].serves], i);
  s->step = alloc((size_t)g->nodes.n * sizeof *s->step);
  for (int i = 0; i < g->n_forward; i++) {
    s->step[s->n_steps++].node = i;
    for (int k = 0; k < serving[i].n; k++)
      s->step[s->n_steps++].node = serving[i].at[k];
  }
}

/* Follows views, which share memory with their source. */
static void find_kept(Search *s) {
  const Graph *g = s->d->g;
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      int v = g->nodes.at[i].in[k];
      while (maker(g, v)->op->kind == OP_VIEW)
        v = maker(g, v)->in[0];
      s->kept[v] |= maker(g, v)->serves < 0 && g->values.at[v].shape.batched && !s->d->fixed[v];
    }
}

static void find_lives(Search *s) {
  const Graph *g = s->d->g;
  int *first = alloc((size_t)(g->values.n + 1) * sizeof *first);
  memset(first, -1, (size_t)g->values.n * sizeof *first);
  for (int i = 0; i < s->n_steps; i++) {
    const Node *n = &g->nodes.at[s->step[i].node];
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      int v = value_at(n, k);
      if (first[v] < 0) {
        first[v] = i;
        push(&s->step[i].fresh, v);
      }
      s->last[v] = i;
    }
  }
  for (int v = 0; v < g->values.n; v++)
    for (int i = 0; i < s->partners[v].n; i++) {
      int other = first[s->partners[v].at[i]];
      s->last[v] = other > s->last[v] ? other : s->last[v];
    }
  for (int i = 0; i < s->n_steps; i++) {
    Ints before = i ? s->step[i - 1].live : (Ints){0};
    for (int k = 0; k < before.n; k++)
      if (s->last[before.at[k]] > i)
        push(&s->step[i].live, before.at[k]);
    for (int k = 0; k < s->step[i].fresh.n; k++)
      if (s->last[s->step[i].fresh.at[k]] > i)
        push(&s->step[i].live, s->step[i].fresh.at[k]);
  }
}

/* ---- compatible layouts ------------------------------------------------------------------------ */

/* Whether the layouts of a value or parameter and of its gradient agree. */
static bool match(const Search *s, int v, int w) {
  LayoutId a = s->at[v], b = s->at[w];
  if (s->d->param[v] || s->d->param[w])
    return a == b;
  return a == b || (a < FIRST_SPLIT && b < FIRST_SPLIT);
}

static bool matches_partners(const Search *s, int v) {
  for (int i = 0; i < s->partners[v].n; i++)
    if (s->at[s->partners[v].at[i]] != NONE && !match(s, v, s->partners[v].at[i]))
      return false;
  return true;
}

/* The cost of reading a value in another layout than its own. A reader takes its part of a whole value or makes a
 * partial sum of it; values split by positions are gathered. Parameters are read in their own layout. */
static double reading_seconds(Search *s, int value, LayoutId wanted, LayoutId direction) {
  LayoutId has = s->at[value];
  bool gathers = wanted == WHOLE && by_positions(s->d, value, has);
  if (has == wanted || (gathers && s->gathered[value] & direction))
    return 0;
  if ((has != WHOLE && !gathers) || s->d->param[value])
    return -1;
  s->gathered[value] |= gathers ? direction : 0;
  return conversion_seconds(s->d, value, has, wanted);
}

static double making_seconds(const Search *s, int value, LayoutId made) {
  if (s->at[value] != made && s->d->param[value])
    return -1;
  double seconds = conversion_seconds(s->d, value, made, s->at[value]);
  return seconds < 0 || !s->kept[value] ? seconds : seconds + keeping_seconds(s->d, value, s->at[value]);
}

/* ---- states ------------------------------------------------------------------------------------ */

static unsigned hash_of(const LayoutId *at, int n) {
  unsigned h = 2166136261u;
  for (int i = 0; i < n; i++)
    h = (h ^ at[i]) * 16777619u;
  return h;
}

static void keep(Search *s, const Step *step, State x) {
  int n = step->live.n;
  LayoutId at[1024];
  ensure(n <= (int)sizeof at);
  x.whole = true;
  x.kind = 0;
  for (int i = 0; i < n; i++) {
    int v = step->live.at[i];
    at[i] = s->at[v];
    x.whole &= at[i] == WHOLE;
    x.kind = s->tied[v] ? x.kind * 131 + at[i] : x.kind;
    at[i] |= (LayoutId)(s->gathered[v] << GATHERED_SHIFT);
  }
  unsigned h = hash_of(at, n);
  for (;; h++) {
    int *place = &s->bucket[h % BUCKETS];
    if (*place < 0) {
      if (s->found.n >= BUCKETS / 2 && !x.whole)
        return;
      *place = s->found.n;
      x.at = alloc_copy(at, (size_t)n + 1);
    } else if (memcmp(s->found.at[*place].at, at, (size_t)n)) {
      continue;
    } else if (s->found.at[*place].seconds <= x.seconds) {
      return;
    } else {
      x.at = s->found.at[*place].at;
    }
    x.fresh = alloc((size_t)step->fresh.n + 1);
    for (int i = 0; i < step->fresh.n; i++)
      x.fresh[i] = s->at[step->fresh.at[i]];
    if (*place == s->found.n)
      push(&s->found, x);
    else
      s->found.at[*place] = x;
    return;
  }
}

/* Layouts that value k of the node may have if the way reads or makes it in `as`. A value read whole, or made as a
 * partial sum, may be split by positions. */
static int candidates(const Search *s, const Node *n, int k, LayoutId as, LayoutId to[MOST_LAYOUTS]) {
  int v = value_at(n, k), count = 0;
  if (s->d->pinned[v] != UNPINNED && s->d->pinned[v] != as)
    return 0;
  to[count++] = as;
  if (as != WHOLE && !s->d->param[v])
    to[count++] = WHOLE;
  if (as != (k < n->n_in ? WHOLE : PARTIAL) || s->d->param[v])
    return count;
  for (int id = FIRST_SPLIT; id < n_layouts(s->d); id++)
    if (layout_fits(s->d, v, (LayoutId)id) && by_positions(s->d, v, (LayoutId)id))
      to[count++] = (LayoutId)id;
  return count;
}

/* Adds the way's reading and making costs, after all values of the node have layouts. */
static void finish_way(Search *s, const Step *step, int way, State x) {
  const Node *n = &s->d->g->nodes.at[step->node];
  const Way *w = &step->ways.at[way];
  LayoutId direction = is_forward(s->d->g, step->node) ? IN_FORWARD : IN_BACKWARD;
  bool possible = true;
  x.seconds += w->seconds;
  for (int k = 0; k < n->n_in; k++)
    s->before[k] = s->gathered[n->in[k]];
  for (int k = 0; k < n->n_in + n->n_out && possible; k++) {
    double seconds = k < n->n_in ? reading_seconds(s, n->in[k], w->at[k], direction)
                                 : making_seconds(s, n->out[k - n->n_in], w->at[k]);
    possible = seconds >= 0;
    x.seconds += seconds;
  }
  x.way = way;
  if (possible)
    keep(s, step, x);
  for (int k = 0; k < n->n_in; k++)
    s->gathered[n->in[k]] = s->before[k];
}

/* Tries the layouts of the node's values from k on. */
static void try_values(Search *s, const Step *step, int way, int k, State x) {
  const Node *n = &s->d->g->nodes.at[step->node];
  if (k == n->n_in + n->n_out) {
    finish_way(s, step, way, x);
    return;
  }
  int v = value_at(n, k);
  if (s->at[v] != NONE) {
    try_values(s, step, way, k + 1, x);
    return;
  }
  LayoutId may[MOST_LAYOUTS];
  int count = candidates(s, n, k, step->ways.at[way].at[k], may);
  for (int i = 0; i < count; i++) {
    s->at[v] = may[i];
    if (matches_partners(s, v))
      try_values(s, step, way, k + 1, x);
    s->at[v] = NONE;
  }
}

static int by_seconds(const void *a, const void *b) {
  const State *x = a, *y = b;
  if (x->seconds != y->seconds)
    return x->seconds < y->seconds ? -1 : 1;
  return x->parent != y->parent ? x->parent - y->parent : x->way - y->way;
}

/* Keeps the best states of each kind, an equal number per kind. */
static void keep_best(const Search *s, Step *step) {
  unsigned kind[MOST_KINDS];
  int count[MOST_KINDS] = {0}, kinds = 0, *of = alloc((size_t)(s->found.n + 1) * sizeof *of);
  for (int i = 0; i < s->found.n; i++) {
    int k = 0;
    while (k < kinds && kind[k] != s->found.at[i].kind)
      k++;
    if (k == kinds && kinds < MOST_KINDS)
      kind[kinds++] = s->found.at[i].kind;
    of[i] = k < kinds ? k : kinds - 1;
  }
  for (int i = 0; i < s->found.n; i++)
    if (count[of[i]]++ < BEAM / kinds || s->found.at[i].whole)
      push(&step->states, s->found.at[i]);
}

static void start_from(Search *s, int value, LayoutId state, bool same_run) {
  s->at[value] = state & ((1 << GATHERED_SHIFT) - 1);
  s->gathered[value] = same_run ? state >> GATHERED_SHIFT : 0;
}

/* Most states are dropped: they stay in scratch memory, and only the way back is kept. */
static void keep_trail(Step *step) {
  const int n = step->states.n, fresh = step->fresh.n;
  step->parent = alloc((size_t)n * sizeof *step->parent);
  step->way = alloc((size_t)n * sizeof *step->way);
  step->taken = alloc((size_t)(n * fresh) + 1);
  for (int i = 0; i < n; i++) {
    const State *x = &step->states.at[i];
    step->parent[i] = x->parent, step->way[i] = x->way;
    memcpy(step->taken + i * fresh, x->fresh, (size_t)fresh);
  }
}

static void find_states(Search *s, Step *step, const Step *before) {
  bool same_run = before && s->run[before->node] == s->run[step->node];
  State start = {0};
  int n = before ? before->states.n : 1;
  memset(&s->found, 0, sizeof s->found);
  memset(s->bucket, -1, BUCKETS * sizeof *s->bucket);
  for (int p = 0; p < n; p++) {
    const State *from = before ? &before->states.at[p] : &start;
    for (int k = 0; before && k < before->live.n; k++)
      start_from(s, before->live.at[k], from->at[k], same_run);
    for (int way = 0; way < step->ways.n; way++)
      try_values(s, step, way, 0, (State){.seconds = from->seconds, .parent = p});
    for (int k = 0; before && k < before->live.n; k++)
      s->at[before->live.at[k]] = NONE, s->gathered[before->live.at[k]] = 0;
  }
  qsort(s->found.at, (size_t)s->found.n, sizeof *s->found.at, by_seconds);
  keep_best(s, step);
}

static void start_scratch(Search *s) {
  for (int i = 0; i < 2; i++) {
    s->scratch[i] = arena_new();
    Arena *lasting = arena_use(s->scratch[i]);
    s->empty[i] = arena_mark();
    arena_use(lasting);
  }
}

static void take(Search *s, int i) {
  Step *step = &s->step[i];
  step->ways = ways_of(s->d, step->node);
  Arena *lasting = arena_use(s->scratch[i % 2]);
  arena_release(s->empty[i % 2]);
  find_states(s, step, i ? step - 1 : NULL);
  arena_use(lasting);
  keep_trail(step);
}

/* Reports a node without a way; without pinned parameters, the all-whole way always exists. */
static void tell_no_way(const Division *d, int node) {
  const Node *n = &d->g->nodes.at[node];
  bool pins = false;
  for (int v = 0; v < d->g->values.n; v++)
    pins |= d->pinned[v] != UNPINNED;
  ensure(pins);
  const char *where = d->g->scopes.at[n->scope].path;
  Span span = n->span;
  for (int s = n->scope; s > 0 && d->g->scopes.at[s].standard; s = d->g->scopes.at[s].parent)
    span = d->g->scopes.at[s].span;
  help(error_at(span, "PD0515", "--sharding: '%s' cannot compute '%s' with these layouts of its parameters",
                *where ? where : d->g->name, n->op->name),
       "use layouts that '--emit sharding' prints");
}

static size_t most_operands(const Graph *g) {
  int most = 0;
  for (int i = 0; i < g->nodes.n; i++)
    most = g->nodes.at[i].n_in > most ? g->nodes.at[i].n_in : most;
  return (size_t)most;
}

bool assign(const Division *d, Assignment *a) {
  const Graph *g = d->g;
  Search s = {.d = d};
  size_t values = (size_t)g->values.n + 1;
  s.partners = alloc(values * sizeof *s.partners);
  s.last = alloc(values * sizeof *s.last);
  s.at = alloc(values);
  s.bucket = alloc(BUCKETS * sizeof *s.bucket);
  memset(s.at, NONE, values);
  s.tied = alloc(values);
  for (int i = 0; i < g->params.n; i++)
    s.tied[g->params.at[i].value] = g->params.at[i].uses.n > 1;
  s.kept = alloc(values);
  s.gathered = alloc(values);
  s.before = alloc(most_operands(g) + 1);
  s.run = graph_runs(g);
  start_scratch(&s);
  find_partners(&s);
  find_kept(&s);
  order_steps(&s);
  find_lives(&s);
  for (int i = 0; i < s.n_steps; i++) {
    take(&s, i);
    if (!s.step[i].states.n) {
      tell_no_way(d, s.step[i].node);
      return false;
    }
  }
  *a = (Assignment){.way = alloc((size_t)g->nodes.n * sizeof *a->way), .at = alloc(values)};
  for (int i = s.n_steps - 1, state = 0; i >= 0; i--) {
    const Step *step = &s.step[i];
    a->way[step->node] = step->ways.at[step->way[state]];
    for (int k = 0; k < step->fresh.n; k++)
      a->at[step->fresh.at[k]] = step->taken[state * step->fresh.n + k];
    state = step->parent[state];
  }
  return true;
}
