/* Makes a scan of every loop that elaboration ran on marks (scan.c). The nodes between the marks, those that depend
 * on a step's row or on a state, move to a body; nodes that do not stay outside and are computed once. */
#include <string.h>

#include "elaborate/internal.h"
#include "ops/expression.h"
#include "ops/scan.h"
#include "simplify/rewrite.h"
#include "simplify/simplify.h"

/* A loop that becomes a scan. */
typedef struct Making {
  Graph *g;
  int node, loop;               /* the recurrence, and its number */
  bool *inside;                 /* by node: depends on a mark of the loop */
  bool *used;                   /* by node: inside, and a result depends on it */
  Ints steps, states, captured; /* marks; values from outside that the body reads */
  Graph *body;
  int *value;    /* by value of g: its value in the body; -1 */
  bool chunks;   /* the loop is divided into chunks of steps */
  bool *dropped; /* by mark and captured value in this order: the body does not read it */
} Making;

static const Node *maker_of(const Making *m, int value) { return &m->g->nodes.at[m->g->values.at[value].node]; }

static bool is_mark(const Node *n, int loop) {
  return (n->op == &op_step || n->op == &op_state) && (int)n->attr[0].number == loop;
}

static void find_inside(Making *m) {
  const Graph *g = m->g;
  m->inside = alloc((size_t)m->node + 1);
  m->used = alloc((size_t)m->node + 1);
  for (int i = 0; i < m->node; i++) {
    const Node *n = &g->nodes.at[i];
    m->inside[i] = is_mark(n, m->loop);
    for (int k = 0; k < n->n_in; k++)
      m->inside[i] |= m->inside[g->values.at[n->in[k]].node];
  }
  for (int k = 0; k < g->nodes.at[m->node].n_in; k++)
    m->used[g->values.at[g->nodes.at[m->node].in[k]].node] = true;
  for (int i = m->node - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    m->used[i] &= m->inside[i];
    for (int k = 0; k < n->n_in && m->used[i] && !is_mark(n, m->loop); k++)
      m->used[g->values.at[n->in[k]].node] = true;
  }
  for (int i = 0; i < m->node; i++)
    if (is_mark(&g->nodes.at[i], m->loop) && (m->used[i] || g->nodes.at[i].op == &op_state))
      push(g->nodes.at[i].op == &op_state ? &m->states : &m->steps, i);
}

/* ---- operations that a body cannot contain -------------------------------------------------------------------------- */

static bool is_refused(const Graph *g, const Node *n) {
  const unsigned of_run = 1u << WORD_SAMPLE | 1u << WORD_FOLLOWING | 1u << WORD_SEED | 1u << WORD_SCOPE;
  bool batched = false, random = n->op->expression && op_reads_words(n->op, of_run);
  for (int k = 0; k < n->n_in; k++)
    batched |= g->values.at[n->in[k]].shape.batched;
  return random || n->op->varies || n->op->moves_by || n->op->of_microbatch || n->op->first_kept ||
         (batched && !g->values.at[n->out[0]].shape.batched);
}

/* Reports nodes that cannot be in a body, and readers outside of values inside. */
static bool check(const Making *m) {
  const Graph *g = m->g;
  for (int i = 0; i < m->node; i++) {
    const Node *n = &g->nodes.at[i];
    if (!m->used[i] || !is_refused(g, n))
      continue;
    Diagnostic *d =
        error_at(g->values.at[n->out[0]].span, "PD0313", "'%s' cannot be in the body of a scan", n->op->name);
    note_at(d, g->nodes.at[m->node].span, "the scan is here");
    help(d, n->op->moves_by || !g->values.at[n->out[0]].shape.batched
                ? "a step sees no statistics over samples"
                : "a step has no random numbers of its own; apply dropout before or after the scan");
    return false;
  }
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in && i != m->node; k++) {
      int value = g->nodes.at[i].in[k], from = g->values.at[value].node;
      if (from >= m->node || !m->inside[from] || (i < m->node && m->inside[i]))
        continue;
      Diagnostic *d = error_at(g->nodes.at[i].span, "PD0116", "this reads '%s', a value of a single step",
                               g->values.at[value].name);
      note_at(d, g->nodes.at[m->node].span, "the scan is here");
      help(d, "return the value from the scan's body");
      return false;
    }
  return true;
}

/* ---- the body ------------------------------------------------------------------------------------------ */

