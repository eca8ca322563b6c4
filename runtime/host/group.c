/* Operations on values of a shard group on processors: reduction, and copies to their places. */
#define PD_KERNELS
#include "messages/messages.h"
#include "kernels/pd_bf16.h"
#include "transfer.h"

/* One block of floats at a time, for any types, which stays in the cache. */
void pd_reduce_group(enum pd_side side, enum pd_group_operation how, pd_in own, pd_in others, int64_t stride,
                     int64_t n, pd_out to) {
  enum { BLOCK = 1024 };
  int ranks = pd_tensor_degree();
  (void)side;
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < n; first += BLOCK) {
    float sum[BLOCK], more[BLOCK];
    int64_t m = n - first < BLOCK ? n - first : BLOCK;
    for (int r = 0; r < ranks; r++) {
      pd_in x = r == pd.tensor_rank ? own : pd_in_from(others, r * stride);
      pd_read(r ? more : sum, x, first, m);
      if (!r) continue;
#pragma omp simd
      for (int64_t i = 0; i < m; i++)
        sum[i] = how == PD_GROUP_SUM ? sum[i] + more[i] : sum[i] < more[i] ? more[i] : sum[i];
    }
    pd_write(to, first, sum, m);
  }
}

/* Copies runs, `from_step` and `to_step` elements apart. */
static void copy_runs(pd_in from, int64_t from_step, pd_out to, int64_t to_step, int64_t runs, int64_t n) {
  enum { BLOCK = 1024 };
#pragma omp parallel for schedule(static)
  for (int64_t run = 0; run < runs; run++)
    for (int64_t i = 0; i < n; i += BLOCK) {
      float block[BLOCK];
      int64_t m = n - i < BLOCK ? n - i : BLOCK;
      pd_read(block, from, run * from_step + i, m);
      pd_write(to, run * to_step + i, block, m);
    }
}

void pd_spread_part(enum pd_side side, pd_in x, int64_t runs, int64_t part, int r, pd_out whole) {
  (void)side;
  copy_runs(x, part, pd_out_from(whole, r * part), part * pd_tensor_degree(), runs, part);
}

void pd_pack_part(enum pd_side side, pd_in whole, int64_t runs, int64_t part, int r, pd_out y) {
  (void)side;
  copy_runs(pd_in_from(whole, r * part), part * pd_tensor_degree(), y, part, runs, part);
}

/* Work is synchronous. */
void pd_group_leaves(void) {}
void pd_group_returns(void) {}
