/* States: sets of computed layers at the end of a stage. */
#include <stdlib.h>
#include <string.h>

#include "layers/internal.h"

/* A state during the search. */
typedef struct Found {
  uint64_t *members;
  uint64_t hash; /* exclusive or of its members' marks */
  int count;     /* number of layers */
} Found;

typedef struct Search {
  const LayerGraph *g; /* possibly contracted: then only its inputs are valid */
  int n, words, source;
  Ints *readers;    /* by layer */
  uint64_t *mark;   /* by layer: a random number */
  bool *touched;    /* by layer: scratch of a search step */
  Vec(Found) found; /* in order of discovery */
  int *slot;        /* by hash, open addressing: index in `found` + 1; 0: free */
} Search;

enum { SLOTS = 4 * MOST_STATES };

static bool has(const uint64_t *members, int layer) { return members[layer / 64] >> layer % 64 & 1; }
static void set(uint64_t *members, int layer) { members[layer / 64] |= (uint64_t)1 << layer % 64; }

bool state_has(const States *s, int state, int layer) { return has(s->members + (size_t)state * s->words, layer); }

bool state_contains(const States *s, int outer, int inner) {
  const uint64_t *a = s->members + (size_t)outer * s->words, *b = s->members + (size_t)inner * s->words;
  for (int w = s->words - 1; w >= 0; w--)
    if (b[w] & ~a[w])
      return false;
  return true;
}

/* ---- the search ---------------------------------------------------------------------------------- */

/* Number of layers that depend on a source, itself included. */
static int count_dependants(const Search *s, int source) {
  int count = 0;
  bool *depends = s->touched;
  memset(depends, 0, (size_t)s->n);
  depends[source] = true;
  for (int i = source; i < s->n; i++) { /* topological order */
    const Ints *inputs = &s->g->layers.at[i].inputs;
    for (int k = 0; k < inputs->n && !depends[i]; k++)
      depends[i] = depends[inputs->at[k]];
    count += depends[i];
  }
  return count;
}

static int main_source(const Search *s) {
  int best = 0, most = 0;
  for (int i = 0; i < s->n; i++) {
    int count = s->g->layers.at[i].inputs.n ? 0 : count_dependants(s, i);
    if (count > most) {
      most = count;
      best = i;
    }
  }
  return best;
}

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Adds a layer and all its inputs, recursively. */
static void add_layer(const Search *s, Found *f, int layer) {
  Ints todo = {0};
  push(&todo, layer);
  while (todo.n) {
    int i = todo.at[--todo.n];
    if (has(f->members, i))
      continue;
    set(f->members, i);
    f->hash ^= s->mark[i];
    f->count++;
    const Ints *inputs = &s->g->layers.at[i].inputs;
    for (int k = 0; k < inputs->n; k++)
      push(&todo, inputs->at[k]);
  }
}

/* The state `from` (NULL: empty) with a layer and its inputs. */
static Found next_state(const Search *s, const Found *from, int layer) {
  Found f = {.members = alloc((size_t)s->words * sizeof(uint64_t))};
  if (from) {
    memcpy(f.members, from->members, (size_t)s->words * sizeof(uint64_t));
    f.hash = from->hash;
    f.count = from->count;
  }
  add_layer(s, &f, layer);
  return f;
}

/* The layers that can be added next: they read a member, and none of their missing inputs does. */
static Ints ready_layers(const Search *s, const Found *f) {
  Ints ready = {0};
  for (int i = 0; i < s->n; i++) {
    s->touched[i] = false; /* it or one of its missing inputs reads a member */
    if (has(f->members, i))
      continue;
    const Ints *inputs = &s->g->layers.at[i].inputs;
    bool reads = false, later = false;
    for (int k = 0; k < inputs->n; k++) {
      reads = reads || has(f->members, inputs->at[k]);
      later = later || s->touched[inputs->at[k]];
    }
    s->touched[i] = reads || later;
    if (reads && !later)
      push(&ready, i);
  }
  return ready;
}

/* False: too many states. */
static bool keep(Search *s, const Found *f) {
  size_t i = f->hash & (SLOTS - 1);
  for (; s->slot[i]; i = (i + 1) & (SLOTS - 1)) {
    const Found *other = &s->found.at[s->slot[i] - 1];
    if (other->hash == f->hash && !memcmp(other->members, f->members, (size_t)s->words * sizeof(uint64_t)))
      return true;
  }
  if (s->found.n == MOST_STATES)
    return false;
  push(&s->found, *f);
  s->slot[i] = s->found.n;
  return true;
}

/* Adds all successors of a state. False: too many. Each subset of the ready layers leads to a distinct state, so
 * many ready layers exceed the limit at once. */
static bool go_on(Search *s, int state) {
  const Found from = s->found.at[state];
  Ints ready = ready_layers(s, &from);
  bool few = ready.n < 31 && 1 << ready.n <= MOST_STATES;
  for (int k = 0; k < ready.n && few; k++) {
    Found next = next_state(s, &from, ready.at[k]);
    few = keep(s, &next);
  }
  return few;
}

static bool search(Search *s) {
  Found first = next_state(s, NULL, s->source);
  bool few = keep(s, &first);
  for (int i = 0; i < s->found.n && few; i++)
    few = go_on(s, i);
  int last = 0;
  for (int i = 0; i < s->found.n; i++)
    last = s->found.at[i].count > s->found.at[last].count ? i : last;
  for (int i = 0; i < s->n; i++) /* layers unrelated to the main source */
    add_layer(s, &s->found.at[last], i);
  return few;
}

