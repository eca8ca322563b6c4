/* Models whose results depend on the microbatch: batch normalisation computes statistics over it. Choosing a
 * microbatch then changes the model. A statistic over a single value equals it, so every sample becomes zero. */
#include "plan/problem/problem.h"

/* ---- values of a statistic ------------------------------------------------------------------------------- */

/* Number of operand values per result value, of one sample if the operand is batched. */
static int64_t summed(const Graph *g, const Node *n) {
  const bool sums = n->op->kind == OP_SUM_TO || n->op->reduction == REDUCTION_SUM;
  return sums ? shape_elements(&g->values.at[n->in[0]].shape) / shape_elements(&g->values.at[n->out[0]].shape) : 1;
}

/* The operands with most elements decide, such as x in x - mean(x). */
static int64_t values_of_operands(const Graph *g, const Node *n, const int64_t *values) {
  int64_t elements = 0, least = 1;
  for (int i = 0; i < n->n_in; i++) {
    const int v = n->in[i];
    const Shape *s = &g->values.at[v].shape;
    const int64_t size = shape_elements(s);
    if (!s->batched || size < elements)
      continue;
    least = size > elements || values[v] < least ? values[v] : least;
    elements = size;
  }
  return least;
}

/* By forward value of a sample: number of the sample's values that an element sums. */
static int64_t *values_of_samples(const Graph *g) {
  int64_t *values = alloc((size_t)(g->values.n + 1) * sizeof *values);
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    const bool own = n->op->kind == OP_SOURCE || n->op->kind == OP_CALL || n->op->kind == OP_CONCAT;
    const int64_t of_result = own ? 1 : values_of_operands(g, n, values) * summed(g, n);
    for (int j = 0; j < n->n_out; j++)
      values[n->out[j]] = of_result;
  }
  return values;
}

/* By forward value: samples or running averages depend on it. */
static bool *values_read(const Graph *g) {
  bool *read = alloc((size_t)(g->values.n + 1) * sizeof *read);
  for (int i = g->n_forward - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    bool counts = n->op->moves_by != NULL;
    for (int j = 0; j < n->n_out; j++)
      counts |= g->values.at[n->out[j]].shape.batched || read[n->out[j]];
    for (int j = 0; counts && j < n->n_in; j++)
      read[n->in[j]] = true;
  }
  return read;
}

Statistic smallest_statistic(const Graph *g) {
  const int64_t *values = values_of_samples(g);
  const bool *read = values_read(g);
  Statistic least = {.node = -1};
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->kind != OP_SUM_TO || !g->values.at[n->in[0]].shape.batched ||
        g->values.at[n->out[0]].shape.batched || !read[n->out[0]])
      continue;
    const int64_t here = values[n->in[0]] * summed(g, n);
    if (least.node < 0 || here < least.values)
      least = (Statistic){.node = i, .values = here};
  }
  return least;
}

int64_t least_microbatch(Statistic s) {
  enum { LEAST_VALUES = 2 };
  return s.node < 0 || s.values >= LEAST_VALUES ? 1 : (LEAST_VALUES + s.values - 1) / s.values;
}

/* For messages: "'h.0.bn'" */
static const char *layer_text(const Graph *g, int node) {
  Name path = g->scopes.at[g->nodes.at[node].scope].path;
  return path[0] ? format("'%s'", path) : "the model";
}

/* ---- diagnostics ----------------------------------------------------------------------------------------- */

void note_statistic(const Graph *g, Statistic s, Diagnostic *d) {
  note_at(d, g->scopes.at[g->nodes.at[s.node].scope].span,
          "%s computes statistics over the values of a microbatch, %lld per sample, and needs at least 2",
          layer_text(g, s.node), (long long)s.values);
}

bool statistics_suit(const Graph *g, int64_t batch, int64_t b, Span where, const char *prefix) {
  const Statistic s = smallest_statistic(g);
  int64_t works = least_microbatch(s);
  if (b >= works)
    return true;
  Diagnostic *d =
      error_at(where, "PD0590", "%smicrobatches of %lld sample%s have statistics over %lld value%s", prefix,
               (long long)b, b == 1 ? "" : "s", (long long)(b * s.values), b * s.values == 1 ? "" : "s");
  note_statistic(g, s, d);
  while (works <= batch && batch % works != 0)
    works++;
  if (works <= batch)
    help(d, "use '--microbatch %lld'", (long long)works);
  else
    help(d, "use '-D batch=%lld'", (long long)least_microbatch(s));
  return false;
}

void tell_small_statistics(const Planner *r) {
  const char *form = ranks_text(&r->form);
  const long long b = (long long)r->least_microbatch, batch = (long long)r->subject.batch;
  Diagnostic *d = error_at(r->schedule_span, "PD0590",
                           "'%s' with %s cannot split a batch of %lld into microbatches of %lld samples or more",
                           r->form.schedule, form, batch, b);
  note_statistic(r->g, smallest_statistic(r->g), d);
  int64_t least, multiple;
  schedule_needs(&r->form, &least, &multiple);
  const int64_t whole = (least + multiple - 1) / multiple * multiple * r->least_microbatch;
  help(d, "use '-D batch=%lld'; fewer ranks may also work", (long long)((batch + whole - 1) / whole * whole));
}

/* ---- a choice about the model ------------------------------------------------------------------------------ */

/* The first forward node that computes a sample's value from a statistic over the microbatch; -1: none. */
static int reader_of_statistics(const Graph *g) {
  bool *statistic = alloc((size_t)(g->values.n + 1) * sizeof *statistic);
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    bool from_samples = false, from_statistic = false;
    for (int j = 0; j < n->n_in; j++) {
      from_samples |= g->values.at[n->in[j]].shape.batched;
      from_statistic |= statistic[n->in[j]];
    }
    for (int j = 0; j < n->n_out; j++) {
      bool batched = g->values.at[n->out[j]].shape.batched;
      if (batched && from_statistic)
        return i;
      statistic[n->out[j]] = !batched && (from_samples || from_statistic);
    }
  }
  return -1;
}

void tell_chosen_microbatch(const Planner *r, const Plan *plan) {
  int node = r->microbatches.n > 1 ? reader_of_statistics(r->g) : -1;
  if (node < 0)
    return;
  Diagnostic *d =
      warning_at(NO_SPAN, "PD0509",
                 "the planner chose microbatches of %lld samples, and %s computes statistics over a microbatch",
                 (long long)plan->pipeline.microbatch, layer_text(r->g, node));
  note_at(d, NO_SPAN,
          "results depend on this choice: other stages, another profile or other memory may change it");
  help(d, "fix the choice with '--microbatch %lld'", (long long)plan->pipeline.microbatch);
}
