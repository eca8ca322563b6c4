/* The derivative of a scan: a scan in the other direction. Its states are the gradients of the states, and sums of
 * gradients of captured values. Its step computes cheap values of the forward step again and reads the others from
 * stacks: states before each step, results of calls and of reductions. Sums over samples, such as the gradient of a
 * weight, leave the loop if possible: one product over all steps, with stacked factors, is faster than one per step. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "ops/scan.h"
#include "simplify/rewrite.h"
#include "simplify/simplify.h"

/* ---- one step ---------------------------------------------------------------------------------------- */

/* A body with its backward nodes. */
typedef struct Step {
  Graph *b;
  int n_values;  /* of the body itself */
  bool *wanted;  /* by value */
  int *gradient; /* by value; -1: none */
  int *d_result; /* by result: the seed, an operand of the step; -1: none */
} Step;

static Graph *copy_of(const Graph *body) {
  Graph *b = alloc(sizeof *b);
  *b = *body;
  b->values.at = alloc_copy(body->values.at, (size_t)body->values.n * sizeof *body->values.at);
  b->nodes.at = alloc_copy(body->nodes.at, (size_t)body->nodes.n * sizeof *body->nodes.at);
  b->inputs.at = alloc_copy(body->inputs.at, (size_t)body->inputs.n * sizeof *body->inputs.at);
  b->figures.at = alloc_copy(body->figures.at, (size_t)body->figures.n * sizeof *body->figures.at);
  b->values.room = b->values.n, b->nodes.room = b->nodes.n;
  b->inputs.room = b->inputs.n, b->figures.room = b->figures.n;
  return b;
}

static int state_value(const Graph *body, int state) { return body->inputs.at[body->loop.scanned + state].value; }
static int result_value(const Graph *body, int result) { return body->figures.at[result].value; }

/* By value: whether its gradient is needed. Leaves are rows of scanned values, states and captured values; `operand`
 * by input. A state is wanted if a step makes it depend on a wanted value. */
static bool *find_wanted(const Graph *body, const bool *operand) {
  bool *wanted = alloc((size_t)body->values.n + 1);
  bool *leaf = alloc_copy(operand, (size_t)body->inputs.n + 1);
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < body->n_forward; i++) {
      const Node *n = &body->nodes.at[i];
      bool any = n->op->source == SOURCE_INPUT && leaf[(int)n->attr[0].number] &&
                 (int)n->attr[0].number >= body->loop.scanned;
      if (n->op == &op_step)
        any = leaf[(int)body->nodes.at[body->values.at[n->in[0]].node].attr[0].number];
      else
        for (int k = 0; k < n->n_in && n->op->derivative; k++)
          any |= wanted[n->in[k]];
      for (int k = 0; k < n->n_out; k++)
        wanted[n->out[k]] = any && body->values.at[n->out[k]].type == TYPE_F32;
    }
    for (int s = 0; s < body->loop.states; s++) {
      bool *before = &leaf[body->loop.scanned + s];
      changed |= !*before && wanted[result_value(body, body->loop.stacked + s)];
      *before |= wanted[result_value(body, body->loop.stacked + s)];
    }
  }
  return wanted;
}

