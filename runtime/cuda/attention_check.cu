/* Verification of attention by plain loops: a warp recomputes one row of the results in floats, with error bounds
 * from the rounding of a tensor core kernel:
 *
 * - Products of q and k are exact, their sums are floats: a score is off by at most (size + 2) 2^-24 times the sum
 *   of the magnitudes, and a weight p relatively by the same; exponentials of GPU instructions are good to 2^-21.
 * - p, and in the backward pass ds, is rounded to bf16, by 2^-8 relatively, before it is multiplied, and so is the
 *   result; with grouped heads also those of each query head. One step of 2^-8 for each, of the sum of magnitudes.
 * - dp - delta is a difference of sums: off by (size + 2) 2^-24 of their magnitudes.
 * The check of gradients relies on lse, which is checked after the forward pass. */
#include "attention_cudnn.h"
#include "pd_elements.h"

#include <algorithm>
#include <vector>

enum { LANES = 32, MOST_COLUMNS = 256 / LANES, MOST_ROWS = 1024 };
static const unsigned ALL = 0xffffffffu;

#define BF16_ROUNDING 0x1p-8f
#define FLOAT_ROUNDING 0x1p-24f
#define EXP_ERROR 0x1p-21f

/* ---- a warp's sums -------------------------------------------------------------------------------- */

static __device__ float sum_of(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(ALL, x, lanes);
  return x;
}
static __device__ float largest_of(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, lanes));
  return x;
}

/* x . y and the sum of the magnitudes. */
struct Dot {
  float value, size;
};
static __device__ Dot dot(const pd_bf16 *x, const pd_bf16 *y, int n) {
  Dot d = {0, 0};
  for (int c = 0; c < n; c++) {
    float product = pd_to_float(x[c]) * pd_to_float(y[c]);
    d.value += product;
    d.size += fabsf(product);
  }
  return d;
}

/* A row of results under construction: a lane has columns lane, lane + 32 .. of it, and of the magnitudes'
 * sums. */
struct Columns {
  float value[MOST_COLUMNS], size[MOST_COLUMNS], uncertain[MOST_COLUMNS];
};

/* Adds all rows' weights, one per lane, times their rows of `from`; uncertain: error bounds of the weights. */
static __device__ void add_rows(Columns &to, float weight, float uncertain, const attention_tensor &from,
                                int sample, int head, int first, int rows, int size) {
  for (int i = 0; i < rows; i++) {
    float w = __shfl_sync(ALL, weight, i), u = __shfl_sync(ALL, uncertain, i);
    const pd_bf16 *row = row_of<pd_bf16>(from, sample, head, first + i);
    for (int n = 0, c = (int)threadIdx.x; c < size; n++, c += LANES) {
      float x = pd_to_float(row[c]);
      to.value[n] += w * x;
      to.size[n] += fabsf(w * x);
      to.uncertain[n] += u * fabsf(x);
    }
  }
}

static __device__ Columns no_columns() {
  Columns c;
  for (int n = 0; n < MOST_COLUMNS; n++) c.value[n] = c.size[n] = c.uncertain[n] = 0;
  return c;
}

/* The difference relative to its bound; infinite for a NaN in place of a number. Rows with non-finite operands are
 * not compared. */
static __device__ float share(float got, float expected, float bound) {
  float off = fabsf(got - expected) / fmaxf(bound, 1e-30f);
  if (!(fabsf(expected) < INFINITY) || !(bound < INFINITY)) return 0;
  return off < INFINITY ? off : INFINITY;
}
static __device__ float worst_of(const Columns &c, const pd_bf16 *got, int size, float steps) {
  float worst = 0;
  for (int n = 0, at = (int)threadIdx.x; at < size; n++, at += LANES) {
    float bound = steps * BF16_ROUNDING * c.size[n] + c.uncertain[n];
    worst = fmaxf(worst, share(pd_to_float(got[at]), c.value[n], bound));
  }
  return largest_of(worst);
}

/* ---- which rows ----------------------------------------------------------------------------------- */

struct Row {
  int sample, head, row;
};
/* A sample of all rows of all heads, evenly spread over positions in heads, with the first and the last row. */
static __device__ Row row_at(int k, int n, int64_t all, int heads, int length) {
  int64_t step = all / n, at = k == n - 1 ? all - 1 : k * step + (k ? k * 7919ll % step : 0);
  return {(int)(at / length / heads), (int)(at / length % heads), (int)(at % length)};
}

