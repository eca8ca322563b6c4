/* exp and sigmoid of programs in bf16 (runtime/cuda/pd_fast.h): their errors against the C library's in double, and what
 * they make of infinities, NaN and numbers too small; what pd_load makes of every bf16, and pd_larger of numbers that are
 * none and of zeros (runtime/cuda/pd_loops.h). On tests/cuda/host the instructions are exact: what they may err by on
 * a GPU is left free. */
#define PD_FAST
#include "pd_loops.h"
#include "test.h"

static const double INSTRUCTION = 0x1p-22;

static __global__ void both(const float *in, float *out, int n) {
  for (int i = (int)threadIdx.x; i < n; i += 32) {
    out[i] = pd_exp(in[i]);
    out[n + i] = pd_sigmoid(in[i]);
  }
}

static void expect(bool ok, const char *what, double x, double got) {
  if (ok) return;
  printf("FAIL %s(%g) is %.9g\n", what, x, got);
  failures++;
}

/* Numbers along [-88, 88], denser towards 0 on either side. */
static std::vector<float> arguments(void) {
  std::vector<float> x;
  for (int i = -4000; i <= 4000; i++) x.push_back(88.0f * (float)i / 4000.0f);
  for (float y = 88.0f; y > 1e-6f; y *= 0.97f) x.push_back(y), x.push_back(-y);
  return x;
}

static std::vector<float> run(const std::vector<float> &x) {
  Device in(x, false), out((int64_t)x.size() * 2, false);
  PD_LAUNCH(both, 1, 32, 0, pd_stream, (const float *)in.at(0), (float *)out.at(0), (int)x.size());
  return out.fetch();
}

static __global__ void widen(PD_READS(pd_bf16, 65536) from, PD_WRITES(float, 65536) to) {
  const int j0 = 8 * ((int)blockIdx.x * 32 + (int)threadIdx.x);
  pd_store(to, j0, pd_load<8>(from, j0));
}

/* Bit by bit: a bf16 is the upper half of a float. One NaN is tests/cuda/host's mark of what nobody has written. */
static void test_load(void) {
  std::vector<uint16_t> in(65536);
  for (size_t i = 0; i < in.size(); i++) in[i] = i == 0x7fd1 ? 0 : (uint16_t)i;
  void *from, *to;
  pd_cuda_check(cudaMalloc(&from, 65536 * 2), "get memory");
  pd_cuda_check(cudaMalloc(&to, 65536 * 4), "get memory");
  pd_cuda_check(cudaMemcpyAsync(from, in.data(), 65536 * 2, cudaMemcpyHostToDevice, pd_stream), "copy");
  PD_LAUNCH(widen, 256, 32, 0, pd_stream, (const pd_bf16 *)from, (float *)to);
  std::vector<uint32_t> out(65536);
  pd_cuda_check(cudaMemcpyAsync(out.data(), to, 65536 * 4, cudaMemcpyDeviceToHost, pd_stream), "copy");
  pd_cuda_check(cudaStreamSynchronize(pd_stream), "wait");
  for (size_t i = 0; i < in.size(); i++) expect(out[i] == (uint32_t)in[i] << 16, "load", (double)i, out[i]);
  pd_cuda_check(cudaFree(from), "free memory");
  pd_cuda_check(cudaFree(to), "free memory");
}

static void test_larger(void) {
  expect(isnan(pd_larger(NAN, 1)) && isnan(pd_larger(1, NAN)), "larger of NaN and", 1, 0);
  expect(!signbit(pd_larger(-0.0f, 0.0f)) && !signbit(pd_larger(0.0f, -0.0f)), "larger of zeros", 0, 0);
  expect(signbit(pd_larger(-0.0f, -0.0f)), "larger of negative zeros", 0, 0);
  expect(pd_larger(-INFINITY, -3) == -3 && pd_larger(2, 1) == 2, "larger", 2, pd_larger(2, 1));
}

int main() {
  pd_cuda_check(cudaStreamCreate(&pd_stream), "create a stream");
  test_load();
  test_larger();
  std::vector<float> x = arguments(), y = run(x);
  size_t n = x.size();
  double largest = 0;
  for (size_t i = 0; i < n; i++) {
    double e = exp((double)x[i]), s = 1 / (1 + exp(-(double)x[i]));
    double allowed = (fabsf(x[i]) <= 8 ? 0x1p-20 : 0x1p-17), of_exp = fabs((double)y[i] / e - 1);
    bool small = e < 0x1p-126, flat = s < 0x1p-126;
    expect(small ? y[i] == 0 : of_exp <= allowed - INSTRUCTION, "exp", x[i], y[i]);
    expect(flat || fabs((double)y[n + i] / s - 1) <= allowed - 2 * INSTRUCTION + 0x1p-24, "sigmoid", x[i],
           y[n + i]);
    largest = of_exp > largest && !small ? of_exp : largest;
  }
  expect(largest > 0x1p-20, "the largest error of exp", 0, largest); /* or the arguments show nothing */
  std::vector<float> limits = run({INFINITY, -INFINITY, NAN, 0, 200, -200});
  const float e[] = {INFINITY, 0, NAN, 1, INFINITY, 0}, s[] = {1, 0, NAN, 0.5f, 1, 0};
  for (size_t i = 0; i < 6; i++) {
    expect(limits[i] == e[i] || (isnan(e[i]) && isnan(limits[i])), "limit of exp", (double)i, limits[i]);
    expect(limits[6 + i] == s[i] || (isnan(s[i]) && isnan(limits[6 + i])), "limit of sigmoid", (double)i,
           limits[6 + i]);
  }
  return failures > 0;
}