/* `given`: by result: it has a gradient from outside. States also have gradients from later steps. */
static Step derive_step(const Graph *body, const bool *operand, const bool *given) {
  Step s = {.b = copy_of(body), .n_values = body->values.n};
  const int results = body->figures.n;
  const bool *wanted = find_wanted(body, operand);
  s.d_result = alloc((size_t)(results + 1) * sizeof *s.d_result);
  int *seed = alloc((size_t)(body->values.n + 1) * sizeof *seed);
  memset(seed, 0xff, (size_t)body->values.n * sizeof *seed);
  for (int i = 0; i < results; i++) {
    const int value = result_value(body, i);
    const bool state = i >= body->loop.stacked;
    s.d_result[i] = -1;
    if (!wanted[value] && !(state && wanted[state_value(body, i - body->loop.stacked)]))
      continue;
    if (!state && !given[i])
      continue;
    const Value like = s.b->values.at[value];
    s.d_result[i] = graph_operand(s.b, internf("d_%s", like.name), &like);
    int both[] = {seed[value], s.d_result[i]};
    if (seed[value] < 0)
      seed[value] = s.d_result[i];
    else
      seed[value] = graph_output(s.b, graph_node(s.b, &op_add, both, 2, NULL, 0, like.span), 0);
  }
  s.wanted = alloc((size_t)s.b->values.n + 1);
  memcpy(s.wanted, wanted, (size_t)body->values.n);
  s.gradient = alloc((size_t)(s.b->values.n + 1) * sizeof *s.gradient);
  memset(s.gradient, 0xff, (size_t)s.b->values.n * sizeof *s.gradient);
  memcpy(s.gradient, seed, (size_t)body->values.n * sizeof *seed);
  autodiff_step(s.b, s.wanted, s.gradient);
  return s;
}

/* ---- values that the forward scan keeps ---------------------------------------------------------------- */

static int result_of_value(const Graph *body, int value) {
  for (int i = 0; i < body->loop.stacked; i++)
    if (result_value(body, i) == value)
      return i;
  return -1;
}

static bool is_row(const Graph *b, int value) { return b->nodes.at[b->values.at[value].node].op == &op_step; }

static bool is_state(const Graph *body, int value) {
  for (int s = 0; s < body->loop.states; s++)
    if (state_value(body, s) == value)
      return true;
  return false;
}

/* Whether the value is the result of a call with its bias, which fusion adds in the call. */
static bool is_biased(const Graph *body, const Node *n) {
  for (int side = 0; n->op->adds_bias && side < 2; side++) {
    const Node *call = &body->nodes.at[body->values.at[n->in[side]].node];
    const Shape *vector = &body->values.at[n->in[1 - side]].shape;
    if (call->op->takes_bias && !vector->batched && vector->rank == 1)
      return true;
  }
  return false;
}

/* Whether the backward step reads a forward value from a stack instead of computing it again. */
static bool is_kept(const Graph *body, int value) {
  const Node *n = &body->nodes.at[body->values.at[value].node];
  if (n->op->loops)
    return !scan_body(body, n)->loop.again;
  return is_state(body, value) || n->op->kind == OP_CALL || n->op->kind == OP_REDUCE || is_biased(body, n);
}

typedef struct Search {
  const Graph *body;
  const Step *s;
  bool *seen; /* by node of the step */
  Ints kept;
} Search;

/* Collects kept values behind a value that the backward step reads. */
static void find_kept(Search *s, int value) {
  const Graph *b = s->s->b;
  const int node = b->values.at[value].node;
  if (value < s->s->n_values && is_kept(s->body, value)) {
    for (int i = 0; i < s->kept.n; i++)
      if (s->kept.at[i] == value)
        return;
    push(&s->kept, value);
    return;
  }
  if (s->seen[node] || is_row(b, value))
    return;
  s->seen[node] = true;
  for (int k = 0; k < b->nodes.at[node].n_in; k++)
    find_kept(s, b->nodes.at[node].in[k]);
}

/* Adds stacked results to a body. */
static Graph *with_results(const Graph *body, const Ints *values) {
  Graph *more = copy_of(body);
  more->figures.n = more->n_outputs = 0;
  for (int i = 0; i < body->figures.n + values->n; i++) {
    int own = i < body->loop.stacked ? i : i - values->n;
    bool added = i >= body->loop.stacked && i < body->loop.stacked + values->n;
    int value = added ? values->at[i - body->loop.stacked] : result_value(body, own);
    const Value *v = &body->values.at[value];
    Name name = added ? internf("kept_%s", v->name) : body->figures.at[own].output;
    graph_output_figure(more, name, value, v->span);
  }
  more->loop.stacked += values->n;
  return more;
}

