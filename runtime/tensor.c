/* Ranks that share layers (tensor parallelism). A run with N of them a layer is N pipelines side by side, each with ranks
 * of all stages and replicas, its own communicators and the same schedule; pd.shard says which one this is. They do all
 * that a run without shards does, and alike: what is whole has the same bits in each. A stage's replica in all of them is a
 * shard group, whose ranks meet in the collectives that the stage program calls. Beyond these all ranks together agree on
 * the launch and on signals and add up figures, to which what is whole is contributed by the first pipeline alone; it
 * writes all files, of whole tensors. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

MPI_Comm pd_comm_everyone;
static MPI_Comm comm_group;

int pd_shards(void) { return pd.stage->tensor > 1 ? pd.stage->tensor : 1; }

int pd_self_of(int rank) { return rank < 0 ? rank : rank * pd_shards() + pd.shard; }

/* A launch of another size than planned is one pipeline, and refused by who compares. */
void pd_tensor_open(MPI_Comm everyone, MPI_Comm *pipeline) {
  int n = pd_shards(), within;
  MPI_Comm_dup(everyone, &pd_comm_everyone);
  MPI_Comm_rank(everyone, &pd.self);
  MPI_Comm_size(everyone, &pd.everyone);
  within = pd.self - pd_rank_of(pd.stage->stage, 0) * n;
  pd.shard = pd.everyone == pd_planned_ranks() * n && within >= 0 ? within % n : 0;
  MPI_Comm_split(everyone, pd.shard, pd.self, pipeline);
  MPI_Comm_split(everyone, pd.self / n, pd.self, &comm_group);
}

/* ---- collectives ------------------------------------------------------------------------------- */

enum { TAG = 1, MOST_REQUESTS = 2 * 64 };

static MPI_Request requests[MOST_REQUESTS];
static int n_requests;

static void await_group(void) {
  pd_wait(n_requests, requests, "the other ranks of its shard group", -1, NULL, -1);
  n_requests = 0;
}

/* Messages of an int's count of floats. */
enum { PIECE = 1 << 28 };

static void send(int to, const float *x, int64_t n) {
  if (n > PIECE) pd_fail("internal: %lld elements are more than one message has", (long long)n);
  if (n > 0) MPI_Isend(x, (int)n, MPI_FLOAT, to, TAG, comm_group, &requests[n_requests++]);
}

static void receive(int from, float *x, int64_t n) {
  if (n > 0) MPI_Irecv(x, (int)n, MPI_FLOAT, from, TAG, comm_group, &requests[n_requests++]);
}

/* Adds up in the order of ranks what they have: this rank at `own`, the others one after another, `stride` apart. */
static void add_up(const float *own, const float *others, int64_t stride, int64_t n, float *to) {
  enum { BLOCK = 1024 };
  int ranks = pd_shards();
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < n; first += BLOCK) {
    float sum[BLOCK];
    int64_t m = n - first < BLOCK ? n - first : BLOCK;
    for (int r = 0; r < ranks; r++) {
      const float *more = (r == pd.shard ? own : others + r * stride) + first;
      if (!r) memcpy(sum, more, (size_t)m * sizeof *sum);
#pragma omp simd
      for (int64_t i = 0; i < (r ? m : 0); i++) sum[i] += more[i];
    }
    memcpy(to + first, sum, (size_t)m * sizeof *sum);
  }
}

/* Short ones: everyone sends all to everyone. */
static void reduce_at_once(const float *x, int64_t n, float *y, float *others) {
  int64_t stride = (n + 15) / 16 * 16;
  for (int i = 1; i < pd_shards(); i++) {
    int r = (pd.shard + i) % pd_shards();
    receive(r, others + r * stride, n);
    send(r, x, n);
  }
  await_group();
  add_up(x, others, stride, n, y);
}

