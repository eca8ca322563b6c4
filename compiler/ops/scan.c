/* Loops over time, and the marks of a loop while elaboration runs its statements (elaborate/scan.c). */
#include "ops/scan.h"

#include <string.h>

#include "graph/interpret.h"
#include "ops/call.h"
#include "ops/rules.h"

/* ---- step(x[steps, ..]) -> [..]: the row of one step ------------------------------------------------- */

static bool shape_step(ShapeRule *r) {
  Shape s = *rule_shape(r, 0);
  ensure(s.rank >= 1);
  memmove(s.dim, s.dim + 1, (size_t)--s.rank * sizeof s.dim[0]);
  return rule_view(r, s);
}

/* The first row: the loop moves the operand's start from step to step. */
static bool place_step(const Graph *g, int node, int output, const Place *from, Place *to) {
  int axis = in_shape(g, node, 0)->batched;
  (void)output;
  *to = *from;
  to->rank--;
  for (int i = axis; i < to->rank; i++)
    to->dim[i] = from->dim[i + 1], to->stride[i] = from->stride[i + 1];
  return true;
}

static void evaluate_step(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int64_t n = shape_elements(y), samples = x->batched ? batch : 1;
  for (int64_t b = 0; b < samples; b++)
    memcpy(out[0] + b * n, in[0] + b * shape_elements(x), (size_t)n * sizeof *out[0]);
}

/* The derivative of a whole loop is taken, never that of a mark. */
static void derive_mark(Gradients *d, int node) {
  BUG("'%s' is outside of a loop", grad_graph(d)->nodes.at[node].op->name);
}

/* loop: while elaboration runs, the number of the loop that the row belongs to. */
const Op op_step = {
    .name = "step",
    .signature = "step(x, loop)",
    .kind = OP_VIEW,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"loop", ATTR_INT, false, 0}},
    .shape = shape_step,
    .view = place_step,
    .derivative = derive_mark,
    .cost = cost_none,
    .evaluate = evaluate_step,
};

/* ---- marks of elaboration ---------------------------------------------------------------------------- */

static bool shape_state(ShapeRule *r) {
  Shape s = *rule_shape(r, 0);
  s.batched = true;
  return rule_result(r, s);
}

static void evaluate_state(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  int64_t n = shape_elements(out_shape(g, node, 0));
  bool batched = in_shape(g, node, 0)->batched;
  for (int64_t b = 0; b < batch; b++)
    memcpy(out[0] + b * n, in[0] + (batched ? b * n : 0), (size_t)n * sizeof *out[0]);
}

/* A state before the step, with its initial value as operand. */
const Op op_state = {
    .name = "state",
    .signature = "state(initial, loop)",
    .kind = OP_CALL,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"loop", ATTR_INT, false, 0}},
    .shape = shape_state,
    .derivative = derive_mark,
    .cost = cost_none,
    .evaluate = evaluate_state,
};

static bool shape_recurrence(ShapeRule *r) {
  int stacked = (int)rule_int(r, "stacked");
  for (r->n_out = 0; r->n_out < r->n_in; r->n_out++) {
    Shape s = *rule_shape(r, r->n_out);
    if (r->n_out < stacked) {
      memmove(s.dim + 1, s.dim, (size_t)s.rank++ * sizeof s.dim[0]);
      s.dim[0] = rule_int(r, "steps");
    }
    r->out[r->n_out].type = TYPE_F32;
    r->out[r->n_out].shape = s;
  }
  return true;
}

/* The results of a loop, from one step's results and the states after it. */
const Op op_recurrence = {
    .name = "recurrence",
    .signature = "recurrence(results, loop, steps, stacked, reverse, keep)",
    .kind = OP_CALL,
    .internal = true,
    .min_in = 1,
    .max_in = -1,
    .attr = {{"loop", ATTR_INT, true, 0},
             {"steps", ATTR_INT, true, 0},
             {"stacked", ATTR_INT, true, 0},
             {"reverse", ATTR_BOOL, true, 0},
             {"keep", ATTR_INT, true, 0}},
    .shape = shape_recurrence,
    .derivative = derive_mark,
    .cost = cost_none,
};

