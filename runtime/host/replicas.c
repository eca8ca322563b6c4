/* The sum of gradients over replicas with shared accumulators: each replica adds up its shard of all replicas'
 * buckets, in the order of replicas, and stores the sum in all of them. There are no conflicts: only the owner
 * reads and writes a shard, from the time when all replicas are ready until it reports the sum. Accumulators of a
 * batch are reused only after all reports. */
#include "shared/checksum.h"
#include "update/update.h"
#include "shared.h"
#include "sums.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

/* Buckets of all batches, counted over the run. */
static int64_t number(int64_t t, int bucket) { return t * pd_buckets() + bucket + 1; }

static bool all_have(int64_t t, int bucket, bool summed) {
  for (int q = 0; q < pd_replicas(); q++) {
    struct pd_reduction *r = pd_reduction_of(q);
    int64_t count = atomic_load_explicit(summed ? &r->summed : &r->ready, memory_order_acquire);
    if (count < number(t, bucket)) return false;
  }
  return true;
}

/* A release alone does not order non-temporal stores of passes and their threads on every processor. */
static void tell(_Atomic int64_t *count, int64_t t, int bucket) {
  atomic_thread_fence(memory_order_seq_cst);
  atomic_store_explicit(count, number(t, bucket), memory_order_release);
}

/* ---- checksums ------------------------------------------------------------------------------------ */

static char *accumulated(int64_t t, const struct pd_stretch *run) {
  return pd_accumulators(t) + run->at * sizeof(float);
}

static void differ(int replica, int64_t t, int bucket, int owner) {
  const struct pd_stretch *run;
  size_t floats = 0;
  for (int i = 0, n = pd_runs_of_shard(bucket, owner, &run); i < n; i++) floats += run[i].n;
  pd_fail(
      "--check-messages: step %lld: the checksum of %zu bytes of gradients from rank %d differs: this machine's "
      "memory corrupts data",
      (long long)t + 1, floats * sizeof(float), pd_rank_of(pd.stage->stage, replica));
}

/* The checksum of `owner`'s shard in a replica's accumulators. */
static uint64_t checksum_of(int replica, int64_t t, int bucket, int owner) {
  const struct pd_stretch *run;
  const uint64_t odd = 0x9e3779b97f4a7c15u; /* so that swapped runs give another checksum */
  uint64_t sum = 0;
  for (int i = 0, n = pd_runs_of_shard(bucket, owner, &run); i < n; i++)
    sum = sum * odd + pd_checksum(pd_shared_at(replica, accumulated(t, &run[i])), run[i].n * sizeof(float));
  return sum;
}

/* The place of `from`'s checksum of `owner`'s shard. The next writer is a batch with the same exchange set, whose
 * sum waits for gradients of ranks that have finished this batch. */
static uint64_t *checksum(int from, int owner, int64_t t, int bucket) {
  size_t set = (size_t)(t % pd_exchange_sets()) * (size_t)pd_buckets() + (size_t)bucket;
  return &pd_reduction_of(from)->checksum[set * (size_t)pd_replicas() + (size_t)owner];
}

static void check_gathered(int64_t t, int bucket) {
  for (int q = 0; q < pd_replicas(); q++)
    if (q != pd.replica && checksum_of(q, t, bucket, pd.replica) != *checksum(q, pd.replica, t, bucket))
      differ(q, t, bucket, pd.replica);
}

static void check_spread(int64_t t, int bucket) {
  for (int q = 0; q < pd_replicas(); q++)
    if (q != pd.replica && checksum_of(pd.replica, t, bucket, q) != *checksum(q, q, t, bucket))
      differ(q, t, bucket, q);
}

/* ---- transfer.h ----------------------------------------------------------------------------------- */

void pd_replicas_ready(int64_t t, int bucket) {
  for (int q = 0; q < pd_replicas() && pd_options.check_messages; q++)
    if (q != pd.replica) *checksum(pd.replica, q, t, bucket) = checksum_of(pd.replica, t, bucket, q);
  tell(&pd_reduction_of(pd.replica)->ready, t, bucket);
}

bool pd_replicas_gathered(int64_t t, int bucket) { return all_have(t, bucket, false); }

void pd_replicas_sum(int64_t t, int bucket) {
  const struct pd_stretch *run;
  const int runs = pd_runs_of_shard(bucket, pd.replica, &run);
  float **at = pd_allocate(sizeof *at * (size_t)pd_replicas());
  if (pd_options.check_messages) check_gathered(t, bucket);
  for (int i = 0; i < runs; i++) {
    for (int q = 0; q < pd_replicas(); q++) at[q] = (float *)(void *)pd_shared_at(q, accumulated(t, &run[i]));
    pd_add_in_order((const float *const *)at, pd_replicas(), at, pd_replicas(), run[i].n);
  }
  if (pd_options.check_messages)
    *checksum(pd.replica, pd.replica, t, bucket) = checksum_of(pd.replica, t, bucket, pd.replica);
  free(at);
  tell(&pd_reduction_of(pd.replica)->summed, t, bucket);
}

bool pd_replicas_spread(int64_t t, int bucket) {
  bool all = all_have(t, bucket, true);
  if (all && pd_options.check_messages) check_spread(t, bucket);
  return all;
}
