/* What there is to do on a stage, in order: its nodes, and copies where a value must also stand
 * elsewhere. Values that are parts of a join, gradients to accumulate and values to send are written
 * straight to where they belong when their producer can do that. */
#include "fuse/internal.h"
#include "ops/expression.h"

Direction direction_of(const Fuse *f, int node) {
  return f->table[node] ? SETUP : node_at(f, node)->serves >= 0 ? BACKWARD : FORWARD;
}

int region_of(const Fuse *f, int node) {
  int forward = node_at(f, node)->serves >= 0 ? node_at(f, node)->serves : node;
  return f->region[forward];
}

static void add(Fuse *f, Item item) {
  item.region = region_of(f, item.node);
  item.group = -1;
  push(&f->items[direction_of(f, item.node)], item);
}

static void add_copy(Fuse *f, int node, int value, int target, Place place, bool accumulate) {
  add(f, (Item){.kind = ITEM_COPY, .node = node, .value = value, .target = target, .place = place,
                .accumulate = accumulate});
}

/* ---- values with a fixed destination -------------------------------------------------------- */

static Place whole(Fuse *f, int buffer) {
  const Buffer *b = &f->k->buffers.at[buffer];
  return contiguous(buffer, b->rank, b->dim);
}

static int value_buffer(Fuse *f, BufferKind kind, int value) {
  int64_t dim[MAX_DIM];
  int n = dims_of(f, value, dim);
  return new_buffer(f, kind, value, n, dim, value_at(f, value)->type);
}

static void place_at(Fuse *f, int value, int buffer) {
  f->root[value] = whole(f, buffer);
  f->placed[value] = true;
}

/* No one else reads the value, or what it is a view of. */
static bool read_once(const Fuse *f, int value) {
  while (f->n_uses[value] == 1 && producer(f, value)->op->kind == OP_VIEW)
    value = producer(f, value)->in[0];
  return f->n_uses[value] == 1;
}

typedef struct Late { int value, buffer; bool accumulate; } Late;
typedef Vec(Late) Lates;

/* The value is to stand in this buffer: written there by its producer, else copied at the end. */
static void destine(Fuse *f, Lates *late, int value, int buffer, bool accumulate) {
  Place target = whole(f, buffer);
  int root = view_root(f, value);
  const Op *op = producer(f, root)->op;
  /* An accumulator does not hold the microbatch's own gradient, nor a figure what stands until backward; and
   * not every call adds. */
  bool whose = !accumulate && f->k->buffers.at[buffer].kind != BUFFER_FIGURE;
  bool adds = !accumulate || op->kind != OP_CALL || (op->adds && value_at(f, root)->output == 0);
  if (!(whose || read_once(f, value)) || !adds || !place_claim(f, value, &target))
    push(late, (Late){value, buffer, accumulate});
}

static void destine_crossing(Fuse *f, Lates *late) {
  StageKernels *k = f->k;
  const Piece *in = &f->p->at[f->first_piece];
  for (int i = 0; f->first_piece > 0 && i < in->crossing.n; i++) {
    int buffer = value_buffer(f, BUFFER_RECEIVED, in->crossing.at[i]);
    place_at(f, in->crossing.at[i], buffer);
    push(&k->received, buffer);
  }
  if (f->end_piece < f->p->n) {
    const Piece *out = &f->p->at[f->end_piece];
    for (int i = 0; i < out->crossing.n; i++) {
      int buffer = value_buffer(f, BUFFER_SENT, out->crossing.at[i]);
      push(&k->sent, buffer);
      destine(f, late, out->crossing.at[i], buffer, false);
    }
    for (int i = 0; i < out->returned.n; i++) {
      int buffer = value_buffer(f, BUFFER_GRADIENT_RECEIVED, out->returned.at[i]);
      place_at(f, out->returned.at[i], buffer);
      push(&k->gradients_received, buffer);
    }
  }
  for (int i = 0; f->first_piece > 0 && i < in->returned.n; i++) {
    int buffer = value_buffer(f, BUFFER_GRADIENT_SENT, in->returned.at[i]);
    push(&k->gradients_sent, buffer);
    destine(f, late, in->returned.at[i], buffer, false);
  }
}

/* A node reads it, or it is a figure itself. */
static bool is_read_here(const Fuse *f, int value) {
  for (int i = 0; i < f->g->figures.n; i++)
    if (f->g->figures.at[i].value == value && f->here[value_at(f, value)->node])
      return true;
  for (int i = 0; i < f->g->nodes.n; i++)
    for (int j = 0; f->here[i] && j < node_at(f, i)->n_in; j++)
      if (node_at(f, i)->in[j] == value)
        return true;
  return false;
}