/* "attn" of "h.3.attn", in a loop of the instance "h.3". */
static Name within(Name path, Name loop) {
  size_t n = strlen(loop);
  if (n && strncmp(path, loop, n) == 0 && (path[n] == '.' || !path[n]))
    return intern(path[n] ? path + n + 1 : "");
  return path;
}

static void copy_scopes(Making *m) {
  const Node *loop = &m->g->nodes.at[m->node];
  for (int i = 0; i < m->g->scopes.n; i++) {
    Scope s = m->g->scopes.at[i];
    s.path = within(s.path, m->g->scopes.at[loop->scope].path);
    push(&m->body->scopes, s);
  }
}

static int outer_input(const Making *m, int value);

/* Whether the value is a view of one value from outside, which the body repeats instead of reading a copy. */
static bool is_outer_view(const Making *m, int value) {
  const Node *n = maker_of(m, value);
  return n->op->kind == OP_VIEW && n->n_in == 1 && n->n_out == 1 && n->op->view_back &&
         !m->g->values.at[n->in[0]].shape.batched;
}

static void find_captured(Making *m, int value) {
  if (m->inside[m->g->values.at[value].node])
    return;
  if (is_outer_view(m, value)) {
    find_captured(m, maker_of(m, value)->in[0]);
    return;
  }
  if (maker_of(m, value)->op->kind == OP_SOURCE && maker_of(m, value)->op->source == SOURCE_NONE)
    return; /* the body makes it itself */
  for (int i = 0; i < m->captured.n; i++)
    if (m->captured.at[i] == value)
      return;
  push(&m->captured, value);
}

static int copied(Making *m, int node);

/* The value in the body. */
static int outer_input(const Making *m, int value) {
  if (m->value[value] < 0)
    copied((Making *)m, m->g->values.at[value].node);
  return m->value[value];
}

static int copied(Making *m, int node) {
  const Node *n = &m->g->nodes.at[node];
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
  for (int k = 0; k < n->n_in; k++)
    in[k] = outer_input(m, n->in[k]);
  int made = graph_node(m->body, n->op, in, n->n_in, n->attr, n->scope, n->span);
  ensure(made >= 0);
  for (int k = 0; k < n->n_out; k++) {
    const Value *from = &m->g->values.at[n->out[k]];
    Value *to = &m->body->values.at[graph_output(m->body, made, k)];
    to->name = from->name, to->named_in = from->named_in, to->span = from->span;
    m->value[n->out[k]] = graph_output(m->body, made, k);
  }
  return made;
}

static void add_input(Making *m, int node, Name name, const Value *like) {
  int value = graph_operand(m->body, name, like);
  if (node >= 0)
    m->value[m->g->nodes.at[node].out[0]] = value;
}

/* Whether every element of the value is zero. */
static bool is_zero(const Graph *g, int value) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  double number;
  while (n->op->kind == OP_VIEW && n->n_in == 1)
    n = &g->nodes.at[g->values.at[n->in[0]].node];
  return n->op->constant && n->op->constant(n, &number) && number == 0;
}

static void make_inputs(Making *m) {
  const Graph *g = m->g;
  for (int i = 0; i < m->steps.n; i++)
    add_input(m, -1, g->values.at[g->nodes.at[m->steps.at[i]].in[0]].name,
              &g->values.at[g->nodes.at[m->steps.at[i]].in[0]]);
  for (int i = 0; i < m->states.n; i++)
    add_input(m, m->states.at[i], g->values.at[g->nodes.at[m->states.at[i]].out[0]].name,
              &g->values.at[g->nodes.at[m->states.at[i]].out[0]]);
  for (int i = 0; i < m->captured.n; i++) {
    add_input(m, -1, within(g->values.at[m->captured.at[i]].name, g->scopes.at[g->nodes.at[m->node].scope].path),
              &g->values.at[m->captured.at[i]]);
    m->value[m->captured.at[i]] = m->body->inputs.at[m->body->inputs.n - 1].value;
  }
  for (int i = 0; i < m->steps.n; i++) {
    const Node *n = &g->nodes.at[m->steps.at[i]];
    int row = graph_node(m->body, &op_step, &m->body->inputs.at[i].value, 1, NULL, n->scope, n->span);
    int value = m->value[n->out[0]] = graph_output(m->body, row, 0);
    m->body->values.at[value].name = g->values.at[n->out[0]].name;
  }
}

