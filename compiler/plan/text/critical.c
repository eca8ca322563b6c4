/* The critical resource of a plan's batch. */
#include "plan/problem/problem.h"

/* Seconds per batch of a stage's ranks: work, and messages on the links of the side with fewer ranks, in one
 * direction. */
typedef struct Used {
  double works, sends;
} Used;

static Used used_by(const Plan *plan, int stage) {
  const Pipeline *p = &plan->pipeline;
  Used u = {0};
  for (int k = 0; k < pipeline_chunks(p, stage); k++) {
    const int i = plan_part_of(plan, stage, k);
    int ranks = p->replicas[stage],
        behind = i + 1 < plan_parts(plan) ? p->replicas[plan_stage_of(plan, i + 1)] : ranks;
    u.works += plan_busy_seconds(plan, i) / ranks;
    u.sends += plan->stage[i].send_seconds * (double)p->microbatches / (behind < ranks ? behind : ranks);
  }
  return u;
}

static void take_if_more(Critical *most, double seconds, const char *what, int stage) {
  if (seconds > most->share)
    *most = (Critical){format("%sstage %d", what, stage), seconds};
}

/* Messages and exchanges on a shared link. */
static void take_links(Critical *most, const Plan *plan) {
  const double ROUNDING = 1 + 1e-9;
  if (plan->links_seconds > most->share * ROUNDING)
    *most = (Critical){"messages and exchanges on one link", plan->links_seconds};
}

Critical plan_critical(const Plan *plan) {
  Critical most = {"stage 0", 0};
  for (int i = 0; i < plan->pipeline.n_stages; i++) {
    Used u = used_by(plan, i);
    take_if_more(&most, u.works, "", i);
    take_if_more(&most, u.sends, "messages behind ", i);
    take_if_more(&most, plan->stage[i].exchange_seconds, "exchange of ", i);
  }
  take_links(&most, plan);
  most.share = plan->batch_seconds > 0 ? most.share / plan->batch_seconds : 0;
  return most;
}

const char *critical_text(Critical critical) {
  return format("%s, %.0f %%", critical.resource, critical.share * 100);
}
