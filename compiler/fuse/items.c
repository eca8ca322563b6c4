/* Lists a stage's work in order: its nodes, and copies of values that need a second place. */
#include "fuse/internal.h"
#include "ops/expression.h"

static void add(const Fuse *f, Items *items, Direction d, Item item) {
  item.region = region_of(f, item.node);
  push(&items->of[d], item);
}

static void list_fill(const Fuse *f, Items *items, int node, int axis, int64_t from, int64_t end) {
  int out = node_at(f, node)->out[0];
  Place whole = place_value(f, out);
  if (from < end)
    add(f, items, direction_of(f, node),
        (Item){.kind = ITEM_FILL,
               .node = node,
               .value = -1,
               .target = out,
               .place = place_slice(&whole, axis, from, end - from)});
}

static void list_concat(const Fuse *f, Items *items, int node) {
  const Node *n = node_at(f, node);
  int axis = 0;
  int64_t covered = 0, from, end;
  for (int i = 0; i < n->n_in; i++) {
    Place part = part_place(f, node, i, &axis, &from, &end);
    list_fill(f, items, node, axis, covered, from);
    if (!f->destinations->in_place[node][i])
      add(f, items, direction_of(f, node),
          (Item){.kind = ITEM_COPY, .node = node, .value = n->in[i], .target = n->out[0], .place = part});
    covered = end;
  }
  list_fill(f, items, node, axis, covered, place_value(f, n->out[0]).dim[axis]);
}

/* Values without operands (constants, iota) are computed once into memory if a call reads them or a view
 * rearranges them. */
static void list_made_up(const Fuse *f, Items *items, int node, int value) {
  int root = view_root(f, value);
  const Op *op = producer(f, root)->op;
  if (op->kind != OP_SOURCE || op->source != SOURCE_NONE || placed_buffer(f, root) >= 0)
    return;
  place_at(f, root, value_buffer(f, BUFFER_TABLE, root));
  add(f, items, SETUP,
      (Item){.kind = ITEM_COPY,
             .node = node,
             .value = root,
             .target = root,
             .place = f->places->all.at[f->places->root[root]]});
}

/* A view that no strides express, or whose strides its calls cannot read, gets memory of its own. */
static void list_view(const Fuse *f, Items *items, int node) {
  const Node *n = node_at(f, node);
  if (!alias_step(f, n) && op_reads_words(producer(f, view_root(f, n->in[0]))->op, COUNTING_WORDS))
    list_made_up(f, items, node, n->in[0]);
  for (int o = 0; o < n->n_out; o++) {
    int value = n->out[o];
    Place from;
    bool through = place_of(f, value, &from);
    if (through && calls_read(f, value, &from))
      continue;
    if (through) {
      list_made_up(f, items, node, value);
      from = place_value(f, value);
    }
    int buffer = value_buffer(f, f->survey->table[node] ? BUFFER_TABLE : BUFFER_TEMPORARY, value);
    place_at(f, value, buffer);
    int64_t dim[MAX_DIM]; /* in its input's order if the view keeps that */
    int rank = dims_of(f, through ? value : n->in[0], dim);
    add(f, items, direction_of(f, node),
        (Item){.kind = ITEM_COPY,
               .node = node,
               .value = n->in[0],
               .target = value,
               .through = through,
               .from = from,
               .place = contiguous(buffer, rank, dim)});
  }
}

static void list_node(const Fuse *f, Items *items, int node) {
  const Node *n = node_at(f, node);
  if (n->op->kind == OP_CONCAT) {
    list_concat(f, items, node);
  } else if (n->op->kind == OP_VIEW) {
    list_view(f, items, node);
  } else {
    for (int j = 0; n->op->kind == OP_CALL && j < n->n_in; j++)
      list_made_up(f, items, node, n->in[j]);
    add(f, items, direction_of(f, node), (Item){.kind = ITEM_NODE, .node = node, .value = -1, .target = -1});
  }
}

/* Whether a node of the stage needs no item: a call adds it as bias, or each loop that reads it rematerialises
 * it. */
static bool is_no_item(const Fuse *f, int node) {
  const Node *n = node_at(f, node);
  if (n->op->kind == OP_SOURCE || f->biases->call[node] >= 0)
    return true;
  return n->n_out == 1 && (f->survey->same[n->out[0]] != n->out[0] || is_rematerialised(f, FORWARD, n->out[0]));
}

static void list_copy(const Fuse *f, Items *items, const PendingCopy *copy) {
  BufferKind kind = f->k->buffers.at[copy->buffer].kind;
  int node = value_at(f, copy->value)->node;
  if (!f->survey->here[node]) /* the value only passes through this stage */
    node = kind == BUFFER_SENT ? f->survey->end - 1 : f->survey->first;
  add(f, items, kind == BUFFER_SENT || kind == BUFFER_FIGURE ? FORWARD : BACKWARD,
      (Item){.kind = ITEM_COPY,
             .node = node,
             .value = copy->value,
             .target = -1,
             .place = whole(f, copy->buffer),
             .accumulate = copy->accumulate});
}

static void sort_by_region(ItemList *list, int sign) {
  for (int i = 1; i < list->n; i++)
    for (int j = i; j > 0 && sign * list->at[j].region < sign * list->at[j - 1].region; j--) {
      Item t = list->at[j];
      list->at[j] = list->at[j - 1];
      list->at[j - 1] = t;
    }
}

const Items *list_items(const Fuse *f) {
  Items *items = alloc(sizeof *items);
  for (int k = 0; k < f->survey->nodes.n; k++)
    if (!is_no_item(f, f->survey->nodes.at[k]))
      list_node(f, items, f->survey->nodes.at[k]);
  for (int i = 0; i < f->destinations->copies.n; i++)
    list_copy(f, items, &f->destinations->copies.at[i]);
  for (Direction d = SETUP; d < N_DIRECTIONS; d++)
    sort_by_region(&items->of[d], d == BACKWARD ? -1 : 1);
  return items;
}
