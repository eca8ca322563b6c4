/* Checks --tensor N: options it excludes, before the graph is divided, and the result of the division. */
#include "optimizers/optimizer.h"
#include "plan/problem/problem.h"
#include "tensor/tensor.h"

static bool refuse(const char *what, const char *advice) {
  Diagnostic *d = error_at(NO_SPAN, "PD0513", "--tensor: %s", what);
  help(d, "%s", advice);
  return false;
}

static const char *without = "leave one of the two options out";

bool tensor_suits(const Graph *g, const PlanRequest *q, int degree, bool builds) {
  if (degree < 2)
    return refuse("'--sharding' needs a tensor-parallel degree", "add '--tensor 2' for two ranks per layer");
  if (degree > MOST_SHARDS)
    return refuse(format("the degree %d is too large: the limit is %d", degree, MOST_SHARDS),
                  "use more ranks by '--stages' or '--replicas'");
  if (g->inference)
    return refuse(format("not with '%s', whose ranks hold whole layers", inference_option(g)), without);
  if (update_rule(&g->train)->whole_tensors)
    return refuse(format("'%s' needs whole tensors, and each rank would hold a part", g->train.optimizer->name),
                  "use adamw, sgd, nesterov or lion, which update each element independently");
  if (builds && q->cluster)
    return refuse("programs for a '--cluster' do not support tensor parallelism",
                  "'pdc plan' can plan for a cluster");
  return true;
}

bool tensor_group(const PlanRequest *asked, int degree, PlanRequest *groups) {
  const Cluster *c = asked->cluster;
  if (asked->workers % degree)
    return refuse(format("-n %d is not divisible by --tensor %d", asked->workers, degree),
                  "use a multiple of the tensor-parallel degree");
  *groups = *asked;
  groups->workers = asked->workers / degree;
  groups->cluster = c ? cluster_grouped(c, degree) : NULL;
  if (c && !groups->cluster)
    return refuse(format("the %d devices of a '%s' cannot be divided into groups of %d equal devices",
                         c->level[0].count, c->level[0].name, degree),
                  "the ranks of a group must share the innermost level");
  return true;
}

/* ---- --tensor auto --------------------------------------------------------------------------------- */

bool tensor_degrees(const PlanRequest *q, TensorDegrees *degrees) {
  int ranks = q->workers ? q->workers : q->cluster ? cluster_devices(q->cluster) : 0;
  if (!ranks)
    return refuse("'auto' needs the number of ranks", "add '-n 4'");
  if (q->sharding || q->plan || q->profile)
    return refuse(format("'%s' is for one tensor-parallel degree", q->sharding ? "--sharding"
                                                                   : q->plan   ? "--plan"
                                                                               : "--profile"),
                  "use that number instead of 'auto'");
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

/* ---- the result ------------------------------------------------------------------------------------ */

/* The largest parameter, for the diagnostic. */
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
                           "--tensor %d: no parameter of '%s' is large enough and divisible into %d parts",
                           g->shards, g->name, g->shards);
  if (p)
    note_at(d, p->span, "the largest, '%s', has shape %s", p->name, shape_text(&p->shape));
  help(d, "use numbers of heads and hidden units that are divisible by %d", g->shards);
  return false;
}
