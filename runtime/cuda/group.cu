/* Operations on values of a shard group on a GPU: reduction, and copies to their places, after the messages. They
 * run on the stream of work or, between a collective's begin and end, on a separate stream. */
#include "messages/messages.h"
#include "pd_elements.h"
#include "transfer.h"
#include "transport.h"

enum { THREADS = 256 };

static unsigned blocks(int64_t n) { return static_cast<unsigned>((n + THREADS - 1) / THREADS); }

static __global__ void __launch_bounds__(THREADS)
    reduce_group(pd_group_operation how, pd_in own, pd_in others, int64_t stride, int64_t n, pd_out to, int ranks,
                 int rank) {
  int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  float sum = rank ? pd_element(others, i) : pd_element(own, i);
  for (int r = 1; r < ranks; r++) {
    float more = r == rank ? pd_element(own, i) : pd_element(others, r * stride + i);
    sum = how == PD_GROUP_SUM ? sum + more : sum < more ? more : sum;
  }
  pd_set_element(to, i, sum);
}

/* Copies element i of runs of `part` elements, from_step and to_step apart. */
static __global__ void __launch_bounds__(THREADS)
    copy_runs(pd_in from, int64_t from_step, pd_out to, int64_t to_step, int64_t part, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  int64_t run = i / part, j = i % part;
  pd_set_element(to, run * to_step + j, pd_element(from, run * from_step + j));
}

static cudaStream_t stream_of(pd_side side) { return side == PD_MEETING ? pd_meeting_stream : pd_stream; }

void pd_reduce_group(pd_side side, pd_group_operation how, pd_in own, pd_in others, int64_t stride, int64_t n,
                     pd_out to) {
  PD_LAUNCH(reduce_group, blocks(n), THREADS, 0, stream_of(side), how, own, others, stride, n, to,
            pd_tensor_degree(), pd.tensor_rank);
}

void pd_spread_part(pd_side side, pd_in x, int64_t runs, int64_t part, int r, pd_out whole) {
  PD_LAUNCH(copy_runs, blocks(runs * part), THREADS, 0, stream_of(side), x, part, pd_moved(whole, r * part),
            part * pd_tensor_degree(), part, runs * part);
}

void pd_pack_part(pd_side side, pd_in whole, int64_t runs, int64_t part, int r, pd_out y) {
  PD_LAUNCH(copy_runs, blocks(runs * part), THREADS, 0, stream_of(side), pd_moved(whole, r * part),
            part * pd_tensor_degree(), y, part, part, runs * part);
}

static struct { cudaEvent_t left, returned; } meeting;

void pd_group_leaves() { pd_order(pd_stream, pd_meeting_stream, meeting.left); }
void pd_group_returns() { pd_order(pd_meeting_stream, pd_stream, meeting.returned); }

const pd_meeting *pd_meeting_start(MPI_Comm) {
  meeting.left = pd_cuda_event();
  meeting.returned = pd_cuda_event();
  return nullptr;
}
