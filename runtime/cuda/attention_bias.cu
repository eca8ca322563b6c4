/* Gradients of a bias and of sinks, on FMA units, in a fixed order. A block owns query rows of a head, recomputes its
 * gradients of scores as the backward pass does, and keeps them: of scores, summed over the samples that share them, or
 * of distances, summed over its rows. Then a thread adds each distance's sums of blocks. */
#include "attention_f32.h"
#include "scratch.h"

enum { J = 2, KEYS = COLUMNS * J, ADDERS = 256 };

/* Strides of a gradient. */
struct Gradient {
  float *at;
  int64_t batch, head, row;
};

/* Gradients of scores of rows from `first` and keys from `key`; x, y: the rows of q and d_o, u, v: those of k and v. */
template <int D, int I>
static __device__ void score_gradients(const attention &a, float d[I][J], int sample, int head, int first, int key,
                                       const float *x, const float *y, const float *u, const float *v) {
  const attention_row *rows = a.rows + ((int64_t)sample * a.heads + head) * a.length;
  float p[I][J];
  multiply<I, J, D>(p, x, u);
  multiply<I, J, D>(d, y, v);
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) {
      int row = first + thread_row() + ROWS * i, column = key + thread_column() + COLUMNS * j;
      attention_row of = rows[smaller(row, a.length - 1)];
      d[i][j] = exp2f(score(a, p[i][j], sample, head, row, column, NULL) - of.lse) * (d[i][j] - of.delta);
    }
}

template <int D, int I>
static __device__ void load_rows(const attention &a, int sample, int head, int first, float *x, float *y) {
  load_tile<ROWS * I, D>(x, a.q, sample, head, first, a.length, a.size);
  load_tile<ROWS * I, D>(y, a.d_o, sample, head, first, a.length, a.value_size);
}

template <int D>
static __device__ void load_keys(const attention &a, int sample, int head, int key, float *u, float *v) {
  int kv = head / (a.heads / a.kv_heads);
  load_tile<KEYS, D>(u, a.k, sample, kv, key, a.kv_length, a.size);
  load_tile<KEYS, D>(v, a.v, sample, kv, key, a.kv_length, a.value_size);
  pd_copy_commit();
  pd_copy_wait<0>();
  __syncthreads();
}

/* A block has the scores of rows and keys of a head: of one sample, or their sum over all. */
template <int D, int I> static __global__ __launch_bounds__(THREADS, 1) void of_scores(attention a, Gradient to) {
  constexpr int OWN = ROWS * I;
  PD_SHARED(float, x);
  float *y = x + OWN * pitch(D), *u = y + OWN * pitch(D), *v = u + KEYS * pitch(D), sum[I][J] = {};
  int head = (int)blockIdx.x % a.heads, first = (int)blockIdx.y * OWN, key = (int)blockIdx.z * KEYS;
  int sample = (int)blockIdx.x / a.heads, end = to.batch ? sample + 1 : a.batch;
  for (; sample < end; sample++) {
    float d[I][J];
    __syncthreads(); /* the previous sample is consumed */
    load_rows<D, I>(a, sample, head, first, x, y);
    load_keys<D>(a, sample, head, key, u, v);
    score_gradients<D, I>(a, d, sample, head, first, key, x, y, u, v);
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
      for (int j = 0; j < J; j++) sum[i][j] += d[i][j];
  }
  to.at += (end - 1) * to.batch + head * to.head;
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) {
      int row = first + thread_row() + ROWS * i, column = key + thread_column() + COLUMNS * j;
      if (row < a.length && column < a.kv_length) to.at[row * to.row + column] = sum[i][j];
    }
}

/* A block has rows of a head of a sample; sums[block][kv_length + OWN - 1]: element e is of keys e - OWN + 1 behind the
 * block's first row. */
template <int D, int I> static __global__ __launch_bounds__(THREADS, 1) void of_rows(attention a, float *sums) {
  constexpr int OWN = ROWS * I;
  PD_SHARED(float, x);
  float *y = x + OWN * pitch(D), *u = y + OWN * pitch(D), *v = u + KEYS * pitch(D), *tile = v + KEYS * pitch(D);
  int head = (int)blockIdx.x % a.heads, sample = (int)blockIdx.x / a.heads, first = (int)blockIdx.y * OWN;
  int n = a.kv_length + OWN - 1;
  sums += ((int64_t)blockIdx.x * gridDim.y + blockIdx.y) * n;
  for (int e = (int)threadIdx.x; e < n; e += THREADS) sums[e] = 0;
  load_rows<D, I>(a, sample, head, first, x, y);
  for (int key = 0; key < a.kv_length; key += KEYS) {
    float d[I][J];
    __syncthreads(); /* the previous tile is consumed */
    if (none_seen(a, sample, first, smaller(first + OWN, a.length), key, key + KEYS)) continue;
    load_keys<D>(a, sample, head, key, u, v);
    score_gradients<D, I>(a, d, sample, head, first, key, x, y, u, v);
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
      for (int j = 0; j < J; j++) tile[(thread_row() + ROWS * i) * KEYS + thread_column() + COLUMNS * j] = d[i][j];
    __syncthreads();
    for (int e = (int)threadIdx.x; e < OWN + KEYS - 1 && key + e < n; e += THREADS) {
      float sum = sums[key + e];
      for (int row = 0; row < OWN; row++) {
        int column = e + row - OWN + 1;
        if (column >= 0 && column < KEYS) sum += tile[row * KEYS + column];
      }
      sums[key + e] = sum;
    }
  }
  pd_copy_commit();
  pd_copy_wait<0>(); /* without visible keys, rows arrive here */
}

