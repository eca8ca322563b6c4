/* pd_matmul by cuBLASLt, which uses column-major matrices and therefore computes c^T = b^T a^T. An algorithm is
 * chosen once per object, operand types and alignment (algorithms.cu). A kernel of pdc, noted and counted,
 * computes products that the library does not support: operands without an axis of stride 1 or with overlapping
 * rows, factors of two types. bf16 rows at odd addresses, which the library multiplies slowly, are copied first
 * (scratch.h). The library's epilogues apply GELU or its gradient and sum a factor; without an algorithm for them,
 * a separate kernel follows the product, which is also counted. */
#include "algorithms.h"
#include "pd_elements.h"
#include "pd_fast.h"
#include "scratch.h"

bool pd_allow_tf32;

static cublasLtHandle_t library;

struct Plan {
  bool made;
  const char *lacks; /* reason against cuBLASLt; NULL: none */
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t b, a, c; /* transposed: cuBLASLt's A, B, and C and D */
  cublasLtMatmulAlgo_t algorithm;
};

struct pd_matmul {
  struct pd_matmul_shape shape;
  struct pd_lines lines;        /* of the operand that is copied where it is of bfloat16 */
  struct pd_matmul *part[2][2]; /* products with copies: [of all lines at once, of the last][adds] */
  struct pd_matmul *plain;      /* of one with an epilogue: the product alone */
  mutable bool
      counted; /* among pd_counts.own_products, or with an epilogue among separate_gelus or separate_sums */
  mutable Plan plans[2][2][2]; /* by the factors' type, c's type, and whether all begin at multiples of 16 bytes */
};

static struct pd_matmul *plain_new(const struct pd_matmul_shape &shape) {
  struct pd_matmul *m = new struct pd_matmul();
  m->shape = shape;
  return m;
}

size_t pd_matmul_scratch(const struct pd_matmul *m) {
  return static_cast<size_t>(pd_cuda_matmul_scratch(&m->shape));
}

static void check(cublasStatus_t status, const char *what, const struct pd_matmul_shape &s) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  pd_fail("cuBLASLt cannot %s of %lld x [%lld, %lld] @ [%lld, %lld]: %s", what, (long long)s.batch, (long long)s.m,
          (long long)s.k, (long long)s.k, (long long)s.n, cublasLtGetStatusString(status));
}

/* ---- by cuBLASLt -------------------------------------------------------------------------------- */

/* A rows x columns matrix of ours as cuBLASLt reads it, a column every `leading` elements. */
struct Columns {
  bool transposed;
  int64_t rows, columns, leading;
};

static bool read_by_columns(int64_t rows, int64_t columns, int64_t row, int64_t column, Columns *c) {
  if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
    *c = {false, columns, rows, rows > 1 ? row : columns};
    return true;
  }
  *c = {true, rows, columns, columns > 1 ? column : rows};
  return (row == 1 || rows == 1) && (column >= rows || columns == 1);
}

static cudaDataType_t element_type(pd_type type) { return type == PD_F32 ? CUDA_R_32F : CUDA_R_16BF; }

static cublasLtMatrixLayout_t layout_new(const struct pd_matmul_shape &s, pd_type type, const Columns &c,
                                         int64_t batch_stride) {
  cublasLtMatrixLayout_t layout;
  int32_t batch = static_cast<int32_t>(s.batch);
  check(cublasLtMatrixLayoutCreate(&layout, element_type(type), c.rows, c.columns, c.leading), "describe a matrix",
        s);
  if (batch == 1) return layout;
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
        "describe a batch", s);
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                                         sizeof batch_stride),
        "describe a batch", s);
  return layout;
}

template <typename T>
static void set(const struct pd_matmul_shape &s, cublasLtMatmulDesc_t product,
                cublasLtMatmulDescAttributes_t which, T value) {
  check(cublasLtMatmulDescSetAttribute(product, which, &value, sizeof value), "describe a product", s);
}

static const char LACKS_STRIDES[] = "no such strides", LACKS_ALGORITHM[] = "no algorithm for it";

/* The operands of a call. The bias, or sums of a factor in its place, has c's type; before: GELU's input, with c's
 * rows. The choice of algorithms may depend on the alignment of both. */
struct Operands {
  pd_in a, b;
  const void *bias, *before;
  pd_out c;
  void *workspace;
};