/* ---- bodies ------------------------------------------------------------------------------------------ */

int *scan_operands(const Graph *body) {
  int *operand = alloc((size_t)(body->inputs.n + 1) * sizeof *operand), n = 0;
  for (int i = 0; i < body->inputs.n; i++) {
    int state = i - body->loop.scanned;
    bool zeros = state >= 0 && state < body->loop.states && starts_from_zeros(body, state);
    operand[i] = zeros ? -1 : n++;
  }
  return operand;
}

Graph *body_new(const Graph *g, ScanLoop loop) {
  Graph *body = graph_new(g->name);
  body->file = g->file;
  body->bodies = g->bodies;
  body->loop = loop;
  body->inference = true;
  return body;
}

static void digest_shape(Text *t, const Shape *s) {
  text_add(t, " %s", s->batched ? "b" : "");
  for (int i = 0; i < s->rank; i++)
    text_add(t, ",%lld", (long long)s->dim[i]);
}

static void digest_attributes(Text *t, const Node *n) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++) {
    const Attr *a = &n->attr[i];
    if (n->op->loops && i == 0) /* the number of a body; its digest follows */
      continue;
    text_add(t, " %a%s", a->number, a->text ? a->text : "");
    for (int k = 0; k < a->n; k++)
      text_add(t, ",%lld", (long long)a->list[k]);
  }
}

/* Equal for bodies that compute the same, whatever the names of their values and instances. */
static Name digest_of(const Graph *body) {
  Text t = {0};
  const ScanLoop *l = &body->loop;
  text_add(&t, "%lld %d %d %d %d %d %llx%s", (long long)l->steps, l->reverse, l->again, l->scanned, l->states,
           l->stacked, (unsigned long long)l->zeros, l->cached ? " cached" : "");
  for (int i = 0; i < body->nodes.n; i++) {
    const Node *n = &body->nodes.at[i];
    text_add(&t, "\n%s", n->op->name);
    for (int k = 0; k < n->n_in; k++)
      text_add(&t, " %d", n->in[k]);
    digest_attributes(&t, n);
    for (int k = 0; k < n->n_out; k++)
      digest_shape(&t, &body->values.at[n->out[k]].shape);
  }
  for (int i = 0; i < body->inputs.n; i++)
    text_add(&t, "\n%d", body->inputs.at[i].value);
  for (int i = 0; i < body->figures.n; i++)
    text_add(&t, "\n%d", body->figures.at[i].value);
  return internf("%.16s", sha256_hex(t.at, t.n));
}

/* ---- types under --precision bf16 ---- */

static int behind(const Graph *body, int value) {
  while (body->nodes.at[body->values.at[value].node].op->kind == OP_VIEW)
    value = body->nodes.at[body->values.at[value].node].in[0];
  return value;
}

/* Whether the addition of operand `side` may become the bias of a call. */
static bool is_bias(const Graph *body, const Node *n, int side) {
  return n->op->adds_bias && body->nodes.at[body->values.at[n->in[1 - side]].node].op->takes_bias;
}

/* Whether a library call of the body reads the input in bf16. */
static bool is_read_narrow(const Graph *body, int input) {
  const Shape *s = &body->values.at[body->inputs.at[input].value].shape;
  for (int i = 0; i < body->nodes.n; i++) {
    const Node *n = &body->nodes.at[i];
    for (int k = 0; k < 2 && n->op->adds_bias && s->rank == 1 && !s->batched; k++)
      if (n->in[k] == body->inputs.at[input].value && is_bias(body, n, k))
        return true;
    for (int k = 0; k < n->n_in && n->op->kind == OP_CALL; k++)
      if (behind(body, n->in[k]) == body->inputs.at[input].value &&
          !(n->op->stays_f32 && n->op->stays_f32(n, false, k)))
        return true;
  }
  return false;
}

