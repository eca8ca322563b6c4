/* A model on one rank that holds it in parts, one or two of them in memory at once: for each size of microbatch
 * as few parts as fit the limit, for every part more is another cut whose activations come and go; of these the
 * fastest. */
#include <math.h>

#include "plan/candidate.h"

typedef struct Search {
  const Planner *r;
  int64_t b;
  const int *pinned;
  const Plan *miss; /* the smallest that was laid out and does not fit */
} Search;

/* What is between two parts is in memory for two microbatches, whatever the batch. */
static void set_between(Copies *c, int parts) {
  for (int i = 0; i < parts; i++) {
    c[i].received = i > 0 ? 2 : 1;
    c[i].sent = 1;
    c[i].gradients = 2;
  }
}

/* The model in so many parts, the largest of which is as small as can be; its peak is exact. */
static Plan *in_parts(const Search *s, int parts) {
  const Planner *r = s->r;
  Pipeline *form = alloc(sizeof *form);
  *form = form_make(r, 1, NULL);
  form->chunks = parts;
  form->memory = parts > 1 ? r->limit : 0;
  form->kept = parts > 1 ? 100 : 0;
  Candidate c = candidate_of(r, form, &(Placement){0}, s->b, spans_at(r, s->b),
                             parts > 1 ? RECOMPUTE_ON : RECOMPUTE_OFF, s->pinned, 0);
  Partition part;
  set_between(c.copies, parts);
  if (s->pinned)
    partition_pinned(c.spans, c.copies, parts, s->pinned, INT64_MAX, &part);
  else
    partition_smallest(c.spans, c.copies, parts, &part);
  for (int i = 0; i < parts; i++)
    part.recompute[i] = parts > 1;
  Plan *plan = plan_of(r, &c, &part, INFINITY);
  find_peaks(r, plan, alloc(sizeof(int64_t)));
  return plan;
}

static bool fits(Search *s, const Plan *plan) {
  if (largest_peak(plan) <= s->r->limit)
    return true;
  if (!s->miss || largest_peak(plan) < largest_peak(s->miss))
    s->miss = plan;
  return false;
}

/* The fewest parts that fit: more never need more, but for a few pages. NULL: none do. */
static Plan *fewest_parts(Search *s) {
  int n = s->r->subject.n, most = n < MAX_CHUNKS ? n : MAX_CHUNKS, low = 1, parts = 1;
  Plan *best = NULL;
  while (!best) { /* so many, or twice as many */
    Plan *plan = in_parts(s, parts);
    if (fits(s, plan))
      best = plan;
    else if (parts == most)
      return NULL;
    else
      low = parts + 1, parts = 2 * parts < most ? 2 * parts : most;
  }
  while (low < parts) {
    int middle = low + (parts - low) / 2;
    Plan *plan = in_parts(s, middle);
    if (fits(s, plan))
      best = plan, parts = middle;
    else
      low = middle + 1;
  }
  return best;
}

static char *why(const Planner *r, const Plan *plan) {
  int parts = plan_parts(plan);
  if (parts == 1)
    return format("Everything fits %s at microbatch %lld: nothing has to come and go.",
                  bytes_text(r->limit + r->process), (long long)plan->pipeline.microbatch);
  return format("%s, of which two at most are in memory at once: %s of %s. Microbatch %lld%s.",
                r->pinned ? format("The %d parts that were asked for", parts)
                          : format("The fewest parts that fit, %d", parts),
                bytes_text(largest_peak(plan) + r->process), bytes_text(r->limit + r->process),
                (long long)plan->pipeline.microbatch,
                r->request->microbatch ? " as asked" : " gives the shortest batch that fits");
}

Plan *plan_spilled(const Planner *r, NoPlan *none) {
  Plan *best = NULL;
  Search s = {.r = r, .pinned = r->pinned};
  for (int i = r->microbatches.n - 1; i >= 0; i--) {
    s.b = r->microbatches.at[i];
    Plan *plan = r->pinned ? in_parts(&s, r->form.chunks) : fewest_parts(&s);
    if (plan && fits(&s, plan) && (!best || plan->batch_seconds < best->batch_seconds))
      best = plan;
  }
  if (best)
    best->why = why(r, best);
  *none = (NoPlan){.no_microbatch = r->microbatches.n == 0, .miss = s.miss};
  return best;
}
