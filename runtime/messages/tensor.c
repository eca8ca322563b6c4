/* Tensor parallelism. A run of degree N has N parallel pipelines, each with ranks of all stages and replicas, its
 * own communicators and the same schedule; pd.tensor_rank is the pipeline of this rank. Values that are not split
 * are bit-identical in all pipelines. The ranks of a replica in all pipelines are a shard group and communicate in
 * the collectives of the stage program. All ranks together agree on the launch and on signals, and add up figures,
 * where only the first pipeline contributes values that are not split. The first pipeline writes all files, with
 * whole tensors. */
#include "shared/checksum.h"
#include "messages/messages.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

MPI_Comm pd_comm_everyone;
static MPI_Comm comm_group;

int pd_tensor_degree(void) { return pd.stage->tensor > 1 ? pd.stage->tensor : 1; }

int pd_self_of(int rank) { return rank < 0 ? rank : rank * pd_tensor_degree() + pd.tensor_rank; }

/* A launch of the wrong size is treated as one pipeline; a later check refuses it. */
void pd_tensor_open(MPI_Comm everyone, MPI_Comm *pipeline) {
  int n = pd_tensor_degree(), within;
  MPI_Comm_dup(everyone, &pd_comm_everyone);
  MPI_Comm_rank(everyone, &pd.self);
  MPI_Comm_size(everyone, &pd.everyone);
  within = pd.self - pd_rank_of(pd.stage->stage, 0) * n;
  pd.tensor_rank = pd.everyone == pd_planned_ranks() * n && within >= 0 ? within % n : 0;
  MPI_Comm_split(everyone, pd.tensor_rank, pd.self, pipeline);
  MPI_Comm_split(everyone, pd.self / n, pd.self, &comm_group);
}

void pd_tensor_start(void) {
  if (pd_tensor_degree() > 1) pd_collectives_start(comm_group);
}

/* ---- parameters of which each rank has a part ---------------------------------------------------- */

struct pd_shape pd_whole_shape(const struct pd_parameter *p) {
  struct pd_shape shape = {.rank = p->rank, .elements = p->elements * (p->runs ? pd_tensor_degree() : 1)};
  for (int i = 0; i < p->rank; i++)
    shape.dim[i] = p->dim[i] * (p->runs && i == p->split_axis ? pd_tensor_degree() : 1);
  if (p->surplus) {
    shape.elements -= p->elements / p->dim[0] * p->surplus;
    shape.dim[0] -= p->surplus;
  }
  return shape;
}

int64_t pd_whole_element(const struct pd_parameter *p, int64_t i) {
  int64_t part = p->runs ? p->elements / p->runs : 1;
  return p->runs ? i / part * part * pd_tensor_degree() + pd.tensor_rank * part + i % part : i;
}

int64_t pd_own_elements(const struct pd_parameter *p) {
  int64_t left = pd_whole_shape(p).elements - pd.tensor_rank * p->elements;
  if (!p->surplus) return p->elements;
  return left < 0 ? 0 : left < p->elements ? left : p->elements;
}

/* Copies between a whole value and a part, in host memory. */
static void copy_runs(const struct pd_parameter *p, int shard, float *whole, float *part, bool join) {
  int64_t n = p->elements / p->runs;
  for (int64_t i = 0; i < p->runs; i++) {
    float *in_whole = whole + (i * pd_tensor_degree() + shard) * n;
    memcpy(join ? in_whole : part + i * n, join ? part + i * n : in_whole, (size_t)n * sizeof *part);
  }
}

void pd_take_own(const struct pd_parameter *p, const float *whole, float *own) {
  int64_t n = pd_own_elements(p);
  if (p->surplus) {
    memcpy(own, whole + (n ? pd.tensor_rank * p->elements : 0), (size_t)n * sizeof *own);
    memset(own + n, 0, (size_t)(p->elements - n) * sizeof *own);
  } else if (p->runs)
    copy_runs(p, pd.tensor_rank, (float *)whole, own, false);
  else
    memcpy(own, whole, (size_t)p->elements * sizeof *own);
}

/* Sends a part for a file, followed by its checksum with --check-messages. */
static void pass_on(float *part, int64_t n, int from) {
  enum { TAG = 2, MOST = INT32_MAX };
  uint64_t sum = 0, own = 0;
  MPI_Request request[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  if (n > MOST) pd_fail("internal: %lld elements exceed one message", (long long)n);
  if (pd.tensor_rank) {
    if (pd_options.check_messages) sum = pd_checksum(part, (size_t)n * sizeof *part);
    MPI_Isend(part, (int)n, MPI_FLOAT, 0, TAG, comm_group, &request[0]);
    if (pd_options.check_messages) MPI_Isend(&sum, 1, MPI_UINT64_T, 0, TAG + 1, comm_group, &request[1]);
  } else {
    MPI_Irecv(part, (int)n, MPI_FLOAT, from, TAG, comm_group, &request[0]);
    if (pd_options.check_messages) MPI_Irecv(&sum, 1, MPI_UINT64_T, from, TAG + 1, comm_group, &request[1]);
  }
  pd_wait(2, request, "the parts of its shard group's parameters", -1, NULL, -1);
  if (pd_options.check_messages) own = pd_checksum(part, (size_t)n * sizeof *part);
  if (own != sum)
    pd_fail(
        "--check-messages: %lld elements from rank %d arrived with a different checksum: a link, or the memory "
        "of either host, corrupts data",
        (long long)n, pd.self - pd.tensor_rank + from);
}

const float *pd_join(const struct pd_parameter *p, const float *own) {
  static float *whole, *received;
  static int64_t room;
  if (!p->runs) return pd.tensor_rank ? NULL : own;
  if (pd.tensor_rank) {
    pass_on((float *)own, p->elements, 0);
    return NULL;
  }
  if (p->elements > room) {
    free(whole);
    free(received);
    room = p->elements;
    whole = pd_allocate(sizeof *whole * (size_t)room * (size_t)pd_tensor_degree());
    received = pd_allocate(sizeof *received * (size_t)room);
  }
  copy_runs(p, 0, whole, (float *)own, true);
  for (int r = 1; r < pd_tensor_degree(); r++) {
    pass_on(received, p->elements, r);
    copy_runs(p, r, whole, received, true);
  }
  return whole;
}