static bool *wanted_operands(const Graph *body, const Node *n, const bool *wanted) {
  const int *operand = scan_operands(body);
  bool *leaf = alloc((size_t)body->inputs.n + 1);
  for (int i = 0; i < body->inputs.n; i++)
    leaf[i] = operand[i] >= 0 && wanted[n->in[operand[i]]];
  return leaf;
}

/* The body with all values that its derivative reads among its results. */
static Graph *with_kept(const Graph *body, const bool *operand) {
  Graph *b = copy_of(body);
  save_for_derivatives(b, find_wanted(body, operand));
  bool *given = alloc((size_t)b->figures.n + 1);
  memset(given, true, (size_t)b->figures.n);
  const Step step = derive_step(b, operand, given);
  Search s = {.body = b, .s = &step, .seen = alloc((size_t)step.b->nodes.n + 1)};
  for (int v = 0; v < b->values.n; v++)
    if (step.gradient[v] >= 0 && (is_row(b, v) || b->nodes.at[b->values.at[v].node].op == &op_operand))
      find_kept(&s, step.gradient[v]);
  Ints added = {0};
  for (int i = 0; i < s.kept.n; i++)
    if (result_of_value(b, s.kept.at[i]) < 0)
      push(&added, s.kept.at[i]);
  return with_results(b, &added);
}

static bool has_wanted_result(const Node *n, const bool *wanted) {
  for (int k = 0; k < n->n_out; k++)
    if (wanted[n->out[k]])
      return true;
  return false;
}

void save_for_derivatives(Graph *g, const bool *wanted) {
  bool any = false;
  for (int i = 0; i < g->n_forward; i++)
    any |= g->nodes.at[i].op == &op_scan && has_wanted_result(&g->nodes.at[i], wanted);
  if (!any)
    return;
  Rewrite *w = rewrite_begin(g);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
    for (int k = 0; k < n->n_in; k++)
      in[k] = w->value[n->in[k]];
    if (n->op != &op_scan || !has_wanted_result(n, wanted)) {
      rewrite_copy(w, i, in, i);
      continue;
    }
    const Graph *body = scan_body(g, n);
    Graph *more = with_kept(body, wanted_operands(body, n, wanted));
    Attr attr[MAX_ATTR] = {{0}};
    scan_attributes(w->to, more, attr);
    int made = rewrite_insert(w, i, &op_scan, in, n->n_in, attr);
    for (int k = 0; k < n->n_out; k++)
      rewrite_stand_for(w,
                        graph_output(w->to, made, k + (k < body->loop.stacked ? 0 : more->figures.n - n->n_out)),
                        n->out[k]);
    for (int k = body->loop.stacked; k < more->loop.stacked; k++)
      w->to->values.at[graph_output(w->to, made, k)].name = more->figures.at[k].output;
  }
  rewrite_finish(w);
}

/* ---- the backward scan ------------------------------------------------------------------------------- */

/* An input of the backward body: a value of the step, and the value of the graph that the scan passes. */
typedef struct Leaf {
  int value;
  int outer; /* -1: a state that starts from zeros */
} Leaf;

typedef struct Backward {
  Gradients *d;
  Graph *g;
  int node;
  const Graph *body; /* of the forward scan */
  Step s;
  Vec(Leaf) scanned, states, captured;
  Ints stacked, next; /* values of the step: results to stack; states after the step */
  bool *outside;      /* by input of the forward body: its gradient leaves the loop */
  int d_states; /* number of the first states, gradients of states; the rest sum gradients of captured values */
  Graph *f;     /* the backward body */
  int *map;     /* by value of the step: its value in f; -1 */
  int made;     /* the backward scan */
} Backward;

static int input_index(const Graph *b, int value) {
  const Node *n = &b->nodes.at[b->values.at[value].node];
  return n->op == &op_operand ? (int)n->attr[0].number : -1;
}

