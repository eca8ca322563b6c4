/* What --tensor N cannot be asked for together with, said before the graph is divided; and what must have come of it. */
#include "optimizers/optimizer.h"
#include "plan/planner.h"
#include "tensor/tensor.h"

static bool refuse(const char *what, const char *advice) {
  Diagnostic *d = error_at(NO_SPAN, "PD0513", "--tensor: %s", what);
  help(d, "%s", advice);
  return false;
}

static const char *without = "leave one of the two out";

bool tensor_suits(const Graph *g, const PlanRequest *q) {
  if (q->tensor < 2)
    return refuse("'--sharding' splits what ranks share", "'--tensor 2' has two ranks share each layer");
  if (q->tensor > MOST_SHARDS)
    return refuse(format("%d ranks are more than share a layer: %d at most", q->tensor, MOST_SHARDS),
                  "'--stages' and '--replicas' take more ranks");
  if (g->inference)
    return refuse(format("'%s' makes programs whose ranks have whole layers", inference_option(g)), without);
  if (!backend_of(&q->target)->device->has_threads)
    return refuse(format("'%s' programs have whole layers on each rank", backend_of(&q->target)->name),
                  "'--target c' shares them among processors");
  if (update_rule(&g->train)->whole_tensors)
    return refuse(format("'%s' looks at whole tensors, of which a rank would have parts",
                         g->train.optimizer->name),
                  "adamw, sgd, nesterov and lion go element by element");
  if (q->target.precision != PRECISION_F32)
    return refuse(format("'--precision %s' stores values that the ranks add up in fewer bits",
                         precision_name(q->target.precision)),
                  "'--precision f32' shares layers");
  if (q->shard_optimizer)
    return refuse("'--shard-optimizer' divides the state of whole parameters", without);
  if (q->profile)
    return refuse("'--profile' has times of whole layers", "without it costs are counted");
  if (q->cluster)
    return refuse("'--cluster' places ranks that have whole layers", without);
  if (q->workers % q->tensor)
    return refuse(format("-n %d ranks are no groups of %d", q->workers, q->tensor), "a multiple works");
  return true;
}

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
