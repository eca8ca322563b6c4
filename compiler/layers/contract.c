/* Reduces the number of states: merges layers step by step, where cuts lose least. */
#include <string.h>

#include "base/table.h"
#include "layers/internal.h"

/* Merged layers. */
typedef struct Group {
  Ints layers, inputs, readers; /* inputs, readers: distinct groups; inputs in topological order */
  double compute;               /* seconds */
  int64_t parameters, output;   /* bytes; output: read by other groups */
  bool cut;                     /* all values that other groups read may be sent */
  bool wide;                    /* each of its layers has an independent layer, neither ancestor nor descendant */
} Group;

typedef struct Quotient {
  int n;
  Group *group; /* in topological order */
  int *of;      /* by layer */
} Quotient;

typedef struct Contract {
  const LayerGraph *g;
  int n, device;
  Ints *readers; /* by layer */
  bool *wide;    /* by layer */
  int *parent;   /* by layer: union-find; a root is the first layer of its group */
} Contract;

static int root(int *parent, int i) {
  while (parent[i] != i)
    i = parent[i] = parent[parent[i]];
  return i;
}

static void unite(int *parent, int a, int b) {
  a = root(parent, a), b = root(parent, b);
  parent[a > b ? a : b] = a > b ? b : a;
}

/* ---- independent layers -------------------------------------------------------------------------- */

static int count_bits(const uint64_t *bits, int words) {
  int count = 0;
  for (int w = 0; w < words; w++)
    count += __builtin_popcountll(bits[w]);
  return count;
}

/* Adds to `counts` the number of ancestors of each layer, or descendants if `backward`, itself included. */
static void count_reached(const Contract *c, bool backward, int *counts) {
  const int words = (c->n + 63) / 64;
  ArenaMark mark = arena_mark();
  uint64_t *reached = alloc((size_t)c->n * (size_t)words * sizeof *reached);
  for (int k = 0; k < c->n; k++) {
    const int i = backward ? c->n - 1 - k : k;
    const Ints *next = backward ? &c->readers[i] : &c->g->layers.at[i].inputs;
    uint64_t *own = reached + (size_t)i * (size_t)words;
    own[i / 64] |= (uint64_t)1 << i % 64;
    for (int m = 0; m < next->n; m++)
      for (int w = 0; w < words; w++)
        own[w] |= reached[(size_t)next->at[m] * (size_t)words + (size_t)w];
    counts[i] += count_bits(own, words);
  }
  arena_release(mark);
}

static void find_wide(Contract *c) {
  int *counts = alloc((size_t)c->n * sizeof *counts);
  count_reached(c, false, counts);
  count_reached(c, true, counts);
  c->wide = alloc((size_t)c->n);
  for (int i = 0; i < c->n; i++)
    c->wide[i] = counts[i] < c->n + 1;
}

/* ---- the graph of groups ----------------------------------------------------------------------------- */

/* By root: position in a topological order. */
static int *sort_groups(const Contract *c, int *n) {
  int *place = alloc((size_t)c->n * sizeof *place), *waits = alloc((size_t)c->n * sizeof *waits);
  Ints ready = {0}, *members = alloc((size_t)c->n * sizeof *members);
  for (int i = 0; i < c->n; i++) {
    const int to = root(c->parent, i);
    push(&members[to], i);
    for (int k = 0; k < c->g->layers.at[i].inputs.n; k++)
      waits[to] += root(c->parent, c->g->layers.at[i].inputs.at[k]) != to;
  }
  for (int i = c->n - 1; i >= 0; i--)
    if (members[i].n && !waits[i])
      push(&ready, i);
  *n = 0;
  while (ready.n) {
    const int from = ready.at[--ready.n];
    place[from] = (*n)++;
    for (int m = members[from].n - 1; m >= 0; m--)
      for (int k = c->readers[members[from].at[m]].n - 1; k >= 0; k--) {
        const int to = root(c->parent, c->readers[members[from].at[m]].at[k]);
        if (to != from && --waits[to] == 0)
          push(&ready, to);
      }
  }
  return place;
}