/* The value of the graph that has the step's value of all steps; -1: no such value. */
static int stack_outside(const Backward *w, int value) {
  const Graph *b = w->s.b;
  for (int i = 0; i < w->body->loop.stacked; i++)
    if (w->s.d_result[i] == value)
      return grad_of(w->d, w->node, i);
  if (is_row(b, value)) {
    int input = input_index(b, b->nodes.at[b->values.at[value].node].in[0]);
    return w->g->nodes.at[w->node].in[scan_operands(w->body)[input]];
  }
  int result = value < w->s.n_values ? result_of_value(w->body, value) : -1;
  return result >= 0 ? graph_output(w->g, w->node, result) : -1;
}

static void add_leaf(void *leaves, int value, int outer) {
  Vec(Leaf) *list = leaves;
  for (int i = 0; i < list->n; i++)
    if (list->at[i].value == value)
      return;
  push(list, (Leaf){value, outer});
}

/* Finds the inputs of the backward body behind a value. */
static void find_leaves(Backward *w, bool *seen, int value) {
  const Graph *b = w->s.b;
  if (seen[value])
    return;
  seen[value] = true;
  for (int i = 0; i < w->states.n; i++)
    if (w->states.at[i].value == value)
      return;
  int stack = stack_outside(w, value), input = input_index(b, value);
  if (stack >= 0) {
    add_leaf(&w->scanned, value, stack);
  } else if (input >= 0) {
    int operand = scan_operands(w->body)[input];
    ensure(input >= w->body->loop.scanned + w->body->loop.states && operand >= 0);
    add_leaf(&w->captured, value, w->g->nodes.at[w->node].in[operand]);
  } else {
    const Node *n = &b->nodes.at[b->values.at[value].node];
    for (int k = 0; k < n->n_in; k++)
      find_leaves(w, seen, n->in[k]);
  }
}

static int stack_number(const Backward *w, int value) {
  for (int i = 0; i < w->stacked.n; i++)
    if (w->stacked.at[i] == value)
      return i;
  return -1;
}

/* Whether the sum over steps of this gradient of a captured value can be computed outside: a product of stacked
 * factors, a sum over the samples of a value that is stacked anyway, sums of those, and their views. Another sum over
 * samples is added up from step to step, because a stack may be much larger. */
static bool leaves_loop(const Backward *w, int value) {
  const Graph *b = w->s.b;
  const Node *n = &b->nodes.at[b->values.at[value].node];
  const bool sum = n->op == &op_weight_gradient || n->op == &op_sum_to;
  if (n->serves < 0 || b->values.at[value].shape.batched)
    return false;
  if (!sum && n->op != &op_add && !(n->op->kind == OP_VIEW && n->n_in == 1))
    return false;
  for (int k = 0; k < n->n_in; k++) {
    const Shape *from = &b->values.at[n->in[k]].shape;
    const bool stacked = stack_outside(w, n->in[k]) >= 0 || stack_number(w, n->in[k]) >= 0;
    if (sum ? !from->batched || from->rank == MAX_RANK || (n->op == &op_sum_to && !stacked)
            : !leaves_loop(w, n->in[k]))
      return false;
  }
  return true;
}

/* Stacks the factors of a gradient that leaves the loop. */
static void stack_factors(Backward *w, int value) {
  const Node *n = &w->s.b->nodes.at[w->s.b->values.at[value].node];
  bool sum = n->op == &op_weight_gradient || n->op == &op_sum_to;
  for (int k = 0; k < n->n_in; k++)
    if (!sum)
      stack_factors(w, n->in[k]);
    else if (stack_outside(w, n->in[k]) < 0 && stack_number(w, n->in[k]) < 0)
      push(&w->stacked, n->in[k]);
}

/* Builds the gradient outside, from stacks. */
static int gradient_outside(const Backward *w, int value) {
  const Node *n = &w->s.b->nodes.at[w->s.b->values.at[value].node];
  bool sum = n->op == &op_weight_gradient || n->op == &op_sum_to;
  int in[2];
  ensure(n->n_in <= 2);
  for (int k = 0; k < n->n_in; k++) {
    int stack = sum ? stack_outside(w, n->in[k]) : gradient_outside(w, n->in[k]);
    in[k] = stack >= 0 ? stack : graph_output(w->g, w->made, stack_number(w, n->in[k]));
  }
  return grad_build(w->d, w->node, n->op, in, n->n_in, n->attr);
}

