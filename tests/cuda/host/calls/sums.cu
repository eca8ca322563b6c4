/* Products that add up a factor: random shapes, strides, types and alignments against sums in double, by the library and,
 * where that does not add up, by a kernel of ours; overwriting, then adding. What stands beside c and sums stays. */
#include "test.h"

#include <cstdlib>

struct Problem {
  struct pd_matmul_shape s;
  pd_type a, b;
  int64_t a_elements, b_elements;
};

/* Rows side by side or across, some further apart than they are long. */
static void random_lines(int64_t rows, int64_t columns, bool across, int64_t *row, int64_t *column, int64_t *n) {
  int64_t gap = random_below(3) ? 0 : random_below(2) ? 8 : 3;
  *row = across ? 1 : columns + gap;
  *column = across ? rows + gap : 1;
  *n = (rows - 1) * *row + (columns - 1) * *column + 1;
}

static Problem random_problem() {
  static const int64_t sizes[] = {1, 3, 8, 16, 40, 64, 130, 264, 700};
  Problem p = {};
  struct pd_matmul_shape &s = p.s;
  s.batch = 1, s.m = sizes[random_below(8)], s.n = sizes[random_below(8)], s.k = sizes[random_below(9)];
  random_lines(s.m, s.k, random_below(4) > 0, &s.a_row, &s.a_column, &p.a_elements);
  random_lines(s.k, s.n, random_below(4) == 0, &s.b_row, &s.b_column, &p.b_elements);
  s.c_row = s.n + (random_below(3) ? 0 : 8);
  s.epilogue = random_below(2) ? PD_SUMS_OF_A : PD_SUMS_OF_B;
  p.a = random_below(5) ? PD_BF16 : PD_F32;
  p.b = random_below(5) ? PD_BF16 : p.a;
  return p;
}

/* times: how often both have been made. */
static void reference(const Problem &p, const Array &a, const Array &b, int times, std::vector<double> value[2],
                      std::vector<double> allowed[2]) {
  const struct pd_matmul_shape &s = p.s;
  bool of_a = s.epilogue == PD_SUMS_OF_A;
  auto x = [&](int64_t i, int64_t q) { return (double)a.host[(size_t)(i * s.a_row + q * s.a_column)]; };
  auto y = [&](int64_t q, int64_t j) { return (double)b.host[(size_t)(q * s.b_row + j * s.b_column)]; };
  double error = times * (double)(s.k + 4) * 0x1p-23;
  for (int64_t i = 0; i < s.m; i++)
    for (int64_t j = 0; j < s.n; j++) {
      double sum = 0, size = 0;
      for (int64_t q = 0; q < s.k; q++) sum += x(i, q) * y(q, j), size += fabs(x(i, q) * y(q, j));
      value[0][(size_t)(i * s.c_row + j)] = times * sum;
      allowed[0][(size_t)(i * s.c_row + j)] = error * size;
    }
  for (int64_t i = 0; i < (of_a ? s.m : s.n); i++) {
    double sum = 0, size = 0;
    for (int64_t q = 0; q < s.k; q++) {
      double each = of_a ? x(i, q) : y(q, i);
      sum += each, size += fabs(each);
    }
    value[1][(size_t)i] = times * sum;
    allowed[1][(size_t)i] = error * size;
  }
}

static std::vector<double> doubles(const Array &x) { return std::vector<double>(x.host.begin(), x.host.end()); }

static void run(const Problem &p, bool refused, int64_t *separate) {
  enum { BEHIND = 5 };
  const struct pd_matmul_shape &s = p.s;
  Array a(p.a, random_floats(p.a_elements), random_below(4) ? 0 : 1), b(p.b, random_floats(p.b_elements));
  Array c(PD_F32, filled(s.m * s.c_row, 7)),
      sums(PD_F32, filled(pd_matmul_n_sums(&s) + BEHIND, 7), random_below(4) ? 0 : 1);
  struct pd_matmul_shape adding = s;
  adding.accumulate = true;
  const struct pd_matmul *m[2] = {pd_matmul_new(s), pd_matmul_new(adding)};
  Scratch scratch((int64_t)pd_matmul_scratch(m[0])), more((int64_t)pd_matmul_scratch(m[1]));
  int64_t before = pd_counts.separate_sums;
  for (int times = 1; times <= 3; times++) {
    std::vector<double> value[2] = {doubles(c), doubles(sums)};
    std::vector<double> allowed[2] = {std::vector<double>(c.host.size()), std::vector<double>(sums.host.size())};
    reference(p, a, b, times, value, allowed);
    pd_matmul_sums(m[times > 1], a.in(), b.in(), c.out(), (float *)sums.at, times > 1 ? more.at() : scratch.at());
    compare("a product", c.fetch(), value[0], allowed[0]);
    compare("a factor's sums", sums.fetch(), value[1], allowed[1]);
  }
  int64_t counted = pd_counts.separate_sums - before;
  bool library = p.a == PD_BF16 && p.b == PD_BF16 && !refused && a.skip == 0 && sums.skip == 0;
  if (counted > 1 || (library && counted) || (refused && !counted)) pd_fail("separate sums are counted wrongly");
  *separate += counted;
}

int main() {
  const char *refuse = getenv("CUBLASLT_HOST_REFUSE");
  enum { PROBLEMS = 150 };
  int64_t separate = 0;
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (int i = 0; i < PROBLEMS; i++) run(random_problem(), refuse && *refuse, &separate);
  if (refuse ? separate != PROBLEMS : separate == 0 || separate == PROBLEMS)
    pd_fail("%lld of %d products are separate", (long long)separate, (int)PROBLEMS);
  return 0;
}