static void make_body(Making *m) {
  const Graph *g = m->g;
  const Node *loop = &g->nodes.at[m->node];
  m->value = alloc((size_t)(g->values.n + 1) * sizeof *m->value);
  memset(m->value, 0xff, (size_t)g->values.n * sizeof *m->value);
  m->body = body_new(g, (ScanLoop){.steps = (int64_t)loop->attr[1].number,
                                   .stacked = (int)loop->attr[2].number,
                                   .reverse = loop->attr[3].number != 0,
                                   .scanned = m->steps.n,
                                   .states = m->states.n});
  copy_scopes(m);
  for (int i = 0; i < m->node; i++)
    for (int k = 0; k < g->nodes.at[i].n_in && m->used[i] && !is_mark(&g->nodes.at[i], m->loop); k++)
      find_captured(m, g->nodes.at[i].in[k]);
  for (int k = 0; k < loop->n_in; k++)
    find_captured(m, loop->in[k]);
  make_inputs(m);
  for (int i = 0; i < m->node; i++)
    if (m->used[i] && !is_mark(&g->nodes.at[i], m->loop))
      copied(m, i);
  for (int k = 0; k < loop->n_in; k++)
    graph_output_figure(m->body, g->values.at[loop->out[k]].name, outer_input(m, loop->in[k]), loop->span);
  for (int i = 0; i < m->states.n; i++) {
    const Node *state = &g->nodes.at[m->states.at[i]];
    if (!m->used[m->states.at[i]] || is_zero(g, state->in[0]))
      m->body->loop.zeros |= (uint64_t)1 << i;
  }
}

/* ---- loops of loops ------------------------------------------------------------------------------------ */

static bool is_read(const Graph *body, int value) {
  for (int i = 0; i < body->nodes.n; i++)
    for (int k = 0; k < body->nodes.at[i].n_in; k++)
      if (body->nodes.at[i].in[k] == value)
        return true;
  for (int i = 0; i < body->figures.n; i++)
    if (body->figures.at[i].value == value)
      return true;
  return false;
}

static Shape shape_before(Shape s, int64_t size) {
  memmove(s.dim + 1, s.dim, (size_t)s.rank++ * sizeof s.dim[0]);
  s.dim[0] = size;
  return s;
}

/* Shortens the loop to `steps` steps. */
static void shorten(Graph *body, int64_t steps) {
  for (int i = 0; i < body->loop.scanned; i++) {
    Value *v = &body->values.at[body->inputs.at[i].value];
    Node *n = &body->nodes.at[v->node];
    v->shape.dim[0] = steps;
    n->attr = alloc_copy(n->attr, MAX_ATTR * sizeof *n->attr);
    n->attr[4].list = alloc_copy(v->shape.dim, (size_t)v->shape.rank * sizeof v->shape.dim[0]);
  }
  body->loop.steps = steps;
  body->loop.again = true;
}

/* A loop over chunks of `keep` steps, whose body is the loop over a chunk. Its derivative keeps the states between
 * chunks, and runs the inner loop again to get those within a chunk. */
static Graph *in_chunks(const Graph *g, Graph *inner, int64_t keep) {
  const ScanLoop all = inner->loop;
  Graph *outer = body_new(g, all);
  Ints in = {0};
  outer->loop.steps = all.steps / keep;
  outer->scopes = inner->scopes;
  shorten(inner, keep);
  for (int i = 0; i < inner->inputs.n; i++) {
    Value like = inner->values.at[inner->inputs.at[i].value];
    if (i < all.scanned)
      like.shape = shape_before(like.shape, outer->loop.steps);
    graph_operand(outer, inner->inputs.at[i].name, &like);
  }
  for (int i = 0; i < inner->inputs.n; i++) {
    const int value = outer->inputs.at[i].value, state = i - all.scanned;
    const bool of_state = state >= 0 && state < all.states, read = is_read(inner, inner->inputs.at[i].value);
    if (i < all.scanned)
      push(&in, graph_output(outer, graph_node(outer, &op_step, &value, 1, NULL, 0, NO_SPAN), 0));
    else if (!of_state || read)
      push(&in, value);
    if (of_state && read)
      inner->loop.zeros &= ~((uint64_t)1 << state);
  }
  int node = graph_scan(outer, inner, in.at, in.n, 0, NO_SPAN, -1);
  ensure(node >= 0);
  for (int i = 0; i < inner->figures.n; i++)
    graph_output_figure(outer, inner->figures.at[i].output, graph_output(outer, node, i), NO_SPAN);
  return outer;
}

/* ---- the scan ------------------------------------------------------------------------------------------ */

