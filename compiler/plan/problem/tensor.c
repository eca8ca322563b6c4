/* What --tensor N cannot be asked for together with, said before the graph is divided; and what must have come of it. */
#include "optimizers/optimizer.h"
#include "plan/problem/problem.h"
#include "tensor/tensor.h"

static bool refuse(const char *what, const char *advice) {
  Diagnostic *d = error_at(NO_SPAN, "PD0513", "--tensor: %s", what);
  help(d, "%s", advice);
  return false;
}

static const char *without = "leave one of the two out";

bool tensor_suits(const Graph *g, const PlanRequest *q, bool builds) {
  if (q->tensor < 2)
    return refuse("'--sharding' splits what ranks share", "'--tensor 2' has two ranks share each layer");
  if (q->tensor > MOST_SHARDS)
    return refuse(format("%d ranks are more than share a layer: %d at most", q->tensor, MOST_SHARDS),
                  "'--stages' and '--replicas' take more ranks");
  if (g->inference)
    return refuse(format("'%s' makes programs whose ranks have whole layers", inference_option(g)), without);
  if (update_rule(&g->train)->whole_tensors)
    return refuse(format("'%s' looks at whole tensors, of which a rank would have parts",
                         g->train.optimizer->name),
                  "adamw, sgd, nesterov and lion go element by element");
  if (builds && q->cluster)
    return refuse("launches on a '--cluster' are of ranks that have whole layers", "'pdc plan' plans for one");
  return true;
}

bool tensor_group(PlanRequest *q) {
  if (q->workers % q->tensor)
    return refuse(format("-n %d ranks are no groups of %d", q->workers, q->tensor), "a multiple works");
  q->workers /= q->tensor;
  const Cluster *groups = q->cluster ? cluster_grouped(q->cluster, q->tensor) : NULL;
  if (q->cluster && !groups)
    return refuse(format("the %d devices of a '%s' are no groups of %d that are alike", q->cluster->level[0].count,
                         q->cluster->level[0].name, q->tensor),
                  "a group's ranks stand at the innermost level");
  q->cluster = groups;
  return true;
}

/* ---- --tensor auto --------------------------------------------------------------------------------- */

bool tensor_degrees(const PlanRequest *q, TensorDegrees *degrees) {
  int ranks = q->workers ? q->workers : q->cluster ? cluster_devices(q->cluster) : 0;
  if (!ranks)
    return refuse("'auto' divides the ranks that '-n' says, and there is none", "'-n 4' divides four");
  if (q->sharding || q->plan || q->profile)
    return refuse(format("'%s' is of one number of ranks a layer", q->sharding ? "--sharding"
                                                                   : q->plan   ? "--plan"
                                                                               : "--profile"),
                  "give that number instead of 'auto'");
  for (int n = 1; n <= ranks && n <= MOST_SHARDS; n++)
    if (ranks % n == 0)
      push(degrees, (TensorDegree){.shards = n});
  return true;
}

int tensor_choose(const TensorDegrees *degrees) {
  int best = -1;
  for (int i = 0; i < degrees->n; i++) {
    const Plan *plan = degrees->at[i].plan;
    if (plan && (best < 0 || AS_FAST * plan->batch_seconds < degrees->at[best].plan->batch_seconds))
      best = i;
  }
  return best;
}

void tensor_compare(const TensorDegrees *degrees, FILE *out) {
  int chosen = tensor_choose(degrees);
  fprintf(out, "\n%6s  %10s  %9s  %s\n", "tensor", "ms a batch", "memory", "ranks by stage, each a group");
  for (int i = 0; i < degrees->n; i++) {
    const TensorDegree *d = &degrees->at[i];
    if (d->plan)
      fprintf(out, "%6d  %10.2f  %9s  %s%s\n", d->shards, d->plan->batch_seconds * 1e3,
              bytes_text(largest_peak(d->plan)), replicas_text(&d->plan->pipeline),
              i == chosen ? "  (chosen)" : "");
    else
      fprintf(out, "%6d  %s\n", d->shards, d->why);
  }
}

/* ---- activations by positions ----------------------------------------------------------------------- */

bool tensor_lacks_memory(const Graph *g, const PlanRequest *q, const Plan *plan) {
  return g->shards && !g->spread && (plan ? !q->plan && asks_for_memory(plan, q) : true);
}

bool tensor_is_better(const Plan *spread, const Plan *plan) {
  return spread && (!plan || spread->batch_seconds < WORTH_STATES * plan->batch_seconds);
}

/* ---- what came of it ------------------------------------------------------------------------------- */

/* The first parameter that has an axis to split, for a message. */
static const Param *largest(const Graph *g) {
  const Param *most = NULL;
  for (int i = 0; i < g->params.n; i++)
    if (!most || shape_elements(&g->params.at[i].shape) > shape_elements(&most->shape))
      most = &g->params.at[i];
  return most;
}

bool tensor_divides(const Graph *g) {
  const Param *p = largest(g);
  for (int i = 0; i < g->params.n; i++)
    if (g->params.at[i].layout.kind == LAYOUT_SPLIT)
      return true;
  Diagnostic *d = error_at(graph_file_span(g), "PD0514",
                           "--tensor %d: no parameter of '%s' is worth splitting, or divides into %d parts",
                           g->shards, g->name, g->shards);
  if (p)
    note_at(d, p->span, "the largest, '%s', has shape %s", p->name, shape_text(&p->shape));
  help(d, "numbers of heads and of hidden units that %d divides can be shared", g->shards);
  return false;
}
