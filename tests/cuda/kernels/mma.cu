/* What runtime/cuda/pd_mma.h says of its instructions, element by element. On tests/cuda/host this tests their
 * model; on a GPU, whether the model is right. */
#include "pd_mma.h"
#include "test.h"

#include <functional>

static void expect(bool ok, const char *what, int i) {
  if (ok) return;
  printf("FAIL %s, element %d\n", what, i);
  failures++;
}

/* Runs a kernel of one warp on device copies of x and of `n` floats that it writes; returns these. */
static std::vector<float> run(const std::vector<float> &x, bool bf16, int64_t n,
                              const std::function<void(const void *, float *)> &launch) {
  Device in(x, bf16), out(n, false);
  launch(in.at(0), (float *)out.at(0));
  return out.fetch();
}

/* in: a[16][16], b[16][8] in bf16; out: d[16][8] = 1 + a b. */
static __global__ void product(const pd_bf16 *in, float *out) {
  int group = (int)threadIdx.x / 4, pair = (int)threadIdx.x % 4 * 2;
  const pd_bf16 *b_at = in + 256;
  uint32_t a[4], b[2];
  float d[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; i++) {
    const pd_bf16 *at = in + (group + i % 2 * 8) * 16 + pair + i / 2 * 8;
    a[i] = pd_pack_bf16(__bfloat162float(at[0]), __bfloat162float(at[1]));
  }
  for (int i = 0; i < 2; i++) {
    const pd_bf16 *at = b_at + (pair + 8 * i) * 8 + group;
    b[i] = pd_pack_bf16(__bfloat162float(at[0]), __bfloat162float(at[8]));
  }
  pd_mma(d, a, b);
  for (int i = 0; i < 4; i++) out[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

static void test_product() {
  std::vector<float> x = random_floats(256 + 128);
  for (float &e : x) e = rounded(e);
  auto launch = [](const void *in, float *out) {
    PD_LAUNCH(product, 1, 32, 0, pd_stream, (const pd_bf16 *)in, out);
  };
  std::vector<float> d = run(x, true, 128, launch);
  for (int i = 0; i < 128; i++) {
    double sum = 1;
    for (int k = 0; k < 16; k++) sum += (double)x[(size_t)(i / 8 * 16 + k)] * x[(size_t)(256 + k * 8 + i % 8)];
    expect(fabs(d[(size_t)i] - sum) < 1e-5, "product", i);
  }
}

/* in: [32][8], row r that of lane r; out: [lane][register][low, high]. */
template <bool TRANSPOSED> static __global__ void matrices(const pd_bf16 *in, float *out) {
  PD_SHARED(pd_bf16, tile);
  int lane = (int)threadIdx.x;
  pd_copy16(tile + 16 * lane, in + 8 * lane); /* rows need not follow each other */
  __syncwarp();
  uint32_t x[4];
  if (TRANSPOSED)
    pd_ldmatrix_transposed(x, tile + 16 * lane);
  else
    pd_ldmatrix(x, tile + 16 * lane);
  for (int i = 0; i < 8; i++) out[8 * lane + i] = __uint_as_float(i % 2 ? x[i / 2] & 0xffff0000u : x[i / 2] << 16);
}

static void test_matrices(bool transposed) {
  std::vector<float> x(256);
  for (size_t i = 0; i < x.size(); i++) x[i] = (float)i;
  auto launch = [=](const void *in, float *out) {
    if (transposed)
      PD_LAUNCH(matrices<true>, 1, 32, 1024, pd_stream, (const pd_bf16 *)in, out);
    else
      PD_LAUNCH(matrices<false>, 1, 32, 1024, pd_stream, (const pd_bf16 *)in, out);
  };
  std::vector<float> got = run(x, true, 256, launch);
  for (int i = 0; i < 256; i++) {
    int lane = i / 8, matrix = i % 8 / 2, group = lane / 4, pair = lane % 4 * 2 + i % 2;
    int row = transposed ? pair : group, column = transposed ? group : pair;
    expect(got[(size_t)i] == (float)(64 * matrix + 8 * row + column), transposed ? "transposed" : "matrices", i);
  }
}

/* Two groups of copies of 16 bytes, then 8 and 4 a lane; every third is not valid. The first group is used while
 * the second may be under way. out: [32][4] sums of the first group's and of both groups' bytes, as floats. */
static __global__ void copies(const float *in, float *out) {
  PD_SHARED(float, tile);
  int lane = (int)threadIdx.x;
  float *second = tile + 128;
  pd_copy_async<16>(tile + 4 * lane, in + 4 * lane, lane % 3 != 0);
  pd_copy_commit();
  pd_copy_async<8>(second + 4 * lane, in + 2 * lane, lane % 3 != 1);
  pd_copy_async<4>(second + 4 * lane + 2, in + lane, lane % 3 != 2);
  pd_copy_commit();
  pd_copy_wait<1>();
  __syncwarp();
  float first = 0;
  int other = 31 - lane;
  for (int i = 0; i < 4; i++) first += tile[4 * other + i];
  pd_copy_wait<0>();
  __syncwarp();
  out[4 * lane] = first;
  for (int i = 0; i < 3; i++) out[4 * lane + 1 + i] = second[4 * other + i];
}

static void test_copies() {
  std::vector<float> x(128);
  for (size_t i = 0; i < x.size(); i++) x[i] = (float)(i + 1);
  auto launch = [](const void *in, float *out) {
    PD_LAUNCH(copies, 1, 32, 1024, pd_stream, (const float *)in, out);
  };
  std::vector<float> got = run(x, false, 128, launch);
  for (int lane = 0; lane < 32; lane++) {
    int other = 31 - lane, kind = other % 3;
    float sum = (float)(4 * (4 * other + 1) + 6);
    const float *of_lane = &got[(size_t)(4 * lane)];
    expect(of_lane[0] == (kind == 0 ? 0 : sum), "16 bytes", lane);
    expect(of_lane[1] == (kind == 1 ? 0 : (float)(2 * other + 1)), "8 bytes", lane);
    expect(of_lane[2] == (kind == 1 ? 0 : (float)(2 * other + 2)), "8 bytes", lane);
    expect(of_lane[3] == (kind == 2 ? 0 : (float)(other + 1)), "4 bytes", lane);
  }
}

static __global__ void powers(const float *in, float *out) {
  for (int i = (int)threadIdx.x; i < 512; i += 32) out[i] = pd_exp2_fast(in[i]);
}

static void test_powers() {
  std::vector<float> x = random_floats(512);
  for (float &e : x) e *= 130;
  x[0] = -INFINITY, x[1] = 0, x[2] = INFINITY, x[3] = -126;
  auto launch = [](const void *in, float *out) { PD_LAUNCH(powers, 1, 32, 0, pd_stream, (const float *)in, out); };
  std::vector<float> y = run(x, false, 512, launch);
  for (int i = 0; i < 512; i++) {
    double exact = exp2((double)x[(size_t)i]);
    bool small = exact < 0x1p-126, large = exact >= 0x1p128;
    double got = y[(size_t)i];
    expect(small ? got == 0 : large ? got == INFINITY : fabs(got - exact) <= 0x1p-22 * exact, "power", i);
  }
}

int main() {
  pd_cuda_check(cudaStreamCreate(&pd_stream), "create a stream");
  test_product();
  test_matrices(false);
  test_matrices(true);
  test_copies();
  test_powers();
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