static bool with_gelu(const struct pd_matmul_shape &s) {
  return s.epilogue == PD_GELU || s.epilogue == PD_GELU_GRADIENT;
}

static void set_addresses(const struct pd_matmul_shape &s, cublasLtMatmulDesc_t product, const Operands &o) {
  if (s.bias || pd_matmul_sums_factor(&s)) set(s, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  if (with_gelu(s)) set(s, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.before);
}

/* Our a is cuBLASLt's B. */
static cublasLtEpilogue_t epilogue_of(const struct pd_matmul_shape &s) {
  switch (s.epilogue) {
  case PD_PLAIN: break;
  case PD_GELU: return s.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  case PD_GELU_GRADIENT: return CUBLASLT_EPILOGUE_DGELU;
  case PD_SUMS_OF_A: return CUBLASLT_EPILOGUE_BGRADB;
  case PD_SUMS_OF_B: return CUBLASLT_EPILOGUE_BGRADA;
  }
  return s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static void set_epilogue(const struct pd_matmul_shape &s, cublasLtMatmulDesc_t product, const Operands &o) {
  set(s, product, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue_of(s)));
  if (with_gelu(s)) set(s, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.c_row);
  set_addresses(s, product, o);
}

static void run_product(const struct pd_matmul_shape &s, const Plan &plan, const cublasLtMatmulAlgo_t &algorithm,
                        const Operands &o) {
  float one = 1, add = s.accumulate ? 1 : 0;
  set_addresses(s, plan.product, o);
  check(cublasLtMatmul(library, plan.product, &one, o.b.at, plan.b, o.a.at, plan.a, &add, o.c.at, plan.c, o.c.at,
                       plan.c, &algorithm, o.workspace, static_cast<size_t>(pd_matmul_workspace(&s)), pd_stream),
        "compute a product", s);
}

static const char *type_name(pd_type type) { return type == PD_BF16 ? "bf16" : "f32"; }

/* "bf16 [128, 768] @ [768, 3072] by columns to bf16, bias, gelu, at 16 bytes". Has sizes and layouts, but not
 * strides between rows, which may depend on the cuts of a model. */
static std::string product_name(const struct pd_matmul_shape &s, const Columns &a, const Columns &b, bool tf32,
                                const Operands &o, uint32_t alignment) {
  static const char *const epilogues[] = {"", ", gelu", ", its gradient", ", rows added up", ", columns added up"};
  char text[256], batch[32] = "";
  if (s.batch > 1) snprintf(batch, sizeof batch, "%lld x ", (long long)s.batch);
  snprintf(text, sizeof text, "%s %s[%lld, %lld]%s @ [%lld, %lld]%s to %s%s%s, at %u bytes",
           tf32 ? "tf32" : type_name(o.a.type), batch, (long long)s.m, (long long)s.k,
           a.transposed ? " by columns" : "", (long long)s.k, (long long)s.n, b.transposed ? " by columns" : "",
           type_name(o.c.type), s.bias ? ", bias" : "", epilogues[s.epilogue], alignment);
  return text;
}

/* NULL, or what cuBLASLt lacks. */
static const char *plan_product(const struct pd_matmul_shape &s, Plan *plan, uint32_t alignment,
                                const Operands &o) {
  enum { SMALL = 64 }; /* with fewer rows or columns, the product is bound by reading factors */
  Columns a, b, c = {false, s.n, s.m, s.m > 1 ? s.c_row : s.n};
  if (!read_by_columns(s.m, s.k, s.a_row, s.a_column, &a)) return LACKS_STRIDES;
  if (!read_by_columns(s.k, s.n, s.b_row, s.b_column, &b)) return LACKS_STRIDES;
  bool tf32 = pd_allow_tf32 && o.a.type == PD_F32;
  cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&plan->product, compute, CUDA_R_32F), "describe a product", s);
  set<int32_t>(s, plan->product, CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set<int32_t>(s, plan->product, CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_epilogue(s, plan->product, o);
  plan->b = layout_new(s, o.b.type, b, s.b_batch);
  plan->a = layout_new(s, o.a.type, a, s.a_batch);
  plan->c = layout_new(s, o.c.type, c, s.c_batch);
  const pd_lt_product described = {
      .name = product_name(s, a, b, tf32, o, alignment),
      .library = library,
      .product = plan->product,
      .b = plan->b,
      .a = plan->a,
      .c = plan->c,
      .compute = compute,
      .factors = element_type(o.a.type),
      .result = element_type(o.c.type),
      .workspace = static_cast<uint64_t>(pd_matmul_workspace(&s)),
      .alignment = alignment,
      .on_tensor_cores = (tf32 || o.a.type == PD_BF16) && s.m >= SMALL && s.n >= SMALL,
  };
  auto run = [&](const cublasLtMatmulAlgo_t &algorithm) { run_product(s, *plan, algorithm, o); };
  return pd_choose_algorithm(described, run, &plan->algorithm) ? NULL : LACKS_ALGORITHM;
}

/* ---- by a kernel of ours ------------------------------------------------------------------------ */

enum { TILE = 64, DEPTH = 16, THREADS = 256, PER_THREAD = 4 };

/* A tile of product z's c; thread t has the sums of rows t / 16 + 16 i and columns t % 16 + 16 j. */
static __device__ void multiply_tile(const struct pd_matmul_shape &s, const pd_in &a, const pd_in &b,
                                     const pd_in &bias, const pd_out &c, int64_t m, int64_t n, int64_t z) {
  __shared__ float a_tile[DEPTH][TILE + 1], b_tile[DEPTH][TILE + 1];
  int t = threadIdx.x, row = t / 16, column = t % 16;
  float sum[PER_THREAD][PER_THREAD] = {};
  for (int64_t k = 0; k < s.k; k += DEPTH) {
    for (int e = t; e < TILE * DEPTH; e += THREADS) {
      int64_t i = m + e / DEPTH, p = k + e % DEPTH, j = n + e % TILE, q = k + e / TILE;
      a_tile[e % DEPTH][e / DEPTH] =
          i < s.m && p < s.k ? pd_element(a, z * s.a_batch + i * s.a_row + p * s.a_column) : 0.0f;
      b_tile[e / TILE][e % TILE] =
          j < s.n && q < s.k ? pd_element(b, z * s.b_batch + q * s.b_row + j * s.b_column) : 0.0f;
    }
    __syncthreads();
    for (int p = 0; p < DEPTH; p++)
      for (int i = 0; i < PER_THREAD; i++)
        for (int j = 0; j < PER_THREAD; j++)
          sum[i][j] = fmaf(a_tile[p][row + 16 * i], b_tile[p][column + 16 * j], sum[i][j]);
    __syncthreads();
  }
  for (int i = 0; i < PER_THREAD; i++)
    for (int j = 0; j < PER_THREAD; j++) {
      int64_t r = m + row + 16 * i, l = n + column + 16 * j, at = z * s.c_batch + r * s.c_row + l;
      if (r >= s.m || l >= s.n) continue;
      float result = sum[i][j] + (s.bias ? pd_element(bias, l) : 0.0f);
      pd_set_element(c, at, s.accumulate ? pd_element(c, at) + result : result);
    }
}

/* blockIdx.x: a tile, tiles one below the other first; blockIdx.y: the first of a block's products. */
static __global__ void __launch_bounds__(THREADS)
    multiply(struct pd_matmul_shape s, int64_t down, pd_in a, pd_in b, pd_in bias, pd_out c) {
  int64_t m = blockIdx.x % down * TILE, n = blockIdx.x / down * TILE;
  for (int64_t z = blockIdx.y; z < s.batch; z += gridDim.y) multiply_tile(s, a, b, bias, c, m, n, z);
}

static void run_ours(const struct pd_matmul_shape &s, pd_in a, pd_in b, pd_in bias, pd_out c) {
  int64_t down = (s.m + TILE - 1) / TILE, across = (s.n + TILE - 1) / TILE;
  if (down * across > INT32_MAX)
    pd_fail(
        "a product of %lld x [%lld, %lld] @ [%lld, %lld] with strides that cuBLASLt does not support is too large",
        (long long)s.batch, (long long)s.m, (long long)s.k, (long long)s.k, (long long)s.n);
  dim3 grid(static_cast<unsigned>(down * across), pd_grid_part(s.batch));
  PD_LAUNCH(multiply, grid, THREADS, 0, pd_stream, s, down, a, b, bias, c);
}

/* ---- with copied lines -------------------------------------------------------------------------- */

/* The product of n lines, of an operand whose copy stands dense. */
static struct pd_matmul_shape part_of(struct pd_matmul_shape s, const struct pd_lines &l, int64_t n, bool adds) {
  (l.of_k ? s.k : s.m) = n;
  if (l.operand == PD_OPERAND_A) (l.of_k ? s.a_column : s.a_row) = l.pitch;
  if (l.operand == PD_OPERAND_B) s.b_row = l.pitch;
  if (l.operand == PD_OPERAND_C) s.c_row = l.pitch;
  s.accumulate = adds;
  return s;
}

/* Opens the library at start, because passes, which may be captured as graphs, must not allocate. */
struct pd_matmul *pd_matmul_new(struct pd_matmul_shape shape) {
  struct pd_matmul *m = plain_new(shape);
  if (!library) check(cublasLtCreate(&library), "start for a product", shape);
  if (shape.epilogue != PD_PLAIN) {
    shape.epilogue = PD_PLAIN;
    m->plain = pd_matmul_new(shape);
    return m;
  }
  m->lines = pd_matmul_lines(&shape);
  const struct pd_lines &l = m->lines;
  int64_t rest = l.operand == PD_NO_OPERAND ? 0 : l.n % l.at_once;
  for (int adds = 0; adds < 2 && l.operand != PD_NO_OPERAND; adds++) {
    if (l.n >= l.at_once) m->part[0][adds] = plain_new(part_of(shape, l, l.at_once, adds));
    if (rest) m->part[1][adds] = plain_new(part_of(shape, l, rest, adds));
  }
  return m;
}

/* to[i][j] = from[i][j] for lines of `length`; a warp a line, or some of it: blockIdx.y. 64 lines fit
 * PD_LINES_BYTES, so that these parts are far fewer than 65535. */
static __global__ void __launch_bounds__(THREADS, 1)
    copy_lines(const pd_bf16 *__restrict__ from, int64_t apart, pd_bf16 *__restrict__ to, int64_t pitch,
               int64_t lines, int64_t length) {
  enum { EACH = 8 };
  int64_t line = static_cast<int64_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  int64_t first = static_cast<int64_t>(blockIdx.y) * 32 * EACH + threadIdx.x % 32;
  pd_bf16 x[EACH];
  if (line >= lines) return;
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (first + 32 * i < length) x[i] = from[line * apart + first + 32 * i];
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (first + 32 * i < length) to[line * pitch + first + 32 * i] = x[i];
}

static void copy(const void *from, int64_t apart, void *to, int64_t pitch, int64_t lines, int64_t length) {
  dim3 grid(static_cast<unsigned>((lines + 7) / 8), static_cast<unsigned>((length + 255) / 256));
  PD_LAUNCH(copy_lines, grid, THREADS, 0, pd_stream, static_cast<const pd_bf16 *>(from), apart,
            static_cast<pd_bf16 *>(to), pitch, lines, length);
}

static void run_plain(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, void *scratch);

static void run_lines(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, char *scratch) {
  const struct pd_matmul_shape &s = m->shape;
  const struct pd_lines &l = m->lines;
  char *rest = scratch + pd_lines_bytes(&l);
  for (int64_t first = 0; first < l.n; first += l.at_once) {
    int64_t n = l.n - first < l.at_once ? l.n - first : l.at_once;
    pd_in part_a = pd_moved(a, first * (l.of_k ? s.a_column : s.a_row)),
          part_b = pd_moved(b, l.of_k ? first * s.b_row : 0);
    pd_out part_c = pd_moved(c, l.of_k ? 0 : first * s.c_row), result = part_c;
    if (l.operand == PD_OPERAND_A) copy(part_a.at, l.apart, scratch, l.pitch, n, l.length), part_a.at = scratch;
    if (l.operand == PD_OPERAND_B) copy(part_b.at, l.apart, scratch, l.pitch, n, l.length), part_b.at = scratch;
    if (l.operand == PD_OPERAND_C) result.at = scratch;
    run_plain(m->part[n < l.at_once][s.accumulate || (l.of_k && first > 0)], part_a, part_b, bias, result, rest);
    if (l.operand == PD_OPERAND_C) copy(scratch, l.pitch, part_c.at, l.apart, n, l.length);
  }
}

/* ---- the call ----------------------------------------------------------------------------------- */

static __global__ void convert(pd_in from, pd_out to, int64_t n) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) pd_set_element(to, i, pd_element(from, i));
}