/* The number of keys, from the first, that the query sees. */
static __device__ int keys_of(const attention &a, int row) {
  return a.causal ? smaller(row + 1, a.kv_length) : a.kv_length;
}

static __device__ float relative_error(const attention &a, const Dot &score) {
  return (float)(a.size + 2) * FLOAT_ROUNDING * a.scale * score.size + EXP_ERROR;
}

/* ---- the forward pass ----------------------------------------------------------------------------- */

struct Weight {
  float p, uncertain; /* relative error bound */
};
/* exp(score - lse) of a query and a key. */
static __device__ Weight weight_of(const attention &a, Row q, int kv_head, int key, float lse) {
  Dot s = dot(row_of<pd_bf16>(a.q, q.sample, q.head, q.row), row_of<pd_bf16>(a.k, q.sample, kv_head, key), a.size);
  bool sees = !a.causal || key <= q.row;
  return {sees ? expf(a.scale * s.value - lse) : 0, relative_error(a, s) + fabsf(lse) * 2 * FLOAT_ROUNDING};
}

/* The expected lse, in every lane. */
static __device__ float lse_of(const attention &a, Row q, int kv_head, float *uncertain) {
  int keys = keys_of(a, q.row);
  float largest = -INFINITY, sum = 0, error = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int key = (int)threadIdx.x; key < keys; key += LANES) {
      const pd_bf16 *k = row_of<pd_bf16>(a.k, q.sample, kv_head, key);
      Dot s = dot(row_of<pd_bf16>(a.q, q.sample, q.head, q.row), k, a.size);
      if (pass == 0)
        largest = fmaxf(largest, a.scale * s.value), error = fmaxf(error, relative_error(a, s));
      else
        sum += expf(a.scale * s.value - largest);
    }
    largest = largest_of(largest);
  }
  *uncertain = largest_of(error) + (float)keys * FLOAT_ROUNDING + EXP_ERROR;
  return largest + logf(sum_of(sum));
}

static __global__ void __launch_bounds__(LANES)
    check_forward(attention a, int n, PD_WRITES(float, MOST_ROWS) worst) {
  Row q = row_at((int)blockIdx.x, n, (int64_t)a.batch * a.heads * a.length, a.heads, a.length);
  int kv_head = q.head / (a.heads / a.kv_heads), keys = keys_of(a, q.row);
  float lse_error, lse = lse_of(a, q, kv_head, &lse_error);
  Columns o = no_columns();
  for (int first = 0; first < keys; first += LANES) {
    int key = first + (int)threadIdx.x;
    Weight w = key < keys ? weight_of(a, q, kv_head, key, lse) : Weight{0, 0};
    add_rows(o, w.p, w.p * (w.uncertain + lse_error), a.v, q.sample, kv_head, first, smaller(LANES, keys - first),
             a.size);
  }
  float wrong = worst_of(o, row_of<pd_bf16>(a.o, q.sample, q.head, q.row), a.size, 2.125f);
  float got = a.lse[((int64_t)q.sample * a.heads + q.head) * a.length + q.row];
  wrong = fmaxf(wrong, share(got, lse, lse_error + fabsf(lse) * 4 * FLOAT_ROUNDING));
  if (threadIdx.x == 0) worst[blockIdx.x] = wrong;
}

/* ---- the backward pass ---------------------------------------------------------------------------- */

/* ds of a query and a key, its error bound, and p. */
struct Gradient {
  float ds, ds_uncertain, p, p_uncertain;
};
static __device__ Gradient gradient_of(const attention &a, Row q, int kv_head, int key) {
  const pd_bf16 *d_o = row_of<pd_bf16>(a.d_o, q.sample, q.head, q.row);
  float lse = a.lse[((int64_t)q.sample * a.heads + q.head) * a.length + q.row];
  Weight w = weight_of(a, q, kv_head, key, lse);
  Dot dp = dot(d_o, row_of<pd_bf16>(a.v, q.sample, kv_head, key), a.size);
  Dot delta = dot(d_o, row_of<pd_bf16>(a.o, q.sample, q.head, q.row), a.size);
  float difference = dp.value - delta.value, p = a.scale * w.p;
  float off = (float)(a.size + 2) * FLOAT_ROUNDING * (dp.size + delta.size);
  return {p * difference, p * (off + w.uncertain * fabsf(difference)), w.p, w.p * w.uncertain};
}

