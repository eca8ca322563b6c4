/* The sum of a stage's gradients over its replicas, by buckets (pd_stage.bucket_ranges) or all at once. A bucket
 * is divided into shards: replica r receives shard r of all replicas, adds them up in the order of replicas, and
 * sends the sum back to all. With optimizer state sharding (optimizer_shards.c) the replica that updates the
 * weights keeps the sum, unless another stage needs it. If all sums go back, each replica sends and receives
 * 2 (w - 1) / w of a set. The order of additions is independent of timing and of the division, so results are
 * bit-identical on all replicas and in all runs. With shared accumulators there are no messages: host/replicas.c.
 * No buffer is received into while it is sent: a sum returns in the second round, after the first; sums are
 * computed in the rank's own shard, which the first round does not send. */
#include "update/update.h"
#include "transfer.h"

#include <stdlib.h>

enum { LINE = 16 }; /* floats */

/* In ascending order, not adjacent. */
struct spans {
  struct pd_stretch *span;
  int n;
  size_t floats; /* of all */
};

static struct {
  struct spans *summed,
      *spread; /* by bucket and replica: gradients that the replica adds up; sums that it sends back */
  size_t room; /* floats of a replica's received shards over all buckets */
} reduction;

static size_t to_lines(size_t floats) { return (floats + LINE - 1) / LINE * LINE; }

int pd_buckets(void) { return pd.stage->buckets > 1 ? pd.stage->buckets : 1; }
static struct spans *of(struct spans *all, int bucket, int replica) {
  return &all[bucket * pd_replicas() + replica];
}

/* ---- shards --------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
  const struct pd_stretch *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

static void join(struct spans *s) {
  int n = 0;
  if (s->n) qsort(s->span, (size_t)s->n, sizeof *s->span, by_place);
  for (int i = 0; i < s->n; i++) {
    s->floats += s->span[i].n;
    if (n && s->span[n - 1].at + s->span[n - 1].n == s->span[i].at)
      s->span[n - 1].n += s->span[i].n;
    else
      s->span[n++] = s->span[i];
  }
  s->n = n;
}

/* The bucket of an offset in an accumulator set. */
static int bucket_at(size_t offset) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_bucket_ranges; i++)
    if (offset - s->bucket_ranges[i].offset < s->bucket_ranges[i].bytes) return s->bucket_ranges[i].bucket;
  return 0;
}

/* The uses in a bucket of parameters that a replica updates in part. */
static struct spans shard_of_parts(int bucket, int replica, bool (*taken)(const struct pd_parameter *p)) {
  const struct pd_stage *s = pd.stage;
  struct spans all = {0};
  int uses = 0;
  for (int i = 0; i < s->n_parameters; i++) uses += s->parameters[i].n_uses;
  all.span = pd_allocate(sizeof *all.span * (size_t)(uses + 1));
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    struct pd_slice part = pd_part_of(p, replica);
    for (int u = 0; u < p->n_uses && part.n && taken(p); u++)
      if (p->uses[u].stage == s->stage && bucket_at(p->uses[u].offset) == bucket)
        all.span[all.n++] =
            (struct pd_stretch){p->uses[u].offset / sizeof(float) + (size_t)part.first, to_lines((size_t)part.n)};
  }
  join(&all);
  return all;
}

/* A bucket's runs. */
static struct spans bucket_spans(int bucket) {
  const struct pd_stage *s = pd.stage;
  struct spans all = {pd_allocate(sizeof *all.span * (size_t)(s->n_bucket_ranges + 1)), 0, 0};
  for (int i = 0; i < s->n_bucket_ranges; i++)
    if (s->bucket_ranges[i].bucket == bucket)
      all.span[all.n++] = (struct pd_stretch){s->bucket_ranges[i].offset / sizeof(float),
                                              s->bucket_ranges[i].bytes / sizeof(float)};
  if (pd_buckets() == 1) all.span[all.n++] = (struct pd_stretch){0, s->accumulators_stride / sizeof(float)};
  join(&all);
  return all;
}

/* The number of a replica's lines among the first `lines` when lines are dealt one by one. */
static size_t dealt(size_t lines, int replica) {
  size_t w = (size_t)pd_replicas();
  return (lines + w - 1 - (size_t)replica) / w;
}

/* `n` floats of a bucket after the first `skipped`. */
static struct spans part_of_bucket(const struct spans *bucket, size_t skipped, size_t n) {
  struct spans part = {pd_allocate(sizeof *part.span * (size_t)(bucket->n + 1)), 0, 0};
  for (int i = 0; i < bucket->n && n; i++) {
    struct pd_stretch s = bucket->span[i];
    size_t left_out = skipped < s.n ? skipped : s.n, taken = s.n - left_out < n ? s.n - left_out : n;
    skipped -= left_out;
    n -= taken;
    if (taken) part.span[part.n++] = (struct pd_stretch){s.at + left_out, taken};
  }
  join(&part);
  return part;
}

/* Deals the cache lines of all buckets to replicas as if one by one: for any division into buckets, no replica has
 * more than `room`, which the compiler planned. A replica's lines of a bucket are contiguous. */