/* ---- its body */

static int copied(Backward *w, int value) {
  if (w->map[value] >= 0)
    return w->map[value];
  const Graph *b = w->s.b;
  const Node *n = &b->nodes.at[b->values.at[value].node];
  if (n->op == &op_detach)
    return w->map[value] = copied(w, n->in[0]);
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
  for (int k = 0; k < n->n_in; k++)
    in[k] = copied(w, n->in[k]);
  int made = graph_node(w->f, n->op, in, n->n_in, n->attr, n->scope, n->span);
  ensure(made >= 0);
  for (int k = 0; k < n->n_out; k++) {
    const Value *from = &b->values.at[n->out[k]];
    Value *to = &w->f->values.at[graph_output(w->f, made, k)];
    to->name = from->name, to->named_in = from->named_in, to->span = from->span;
    w->map[n->out[k]] = graph_output(w->f, made, k);
  }
  return w->map[value];
}

static Value stack_like(const Backward *w, int value) {
  Value like = w->s.b->values.at[value];
  memmove(like.shape.dim + 1, like.shape.dim, (size_t)like.shape.rank++ * sizeof like.shape.dim[0]);
  like.shape.dim[0] = w->body->loop.steps;
  return like;
}

static void make_inputs(Backward *w) {
  Graph *f = w->f;
  for (int i = 0; i < w->scanned.n; i++) {
    const Value like = stack_like(w, w->scanned.at[i].value);
    graph_operand(f, like.name, &like);
  }
  for (int i = 0; i < w->states.n; i++) {
    const Value like = w->s.b->values.at[w->states.at[i].value];
    w->map[w->states.at[i].value] = graph_operand(f, like.name, &like);
  }
  for (int i = 0; i < w->captured.n; i++) {
    const Value like = w->s.b->values.at[w->captured.at[i].value];
    w->map[w->captured.at[i].value] = graph_operand(f, like.name, &like);
  }
  for (int i = 0; i < w->scanned.n; i++) {
    int row = graph_node(f, &op_step, &f->inputs.at[i].value, 1, NULL, 0, NO_SPAN);
    int value = w->map[w->scanned.at[i].value] = graph_output(f, row, 0);
    f->values.at[value].name = w->s.b->values.at[w->scanned.at[i].value].name;
  }
}

static void make_backward_body(Backward *w) {
  w->f = body_new(w->g, (ScanLoop){.steps = w->body->loop.steps,
                                   .reverse = !w->body->loop.reverse,
                                   .scanned = w->scanned.n,
                                   .states = w->states.n,
                                   .stacked = w->stacked.n});
  w->f->scopes = w->body->scopes;
  w->map = alloc((size_t)(w->s.b->values.n + 1) * sizeof *w->map);
  memset(w->map, 0xff, (size_t)w->s.b->values.n * sizeof *w->map);
  for (int i = 0; i < w->states.n; i++)
    if (w->states.at[i].outer < 0)
      w->f->loop.zeros |= (uint64_t)1 << i;
  make_inputs(w);
  for (int i = 0; i < w->stacked.n + w->next.n; i++) {
    int value = i < w->stacked.n ? w->stacked.at[i] : w->next.at[i - w->stacked.n];
    int result = copied(w, value);
    graph_output_figure(w->f, w->s.b->values.at[value].name, result, NO_SPAN);
  }
}

/* Names the gradients of rows and states. */
static void name_gradients(Step *s) {
  for (int v = 0; v < s->n_values; v++)
    if (s->gradient[v] >= s->n_values && s->b->values.at[s->gradient[v]].name[0] != 'd')
      s->b->values.at[s->gradient[v]].name = internf("d_%s", s->b->values.at[v].name);
}

/* ---- its states and results */

