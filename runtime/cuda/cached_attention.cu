/* Attention of rows, each one position of a sequence, to those before it, with keys and values from a cache. The
 * first kernel stores the keys and values of all rows that are in use. In the second, a block processes a row's head of
 * keys and values, and its query heads one after another. Each warp takes every WARPS-th key, a lane every 32nd element,
 * with the softmax online and its sums of values in shared memory; then the warps' sums are put together in order. */
#include "pd_elements.h"

#include <cmath>

enum { WARPS = 8 };

static __device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

static __host__ __device__ int64_t value_size_of(const struct pd_cached_attention &a) {
  return a.value_size ? a.value_size : a.size;
}

/* The warp's keys of those that a position sees: its maximum, the sum of exponentials, and in o[size] that of values. bias_at:
 * of the head's distance 0. */
static __device__ void attend(const struct pd_cached_attention &a, const pd_in &q, int64_t at_q, const float *keys,
                              const float *values, const pd_in &bias, int64_t bias_at, int64_t position, float *o,
                              float *own_max, float *own_sum) {
  const int64_t value_size = value_size_of(a);
  const int64_t begin = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  int lane = threadIdx.x % 32;
  float max = -INFINITY, sum = 0;
  for (int64_t i = lane; i < value_size; i += 32) o[i] = 0;
  for (int64_t key = begin + threadIdx.x / 32; key <= position; key += WARPS) {
    const int64_t j = key % a.context;
    float dot = 0;
    for (int64_t i = lane; i < a.size; i += 32) dot = fmaf(pd_element(q, at_q + i), keys[j * a.size + i], dot);
    float score = warp_sum(dot) * a.scale;
    if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
    if (bias.at) score += pd_element(bias, bias_at + key - position);
    float top = fmaxf(max, score);
    float factor = expf(max - top), p = expf(score - top);
    sum = fmaf(sum, factor, p);
    for (int64_t i = lane; i < value_size; i += 32) o[i] = fmaf(p, values[j * value_size + i], o[i] * factor);
    max = top;
  }
  if (lane == 0) *own_max = max, *own_sum = sum;
}

static __global__ void store(struct pd_cached_attention a, pd_in k, pd_in v, const int32_t *position,
                             const int32_t *sequence, float *keys, float *values) {
  int64_t row = blockIdx.x / a.kv_heads, head = blockIdx.x % a.kv_heads;
  if (sequence[row] >= a.sequences) return;
  int64_t to = (sequence[row] * a.kv_heads + head) * a.context + position[row] % a.context;
  int64_t value_size = value_size_of(a);
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x)
    keys[to * a.size + i] = pd_element(k, row * a.k.batch + head * a.k.head + i);
  for (int64_t i = threadIdx.x; i < value_size; i += blockDim.x)
    values[to * value_size + i] = pd_element(v, row * a.v.batch + head * a.v.head + i);
}

static __global__ void __launch_bounds__(WARPS * 32)
    cached_attention(struct pd_cached_attention a, pd_in q, pd_in bias, pd_in sinks, const int32_t *position,
                     const int32_t *sequence, pd_out o, const float *keys, const float *values) {
  const int64_t value_size = value_size_of(a);
  PD_SHARED(float, shared); /* [WARPS][value_size], and the maximum and the sum of each warp */
  float *max = shared + WARPS * value_size, *sum = max + WARPS;
  int64_t sample = blockIdx.x / a.kv_heads, head = blockIdx.x % a.kv_heads, group = a.heads / a.kv_heads;
  if (sequence[sample] >= a.sequences) return;
  int64_t cache = (sequence[sample] * a.kv_heads + head) * a.context;
  for (int64_t h = head * group; h < (head + 1) * group; h++) {
    int warp = threadIdx.x / 32;
    attend(a, q, sample * a.q.batch + h * a.q.head, keys + cache * a.size, values + cache * value_size, bias,
           h * a.bias_head + a.distances / 2, position[sample], shared + warp * value_size, max + warp,
           sum + warp);
    __syncthreads();
    float top = max[0], total = 0; /* warp 0 has seen the first key */
    for (int w = 1; w < WARPS; w++) top = fmaxf(top, max[w]);
    if (sinks.at) top = fmaxf(top, pd_element(sinks, h));
    for (int w = 0; w < WARPS; w++) total += sum[w] * expf(max[w] - top);
    if (sinks.at) total += expf(pd_element(sinks, h) - top);
    for (int64_t i = threadIdx.x; i < value_size; i += blockDim.x) {
      float x = 0;
      for (int w = 0; w < WARPS; w++) x += shared[w * value_size + i] * expf(max[w] - top);
      pd_set_element(o, sample * a.o.batch + h * a.o.head + i, x / total);
    }
    __syncthreads();
  }
}

void pd_biased_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, pd_in bias,
                                pd_in sinks, const int32_t *position, const int32_t *sequence, pd_out o,
                                pd_out keys, pd_out values) {
  size_t shared = static_cast<size_t>(WARPS * value_size_of(*a) + 2 * WARPS) * sizeof(float);
  const dim3 blocks(static_cast<unsigned>(a->batch * a->kv_heads));
  PD_LAUNCH(store, blocks, 128, 0, pd_stream, *a, k, v, position, sequence, static_cast<float *>(keys.at),
            static_cast<float *>(values.at));
  PD_LAUNCH(cached_attention, blocks, WARPS * 32, shared, pd_stream, *a, q, bias, sinks, position, sequence, o,
            static_cast<const float *>(keys.at), static_cast<const float *>(values.at));
}

void pd_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, const int32_t *position,
                         const int32_t *sequence, pd_out o, pd_out keys, pd_out values) {
  pd_biased_cached_attention(a, q, k, v, nullptr, nullptr, position, sequence, o, keys, values);
}
