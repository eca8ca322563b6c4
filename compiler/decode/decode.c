/* Writes the graph for one position if possible. Shapes lose all positions but one, and causal attention uses
 * caches. Sample-independent values, such as position embeddings, are gathered at the position. */
#include "decode/internal.h"

#include <math.h>

#include "ops/rules.h"

typedef struct Decoding {
  Rewrite *w;
  const Sequence *s;
  int *axis;                      /* by value of from: the axis of positions, or -1 */
  int tokens, position, sequence; /* values of `to`; position and sequence -1: not needed */
  int64_t samples, rows;          /* sequences with a cache; rows of a call */
  int64_t ring;                   /* the fewest positions that a cache holds */
  int because;                    /* the value of `from` that needs several positions, or -1 */
} Decoding;

static const Value *value_of(const Decoding *d, int value) { return &d->w->from->values.at[value]; }

/* ---- inputs ---------------------------------------------------------------------------------------- */

static int insert_tokens(Decoding *d, int index, int64_t classes, Name name) {
  const Input *in = &d->w->from->inputs.at[d->s->tokens];
  Attr attr[MAX_ATTR] = {{.number = index}, {.number = true}, {.number = (double)classes}, {.n = 1}};
  attr[3].list = alloc_copy(&(int64_t){1}, sizeof(int64_t));
  int made = rewrite_insert(d->w, value_of(d, in->value)->node, &op_input, NULL, 0, attr);
  Value *v = &d->w->to->values.at[graph_output(d->w->to, made, 0)];
  v->name = name;
  v->span = in->span;
  return graph_output(d->w->to, made, 0);
}

/* Inputs after the tokens are inserted together. */
static int position(Decoding *d) {
  if (d->position < 0) {
    d->position = insert_tokens(d, 1, d->s->context, intern("position"));
    d->sequence = insert_tokens(d, 2, d->samples + 1, intern("sequence")); /* samples: an unused row */
  }
  return d->position;
}

/* ---- nodes ----------------------------------------------------------------------------------------- */

static int insert(Decoding *d, int like, const Op *op, const int *in, int n_in, const Attr *attr) {
  return graph_output(d->w->to, rewrite_insert(d->w, like, op, in, n_in, attr), 0);
}

/* The row for the position along an axis of a sample-independent value. */
static int row_at_position(Decoding *d, int like, int value, int axis) {
  const Shape *s = &value_of(d, value)->shape;
  Shape row = {.batched = true, .rank = s->rank}, table = {.rank = 2, .dim = {s->dim[axis], 1}};
  int from = d->w->value[value], dims[MAX_RANK] = {axis};
  for (int i = 0, n = 1; i < s->rank; i++) {
    row.dim[i] = i == axis ? 1 : s->dim[i];
    table.dim[1] *= row.dim[i];
    if (i != axis)
      dims[n++] = i;
  }
  if (axis > 0) {
    Attr attr[MAX_ATTR];
    const Op *op = op_of_order(s->rank, dims, attr);
    from = insert(d, like, op, &from, 1, attr);
  }
  if (s->rank != 2 || axis > 0)
    from = insert(d, like, &op_reshape, &from, 1, (Attr[MAX_ATTR]){shape_attr(&table)});
  from = insert(d, like, &op_gather, (int[]){from, position(d)}, 2, NULL);
  return s->rank == 2 && axis == 0 ? from
                                   : insert(d, like, &op_reshape, &from, 1, (Attr[MAX_ATTR]){shape_attr(&row)});
}

/* Operand i at the one position, for a node whose results have positions along `axis`. */
static int operand(Decoding *d, int node, int i, int axis) {
  const Graph *g = d->w->from;
  int value = g->nodes.at[node].in[i];
  const Shape *s = &value_of(d, value)->shape, *result = out_shape(g, node, 0);
  int along = axis - (result->rank - s->rank);
  bool aligned = g->nodes.at[node].op->kind == OP_POINTWISE || g->nodes.at[node].op->kind == OP_CONCAT;
  if (!aligned || d->axis[value] >= 0 || along < 0 || s->dim[along] == 1)
    return d->w->value[value];
  return row_at_position(d, node, value, along);
}

