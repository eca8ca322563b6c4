/* fuse: a stage's part of the Graph -> Kernels. Steps, each in its file: what there is to do (items.c),
 * what loops compute again (keep.c, again.c), which items share a loop (group.c), what forward keeps for
 * backward (keep.c), terms, passes and dims of each loop (terms.c), what is stored in bf16 (precision.c), what
 * the weights pass does (defer.c), names, regions, lifetimes (names.c). */
#include <stdlib.h>
#include <string.h>

#include "fuse/internal.h"

static Fuse *fuse_new(const Graph *g, const Pieces *p, const Chunk *chunk, StageKernels *k) {
  Fuse *f = alloc(sizeof *f);
  size_t nodes = (size_t)g->nodes.n, values = (size_t)g->values.n;
  *f = (Fuse){.g = g, .p = p, .k = k, .first_piece = chunk->first_piece, .end_piece = chunk->end_piece,
              .first = p->at[chunk->first_piece].first, .end = p->at[chunk->end_piece - 1].end};
  f->here = alloc(nodes);
  f->table = alloc(nodes);
  f->merged = alloc(sizeof(int) * nodes);
  f->bias = alloc(sizeof(int) * nodes);
  f->region = alloc(sizeof(int) * nodes);
  f->n_uses = alloc(sizeof(int) * values);
  f->read_in_rows = alloc(values);
  f->read_dense = alloc(values);
  f->read_as_one = alloc(values);
  f->name = alloc(sizeof(Name) * values);
  f->same = alloc(sizeof(int) * values);
  f->root = alloc(sizeof(Place) * values);
  f->home = alloc(sizeof(int) * values);
  f->ready = alloc(sizeof(int) * values);
  f->placed = alloc(values);
  f->needed = alloc(values);
  f->inlined = alloc(values);
  f->counts = alloc(values);
  f->depth = alloc(sizeof(int) * values);
  f->kept = alloc(values);
  for (int i = 0; i < g->nodes.n; i++)
    f->merged[i] = f->bias[i] = -1;
  for (int v = 0; v < g->values.n; v++) {
    f->same[v] = v;
    f->home[v] = -1;
    f->root[v].buffer = -1;
  }
  return f;
}

static void find_names(Fuse *f) {
  for (int v = 0; v < f->g->values.n; v++)
    f->name[v] = value_at(f, v)->name;
  for (int v = 0; v < f->g->values.n; v++)
    for (int u = value_at(f, v)->gradients.n - 1; u >= 0; u--) {
      int gradient = value_at(f, v)->gradients.at[u];
      if (gradient >= 0)
        f->name[gradient] = internf("d_%s", value_at(f, v)->name);
    }
}

static void find_nodes(Fuse *f) {
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *n = node_at(f, i);
    int forward = n->serves >= 0 ? n->serves : i;
    f->here[i] = forward >= f->first && forward < f->end;
    bool picky = f->here[i] && n->op->kind == OP_CALL && !n->op->transposes;
    for (int j = 0; j < n->n_in; j++) {
      f->n_uses[n->in[j]]++;
      f->read_in_rows[n->in[j]] |= picky;
      f->read_dense[n->in[j]] |= picky && !n->op->strided_out;
      f->read_as_one[n->in[j]] |= f->here[i] && n->op->rows_as_one;
    }
  }
  for (int i = 0; i < f->g->params.n; i++)
    for (int u = 0; u < f->g->params.at[i].gradients.n; u++)
      if (f->g->params.at[i].gradients.at[u] >= 0)
        f->n_uses[f->g->params.at[i].gradients.at[u]]++;
  for (int i = 0; i < f->g->figures.n; i++)
    f->n_uses[f->g->figures.at[i].value]++;
}