/* Weights, inputs, figures and accumulators that this stage's nodes touch. */
static void destine_sources(Fuse *f, Lates *late) {
  const Graph *g = f->g;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    bool held = false;
    for (int u = 0; u < p->uses.n; u++)
      held |= f->here[p->uses.at[u]] && g->nodes.at[p->uses.at[u]].serves < 0;
    if (!held)
      continue;
    push(&f->k->params, i);
    int weight = value_buffer(f, BUFFER_WEIGHT, p->value);
    f->k->buffers.at[weight].param = i;
    place_at(f, p->value, weight);
    for (int u = 0; u < p->uses.n; u++) {
      if (!f->here[p->uses.at[u]] || u >= p->gradients.n || p->gradients.at[u] < 0)
        continue;
      int buffer = value_buffer(f, BUFFER_ACCUMULATOR, p->value);
      f->k->buffers.at[buffer].param = i;
      f->k->buffers.at[buffer].use = u;
      destine(f, late, p->gradients.at[u], buffer, true);
    }
  }
  for (int i = 0; i < g->inputs.n; i++)
    if (is_read_here(f, g->inputs.at[i].value))
      place_at(f, g->inputs.at[i].value, value_buffer(f, BUFFER_INPUT, g->inputs.at[i].value));
  for (int i = 0; i < g->figures.n; i++) {
    int value = g->figures.at[i].value;
    if (!f->here[value_at(f, value)->node])
      continue;
    int buffer = value_buffer(f, BUFFER_FIGURE, value);
    f->k->buffers.at[buffer].figure = i;
    destine(f, late, value, buffer, false);
  }
}

/* ---- joins ------------------------------------------------------------------------------------ */

/* Where input i of a join belongs in the join's output, which stands in a buffer of its own. */
static Place join_part(Fuse *f, int node, int i, int *axis, int64_t *from, int64_t *end) {
  const Node *n = node_at(f, node);
  int64_t dim[MAX_DIM];
  Place whole = place_value(f, n->out[0]);
  *from = n->op->part(f->g, node, i, axis);
  *axis += value_at(f, n->out[0])->shape.batched;
  dims_of(f, n->in[i], dim);
  *end = *from + dim[*axis];
  return place_slice(&whole, *axis, *from, dim[*axis]);
}

static void list_fill(Fuse *f, int node, int axis, int64_t from, int64_t end) {
  int out = node_at(f, node)->out[0];
  Place whole = place_value(f, out);
  if (from < end)
    add(f, (Item){.kind = ITEM_FILL, .node = node, .value = -1, .target = out,
                  .place = place_slice(&whole, axis, from, end - from)});
}

static void list_join(Fuse *f, int node, const bool *claimed) {
  const Node *n = node_at(f, node);
  int axis = 0;
  int64_t covered = 0, from, end;
  for (int i = 0; i < n->n_in; i++) {
    Place part = join_part(f, node, i, &axis, &from, &end);
    list_fill(f, node, axis, covered, from);
    if (!claimed[i])
      add_copy(f, node, n->in[i], n->out[0], part, false);
    covered = end;
  }
  list_fill(f, node, axis, covered, place_value(f, n->out[0]).dim[axis]);
}

static bool *claim_join(Fuse *f, int node) {
  const Node *n = node_at(f, node);
  bool *claimed = alloc((size_t)n->n_in);
  for (int i = 0; i < n->n_in; i++) {
    int axis;
    int64_t from, end;
    Place part = join_part(f, node, i, &axis, &from, &end);
    bool same_direction = direction_of(f, value_at(f, view_root(f, n->in[i]))->node) == direction_of(f, node);
    claimed[i] = same_direction && place_claim(f, n->in[i], &part);
  }
  return claimed;
}

/* ---- the list ------------------------------------------------------------------------------------ */

/* Stands in memory when the call `node` runs: a parameter, or what the region makes of parameters before. */
static bool stands_before(const Fuse *f, int vector, int node) {
  int from = value_at(f, vector)->node;
  if (node_at(f, from)->op->source == SOURCE_PARAMETER)
    return true;
  return node_at(f, from)->op->kind == OP_POINTWISE && !value_at(f, vector)->shape.batched && !f->table[from] &&
         from < node && f->here[from] && f->region[from] == f->region[node];
}

