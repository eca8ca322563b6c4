/* The choice of cuBLASLt algorithms: the plan's, if `pdc profile` has measured such products on this GPU with this
 * library version; else the first of the library's heuristic. Plans select algorithms by a product's sizes and
 * types alone, so that a product is bit-identical on every stage of every plan. Sums split over k use the
 * workspace in a fixed order, never c. Algorithms that the library refuses are counted, and noted once. */
#include "algorithms.h"
#include "run/run.h"
#include "measured.h"

#include <algorithm>
#include <cstdio>
#include <vector>

struct Measured {
  std::string product;
  pd_algorithm algorithm;
  double seconds,
      first_seconds; /* seconds of one product, and with the first listed algorithm; 0: none is better */
};

static struct {
  struct {
    const pd_algorithm *of;
    int n;
    bool elsewhere; /* measured on another device or version, and ignored */
    bool noted;
  } planned;
  bool timing;
  std::vector<Measured *> measured, untold;
} choice;

static void check(cublasStatus_t status, const char *what) {
  if (status != CUBLAS_STATUS_SUCCESS) pd_fail("cuBLASLt cannot %s: %s", what, cublasLtGetStatusString(status));
}

/* ---- an algorithm in numbers ---------------------------------------------------------------------- */

/* All attributes except the id. */
static const struct {
  cublasLtMatmulAlgoConfigAttributes_t which;
  uint32_t pd_algorithm::*number;
  size_t bytes;
} attributes[] = {
    {CUBLASLT_ALGO_CONFIG_TILE_ID, &pd_algorithm::tile, sizeof(uint32_t)},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, &pd_algorithm::stages, sizeof(uint32_t)},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &pd_algorithm::split_k, sizeof(int32_t)},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &pd_algorithm::reduction, sizeof(uint32_t)},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &pd_algorithm::swizzle, sizeof(uint32_t)},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &pd_algorithm::custom, sizeof(uint32_t)},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &pd_algorithm::inner_shape, sizeof(uint16_t)},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &pd_algorithm::cluster_shape, sizeof(uint16_t)},
};

static bool get(const cublasLtMatmulAlgo_t &from, cublasLtMatmulAlgoConfigAttributes_t which, uint32_t *to,
                size_t bytes) {
  size_t written;
  *to = 0; /* the library may write only two of its bytes */
  return cublasLtMatmulAlgoConfigGetAttribute(&from, which, to, bytes, &written) == CUBLAS_STATUS_SUCCESS;
}

static bool describe(const cublasLtMatmulAlgo_t &from, pd_algorithm *to) {
  bool good = get(from, CUBLASLT_ALGO_CONFIG_ID, &to->id, sizeof(int32_t));
  for (const auto &x : attributes) good = good && get(from, x.which, &(to->*x.number), x.bytes);
  return good;
}

/* False: the library does not support this algorithm for the product. */
static bool make(const pd_lt_product &p, const pd_algorithm &from, cublasLtMatmulAlgo_t *to) {
  cublasLtMatmulHeuristicResult_t found = {};
  bool good = cublasLtMatmulAlgoInit(p.library, p.compute, CUDA_R_32F, p.factors, p.factors, p.result, p.result,
                                     static_cast<int>(from.id), to) == CUBLAS_STATUS_SUCCESS;
  for (const auto &x : attributes) {
    uint32_t number = 0; /* sets only attributes with other values, because algorithms lack some attributes */
    if (!good || (get(*to, x.which, &number, x.bytes) && number == from.*x.number)) continue;
    good = cublasLtMatmulAlgoConfigSetAttribute(to, x.which, &(from.*x.number), x.bytes) == CUBLAS_STATUS_SUCCESS;
  }
  good = good &&
         cublasLtMatmulAlgoCheck(p.library, p.product, p.b, p.a, p.c, p.c, to, &found) == CUBLAS_STATUS_SUCCESS;
  return good && found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= p.workspace;
}

/* True if the order of additions depends only on the product. */
static bool keeps_order(const pd_algorithm &a) {
  return a.reduction == CUBLASLT_REDUCTION_SCHEME_NONE || a.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/* TF32 operands always use tensor cores: on an H200 cuBLASLt 13.1 names no tensor operation for such products,
 * which run three times as fast as those in f32. An algorithm without flags counts as one that uses them. */
static bool uses_tensor_cores(const cublasLtMatmulAlgo_t &algorithm) {
  uint64_t flags;
  size_t written;
  bool known = cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                                                 sizeof flags, &written) == CUBLAS_STATUS_SUCCESS;
  const uint64_t tensor = CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
  return !known || (flags & tensor) || !(flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA);
}

/* ---- the library's own choice ---------------------------------------------------------------------- */

template <typename T>
static void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value), "plan a product");
}

/* Fills `list` with up to `most` algorithms, expected fastest first; returns their number. */
static int list_algorithms(const pd_lt_product &p, int most, cublasLtMatmulHeuristicResult_t *list) {
  cublasLtMatmulPreference_t preference;
  int n = 0, good = 0;
  check(cublasLtMatmulPreferenceCreate(&preference), "plan a product");
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p.workspace);
  prefer<uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(preference, which, p.alignment);
  cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(p.library, p.product, p.b, p.a, p.c, p.c, preference, most, list, &n);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "plan a product");
  for (int i = 0; i < n; i++)
    if (list[i].state == CUBLAS_STATUS_SUCCESS) list[good++] = list[i];
  return good;
}

/* ---- the plan's ------------------------------------------------------------------------------------- */