static void list_states(Backward *w) {
  const Graph *body = w->body;
  for (int i = 0; i < body->loop.states; i++) {
    int result = body->loop.stacked + i, before = state_value(body, i);
    if (w->s.d_result[result] < 0)
      continue;
    int next = w->s.gradient[before];
    if (next < 0) {
      const Shape s = body->values.at[before].shape;
      Attr attr[MAX_ATTR] = {{.number = 0}, {.n = s.rank, .list = (int64_t *)s.dim}, {.number = s.batched}};
      next = graph_output(w->s.b, graph_backward_node(w->s.b, &op_full, NULL, 0, attr, 0), 0);
    }
    push(&w->states, (Leaf){w->s.d_result[result], grad_of(w->d, w->node, result)});
    push(&w->next, next);
  }
  w->d_states = w->states.n;
}

static bool is_read_in(const Graph *b, int value) {
  for (int i = 0; i < b->nodes.n; i++)
    for (int k = 0; k < b->nodes.at[i].n_in; k++)
      if (b->nodes.at[i].in[k] == value)
        return true;
  return false;
}

/* The state of a scan in the step that adds up to this value from zeros; -1: none. */
static int summing_state(const Graph *b, int value) {
  const Node *n = &b->nodes.at[b->values.at[value].node];
  const Graph *body = n->op == &op_scan ? scan_body(b, n) : NULL;
  const int state = body ? b->values.at[value].output - body->loop.stacked : -1;
  if (state < 0 || !starts_from_zeros(body, state) || is_read_in(b, value))
    return -1;
  const Node *next = &body->nodes.at[body->values.at[result_value(body, body->loop.stacked + state)].node];
  const int before = state_value(body, state);
  return next->op == &op_add && (next->in[0] == before || next->in[1] == before) ? state : -1;
}

/* Lets a scan in the step add to `sum` instead of zeros: then a loop over chunks of steps adds in the order of a loop
 * over the steps, and has its bits. */
static void sum_from(const Backward *w, int value, int state, int sum) {
  Graph *b = w->s.b;
  Node *n = &b->nodes.at[b->values.at[value].node];
  Graph *body = copy_of(scan_body(b, n));
  body->loop.zeros &= ~((uint64_t)1 << state);
  const int at = scan_operands(body)[body->loop.scanned + state];
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
  for (int k = 0; k <= n->n_in; k++)
    in[k] = k < at ? n->in[k] : k == at ? sum : n->in[k - 1];
  n->in = in;
  n->n_in++;
  n->attr = alloc_copy(n->attr, MAX_ATTR * sizeof *n->attr);
  scan_attributes(b, body, n->attr);
}

/* Sums a captured value's gradient from step to step. */
static void add_sum(Backward *w, int input) {
  Graph *b = w->s.b;
  const Value like = b->values.at[w->body->inputs.at[input].value];
  const int forward = b->n_forward;
  int gradient = w->s.gradient[w->body->inputs.at[input].value];
  /* an operand behind the step's nodes: backward nodes cannot be inputs */
  b->n_forward = b->nodes.n;
  int sum = graph_operand(b, internf("sum_%s", like.name), &like);
  const int state = summing_state(b, gradient);
  int next = gradient;
  if (state >= 0)
    sum_from(w, gradient, state, sum);
  else
    next = graph_output(b, graph_node(b, &op_add, (int[]){sum, gradient}, 2, NULL, 0, like.span), 0);
  b->n_forward = forward;
  b->values.at[next].name = internf("d_%s", like.name);
  push(&w->states, (Leaf){sum, -1});
  push(&w->next, next);
}

static int first_captured(const Graph *body) { return body->loop.scanned + body->loop.states; }

/* The row of a scanned value in the step; -1: a step does not read it. */
static int row_of(const Graph *body, int input) {
  for (int i = 0; i < body->n_forward; i++)
    if (body->nodes.at[i].op == &op_step && body->nodes.at[i].in[0] == body->inputs.at[input].value)
      return body->nodes.at[i].out[0];
  return -1;
}

