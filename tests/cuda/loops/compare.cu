/* Runs a model's fused loops in C and in CUDA on the same arrays: what they write must be the same bits where
 * every element is computed by itself, else close enough for sums in another order. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/pd_cuda.h"
#include "loops.h"

cudaStream_t pd_stream;
const struct pd_now *pd_now;
struct pd_run pd;

void pd_cuda_check(cudaError_t status, const char *what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  exit(1);
}

static void copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  pd_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, pd_stream), "a copy");
}

int64_t pd_following(int64_t) { return LOOPS_FOLLOWING; }

/* ---- arrays ------------------------------------------------------------------------------------ */

struct Array {
  std::vector<float> c; /* tokens have their bits here */
  std::vector<char> cuda;
  void *device;
};

static pd_bf16 narrow(float x) { return __float2bfloat16_rn(x); }

/* Values near 1, so that no difference of sums cancels; or of both signs. */
static Array make(const loop_array &a, const loop_array &on_device, bool positive, std::mt19937 &random) {
  Array x;
  size_t n = (size_t)a.elements, size = on_device.type == LOOPS_BF16 ? 2 : 4;
  x.c.resize(n);
  x.cuda.resize(n * size);
  for (size_t i = 0; i < n; i++) {
    float value = (float)(random() >> 8) * 0x1p-24f + 0.5f;
    int32_t token = (int32_t)(random() % 3);
    if (!positive) value = (value - 1.0f) * 4.0f;
    pd_bf16 rounded = narrow(value);
    if (on_device.type == LOOPS_BF16) value = __bfloat162float(rounded);
    memcpy(&x.c[i], a.type == LOOPS_TOKEN ? (const void *)&token : &value, 4);
    memcpy(&x.cuda[i * size], on_device.type == LOOPS_BF16 ? (const void *)&rounded : &x.c[i], size);
  }
  pd_cuda_check(cudaMalloc(&x.device, x.cuda.size()), "cudaMalloc");
  return x;
}

static float fetched(const Array &x, const loop_array &a, size_t i) {
  pd_bf16 b;
  float f;
  memcpy(a.type == LOOPS_BF16 ? (void *)&b : &f, &x.cuda[i * (a.type == LOOPS_BF16 ? 2 : 4)],
         a.type == LOOPS_BF16 ? 2 : 4);
  return a.type == LOOPS_BF16 ? __bfloat162float(b) : f;
}

/* ---- comparing --------------------------------------------------------------------------------- */

/* Relative to the largest number of the array or, where that is less, of what the loop is given: what is left of
 * rounding (layer_norm's mean of a row less its mean) is as good as the sums it comes from. */
static bool close(float got, float want, bool exact, bool bf16, double largest, double given) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  float rounded = bf16 ? __bfloat162float(narrow(want)) : want;
  if (got == rounded) return true;
  if (exact || std::isinf(rounded)) return false;
  double share = bf16 ? 2e-5 + 0x1p-7 : 2e-5;
  return std::abs((double)got - rounded) <= 2e-6 * std::max(largest, given) + share * std::abs((double)rounded);
}

static double largest_of(const loop_array &a, const Array &x) {
  double largest = 0;
  for (size_t i = 0; a.type != LOOPS_TOKEN && i < x.c.size(); i++)
    if (std::isfinite(x.c[i])) largest = std::max(largest, std::abs((double)x.c[i]));
  return largest;
}

static bool same(const loop &l, const loop_array &a, const Array &x, double given) {
  double largest = largest_of(a, x);
  for (size_t i = 0; i < x.c.size(); i++) {
    float got = fetched(x, a, i);
    bool good = a.type != LOOPS_TOKEN && a.written
                    ? close(got, x.c[i], l.exact, a.type == LOOPS_BF16, largest, given)
                    : !memcmp(&got, &x.c[i], 4);
    if (!good) {
      fprintf(stderr, "%s: %s[%zu] is %.9g, not %.9g (the largest is %g)\n", l.name, a.name, i, (double)got,
              (double)x.c[i], largest);
      return false;
    }
  }
  return true;
}

static bool compare(const loop &c, const loop &cuda, bool first, bool positive) {
  std::mt19937 random(1234);
  std::vector<Array> arrays;
  std::vector<void *> host, device;
  double given = 0;
  for (int i = 0; i < c.n; i++) {
    arrays.push_back(make(c.array[i], cuda.array[i], positive, random));
    given = std::max(given, largest_of(c.array[i], arrays.back()));
  }
  for (Array &x : arrays) {
    copy(x.device, x.cuda.data(), x.cuda.size(), cudaMemcpyHostToDevice);
    host.push_back(x.c.data());
    device.push_back(x.device);
  }
  std::vector<float> scratch((size_t)c.scratch / 4 + 1);
  void *device_scratch;
  pd_cuda_check(cudaMalloc(&device_scratch, (size_t)cuda.scratch + 4), "cudaMalloc");
  c.run(first, host.data(), (char *)scratch.data());
  cuda.run(first, device.data(), (char *)device_scratch);
  bool good = true;
  for (int i = 0; i < c.n; i++) {
    Array &x = arrays[(size_t)i];
    copy(x.cuda.data(), x.device, x.cuda.size(), cudaMemcpyDeviceToHost);
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "what the loop does");
    good = good && same(cuda, cuda.array[i], x, given);
    cudaFree(x.device);
  }
  cudaFree(device_scratch);
  return good;
}

int main() {
  struct pd_now now = {.seed = LOOPS_SEED,
                       .first_sample = LOOPS_FIRST_SAMPLE,
                       .following = LOOPS_FOLLOWING,
                       .shard = 0,
                       .training = true};
  struct pd_now *at;
  int bad = n_c_loops != n_cuda_loops;
  pd.seed = LOOPS_SEED;
  pd.training = true;
  pd_cuda_check(cudaStreamCreate(&pd_stream), "cudaStreamCreate");
  pd_cuda_check(cudaMalloc(&at, sizeof *at), "cudaMalloc");
  copy(at, &now, sizeof now, cudaMemcpyHostToDevice);
  pd_now = at;
  for (int i = 0; i < n_c_loops && !bad; i++)
    for (int how = 0; how < 4; how++) bad += !compare(c_loops[i], cuda_loops[i], how % 2, how / 2);
  cudaFree(at);
  printf("%d loops\n", n_c_loops);
  return bad > 0 || n_c_loops == 0;
}
