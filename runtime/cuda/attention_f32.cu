/* Attention by fused multiply-adds in f32, of tensors of either type with any strides, for tensors without tensor
 * core support. The scheme is that of attention_bf16.cu and attention_bf16_backward.cu. A block is 8 x 16 threads;
 * thread (y, x) owns rows y + 8 i of the tile that stays and holds the products with rows x + 16 j of the tile
 * that streams past. 16 neighbouring lanes hold a row, so maxima, sums and the exchange of probabilities stay in a
 * warp.
 *
 * Rows of shared memory are padded by 16 bytes: 8 rows at one column lie in 8 different groups of 4 banks. For 4
 * columns of the product a thread reads 8 + J times 16 bytes, the 8 the same for 16 lanes, for 32 J fused
 * multiply-adds: between 16 and 32 clocks of shared memory for 32 of the FMA units in the forward pass (J = 4).
 * Estimate: 60 percent of the peak in f32 forward, 45 percent of it in the backward pass's 7 products (J = 2). */
#include "attention_f32.h"

/* out += s y, s by way of `exchange`, of which each warp has its own rows. A thread's columns of out are 4 x + 64
 * n. */
template <int I, int J, int D>
static __device__ void accumulate(float out[I][D / 64][4], const float s[I][J], const float *y, float *exchange) {
  constexpr int N = COLUMNS * J;
  exchange += thread_row() * pitch(N);
  __syncwarp(); /* the previous exchange has been read */
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) exchange[ROWS * i * pitch(N) + COLUMNS * j + thread_column()] = s[i][j];
  __syncwarp();
  y += 4 * thread_column();
#pragma unroll 1
  for (int k = 0; k < N; k += 4) {
    Quad left[I];
#pragma unroll
    for (int i = 0; i < I; i++) left[i] = *(const Quad *)(const void *)(exchange + ROWS * i * pitch(N) + k);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
      for (int n = 0; n < D / 64; n++) {
        Quad right = *(const Quad *)(const void *)(y + (k + c) * pitch(D) + 64 * n);
#pragma unroll
        for (int i = 0; i < I; i++)
#pragma unroll
          for (int e = 0; e < 4; e++) out[i][n][e] = fmaf(left[i].x[c], right.x[e], out[i][n][e]);
      }
  }
}

/* The block's rows of a result times `scale`, rows first .. of n. */
template <int I, int D>
static __device__ void store(const float out[I][D / 64][4], const attention_tensor &t, int sample, int head,
                             int first, int n, int size, float scale) {
  for (int i = 0; i < I; i++)
    for (int c = 0; c < D / 16; c++) {
      int row = first + thread_row() + ROWS * i, column = 4 * thread_column() + c / 4 * 64 + c % 4;
      if (row >= n || column >= size) continue;
      int64_t at = sample * t.batch + head * t.head + row * t.row + column;
      float value = out[i][c / 4][c % 4] * scale;
      if (t.bf16)
        ((pd_bf16 *)t.at)[at] = pd_from_float<pd_bf16>(value);
      else
        ((float *)t.at)[at] = value;
    }
}

