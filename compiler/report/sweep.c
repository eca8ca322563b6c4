/* The page's curves: replans the model for other rank counts and other batches. */
#include <stdlib.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "report/report.h"

enum { LEAST_SWEPT = 16 }; /* rank counts to try without a cluster */

/* Keeps the chosen schedule and the command line's pinned settings. Memory is the planner's estimate, without a
 * memory layout. */
static PlanRequest sweep_request(const PlanPage *page) {
  PlanRequest q = plan_anew(page);
  q.schedule = page->plan->pipeline.schedule;
  q.delay = DELAY_FREE;
  q.peak = NULL;
  q.watch = NULL;
  return q;
}

/* Seconds per batch; of programs that generate, per token of each sample. */
static double seconds_of(const Graph *g, const Plan *plan) {
  if (!g->generation.context)
    return plan->batch_seconds;
  double seconds = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    seconds += plan->stage[i].forward_seconds;
  return seconds;
}

/* The rank count on the page, which includes all ranks of a shard group. */
static int each_rank(const PlanPage *page, int ranks) { return ranks * (page->g->shards ? page->g->shards : 1); }

static void add_planned(const PlanPage *page, const Plan *plan, Text *out) {
  const Pipeline *l = &plan->pipeline;
  text_add(out, ",\"used\":%d,\"stages\":%d,\"microbatch\":%lld,\"seconds\":", each_rank(page, pipeline_ranks(l)),
           l->n_stages, (long long)l->microbatch);
  json_double(out, seconds_of(page->g, plan));
  text_add(out, ",\"replicas\":[");
  for (int i = 0; i < l->n_stages; i++)
    text_add(out, "%s%d", i ? "," : "", l->replicas[i]);
  text_add(out, "],\"chosen\":%s", plan == page->plan ? "true" : "false");
}

/* Adds the page's own plan if it has these ranks and this batch, else a new plan without diagnostics. */
static void add_point(const PlanPage *page, int ranks, int64_t batch, bool chosen, Text *out) {
  const char *why = NULL;
  const Plan *plan = page->plan;
  if (!chosen) {
    Graph other = *page->g; /* only the batch differs */
    PlanRequest q = sweep_request(page);
    other.train.batch = batch;
    q.workers = ranks;
    if (other.inference && !other.generation.context)
      other.train.batch = batch = inference_batch(batch, &q);
    int mark = diagnostics_mark();
    plan = plan_make(&other, page->p, &q, NULL, 0);
    why = diagnostics_forget(mark);
  }
  text_add(out, "{\"ranks\":%d,\"batch\":%lld", each_rank(page, ranks), (long long)batch);
  if (plan) {
    add_planned(page, plan, out);
  } else {
    text_add(out, ",\"why\":");
    json_string(out, why ? why : "no plan");
  }
  text_add(out, "}");
}

static int ascending(const void *a, const void *b) {
  const int *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Powers of two, the requested rank count, and all devices of the cluster. */
static Ints swept_ranks(const PlanPage *page, int asked) {
  const Cluster *cluster = page->request->cluster;
  int most = cluster ? cluster_devices(cluster) : LEAST_SWEPT;
  most = asked > most ? asked : most;
  Ints all = {0}, ranks = {0};
  for (int n = 1; n <= most; n *= 2)
    push(&all, n);
  push(&all, asked);
  push(&all, most);
  qsort(all.at, (size_t)all.n, sizeof *all.at, ascending);
  for (int i = 0; i < all.n; i++)
    if (i == 0 || all.at[i] != all.at[i - 1])
      push(&ranks, all.at[i]);
  return ranks;
}

static void add_by_ranks(const PlanPage *page, int asked, Text *out) {
  const Ints ranks = swept_ranks(page, asked);
  text_add(out, ",\n\"asked\":%d,\"processors\":%ld,\"by_ranks\":[", each_rank(page, asked),
           sysconf(_SC_NPROCESSORS_ONLN));
  for (int i = 0; i < ranks.n; i++) {
    text_add(out, i ? ",\n" : "");
    add_point(page, ranks.at[i], page->g->train.batch, ranks.at[i] == asked, out);
  }
  text_add(out, "]");
}

/* Adds batches from half to eight times the requested one; an odd batch has no half. */
static void add_by_batch(const PlanPage *page, int asked, Text *out) {
  const int64_t batch = page->g->train.batch;
  const char *between = "";
  text_add(out, ",\n\"by_batch\":[");
  for (int twice = 1; twice <= 16; twice *= 2) {
    if (batch > INT64_MAX / 16 || batch * twice % 2 != 0)
      continue;
    text_add(out, "%s", between);
    add_point(page, asked, batch * twice / 2, twice == 2, out);
    between = ",\n";
  }
  text_add(out, "]");
}

void add_sweeps(const PlanPage *page, Text *out) {
  int asked = plan_ranks_asked(page->request, page->plan);
  add_by_ranks(page, asked, out);
  if (!page->g->generation.context)
    add_by_batch(page, asked, out);
}
