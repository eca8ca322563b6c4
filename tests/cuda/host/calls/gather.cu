/* pd_gather and pd_gather_gradient on a device: classes that are everywhere, one that is alone, some that are
 * nowhere; the gradient's bits must not depend on the run. */
#include "test.h"

struct Case {
  int64_t rows, width, classes, stride;
  int everywhere; /* of a hundred rows so many have class 0 */
};

static std::vector<int32_t> random_indices(const Case &c) {
  std::vector<int32_t> index((size_t)c.rows);
  for (int32_t &i : index) i = random_below(100) < c.everywhere ? 0 : (int32_t)random_below(c.classes);
  return index;
}

static void forward(const Case &c, pd_type from, pd_type to, int64_t skip) {
  std::vector<int32_t> index = random_indices(c);
  Integers at(index);
  Array table(from, random_floats(c.classes * c.width), skip), out(to, filled(c.rows * c.stride, 9));
  pd_gather(table.in(), at.at, c.rows, c.width, out.out(), c.stride);
  std::vector<float> got = out.fetch();
  for (int64_t r = 0; r < c.rows; r++)
    for (int64_t j = 0; j < c.stride; j++) {
      float want = j < c.width ? as_stored(to, table.host[(size_t)(index[(size_t)r] * c.width + j)]) : 9;
      if (got[(size_t)(r * c.stride + j)] != want) pd_fail("row %ld, column %ld of a gather", (long)r, (long)j);
    }
}

static void backward(const Case &c, pd_type from, pd_type to, bool first, int64_t skip) {
  std::vector<int32_t> index = random_indices(c);
  Integers at(index);
  Array gradient(from, random_floats(c.rows * c.stride), skip);
  std::vector<float> before = random_floats(c.classes * c.width);
  size_t n = before.size();
  std::vector<double> want(n), size(n), allowed(n);
  std::vector<int> hits((size_t)c.classes);
  std::vector<float> got[2];
  for (int round = 0; round < 2; round++) {
    Array sum(to, before);
    if (round == 0 && !first)
      for (size_t i = 0; i < n; i++) want[i] = sum.host[i], size[i] = fabs(want[i]);
    pd_gather_gradient(sum.out(), at.at, gradient.in(), c.rows, c.width, c.stride, c.classes, first);
    got[round] = sum.fetch();
  }
  for (int64_t r = 0; r < c.rows; r++) {
    hits[(size_t)index[(size_t)r]]++;
    for (int64_t j = 0; j < c.width; j++) {
      double x = gradient.host[(size_t)(r * c.stride + j)];
      want[(size_t)(index[(size_t)r] * c.width + j)] += x;
      size[(size_t)(index[(size_t)r] * c.width + j)] += fabs(x);
    }
  }
  /* A class's row is read and written in each of the rounds in which it occurs, 1024 rows or more. */
  for (size_t i = 0; i < n; i++)
    allowed[i] = (hits[i / (size_t)c.width] * 0x1p-24 + (double)(c.rows / 1024 + 1) * rounding(to)) * size[i];
  compare("a gather's gradient", got[0], want, allowed);
  if (got[0] != got[1]) pd_fail("a gather's gradient is another in the second run");
}

int main() {
  static const Case cases[] = {
      {1, 1, 1, 1, 0},       {5, 3, 2, 3, 0},       {100, 64, 10, 64, 30},   {300, 130, 1000, 132, 20},
      {64, 128, 64, 192, 0}, {2500, 20, 2, 20, 50}, {2100, 36, 100, 36, 60}, {1500, 8, 1, 8, 0},
      {40, 768, 30, 768, 5}, {17, 257, 3, 300, 0},  {1300, 4, 50257, 4, 3},
  };
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (const Case &c : cases)
    for (int i = 0; i < 2; i++) {
      forward(c, random_type(), random_type(), i);
      backward(c, i ? PD_BF16 : PD_F32, PD_F32, i, random_below(2));
      backward(c, random_type(), random_type(), random_below(2), random_below(2));
    }
  return 0;
}
