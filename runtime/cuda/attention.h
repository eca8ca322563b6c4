/* Attention on a GPU: kernel arguments, and the two implementations. */
#ifndef PD_CUDA_ATTENTION_H
#define PD_CUDA_ATTENTION_H

#include "pd_cuda.h"

#include <limits.h>

/* [batch][head][row][size], size contiguous, strides in elements. */
struct attention_tensor {
  void *at; /* float or bf16 */
  bool bf16;
  bool vectors; /* rows are aligned multiples of 16 bytes; rows of a head are within 2^32 elements */
  int64_t batch, head, row;
};

/* A row's part in the backward pass: the logarithm of its sum of exponentials, to base 2, and d_o . o. */
struct attention_row {
  float lse, delta;
};

/* The keys of a position's document: those from begin to before end. */
struct attention_range {
  int begin, end;
};

/* Kernel arguments. Lengths and tiles fit in int. */
struct attention {
  int batch, heads, kv_heads, length, kv_length, size, value_size;
  bool causal;
  int window; /* 0: none */
  float scale, softcap;
  const attention_range *ranges; /* [batch][length], in scratch; NULL: no documents */
  attention_tensor q, k, v, o, d_o, dq, dk, dv;
  const float *mask; /* NULL: none */
  int64_t mask_batch, mask_row;
  const void *bias; /* NULL: none; by distance row i begins i numbers before row 0 */
  int64_t bias_batch, bias_head, bias_row;
  const void *sinks; /* NULL: none */
  int64_t sinks_batch;
  bool bias_bf16, sinks_bf16;
  float *lse;          /* [batch][heads][length] */
  attention_row *rows; /* same shape; backward, in scratch */
};

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* The element (sample, head, row, 0) of a tensor of T. */
template <class T> inline __device__ T *row_of(const attention_tensor &t, int sample, int head, int64_t row) {
  return (T *)t.at + sample * t.batch + head * t.head + row * t.row;
}

inline __host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
inline __host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

/* Tiles of `tile` that cover n. */
inline __host__ __device__ int tiles_of(int n, int tile) { return (n + tile - 1) / tile; }

/* The mask's addend of a score, to base 2; -inf hides the key. */
inline __device__ float hiding(float mask) { return mask <= PD_ATTENTION_HIDDEN ? -INFINITY : mask * LOG2E; }

inline __device__ float number_of(const void *x, bool bf16, int64_t i) {
  return bf16 ? __bfloat162float(((const pd_bf16 *)x)[i]) : ((const float *)x)[i];
}

/* The bias of a score. Rows after the last repeat it. */
inline __device__ float bias_of(const attention &a, int sample, int head, int row, int key) {
  int64_t at = sample * a.bias_batch + head * a.bias_head + smaller(row, a.length - 1) * a.bias_row + key;
  return number_of(a.bias, a.bias_bf16, at);
}
inline __device__ float sink_of(const attention &a, int sample, int head) {
  return number_of(a.sinks, a.sinks_bf16, sample * a.sinks_batch + head);
}

/* Adds a head's sink to a row's maximum, to base 2, and sum; returns the factor of what was summed. */
inline __device__ float add_sink(const attention &a, int sample, int head, float *max, float *sum) {
  if (!a.sinks) return 1.0f;
  float sink = sink_of(a, sample, head) * LOG2E, top = fmaxf(*max, sink);
  if (top == -INFINITY) return 1.0f;
  float factor = exp2f(*max - top);
  *sum = fmaf(*sum, factor, exp2f(sink - top));
  *max = top;
  return factor;
}

/* A capped score; and the slope of the cap there. */
inline __device__ float capped(const attention &a, float score) { return a.softcap * tanhf(score / a.softcap); }
inline __device__ float slope_of(const attention &a, float capped) {
  float t = capped / a.softcap;
  return fmaf(-t, t, 1.0f);
}

/* The first key that a row sees, and the key after the last, apart from a mask. Neither falls from row to row. Rows
 * after the last are in its document. */
inline __device__ attention_range range_of(const attention &a, int sample, int row) {
  attention_range seen = {0, a.kv_length};
  if (a.window) seen = {larger(row - a.window + 1, 0), smaller(row + a.window, a.kv_length)};
  if (a.causal) seen.end = smaller(row + 1, a.kv_length);
  if (a.ranges) {
    attention_range own = a.ranges[(int64_t)sample * a.length + smaller(row, a.length - 1)];
    seen = {larger(seen.begin, own.begin), smaller(seen.end, own.end)};
  }
  return seen;
}

/* Whether a row from `row` to before `row_end` sees none of the keys from `key` to before `key_end`; whether one of them
 * does not see them all. */
