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

/* Parts of the table, put together again: the whole's rows and sums. */
static void parts(const Case &c, int ranks, pd_type from, pd_type to) {
  int64_t own = (c.classes + ranks - 1) / ranks, n = own * c.width;
  std::vector<int32_t> index = random_indices(c);
  Integers at(index);
  Array gradient(from, random_floats(c.rows * c.stride));
  std::vector<float> rows = random_floats(n * ranks);
  for (int rank = 0; rank < ranks; rank++) {
    Array table(from, std::vector<float>(rows.begin() + rank * n, rows.begin() + (rank + 1) * n));
    Array out(to, filled(c.rows * c.width, 9)), sum(PD_F32, filled(n, 9));
    pd_gather_part(table.in(), at.at, c.rows, c.width, out.out(), c.width, own, rank * own);
    pd_gather_gradient_part(sum.out(), at.at, gradient.in(), c.rows, c.width, c.stride, own, true, rank * own);
    std::vector<float> got = out.fetch(), added = sum.fetch();
    std::vector<double> want((size_t)n), allowed((size_t)n, 0);
    for (int64_t r = 0; r < c.rows; r++)
      for (int64_t j = 0; j < c.width; j++) {
        int64_t row = index[(size_t)r] - rank * own, i = row * c.width + j;
        bool has = row >= 0 && row < own;
        if (got[(size_t)(r * c.width + j)] != (has ? as_stored(to, table.host[(size_t)i]) : 0))
          pd_fail("row %ld, column %ld of a gather of a part", (long)r, (long)j);
        double x = gradient.host[(size_t)(r * c.stride + j)];
        if (has) want[(size_t)i] += x, allowed[(size_t)i] += (double)c.rows * 0x1p-24 * fabs(x);
      }
    compare("the gradient of a part", added, want, allowed);
  }
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
      parts(c, 2 + i, random_type(), random_type());
      forward(c, random_type(), random_type(), i);
      backward(c, i ? PD_BF16 : PD_F32, PD_F32, i, random_below(2));
      backward(c, random_type(), random_type(), random_below(2), random_below(2));
    }
  return 0;
}