static void name_results(Decoding *d, int node, int made) {
  const Node *old = &d->w->from->nodes.at[node], *new = &d->w->to->nodes.at[made];
  for (int i = 0; i < new->n_out; i++) {
    Value *v = &d->w->to->values.at[new->out[i]];
    bool kept = new->op->first_kept > 0 && i >= new->op->first_kept;
    v->name = kept ? internf("%s_cache", value_of(d, old->in[i])->name) : value_of(d, old->out[i])->name;
    v->span = value_of(d, old->out[0])->span;
  }
}

/* With a window, a cache has room for it and for the rows of a call, which are stored before they are read. */
static void shorten_cache(Decoding *d, Attr *attr) {
  const double window = attr[CACHED_WINDOW].number;
  if (window > 0)
    attr[CACHED_CONTEXT].number = fmin(attr[CACHED_CONTEXT].number, window + (double)d->rows - 1);
  d->ring = (int64_t)fmin((double)d->ring, attr[CACHED_CONTEXT].number);
}

/* False: the node needs several positions. */
static bool decode_position(Decoding *d, int node, const int *axis) {
  const Node *n = &d->w->from->nodes.at[node];
  Decoded to;
  int *in = alloc((n->n_in + 2) * sizeof *in), n_in = n->n_in, found;
  if ((found = decode_node(d->w->from, node, axis, d->s->context, &to)) < 0)
    return false;
  for (int i = 0; i < n->n_in; i++)
    in[i] = operand(d, node, i, found);
  if (to.cached) {
    to.attr[CACHED_SAMPLES].number = (double)d->samples;
    shorten_cache(d, to.attr);
    in[n_in++] = position(d);
    in[n_in++] = d->sequence;
  }
  int made = rewrite_insert(d->w, node, to.op, in, n_in, to.attr);
  name_results(d, node, made);
  for (int i = 0; i < n->n_out; i++) {
    d->w->value[n->out[i]] = graph_output(d->w->to, made, i);
    d->axis[n->out[i]] = found;
  }
  return true;
}

static void copy(Decoding *d, int node) {
  const Node *n = &d->w->from->nodes.at[node];
  int *in = alloc((n->n_in + 1) * sizeof *in);
  for (int i = 0; i < n->n_in; i++)
    in[i] = d->w->value[n->in[i]];
  rewrite_copy(d->w, node, in, node);
}

static bool decode_or_copy(Decoding *d, int node) {
  const Node *n = &d->w->from->nodes.at[node];
  int *axis = alloc((n->n_in + 1) * sizeof *axis);
  bool any = false;
  for (int i = 0; i < n->n_in; i++) {
    axis[i] = d->axis[n->in[i]];
    any |= axis[i] >= 0;
  }
  if (any && !decode_position(d, node, axis)) {
    d->because = n->out[0];
    return false;
  }
  if (!any)
    copy(d, node);
  return true;
}

/* ---- the pass ---------------------------------------------------------------------------------------- */

static Decoding begin(Graph *g, const Sequence *s, int64_t samples, int64_t rows) {
  Decoding d = {.w = rewrite_begin(g),
                .s = s,
                .position = -1,
                .sequence = -1,
                .samples = samples,
                .rows = rows,
                .ring = s->context,
                .because = -1};
  d.axis = alloc((g->values.n + 1) * sizeof *d.axis);
  for (int v = 0; v < g->values.n; v++)
    d.axis[v] = -1;
  return d;
}

