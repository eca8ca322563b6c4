/* Cache of the best partition by form. Searches visit the same forms with different time limits; each form is cut
 * once. */
#include <math.h>

#include "plan/search/search.h"
#include "plan/cost/spans.h"

typedef struct Best {
  const Spans *spans; /* of the search */
  int corrections;    /* their corrections at that time */
  double most;        /* limit of that search, in seconds per microbatch; INFINITY: found */
  Partition part;     /* start NULL: none within `most` */
} Best;

struct BestPartitions {
  Arena *arena;
  FormTables forms;
};

enum { HEAD = 6 };

BestPartitions *best_partitions_new(void) {
  BestPartitions *b = alloc(sizeof *b);
  *b = (BestPartitions){.arena = arena_new(), .forms.head = HEAD};
  return b;
}

/* Whether only the form determines its copies: no layout corrections, no other chunks. */
static bool is_of_form(const Planner *r, const Candidate *c) {
  bool fresh = r->n_kinds == 1;
  for (int i = 0; i < pipeline_parts(c->form); i++)
    fresh &= c->copies[i].extra == 0 && c->copies[i].beside <= 0;
  return fresh;
}

static Best *find(const Planner *r, const Candidate *c, int64_t limit, const int64_t **key) {
  BestPartitions *b = r->best_partitions;
  const int64_t head[HEAD] = {c->microbatch, c->form->chunks,       c->recompute + 16 * (int64_t)c->copies->layers,
                              limit,         c->placement.adjacent, c->placement.backward};
  *key = form_key(&b->forms, head, c->form, NULL);
  Arena *before = arena_use(b->arena);
  Best *best = table_find(form_table(&b->forms, c->form->n_stages), *key);
  arena_use(before);
  return best && best->spans == c->spans && best->corrections == c->spans->corrections ? best : NULL;
}

Partition partition_copy(const Partition *p, int parts) {
  Partition copy = *p;
  copy.start = alloc_copy(p->start, (size_t)(parts + 1) * sizeof *p->start);
  copy.recompute = alloc_copy(p->recompute, (size_t)parts * sizeof *p->recompute);
  return copy;
}

static void keep(const Planner *r, const Candidate *c, const int64_t *key, Best best) {
  BestPartitions *b = r->best_partitions;
  const int parts = pipeline_parts(c->form);
  Arena *before = arena_use(b->arena);
  Table *table = form_table(&b->forms, c->form->n_stages);
  Best *known = table_find(table, key);
  if (best.part.start)
    best.part = partition_copy(&best.part, parts);
  if (known)
    *known = best;
  else
    table_add(table, key, alloc_copy(&best, sizeof best));
  arena_use(before);
}

/* The best partition without memory limit, if it fits the limit. */
static const Best *unlimited_that_fits(const Planner *r, const Candidate *c, int64_t limit) {
  const int64_t *key;
  const Best *best = limit < INT64_MAX ? find(r, c, INT64_MAX, &key) : NULL;
  if (!best || !best->part.start)
    return NULL;
  const Partition *p = &best->part;
  for (int i = 0; i < pipeline_parts(c->form); i++)
    if (span_bytes(c->spans + c->copies[i].kind, &c->copies[i], p->start[i], p->start[i + 1], p->recompute[i]) >
        limit)
      return NULL;
  return best;
}

bool best_partition(const Planner *r, const Candidate *c, int64_t limit, double most, Partition *out) {
  const int parts = pipeline_parts(c->form);
  if (!is_of_form(r, c))
    return partition_fastest(c->spans, c->copies, parts, limit, most, out);
  const int64_t *key;
  const Best *known = find(r, c, limit, &key);
  if (!known)
    known = unlimited_that_fits(r, c, limit);
  if (known && known->part.start) {
    *out = partition_copy(&known->part, parts);
    return known->part.value <= most;
  }
  if (known && most <= known->most)
    return false;
  bool found = partition_fastest(c->spans, c->copies, parts, limit, most, out);
  Best best = {c->spans, c->spans->corrections, found ? INFINITY : most, {0}};
  if (found)
    best.part = *out;
  keep(r, c, key, best);
  return found;
}