/* The bias in c's type, as cuBLASLt requires; a copy if the type differs. */
static const void *bias_like(const struct pd_matmul_shape &s, pd_in bias, pd_out c, char **scratch) {
  if (!s.bias || bias.type == c.type) return bias.at;
  pd_out copy = pd_out_at(*scratch, c.type);
  PD_LAUNCH(convert, dim3(static_cast<unsigned>((s.n + 255) / 256)), 256, 0, pd_stream, bias, copy, s.n);
  *scratch += pd_scratch_part(s.n * static_cast<int64_t>(sizeof(float)));
  return copy.at;
}

/* Counts once per call in the program; each call has its own object. */
static void count_own(const struct pd_matmul *m, const char *lacks) {
  const struct pd_matmul_shape &s = m->shape;
  if (m->counted) return;
  m->counted = true;
  pd_counts.own_products++;
  pd_note("products of %lld x [%lld, %lld] @ [%lld, %lld] are slow, without tensor cores: cuBLASLt has %s",
          (long long)s.batch, (long long)s.m, (long long)s.k, (long long)s.k, (long long)s.n, lacks);
}

static void run_plain(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, void *scratch) {
  const struct pd_matmul_shape &s = m->shape;
  bool aligned = pd_aligned(a.at, 16) && pd_aligned(b.at, 16) && pd_aligned(c.at, 16) && pd_aligned(bias.at, 16);
  Plan *plan = &m->plans[a.type][c.type][aligned];
  bool expressible = a.type == b.type && !(a.type == PD_F32 && c.type == PD_BF16);
  const char *lacks = expressible ? plan->lacks : "no products of such types";
  if (!lacks) {
    char *free = pd_scratch_begin(scratch);
    const void *vector = bias_like(s, bias, c, &free);
    const Operands o = {a, b, vector, nullptr, c, free};
    uint32_t alignment = aligned ? 16 : static_cast<uint32_t>(pd_size(a.type));
    if (!plan->made) plan->lacks = lacks = plan_product(s, plan, alignment, o);
    plan->made = true;
    if (!lacks) run_product(s, *plan, plan->algorithm, o);
  }
  if (!lacks) return;
  count_own(m, lacks);
  run_ours(s, a, b, bias, c);
}

