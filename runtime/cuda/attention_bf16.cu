/* Attention on tensor cores, forward: Dao, "FlashAttention-2" (2023). A block owns 64 or 128 query rows and
 * streams tiles of 32 or 64 keys and values through shared memory; a warp owns 16 or 32 rows, with their output,
 * maxima and sums in registers. Scores never leave registers: as probabilities they are the next product's
 * operand where they stand. Values arrive while the scores are made, the next keys during the softmax and the
 * product with the values.
 *
 * Estimate, in clocks of an SM, for 64 keys of a warp of 32 rows, D = 64: 128 mma take 256 on sm_80 (1024
 * multiply-adds a clock) and about 200 on sm_90, where mma.sync reaches 63 percent of the peak (Luo et al.,
 * 2024); ldmatrix moves 160 times 128 bytes, one a clock; 2048 exponentials take 128 of the special function
 * units, and the 5 other instructions or so an element of the softmax 80 of the schedulers. Two blocks an SM
 * overlap them, so that mma binds, as in the paper's own kernels, which reach 50 to 70 percent of its rate. D =
 * 128 has twice the products for the same softmax. */
#include "attention_bf16.h"

/* Whether the kernel computes scores to base 2 before the softmax: with a mask, a bias, or capped. Otherwise products stay. */
static bool is_general(const attention &a) { return a.mask || a.bias || a.softcap > 0; }

/* A product as such a score. mask: the row's; NULL: none. */
static __device__ float general_score(const attention &a, float product, const float *mask, int sample, int head,
                                      int row, int key) {
  float added = mask ? hiding(mask[key]) : 0.0f;
  if (a.bias) added = fmaf(bias_of(a, sample, head, row, key), LOG2E, added);
  if (a.softcap == 0) return fmaf(product, a.scale * LOG2E, added);
  return fmaf(capped(a, product * a.scale), LOG2E, added);
}

/* Products become scores to base 2 when GENERAL, otherwise stay as they are (the softmax scales them); -inf where a
 * row does not see the key. row, key: the warp's first, the tile's first. */
template <int TILES, int KEYS, bool GENERAL>
static __device__ void score(const attention &a, Sums<TILES, KEYS> &s, int sample, int head, int row, int key) {
  int lane = (int)threadIdx.x % 32;
  row += lane / 4, key += lane % 4 * 2;
  const float *mask = GENERAL && a.mask ? mask_of(a, sample, row) : NULL;
#pragma unroll
  for (int r = 0; r < 2 * TILES; r++) {
    attention_range seen = range_of(a, sample, row + 8 * r);
    if (GENERAL && row + 8 * r >= a.length) seen.end = 0;
#pragma unroll
    for (int e = 0; e < KEYS / 4; e++) {
      float &x = element(s, r, e);
      int j = key + 8 * (e / 2) + e % 2;
      if (j < seen.begin || j >= seen.end)
        x = -INFINITY;
      else if (GENERAL)
        x = general_score(a, x, mask, sample, head, row + 8 * r, j);
    }
    if (GENERAL && mask) mask += 8 * a.mask_row;
  }
}

/* Of the lane's rows: the maximum of the scores so far, the lane's own part of the sum of exponentials. */
template <int TILES> struct Softmax { float max[2 * TILES], sum[2 * TILES]; };

/* The factor of scores to base 2. */
template <bool GENERAL> static __device__ float unit_of(const attention &a) {
  return GENERAL ? 1.0f : a.scale * LOG2E;
}

/* The scores of the lane's r-th row become exponentials under its new maximum; returns the factor for what was
 * summed before. */
template <int TILES, int KEYS>
static __device__ float soften(Sums<TILES, KEYS> &s, int r, float unit, Softmax<TILES> &rows) {
  float top = rows.max[r];
#pragma unroll
  for (int e = 0; e < KEYS / 4; e++) top = fmaxf(top, element(s, r, e));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  float base = top == -INFINITY ? 0.0f : top * unit; /* a mask may hide all keys so far */
  float factor = pd_exp2_fast(fmaf(rows.max[r], unit, -base)), part = 0;
#pragma unroll
  for (int e = 0; e < KEYS / 4; e++) {
    float &x = element(s, r, e);
    x = pd_exp2_fast(fmaf(x, unit, -base));
    part += x;
  }
  rows.max[r] = top;
  rows.sum[r] = fmaf(rows.sum[r], factor, part);
  return factor;
}

template <int TILES, int D> static __device__ void scale_row(Sums<TILES, D> &o, int r, float factor) {
#pragma unroll
  for (int e = 0; e < D / 4; e++) element(o, r, e) *= factor;
}

/* Scores of a tile of keys become probabilities so far, and o takes its part of the values. */
template <int D, int TILES, int KEYS, bool GENERAL>
static __device__ void take_tile(const attention &a, Sums<TILES, KEYS> &s, const pd_bf16 *v, Softmax<TILES> &rows,
                                 Sums<TILES, D> &o) {
#pragma unroll
  for (int r = 0; r < 2 * TILES; r++)
    scale_row<TILES, D>(o, r, soften<TILES, KEYS>(s, r, unit_of<GENERAL>(a), rows));
  Operand<TILES, KEYS> p;
  pack<TILES, KEYS>(p, s);
  accumulate<TILES, KEYS, D, D>(o, p, v);
}