static __global__ void __launch_bounds__(LANES) check_dq(attention a, int n, PD_WRITES(float, MOST_ROWS) worst) {
  Row q = row_at((int)blockIdx.x, n, (int64_t)a.batch * a.heads * a.length, a.heads, a.length);
  int kv_head = q.head / (a.heads / a.kv_heads), keys = keys_of(a, q.row);
  Columns dq = no_columns();
  for (int first = 0; first < keys; first += LANES) {
    int key = first + (int)threadIdx.x;
    Gradient g = key < keys ? gradient_of(a, q, kv_head, key) : Gradient{0, 0, 0, 0};
    add_rows(dq, g.ds, g.ds_uncertain, a.k, q.sample, kv_head, first, smaller(LANES, keys - first), a.size);
  }
  float wrong = worst_of(dq, row_of<pd_bf16>(a.dq, q.sample, q.head, q.row), a.size, 2.125f);
  if (threadIdx.x == 0) worst[blockIdx.x] = wrong;
}

static __global__ void __launch_bounds__(LANES) check_dkv(attention a, int n, PD_WRITES(float, MOST_ROWS) worst) {
  Row k = row_at((int)blockIdx.x, n, (int64_t)a.batch * a.kv_heads * a.kv_length, a.kv_heads, a.kv_length);
  int group = a.heads / a.kv_heads;
  Columns dk = no_columns(), dv = no_columns();
  for (int head = k.head * group; head < (k.head + 1) * group; head++)
    for (int first = a.causal ? k.row / LANES * LANES : 0; first < a.length; first += LANES) {
      Row q = {k.sample, head, first + (int)threadIdx.x};
      Gradient g = q.row < a.length ? gradient_of(a, q, k.head, k.row) : Gradient{0, 0, 0, 0};
      int rows = smaller(LANES, a.length - first);
      add_rows(dk, g.ds, g.ds_uncertain, a.q, k.sample, head, first, rows, a.size);
      add_rows(dv, g.p, g.p_uncertain, a.d_o, k.sample, head, first, rows, a.size);
    }
  float steps = group > 1 ? 3.125f : 2.125f; /* and of what a query head has */
  float wrong = fmaxf(worst_of(dk, row_of<pd_bf16>(a.dk, k.sample, k.head, k.row), a.size, steps),
                      worst_of(dv, row_of<pd_bf16>(a.dv, k.sample, k.head, k.row), a.size, steps));
  if (threadIdx.x == 0) worst[blockIdx.x] = wrong;
}

/* ---- from the host -------------------------------------------------------------------------------- */

/* Results of the kernels. */
template <typename T> static std::vector<T> fetch(const pd_attention_check &c, int n) {
  static const char what[] = "attention to be checked";
  std::vector<T> to((size_t)n);
  if (c.among_others) {
    static cudaEvent_t found;
    if (!found) found = pd_cuda_event();
    pd_cuda_check(cudaEventRecord(found, pd_stream), "record an event");
    pd_cuda_await(found, what);
  }
  pd_cuda_check(cudaStreamSynchronize(pd_stream), what);
  pd_cuda_check(cudaMemcpyAsync(to.data(), c.numbers, to.size() * sizeof(T), cudaMemcpyDeviceToHost, pd_stream),
                what);
  pd_cuda_check(cudaStreamSynchronize(pd_stream), what);
  return to;
}

static_assert(PD_ATTENTION_NUMBERS == MOST_ROWS * sizeof(uint64_t));
static int rows_of(int64_t all) { return (int)std::min<int64_t>(all, MOST_ROWS); }

template <typename Kernel> static float worst_in(const pd_attention_check &c, Kernel launch, int64_t all) {
  int n = rows_of(all);
  launch(n, static_cast<float *>(c.numbers));
  std::vector<float> shares = fetch<float>(c, n);
  return *std::max_element(shares.begin(), shares.end());
}

