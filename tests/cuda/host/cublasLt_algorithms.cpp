/* The algorithms of the stand-in for cuBLASLt. There are five, which differ in every attribute that an algorithm has, in
 * the order of their sums, and in the time that they take: of the first four any may be the fastest, which depends on the
 * problem. Whoever sets one attribute otherwise has no algorithm. */
#include "cublasLt_algorithms.h"
#include "host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

static const Algorithm halves = {1, 15, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 0, 7, 0, 0};
static const Algorithm whole = {1, 20, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 2, 9, 0, 0};
static const Algorithm clusters = {6, 0x1234, 3, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 0xfedcba98, 35, 3, 17};
static const Algorithm quarters = {6, 18, 4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 1, 1, 35, 0, 2};
/* Quick, but not to be used: its sums have no fixed order, or it is not on tensor cores. */
static const Algorithm in_place = {7, 20, 5, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0, 0, 7, 0, 0};
static const Algorithm plain = {8, 11, 6, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 0, 0, 0, 0};

static bool environment_says(const char *name, const char *what) {
  const char *said = getenv(name);
  return said && !strcmp(said, what);
}

std::vector<Algorithm> algorithms_offered() {
  std::vector<Algorithm> all = {halves, whole, clusters, quarters};
  if (environment_says("CUBLASLT_HOST_OFFER", "in_place")) all.push_back(in_place);
  if (environment_says("CUBLASLT_HOST_OFFER", "plain too")) all.push_back(plain);
  if (environment_says("CUBLASLT_HOST_OFFER", "plain")) all = {plain};
  return all;
}

bool algorithm_exists(const Algorithm &a) {
  if (environment_says("CUBLASLT_HOST_REFUSE", "algorithms")) return false;
  for (const Algorithm &known : {halves, whole, clusters, quarters, in_place, plain})
    if (a == known) return true;
  return false;
}

uint64_t algorithm_workspace(const Algorithm &a) { return a.split_k > 1 ? 2048u * (uint64_t)a.split_k : 0; }

double algorithm_seconds(uint64_t problem, const Algorithm &a) {
  static const Algorithm quickest_first[] = {whole, clusters, quarters, halves};
  if (a == in_place || a == plain) return 0.05;
  auto at = std::find(std::begin(quickest_first), std::end(quickest_first), a) - std::begin(quickest_first);
  return 0.1 + 0.05 * (double)(((uint64_t)at + problem % 4) % 4);
}

/* ---- what serves which problem -------------------------------------------------------------------- */

static auto &served = *new std::set<std::pair<uint64_t, Algorithm>>;

void algorithm_serves(uint64_t problem, const Algorithm &a) { served.insert({problem, a}); }
bool algorithm_is_for(uint64_t problem, const Chosen &a) {
  return a.problem ? a.problem == problem : served.count({problem, a.algorithm}) > 0;
}

/* ---- attributes ------------------------------------------------------------------------------------ */

size_t cublasLtGetVersion(void) {
  const char *version = getenv("CUBLASLT_HOST_VERSION");
  return version ? (size_t)atol(version) : 130000;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t, cudaDataType_t scale,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                      int id, cublasLtMatmulAlgo_t *algorithm) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (id != 1 && (id < 6 || id > 8)) return CUBLAS_STATUS_INVALID_VALUE;
  if (a != b || c != d || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  Chosen made = {{id, 0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 0, 0, 0}, {1, 1, 1, 1}, 0};
  static_assert(sizeof made <= sizeof *algorithm);
  *algorithm = {};
  memcpy(algorithm, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}

/* The attribute's place; NULL: it has another size, or there is none. */
static void *attribute(Algorithm &a, cublasLtMatmulAlgoConfigAttributes_t which, size_t bytes) {
  struct {
    void *at;
    size_t bytes;
  } places[] = {{&a.id, 4},     {&a.tile, 4},   {&a.split_k, 4},     {&a.reduction, 4},    {&a.swizzle, 4},
                {&a.custom, 4}, {&a.stages, 4}, {&a.inner_shape, 2}, {&a.cluster_shape, 2}};
  return (size_t)which < sizeof places / sizeof *places && places[which].bytes == bytes ? places[which].at
                                                                                        : nullptr;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, void *value,
                                                    size_t bytes, size_t *written) {
  Algorithm a;
  memcpy(&a, algorithm, sizeof a);
  const void *at = attribute(a, which, bytes);
  if (!at) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(value, at, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, const void *value,
                                                    size_t bytes) {
  Algorithm a;
  memcpy(&a, algorithm, sizeof a);
  void *at = attribute(a, which, bytes);
  if (!at || which == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(at, value, bytes);
  memcpy(algorithm, &a, sizeof a);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t which, void *value,
                                                 size_t bytes, size_t *written) {
  Algorithm a;
  memcpy(&a, algorithm, sizeof a);
  uint64_t flags = a.id == 8 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA : CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA;
  if (which != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS || bytes != sizeof flags) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(value, &flags, sizeof flags);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