/* Over the 16 lanes that hold a row. */
static __device__ float row_max(float x) {
  for (int lanes = COLUMNS / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}
static __device__ float row_sum(float x) {
  for (int lanes = COLUMNS / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

/* One row's scores become exponentials under its new maximum; returns the factor for what was summed before. The
 * sum is the lane's own part. */
template <int J> static __device__ float soften(float s[J], float *max, float *sum) {
  float top = *max;
#pragma unroll
  for (int j = 0; j < J; j++) top = fmaxf(top, s[j]);
  top = row_max(top);
  float base = top == -INFINITY ? 0.0f : top; /* a mask may hide all keys so far */
  float factor = exp2f(*max - base), part = 0;
#pragma unroll
  for (int j = 0; j < J; j++) part += s[j] = exp2f(s[j] - base);
  *max = top;
  *sum = fmaf(*sum, factor, part);
  return factor;
}

template <int D, int I, int J> static __global__ __launch_bounds__(THREADS, 1) void forward(attention a) {
  constexpr int OWN = ROWS * I, KEYS = COLUMNS * J;
  PD_SHARED(float, q);
  float *k = q + OWN * pitch(D), *v = k + KEYS * pitch(D), *exchange = v + KEYS * pitch(D);
  int head = (int)blockIdx.x % a.heads, sample = (int)blockIdx.x / a.heads, kv = head / (a.heads / a.kv_heads);
  int first = (int)(gridDim.y - 1 - blockIdx.y) * OWN; /* the longest work when causal begins first */
  int limit = visible_keys(a, sample, THREADS, (int *)(void *)q);
  int begin = range_of(a, sample, first).begin / KEYS * KEYS;
  limit = smaller(limit, range_of(a, sample, smaller(first + OWN, a.length) - 1).end);
  load_tile<OWN, D>(q, a.q, sample, head, first, a.length, a.size);
  if (begin < limit) load_tile<KEYS, D>(k, a.k, sample, kv, begin, a.kv_length, a.size);
  pd_copy_commit();

  float o[I][D / 64][4] = {}, max[I], sum[I] = {};
  for (int i = 0; i < I; i++) max[i] = -INFINITY;
  for (int key = begin; key < limit; key += KEYS) {
    float s[I][J];
    pd_copy_wait<0>();
    __syncthreads(); /* keys have arrived, the previous values are consumed */
    load_tile<KEYS, D>(v, a.v, sample, kv, key, a.kv_length, a.value_size);
    pd_copy_commit();
    multiply<I, J, D>(s, q, k);
    pd_copy_wait<0>();
    __syncthreads(); /* values have arrived, keys are consumed */
    if (key + KEYS < limit) load_tile<KEYS, D>(k, a.k, sample, kv, key + KEYS, a.kv_length, a.size);
    pd_copy_commit();
#pragma unroll
    for (int i = 0; i < I; i++) {
#pragma unroll
      for (int j = 0; j < J; j++)
        s[i][j] = score(a, s[i][j], sample, head, first + thread_row() + ROWS * i,
                        key + thread_column() + COLUMNS * j, NULL);
      float factor = soften<J>(s[i], &max[i], &sum[i]);
#pragma unroll
      for (int c = 0; c < D / 16; c++) o[i][c / 4][c % 4] *= factor;
    }
    accumulate<I, J, D>(o, s, v, exchange);
  }
  pd_copy_wait<0>();
#pragma unroll
  for (int i = 0; i < I; i++) {
    float all = row_sum(sum[i]), factor = add_sink(a, sample, head, &max[i], &all);
    float inverse = all == 0.0f ? 0.0f : factor / all;
    for (int c = 0; c < D / 16; c++) o[i][c / 4][c % 4] *= inverse;
    int row = first + thread_row() + ROWS * i;
    if (thread_column() == 0 && row < a.length)
      a.lse[(int64_t)blockIdx.x * a.length + row] = all == 0.0f ? INFINITY : (max[i] + log2f(all)) * LN2;
  }
  store<I, D>(o, a.o, sample, head, first, a.length, a.value_size, 1.0f);
}

/* The slopes of a thread's scores. Without a cap all are 1, and take no registers. */
template <bool CAPPED, int I, int J> struct Slopes {
  float at[I][J];
  __device__ float *of(int i, int j) { return &at[i][j]; }
};
template <int I, int J> struct Slopes<false, I, J> {
  __device__ float *of(int, int) { return NULL; }
};

/* Replaces the thread's products, of rows from `own` and `streamed`, by probabilities; rows: values of the query
 * rows. Rows after the last repeat it, but see no key. */
template <bool OWNS_KEYS, bool CAPPED, int I, int J>
static __device__ void probabilities(const attention &a, float p[I][J], Slopes<CAPPED, I, J> &slopes, int sample,
                                     int head, int own, int streamed, const attention_row *rows) {
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) {
      int x = own + ROWS * i, y = streamed + COLUMNS * j, row = OWNS_KEYS ? y : x, key = OWNS_KEYS ? x : y;
      if (CAPPED) *slopes.of(i, j) = 1.0f;
      float product = p[i][j], at = score(a, product, sample, head, row, key, slopes.of(i, j));
      p[i][j] = exp2f(at - rows[smaller(row, a.length - 1)].lse);
    }
}

/* d becomes the gradients of the scores. */
template <bool OWNS_KEYS, bool CAPPED, int I, int J>
static __device__ void differentiate(const attention &a, float d[I][J], const float p[I][J],
                                     Slopes<CAPPED, I, J> &slopes, int own, int streamed,
                                     const attention_row *rows) {
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) {
      int row = OWNS_KEYS ? streamed + COLUMNS * j : own + ROWS * i;
      d[i][j] = p[i][j] * (d[i][j] - rows[smaller(row, a.length - 1)].delta);
      if (CAPPED) d[i][j] *= *slopes.of(i, j);
    }
}

/* One of the two kernels of the backward pass (attention_bf16_backward.cu); x and y are owned, u and v
 * streamed. */
template <bool OWNS_KEYS, int D, int I, bool CAPPED>
static __global__ __launch_bounds__(THREADS, 1) void backward(attention a) {
  constexpr int J = 2, OWN = ROWS * I, STREAM = COLUMNS * J;
  PD_SHARED(float, x);
  float *y = x + OWN * pitch(D), *u = y + OWN * pitch(D), *v = u + STREAM * pitch(D);
  float *exchange = v + STREAM * pitch(D);
  attention_work w = find_work<OWNS_KEYS>(a, OWN, STREAM, THREADS, (int *)(void *)x);
  int head = OWNS_KEYS ? w.kv : w.head, n = OWNS_KEYS ? a.kv_length : a.length;
  int other_n = OWNS_KEYS ? a.length : a.kv_length;
  load_tile<OWN, D>(x, OWNS_KEYS ? a.k : a.q, w.sample, head, w.own, n, a.size);
  load_tile<OWN, D>(y, OWNS_KEYS ? a.v : a.d_o, w.sample, head, w.own, n, a.value_size);
  pd_copy_commit();

  float dx[I][D / 64][4] = {}, dy[I][D / 64][4] = {};
  attention_tile at = {w.head, w.begin};
  for (int step = 0; step < w.steps; step++) {
    int other = OWNS_KEYS ? at.head : w.kv, own = w.own + thread_row(), streamed = at.row + thread_column();
    const attention_row *rows = a.rows + ((int64_t)w.sample * a.heads + at.head) * a.length;
    float p[I][J], d[I][J];
    Slopes<CAPPED, I, J> slopes;
    __syncthreads(); /* the previous tile is consumed */
    load_tile<STREAM, D>(u, OWNS_KEYS ? a.q : a.k, w.sample, other, at.row, other_n, a.size);
    load_tile<STREAM, D>(v, OWNS_KEYS ? a.d_o : a.v, w.sample, other, at.row, other_n, a.value_size);
    pd_copy_commit();
    pd_copy_wait<0>();
    __syncthreads(); /* all are here */
    multiply<I, J, D>(p, x, u);
    probabilities<OWNS_KEYS, CAPPED, I, J>(a, p, slopes, w.sample, at.head, own, streamed, rows);
    if (OWNS_KEYS) accumulate<I, J, D>(dy, p, v, exchange);
    multiply<I, J, D>(d, y, v);
    differentiate<OWNS_KEYS, CAPPED, I, J>(a, d, p, slopes, own, streamed, rows);
    accumulate<I, J, D>(dx, d, u, exchange);
    at = next_tile<OWNS_KEYS>(w, at, STREAM);
  }
  pd_copy_wait<0>();
  store<I, D>(dx, OWNS_KEYS ? a.dk : a.dq, w.sample, head, w.own, n, a.size, a.scale);
  if (OWNS_KEYS) store<I, D>(dy, a.dv, w.sample, head, w.own, n, a.value_size, 1.0f);
}

template <int D, int I, int J> static void launch_forward(const attention &a) {
  constexpr int OWN = ROWS * I, KEYS = COLUMNS * J;
  constexpr size_t SHARED = shared_bytes(D, OWN + 2 * KEYS, OWN, KEYS);
  static const bool ready = (allow_shared(forward<D, I, J>, SHARED), true);
  (void)ready;
  dim3 grid((unsigned)(a.batch * a.heads),
            pd_grid_all(tiles_of(a.length, OWN), "attention of a sequence so long"));
  PD_LAUNCH((forward<D, I, J>), grid, THREADS, SHARED, pd_stream, a);
}

template <bool OWNS_KEYS, int D, int I, bool CAPPED> static void launch_capped(const attention &a) {
  constexpr int OWN = ROWS * I, STREAM = COLUMNS * 2;
  constexpr size_t SHARED = shared_bytes(D, 2 * OWN + 2 * STREAM, OWN, STREAM);
  static const bool ready = (allow_shared(backward<OWNS_KEYS, D, I, CAPPED>, SHARED), true);
  (void)ready;
  int heads = OWNS_KEYS ? a.kv_heads : a.heads, n = OWNS_KEYS ? a.kv_length : a.length;
  dim3 grid((unsigned)(a.batch * heads), pd_grid_all(tiles_of(n, OWN), "attention of a sequence so long"));
  PD_LAUNCH((backward<OWNS_KEYS, D, I, CAPPED>), grid, THREADS, SHARED, pd_stream, a);
}

template <bool OWNS_KEYS, int D, int I> static void launch_backward(const attention &a) {
  if (a.softcap > 0)
    launch_capped<OWNS_KEYS, D, I, true>(a);
  else
    launch_capped<OWNS_KEYS, D, I, false>(a);
}

void attention_forward_f32(const attention &a) {
  if (larger(a.size, a.value_size) <= 64)
    launch_forward<64, 8, 4>(a);
  else if (larger(a.size, a.value_size) <= 128)
    launch_forward<128, 8, 4>(a);
  else
    launch_forward<256, 4, 2>(a);
}

/* A block that owns keys has sums of two products: fewer rows. */
void attention_backward_f32(const attention &a) {
  if (larger(a.size, a.value_size) <= 64) {
    launch_backward<false, 64, 8>(a);
    launch_backward<true, 64, 8>(a);
  } else if (larger(a.size, a.value_size) <= 128) {
    launch_backward<false, 128, 8>(a);
    launch_backward<true, 128, 4>(a);
  } else {
    launch_backward<false, 256, 4>(a);
    launch_backward<true, 256, 2>(a);
  }
}