/* ---- figures of states --------------------------------------------------------------------------- */

typedef struct Figures {
  double compute;
  int64_t parameters, output;
  int values, count, place; /* count: layers; place: order of discovery */
  bool allowed;
  const uint64_t *members;
} Figures;

static Figures figures_of(const Search *s, const Found *f, int device) {
  Figures x = {.count = f->count, .allowed = true, .members = f->members};
  for (int i = 0; i < s->n; i++) {
    if (!has(f->members, i))
      continue;
    const Layer *l = &s->g->layers.at[i];
    x.compute += l->forward[device] + l->backward[device];
    x.parameters += l->parameters;
    int k = 0;
    while (k < s->readers[i].n && has(f->members, s->readers[i].at[k]))
      k++;
    if (k == s->readers[i].n)
      continue;
    x.output += l->output;
    x.values++;
    x.allowed = x.allowed && l->cut;
  }
  return x;
}

static int by_compute(const void *a, const void *b) {
  const Figures *x = a, *y = b;
  if (x->compute != y->compute)
    return x->compute < y->compute ? -1 : 1;
  if (x->count != y->count)
    return x->count - y->count;
  return x->place - y->place;
}

static Search search_of(const LayerGraph *graph) {
  int n = graph->layers.n;
  Search s = {.g = graph, .n = n, .words = (n + 63) / 64};
  s.readers = alloc((size_t)n * sizeof *s.readers);
  s.mark = alloc((size_t)n * sizeof *s.mark);
  s.slot = alloc(SLOTS * sizeof *s.slot);
  s.touched = alloc((size_t)n);
  for (int i = 0; i < n; i++) {
    s.mark[i] = mix((uint64_t)i);
    for (int k = 0; k < graph->layers.at[i].inputs.n; k++)
      push(&s.readers[graph->layers.at[i].inputs.at[k]], i);
  }
  return s;
}

/* The states in layers of the graph before contraction. */
static Search expanded(const Search *s, const LayerGraph *g, const int *group_of) {
  Search out = search_of(g);
  for (int i = 0; i < s->found.n; i++) {
    Found f = s->found.at[i];
    const uint64_t *groups = f.members;
    f.members = alloc((size_t)out.words * sizeof *f.members);
    f.count = 0;
    for (int k = 0; k < out.n; k++)
      if (has(groups, group_of[k])) {
        set(f.members, k);
        f.count++;
      }
    push(&out.found, f);
  }
  return out;
}

static const States *gather(const Search *s, int device) {
  Figures *all = alloc((size_t)s->found.n * sizeof *all);
  int n = 0;
  for (int i = 0; i < s->found.n; i++) {
    all[n] = figures_of(s, &s->found.at[i], device);
    all[n].place = i;
    n += all[n].allowed || all[n].count == s->n;
  }
  qsort(all, (size_t)n, sizeof *all, by_compute);
  double *compute = alloc((size_t)n * sizeof *compute);
  int64_t *parameters = alloc((size_t)n * sizeof *parameters), *output = alloc((size_t)n * sizeof *output);
  int *values = alloc((size_t)n * sizeof *values);
  uint64_t *members = alloc((size_t)n * s->words * sizeof *members);
  for (int i = 0; i < n; i++) {
    compute[i] = all[i].compute;
    parameters[i] = all[i].parameters;
    output[i] = all[i].output;
    values[i] = all[i].values;
    memcpy(members + (size_t)i * s->words, all[i].members, (size_t)s->words * sizeof *members);
  }
  States *out = alloc(sizeof *out);
  *out = (States){.n = n,
                  .compute = compute,
                  .parameters = parameters,
                  .output = output,
                  .values = values,
                  .members = members,
                  .words = s->words};
  return out;
}

/* A search on the graph after this number of steps. */
static Search contracted(const LayerGraph *graph, int device, const Joints *joints, int steps, int source,
                         int **group_of) {
  Search s = search_of(contracted_graph(graph, device, joints->at, steps, group_of));
  s.source = (*group_of)[source];
  return s;
}

/* The fewest steps that leave at most MOST_STATES, by bisection: states decrease with steps. */
static int steps_needed(const LayerGraph *graph, int device, const Joints *joints, int source) {
  int low = 0, high = joints->n;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    ArenaMark mark = arena_mark();
    int *group_of;
    Search s = contracted(graph, device, joints, middle, source, &group_of);
    if (search(&s))
      high = middle;
    else
      low = middle;
    arena_release(mark);
  }
  return high;
}

static void count_contracted(States *s, const int *group_of, int n) {
  int *members = alloc((size_t)n * sizeof *members);
  for (int i = 0; i < n; i++)
    members[group_of[i]]++;
  for (int i = 0; i < n; i++)
    if (members[i] > 1) {
      s->groups++;
      s->contracted += members[i];
    }
}

const States *states_after(const LayerGraph *graph, int device, Joints joints, int steps) {
  const Search whole = search_of(graph);
  int *group_of;
  joints.n = steps;
  Search s = contracted(graph, device, &joints, steps, main_source(&whole), &group_of);
  ensure(search(&s));
  const Search all = expanded(&s, graph, group_of);
  States *out = alloc_copy(gather(&all, device), sizeof *out);
  out->joints = joints;
  count_contracted(out, group_of, graph->layers.n);
  return out;
}

const States *states_find(const LayerGraph *graph, int device) {
  Search s = search_of(graph);
  s.source = main_source(&s);
  if (search(&s))
    return gather(&s, device);
  const Joints joints = contraction_steps(graph, device);
  return states_after(graph, device, joints, steps_needed(graph, device, &joints, s.source));
}
