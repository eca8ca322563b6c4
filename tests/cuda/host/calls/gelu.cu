/* Products that end in GELU or in its gradient: random shapes, strides and alignments against sums in double, by the library
 * and, where that does not apply GELU, by a kernel behind it. Elements between rows stay what they were. */
#include "test.h"

#include <cstdlib>
#include <cstring>

/* As PyTorch has it: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double slope(double x) {
  double h = 1e-5;
  return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

static struct pd_matmul_shape random_shape(pd_epilogue epilogue) {
  static const int64_t sizes[] = {1, 3, 8, 16, 40, 64, 130, 192};
  struct pd_matmul_shape s = {};
  s.batch = 1, s.m = sizes[random_below(8)], s.n = sizes[random_below(8)], s.k = sizes[random_below(8)];
  bool across = random_below(2);
  s.a_row = s.k, s.a_column = 1;
  s.b_row = across ? 1 : s.n, s.b_column = across ? s.k : 1;
  s.c_row = s.n + 8 * random_below(2) + 3 * (random_below(4) == 0);
  s.epilogue = epilogue;
  s.bias = epilogue == PD_GELU && random_below(4) > 0;
  return s;
}

struct Sum {
  double value, size; /* of what was added up */
};

static Sum product(const struct pd_matmul_shape &s, const Array &a, const Array &b, const Array &bias, int64_t i,
                   int64_t j) {
  Sum sum = {s.bias ? bias.host[(size_t)j] : 0, 0};
  for (int64_t p = 0; p < s.k; p++) {
    double x = (double)a.host[(size_t)(i * s.a_row + p)] * b.host[(size_t)(p * s.b_row + j * s.b_column)];
    sum.value += x;
    sum.size += fabs(x);
  }
  return sum;
}

/* What c and `before` must be, as far as bfloat16 says. separately: GELU is of what was rounded, its gradient times a
 * rounded one. */
static void reference(const struct pd_matmul_shape &s, bool separately, const Array &a, const Array &b,
                      const Array &bias, const Array &before, std::vector<double> value[2],
                      std::vector<double> allowed[2]) {
  double half = rounding(PD_BF16);
  for (int64_t i = 0; i < s.m; i++)
    for (int64_t j = 0; j < s.n; j++) {
      size_t at = (size_t)(i * s.c_row + j);
      Sum sum = product(s, a, b, bias, i, j);
      /* a bias in floats is rounded first */
      double of_bias = s.bias && bias.type == PD_F32 ? half * fabs((double)bias.host[(size_t)j]) : 0;
      double error = (double)(s.k + 4) * 0x1p-23 * sum.size + of_bias, x = before.host[at];
      if (s.epilogue == PD_GELU) {
        double rounded = half * fabs(sum.value) + error;
        value[0][at] = gelu(sum.value), value[1][at] = sum.value;
        allowed[1][at] = rounded;
        allowed[0][at] =
            half * fabs(value[0][at]) + 1.13 * (separately ? rounded : error) + 1e-5 * fabs(sum.value);
      } else {
        value[0][at] = sum.value * slope(x);
        double more = separately ? half * fabs(value[0][at]) : 0;
        allowed[0][at] = half * fabs(value[0][at]) + more + 1.13 * error + 2e-5 * fabs(sum.value);
      }
    }
}

static std::vector<double> doubles(const Array &x) { return std::vector<double>(x.host.begin(), x.host.end()); }

static void run(pd_epilogue epilogue, bool refused, int64_t *separate) {
  struct pd_matmul_shape s = random_shape(epilogue);
  pd_type bias_type = random_type();
  int64_t skip = random_below(4) ? 0 : 1;
  Array a(PD_BF16, random_floats(s.m * s.k)), b(PD_BF16, random_floats(s.k * s.n)),
      bias(bias_type, random_floats(s.n));
  Array c(PD_BF16, filled(s.m * s.c_row, 7)), before(PD_BF16, random_floats(s.m * s.c_row), skip);
  struct pd_matmul *m = pd_matmul_new(s);
  Scratch scratch((int64_t)pd_matmul_scratch(m));
  bool separately = refused || skip || s.c_row % 8;
  std::vector<double> value[2] = {doubles(c), doubles(before)};
  std::vector<double> allowed[2] = {std::vector<double>(c.host.size()), std::vector<double>(c.host.size())};
  reference(s, separately, a, b, bias, before, value, allowed);
  for (int round = 0; round < 2; round++) {
    if (epilogue == PD_GELU)
      pd_matmul_gelu(m, a.in(), b.in(), s.bias ? bias.in() : nullptr, c.out(), before.out(), scratch.at());
    else
      pd_matmul_gelu_gradient(m, a.in(), b.in(), before.in(), c.out(), scratch.at());
    compare(epilogue == PD_GELU ? "gelu" : "its gradient", c.fetch(), value[0], allowed[0]);
    compare("before gelu", before.fetch(), value[1], allowed[1]);
  }
  *separate += separately;
  if (pd_counts.separate_gelus != *separate) pd_fail("GELUs behind products are counted wrongly");
}

int main() {
  const char *refuse = getenv("CUBLASLT_HOST_REFUSE");
  int64_t separate = 0;
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (int i = 0; i < 120; i++) run(i % 2 ? PD_GELU : PD_GELU_GRADIENT, refuse && *refuse, &separate);
  return 0;
}