/* Replaces the graph by the decoding one, which maps tokens and, if needed, the position to logits. */
static void finish(Decoding *d, bool cached) {
  Graph *to = d->w->to;
  const Sequence *s = d->s;
  Input tokens = to->inputs.at[s->tokens], position = tokens, sequence;
  Span span = value_of(d, s->logits)->span;
  int logits = d->w->value[s->logits];
  to->inputs.at = NULL;
  to->inputs.n = to->inputs.room = 0;
  to->figures.at = NULL;
  to->figures.n = to->figures.room = to->n_losses = to->n_outputs = 0;
  rewrite_finish(d->w);
  Graph *g = d->w->from;
  tokens.value = d->tokens;
  tokens.origin = position.origin = ORIGIN_FILE;
  sequence = position;
  push(&g->inputs, tokens);
  position.name = intern("position");
  position.value = d->position;
  sequence.name = intern("sequence");
  sequence.value = d->sequence;
  if (cached) {
    push(&g->inputs, position);
    push(&g->inputs, sequence);
  }
  graph_metric(g, intern("logits"), NULL, logits, span);
  g->generation = (Generation){.context = s->context,
                               .ring = d->ring,
                               .samples = d->samples,
                               .position = cached ? 1 : -1,
                               .sequence = cached ? 2 : -1};
}

/* False: some value needs several positions. */
static bool decode_positions(Graph *g, const Sequence *s, int64_t samples, int64_t rows, int *because) {
  Decoding d = begin(g, s, samples, rows);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->source == SOURCE_INPUT && s->needed[i]) {
      d.tokens = d.w->value[n->out[0]] =
          insert_tokens(&d, 0, value_of(&d, n->out[0])->classes, value_of(&d, n->out[0])->name);
      d.axis[n->out[0]] = 0;
      position(&d);
    } else if ((s->needed[i] || n->op->source == SOURCE_PARAMETER) && !decode_or_copy(&d, i)) {
      *because = d.because;
      return false;
    }
  }
  finish(&d, true);
  return true;
}

static void keep_positions(Graph *g, const Sequence *s, int64_t samples) {
  Decoding d = begin(g, s, samples, samples);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->source == SOURCE_INPUT && s->needed[i]) {
      Attr attr[MAX_ATTR] = {{.number = 0}, n->attr[1], n->attr[2], n->attr[3]};
      d.tokens = d.w->value[n->out[0]] = insert(&d, i, n->op, NULL, 0, attr);
      d.w->to->values.at[d.tokens].name = value_of(&d, n->out[0])->name;
    } else if (s->needed[i] || n->op->source == SOURCE_PARAMETER) {
      copy(&d, i);
    }
  }
  finish(&d, false);
}

static void tell_no_cache(const Graph *g, const Sequence *s, int because) {
  const Value *v = &g->values.at[because];
  Diagnostic *d = warning_at(NO_SPAN, "PD0813", "--generate: every token needs a pass over all %lld positions",
                             (long long)s->context);
  note_at(d, v->span, "this '%s' reads other positions, and no cache can hold those values",
          g->nodes.at[v->node].op->name);
  help(
      d,
      "keys and values are cached for causal 'scaled_dot_product_attention' without a mask or documents; a bias must be by distance");
}

static void tell_not_causal(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  Diagnostic *d =
      warning_at(NO_SPAN, "PD0814", "--generate: a position may read later positions, which have no tokens yet");
  note_at(d, v->span, "this '%s' may read later positions", g->nodes.at[v->node].op->name);
  help(d, "positions after the last token contain token 0");
}

bool decode(Graph *g, int64_t samples, int64_t rows, bool caches) {
  Sequence s;
  int because = -1;
  if (!find_sequence(g, &s))
    return false;
  rows = rows > samples ? rows : samples;
  if (caches && decode_positions(g, &s, samples, rows, &because)) {
    g->train.batch = rows;
    return true;
  }
  g->train.batch = samples;
  if (because >= 0)
    tell_no_cache(g, &s, because);
  int not_causal = find_not_causal(g, &s);
  if (not_causal >= 0)
    tell_not_causal(g, not_causal);
  keep_positions(g, &s, samples);
  return true;
}
