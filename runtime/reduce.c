/* The sum of a stage's gradients over its replicas. An accumulator set is cut into as many shards as there are
 * replicas: replica r gets everyone's shard r, adds them up, replica 0's first, and sends the sum back to all.
 * Each moves 2 (w - 1) / w of a set, out and in; the order of the additions does not depend on timing, so that
 * all replicas hold the same bits, in every run. Where they see each other's accumulators, there are no messages: host/replicas.c.
 * No buffer is received into while it is being sent: a shard's sum comes back in the second round, once the
 * whole first round is through; sums are made in the rank's own shard, which the first round sends to nobody. */
#include "internal.h"
#include "transfer.h"

enum { LINE = 16 }; /* floats */

/* Floats of a shard's room: the last ones may be shorter, or empty. */
static size_t shard_floats(void) {
  size_t lines = pd.stage->accumulators_stride / (LINE * sizeof(float)), w = (size_t)pd_replicas();
  return (lines + w - 1) / w * LINE;
}

struct pd_shard pd_shard(int64_t t, int replica) {
  size_t all = pd.stage->accumulators_stride / sizeof(float), each = shard_floats();
  size_t first = (size_t)replica * each, n = first < all ? all - first : 0;
  return (struct pd_shard){(float *)pd_accumulators(t) + first, n < each ? n : each};
}

/* Where the shards of the other replicas are received: in the replicas' order. */
static float *received(int64_t t) { return (float *)(pd.arena + pd.stage->reduced + pd_exchange_set(t)); }

int pd_reduce_messages(void) { return pd.stage->accumulators_stride ? 2 * (pd_replicas() - 1) : 0; }
size_t pd_reduce_bytes(void) { return shard_floats() * sizeof(float); }

static struct pd_message message(bool sent, int replica, int64_t t, int round, float *at, size_t floats) {
  int tag = (int)(t % 1024) * 2 + round;
  return (struct pd_message){pd_rank_of(pd.stage->stage, replica), sent, tag, at, floats * sizeof(float)};
}

int pd_reduce_gather(int64_t t, struct pd_message *to) {
  int n = 0;
  for (int i = 1; i < pd_replicas(); i++) { /* starting behind itself, so that not all send to one */
    int q = (pd.replica + i) % pd_replicas();
    size_t place = (size_t)(q < pd.replica ? q : q - 1);
    struct pd_shard theirs = pd_shard(t, q);
    to[n++] = message(false, q, t, 0, received(t) + place * shard_floats(), pd_shard(t, pd.replica).n);
    to[n++] = message(true, q, t, 0, theirs.at, theirs.n);
  }
  return n;
}

int pd_reduce_spread(int64_t t, struct pd_message *to) {
  struct pd_shard mine = pd_shard(t, pd.replica);
  int n = 0;
  pd_add_replicas(mine.at, received(t), shard_floats(), mine.n);
  for (int i = 1; i < pd_replicas(); i++) {
    int q = (pd.replica + i) % pd_replicas();
    struct pd_shard theirs = pd_shard(t, q);
    to[n++] = message(false, q, t, 1, theirs.at, theirs.n);
    to[n++] = message(true, q, t, 1, mine.at, mine.n);
  }
  return n;
}