/* Divides the rows by their sums and stores the logarithms of these. row: the warp's first. */
template <int D, int TILES, bool GENERAL>
static __device__ void finish(const attention &a, const Softmax<TILES> &rows, Sums<TILES, D> &o, int sample,
                              int head, int row, float *lse) {
  int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2 * TILES; r++) {
    float sum = rows.sum[r] + __shfl_xor_sync(0xffffffffu, rows.sum[r], 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    float max = rows.max[r], factor = 1.0f;
    if (a.sinks) {
      max *= unit_of<GENERAL>(a);
      factor = add_sink(a, sample, head, &max, &sum);
    }
    scale_row<TILES, D>(o, r, sum == 0.0f ? 0.0f : factor / sum);
    int i = row + 8 * r + lane / 4;
    if (lane % 4 == 0 && i < a.length)
      lse[i] = sum == 0.0f ? INFINITY : fmaf(max, a.sinks ? 1.0f : unit_of<GENERAL>(a), log2f(sum)) * LN2;
  }
}

template <int D, int TILES, int KEYS, bool GENERAL>
static __global__ __launch_bounds__(THREADS, 1) void forward(attention a) {
  constexpr int ROWS = 16 * TILES * WARPS;
  PD_SHARED(pd_bf16, q);
  pd_bf16 *k = q + ROWS * pitch(D), *v = k + KEYS * pitch(D);
  int head = (int)blockIdx.x % a.heads, sample = (int)blockIdx.x / a.heads, kv = head / (a.heads / a.kv_heads);
  int first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS; /* the longest work when causal begins first */
  int own = (int)threadIdx.x / 32 * 16 * TILES, row = first + own;
  const pd_bf16 *keys = row_of<pd_bf16>(a.k, sample, kv, 0), *values = row_of<pd_bf16>(a.v, sample, kv, 0);

  int limit = GENERAL ? visible_keys(a, sample, THREADS, (int *)(void *)q) : a.kv_length;
  int begin = range_of(a, sample, first).begin / KEYS * KEYS;
  limit = smaller(limit, range_of(a, sample, smaller(first + ROWS, a.length) - 1).end);
  load_tile<ROWS, D>(q, row_of<pd_bf16>(a.q, sample, head, 0), a.q.row, first, a.length, a.size);
  if (begin < limit) load_tile<KEYS, D>(k, keys, a.k.row, begin, a.kv_length, a.size);
  pd_copy_commit();

  Sums<TILES, D> o = {};
  Softmax<TILES> rows = {};
  for (float &max : rows.max) max = -INFINITY;
  for (int key = begin; key < limit; key += KEYS) {
    bool seen = !none_seen(a, sample, row, row + 16 * TILES, key, key + KEYS);
    bool edge = GENERAL || some_hidden(a, sample, row, row + 16 * TILES, key, key + KEYS);
    Sums<TILES, KEYS> s = {};
    pd_copy_wait<0>();
    __syncthreads(); /* keys have arrived, the previous values are consumed */
    load_tile<KEYS, D>(v, values, a.v.row, key, a.kv_length, a.value_size);
    pd_copy_commit();
    if (seen) multiply<TILES, KEYS, D, D / 16>(s, q + own * pitch(D), k);
    pd_copy_wait<0>();
    __syncthreads(); /* values have arrived, keys are consumed */
    if (key + KEYS < limit) load_tile<KEYS, D>(k, keys, a.k.row, key + KEYS, a.kv_length, a.size);
    pd_copy_commit();
    if (seen && edge) score<TILES, KEYS, GENERAL>(a, s, sample, head, row, key);
    if (seen) take_tile<D, TILES, KEYS, GENERAL>(a, s, v, rows, o);
  }
  finish<D, TILES, GENERAL>(a, rows, o, sample, head, row, a.lse + (int64_t)blockIdx.x * a.length);
  pd_copy_wait<0>();
  __syncthreads(); /* without visible keys, q's rows arrive here */
  pd_bf16 *out = row_of<pd_bf16>(a.o, sample, head, 0);
  store<TILES, D, D>(o, q + own * pitch(D), out, a.o.row, row, a.length, 0, a.value_size);
}

template <int D, int TILES, int KEYS, bool GENERAL> static void launch_general(const attention &a) {
  constexpr int ROWS = 16 * TILES * WARPS;
  constexpr size_t SHARED = tile_bytes(ROWS + 2 * KEYS, D);
  static const bool ready = (allow_shared(forward<D, TILES, KEYS, GENERAL>, SHARED), true);
  (void)ready;
  dim3 grid((unsigned)(a.batch * a.heads),
            pd_grid_all(tiles_of(a.length, ROWS), "attention of a sequence so long"));
  PD_LAUNCH((forward<D, TILES, KEYS, GENERAL>), grid, THREADS, SHARED, pd_stream, a);
}

template <int D, int TILES, int KEYS> static void launch(const attention &a) {
  if (is_general(a))
    launch_general<D, TILES, KEYS, true>(a);
  else
    launch_general<D, TILES, KEYS, false>(a);
}

static int count_multiprocessors() {
  int device, n;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  pd_cuda_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "count multiprocessors");
  return n;
}

/* Blocks of 128 rows if they fill the GPU; rows are bit-identical with either size. */
template <int D, int KEYS> static void choose_rows(const attention &a) {
  static const int multiprocessors = count_multiprocessors();
  if (a.batch * a.heads * tiles_of(a.length, 128) >= multiprocessors)
    launch<D, 2, KEYS>(a);
  else
    launch<D, 1, KEYS>(a);
}

void attention_forward_bf16(const attention &a) {
  if (larger(a.size, a.value_size) <= 64)
    choose_rows<64, 64>(a);
  else if (larger(a.size, a.value_size) <= 128)
    choose_rows<128, 32>(a);
  else
    launch<256, 1, 64>(a);
}
