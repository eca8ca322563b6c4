/* The optimizer's state of a stage whose replicas share it (ZeRO stage 1: Rajbhandari et al., SC 2020). Moments,
 * masters and averages are structs of all weights that are updated, in f32; a replica has a range of each, in the
 * order of their members, and the same range of the weights is what it updates. */
#include "allocate/allocation.h"
#include "optimizers/optimizer.h"

static int64_t padded(int64_t elements) { return (elements * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

int64_t *state_offsets(const StageKernels *k) {
  Ints members = allocation_members(k, BUFFER_WEIGHT, -1);
  int64_t *offset = alloc((size_t)(k->buffers.n + 1) * sizeof *offset), at = 0;
  for (int i = 0; i < members.n; i++) {
    offset[members.at[i]] = at;
    at += padded(k->buffers.at[members.at[i]].elements);
  }
  offset[k->buffers.n] = at; /* the struct's size */
  return offset;
}

/* What is not divided, [at, end) of the struct's bytes, goes where its middle is. */
static void add_unit(int64_t *shard, int replicas, int64_t all, int64_t at, int64_t end) {
  int part = (int)((double)(at + end) / 2 * replicas / (double)all);
  for (int r = part + 1; r <= replicas; r++)
    shard[r] = end;
}

int64_t *shard_state(const StageKernels *k, const UpdateRule *rule, int replicas) {
  Ints members = allocation_members(k, BUFFER_WEIGHT, -1);
  const int64_t *offset = state_offsets(k);
  int64_t *shard = alloc((size_t)(replicas + 1) * sizeof *shard), all = offset[k->buffers.n];
  for (int i = 0; i < members.n; i++) {
    int64_t n = k->buffers.at[members.at[i]].elements, unit = rule->whole_tensors ? n : SHARD_TILE;
    for (int64_t first = 0; first < n; first += unit) {
      int64_t from = offset[members.at[i]] + first * 4, length = n - first < unit ? n - first : unit;
      add_unit(shard, replicas, all, from, from + padded(length));
    }
  }
  return shard;
}

int shard_of(const int64_t *shard, int64_t state, int64_t element) {
  int replica = 0;
  while (shard[replica + 1] <= state + element * 4)
    replica++;
  return replica;
}

static int weight_of(const StageKernels *k, int param) {
  for (int i = 0; i < k->buffers.n; i++)
    if (k->buffers.at[i].kind == BUFFER_WEIGHT && k->buffers.at[i].param == param)
      return i;
  BUG("stage %d has gradients of parameter %d and no weights", k->stage, param);
}

int64_t shard_gradient_bytes(const StageKernels *k, const int64_t *shard, int replicas) {
  const int64_t *offset = state_offsets(k);
  int64_t *bytes = alloc((size_t)replicas * sizeof *bytes), most = 0;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind != BUFFER_ACCUMULATOR)
      continue;
    int64_t state = offset[weight_of(k, b->param)];
    for (int64_t first = 0; first < b->elements; first += SHARD_TILE)
      bytes[shard_of(shard, state, first)] +=
          padded(b->elements - first < SHARD_TILE ? b->elements - first : SHARD_TILE);
  }
  for (int r = 0; r < replicas; r++)
    most = bytes[r] > most ? bytes[r] : most;
  return most;
}
