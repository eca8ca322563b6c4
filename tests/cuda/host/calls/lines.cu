/* pd_matmul where an operand's rows begin at odd addresses, so that bfloat16 is copied some lines at a time: this
 * program and its matmul.cu are compiled with little room for copies. */
#include "test.h"

static_assert(PD_LINES_BYTES < PD_MIB, "copies of several parts");

struct Case {
  const char *what;
  struct pd_matmul_shape s;
  bool copied; /* where all are of bfloat16, or c of float */
  int64_t a_elements, b_elements, c_elements;
};

static void run(const Case &c, pd_type type, pd_type result) {
  const struct pd_matmul_shape &s = c.s;
  Array a(type, random_floats(c.a_elements)), b(type, random_floats(c.b_elements));
  Array bias(result, random_floats(s.n)), y(result, random_floats(c.c_elements));
  struct pd_matmul *m = pd_matmul_new(s);
  Scratch scratch((int64_t)pd_matmul_scratch(m));
  std::vector<double> want(y.host.begin(), y.host.end()), allowed(y.host.size());
  for (int64_t i = 0; i < s.m; i++)
    for (int64_t j = 0; j < s.n; j++) {
      size_t at = (size_t)(i * s.c_row + j);
      double sum = (s.accumulate ? want[at] : 0) + (s.bias ? bias.host[(size_t)j] : 0), size = fabs(sum);
      for (int64_t k = 0; k < s.k; k++) {
        double product = (double)a.host[(size_t)(i * s.a_row + k * s.a_column)] *
                         b.host[(size_t)(k * s.b_row + j * s.b_column)];
        sum += product;
        size += fabs(product);
      }
      want[at] = sum;
      allowed[at] = (double)s.k * 0x1p-23 * size + rounding(result) * fabs(sum);
    }
  struct pd_lines lines = pd_matmul_lines(&s);
  if ((lines.operand != PD_NO_OPERAND) != c.copied) pd_fail("%s: it is not planned as it should be", c.what);
  pd_matmul(m, a.in(), b.in(), s.bias ? bias.in() : nullptr, y.out(), scratch.at());
  compare(c.what, y.fetch(), want, allowed);
}

int main() {
  enum { M = 300, N = 271, K = 259 }; /* none a multiple of 8 */
  static const Case cases[] = {
      {"rows of c",
       {1, M,      N,      256,    0,      256,      1,     0,     1,     256,  0,
        N, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, false, false, false},
       true,
       M * 256,
       N * 256,
       M * N},
      {"rows of c, a bias",
       {1, M,      N,      256,    0,      256,      1,    0,     1,     256,  0,
        N, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, true, false, false, false},
       true,
       M * 256,
       N * 256,
       M * N},
      {"rows of c, adding",
       {1, M,      N,      256,    0,      256,      1,     0,    1,     256,  0,
        N, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, true, false, false},
       false,
       M * 256,
       N * 256,
       M * N},
      {"rows of a",
       {1,   M,      256,    K,      0,      K,        1,     0,     256,   1,    0,
        256, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, false, false, false},
       true,
       M * K,
       K * 256,
       M * 256},
      {"rows of a, adding",
       {1,   M,      256,    K,      0,      K,        1,     0,    256,   1,    0,
        256, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, true, false, false},
       true,
       M * K,
       K * 256,
       M * 256},
      {"steps of a",
       {1,   M,      256,    K,      0,      1,        M,     0,     256,   1,    0,
        256, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, false, false, false},
       true,
       M * K,
       K * 256,
       M * 256},
      {"steps of a, adding",
       {1,   M,      256,    K,      0,      1,        M,     0,    256,   1,    0,
        256, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, true, false, false},
       true,
       M * K,
       K * 256,
       M * 256},
      {"steps of b",
       {1, 256,    N,      K,      0,      1,        256,   0,     N,     1,    0,
        N, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, false, false, false},
       true,
       256 * K,
       K * N,
       256 * N},
      {"steps of b, adding",
       {1, 256,    N,      K,      0,      1,        256,   0,    N,     1,    0,
        N, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, true, false, false},
       true,
       256 * K,
       K * N,
       256 * N},
      {"none",
       {1,   256,    256,    256,    0,      256,      1,     0,     256,   1,    0,
        256, PD_F32, PD_F32, PD_F32, PD_F32, PD_PLAIN, false, false, false, false},
       false,
       65536,
       65536,
       65536},
  };
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (const Case &c : cases) {
    run(c, PD_BF16, PD_BF16);
    run(c, PD_BF16, PD_F32);
  }
  run(cases[0], PD_F32, PD_F32);
  return 0;
}
