/* The sum of a stage's gradients over its replicas. An accumulator set is cut into as many shards as there are
 * replicas: replica r gets everyone's shard r, adds them up, replica 0's first, and sends the sum back to all.
 * Each moves 2 (w - 1) / w of a set, out and in; the order of the additions does not depend on timing, so that
 * all replicas hold the same bits, in every run.
 * No buffer is received into while it is being sent: a shard's sum comes back in the second round, once the
 * whole first round is through; sums are made where the shard stands, which nobody is sent in the first. */
#include "internal.h"

#include <string.h>

enum { LINE = 16, BLOCK = 1024 }; /* floats */

struct shard { size_t first; int n; }; /* floats of an accumulator set */

/* Floats of a shard's room: the last ones may be shorter, or empty. */
static size_t shard_floats(void) {
  size_t lines = pd.stage->accumulators_stride / (LINE * sizeof(float)), w = (size_t)pd_replicas();
  return (lines + w - 1) / w * LINE;
}

static struct shard shard(int replica) {
  size_t all = pd.stage->accumulators_stride / sizeof(float), each = shard_floats();
  size_t first = (size_t)replica * each, n = first < all ? all - first : 0;
  if (n > each) n = each;
  if (n > INT32_MAX) pd_fail("gradients of %zu bytes are more than MPI can count", n * sizeof(float));
  return (struct shard){first, (int)n};
}

/* Where the shard of another replica is received: they stand in the replicas' order. */
static float *received(int64_t t, int replica) {
  size_t place = (size_t)(replica < pd.replica ? replica : replica - 1);
  return (float *)(pd.arena + pd.stage->reduced + pd_exchange_set(t)) + place * shard_floats();
}

int pd_reduce_room(void) { return pd.stage->accumulators_stride ? 2 * (pd_replicas() - 1) : 0; }

static int tag(int64_t t, int round) { return (int)(t % 1024) * 2 + round; }

int pd_reduce_post(int64_t t, MPI_Request *request) {
  float *set = (float *)pd_accumulators(t);
  int n = 0;
  for (int i = 1; i < pd_replicas(); i++) { /* starting behind itself, so that not all send to one */
    int q = (pd.replica + i) % pd_replicas(), rank = pd_rank_of(pd.stage->stage, q);
    struct shard mine = shard(pd.replica), theirs = shard(q);
    MPI_Irecv(received(t, q), mine.n, MPI_FLOAT, rank, tag(t, 0), pd_comm_replicas, &request[n++]);
    MPI_Isend(set + theirs.first, theirs.n, MPI_FLOAT, rank, tag(t, 0), pd_comm_replicas, &request[n++]);
  }
  return n;
}

static void add_up(int64_t t, float *to, int n) {
#pragma omp parallel for schedule(static)
  for (int first = 0; first < n; first += BLOCK) {
    float sum[BLOCK];
    int m = n - first < BLOCK ? n - first : BLOCK;
    for (int q = 0; q < pd_replicas(); q++) {
      const float *more = (q == pd.replica ? to : received(t, q)) + first;
      if (!q) memcpy(sum, more, (size_t)m * sizeof *sum);
#pragma omp simd
      for (int i = 0; i < (q ? m : 0); i++) sum[i] += more[i];
    }
    memcpy(to + first, sum, (size_t)m * sizeof *sum);
  }
}

int pd_reduce_spread(int64_t t, MPI_Request *request) {
  float *set = (float *)pd_accumulators(t);
  struct shard mine = shard(pd.replica);
  int n = 0;
  add_up(t, set + mine.first, mine.n);
  for (int i = 1; i < pd_replicas(); i++) {
    int q = (pd.replica + i) % pd_replicas(), rank = pd_rank_of(pd.stage->stage, q);
    struct shard theirs = shard(q);
    MPI_Irecv(set + theirs.first, theirs.n, MPI_FLOAT, rank, tag(t, 1), pd_comm_replicas, &request[n++]);
    MPI_Isend(set + mine.first, mine.n, MPI_FLOAT, rank, tag(t, 1), pd_comm_replicas, &request[n++]);
  }
  return n;
}