static int by_number(const void *a, const void *b) {
  const int *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static void sort_once(Ints *list) {
  int n = 0;
  if (list->n)
    qsort(list->at, (size_t)list->n, sizeof *list->at, by_number);
  for (int i = 0; i < list->n; i++)
    if (i == 0 || list->at[i] != list->at[i - 1])
      list->at[n++] = list->at[i];
  list->n = n;
}

static Quotient quotient(const Contract *c) {
  Quotient q = {0};
  int *place = sort_groups(c, &q.n), groups = 0;
  for (int i = 0; i < c->n; i++)
    groups += root(c->parent, i) == i;
  ensure(q.n == groups); /* acyclic */
  q.group = alloc((size_t)q.n * sizeof *q.group);
  q.of = alloc((size_t)c->n * sizeof *q.of);
  for (int i = 0; i < c->n; i++)
    q.of[i] = place[root(c->parent, i)];
  for (int i = 0; i < q.n; i++)
    q.group[i].cut = q.group[i].wide = true;
  for (int i = 0; i < c->n; i++) {
    const Layer *l = &c->g->layers.at[i];
    Group *g = &q.group[q.of[i]];
    bool read = false;
    push(&g->layers, i);
    g->compute += l->forward[c->device] + l->backward[c->device];
    g->parameters += l->parameters;
    g->wide &= c->wide[i];
    for (int k = 0; k < l->inputs.n; k++)
      if (q.of[l->inputs.at[k]] != q.of[i])
        push(&g->inputs, q.of[l->inputs.at[k]]);
    for (int k = 0; k < c->readers[i].n; k++)
      if (q.of[c->readers[i].at[k]] != q.of[i]) {
        push(&g->readers, q.of[c->readers[i].at[k]]);
        read = true;
      }
    g->output += read ? l->output : 0;
    g->cut &= !read || l->cut;
  }
  for (int i = 0; i < q.n; i++) {
    sort_once(&q.group[i].inputs);
    sort_once(&q.group[i].readers);
  }
  return q;
}

/* ---- a step ------------------------------------------------------------------------------------------ */

/* Two groups to merge. */
typedef struct Step {
  int first, second;
  bool beside; /* independent groups with equal inputs; else the second reads the first */
  bool exact;  /* no state separates them */
  bool equal;  /* has_equal() */
  double compute;
} Step;

/* Whether the second group reads a value of the first that may not be sent: then no state separates them. */
static bool is_inseparable(const Contract *c, const Quotient *q, int first, int second) {
  const Ints *readers = &q->group[second].layers;
  for (int i = 0; i < readers->n; i++) {
    const Ints *inputs = &c->g->layers.at[readers->at[i]].inputs;
    for (int k = 0; k < inputs->n; k++)
      if (q->of[inputs->at[k]] == first && !c->g->layers.at[inputs->at[k]].cut)
        return true;
  }
  return false;
}

static bool costs_nothing(const Group *g) { return g->compute <= 0 && g->parameters == 0; }

/* Whether every state between the two has an equivalent one with equal costs on both sides, and no more bytes. A
 * plan that must use all machines can still lose: a stage without costs could absorb some. */
static bool has_equal(const Quotient *q, int first, int second) {
  const Group *a = &q->group[first], *b = &q->group[second];
  if (a->readers.n != 1) /* only b */
    return false;
  if (b->inputs.n == 1 && costs_nothing(b) && b->cut && b->output <= a->output) /* a state after b */
    return true;
  if (!costs_nothing(a) || a->inputs.n != 1)
    return false;
  const Group *before = &q->group[a->inputs.at[0]];
  return before->readers.n == 1 && before->cut && before->output <= a->output;
}

typedef Vec(Step) Steps;

static int by_loss(const void *a, const void *b) {
  const Step *x = a, *y = b;
  if (x->exact != y->exact)
    return y->exact - x->exact;
  if (x->equal != y->equal)
    return y->equal - x->equal;
  if (x->compute != y->compute)
    return x->compute < y->compute ? -1 : 1;
  return x->second != y->second ? x->second - y->second : x->beside - y->beside;
}

static void add_step(const Quotient *q, Step step, Steps *steps) {
  step.compute = q->group[step.first].compute + q->group[step.second].compute;
  push(steps, step);
}

/* Each step alone leaves the graph acyclic: no group lies between a group and its last input, or between groups
 * with equal inputs. wide: only groups with independent layers, because these multiply states. */
static Steps steps_of(const Contract *c, const Quotient *q, bool wide) {
  Steps steps = {0};
  Table alike = {.key_bytes = sizeof(uint64_t)}; /* by hash of the inputs: the last group's index */
  for (int i = 0; i < q->n; i++) {
    const Group *g = &q->group[i];
    const int last = g->inputs.n ? g->inputs.at[g->inputs.n - 1] : -1;
    if (wide && !g->wide)
      continue;
    if (last >= 0 && (!wide || q->group[last].wide))
      add_step(q, (Step){last, i, false, is_inseparable(c, q, last, i), has_equal(q, last, i), 0}, &steps);
    uint64_t hash = 0xcbf29ce484222325u;
    for (int k = 0; k < g->inputs.n; k++)
      hash = (hash ^ (uint64_t)g->inputs.at[k]) * 0x100000001b3u;
    const int other = table_number(&alike, &hash);
    if (g->wide && other >= 0 && q->group[other].inputs.n == g->inputs.n && g->inputs.n &&
        !memcmp(q->group[other].inputs.at, g->inputs.at, (size_t)g->inputs.n * sizeof(int)))
      add_step(q, (Step){.first = other, .second = i, .beside = true}, &steps);
    if (g->wide)
      table_set_number(&alike, &hash, i);
  }
  if (steps.n)
    qsort(steps.at, (size_t)steps.n, sizeof *steps.at, by_loss);
  return steps;
}

/* Marks places [first, last]; false if one is already marked. */
static bool take_places(bool *taken, int first, int last) {
  for (int i = first; i <= last; i++)
    if (taken[i])
      return false;
  memset(taken + first, true, (size_t)(last - first + 1));
  return true;
}

/* The steps with least loss. Steps at disjoint places in the order also leave no cycle together, because all edges
 * point forward. */
static Steps next_steps(const Contract *c, const Quotient *q, bool wide) {
  enum { SHARE = 16, LOOKS = 4 };
  const Steps all = steps_of(c, q, wide);
  const int most = 1 + q->n / SHARE;
  bool *taken = alloc((size_t)q->n);
  Steps chosen = {0};
  for (int i = 0; i < all.n && i < LOOKS * most && chosen.n < most; i++)
    if (take_places(taken, all.at[i].first, all.at[i].second))
      push(&chosen, all.at[i]);
  return chosen;
}

/* ---- all steps ----------------------------------------------------------------------------------------- */

static Contract contract_of(const LayerGraph *g, int device) {
  Contract c = {.g = g, .n = g->layers.n, .device = device};
  c.readers = alloc((size_t)c.n * sizeof *c.readers);
  c.parent = alloc((size_t)c.n * sizeof *c.parent);
  for (int i = 0; i < c.n; i++) {
    c.parent[i] = i;
    for (int k = 0; k < g->layers.at[i].inputs.n; k++)
      push(&c.readers[g->layers.at[i].inputs.at[k]], i);
  }
  find_wide(&c);
  return c;
}

/* The layers merged with this one. */
static Ints members_of(const Contract *c, int layer) {
  Ints members = {0};
  for (int i = 0; i < c->n; i++)
    if (root(c->parent, i) == root(c->parent, layer))
      push(&members, i);
  return members;
}

/* Steps of a round, each as two layers, so that they outlive the search. */
typedef struct Round {
  int n;
  struct {
    int first, second;
    bool beside, exact;
  } step[MOST_LAYERS];
} Round;

static void find_round(const Contract *c, bool wide, Round *round) {
  ArenaMark mark = arena_mark();
  const Quotient q = quotient(c);
  const Steps steps = next_steps(c, &q, wide);
  round->n = steps.n;
  for (int i = 0; i < steps.n; i++) {
    const Step *s = &steps.at[i];
    round->step[i].first = q.group[s->first].layers.at[0];
    round->step[i].second = q.group[s->second].layers.at[0];
    round->step[i].beside = s->beside;
    round->step[i].exact = s->exact;
  }
  arena_release(mark);
}

Joints contraction_steps(const LayerGraph *g, int device) {
  Contract c = contract_of(g, device);
  Round *round = alloc(sizeof *round);
  Joints joints = {0};
  for (bool wide = true;;) {
    find_round(&c, wide, round);
    if (round->n == 0 && !wide)
      return joints;
    wide &= round->n > 0;
    for (int i = 0; i < round->n; i++) {
      const int first = round->step[i].first, second = round->step[i].second;
      push(&joints,
           ((Joint){members_of(&c, first), members_of(&c, second), round->step[i].beside, round->step[i].exact}));
      unite(c.parent, first, second);
    }
  }
}

/* Excludes groups without loss. */
int states_largest_groups(const LayerGraph *g, const States *s, int device, ContractedGroup *largest, int most) {
  Contract c = contract_of(g, device);
  bool *lossy = alloc((size_t)c.n);
  int n = 0;
  for (int i = 0; i < s->joints.n; i++)
    unite(c.parent, s->joints.at[i].before.at[0], s->joints.at[i].behind.at[0]);
  const Quotient q = quotient(&c);
  for (int i = 0; i < s->joints.n; i++)
    lossy[q.of[s->joints.at[i].before.at[0]]] |= !s->joints.at[i].exact;
  for (int i = 0; i < q.n; i++) {
    const Ints *layers = &q.group[i].layers;
    int at = n < most ? n : most;
    if (!lossy[i])
      continue;
    for (; at > 0 && largest[at - 1].seconds < q.group[i].compute; at--)
      if (at < most)
        largest[at] = largest[at - 1];
    if (at < most)
      largest[at] = (ContractedGroup){g->layers.at[layers->at[0]].name,
                                      g->layers.at[layers->at[layers->n - 1]].name, layers->n, q.group[i].compute};
    n += n < most;
  }
  return n;
}

LayerGraph *contracted_graph(const LayerGraph *g, int device, const Joint *joint, int n, int **group_of) {
  Contract c = contract_of(g, device);
  for (int i = 0; i < n; i++)
    unite(c.parent, joint[i].before.at[0], joint[i].behind.at[0]);
  const Quotient q = quotient(&c);
  LayerGraph *out = alloc(sizeof *out);
  *out = (LayerGraph){.name = g->name, .file = g->file, .gradients = g->gradients, .moments = g->moments};
  for (int i = 0; i < q.n; i++)
    push(&out->layers, ((Layer){.inputs = q.group[i].inputs, .where = NO_SPAN}));
  *group_of = q.of;
  return out;
}