static void deal_bucket(int bucket, size_t *lines) {
  const struct spans all = bucket_spans(bucket);
  size_t end = *lines + all.floats / LINE, skipped = 0;
  for (int r = 0; r < pd_replicas(); r++) {
    size_t n = (dealt(end, r) - dealt(*lines, r)) * LINE;
    *of(reduction.summed, bucket, r) = part_of_bucket(&all, skipped, n);
    skipped += n;
  }
  *lines = end;
}

static bool any(const struct pd_parameter *p) { return p != NULL; }

void pd_reduce_start(void) {
  size_t n = (size_t)pd_buckets() * (size_t)pd_replicas(), lines = 0;
  reduction.summed = pd_allocate(sizeof *reduction.summed * n);
  reduction.spread = pd_allocate(sizeof *reduction.spread * n);
  for (int b = 0; b < pd_buckets() && !pd.stage->shards; b++) deal_bucket(b, &lines);
  for (int r = 0; r < pd_replicas(); r++) {
    size_t floats = 0;
    for (int b = 0; b < pd_buckets(); b++) {
      if (pd.stage->shards) *of(reduction.summed, b, r) = shard_of_parts(b, r, any);
      *of(reduction.spread, b, r) =
          pd.stage->shards ? shard_of_parts(b, r, pd_has_remote) : *of(reduction.summed, b, r);
      floats += of(reduction.summed, b, r)->floats;
    }
    reduction.room = floats > reduction.room ? floats : reduction.room;
  }
}

int pd_runs_of_shard(int bucket, int replica, const struct pd_stretch **runs) {
  const struct spans *s = of(reduction.summed, bucket, replica);
  *runs = s->span;
  return s->n;
}

/* ---- messages -------------------------------------------------------------------------------------- */

/* The receive buffers for a bucket's shards of the other replicas: in the order of replicas, `room` apart. */
static float *received(int64_t t, int bucket) {
  float *at = (float *)(pd.arena + pd.stage->reduced + pd_exchange_set(t));
  for (int b = 0; b < bucket; b++) at += of(reduction.summed, b, pd.replica)->floats;
  return at;
}
static float *accumulated(int64_t t, size_t at) { return (float *)pd_accumulators(t) + at; }

/* The messages of a round: to the owners of shards, or back from them. */
static int messages_of(int bucket) {
  int n = 0;
  for (int q = 0; q < pd_replicas(); q++)
    if (q != pd.replica) n += of(reduction.summed, bucket, q)->n + of(reduction.summed, bucket, pd.replica)->n;
  return n;
}

int pd_reduce_messages(void) {
  int most = 0;
  if (!pd.stage->accumulators_stride) return 0;
  for (int b = 0; b < pd_buckets(); b++) most = messages_of(b) > most ? messages_of(b) : most;
  return most;
}

size_t pd_reduce_bytes(void) {
  size_t most = 0;
  for (int i = 0; i < pd_buckets() * pd_replicas(); i++)
    for (int j = 0; j < reduction.summed[i].n; j++)
      most = reduction.summed[i].span[j].n > most ? reduction.summed[i].span[j].n : most;
  return most * sizeof(float);
}

enum { TAGS = 8192 }; /* above those of optimizer_shards.c */

static struct pd_message message(bool sent, int replica, int64_t t, int bucket, int round, float *at,
                                 size_t floats) {
  int tag = TAGS + (int)(t % 128) * 2 * PD_MAX_BUCKETS + 2 * bucket + round;
  return (struct pd_message){pd_rank_of(pd.stage->stage, replica), sent, tag, at, floats * sizeof(float)};
}

int pd_reduce_gather(int64_t t, int bucket, struct pd_message *to) {
  const struct spans *mine = of(reduction.summed, bucket, pd.replica);
  int n = 0;
  for (int i = 1; i < pd_replicas();
       i++) { /* starting after this rank, so that ranks do not all send to the same peer */
    int q = (pd.replica + i) % pd_replicas();
    const struct spans *theirs = of(reduction.summed, bucket, q);
    float *at = received(t, bucket) + (size_t)(q < pd.replica ? q : q - 1) * reduction.room;
    for (int j = 0; j < mine->n; j++) {
      to[n++] = message(false, q, t, bucket, 0, at, mine->span[j].n);
      at += mine->span[j].n;
    }
    for (int j = 0; j < theirs->n; j++)
      to[n++] = message(true, q, t, bucket, 0, accumulated(t, theirs->span[j].at), theirs->span[j].n);
  }
  return n;
}

int pd_reduce_spread(int64_t t, int bucket, struct pd_message *to) {
  const struct spans *mine = of(reduction.summed, bucket, pd.replica),
                     *back = of(reduction.spread, bucket, pd.replica);
  const float *others = received(t, bucket);
  int n = 0;
  for (int j = 0; j < mine->n; j++) {
    pd_add_replicas(accumulated(t, mine->span[j].at), others, reduction.room, mine->span[j].n);
    others += mine->span[j].n;
  }
  for (int i = 1; i < pd_replicas(); i++) {
    int q = (pd.replica + i) % pd_replicas();
    const struct spans *theirs = of(reduction.spread, bucket, q);
    for (int j = 0; j < theirs->n; j++)
      to[n++] = message(false, q, t, bucket, 1, accumulated(t, theirs->span[j].at), theirs->span[j].n);
    for (int j = 0; j < back->n; j++)
      to[n++] = message(true, q, t, bucket, 1, accumulated(t, back->span[j].at), back->span[j].n);
  }
  return n;
}