static void list_results(Backward *w) {
  const Graph *body = w->body;
  for (int i = 0; i < body->loop.scanned; i++)
    if (w->s.gradient[row_of(body, i)] >= 0)
      push(&w->stacked, w->s.gradient[row_of(body, i)]);
  w->outside = alloc((size_t)body->inputs.n + 1);
  for (int again = 0; again < 2; again++) /* sums use the stacks of products */
    for (int i = first_captured(body); i < body->inputs.n; i++) {
      int gradient = w->s.gradient[body->inputs.at[i].value];
      if (gradient < 0 || w->outside[i] || !leaves_loop(w, gradient))
        continue;
      w->outside[i] = true;
      stack_factors(w, gradient);
    }
  for (int i = first_captured(body); i < body->inputs.n; i++)
    if (w->s.gradient[body->inputs.at[i].value] >= 0 && !w->outside[i])
      add_sum(w, i);
}

static void build_scan(Backward *w) {
  Graph *b = w->s.b;
  bool *seen = alloc((size_t)b->values.n + 1);
  for (int i = 0; i < w->stacked.n; i++)
    find_leaves(w, seen, w->stacked.at[i]);
  for (int i = 0; i < w->next.n; i++)
    find_leaves(w, seen, w->next.at[i]);
  make_backward_body(w);
  const bool *dropped = simplify_body(w->f);
  Ints in = {0};
  for (int i = 0; i < w->scanned.n; i++)
    if (!*dropped++)
      push(&in, w->scanned.at[i].outer);
  for (int i = 0; i < w->states.n; i++)
    if (!*dropped++ && w->states.at[i].outer >= 0)
      push(&in, w->states.at[i].outer);
  for (int i = 0; i < w->captured.n; i++)
    if (!*dropped++)
      push(&in, w->captured.at[i].outer);
  Attr attr[MAX_ATTR] = {{0}};
  scan_attributes(w->g, w->f, attr);
  const int first = grad_build(w->d, w->node, &op_scan, in.at, in.n, attr);
  w->made = w->g->values.at[first].node;
  for (int i = 0; i < w->f->figures.n; i++)
    w->g->values.at[graph_output(w->g, w->made, i)].name = w->f->figures.at[i].output;
}

static void add_gradients(Backward *w) {
  const Graph *body = w->body;
  const int *operand = scan_operands(body);
  int stacked = 0, state = 0, sum = w->d_states;
  for (int i = 0; i < body->loop.scanned; i++)
    if (w->s.gradient[row_of(body, i)] >= 0)
      grad_add(w->d, w->node, operand[i], graph_output(w->g, w->made, stacked++));
  for (int i = 0; i < body->loop.states; i++) {
    if (w->s.d_result[body->loop.stacked + i] < 0)
      continue;
    int result = graph_output(w->g, w->made, w->stacked.n + state++);
    if (operand[body->loop.scanned + i] >= 0)
      grad_add(w->d, w->node, operand[body->loop.scanned + i], result);
  }
  for (int i = first_captured(body); i < body->inputs.n; i++) {
    int gradient = w->s.gradient[body->inputs.at[i].value];
    if (gradient < 0)
      continue;
    grad_add(w->d, w->node, operand[i],
             w->outside[i] ? gradient_outside(w, gradient) : graph_output(w->g, w->made, w->stacked.n + sum++));
  }
}

void derive_scan(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  Backward w = {.d = d, .g = g, .node = node, .body = scan_body(g, &g->nodes.at[node])};
  const int *operand = scan_operands(w.body);
  bool *wanted = alloc((size_t)w.body->inputs.n + 1), *given = alloc((size_t)w.body->figures.n + 1);
  for (int i = 0; i < w.body->inputs.n; i++)
    wanted[i] = operand[i] >= 0 && grad_wanted(d, node, operand[i]);
  for (int i = 0; i < w.body->figures.n; i++)
    given[i] = grad_of(d, node, i) >= 0;
  w.s = derive_step(w.body, wanted, given);
  name_gradients(&w.s);
  list_states(&w);
  list_results(&w);
  if (w.stacked.n + w.next.n == 0)
    return;
  build_scan(&w);
  add_gradients(&w);
}
