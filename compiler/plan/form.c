/* Forms of a pipeline: so many stages with so many ranks each, before its microbatches are settled. */
#include "plan/planner.h"

#include <string.h>

Pipeline form_make(const Planner *r, int n_stages, const int *replicas) {
  Pipeline p = pipeline_make(r->form.schedule, n_stages, r->form.chunks);
  p.vertical_sync = r->form.vertical_sync;
  p.shard_optimizer = r->form.shard_optimizer;
  for (int i = 0; i < n_stages; i++) {
    p.replicas[i] = replicas ? replicas[i] : 1;
    p.ahead[i] = i < n_stages - 1 && r->request->ahead ? r->request->ahead : 1;
  }
  return p;
}

Pipeline form_of(const Pipeline *p) {
  Pipeline form = pipeline_copy(p);
  form.batch = form.microbatch = form.microbatches = 0;
  memset(form.recompute, 0, (size_t)form.n_stages * sizeof *form.recompute);
  return form;
}

bool form_is_plain(const Pipeline *p) { return pipeline_ranks(p) == p->n_stages; }

const char *replicas_text(const Pipeline *p) {
  Text t = {0};
  for (int i = 0; i < p->n_stages; i++)
    text_add(&t, "%s%d", i ? "," : "", p->replicas[i]);
  return t.at;
}

const char *ranks_text(const Pipeline *p) {
  return form_is_plain(p) ? format("%d stages", p->n_stages) : format("replicas %s", replicas_text(p));
}