inline __device__ bool none_seen(const attention &a, int sample, int row, int row_end, int key, int key_end) {
  return range_of(a, sample, row_end - 1).end <= key || range_of(a, sample, row).begin >= key_end;
}
inline __device__ bool some_hidden(const attention &a, int sample, int row, int row_end, int key, int key_end) {
  return range_of(a, sample, row_end - 1).begin > key || range_of(a, sample, row).end < key_end;
}

/* A row's mask. */
inline __device__ const float *mask_of(const attention &a, int sample, int row) {
  return a.mask + sample * a.mask_batch + row * a.mask_row;
}

/* The first key after which a mask for all rows hides every key; otherwise the number of keys. All `threads`
 * threads of the block search together and overwrite `shared` (a word per warp). */
inline __device__ int visible_keys(const attention &a, int sample, int threads, int *shared) {
  if (!a.mask || a.mask_row) return a.kv_length;
  int seen = 0;
  for (int key = (int)threadIdx.x; key < a.kv_length; key += threads)
    if (a.mask[sample * a.mask_batch + key] > PD_ATTENTION_HIDDEN) seen = key + 1;
  for (int lanes = 16; lanes > 0; lanes /= 2) seen = larger(seen, __shfl_xor_sync(0xffffffffu, seen, lanes));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = seen;
  __syncthreads();
  for (int warp = 0; warp < threads / 32; warp++) seen = larger(seen, shared[warp]);
  __syncthreads();
  return seen;
}

/* A block's work in the backward pass: rows of q and d_o, or of k and v, from `own`, with `steps` tiles of the
 * opposite side, which are rows begin .. end of each head. With causal attention, blocks with the longest work
 * start first. */
struct attention_work {
  int sample, kv, head, own, begin, end, steps;
};

/* A tile: query head and first row. */
struct attention_tile {
  int head, row;
};

template <bool OWNS_KEYS>
inline __device__ attention_work find_work(const attention &a, int own, int tile, int threads, int *shared) {
  int group = a.heads / a.kv_heads, heads = OWNS_KEYS ? a.kv_heads : a.heads, at = (int)blockIdx.x % heads;
  attention_work w;
  w.sample = (int)blockIdx.x / heads;
  w.kv = OWNS_KEYS ? at : at / group;
  w.head = OWNS_KEYS ? at * group : at;
  w.own = (int)(OWNS_KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * own;
  int limit = visible_keys(a, w.sample, threads, shared);
  if (OWNS_KEYS) { /* rows see ranges: those that see a key are a range, too */
    int last = smaller(w.own + own, a.kv_length) - 1;
    w.begin = a.causal ? w.own : a.window ? larger(w.own - a.window + 1, 0) : 0;
    w.end = a.window ? smaller(last + a.window, a.length) : a.length;
    if (a.ranges) {
      const attention_range *ranges = a.ranges + (int64_t)w.sample * a.length;
      w.begin = larger(w.begin, ranges[smaller(w.own, a.length - 1)].begin);
      w.end = smaller(w.end, ranges[smaller(last, a.length - 1)].end);
    }
    w.end = w.own < limit ? w.end : 0;
    w.steps = group * tiles_of(larger(w.end - w.begin, 0), tile);
  } else {
    w.begin = range_of(a, w.sample, w.own).begin;
    w.end = smaller(limit, range_of(a, w.sample, smaller(w.own + own, a.length) - 1).end);
    w.steps = tiles_of(larger(w.end - w.begin, 0), tile);
  }
  return w;
}

template <bool OWNS_KEYS>
inline __device__ attention_tile next_tile(const attention_work &w, attention_tile t, int rows) {
  t.row += rows;
  if (OWNS_KEYS && t.row >= w.end) t.row = w.begin, t.head++;
  return t;
}

/* attention_f32.cu: on FMA units, of tensors of either type with any strides. */
void attention_forward_f32(const attention &a);
void attention_backward_f32(const attention &a);

/* attention_bias.cu: gradients of a bias and of sinks, from a.rows, of tensors of either type. */
void attention_bias_gradient(const attention &a, const struct pd_attention *p, float *d_bias, float *sums);
void attention_sinks_gradient(const attention &a, const struct pd_attention *p, float *d_sinks);

/* attention_bf16.cu, attention_bf16_backward.cu: on tensor cores, of tensors in bf16 with `vectors`, scale > 0. */
void attention_forward_bf16(const attention &a);
void attention_backward_bf16(const attention &a);

/* Allows `kernel` more than the default 48 KiB of dynamic shared memory. */
template <class Kernel> inline void allow_shared(Kernel *kernel, size_t bytes) {
  if (bytes <= 48 * 1024) return;
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status == cudaErrorInvalidValue) /* devices of compute capability 8.6 and 8.9 have 99 KiB */
    pd_fail("attention with heads of this size takes %zu KiB of shared memory a block, more than this GPU has",
            bytes / 1024);
  pd_cuda_check(status, "reserve shared memory for attention");
}

#endif
