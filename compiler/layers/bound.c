/* The fewest bytes across a state that separates two groups of layers: a minimum cut. */
#include "layers/internal.h"

/* Edges come in pairs, forward and back; the partner of edge e is e ^ 1. */
typedef struct Edge {
  int to, next; /* next: the same node's next edge; -1: none */
  int64_t room;
} Edge;

typedef struct Flow {
  int n, *first; /* by node: first edge; -1: none */
  Vec(Edge) edges;
  int *level, *at; /* by node, within a phase */
} Flow;

static const int64_t ENDLESS = INT64_MAX / 4;

static void connect(Flow *f, int from, int to, int64_t room) {
  push(&f->edges, ((Edge){to, f->first[from], room}));
  f->first[from] = f->edges.n - 1;
  push(&f->edges, ((Edge){from, f->first[to], 0}));
  f->first[to] = f->edges.n - 1;
}

static bool find_levels(Flow *f, int source, int sink) {
  Ints queue = {0};
  for (int i = 0; i < f->n; i++)
    f->level[i] = -1;
  f->level[source] = 0;
  push(&queue, source);
  for (int k = 0; k < queue.n; k++)
    for (int e = f->first[queue.at[k]]; e >= 0; e = f->edges.at[e].next)
      if (f->edges.at[e].room > 0 && f->level[f->edges.at[e].to] < 0) {
        f->level[f->edges.at[e].to] = f->level[queue.at[k]] + 1;
        push(&queue, f->edges.at[e].to);
      }
  return f->level[sink] >= 0;
}

/* Pushes flow along one path of rising levels, with a stack of edges; returns the amount. 0: no path. */
static int64_t push_once(Flow *f, int source, int sink) {
  Ints way = {0};
  int node = source;
  while (node != sink) {
    int *e = &f->at[node];
    while (*e >= 0 && !(f->edges.at[*e].room > 0 && f->level[f->edges.at[*e].to] == f->level[node] + 1))
      *e = f->edges.at[*e].next;
    if (*e >= 0) {
      push(&way, *e);
      node = f->edges.at[*e].to;
    } else if (way.n) {
      const int back = way.at[--way.n];
      node = f->edges.at[back ^ 1].to;
      f->at[node] = f->edges.at[back].next;
    } else {
      return 0;
    }
  }
  int64_t most = ENDLESS;
  for (int i = 0; i < way.n; i++)
    most = f->edges.at[way.at[i]].room < most ? f->edges.at[way.at[i]].room : most;
  for (int i = 0; i < way.n; i++) {
    f->edges.at[way.at[i]].room -= most;
    f->edges.at[way.at[i] ^ 1].room += most;
  }
  return most;
}

/* Dinic's algorithm. */
static int64_t largest_flow(Flow *f, int source, int sink) {
  int64_t flow = 0, more;
  while (flow < ENDLESS && find_levels(f, source, sink)) {
    for (int i = 0; i < f->n; i++)
      f->at[i] = f->first[i];
    while (flow < ENDLESS && (more = push_once(f, source, sink)) > 0)
      flow += more;
  }
  return flow < ENDLESS ? flow : INT64_MAX;
}

/* Layer i is node 2 i, and its value node 2 i + 1. A value is cut if a state has the layer but lacks one of its
 * readers. Edges from readers back to inputs force a state to contain all inputs of its members. */
static Flow flow_of(const LayerGraph *g) {
  const int n = g->layers.n;
  Flow f = {.n = 2 * n + 2};
  f.first = alloc((size_t)f.n * sizeof(int));
  f.level = alloc((size_t)f.n * sizeof(int));
  f.at = alloc((size_t)f.n * sizeof(int));
  for (int i = 0; i < f.n; i++)
    f.first[i] = -1;
  for (int i = 0; i < n; i++) {
    const Layer *l = &g->layers.at[i];
    connect(&f, 2 * i, 2 * i + 1, l->cut ? l->output : ENDLESS);
    for (int k = 0; k < l->inputs.n; k++) {
      connect(&f, 2 * l->inputs.at[k] + 1, 2 * i, ENDLESS);
      connect(&f, 2 * i, 2 * l->inputs.at[k], ENDLESS);
    }
  }
  return f;
}

static int64_t least_between(const LayerGraph *g, const Ints *in, const Ints *out) {
  ArenaMark mark = arena_mark();
  Flow f = flow_of(g);
  const int source = f.n - 2, sink = f.n - 1;
  for (int i = 0; i < in->n; i++)
    connect(&f, source, 2 * in->at[i], ENDLESS);
  for (int i = 0; i < out->n; i++)
    connect(&f, 2 * out->at[i], sink, ENDLESS);
  const int64_t least = largest_flow(&f, source, sink);
  arena_release(mark);
  return least;
}

int64_t joint_least_output(const LayerGraph *g, const Joint *joint) {
  const int64_t there = least_between(g, &joint->before, &joint->behind);
  const int64_t back = joint->beside ? least_between(g, &joint->behind, &joint->before) : INT64_MAX;
  return there < back ? there : back;
}
