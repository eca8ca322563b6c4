/* cuBLASLt's products on the host. They are refused where the library refuses them: layouts whose columns overlap, shapes
 * that do not fit, mixtures of types that its tables do not list, too little workspace. And the program ends where the
 * library would read or write what it must not, or be right by luck: operands outside device memory or less
 * aligned than was promised, an algorithm that nobody chose for the problem, a workspace at an odd address. Sums
 * run backwards in k, in as many parts as the algorithm splits k in, so that they are not the CPU kernels' by accident;
 * the workspace is overwritten. Which algorithms there are: cublasLt_algorithms.cpp. */
#include "cublasLt_algorithms.h"
#include "host.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>
#include <vector>

struct cublasLtContext {
  int unused;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  int32_t transpose_a, transpose_b;
  uint32_t epilogue;
  const void *bias;
  void *aux;
  int64_t aux_leading;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  int32_t batch;
  int64_t stride;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace;
  uint32_t reductions, alignment[4]; /* of a, b, c, d */
};

typedef cublasLtMatrixLayoutOpaque_t Layout;

const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "a status of no library";
}

/* ---- descriptions ------------------------------------------------------------------------------- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = new cublasLtContext{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *d = new cublasLtMatmulDescOpaque_t{
      compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}

/* Attributes have one size each. */
template <class T> static cublasStatus_t assign(T &to, const void *value, size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes) {
  switch (which) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return assign(d->transpose_a, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB: return assign(d->transpose_b, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(d->epilogue, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(d->bias, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return assign(d->aux, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return assign(d->aux_leading, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *l = new Layout{type, (int64_t)rows, (int64_t)columns, leading, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes) {
  switch (which) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return assign(l->batch, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return assign(l->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
  *p = new cublasLtMatmulPreferenceOpaque_t{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t bytes) {
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return assign(p->workspace, value, bytes);
  if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return assign(p->reductions, value, bytes);
  int operand = which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (operand < 0 || operand > 3) return CUBLAS_STATUS_INVALID_VALUE;
  return assign(p->alignment[operand], value, bytes);
}

/* ---- problems ----------------------------------------------------------------------------------- */

/* d[m, n] by columns, k products each. */
struct Problem {
  int64_t m, n, k;
};

static bool adds_bias(uint32_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
static bool has_aux(uint32_t epilogue) { return (epilogue & 128) != 0; }
static bool adds_up(uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

/* CUBLASLT_HOST_REFUSE=epilogues: there is no algorithm that applies GELU, or adds up a factor. */
static bool refuses_epilogues() {
  const char *what = getenv("CUBLASLT_HOST_REFUSE");
  return what && !strcmp(what, "epilogues");
}

/* What GELU is applied to has the result's type; its columns are 16 bytes apart at least, and do not overlap. Sums have the
 * result's type, too. */
static cublasStatus_t judge_epilogue(const cublasLtMatmulDescOpaque_t &p, const Layout &d) {
  if (adds_up(p.epilogue))
    return d.batch == 1 && !refuses_epilogues() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  if (!has_aux(p.epilogue)) return CUBLAS_STATUS_SUCCESS;
  if (p.aux_leading % 8 || p.aux_leading < d.rows) return CUBLAS_STATUS_INVALID_VALUE;
  bool able = d.type == CUDA_R_16BF && d.batch == 1 && !refuses_epilogues();
  return able ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Whether the library can do it. */
static cublasStatus_t judge(const cublasLtMatmulDescOpaque_t &p, const Layout &a, const Layout &b, const Layout &c,
                            const Layout &d, Problem *problem) {
  for (const Layout *l : {&a, &b, &c, &d})
    if (l->rows < 1 || l->columns < 1 || l->leading < l->rows || l->batch < 1 || l->stride < 0)
      return CUBLAS_STATUS_INVALID_VALUE;
  bool over_a = p.transpose_a == CUBLAS_OP_T, over_b = p.transpose_b == CUBLAS_OP_T;
  *problem = {over_a ? a.columns : a.rows, over_b ? b.rows : b.columns, over_a ? a.rows : a.columns};
  if ((over_b ? b.columns : b.rows) != problem->k || d.rows != problem->m || d.columns != problem->n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c.rows != d.rows || c.columns != d.columns || c.type != d.type) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  if (d.batch > 1 && d.stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  bool floats = a.type == CUDA_R_32F && d.type == CUDA_R_32F;
  bool halves = a.type == CUDA_R_16BF && (d.type == CUDA_R_16BF || d.type == CUDA_R_32F);
  if (a.type != b.type || !(floats || halves)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !floats) return CUBLAS_STATUS_NOT_SUPPORTED;
  return judge_epilogue(p, d);
}

static uint64_t hash(uint64_t seed, const void *x, size_t bytes) {
  const unsigned char *at = (const unsigned char *)x;
  for (size_t i = 0; i < bytes; i++) seed = (seed ^ at[i]) * 0x100000001b3u;
  return seed;
}

/* All that an algorithm is chosen for. */
static uint64_t signature(const cublasLtMatmulDescOpaque_t &p, const Layout &a, const Layout &b, const Layout &c,
                          const Layout &d) {
  int64_t numbers[] = {p.compute, p.transpose_a, p.transpose_b, p.epilogue, p.aux_leading};
  uint64_t h = hash(0xcbf29ce484222325u, numbers, sizeof numbers);
  for (const Layout *l : {&a, &b, &c, &d}) {
    int64_t own[] = {l->type, l->rows, l->columns, l->leading, l->batch, l->stride};
    h = hash(h, own, sizeof own);
  }
  return h;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t found[], int *n) {
  Problem problem;
  *n = 0;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = judge(*product, *a, *b, *c, *d, &problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (preference->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE)
    cuda_host_die("cuBLASLt may add up in place, in an order that nobody fixes");
  uint64_t which = signature(*product, *a, *b, *c, *d);
  for (const Algorithm &algorithm : algorithms_offered()) {
    if (*n == most || algorithm_workspace(algorithm) > preference->workspace) continue;
    Chosen chosen = {algorithm, {}, which};
    memcpy(chosen.alignment, preference->alignment, sizeof chosen.alignment);
    found[*n] = {};
    memcpy(&found[*n].algo, &chosen, sizeof chosen);
    found[(*n)++].workspaceSize = algorithm_workspace(algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result) {
  Problem problem;
  Algorithm checked;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  cublasStatus_t status = judge(*product, *a, *b, *c, *d, &problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  memcpy(&checked, algorithm, sizeof checked);
  if (!algorithm_exists(checked)) return CUBLAS_STATUS_NOT_SUPPORTED;
  algorithm_serves(signature(*product, *a, *b, *c, *d), checked);
  *result = {};
  result->workspaceSize = algorithm_workspace(checked);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ----------------------------------------------------------------------------------- */

static float element(const void *x, cudaDataType_t type, int64_t i) {
  return type == CUDA_R_32F ? ((const float *)x)[i] : (float)((const __nv_bfloat16 *)x)[i];
}

/* TF32 keeps ten bits of the mantissa, to the nearest. */
static float rounded(float x, cublasComputeType_t compute) {
  uint32_t u;
  if (compute != CUBLAS_COMPUTE_32F_FAST_TF32) return x;
  memcpy(&u, &x, sizeof u);
  u = (u + 0x0fff + (u >> 13 & 1)) & ~0x1fffu;
  memcpy(&x, &u, sizeof x);
  return x;
}

struct Call {
  cublasLtMatmulDescOpaque_t product;
  Layout a_layout, b_layout, d_layout;
  Problem problem;
  Algorithm algorithm;
  const void *a, *b;
  void *d, *workspace;
  size_t workspace_bytes;
  float alpha, beta;
};

/* Column j of op(x). */
static void read_column(std::vector<float> &to, const Call &call, const void *x, const Layout &l, bool transposed,
                        int64_t batch, int64_t j) {
  int64_t step = transposed ? l.leading : 1, first = batch * l.stride + j * (transposed ? 1 : l.leading);
  for (size_t i = 0; i < to.size(); i++)
    to[i] = rounded(element(x, l.type, first + (int64_t)i * step), call.product.compute);
}

/* GELU by tanh, in double, and its slope. */
static double gelu(double x, double *slope) {
  double inner = 0.79788456080286536 * (x + 0.044715 * x * x * x), t = tanh(inner);
  *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286536 * (1 + 3 * 0.044715 * x * x);
  return 0.5 * x * (1 + t);
}

/* Of element i of column j. */
static float after(const Call &call, float x, int64_t i, int64_t j) {
  double slope;
  if (!has_aux(call.product.epilogue)) return x;
  __nv_bfloat16 *aux = (__nv_bfloat16 *)call.product.aux + j * call.product.aux_leading + i;
  if (call.product.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    gelu((double)(float)*aux, &slope);
    return (float)(x * slope);
  }
  *aux = __nv_bfloat16(x);
  return (float)gelu((double)x, &slope);
}

/* d's column j: the sum over p of op(a)'s columns, of each part of k backwards, then of the parts. */
static void make_column(const Call &call, const std::vector<float> &a, int64_t batch, int64_t j) {
  size_t m = (size_t)call.problem.m, k = (size_t)call.problem.k, parts = (size_t)call.algorithm.split_k;
  std::vector<float> b(k), sum(m), all(m);
  read_column(b, call, call.b, call.b_layout, call.product.transpose_b == CUBLAS_OP_T, batch, j);
  for (size_t part = parts; part-- > 0; std::fill(sum.begin(), sum.end(), 0.0f)) {
    for (size_t p = k * (part + 1) / parts; p-- > k * part / parts;) {
      const float *column = &a[p * m];
      for (size_t i = 0; i < m; i++) sum[i] += column[i] * b[p];
    }
    for (size_t i = 0; i < m; i++) all[i] += sum[i];
  }
  for (size_t i = 0; i < m; i++) {
    int64_t at = batch * call.d_layout.stride + j * call.d_layout.leading + (int64_t)i;
    float result = call.alpha * all[i];
    if (adds_bias(call.product.epilogue)) result += element(call.product.bias, call.d_layout.type, (int64_t)i);
    if (call.beta != 0) result += call.beta * element(call.d, call.d_layout.type, at);
    result = after(call, result, (int64_t)i, j);
    if (call.d_layout.type == CUDA_R_32F)
      ((float *)call.d)[at] = result;
    else
      ((__nv_bfloat16 *)call.d)[at] = __nv_bfloat16(result);
  }
}

/* The sums over k of op(a)'s rows, or of op(b)'s columns, backwards, in place of the bias. */
static void add_up_factor(const Call &call, const std::vector<float> &a) {
  size_t m = (size_t)call.problem.m, k = (size_t)call.problem.k;
  bool of_a = call.product.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  std::vector<float> b(k);
  for (int64_t i = 0; i < (of_a ? call.problem.m : call.problem.n); i++) {
    float sum = 0;
    if (!of_a) read_column(b, call, call.b, call.b_layout, call.product.transpose_b == CUBLAS_OP_T, 0, i);
    for (size_t p = k; p-- > 0;) sum += of_a ? a[p * m + (size_t)i] : b[p];
    if (call.d_layout.type == CUDA_R_32F)
      ((float *)call.product.bias)[i] = sum;
    else
      ((__nv_bfloat16 *)call.product.bias)[i] = __nv_bfloat16(sum);
  }
}

static void multiply(const Call &call) {
  size_t m = (size_t)call.problem.m, k = (size_t)call.problem.k;
  std::vector<float> a(m * k), column(m);
  if (call.workspace_bytes) cuda_host_poison(call.workspace, call.workspace_bytes);
  for (int64_t batch = 0; batch < call.d_layout.batch; batch++) {
    for (size_t p = 0; p < k; p++) {
      read_column(column, call, call.a, call.a_layout, call.product.transpose_a == CUBLAS_OP_T, batch, (int64_t)p);
      memcpy(&a[p * m], column.data(), m * sizeof(float));
    }
    for (int64_t j = 0; j < call.problem.n; j++) make_column(call, a, batch, j);
  }
  if (adds_up(call.product.epilogue)) add_up_factor(call, a);
}

/* CUBLASLT_HOST_ERR=NUMBER:RANK: of that product of that rank a bit of the mantissa of element 16 is wrong. */
static void err_once(const Call &call) {
  static const char *text = getenv("CUBLASLT_HOST_ERR"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  static const long number = text ? atol(text) : 0;
  static long products;
  if (++products != number || atoi(strchr(text, ':') + 1) != atoi(rank ? rank : "0")) return;
  const size_t size = call.d_layout.type == CUDA_R_32F ? 4 : 2;
  static_cast<unsigned char *>(call.d)[16 * size + size - 2] ^= 0x10;
  fprintf(stderr, "cuda_host: product %ld errs\n", number);
}

static void check_operand(const void *x, const Layout &l, uint32_t alignment, const char *what) {
  size_t size = l.type == CUDA_R_32F ? 4 : 2;
  int64_t elements = (l.batch - 1) * l.stride + (l.columns - 1) * l.leading + l.rows;
  cuda_host_must_be_device(x, (size_t)elements * size, what);
  if ((uintptr_t)x % (alignment < size ? size : alignment))
    cuda_host_die("%s stands at %p, not at a multiple of the %u bytes that were promised", what, x, alignment);
}

/* The first run of an algorithm loads its kernel, which may not happen while a graph is recorded. What adds to its
 * result may be another kernel than what writes it. */
static void must_be_loaded(uint64_t problem, const Algorithm &algorithm, bool adds, cudaStream_t stream) {
  static std::set<std::tuple<uint64_t, Algorithm, bool>> loaded;
  cudaStreamCaptureStatus status;
  cudaStreamIsCapturing(stream, &status);
  if (loaded.insert({problem, algorithm, adds}).second && status != cudaStreamCaptureStatusNone)
    cuda_host_die("cublasLtMatmul loads a kernel while a graph is recorded: the product has not run before");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  Call call = {*product, *a_layout, *b_layout, *d_layout, {}, {}, a, b, d, workspace, workspace_bytes, 0, 0};
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  cublasStatus_t status = judge(*product, *a_layout, *b_layout, *c_layout, *d_layout, &call.problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Chosen chosen;
  memcpy(&chosen, algorithm, sizeof chosen);
  call.algorithm = chosen.algorithm;
  uint64_t which = signature(*product, *a_layout, *b_layout, *c_layout, *d_layout);
  if (!algorithm_is_for(which, chosen))
    cuda_host_die("cublasLtMatmul is given an algorithm that was not found for this product");
  if (algorithm_workspace(call.algorithm) > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes && (uintptr_t)workspace % 256)
    cuda_host_die("cublasLtMatmul's workspace stands at %p, not at a multiple of 256 bytes", workspace);
  if (c != d) cuda_host_die("cublasLtMatmul reads c beside d, which the stand-in does not do");
  check_operand(a, *a_layout, chosen.alignment[0], "cublasLtMatmul's A");
  check_operand(b, *b_layout, chosen.alignment[1], "cublasLtMatmul's B");
  check_operand(c, *c_layout, chosen.alignment[2], "cublasLtMatmul's C");
  check_operand(d, *d_layout, chosen.alignment[3], "cublasLtMatmul's D");
  if (workspace_bytes) cuda_host_must_be_device(workspace, workspace_bytes, "cublasLtMatmul's workspace");
  int64_t n = product->epilogue == CUBLASLT_EPILOGUE_BGRADB ? d_layout->columns : d_layout->rows;
  Layout bias = {d_layout->type, n, 1, n, 1, 0};
  if (adds_bias(product->epilogue) || adds_up(product->epilogue))
    check_operand(product->bias, bias, chosen.alignment[3],
                  adds_up(product->epilogue) ? "cublasLtMatmul's sums" : "cublasLtMatmul's bias");
  Layout aux = {d_layout->type, d_layout->rows, d_layout->columns, product->aux_leading, 1, 0};
  if (has_aux(product->epilogue)) check_operand(product->aux, aux, 16, "cublasLtMatmul's auxiliary matrix");
  memcpy(&call.alpha, alpha, sizeof call.alpha);
  memcpy(&call.beta, beta, sizeof call.beta);
  must_be_loaded(which, call.algorithm, call.beta != 0, stream);
  cuda_host_enqueue(stream, {"cublasLtMatmul", [call, which] {
                               multiply(call);
                               err_once(call);
                               cuda_host_spend(algorithm_seconds(which, call.algorithm));
                             }});
  return CUBLAS_STATUS_SUCCESS;
}
