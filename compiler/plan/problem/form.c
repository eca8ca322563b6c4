/* Forms of a pipeline: stages and ranks, with open microbatches. */
#include "plan/problem/problem.h"

#include <string.h>

Pipeline form_make(const Planner *r, int n_stages, const int *replicas) {
  Pipeline p = pipeline_make(r->form.schedule, n_stages, r->form.chunks);
  p.vertical_sync = r->form.vertical_sync;
  p.shard_optimizer = r->form.shard_optimizer;
  p.bucket = r->form.bucket;
  if (r->form.first_part && n_stages == r->form.n_stages)
    p.first_part = alloc_copy(r->form.first_part, (size_t)(n_stages + 1) * sizeof *p.first_part);
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
  return form_is_plain(p) ? format("%d stage%s", p->n_stages, p->n_stages == 1 ? "" : "s")
                          : format("replicas %s", replicas_text(p));
}

/* Under schedules with weight versions per stage, updates cannot wait for values of other stages. */
bool may_exchange(const Planner *r) { return !r->traits.every_round || r->form.vertical_sync; }

/* ---- tables by form --------------------------------------------------------------------------------- */

Table *form_table(FormTables *t, int n_stages) {
  while (t->by_size.n <= n_stages) {
    const Table empty = {.key_bytes = (size_t)(t->head + t->by_size.n) * sizeof(int64_t)};
    push(&t->by_size, empty);
  }
  return &t->by_size.at[n_stages];
}

int64_t *form_key(const FormTables *t, const int64_t *head, const Pipeline *form, const bool *marks) {
  enum { MARK, RECOMPUTE, AHEAD, REPLICAS = 32 }; /* bit positions in a stage's word */
  int64_t *key = alloc((size_t)(t->head + form->n_stages) * sizeof *key);
  memcpy(key, head, (size_t)t->head * sizeof *key);
  for (int i = 0; i < form->n_stages; i++)
    key[t->head + i] = (int64_t)form->replicas[i] << REPLICAS | (int64_t)form->ahead[i] << AHEAD |
                       (int64_t)form->recompute[i] << RECOMPUTE | (int64_t)(marks && marks[i]) << MARK;
  return key;
}