/* A call that takes a bias, followed by nothing but the addition of a vector that is the same for all samples. */
void merge_biases(Fuse *f) {
  for (int i = f->first; i < f->end; i++) {
    const Node *n = node_at(f, i);
    if (!n->op->adds_bias)
      continue;
    for (int side = 0; side < 2; side++) {
      int product = n->in[side], vector = n->in[1 - side];
      const Node *m = producer(f, product);
      const Shape *v = &value_at(f, vector)->shape, *s = &value_at(f, product)->shape;
      bool fits = m->op->takes_bias && f->n_uses[product] == 1 &&
                  f->here[value_at(f, product)->node] && stands_before(f, vector, value_at(f, product)->node) &&
                  v->rank == 1 && v->dim[0] == s->dim[s->rank - 1] &&
                  f->region[value_at(f, product)->node] == f->region[i];
      if (!fits)
        continue;
      f->merged[i] = value_at(f, product)->node;
      f->bias[value_at(f, product)->node] = vector;
      break;
    }
  }
}

/* What is made up rather than read (constants, iota) stands in memory, made once, where a call reads it
 * or a view rearranges it. */
static void list_made_up(Fuse *f, int node, int value) {
  int root = view_root(f, value);
  if (producer(f, root)->op->kind != OP_SOURCE || producer(f, root)->op->source != SOURCE_NONE || f->root[root].buffer >= 0)
    return;
  place_at(f, root, value_buffer(f, BUFFER_TABLE, root));
  push(&f->items[SETUP], (Item){.kind = ITEM_COPY, .node = node, .value = root, .target = root,
                                .place = f->root[root], .region = region_of(f, node), .group = -1});
}

/* A view that no strides express, or none that the calls which read it can read, is a value of its own. */
static void list_view(Fuse *f, int node) {
  const Node *n = node_at(f, node);
  if (!alias_step(f, n) && op_reads_words(producer(f, view_root(f, n->in[0]))->op, COUNTING_WORDS))
    list_made_up(f, node, n->in[0]);
  for (int o = 0; o < n->n_out; o++) {
    int value = n->out[o];
    Place from;
    bool through = place_of(f, value, &from);
    if (through && calls_read(f, value, &from))
      continue;
    if (through) {
      list_made_up(f, node, value);
      from = place_value(f, value);
    }
    int buffer = value_buffer(f, f->table[node] ? BUFFER_TABLE : BUFFER_TEMPORARY, value);
    f->k->buffers.at[buffer].backward = n->serves >= 0;
    place_at(f, value, buffer);
    f->needed[value] = true;
    int64_t dim[MAX_DIM]; /* in the order of its input where that is what it keeps */
    int rank = dims_of(f, through ? value : n->in[0], dim);
    add(f, (Item){.kind = ITEM_COPY, .node = node, .value = n->in[0], .target = value, .through = through,
                  .from = from, .place = contiguous(buffer, rank, dim)});
  }
}

static void list_nodes(Fuse *f, bool **claimed) {
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *n = node_at(f, i);
    if (!f->here[i] || n->op->kind == OP_SOURCE || f->merged[i] >= 0 ||
        (n->n_out == 1 && (f->same[n->out[0]] != n->out[0] || f->inlined[n->out[0]])))
      continue;
    if (n->op->kind == OP_JOIN) {
      list_join(f, i, claimed[i]);
    } else if (n->op->kind != OP_VIEW) {
      for (int j = 0; n->op->kind == OP_CALL && j < n->n_in; j++)
        list_made_up(f, i, n->in[j]);
      add(f, (Item){.kind = ITEM_NODE, .node = i, .value = -1, .target = -1});
    } else {
      list_view(f, i);
    }
  }
}

void list_items(Fuse *f) {
  Lates late = {0};
  bool **claimed = alloc(sizeof *claimed * (size_t)f->g->nodes.n);
  destine_crossing(f, &late);
  destine_sources(f, &late);
  for (int i = 0; i < f->g->nodes.n; i++)
    if (f->here[i] && node_at(f, i)->op->kind == OP_JOIN)
      claimed[i] = claim_join(f, i);
  list_nodes(f, claimed);
  for (int i = 0; i < late.n; i++) {
    int v = late.at[i].value, node = value_at(f, v)->node;
    if (!f->here[node]) /* it only passes through this stage */
      node = f->k->buffers.at[late.at[i].buffer].kind == BUFFER_SENT ? f->end - 1 : f->first;
    Item item = {.kind = ITEM_COPY, .node = node, .value = v, .target = -1, .place = whole(f, late.at[i].buffer),
                 .accumulate = late.at[i].accumulate, .group = -1};
    item.region = region_of(f, node);
    BufferKind kind = f->k->buffers.at[late.at[i].buffer].kind;
    push(&f->items[kind == BUFFER_SENT || kind == BUFFER_FIGURE ? FORWARD : BACKWARD], item);
  }
}
