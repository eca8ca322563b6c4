/* Models whose results depend on the microbatch: what batch normalisation computes of a sample is a function of
 * the others of its microbatch, so that a microbatch that the planner chose is a choice about the model. */
#include "plan/planner.h"

/* The first forward node that makes a value of each sample from one that sums over a microbatch's samples; -1. */
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
  Name layer = r->g->scopes.at[r->g->nodes.at[node].scope].path;
  Diagnostic *d =
      warning_at(NO_SPAN, "PD0509",
                 "the planner chose microbatches of %lld samples, and %s%s%s takes statistics "
                 "over a microbatch",
                 (long long)plan->pipeline.microbatch, layer[0] ? "'" : "the model", layer, layer[0] ? "'" : "");
  note_at(d, NO_SPAN,
          "with other stages, another profile or other memory it may choose others, which train another model");
  help(d, "'--microbatch %lld' keeps them", (long long)plan->pipeline.microbatch);
}