/* The initial value of a state, of each sample. */
static int initial(Rewrite *w, int mark) {
  int value = w->value[w->from->nodes.at[mark].in[0]];
  Shape s = w->to->values.at[value].shape;
  if (s.batched)
    return value;
  Attr attr[MAX_ATTR] = {{.n = s.rank, .list = s.dim}, {.number = true}};
  return graph_output(w->to, rewrite_insert(w, mark, &op_expand, &value, 1, attr), 0);
}

/* The value with its first axis divided into chunks, or joined again. */
static int reshaped(Rewrite *w, int like, int value, Shape s) {
  Attr attr[MAX_ATTR] = {{.n = s.rank, .list = s.dim}};
  return graph_output(w->to, rewrite_insert(w, like, &op_reshape, &value, 1, attr), 0);
}

static void insert_scan(Making *m, Rewrite *w) {
  const Node *loop = &m->g->nodes.at[m->node];
  Ints in = {0};
  Attr attr[MAX_ATTR] = {{0}};
  const bool *dropped = m->dropped;
  for (int i = 0; i < m->steps.n; i++)
    if (!*dropped++) {
      const int value = w->value[m->g->nodes.at[m->steps.at[i]].in[0]];
      const Shape s = m->body->values.at[m->body->inputs.at[in.n].value].shape;
      push(&in, m->chunks ? reshaped(w, m->node, value, s) : value);
    }
  for (int i = 0; i < m->states.n; i++)
    if (!*dropped++ && !starts_from_zeros(m->body, i))
      push(&in, initial(w, m->states.at[i]));
  for (int i = 0; i < m->captured.n; i++)
    if (!*dropped++)
      push(&in, w->value[m->captured.at[i]]);
  scan_attributes(w->to, m->body, attr);
  int made = rewrite_insert(w, m->node, &op_scan, in.at, in.n, attr);
  for (int k = 0; k < loop->n_out; k++) {
    const bool joins = m->chunks && k < m->body->loop.stacked;
    const int value = graph_output(w->to, made, k);
    rewrite_stand_for(w, joins ? reshaped(w, m->node, value, m->g->values.at[loop->out[k]].shape) : value,
                      loop->out[k]);
  }
}

static void replace(Making *m) {
  Graph *g = m->g;
  Rewrite *w = rewrite_begin(g);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
    if (i < m->node && m->inside[i])
      continue;
    if (i == m->node) {
      insert_scan(m, w);
      continue;
    }
    for (int k = 0; k < n->n_in; k++)
      in[k] = w->value[n->in[k]];
    rewrite_copy(w, i, in, i);
  }
  rewrite_finish(w);
}

/* Whether states take much more memory than the rows and the results of a step, so that it pays to compute them again. */
static bool has_large_states(const Graph *body) {
  enum { MUCH = 4 };
  const ScanLoop *l = &body->loop;
  int64_t rows = 0, states = 0;
  for (int i = 0; i < l->scanned; i++)
    rows += shape_elements(&body->values.at[body->inputs.at[i].value].shape) / l->steps;
  for (int i = 0; i < l->stacked; i++)
    rows += shape_elements(&body->values.at[body->figures.at[i].value].shape);
  for (int i = 0; i < l->states; i++)
    states += shape_elements(&body->values.at[body->inputs.at[l->scanned + i].value].shape);
  return states > MUCH * rows;
}

/* Steps between kept states: the given number, or with large states the divisor of the steps that is nearest to their
 * root, which keeps the fewest states. */
static int64_t steps_between(const Graph *body, int64_t given) {
  const int64_t steps = body->loop.steps;
  int64_t best = 1;
  if (given || !has_large_states(body))
    return given;
  for (int64_t k = 1; k <= steps; k++)
    if (steps % k == 0 && k + steps / k <= best + steps / best)
      best = k;
  return best;
}

bool make_bodies(Graph *g) {
  for (int i = 0; i < g->nodes.n; i++) {
    if (g->nodes.at[i].op != &op_recurrence)
      continue;
    Making m = {.g = g, .node = i, .loop = (int)g->nodes.at[i].attr[0].number};
    find_inside(&m);
    if (!check(&m))
      return false;
    make_body(&m);
    m.dropped = simplify_body(m.body);
    const int64_t keep = steps_between(m.body, (int64_t)g->nodes.at[i].attr[4].number);
    m.chunks = keep > 1 && keep < m.body->loop.steps && !g->inference;
    if (m.chunks)
      m.body = in_chunks(g, m.body, keep);
    replace(&m);
    i = -1; /* other nodes have other numbers now */
  }
  return true;
}