/* Whether a library call of the body writes the result in bf16. */
static bool is_made_narrow(const Graph *body, int result) {
  const Value *v = &body->values.at[behind(body, body->figures.at[result].value)];
  const Node *n = &body->nodes.at[v->node];
  for (int side = 0; n->op->adds_bias && side < 2; side++)
    if (is_bias(body, n, side))
      return true;
  return n->op->kind == OP_CALL && !(n->op->stays_f32 && n->op->stays_f32(n, true, v->output));
}

/* By operand and then by result: 1 if it is stored in bf16. States never are: they add up from step to step. */
static Attr narrow_attribute(const Graph *body) {
  const int *operand = scan_operands(body);
  const int first = body->loop.scanned, end = first + body->loop.states;
  Attr a = {.list = alloc((size_t)(body->inputs.n + CACHED_OPERANDS + body->figures.n) * sizeof *a.list)};
  for (int i = 0; i < body->inputs.n; i++)
    if (operand[i] >= 0)
      a.list[a.n++] = (i < first || i >= end) && is_read_narrow(body, i);
  for (int i = 0; i < CACHED_OPERANDS && body->loop.cached; i++)
    a.list[a.n++] = 0;
  for (int i = 0; i < body->figures.n; i++)
    a.list[a.n++] = i < body->loop.stacked && is_made_narrow(body, i);
  return a;
}

bool scan_stays_f32(const Node *n, bool result, int index) {
  return !node_attr(n, "narrow")->list[result ? n->n_in + index : index];
}

void scan_attributes(Graph *g, Graph *body, Attr *attr) {
  Name digest = digest_of(body);
  int index = 0;
  while (index < g->bodies->n && digest_of(g->bodies->at[index]) != digest)
    index++;
  if (index == g->bodies->n)
    push(g->bodies, body);
  attr[0] = (Attr){.number = index};
  attr[1] = (Attr){.text = digest};
  attr[2] = narrow_attribute(body);
}

int graph_scan(Graph *g, Graph *body, const int *in, int n_in, int scope, Span span, int serves) {
  Attr attr[MAX_ATTR] = {{0}};
  scan_attributes(g, body, attr);
  return serves < 0 ? graph_node(g, &op_scan, in, n_in, attr, scope, span)
                    : graph_backward_node(g, &op_scan, in, n_in, attr, serves);
}

/* ---- scan ------------------------------------------------------------------------------------------------ */

static Shape result_shape(const Graph *body, int i) {
  Shape s = body->values.at[body->figures.at[i].value].shape;
  if (i >= body->loop.stacked)
    return s;
  memmove(s.dim + 1, s.dim, (size_t)s.rank++ * sizeof s.dim[0]);
  s.dim[0] = body->loop.steps;
  return s;
}

static bool shape_scan(ShapeRule *r) {
  const Graph *body = r->g->bodies->at[rule_int(r, "body")];
  const int *operand = scan_operands(body);
  for (int i = 0; i < body->inputs.n; i++)
    if (operand[i] >= 0)
      ensure(operand[i] < r->n_in &&
             shape_equal(rule_shape(r, operand[i]), &body->values.at[body->inputs.at[i].value].shape));
  ensure(body->figures.n == body->loop.stacked + body->loop.states);
  ensure(body->figures.n <= (int)(sizeof r->out / sizeof *r->out));
  r->n_out = body->figures.n;
  for (int i = 0; i < r->n_out; i++) {
    r->out[i].type = TYPE_F32;
    r->out[i].shape = result_shape(body, i);
  }
  return true;
}

