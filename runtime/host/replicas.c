/* The sum of gradients over replicas that see each other's accumulators: each adds up its shard of everyone's, replica
 * 0's first, and stores the sum in all of them. Nobody writes to what another reads: a shard is read and written by its
 * owner alone, from when all replicas are ready until it says that it has summed. Accumulators of a batch are used
 * again only after all have said so. */
#include "checksum.h"
#include "shared.h"
#include "sums.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

static bool all_have(int64_t t, bool summed) {
  for (int q = 0; q < pd_replicas(); q++) {
    struct pd_reduction *r = pd_reduction_of(q);
    if (atomic_load_explicit(summed ? &r->summed : &r->ready, memory_order_acquire) < t + 1) return false;
  }
  return true;
}

/* What passes store past the caches, and their threads, a release alone does not order on every processor. */
static void tell(_Atomic int64_t *count, int64_t t) {
  atomic_thread_fence(memory_order_seq_cst);
  atomic_store_explicit(count, t + 1, memory_order_release);
}

static void differ(int replica, const struct pd_shard *s, int64_t t) {
  pd_fail(
      "--check-messages: step %lld: %zu bytes of gradients of rank %d have another checksum than it left: the memory "
      "of this machine changes bits",
      (long long)t + 1, s->n * sizeof *s->at, pd_rank_of(pd.stage->stage, replica));
}

static uint64_t checksum_of(int replica, const struct pd_shard *s) {
  return s->n ? pd_checksum(pd_shared_at(replica, (char *)s->at), s->n * sizeof *s->at)
              : 0; /* the last may be empty */
}

/* Where `from` left the checksum of `owner`'s shard. Its next writer is a batch that uses the same exchange set, whose
 * sum waits for gradients of ranks that are through with this one. */
static uint64_t *checksum(int from, int owner, int64_t t) {
  size_t set = (size_t)(t % pd_exchange_sets());
  return &pd_reduction_of(from)->checksum[set * (size_t)pd_replicas() + (size_t)owner];
}

void pd_replicas_ready(int64_t t) {
  for (int q = 0; q < pd_replicas() && pd_options.check_messages; q++) {
    const struct pd_shard s = pd_shard(t, q);
    if (q != pd.replica) *checksum(pd.replica, q, t) = checksum_of(pd.replica, &s);
  }
  tell(&pd_reduction_of(pd.replica)->ready, t);
}

bool pd_replicas_gathered(int64_t t) { return all_have(t, false); }

static void check_gathered(int64_t t) {
  const struct pd_shard s = pd_shard(t, pd.replica);
  for (int q = 0; q < pd_replicas(); q++)
    if (q != pd.replica && checksum_of(q, &s) != *checksum(q, pd.replica, t)) differ(q, &s, t);
}

static void check_spread(int64_t t) {
  for (int q = 0; q < pd_replicas(); q++) {
    const struct pd_shard s = pd_shard(t, q);
    if (q != pd.replica && checksum_of(pd.replica, &s) != *checksum(q, q, t)) differ(q, &s, t);
  }
}

void pd_replicas_sum(int64_t t) {
  const struct pd_shard s = pd_shard(t, pd.replica);
  float **at = pd_allocate(sizeof *at * (size_t)pd_replicas());
  for (int q = 0; q < pd_replicas() && s.n; q++) at[q] = (float *)(void *)pd_shared_at(q, (char *)s.at);
  if (pd_options.check_messages) check_gathered(t);
  pd_add_in_order((const float *const *)at, pd_replicas(), at, pd_replicas(), s.n);
  if (pd_options.check_messages) *checksum(pd.replica, pd.replica, t) = checksum_of(pd.replica, &s);
  free(at);
  tell(&pd_reduction_of(pd.replica)->summed, t);
}

bool pd_replicas_spread(int64_t t) {
  bool all = all_have(t, true);
  if (all && pd_options.check_messages) check_spread(t);
  return all;
}
