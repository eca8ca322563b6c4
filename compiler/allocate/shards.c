/* Shards a stage's optimizer state among its replicas (ZeRO stage 1: Rajbhandari et al., SC 2020). Moments,
 * masters and averages are structs of all updated weights, in f32. A replica owns a range of each of their cells,
 * in member order, and updates the same ranges of the weights. */
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

static int64_t *cell_at(const Shards *s, int cell) { return s->at + (ptrdiff_t)cell * (s->replicas + 1); }

/* Gives the indivisible bytes [at, end) of the struct to the replica whose shard contains their middle. all: bytes
 * of the cell. */
static void add_unit(int64_t *cell, int replicas, int64_t all, int64_t at, int64_t end) {
  int part = (int)((double)(at + end - 2 * cell[0]) / 2 * replicas / (double)all);
  for (int r = part + 1; r <= replicas; r++)
    cell[r] = end;
}

/* The last bucket with a gradient of the weight; -1: no bucket has one. */
static int bucket_of(const StageKernels *k, const Allocation *a, int weight) {
  int bucket = -1;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_ACCUMULATOR && b->param == k->buffers.at[weight].param && a->bucket[i] > bucket)
      bucket = a->bucket[i];
  }
  return bucket;
}

/* The members at which a cell begins, and their number at the end. A cell begins at the first weight of another
 * bucket, unless the cell is too small to divide evenly; then it joins its neighbour. */
static Ints cells_of(const StageKernels *k, const Program *p, const Allocation *a, const Ints *members,
                     const int64_t *offset) {
  const int64_t least = a->buckets.n > 1 ? least_bucket(p, a) / 4 : INT64_MAX;
  Ints starts = {0};
  int last = -1;
  push(&starts, 0);
  for (int i = 0; i < members->n; i++) {
    const int bucket = a->buckets.n > 1 ? bucket_of(k, a, members->at[i]) : -1;
    const int start = starts.at[starts.n - 1];
    const bool other = bucket >= 0 && last >= 0 && bucket != last;
    if (other && offset[members->at[i]] - offset[members->at[start]] >= least)
      push(&starts, i);
    last = bucket >= 0 ? bucket : last;
  }
  if (starts.n > 1 && offset[k->buffers.n] - offset[members->at[starts.at[starts.n - 1]]] < least)
    starts.n--;
  push(&starts, members->n);
  return starts;
}

Shards *shard_state(const StageKernels *k, const Program *p, const UpdateRule *rule, const Allocation *a) {
  const Ints members = allocation_members(k, BUFFER_WEIGHT, -1);
  const int64_t *offset = state_offsets(k);
  const Ints starts = cells_of(k, p, a, &members, offset);
  Shards *s = alloc(sizeof *s);
  *s = (Shards){.replicas = p->replicas, .cells = starts.n - 1};
  s->at = alloc((size_t)s->cells * (size_t)(s->replicas + 1) * sizeof *s->at);
  for (int c = 0; c < s->cells; c++) {
    const int end = starts.at[c + 1];
    int64_t *cell = cell_at(s, c), from = members.n ? offset[members.at[starts.at[c]]] : 0;
    int64_t all = (end < members.n ? offset[members.at[end]] : offset[k->buffers.n]) - from;
    for (int r = 0; r <= p->replicas; r++)
      cell[r] = from;
    for (int i = starts.at[c]; i < end; i++) {
      int64_t n = k->buffers.at[members.at[i]].elements, unit = rule->whole_tensors ? n : SHARD_TILE;
      for (int64_t first = 0; first < n; first += unit) {
        int64_t at = offset[members.at[i]] + first * 4, length = n - first < unit ? n - first : unit;
        add_unit(cell, p->replicas, all, at, at + padded(length));
      }
    }
  }
  return s;
}

int64_t shard_part(const Shards *s, int replica) {
  int64_t bytes = 0;
  for (int c = 0; c < s->cells; c++)
    bytes += cell_at(s, c)[replica + 1] - cell_at(s, c)[replica];
  return bytes;
}

int shard_of(const Shards *s, int64_t state, int64_t element) {
  int cell = 0, replica = 0;
  while (cell_at(s, cell)[s->replicas] <= state + element * 4)
    cell++;
  while (cell_at(s, cell)[replica + 1] <= state + element * 4)
    replica++;
  return replica;
}

static int weight_of(const StageKernels *k, int param) {
  for (int i = 0; i < k->buffers.n; i++)
    if (k->buffers.at[i].kind == BUFFER_WEIGHT && k->buffers.at[i].param == param)
      return i;
  BUG("stage %d has gradients of parameter %d and no weights", k->stage, param);
}

int64_t shard_gradient_bytes(const StageKernels *k, const Shards *shard) {
  const int64_t *offset = state_offsets(k);
  int64_t *bytes = alloc((size_t)shard->replicas * sizeof *bytes), most = 0;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind != BUFFER_ACCUMULATOR)
      continue;
    int64_t state = offset[weight_of(k, b->param)];
    for (int64_t first = 0; first < b->elements; first += SHARD_TILE)
      bytes[shard_of(shard, state, first)] +=
          padded(b->elements - first < SHARD_TILE ? b->elements - first : SHARD_TILE);
  }
  for (int r = 0; r < shard->replicas; r++)
    most = bytes[r] > most ? bytes[r] : most;
  return most;
}
