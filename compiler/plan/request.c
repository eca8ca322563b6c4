/* From what the command line and the model say to a definite planning job. */
#include <string.h>
#include <unistd.h>

#include "plan/planner.h"

/* Between processes of one machine, through shared memory. */
static const double LINK_BANDWIDTH = 4e9, LINK_LATENCY = 10e-6;

Span graph_file_span(const Graph *g) {
  Span s = g->train.span;
  s.line = s.column = s.end_line = s.end_column = 0;
  return s;
}

/* ---- stages ------------------------------------------------------------------------------------- */

/* split: "h[3],h[6].ln_2" */
static bool read_split(Planner *r, const char *split) {
  Vec(Name) names = {0};
  for (const char *at = split;;) {
    size_t n = strcspn(at, ",");
    push(&names, intern_n(at, n));
    if (!at[n])
      break;
    at += n + 1;
  }
  r->stages = names.n + 1;
  r->pinned = alloc((size_t)r->stages * sizeof *r->pinned);
  bool good = true;
  for (int i = 0; i < names.n; i++) {
    Name name = names.at[i];
    int piece = piece_find_or_tell(r->g, r->p, name, NO_SPAN, "--split");
    if (piece == 0)
      error_at(NO_SPAN, "PD0503", "--split: stage 0 starts at '%s' already", name);
    if (piece > 0 && piece <= r->pinned[i])
      error_at(NO_SPAN, "PD0503", "--split: '%s' does not come after what stage %d starts with", name, i);
    good &= piece > 0 && piece > r->pinned[i];
    r->pinned[i + 1] = piece < 0 ? r->pinned[i] : piece;
  }
  return good;
}

static bool count_stages(Planner *r, const PlanRequest *q) {
  r->stages = 0;
  if (q->split && !read_split(r, q->split))
    return false;
  int asked = q->stages ? q->stages : q->workers;
  if (r->stages && q->stages && r->stages != q->stages) {
    error_at(NO_SPAN, "PD0504", "--split names %d stages and --stages %d", r->stages, q->stages);
    return false;
  }
  if (!r->stages)
    r->stages = asked ? asked : 1;
  if (q->workers && q->workers != r->stages) {
    Diagnostic *d = error_at(NO_SPAN, "PD0504", "%d workers for %d stages: every stage runs on one worker",
                             q->workers, r->stages);
    help(d, "'-n %d' runs these stages", r->stages);
    return false;
  }
  if (r->stages > r->p->n) {
    Diagnostic *d = error_at(r->where, "PD0505", "%d stages, but the model has only %d place%s to cut",
                             r->stages, r->p->n - 1, r->p->n == 2 ? "" : "s");
    help(d, "'-n %d' or less", r->p->n);
    return false;
  }
  return true;
}

/* ---- schedule, microbatch, memory ------------------------------------------------------------------ */

bool schedule_named(Name name, Span where, const char *prefix) {
  if (schedule_known(name))
    return true;
  int n;
  const char *const *names = schedule_names(&n);
  Diagnostic *d = error_at(where, "PD0702", "%sunknown schedule '%s'", prefix, name);
  const char *near = nearest(name, names, n);
  Text all = {0};
  for (int i = 0; i < n; i++)
    text_add(&all, "%s'%s'", i ? ", " : "", names[i]);
  if (near)
    help(d, "a schedule with a similar name exists: '%s'", near);
  else
    help(d, "schedules are %s", all.at);
  return false;
}

static bool choose_schedule(Planner *r, const PlanRequest *q) {
  const Train *t = &r->g->train;
  r->schedule_span = q->schedule ? NO_SPAN : t->pipeline_span;
  r->schedule = intern(q->schedule ? q->schedule : t->pipeline ? t->pipeline : "2bw");
  return schedule_named(r->schedule, r->schedule_span, q->schedule ? "--schedule: " : "");
}

