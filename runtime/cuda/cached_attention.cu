/* Attention of one position of every sequence to those before it, with keys and values from a cache: a block
 * processes a sample's head of keys and values, and its query heads one after another. Each warp takes every
 * WARPS-th key, a lane every 32nd element, with the softmax online and its sums of values in shared memory; then
 * the warps' sums are put together in order. */
#include "pd_elements.h"

#include <cmath>

enum { WARPS = 8 };

static __device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/* The warp's keys: its maximum, the sum of exponentials, and in o[size] that of values. */
static __device__ void attend(const struct pd_cached_attention &a, const pd_in &q, int64_t at_q, const float *keys,
                              const float *values, int64_t n, float *o, float *own_max, float *own_sum) {
  int lane = threadIdx.x % 32;
  float max = -INFINITY, sum = 0;
  for (int64_t i = lane; i < a.size; i += 32) o[i] = 0;
  for (int64_t j = threadIdx.x / 32; j < n; j += WARPS) {
    float dot = 0;
    for (int64_t i = lane; i < a.size; i += 32) dot = fmaf(pd_element(q, at_q + i), keys[j * a.size + i], dot);
    float score = warp_sum(dot) * a.scale;
    if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
    float top = fmaxf(max, score);
    float factor = expf(max - top), p = expf(score - top);
    sum = fmaf(sum, factor, p);
    for (int64_t i = lane; i < a.size; i += 32) o[i] = fmaf(p, values[j * a.size + i], o[i] * factor);
    max = top;
  }
  if (lane == 0) *own_max = max, *own_sum = sum;
}

static __global__ void __launch_bounds__(WARPS * 32)
    cached_attention(struct pd_cached_attention a, pd_in q, pd_in k, pd_in v, const int32_t *position, pd_out o,
                     float *keys, float *values) {
  PD_SHARED(float, shared); /* [WARPS][size], and the maximum and the sum of each warp */
  float *max = shared + WARPS * a.size, *sum = max + WARPS;
  int64_t sample = blockIdx.x / a.kv_heads, head = blockIdx.x % a.kv_heads, group = a.heads / a.kv_heads;
  int64_t at = position[sample] % a.context,
          rows = position[sample] < a.context ? position[sample] + 1 : a.context;
  int64_t cache = blockIdx.x * a.context * a.size;
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    keys[cache + at * a.size + i] = pd_element(k, sample * a.k.batch + head * a.k.head + i);
    values[cache + at * a.size + i] = pd_element(v, sample * a.v.batch + head * a.v.head + i);
  }
  __syncthreads();
  for (int64_t h = head * group; h < (head + 1) * group; h++) {
    int warp = threadIdx.x / 32;
    attend(a, q, sample * a.q.batch + h * a.q.head, keys + cache, values + cache, rows, shared + warp * a.size,
           max + warp, sum + warp);
    __syncthreads();
    float top = max[0], total = 0; /* warp 0 has seen key 0 */
    for (int w = 1; w < WARPS; w++) top = fmaxf(top, max[w]);
    for (int w = 0; w < WARPS; w++) total += sum[w] * expf(max[w] - top);
    for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
      float x = 0;
      for (int w = 0; w < WARPS; w++) x += shared[w * a.size + i] * expf(max[w] - top);
      pd_set_element(o, sample * a.o.batch + h * a.o.head + i, x / total);
    }
    __syncthreads();
  }
}

void pd_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, const int32_t *position,
                         pd_out o, pd_out keys, pd_out values) {
  size_t shared = static_cast<size_t>(WARPS * a->size + 2 * WARPS) * sizeof(float);
  PD_LAUNCH(cached_attention, dim3(static_cast<unsigned>(a->batch * a->kv_heads)), WARPS * 32, shared, pd_stream,
            *a, q, k, v, position, o, static_cast<float *>(keys.at), static_cast<float *>(values.at));
}