static bool equal_nodes(const Fuse *f, const Node *a, const Node *b) {
  if (a->op != b->op || a->n_in != b->n_in || a->n_out != 1 || b->n_out != 1)
    return false;
  for (int i = 0; i < a->n_in; i++)
    if (f->same[a->in[i]] != f->same[b->in[i]])
      return false;
  for (int i = 0; i < MAX_ATTR && a->op->attr[i].name; i++) {
    const Attr *x = &a->attr[i], *y = &b->attr[i];
    if (x->number != y->number || x->text != y->text || x->n != y->n ||
        (x->n && memcmp(x->list, y->list, sizeof *x->list * (size_t)x->n)))
      return false;
  }
  return shape_equal(&value_at(f, a->out[0])->shape, &value_at(f, b->out[0])->shape);
}

/* Nodes that depend on no input, no parameter and no call are made once; equal ones stand for one another. */
static void find_tables(Fuse *f) {
  bool *varies = alloc((size_t)f->g->values.n);
  Ints fixed = {0};
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *n = node_at(f, i);
    bool depends = n->op->source != SOURCE_NONE || n->op->varies || n->op->kind == OP_CALL;
    for (int j = 0; j < n->n_in; j++)
      depends |= varies[n->in[j]];
    for (int j = 0; j < n->n_out; j++)
      varies[n->out[j]] = depends || value_at(f, n->out[j])->shape.batched;
    if (varies[n->out[0]] || !f->here[i])
      continue;
    for (int j = 0; j < fixed.n && f->same[n->out[0]] == n->out[0]; j++)
      if (equal_nodes(f, node_at(f, fixed.at[j]), n))
        f->same[n->out[0]] = node_at(f, fixed.at[j])->out[0];
    if (f->same[n->out[0]] == n->out[0])
      push(&fixed, i);
    f->table[i] = n->op->kind != OP_SOURCE;
  }
}

const char *index_in(const char *path) {
  for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
    size_t digits = strspn(dot + 1, "0123456789");
    if (digits > 0 && (dot[1 + digits] == 0 || dot[1 + digits] == '.'))
      return dot + 1;
  }
  return NULL;
}

/* Regions are runs of forward nodes of one indexed instance ("h.3"), or of anything else. */
static void find_regions(Fuse *f) {
  StageKernels *k = f->k;
  for (int i = f->first; i < f->end; i++) {
    Name path = f->g->scopes.at[node_at(f, i)->scope].path;
    const char *index = index_in(path);
    size_t before = index ? (size_t)(index - path) : 0;
    Name key = intern_n(path, index ? before + strspn(index, "0123456789") : 0);
    if (k->regions.n == 0 || k->regions.at[k->regions.n - 1].path != key) {
      Region r = {.path = key, .index = index ? (int)strtol(index, NULL, 10) : -1, .like = k->regions.n};
      r.family = index ? intern_n(path, before - 1) : key;
      push(&k->regions, r);
    }
    f->region[i] = k->regions.n - 1;
  }
}

StageKernels *fuse(const Graph *g, const Pieces *p, int first_piece, int end_piece, int stage, int n_stages,
                   int64_t microbatch, bool recompute, bool split, Target target) {
  StageKernels *k = alloc(sizeof *k);
  Chunk chunk = {.first_piece = first_piece, .end_piece = end_piece};
  *k = (StageKernels){.graph = g, .stage = stage, .n_stages = n_stages, .microbatch = microbatch,
                      .recompute = recompute, .split = split, .target = target};
  Fuse *f = fuse_new(g, p, &chunk, k);
  find_names(f);
  find_nodes(f);
  find_tables(f);
  find_regions(f);
  for (int i = 0; i < g->nodes.n; i++)
    if (f->here[i] && node_at(f, i)->op->kind == OP_JOIN)
      push(&f->joins[direction_of(f, i)], i);
  merge_biases(f);
  find_inlined(f);
  list_items(f);
  for (Direction d = SETUP; d <= FORWARD; d++) {
    group_items(f, d);
    build_kernels(f, d);
  }
  decide_kept(f);
  group_items(f, BACKWARD);
  build_kernels(f, BACKWARD);
  for (Direction d = SETUP; d < N_DIRECTIONS; d++)
    finish_loops(f, d);
  choose_precision(k);
  name_everything(f);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    chunk.end[pass] = pass_kernels(k, pass)->n;
  push(&k->chunks, chunk);
  return k;
}
