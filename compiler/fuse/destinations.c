/* Values with a fixed destination: values sent to other stages, parameters, inputs, accumulated gradients,
 * figures, and parts of concatenations. The producer writes directly to the destination if it can. */
#include "fuse/internal.h"

/* Whether the value, or the value behind its view, has one reader. */
static bool read_once(const Fuse *f, int value) {
  while (f->facts->n_uses[value] == 1 && producer(f, value)->op->kind == OP_VIEW)
    value = producer(f, value)->in[0];
  return f->facts->n_uses[value] == 1;
}

/* A call accumulates into its first output and possibly into its other outputs. */
static bool adds_to_first(const Fuse *f, int value) {
  const Value *v = value_at(f, value);
  int buffer = v->output ? placed_buffer(f, producer(f, value)->out[0]) : -1;
  return v->output == 0 || (buffer >= 0 && f->k->buffers.at[buffer].kind == BUFFER_ACCUMULATOR);
}

/* Gives the value this buffer: its producer writes there if it can, else a copy follows at the end. */
static void destine(const Fuse *f, Destinations *d, int value, int buffer, bool accumulate) {
  Place target = whole(f, buffer);
  int root = view_root(f, value);
  const Op *op = producer(f, root)->op;
  /* A value with more readers cannot be written directly to an accumulator, which holds a batch's sum. The same
   * applies to a figure's buffer, which the next microbatch overwrites before backward; the body of a scan has no
   * backward pass. Some calls cannot accumulate. */
  const Buffer *b = &f->k->buffers.at[buffer];
  bool whose = !accumulate && (b->kind != BUFFER_FIGURE || f->g->loop.steps);
  /* An output is f32, while its value may be bf16, whether other nodes read the value or not. */
  bool is_rounded = f->facts->bf16[f->k->target.precision][value];
  bool rounded = b->kind == BUFFER_FIGURE && f->g->figures.at[b->figure].output && is_rounded &&
                 !figure_in_bf16(f->g, b->figure);
  rounded |= b->kind == BUFFER_FIGURE && figure_in_bf16(f->g, b->figure) && !is_rounded && op->kind == OP_CALL;
  bool adds = !accumulate || op->kind != OP_CALL || (op->adds && adds_to_first(f, root));
  if (!(whose || read_once(f, value)) || !adds || rounded || !place_into(f, value, &target))
    push(&d->copies, (PendingCopy){value, buffer, accumulate});
}

static void destine_crossing(const Fuse *f, Destinations *d) {
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
      destine(f, d, out->crossing.at[i], buffer, false);
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
    destine(f, d, in->returned.at[i], buffer, false);
  }
}

/* Whether a node or a figure of this stage reads the value. */
static bool is_read_here(const Fuse *f, int value) {
  for (int i = 0; i < f->g->figures.n; i++)
    if (f->g->figures.at[i].value == value && f->survey->here[value_at(f, value)->node])
      return true;
  for (int k = 0; k < f->survey->nodes.n; k++)
    for (int j = 0; j < node_at(f, f->survey->nodes.at[k])->n_in; j++)
      if (node_at(f, f->survey->nodes.at[k])->in[j] == value)
        return true;
  return false;
}

/* By parameter: whether a piece of this stage holds it. */
static bool *find_held(const Fuse *f) {
  bool *held = alloc((size_t)f->g->params.n + 1);
  for (int k = f->first_piece; k < f->end_piece; k++)
    for (int i = 0; i < f->p->at[k].params.n; i++)
      held[f->p->at[k].params.at[i]] = true;
  return held;
}

/* Destines the stage's weights, and the inputs, figures and accumulators that its nodes use. */
static void destine_sources(const Fuse *f, Destinations *d) {
  const Graph *g = f->g;
  const bool *held = find_held(f);
  Ints further = {0}; /* accumulators of calls' further outputs, which follow the first ones */
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    if (!held[i])
      continue;
    push(&f->k->params, i);
    int weight = value_buffer(f, p->frozen ? BUFFER_FROZEN : BUFFER_WEIGHT, p->value);
    f->k->buffers.at[weight].param = i;
    place_at(f, p->value, weight);
    for (int u = 0; u < p->uses.n; u++) {
      if (!f->survey->here[p->uses.at[u]] || u >= p->gradients.n || p->gradients.at[u] < 0)
        continue;
      int buffer = value_buffer(f, BUFFER_ACCUMULATOR, p->value);
      f->k->buffers.at[buffer].param = i;
      f->k->buffers.at[buffer].use = u;
      if (value_at(f, view_root(f, p->gradients.at[u]))->output > 0)
        push(&further, buffer);
      else
        destine(f, d, p->gradients.at[u], buffer, true);
    }
  }
  for (int i = 0; i < further.n; i++) {
    const Buffer *b = &f->k->buffers.at[further.at[i]];
    destine(f, d, g->params.at[b->param].gradients.at[b->use], further.at[i], true);
  }
  for (int i = 0; i < g->inputs.n; i++)
    if (is_read_here(f, g->inputs.at[i].value))
      place_at(f, g->inputs.at[i].value, value_buffer(f, BUFFER_INPUT, g->inputs.at[i].value));
  for (int i = 0; i < g->figures.n; i++) {
    int value = g->figures.at[i].value;
    if (!f->survey->here[value_at(f, value)->node])
      continue;
    destine(f, d, value, figure_buffer(f, i), false);
  }
}

/* ---- concatenations -------------------------------------------------------------------------- */

Place part_place(const Fuse *f, int node, int i, int *axis, int64_t *from, int64_t *end) {
  const Node *n = node_at(f, node);
  int64_t dim[MAX_DIM];
  Place whole = place_value(f, n->out[0]);
  *from = n->op->part(f->g, node, i, axis);
  *axis += value_at(f, n->out[0])->shape.batched;
  dims_of(f, n->in[i], dim);
  *end = *from + dim[*axis];
  return place_slice(&whole, *axis, *from, dim[*axis]);
}

static bool *place_parts(const Fuse *f, int node) {
  const Node *n = node_at(f, node);
  bool *in_place = alloc((size_t)n->n_in);
  for (int i = 0; i < n->n_in; i++) {
    int axis;
    int64_t from, end;
    Place part = part_place(f, node, i, &axis, &from, &end);
    bool same_direction = direction_of(f, value_at(f, view_root(f, n->in[i]))->node) == direction_of(f, node);
    in_place[i] = same_direction && place_into(f, n->in[i], &part);
  }
  return in_place;
}

const Destinations *place_destined(const Fuse *f) {
  Destinations *d = alloc(sizeof *d);
  d->in_place = alloc(sizeof *d->in_place * (size_t)f->g->nodes.n);
  destine_crossing(f, d);
  destine_sources(f, d);
  for (int k = 0; k < f->survey->nodes.n; k++) {
    int i = f->survey->nodes.at[k];
    if (node_at(f, i)->op->kind == OP_CONCAT)
      d->in_place[i] = place_parts(f, i);
  }
  return d;
}
