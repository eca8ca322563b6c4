/* The rules that the Programs of all stages keep together, whatever the schedule. */
#include "schedule/program.h"

/* The least delay at which a stage that never drains has its weights. For a batch's first turn, W is made before
 * the backward of the turn n_i earlier, ceil((n_i - 1) / turns) updates ago. */
static int64_t least_delay(const Program *p) {
  int64_t turns = program_turns(p);
  return p->per_batch ? 0 : (p->in_flight - 1 + turns - 1) / turns;
}

/* With drains, batch t uses W(t). Without, weights are as new as the turns in flight allow: per stage (weight
 * stashing), or equal on all stages (vertical sync; two versions are PipeDream-2BW). */
static bool check_delays(const Program *p, int n_stages, char **why) {
  int64_t oldest = p->per_batch ? 0 : 1;
  bool stashed = !p->per_batch;
  for (int i = 0; i < n_stages; i++) {
    oldest = least_delay(&p[i]) > oldest ? least_delay(&p[i]) : oldest;
    stashed &= p[i].delay == least_delay(&p[i]);
  }
  for (int i = 0; i < n_stages; i++) {
    if (p[i].delay != oldest && !stashed)
      return *why = format("stage %d: weights are %lld updates old, and %lld could be", i, (long long)p[i].delay,
                           (long long)oldest),
             false;
    if (p[i].versions != p[i].delay + 1)
      return *why = format("stage %d: %d versions of weights for a delay of %lld", i, p[i].versions,
                           (long long)p[i].delay),
             false;
  }
  return true;
}

/* Checks that each part of the model belongs to one stage. */
static bool parts_are_held(const Program *p, int n_stages, char **why) {
  for (int i = 1; i < n_stages; i++)
    if (p[i].parts != p[0].parts)
      return *why = format("stages 0 and %d differ in their chunks", i), false;
  for (int part = 0; part < p->parts; part++) {
    int held = 0;
    for (int i = 0; i < n_stages; i++)
      held += program_chunk(&p[i], part) >= 0;
    if (held != 1)
      return *why = format("stages differ in their chunks: part %d of the model is on %d stages", part, held),
             false;
  }
  return true;
}

bool programs_agree(const Program *p, int n_stages, char **why) {
  for (int i = 0; i < n_stages; i++) {
    if (p[i].stage != i || p[i].n_stages != n_stages)
      return *why = format("program %d is of stage %d of %d", i, p[i].stage, p[i].n_stages), false;
    if (!program_well_formed(&p[i], why))
      return false;
    if (p[i].period != p[0].period || p[i].per_batch != p[0].per_batch)
      return *why = format("stages 0 and %d differ in their microbatches an update", i), false;
    if (p[i].forward_only != p[0].forward_only)
      return *why = format("stages 0 and %d differ in whether they go backward", i), false;
    if (p[i].split_backward != p[0].split_backward)
      return *why = format("stages 0 and %d differ in their backward passes", i), false;
  }
  if (!parts_are_held(p, n_stages, why))
    return false;
  return check_delays(p, n_stages, why);
}