void pd_use_algorithms(const struct pd_algorithm *of, int n, const char *device, int64_t version) {
  const std::string here = pd_this_device();
  int64_t version_here = static_cast<int64_t>(cublasLtGetVersion());
  choice.planned = {of, n, here != device || version_here != version, false};
  if (!choice.planned.elsewhere) return;
  pd_note(
      "the plan's matrix product algorithms are for cuBLASLt %lld on '%s', but this is %lld on '%s': the library "
      "chooses its own",
      (long long)version, device, (long long)version_here, here.c_str());
  choice.planned.noted = true;
}

static bool take_planned(const pd_lt_product &p, cublasLtMatmulAlgo_t *to) {
  auto same = [&](const pd_algorithm &a) { return p.name == a.product; };
  const pd_algorithm *end = choice.planned.of + choice.planned.n, *a = std::find_if(choice.planned.of, end, same);
  if (a == end) return false;
  if (!choice.planned.elsewhere && make(p, *a, to)) return true;
  pd_counts.other_algorithms++;
  if (!choice.planned.noted)
    pd_note("cuBLASLt refuses the plan's algorithm for products of %s and chooses its own", a->product);
  choice.planned.noted = true;
  return false;
}

/* ---- the fastest ------------------------------------------------------------------------------------ */

void pd_time_algorithms(bool on) { choice.timing = on; }

/* What is timed. */
struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  pd_algorithm numbers; /* parameters; none for the first listed algorithm */
  double seconds;
};

/* Of each. */
static void time_all(const pd_lt_run &run, std::vector<Candidate> *candidates) {
  std::vector<std::function<void()>> runs;
  for (const Candidate &c : *candidates) runs.push_back([&run, &c] { run(c.algorithm); });
  std::vector<double> seconds = pd_time_in_turns(runs);
  for (size_t i = 0; i < seconds.size(); i++) (*candidates)[i].seconds = seconds[i];
}

/* Candidates: the first listed algorithm unchanged, and each usable one as a plan would set it. */
static std::vector<Candidate> candidates_of(const pd_lt_product &p) {
  enum { MOST = 8 };
  cublasLtMatmulHeuristicResult_t list[MOST] = {};
  std::vector<Candidate> candidates;
  int n = list_algorithms(p, MOST, list);
  if (n) candidates.push_back({list[0].algo, {}, 0});
  for (int i = 0; i < n; i++) {
    Candidate c = {};
    bool usable = describe(list[i].algo, &c.numbers) && keeps_order(c.numbers) &&
                  make(p, c.numbers, &c.algorithm) && (!p.on_tensor_cores || uses_tensor_cores(c.algorithm));
    if (usable) candidates.push_back(c);
  }
  return candidates;
}

/* Replaces the first usable algorithm only by one that is faster beyond the noise; keeps the first listed one if
 * it is the fastest. */
static void measure(const pd_lt_product &p, const pd_lt_run &run, Measured *best) {
  std::vector<Candidate> candidates = candidates_of(p);
  if (candidates.size() < 2) return;
  time_all(run, &candidates);
  auto quicker = [](const Candidate &a, const Candidate &b) { return a.seconds < b.seconds; };
  const Candidate *first = &candidates[1],
                  *fastest = &*std::min_element(candidates.begin() + 1, candidates.end(), quicker);
  if (fastest->seconds > PD_FASTER * first->seconds) fastest = first;
  if (fastest->seconds * PD_FASTER > candidates[0].seconds) return;
  best->algorithm = fastest->numbers;
  best->seconds = fastest->seconds;
  best->first_seconds = candidates[0].seconds;
}

static bool take_fastest(const pd_lt_product &p, const pd_lt_run &run, cublasLtMatmulAlgo_t *to) {
  auto same = [&](const Measured *m) { return m->product == p.name; };
  auto at = std::find_if(choice.measured.begin(), choice.measured.end(), same);
  Measured *m = at == choice.measured.end() ? new Measured{p.name, {}, 0, 0} : *at;
  if (at == choice.measured.end()) {
    measure(p, run, m);
    choice.measured.push_back(m);
  }
  if (!(m->seconds > 0) || !make(p, m->algorithm, to)) return false;
  choice.untold.push_back(m);
  return true;
}

void pd_tell_algorithms(bool json) {
  const char *plain = "algorithm %u %u %u %u %u %u %u %u %u %.9g %.9g %s\n";
  const char *object =
      "{\"algorithm\": [%u, %u, %u, %u, %u, %u, %u, %u, %u], \"seconds\": %.9g, \"first_seconds\": %.9g, "
      "\"product\": \"%s\"}\n";
  for (const Measured *m : choice.untold) {
    const pd_algorithm &a = m->algorithm;
    printf(json ? object : plain, a.id, a.tile, a.stages, a.split_k, a.reduction, a.swizzle, a.custom,
           a.inner_shape, a.cluster_shape, m->seconds, m->first_seconds, m->product.c_str());
  }
  choice.untold.clear();
}

void pd_tell_library(void) {
  printf("library %lld %s\n", static_cast<long long>(cublasLtGetVersion()), pd_this_device().c_str());
}

/* ---- the choice ------------------------------------------------------------------------------------- */

bool pd_choose_algorithm(const pd_lt_product &p, const pd_lt_run &run, cublasLtMatmulAlgo_t *algorithm) {
  if (!(choice.timing ? take_fastest(p, run, algorithm) : take_planned(p, algorithm))) {
    cublasLtMatmulHeuristicResult_t first = {};
    if (!list_algorithms(p, 1, &first)) return false;
    *algorithm = first.algo;
  }
  if (p.on_tensor_cores && !uses_tensor_cores(*algorithm)) {
    pd_counts.plain_products++;
    pd_note("products of %s are slow, without tensor cores: cuBLASLt has no other algorithm", p.name.c_str());
  }
  return true;
}
