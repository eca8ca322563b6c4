/* Surveys a stage before any decision: its nodes, regions, readers and tables, and the additions that are biases
 * of calls. */
#include <stdlib.h>
#include <string.h>

#include "fuse/internal.h"

static Survey *survey_new(const Fuse *f) {
  Survey *s = alloc(sizeof *s);
  size_t nodes = (size_t)f->g->nodes.n, values = (size_t)f->g->values.n;
  s->first = f->p->at[f->first_piece].first;
  s->end = f->p->at[f->end_piece - 1].end;
  s->here = alloc(nodes);
  s->table = alloc(nodes);
  s->region = alloc(sizeof(int) * nodes);
  s->segment = alloc(sizeof(int) * nodes);
  s->same = alloc_copy(f->facts->itself, sizeof(int) * values);
  s->reordered = alloc(sizeof(int) * values);
  s->next_reordered = alloc(sizeof(int) * nodes);
  s->read_in_rows = alloc(values);
  s->read_dense = alloc(values);
  s->read_as_one = alloc(values);
  return s;
}

static int rising(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The backward nodes of a part are mostly in reverse order of their forward nodes. */
static void find_here(const Fuse *f, Survey *s) {
  bool nodes_sorted = true, values_sorted = true;
  for (int i = s->first; i < s->end; i++)
    push(&s->nodes, i);
  for (int i = s->end - 1; i >= s->first; i--)
    for (int k = 0; k < f->facts->serving[i].n; k++) {
      nodes_sorted &= s->nodes.at[s->nodes.n - 1] < f->facts->serving[i].at[k];
      push(&s->nodes, f->facts->serving[i].at[k]);
    }
  if (!nodes_sorted)
    qsort(s->nodes.at, (size_t)s->nodes.n, sizeof *s->nodes.at, rising);
  for (int k = 0; k < s->nodes.n; k++) {
    const Node *n = node_at(f, s->nodes.at[k]);
    s->here[s->nodes.at[k]] = true;
    for (int j = 0; j < n->n_out; j++) {
      values_sorted &= s->values.n == 0 || s->values.at[s->values.n - 1] < n->out[j];
      push(&s->values, n->out[j]);
    }
  }
  if (!values_sorted)
    qsort(s->values.at, (size_t)s->values.n, sizeof *s->values.at, rising);
}

static void find_reads(const Fuse *f, Survey *s) {
  for (int k = 0; k < s->nodes.n; k++) {
    const Node *n = node_at(f, s->nodes.at[k]);
    bool picky = n->op->kind == OP_CALL && !n->op->transposes;
    for (int j = 0; j < n->n_in; j++) {
      s->read_in_rows[n->in[j]] |= picky;
      s->read_dense[n->in[j]] |= picky && !n->op->strided_out;
      s->read_as_one[n->in[j]] |= n->op->rows_as_one;
    }
  }
}

static void find_reordered(const Fuse *f, Survey *s) {
  memset(s->reordered, 0xff, sizeof *s->reordered * (size_t)f->g->values.n);
  for (int k = s->nodes.n - 1; k >= 0; k--) {
    int i = s->nodes.at[k];
    const Node *n = node_at(f, i);
    if (n->n_in == 0 || !n->op->view_back || n->op->keeps_order)
      continue;
    s->next_reordered[i] = s->reordered[n->in[0]];
    s->reordered[n->in[0]] = i;
  }
}

static bool equal_nodes(const Fuse *f, const Survey *s, const Node *a, const Node *b) {
  if (a->op != b->op || a->n_in != b->n_in || a->n_out != 1 || b->n_out != 1)
    return false;
  for (int i = 0; i < a->n_in; i++)
    if (s->same[a->in[i]] != s->same[b->in[i]])
      return false;
  for (int i = 0; i < MAX_ATTR && a->op->attr[i].name; i++) {
    const Attr *x = &a->attr[i], *y = &b->attr[i];
    if (x->number != y->number || x->text != y->text || x->n != y->n ||
        (x->n && memcmp(x->list, y->list, sizeof *x->list * (size_t)x->n)))
      return false;
  }
  return shape_equal(&value_at(f, a->out[0])->shape, &value_at(f, b->out[0])->shape);
}

/* Nodes that depend on no input, parameter or call are computed once; equal ones are shared. */
static void find_tables(const Fuse *f, Survey *s) {
  Ints fixed = {0};
  for (int k = 0; k < s->nodes.n; k++) {
    int i = s->nodes.at[k];
    const Node *n = node_at(f, i);
    if (f->facts->varies[n->out[0]])
      continue;
    for (int j = 0; j < fixed.n && s->same[n->out[0]] == n->out[0]; j++)
      if (equal_nodes(f, s, node_at(f, fixed.at[j]), n))
        s->same[n->out[0]] = node_at(f, fixed.at[j])->out[0];
    if (s->same[n->out[0]] == n->out[0])
      push(&fixed, i);
    s->table[i] = n->op->kind != OP_SOURCE;
  }
}

/* Adjacent recomputed pieces within a region are one segment. */
static void find_segments(const Fuse *f, Survey *s) {
  int last = -1; /* the node before is in a segment: its region; else -1 */
  memset(s->segment, 0xff, sizeof *s->segment * (size_t)f->g->nodes.n);
  for (int piece = f->first_piece; f->again && piece < f->end_piece; piece++)
    for (int i = f->p->at[piece].first; i < f->p->at[piece].end; i++) {
      const bool again = f->again[piece - f->first_piece] == '1';
      s->segments += again && s->region[i] != last;
      s->segment[i] = again ? s->segments - 1 : -1;
      last = again ? s->region[i] : -1;
    }
}

static Direction direction(const Fuse *f, const Survey *s, int node) {
  return s->table[node] ? SETUP : node_at(f, node)->serves >= 0 ? BACKWARD : FORWARD;
}

const Survey *survey(const Fuse *f) {
  Survey *s = survey_new(f);
  find_here(f, s);
  find_reads(f, s);
  find_reordered(f, s);
  find_tables(f, s);
  bool once = false;
  for (int i = s->first; i < s->end; i++) {
    const bool computes = node_at(f, i)->op->source == SOURCE_NONE && f->facts->once;
    once = computes ? f->facts->once[i] : once;
    s->region[i] = region_at(f->k, f->g->scopes.at[node_at(f, i)->scope].path, once);
  }
  find_segments(f, s);
  for (int k = 0; k < s->nodes.n; k++)
    if (node_at(f, s->nodes.at[k])->op->kind == OP_CONCAT)
      push(&s->concats[direction(f, s, s->nodes.at[k])], s->nodes.at[k]);
  return s;
}

Direction direction_of(const Fuse *f, int node) { return direction(f, f->survey, node); }

int region_of(const Fuse *f, int node) {
  int forward = node_at(f, node)->serves >= 0 ? node_at(f, node)->serves : node;
  return f->survey->region[forward];
}

int segment_of(const Fuse *f, int node) { return f->survey->segment[node]; }

bool is_loop_node(const Node *n) {
  return n->op->kind == OP_POINTWISE || n->op->kind == OP_REDUCE || n->op->kind == OP_SUM_TO;
}

bool is_row_sum(const Fuse *f, const Node *n) {
  if (n->op->kind != OP_SUM_TO)
    return false;
  const Shape *from = &value_at(f, n->in[0])->shape, *to = &value_at(f, n->out[0])->shape;
  bool same = from->batched == to->batched && from->rank == to->rank && from->rank > 0;
  for (int i = 0; same && i + 1 < from->rank; i++)
    same = from->dim[i] == to->dim[i];
  return same && to->dim[to->rank - 1] == 1;
}

int space_value(const Node *n) {
  return n->op->kind == OP_REDUCE || n->op->kind == OP_SUM_TO ? n->in[0] : n->out[0];
}

/* ---- biases ---------------------------------------------------------------------------------- */

/* Whether the vector is in memory when the call `node` runs: a parameter, captured by a body, or computed earlier in the region from
 * parameters. */
static bool stands_before(const Fuse *f, int vector, int node) {
  const Survey *s = f->survey;
  int from = value_at(f, vector)->node;
  if (node_at(f, from)->op->source != SOURCE_NONE && !value_at(f, vector)->shape.batched)
    return true;
  return node_at(f, from)->op->kind == OP_POINTWISE && !value_at(f, vector)->shape.batched && !s->table[from] &&
         from < node && s->here[from] && s->region[from] == s->region[node];
}

/* Whether the call that makes `product` can add `vector` for `add`, its only reader. */
static bool fits_bias(const Fuse *f, int add, int product, int vector) {
  const Survey *s = f->survey;
  const Shape *v = &value_at(f, vector)->shape, *to = &value_at(f, product)->shape;
  int call = value_at(f, product)->node;
  return node_at(f, call)->op->takes_bias && f->facts->n_uses[product] == 1 && s->here[call] &&
         stands_before(f, vector, call) && v->rank == 1 && v->dim[0] == to->dim[to->rank - 1] &&
         s->region[call] == s->region[add];
}

/* Finds calls with bias support whose only reader adds a vector that is equal for all samples. */
const Biases *merge_biases(const Fuse *f) {
  Biases *b = alloc(sizeof *b);
  size_t bytes = sizeof(int) * (size_t)f->g->nodes.n;
  *b = (Biases){.call = alloc(bytes), .vector = alloc(bytes), .sum = alloc(bytes)};
  memset(b->call, 0xff, bytes);
  memset(b->vector, 0xff, bytes);
  memset(b->sum, 0xff, bytes);
  for (int i = f->survey->first; i < f->survey->end; i++) {
    const Node *n = node_at(f, i);
    for (int side = 0; n->op->adds_bias && side < 2 && b->call[i] < 0; side++) {
      int product = n->in[side], call = value_at(f, product)->node;
      if (!fits_bias(f, i, product, n->in[1 - side]))
        continue;
      b->call[i] = call;
      b->vector[call] = n->in[1 - side];
      b->sum[call] = n->out[0];
    }
  }
  return b;
}
