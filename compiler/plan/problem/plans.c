/* Facts about a complete plan. */
#include "plan/problem/problem.h"

int ranks_asked(const PlanRequest *q) {
  if (q->workers || !q->cluster || q->stages || q->split || q->replicas || q->plan)
    return q->workers;
  return cluster_devices(q->cluster);
}

int plan_ranks_asked(const PlanRequest *q, const Plan *plan) {
  const int used = pipeline_ranks(&plan->pipeline), asked = ranks_asked(q);
  return asked > used && !q->plan ? asked : used;
}

bool asks_for_memory(const Plan *plan, const PlanRequest *q) {
  bool any = !plan;
  for (int i = 0; plan && q->recompute == RECOMPUTE_AUTO && i < plan_parts(plan); i++)
    any |= part_recomputes(plan, i);
  return any;
}

bool *part_recomputed(const Pieces *p, const StagePlan *s) {
  bool *again = alloc((size_t)p->n);
  for (int i = s->first_piece; s->again && i < s->end_piece; i++)
    again[i] = s->again[i - s->first_piece] == '1';
  return again;
}

bool *plan_recomputed(const Pieces *p, const Plan *plan) {
  bool *again = NULL;
  for (int i = 0; i < plan_parts(plan); i++) {
    const StagePlan *s = &plan->stage[i];
    again = again || !s->again ? again : alloc((size_t)p->n);
    for (int k = s->first_piece; s->again && k < s->end_piece; k++)
      again[k] = s->again[k - s->first_piece] == '1';
  }
  return again;
}

void set_recomputed(StagePlan *s, const bool *again) {
  const int n = s->end_piece - s->first_piece;
  char *text = alloc((size_t)n + 1);
  bool any = false;
  for (int i = 0; i < n; i++) {
    text[i] = again[s->first_piece + i] ? '1' : '0';
    any |= again[s->first_piece + i];
  }
  s->again = any ? intern_n(text, (size_t)n) : NULL;
}

int64_t plan_cache_bytes(const Plan *plan) {
  int64_t bytes = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    bytes += plan->stage[i].cache_bytes;
  return bytes;
}

double plan_cache_bytes_a_token(const Graph *g, const Plan *plan) {
  double tokens = (double)g->generation.context * (double)g->generation.samples;
  return tokens > 0 ? (double)plan_cache_bytes(plan) / tokens : 0;
}

void plan_verify(const Graph *g, const Pieces *p, const Plan *plan) {
  const Pipeline *l = &plan->pipeline;
  ensure(l->n_stages > 0 && l->batch == l->microbatch * l->microbatches);
  ensure(l->batch == g->train.batch && schedule_known(l->schedule));
  ScheduleTraits traits = schedule_traits(l->schedule);
  ensure(l->chunks >= 1 && l->chunks <= MAX_CHUNKS);
  ensure(l->chunks == 1 || traits.chunks);
  ensure(!l->vertical_sync || traits.every_round);
  ensure(!l->shard_optimizer || traits.replicas);
  ensure(form_is_plain(l) || traits.replicas);
  ensure(schedule_allows(l, l->microbatches));
  for (int i = 0; i < l->n_stages; i++) {
    ensure(l->replicas[i] >= 1 && (l->ahead[i] == 1 || (l->ahead[i] == 2 && traits.looks_ahead)));
    ensure(!l->recompute[i] || traits.recomputes);
  }
  int parts = plan_parts(plan);
  ensure(plan->stage[0].first_piece == 0 && plan->stage[parts - 1].end_piece == p->n);
  for (int i = 0; i < parts; i++) {
    const StagePlan *s = &plan->stage[i];
    ensure(s->first_piece < s->end_piece);
    ensure(i == 0 || s->first_piece == plan->stage[i - 1].end_piece);
    ensure(!s->again || traits.layers);
    ensure(s->forward_seconds >= 0 && s->backward_seconds >= 0 && s->update_seconds >= 0 &&
           s->weights_seconds >= 0 && s->peak_bytes >= 0);
  }
}

double plan_busy_seconds(const Plan *plan, int part) {
  const StagePlan *s = &plan->stage[part];
  double microbatches = (double)plan->pipeline.microbatches;
  return microbatches * (s->forward_seconds * (plan_recomputes(plan, part) ? 2 : 1) + s->backward_seconds) +
         s->update_seconds * plan->pipeline.replicas[plan_stage_of(plan, part)];
}

double plan_waiting(const Plan *plan) {
  double busy = 0;
  int ranks = pipeline_ranks(&plan->pipeline);
  for (int i = 0; i < plan_parts(plan); i++)
    busy += plan_busy_seconds(plan, i);
  double share = plan->batch_seconds > 0 ? 1 - busy / (plan->batch_seconds * ranks) : 0;
  return share > 0 ? share : 0;
}

int64_t largest_peak(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    most = plan->stage[i].peak_bytes > most ? plan->stage[i].peak_bytes : most;
  return most;
}
