/* Work of the stage program: what --emulate sleeps for. */
#include "internal.h"

static double planned(enum pd_work work) {
  const struct pd_stage *s = pd.stage;
  switch (work) {
  case PD_FORWARD:
  case PD_RECOMPUTE: return s->forward_seconds;
  case PD_BACKWARD: return s->backward_seconds - s->weights_seconds;
  case PD_WEIGHTS: return s->weights_seconds;
  case PD_UPDATE: return s->update_seconds;
  default: return 0;
  }
}

bool pd_begin(enum pd_work work, int64_t k) {
  (void)k;
  if (pd.emulate) pd_emulate(planned(work));
  return !pd.emulate;
}

void pd_end(void) {}

void pd_trace(enum pd_work work, int64_t number, int peer, double start, double end) {
  (void)work, (void)number, (void)peer, (void)start, (void)end;
}

void pd_trace_start(void) {}
void pd_trace_finish(void) {}