/* A thread has a distance of a head: of one sample, or of all. */
static __global__ __launch_bounds__(ADDERS) void add_rows(attention a, Gradient to, const float *sums, int own) {
  int blocks = tiles_of(a.length, own), n = a.kv_length + own - 1, distances = a.length + a.kv_length - 1;
  int at = (int)(blockIdx.y * ADDERS + threadIdx.x), head = (int)blockIdx.x % a.heads;
  int sample = (int)blockIdx.x / a.heads, end = to.batch ? sample + 1 : a.batch;
  if (at >= distances) return;
  float sum = 0;
  for (; sample < end; sample++)
    for (int block = 0; block < blocks; block++) {
      int e = at - (a.length - 1) + block * own + own - 1;
      if (e >= 0 && e < n) sum += sums[(((int64_t)sample * a.heads + head) * blocks + block) * n + e];
    }
  to.at[(end - 1) * to.batch + head * to.head + at] = sum;
}

template <int D, int I>
static void launch(const attention &a, const struct pd_attention *p, Gradient to, float *sums) {
  constexpr int OWN = ROWS * I;
  constexpr size_t SHARED = shared_bytes(D, 2 * OWN + 2 * KEYS, OWN, KEYS);
  static const bool ready = (allow_shared(of_scores<D, I>, SHARED), allow_shared(of_rows<D, I>, SHARED), true);
  (void)ready;
  unsigned rows = (unsigned)tiles_of(a.length, OWN), heads = (unsigned)(to.batch ? a.batch * a.heads : a.heads);
  if (!p->by_distance) {
    PD_LAUNCH((of_scores<D, I>), dim3(heads, rows, (unsigned)tiles_of(a.kv_length, KEYS)), THREADS, SHARED,
              pd_stream, a, to);
    return;
  }
  PD_LAUNCH((of_rows<D, I>), dim3((unsigned)(a.batch * a.heads), rows), THREADS, SHARED, pd_stream, a, sums);
  unsigned adders = (unsigned)tiles_of(a.length + a.kv_length - 1, ADDERS);
  PD_LAUNCH(add_rows, dim3(heads, adders), ADDERS, 0, pd_stream, a, to, sums, OWN);
}

void attention_bias_gradient(const attention &a, const struct pd_attention *p, float *d_bias, float *sums) {
  Gradient to = {d_bias, p->d_bias.batch, p->d_bias.head, p->d_bias.row};
  if (larger(a.size, a.value_size) <= 64)
    launch<64, 4>(a, p, to, sums);
  else if (larger(a.size, a.value_size) <= 128)
    launch<128, 4>(a, p, to, sums);
  else
    launch<256, 2>(a, p, to, sums);
}

/* A block has a head of one sample, or of all: a thread every ADDERS-th row, then the threads' sums in order. */
static __global__ __launch_bounds__(ADDERS) void of_sinks(attention a, Gradient to) {
  PD_SHARED(float, part); /* [ADDERS] */
  int head = (int)blockIdx.x % a.heads, sample = (int)blockIdx.x / a.heads, end = to.batch ? sample + 1 : a.batch;
  float sum = 0;
  for (int b = sample; b < end; b++) {
    const attention_row *rows = a.rows + ((int64_t)b * a.heads + head) * a.length;
    float sink = sink_of(a, b, head) * LOG2E;
    for (int row = (int)threadIdx.x; row < a.length; row += ADDERS)
      sum = fmaf(-exp2f(sink - rows[row].lse), rows[row].delta, sum);
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < ADDERS; i++) sum += part[i];
  to.at[sample * to.batch + head] = sum;
}

void attention_sinks_gradient(const attention &a, const struct pd_attention *p, float *d_sinks) {
  Gradient to = {d_sinks, p->d_sinks.batch, 1, 0};
  unsigned blocks = (unsigned)(to.batch ? a.batch * a.heads : a.heads);
  PD_LAUNCH(of_sinks, blocks, ADDERS, ADDERS * sizeof(float), pd_stream, a, to);
}