/* Steps of k are added up in c, which must then be float. */
static bool takes_lines(const struct pd_lines &l, pd_in a, pd_in b, pd_out c) {
  bool factors = a.type == PD_BF16 && b.type == PD_BF16;
  if (l.operand == PD_OPERAND_C) return factors && c.type == PD_BF16;
  return l.operand != PD_NO_OPERAND && factors && (c.type == PD_F32 || !l.of_k);
}

void pd_matmul(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, void *scratch) {
  if (takes_lines(m->lines, a, b, c))
    run_lines(m, a, b, bias, c, pd_scratch_begin(scratch));
  else
    run_plain(m, a, b, bias, c, scratch);
}

/* ---- GELU and its gradient ---------------------------------------------------------------------- */

/* Of N elements side by side; as layout/epilogues.c writes GELU, x sigmoid(2 z). */
template <int N, bool GRADIENT>
static __global__ void __launch_bounds__(THREADS)
    apply_gelu(const pd_bf16 *__restrict__ before, pd_bf16 *c, int64_t rows, int64_t columns, int64_t apart) {
  int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N, row = i / columns;
  if (row >= rows) return;
  int64_t at = row * apart + i % columns;
  float x[N], y[N];
  pd_get(x, before + at);
  if (GRADIENT) pd_get(y, c + at);
#pragma unroll
  for (int k = 0; k < N; k++) {
    float square = x[k] * x[k], s = pd_sigmoid_fast(1.5957691216f * (x[k] + 0.044715f * square * x[k]));
    float steep = s * (1.0f - s) * x[k] * (1.0f + 0.134145f * square);
    y[k] = GRADIENT ? y[k] * (s + 1.5957691216f * steep) : x[k] * s;
  }
  pd_put(c + at, y);
}

