/* Numbers of ranks, microbatches and turns. Ranks are numbered stage by stage; the ranks of a stage are its
 * replicas, which take the pipeline's microbatches in turn. */
#include "run/run.h"

struct pd_updates pd_updates;

int pd_replicas(void) { return pd.stage->replicas[pd.stage->stage]; }

int pd_rank_of(int stage, int replica) {
  int rank = replica;
  for (int i = 0; i < stage; i++) rank += pd.stage->replicas[i];
  return rank;
}

int pd_planned_ranks(void) { return pd_rank_of(pd.stage->n_stages, 0); }

int pd_stage_of(int rank) {
  int stage = 0;
  while (stage + 1 < pd.stage->n_stages && pd_rank_of(stage + 1, 0) <= rank) stage++;
  return stage;
}

int64_t pd_number(int64_t k) { return (k - 1) * pd_replicas() + pd.replica + 1; }

int pd_rank_of_number(int stage, int64_t number) {
  return pd_rank_of(stage, (int)((number - 1) % pd.stage->replicas[stage]));
}

int64_t pd_own_microbatches(void) { return pd.stage->microbatches / pd_replicas(); }

int64_t pd_turns_together(void) { return pd.stage->spilled ? pd.stage->microbatches : pd.stage->n_stages; }

struct pd_turn pd_turn(int64_t turn, bool backward) {
  return pd_turn_of(turn, pd.stage->chunks, pd_turns_together(), backward);
}