float pd_attention_error(const pd_attention_check &c, const attention &a, bool backward) {
  int64_t queries = (int64_t)a.batch * a.heads * a.length, keys = (int64_t)a.batch * a.kv_heads * a.kv_length;
  auto forward = [&](int n, float *worst) { PD_LAUNCH(check_forward, n, LANES, 0, pd_stream, a, n, worst); };
  auto dq = [&](int n, float *worst) { PD_LAUNCH(check_dq, n, LANES, 0, pd_stream, a, n, worst); };
  auto dkv = [&](int n, float *worst) { PD_LAUNCH(check_dkv, n, LANES, 0, pd_stream, a, n, worst); };
  if (!backward) return worst_in(c, forward, queries);
  return std::max(worst_in(c, dq, queries), worst_in(c, dkv, keys));
}

/* splitmix64's last step: every bit depends on every bit. */
static __host__ __device__ uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/* Rows of a tensor of elements of 2 or 4 bytes; a thread adds up what it makes of its own. */
template <typename Word>
static __global__ void __launch_bounds__(LANES)
    add_bits(attention_tensor t, int heads, int length, int size, int64_t rows, int n,
             PD_WRITES(uint64_t, MOST_ROWS) sums) {
  uint64_t sum = 0;
  for (int64_t r = blockIdx.x; r < rows; r += n) {
    const Word *row = row_of<Word>(t, (int)(r / length / heads), (int)(r / length % heads), r % length);
    for (int c = (int)threadIdx.x; c < size; c += LANES) sum += mixed((uint64_t)(r * size + c) << 32 | row[c]);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(ALL, sum, lanes);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <typename Word>
static uint64_t bits_of(const pd_attention_check &c, const attention_tensor &t, int batch, int heads, int length,
                        int size) {
  int64_t rows = (int64_t)batch * heads * length;
  int n = rows_of(rows);
  uint64_t *sums = static_cast<uint64_t *>(c.numbers), all = 0;
  PD_LAUNCH((add_bits<Word>), n, LANES, 0, pd_stream, t, heads, length, size, rows, n, sums);
  for (uint64_t sum : fetch<uint64_t>(c, n)) all += sum;
  return mixed(all);
}

uint64_t pd_attention_bits(const pd_attention_check &c, const attention &a, bool backward) {
  auto of_queries = [&](const attention_tensor &t) {
    return bits_of<uint16_t>(c, t, a.batch, a.heads, a.length, a.size);
  };
  auto of_keys = [&](const attention_tensor &t) {
    return bits_of<uint16_t>(c, t, a.batch, a.kv_heads, a.kv_length, a.size);
  };
  if (backward) return of_queries(a.dq) + of_keys(a.dk) * 3 + of_keys(a.dv) * 5;
  attention_tensor lse = {a.lse, false, false, (int64_t)a.heads * a.length, a.length, 1};
  return of_queries(a.o) + bits_of<uint32_t>(c, lse, a.batch, a.heads, a.length, 1) * 3;
}

/* Evenly spread between -width and width. */
static __global__ void __launch_bounds__(LANES)
    fill(attention_tensor t, int heads, int length, int size, int64_t rows, float width, uint64_t seed) {
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    pd_bf16 *row = row_of<pd_bf16>(t, (int)(r / length / heads), (int)(r / length % heads), r % length);
    for (int c = (int)threadIdx.x; c < size; c += LANES) {
      float even = (float)(mixed(seed + (uint64_t)(r * size + c)) >> 40) * 0x1p-23f - 1;
      row[c] = pd_from_float<pd_bf16>(width * even);
    }
  }
}

void pd_attention_fill(const attention &a, bool backward) {
  auto put = [&](const attention_tensor &t, int heads, int length, float width, uint64_t seed) {
    int64_t rows = (int64_t)a.batch * heads * length;
    PD_LAUNCH(fill, rows_of(rows), LANES, 0, pd_stream, t, heads, length, a.size, rows, width, seed << 60);
  };
  put(a.q, a.heads, a.length, 2, 1); /* with a scale of one over the root of the size: scores of deviation 4 / 3 */
  put(a.k, a.kv_heads, a.kv_length, 2, 2);
  put(a.v, a.kv_heads, a.kv_length, 1, 3);
  if (backward) put(a.d_o, a.heads, a.length, 1, 4);
}