template <bool GRADIENT> static void launch_gelu(const struct pd_matmul_shape &s, pd_in before, pd_out c) {
  const pd_bf16 *x = static_cast<const pd_bf16 *>(before.at);
  pd_bf16 *y = static_cast<pd_bf16 *>(c.at);
  bool wide = s.n % 8 == 0 && s.c_row % 8 == 0 && pd_aligned(x, 16) && pd_aligned(y, 16);
  int64_t threads = s.m * s.n / (wide ? 8 : 1);
  dim3 grid(static_cast<unsigned>((threads + THREADS - 1) / THREADS));
  if (wide)
    PD_LAUNCH((apply_gelu<8, GRADIENT>), grid, THREADS, 0, pd_stream, x, y, s.m, s.n, s.c_row);
  else
    PD_LAUNCH((apply_gelu<1, GRADIENT>), grid, THREADS, 0, pd_stream, x, y, s.m, s.n, s.c_row);
}

/* ---- sums over k of a factor -------------------------------------------------------------------- */

enum { SUM_ROWS = THREADS / 32 }; /* of a tile at a time */

/* Of steps [blockIdx.y * steps, ..) of k, N columns side by side a thread, whose column steps are `apart` elements
 * from one to the next, columns `beside`. Threads of a warp have columns, warps every SUM_ROWS-th step. */
