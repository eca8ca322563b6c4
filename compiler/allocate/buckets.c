/* Divides the gradients that replicas exchange into buckets. The last microbatch's backward pass completes
 * gradients from the model's end to its beginning; gradients that are complete at the same kernel, or soon after,
 * form a bucket. */
#include "allocate/allocation.h"
#include "optimizers/optimizer.h"

#include <stdlib.h>

typedef struct Completed {
  int buffer, behind, member; /* member: its number in the struct of all accumulators */
} Completed;

static int by_time(const void *a, const void *b) {
  const Completed *x = a, *y = b;
  return x->behind != y->behind ? (x->behind > y->behind) - (x->behind < y->behind)
                                : (x->member > y->member) - (x->member < y->member);
}

int64_t least_bucket(const Program *p, const Allocation *a) {
  const int64_t share = (a->accumulators_bytes + MOST_BUCKETS - 1) / MOST_BUCKETS;
  return p->bucket > share ? p->bucket : share;
}

/* A rule over whole tensors has no buckets: whole tensors divide a bucket among replicas too unevenly. */
void find_buckets(const StageKernels *k, const Program *p, const UpdateRule *rule, Allocation *a) {
  const Ints members = allocation_members(k, BUFFER_ACCUMULATOR, -1);
  const int64_t least = least_bucket(p, a);
  Completed *all = alloc((size_t)(members.n + 1) * sizeof *all);
  a->bucket = alloc((size_t)(k->buffers.n + 1) * sizeof *a->bucket);
  if (!p->bucket || members.n == 0 || (p->sharded && rule->whole_tensors))
    return;
  ensure(k->chunks.n == 1 && !k->split);
  for (int i = 0; i < members.n; i++)
    all[i] = (Completed){members.at[i], k->buffers.at[members.at[i]].complete, i};
  qsort(all, (size_t)members.n, sizeof *all, by_time);
  Bucket bucket = {0};
  for (int i = 0; i < members.n; i++) {
    a->bucket[all[i].buffer] = a->buckets.n;
    bucket.bytes += buffer_bytes(&k->buffers.at[all[i].buffer]);
    bucket.behind = all[i].behind;
    const bool last = i + 1 == members.n;
    if (last || (bucket.bytes >= least && all[i + 1].behind > bucket.behind)) {
      push(&a->buckets, bucket);
      bucket = (Bucket){0};
    }
  }
}

void verify_buckets(const StageKernels *k, const Allocation *a) {
  int64_t bytes = 0;
  for (int b = 0; b < a->buckets.n; b++) {
    if (b > 0 && a->buckets.at[b].behind <= a->buckets.at[b - 1].behind)
      BUG("stage %d: bucket %d is complete before the one before it", k->stage, b);
    bytes += a->buckets.at[b].bytes;
  }
  if (a->buckets.n && bytes != a->accumulators_bytes)
    BUG("stage %d: buckets have %lld bytes of %lld", k->stage, (long long)bytes, (long long)a->accumulators_bytes);
  for (int i = 0; i < k->buffers.n && a->buckets.n; i++)
    for (int j = a->buckets.at[a->bucket[i]].behind + 1; j < k->backward.n; j++)
      if (k->buffers.at[i].kind == BUFFER_ACCUMULATOR && kernel_touches(&k->backward.at[j], i))
        BUG("stage %d: '%s' touches a gradient whose bucket %d is complete", k->stage, k->backward.at[j].name,
            a->bucket[i]);
}