OpCost cost_scan(const Graph *g, int node) {
  const Graph *body = scan_body(g, &g->nodes.at[node]);
  OpCost all = {0};
  for (int i = 0; i < body->nodes.n; i++) {
    OpCost c = body->nodes.at[i].op->cost(body, i);
    all.matmul_flops += c.matmul_flops * (double)body->loop.steps;
    all.other_flops += c.other_flops * (double)body->loop.steps;
    all.bytes += c.bytes * (double)body->loop.steps;
  }
  return all;
}

/* Elements of a value over `batch` samples as a matrix of samples and their elements. */
static int64_t samples_of(const Shape *s, int64_t batch) { return s->batched ? batch : 1; }

/* Copies a step's result to its row of the stack. */
static void stack_row(const Shape *stack, int64_t batch, int64_t row, const double *from, double *to) {
  int64_t per_sample = shape_elements(stack), n = per_sample / stack->dim[0];
  for (int64_t b = 0; b < samples_of(stack, batch); b++)
    memcpy(to + b * per_sample + row * n, from + b * n, (size_t)n * sizeof *to);
}

static void evaluate_scan(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Graph *body = scan_body(g, &g->nodes.at[node]);
  const ScanLoop *l = &body->loop;
  const int *operand = scan_operands(body);
  const double **input = alloc((size_t)(body->inputs.n + 1) * sizeof *input);
  for (int i = 0; i < body->inputs.n; i++) {
    const Shape *s = &body->values.at[body->inputs.at[i].value].shape;
    input[i] = operand[i] >= 0 ? in[operand[i]] : alloc((size_t)batch_elements(s, batch) * sizeof **input);
  }
  for (int64_t step = 0; step < l->steps; step++) {
    int64_t row = l->reverse ? l->steps - 1 - step : step;
    const double **now = alloc_copy(input, (size_t)(body->inputs.n + 1) * sizeof *input);
    for (int i = 0; i < l->scanned; i++)
      now[i] += row * (shape_elements(&body->values.at[body->inputs.at[i].value].shape) / l->steps);
    double **value = interpret(body, batch, now, NULL);
    for (int i = 0; i < l->stacked; i++)
      stack_row(out_shape(g, node, i), batch, row, value[body->figures.at[i].value], out[i]);
    for (int i = 0; i < l->states; i++)
      input[l->scanned + i] = value[body->figures.at[l->stacked + i].value];
  }
  for (int i = 0; i < l->states; i++) {
    int result = l->stacked + i;
    memcpy(out[result], input[l->scanned + i],
           (size_t)batch_elements(out_shape(g, node, result), batch) * sizeof **out);
  }
}

/* emit/scan.c prints it. */
void call_scan(const Site *site, Call *c) { (void)site, (void)c; }

/* lower/scan.c knows it. */
int64_t scratch_scan(const Site *site) {
  (void)site;
  return 0;
}

/* Whether a step reads nothing of later steps: no captured value of a sample, which may hold later positions. */
static bool is_forward_scan(const Graph *g, int node) {
  const Graph *body = scan_body(g, &g->nodes.at[node]);
  bool captures = false;
  for (int i = body->loop.scanned + body->loop.states; i < body->inputs.n; i++)
    captures |= body->values.at[body->inputs.at[i].value].shape.batched;
  return !body->loop.reverse && !captures;
}

const Op op_scan = {
    .name = "scan",
    .signature = "scan(x, initial, captured, body, digest, narrow)",
    .kind = OP_CALL,
    .loops = true,
    .internal = true,
    .min_in = 0,
    .max_in = -1,
    .attr = {{"body", ATTR_INT, true, 0}, {"digest", ATTR_TEXT, true, 0}, {"narrow", ATTR_LIST, true, 0}},
    .shape = shape_scan,
    .derivative = derive_scan,
    .cost = cost_scan,
    .evaluate = evaluate_scan,
    .call = call_scan,
    .scratch = scratch_scan,
    .causal = is_forward_scan,
    .decode = decode_scan,
    .stays_f32 = scan_stays_f32,
};