template <int N, typename T>
static __global__ void __launch_bounds__(THREADS) add_up(const T *__restrict__ x, int64_t apart, int64_t beside,
                                                         int64_t n, int64_t k, int64_t steps, float *tiles) {
  __shared__ float part[SUM_ROWS][32 * N];
  int lane = threadIdx.x % 32, row = threadIdx.x / 32;
  int64_t first = static_cast<int64_t>(blockIdx.x) * 32 * N, at = first + lane * N;
  int64_t begin = static_cast<int64_t>(blockIdx.y) * steps, end = begin + steps < k ? begin + steps : k;
  float sum[N] = {}, y[N];
  if (at < n)
#pragma unroll 4
    for (int64_t p = begin + row; p < end; p += SUM_ROWS) {
      if constexpr (N == 1)
        y[0] = pd_to_float(x[p * apart + at * beside]);
      else
        pd_get(y, x + p * apart + at);
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += y[i];
    }
#pragma unroll
  for (int i = 0; i < N; i++) part[row][i * 32 + lane] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * N; i += THREADS) {
    int64_t column = first + i % 32 * N + i / 32;
    float all = part[0][i];
    for (int r = 1; r < SUM_ROWS; r++) all += part[r][i];
    if (column < n) tiles[blockIdx.y * n + column] = all;
  }
}

/* to[i], where it adds, + x[0][i] + x[1][i] .. */
static __global__ void __launch_bounds__(THREADS)
    add_tiles(const float *__restrict__ x, int64_t n, int64_t tiles, float *__restrict__ to, bool adds) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= n) return;
  float sum = x[i];
  for (int64_t t = 1; t < tiles; t++) sum += x[t * n + i];
  to[i] = adds ? to[i] + sum : sum;
}

static void add_tiles_up(const float *x, int64_t n, int64_t tiles, float *to, bool adds) {
  dim3 grid(static_cast<unsigned>((n + THREADS - 1) / THREADS));
  PD_LAUNCH(add_tiles, grid, THREADS, 0, pd_stream, x, n, tiles, to, adds);
}

/* In an order that follows from m, n and k alone. */
static void launch_sums(const struct pd_matmul_shape &s, pd_in x, float *sums, float *scratch) {
  bool of_a = s.epilogue == PD_SUMS_OF_A;
  int64_t n = pd_matmul_n_sums(&s), apart = of_a ? s.a_column : s.b_row, beside = of_a ? s.a_row : s.b_column;
  int64_t tiles = pd_sum_tiles(&s), steps = (s.k + tiles - 1) / tiles;
  bool wide = beside == 1 && n % 8 == 0 && apart % 8 == 0 && x.type == PD_BF16 && pd_aligned(x.at, 16);
  unsigned across = static_cast<unsigned>((n + (wide ? 255 : 31)) / (wide ? 256 : 32));
  dim3 grid(across, static_cast<unsigned>(tiles));
  pd_by_type(x.type, [&](auto element) {
    const auto *at = static_cast<const decltype(element) *>(x.at);
    if constexpr (sizeof element == 2) {
      if (wide) {
        PD_LAUNCH((add_up<8, pd_bf16>), grid, THREADS, 0, pd_stream, at, apart, beside, n, s.k, steps, scratch);
        return;
      }
    }
    PD_LAUNCH((add_up<1, decltype(element)>), grid, THREADS, 0, pd_stream, at, apart, beside, n, s.k, steps,
              scratch);
  });
  add_tiles_up(scratch, n, tiles, sums, s.accumulate);
}

/* ---- epilogues by cuBLASLt ---------------------------------------------------------------------- */

