/* Writes the graph for one position if possible. Shapes lose all positions but one, and causal attention uses
 * caches. Sample-independent values, such as position embeddings, are gathered at the position. */
#include "decode/internal.h"

#include <math.h>
#include <string.h>

#include "ops/rules.h"

/* A value of `from` in a form for steps: kept between them, for readers of a run, because it cannot cross cuts; or its
 * row at the position along an axis. */
typedef struct Form {
  int value, run, axis; /* run, axis: -1: not of this form */
  bool exact;
  int made; /* the value of `to` */
} Form;

typedef struct Decoding {
  Rewrite *w;
  const Sequence *s;
  int *axis;  /* by value of from: the axis of positions, or -1 */
  Keys *keys; /* by value of from */
  Vec(Form) forms;
  Ints inputs;                    /* of an encoder, by their order in `to`: indices in `from` */
  int first_input;                /* the first one's index in `to` */
  int tokens, position, sequence; /* values of `to`; position and sequence -1: not needed */
  int64_t samples, rows;          /* sequences with a cache; rows of a call */
  int64_t ring;                   /* the fewest positions that a cache holds */
  bool state;                     /* a cache holds the last position alone */
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

/* An input that the encoder reads, or its source. */
static int insert_source(Decoding *d, int input) {
  const Graph *g = d->w->from;
  const int node = value_of(d, g->inputs.at[input].value)->node;
  const Node *n = &g->nodes.at[node];
  Attr attr[MAX_ATTR] = {{.number = d->first_input + d->inputs.n}, n->attr[1], n->attr[2], n->attr[3]};
  push(&d->inputs, input);
  const int made = graph_output(d->w->to, rewrite_insert(d->w, node, &op_input, NULL, 0, attr), 0);
  d->w->to->values.at[made].name = g->inputs.at[input].name;
  d->w->to->values.at[made].span = g->inputs.at[input].span;
  return d->w->value[g->inputs.at[input].value] = made;
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

static bool is_input(const Decoding *d, int value) {
  const Node *n = maker(d->w->from, value);
  for (; n->op->kind == OP_VIEW; n = maker(d->w->from, value))
    value = n->in[0];
  return n->op->source == SOURCE_INPUT;
}

/* -1: there is none yet. */
static int form_of(const Decoding *d, Form wanted) {
  for (int i = 0; i < d->forms.n; i++) {
    const Form *f = &d->forms.at[i];
    if (f->value == wanted.value && f->run == wanted.run && f->axis == wanted.axis && f->exact == wanted.exact)
      return f->made;
  }
  return -1;
}

static int keep_form(Decoding *d, Form form, int made) {
  form.made = made;
  push(&d->forms, form);
  return made;
}

static int insert_keep(Decoding *d, int like, int value, int of, bool exact) {
  const int kept = insert(d, like, &op_keep, &of, 1, (Attr[MAX_ATTR]){{.number = exact}});
  d->w->to->values.at[kept].name = internf("%s_kept", value_of(d, value)->name);
  return kept;
}

/* A value of the encoder, kept for later steps; -1: it is not of numbers. Inputs are loaded for every step. Without an
 * encoder no step would store it. */
static int keep(Decoding *d, int like, int value, bool exact) {
  if (d->s->source < 0 || !value_of(d, value)->shape.batched || is_input(d, value))
    return d->w->value[value];
  if (value_of(d, value)->type != TYPE_F32)
    return -1;
  const Form form = {.value = value, .run = d->w->run[like], .axis = -1, .exact = exact};
  const int known = form_of(d, form);
  return known >= 0 ? known : keep_form(d, form, insert_keep(d, like, value, d->w->value[value], exact));
}

static bool reads_params(const Graph *g, int value) {
  const Node *n = maker(g, value);
  bool reads = n->op->source == SOURCE_PARAMETER;
  for (int i = 0; i < n->n_in && !reads; i++)
    reads = reads_params(g, n->in[i]);
  return reads;
}

/* The row for the position along an axis of a sample-independent value. In a model with an encoder, a table that is
 * computed from parameters is kept, too. */
static int insert_row(Decoding *d, int like, int value, int axis) {
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
  if (d->s->source >= 0 && maker(d->w->from, value)->op->source != SOURCE_PARAMETER &&
      reads_params(d->w->from, value))
    from = insert_keep(d, like, value, from, true);
  from = insert(d, like, &op_gather, (int[]){from, position(d)}, 2, NULL);
  return s->rank == 2 && axis == 0 ? from
                                   : insert(d, like, &op_reshape, &from, 1, (Attr[MAX_ATTR]){shape_attr(&row)});
}

/* In a model with an encoder, all readers share a row, because its table is large. */
static int row_at_position(Decoding *d, int like, int value, int axis) {
  const Form form = {.value = value, .run = -1, .axis = axis};
  const int known = d->s->source < 0 ? -1 : form_of(d, form);
  return known >= 0 ? known : keep_form(d, form, insert_row(d, like, value, axis));
}

/* Operand i, which does not depend on the tokens; -1: it cannot be kept. */
static int kept_for(Decoding *d, int node, int i) {
  const Node *n = &d->w->from->nodes.at[node];
  const bool exact = n->op->kind != OP_CALL || (n->op->stays_f32 && n->op->stays_f32(n, false, i));
  return keep(d, node, n->in[i], exact);
}

/* Operand i at the one position, for a node whose results have positions along `axis`. -1: it needs several. */
static int operand(Decoding *d, int node, int i, int axis) {
  const Graph *g = d->w->from;
  const Op *op = g->nodes.at[node].op;
  int value = g->nodes.at[node].in[i];
  const Shape *s = &value_of(d, value)->shape, *result = out_shape(g, node, 0);
  int along = axis - (result->rank - s->rank);
  bool aligned = op->kind == OP_POINTWISE || op->kind == OP_CONCAT;
  if (d->axis[value] >= 0)
    return d->w->value[value];
  if (aligned && along >= 0 && s->dim[along] > 1)
    return s->batched || s->dim[along] < d->s->context ? -1 : row_at_position(d, node, value, along);
  return kept_for(d, node, i);
}

static void name_results(Decoding *d, int node, int made, bool state) {
  const Node *old = &d->w->from->nodes.at[node], *new = &d->w->to->nodes.at[made];
  for (int i = 0; i < new->n_out; i++) {
    Value *v = &d->w->to->values.at[new->out[i]];
    const int of = state && i < old->n_out ? old->out[i] : old->out[0];
    const bool kept = node_keeps(new, i), rows = kept && !state && i < old->n_in && d->axis[old->in[i]] >= 0;
    v->name = rows   ? internf("%s_cache", value_of(d, old->in[i])->name)
              : kept ? internf("%s_state", value_of(d, of)->name)
                     : value_of(d, old->out[i])->name;
    v->span = value_of(d, old->out[0])->span;
  }
}

/* NULL: the op lacks it. */
static Attr *attr_of(Decoded *to, const char *name) {
  for (int i = 0; i < MAX_ATTR && to->op->attr[i].name; i++)
    if (!strcmp(to->op->attr[i].name, name))
      return &to->attr[i];
  return NULL;
}

/* With a window, a cache has room for it and for the rows of a call, which are stored before they are read. */
static void size_cache(Decoding *d, Decoded *to) {
  Attr *window = attr_of(to, "window"), *context = attr_of(to, "context");
  attr_of(to, "samples")->number = (double)d->samples;
  d->state |= to->state;
  if (window && window->number > 0)
    context->number = fmin(context->number, window->number + (double)d->rows - 1);
  if (context)
    d->ring = (int64_t)fmin((double)d->ring, context->number);
}

/* All positions of a value, in place of one. */
static int whole_of(Decoding *d, int node, int value, int axis) {
  const int in[] = {d->w->value[value], position(d)};
  Attr attr[MAX_ATTR] = {{.number = axis}, {.number = (double)d->s->context}};
  const int made = insert(d, node, &op_cached_rows, in, 2, attr);
  d->w->to->values.at[made].name = internf("%s_cache", value_of(d, value)->name);
  return made;
}

/* The axis of positions of a node's results, its op for one of them and its keys; -1: it needs several positions. */
static int decode_one(Decoding *d, int node, const int *axis, Decoded *to, Keys *made, int *whole) {
  const Graph *g = d->w->from;
  const Node *n = &g->nodes.at[node];
  Keys *keys = alloc((n->n_in + 1) * sizeof *keys);
  for (int i = 0; i < n->n_in; i++)
    keys[i] = d->keys[n->in[i]];
  int found = decode_node(g, node, axis, d->s->context, to);
  found = decode_keys(g, node, axis, keys, found, made, whole);
  /* op_cached_rows needs a row for each sequence, as in a model with an encoder. */
  return *whole >= 0 && d->s->source < 0 ? -1 : found;
}

/* False: the node needs several positions. */
static bool decode_position(Decoding *d, int node, const int *axis) {
  const Node *n = &d->w->from->nodes.at[node];
  Decoded to;
  Keys keys;
  int *in = alloc((n->n_in + 2) * sizeof *in), n_in = n->n_in, whole;
  const int found = decode_one(d, node, axis, &to, &keys, &whole);
  if (found < 0)
    return false;
  for (int i = 0; i < n->n_in; i++) {
    in[i] = i == whole              ? whole_of(d, node, n->in[i], axis[i])
            : to.rows >> i % 64 & 1 ? row_at_position(d, node, n->in[i], 0)
                                    : operand(d, node, i, found);
    if (in[i] < 0)
      return false;
  }
  if (to.cached) {
    size_cache(d, &to);
    in[n_in++] = position(d);
    in[n_in++] = d->sequence;
  }
  int made = rewrite_insert(d->w, node, to.op, in, n_in, to.attr);
  name_results(d, node, made, to.state);
  const int results = !to.cached   ? n->n_out
                      : to.results ? to.results
                                   : 1; /* further results serve the derivative, or are of all positions */
  for (int i = 0; i < results; i++) {
    d->w->value[n->out[i]] = graph_output(d->w->to, made, i);
    d->axis[n->out[i]] = found;
    d->keys[n->out[i]] = keys;
  }
  return true;
}

/* Without caches: nodes that depend on the tokens read the encoder's kept values. */
static void copy(Decoding *d, int node) {
  const Graph *g = d->w->from;
  const Node *n = &g->nodes.at[node];
  int *in = alloc((n->n_in + 1) * sizeof *in);
  for (int i = 0; i < n->n_in; i++) {
    const bool left = d->s->stepped[node] && !d->s->stepped[value_of(d, n->in[i])->node];
    in[i] = left ? kept_for(d, node, i) : -1;
    in[i] = in[i] < 0 ? d->w->value[n->in[i]] : in[i];
  }
  rewrite_copy(d->w, node, in, node);
}

static bool decode_or_copy(Decoding *d, int node) {
  const Node *n = &d->w->from->nodes.at[node];
  int *axis = alloc((n->n_in + 1) * sizeof *axis);
  bool any = false, lost = false;
  for (int i = 0; i < n->n_in; i++) {
    axis[i] = d->axis[n->in[i]];
    any |= axis[i] >= 0;
    lost |= d->w->value[n->in[i]] < 0;
  }
  if (lost || (any && !decode_position(d, node, axis))) {
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
  d.keys = alloc((g->values.n + 1) * sizeof *d.keys);
  for (int v = 0; v < g->values.n; v++) {
    d.axis[v] = -1;
    d.keys[v].axis = -1;
  }
  return d;
}

/* The index in the new graph of an input that the encoder reads. */
static int new_index(const Decoding *d, int input) {
  for (int i = 0; i < d->inputs.n; i++)
    if (d->inputs.at[i] == input)
      return d->first_input + i;
  return -1;
}

static void push_sources(const Decoding *d, const Graph *from) {
  for (int i = 0; i < d->inputs.n; i++) {
    Input in = from->inputs.at[d->inputs.at[i]];
    in.value = d->w->value[in.value];
    in.from = in.from < 0 ? -1 : new_index(d, in.from);
    push(&d->w->from->inputs, in);
  }
}

/* Replaces the graph by the decoding one, which maps tokens and, if needed, the position to logits. */
static void finish(Decoding *d, bool cached) {
  Graph *to = d->w->to;
  const Sequence *s = d->s;
  Input tokens = to->inputs.at[s->tokens], position, sequence;
  Span span = value_of(d, s->logits)->span;
  int logits = d->w->value[s->logits];
  const Graph from = *d->w->from;
  to->inputs.at = NULL;
  to->inputs.n = to->inputs.room = 0;
  to->figures.at = NULL;
  to->figures.n = to->figures.room = to->n_losses = to->n_outputs = 0;
  rewrite_finish(d->w);
  Graph *g = d->w->from;
  tokens.value = d->tokens;
  tokens.origin = ORIGIN_FILE;
  tokens.from = -1;
  tokens.numbers.n = 0;
  position = sequence = tokens;
  push(&g->inputs, tokens);
  position.name = intern("position");
  position.value = d->position;
  sequence.name = intern("sequence");
  sequence.value = d->sequence;
  if (cached) {
    push(&g->inputs, position);
    push(&g->inputs, sequence);
  }
  push_sources(d, &from);
  graph_metric(g, intern("logits"), NULL, logits, span);
  g->generation = (Generation){.context = s->context,
                               .ring = d->ring,
                               .samples = d->samples,
                               .position = cached ? 1 : -1,
                               .sequence = cached ? 2 : -1,
                               .state = d->state,
                               .encoder = s->source >= 0,
                               .source = new_index(d, s->source),
                               .start = s->start,
                               .pad = s->pad};
}

/* Whether the node is an input that an encoder reads, or from which such inputs are computed. */
static bool is_of_source(const Graph *g, const Sequence *s, int node) {
  const Node *n = &g->nodes.at[node];
  if (n->op->source != SOURCE_INPUT || s->source < 0)
    return false;
  const int input = (int)node_int(n, "index");
  return input == s->source || (s->needed[node] && input != s->tokens);
}

/* False: some value needs several positions. */
static bool decode_positions(Graph *g, const Sequence *s, int64_t samples, int64_t rows, int *because) {
  Decoding d = begin(g, s, samples, rows);
  d.first_input = 3;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (is_of_source(g, s, i)) {
      insert_source(&d, (int)node_int(n, "index"));
    } else if (n->op->source == SOURCE_INPUT && s->needed[i]) {
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
  d.first_input = 1;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (is_of_source(g, s, i)) {
      insert_source(&d, (int)node_int(n, "index"));
    } else if (n->op->source == SOURCE_INPUT && s->needed[i]) {
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
      "there are caches for causal 'scaled_dot_product_attention' without a mask or documents, where a bias must be by "
      "distance, for 'lstm' without lengths, for forward scans over positions, and for causal convolutions; beside an "
      "encoder also for attention written as products");
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
  rows = rows > samples && s.source < 0 ? rows : samples;
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