/* Each rank adds up a part, then all send theirs to all. */
void pd_all_reduce(const float *x, int64_t n, float *y, void *scratch) {
  int ranks = pd_shards();
  int64_t part = (n + ranks - 1) / ranks, stride = (part + 15) / 16 * 16, own = pd.shard * part;
  float *others = scratch;
  if (n <= PD_SHORT_SUM) {
    reduce_at_once(x, n, y, others);
    return;
  }
#define LENGTH(r) ((r)*part >= n ? 0 : n - (r)*part < part ? n - (r)*part : part)
  for (int i = 1; i < ranks; i++) {
    int r = (pd.shard + i) % ranks;
    receive(r, others + r * stride, LENGTH(pd.shard));
    send(r, x + r * part, LENGTH(r));
  }
  await_group();
  add_up(x + own, others, stride, LENGTH(pd.shard), y + own);
  for (int i = 1; i < ranks; i++) {
    int r = (pd.shard + i) % ranks;
    receive(r, y + r * part, LENGTH(r));
    send(r, y + own, LENGTH(pd.shard));
  }
  await_group();
#undef LENGTH
}

/* Puts rank r's parts where a whole value has them. */
static void spread(const float *x, int64_t runs, int64_t part, int r, float *y) {
  int64_t whole = part * pd_shards();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < runs; i++) memcpy(y + i * whole + r * part, x + i * part, (size_t)part * sizeof *y);
}

void pd_all_gather(const float *x, int64_t runs, int64_t part, float *y, void *scratch) {
  float *others = scratch;
  int64_t n = runs * part;
  for (int i = 1; i < pd_shards(); i++) {
    int r = (pd.shard + i) % pd_shards();
    receive(r, others + r * n, n);
    send(r, x, n);
  }
  await_group();
  for (int r = 0; r < pd_shards(); r++) spread(r == pd.shard ? x : others + r * n, runs, part, r, y);
}

void pd_take_part(const float *x, int64_t runs, int64_t part, float *y) {
  int64_t whole = part * pd_shards();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < runs; i++)
    memcpy(y + i * part, x + i * whole + pd.shard * part, (size_t)part * sizeof *y);
}

/* ---- parameters of which each rank has a part ---------------------------------------------------- */

struct pd_shape pd_whole_shape(const struct pd_parameter *p) {
  struct pd_shape shape = {.rank = p->rank, .elements = p->elements * (p->runs ? pd_shards() : 1)};
  for (int i = 0; i < p->rank; i++) shape.dim[i] = p->dim[i] * (p->runs && i == p->split_axis ? pd_shards() : 1);
  return shape;
}

int64_t pd_whole_element(const struct pd_parameter *p, int64_t i) {
  int64_t part = p->runs ? p->elements / p->runs : 1;
  return p->runs ? i / part * part * pd_shards() + pd.shard * part + i % part : i;
}

void pd_take_own(const struct pd_parameter *p, const float *whole, float *own) {
  if (p->runs)
    pd_take_part(whole, p->runs, p->elements / p->runs, own);
  else
    memcpy(own, whole, (size_t)p->elements * sizeof *own);
}

/* With its checksum, where --check-messages asks for one, as pd_whole's. */
const float *pd_join(const struct pd_parameter *p, const float *own) {
  static float *whole, *received;
  static int64_t room;
  if (!p->runs) return pd.shard ? NULL : own;
  if (!pd.shard && p->elements > room) {
    free(whole);
    free(received);
    room = p->elements;
    whole = pd_allocate(sizeof *whole * (size_t)room * (size_t)pd_shards());
    received = pd_allocate(sizeof *received * (size_t)room);
  }
  if (pd.shard) {
    send(0, own, p->elements);
    await_group();
    return NULL;
  }
  spread(own, p->runs, p->elements / p->runs, 0, whole);
  for (int r = 1; r < pd_shards(); r++) {
    receive(r, received, p->elements);
    await_group();
    spread(received, p->runs, p->elements / p->runs, r, whole);
  }
  return whole;
}