/* Hopper and later: on older GPUs cuBLASLt applies GELU by a second kernel that is slower than pdc's, and chooses
 * slower products for sums of a factor. */
static bool has_epilogues() {
  int device, major;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  pd_cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "ask for the device");
  return major >= 9;
}

/* The reason against cuBLASLt's epilogues for these operands. GELU's input needs rows and an address of multiples
 * of 16 bytes (cuBLAS library, cublasLtMatmulDescAttributes_t). Sums have c's type. */
static bool suits_epilogue(const struct pd_matmul *m, const Operands &o) {
  const struct pd_matmul_shape &s = m->shape;
  bool factors = o.a.type == PD_BF16 && o.b.type == PD_BF16;
  bool fits = with_gelu(s) ? factors && o.c.type == PD_BF16 && s.c_row % 8 == 0
                           : factors && o.c.type == PD_F32 && m->plain->lines.operand == PD_NO_OPERAND;
  for (const void *at : {o.a.at, o.b.at, o.bias, o.before, static_cast<const void *>(o.c.at)})
    fits = fits && pd_aligned(at, 16);
  return fits;
}

/* Counts once per call in the program; of accumulating calls, which have two objects, the one that does not
 * accumulate. */
static void count_separate(const struct pd_matmul *m, bool able, const char *lacks, int64_t *separate) {
  const struct pd_matmul_shape &s = m->shape;
  bool first = !m->counted && !s.accumulate;
  m->counted = true;
  if (!first) return;
  ++*separate;
  if (able)
    pd_note("a separate kernel %s [%lld, %lld] @ [%lld, %lld]: cuBLASLt has %s",
            with_gelu(s) ? "applies GELU, or its gradient, to" : "adds up a factor of", (long long)s.m,
            (long long)s.k, (long long)s.k, (long long)s.n, lacks);
}

/* Whether cuBLASLt has done both. */
static bool run_epilogue(const struct pd_matmul *m, const Operands &o, int64_t *separate) {
  static const bool able = has_epilogues();
  const struct pd_matmul_shape &s = m->shape;
  Plan *plan = &m->plans[PD_BF16][o.c.type][1];
  const char *lacks = able && suits_epilogue(m, o) ? plan->lacks : "no such strides, types or addresses";
  if (!plan->made && able && suits_epilogue(m, o)) {
    plan->lacks = lacks = plan_product(s, plan, 16, o);
    plan->made = true;
  }
  if (lacks)
    count_separate(m, able, lacks, separate);
  else
    run_product(s, *plan, plan->algorithm, o);
  return !lacks;
}

void pd_matmul_gelu(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, pd_out before,
                    void *scratch) {
  char *free = pd_scratch_begin(scratch);
  const void *vector = bias_like(m->shape, bias, c, &free);
  if (run_epilogue(m, {a, b, vector, before.at, c, free}, &pd_counts.separate_gelus)) return;
  pd_matmul(m->plain, a, b, bias, before, scratch);
  launch_gelu<false>(m->shape, pd_written(before), c);
}

void pd_matmul_gelu_gradient(const struct pd_matmul *m, pd_in a, pd_in b, pd_in before, pd_out c, void *scratch) {
  const Operands o = {a, b, nullptr, before.at, c, pd_scratch_begin(scratch)};
  if (run_epilogue(m, o, &pd_counts.separate_gelus)) return;
  pd_matmul(m->plain, a, b, nullptr, c, scratch);
  launch_gelu<true>(m->shape, before, c);
}

/* cuBLASLt overwrites sums. */
void pd_matmul_sums(const struct pd_matmul *m, pd_in a, pd_in b, pd_out c, float *sums, void *scratch) {
  const struct pd_matmul_shape &s = m->shape;
  int64_t n = pd_matmul_n_sums(&s);
  char *free = pd_scratch_begin(scratch), *workspace = free;
  float *made = sums;
  if (s.accumulate) {
    made = reinterpret_cast<float *>(free);
    workspace += pd_scratch_part(n * static_cast<int64_t>(sizeof(float)));
  }
  if (run_epilogue(m, {a, b, made, nullptr, c, workspace}, &pd_counts.separate_sums)) {
    if (s.accumulate) add_tiles_up(made, n, 1, sums, true);
    return;
  }
  pd_matmul(m->plain, a, b, nullptr, c, scratch);
  launch_sums(s, s.epilogue == PD_SUMS_OF_A ? a : b, sums, reinterpret_cast<float *>(free));
}