static bool check_microbatch(const Planner *r, int64_t b, const char *option) {
  int64_t batch = r->g->train.batch;
  if (b > 0 && b <= batch && batch % b == 0)
    return true;
  int64_t below = b > batch ? batch : b > 0 ? b : 1, above = b > 0 ? b : 1;
  while (batch % below != 0)
    below--;
  while (above < batch && batch % above != 0)
    above++;
  Diagnostic *d = error_at(NO_SPAN, "PD0506", "%s: microbatches of %lld do not make up a batch of %lld",
                           option, (long long)b, (long long)batch);
  if (above > below && above <= batch)
    help(d, "%lld or %lld divide it", (long long)below, (long long)above);
  else
    help(d, "%lld divides it", (long long)below);
  return false;
}

bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *q) {
  *r = (Planner){.g = g, .p = p, .request = q, .where = graph_file_span(g)};
  ensure(g->train.batch > 0 && p->n > 0);
  if (!count_stages(r, q) || !choose_schedule(r, q))
    return false;
  if (q->microbatch && !check_microbatch(r, q->microbatch, "--microbatch"))
    return false;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  r->threads = q->threads ? q->threads : (int)(processors / r->stages);
  r->threads = r->threads < 1 ? 1 : r->threads;
  r->limit = q->memory ? q->memory : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / r->stages;
  r->bandwidth = q->link_bytes_per_second > 0 ? q->link_bytes_per_second : LINK_BANDWIDTH;
  r->latency = q->link_latency > 0 ? q->link_latency : LINK_LATENCY;
  return true;
}

static void tell_too_few(const Planner *r, int64_t least) {
  int64_t batch = r->g->train.batch, b = r->request->microbatch;
  Diagnostic *d;
  if (b)
    d = error_at(r->schedule_span, "PD0701",
                 "'%s' with %d stages needs at least %lld microbatches an update, has %lld", r->schedule,
                 r->stages, (long long)least, (long long)(batch / b));
  else
    d = error_at(r->schedule_span, "PD0701",
                 "'%s' with %d stages needs at least %lld microbatches an update, more than "
                 "a batch of %lld has samples",
                 r->schedule, r->stages, (long long)least, (long long)batch);
  if (b)
    note_at(d, NO_SPAN, "a batch of %lld samples in microbatches of %lld", (long long)batch, (long long)b);
  if (batch >= least) {
    int64_t fits = batch / least;
    while (batch % fits != 0)
      fits--;
    help(d, "'--microbatch %lld' works", (long long)fits);
  } else {
    help(d, "'-D batch=%lld' works, and so do fewer stages", (long long)least);
  }
}

typedef Vec(int64_t) Divisors;

/* Rising. */
static Divisors divisors(int64_t n) {
  Divisors small = {0}, large = {0};
  for (int64_t i = 1; i <= n / i; i++)
    if (n % i == 0) {
      push(&small, i);
      if (i != n / i)
        push(&large, n / i);
    }
  for (int i = large.n - 1; i >= 0; i--)
    push(&small, large.at[i]);
  return small;
}

bool planner_microbatches(Planner *r) {
  int64_t batch = r->g->train.batch, least = schedule_least_microbatches(r->schedule, r->stages);
  int64_t pinned = r->request->microbatch;
  bool scheduled = false;
  Divisors all = divisors(batch);
  for (int i = 0; i < all.n; i++) {
    int64_t b = all.at[i];
    if (batch / b < least || (pinned && b != pinned))
      continue;
    scheduled = true;
    if (!r->profile || profile_at(r->profile, b))
      push(&r->microbatches, b);
  }
  if (!scheduled) {
    tell_too_few(r, least);
    return false;
  }
  if (r->microbatches.n > 0)
    return true;
  Text sizes = {0};
  for (int i = 0; i < r->profile->sizes.n; i++)
    text_add(&sizes, "%s%lld", i ? ", " : "", (long long)r->profile->sizes.at[i].microbatch);
  Diagnostic *d = error_at(NO_SPAN, "PD0507", "%s: no microbatch it measured can be used here (it has %s)",
                           r->profile->file, sizes.at);
  if (pinned)
    help(d, "'pdc profile --microbatch %lld' measures what is asked for", (long long)pinned);
  else
    help(d, "'pdc profile -n %d' measures what %d stages can use", r->stages, r->stages);
  return false;
}
