/* pd_matmul on a device: random shapes, strides, types, alignments against sums in double. Elements of c's array
 * that are not c's must stay. What the library cannot do is counted, once for each product. */
#include "test.h"

#include <cstdlib>
#include <cstring>

/* A matrix's strides: by rows, by columns, either with gaps, or neither; or all its rows one. */
struct Strides {
  int64_t row, column, extent;
};

static Strides random_strides(int64_t rows, int64_t columns) {
  int64_t gap = random_below(3) ? 0 : 1 + random_below(9), row = columns + gap, column = 1;
  switch (random_below(8)) {
  case 0: row = 1 + random_below(2) * 4, column = row * rows + gap; break;
  case 1:
  case 2:
  case 3: row = 1, column = rows + gap; break;
  case 4: row = random_below(3) ? row : 0; break;
  }
  return {row, column, (rows - 1) * row + (columns - 1) * column + 1};
}

static int64_t random_size() {
  static const int64_t sizes[] = {1, 1, 2, 3, 7, 16, 33, 64, 65, 100, 130};
  return sizes[random_below(11)];
}

struct Problem {
  struct pd_matmul_shape s;
  pd_type a, b, c, bias;
  int64_t a_elements, b_elements, c_elements;
};

static Problem random_problem() {
  Problem p = {};
  struct pd_matmul_shape &s = p.s;
  s.batch = random_below(3) ? 1 : 1 + random_below(4);
  s.m = random_size(), s.n = random_size(), s.k = random_size();
  Strides a = random_strides(s.m, s.k), b = random_strides(s.k, s.n);
  s.a_row = a.row, s.a_column = a.column, s.b_row = b.row, s.b_column = b.column;
  s.a_batch = random_below(4) ? a.extent + random_below(5) : 0;
  s.b_batch = random_below(4) ? b.extent + random_below(5) : 0;
  s.c_row = s.n + (random_below(3) ? 0 : random_below(20));
  s.c_batch = s.m * s.c_row + (random_below(2) ? 0 : random_below(20));
  s.bias = random_below(3) == 0, s.accumulate = random_below(2) == 0;
  p.a = random_type(), p.b = random_below(4) ? p.a : random_type();
  p.c = random_below(3) ? p.a : random_type(), p.bias = random_below(3) ? p.c : random_type();
  p.a_elements = (s.batch - 1) * s.a_batch + a.extent;
  p.b_elements = (s.batch - 1) * s.b_batch + b.extent;
  p.c_elements = s.batch * s.c_batch;
  return p;
}

/* rounded_first: allowed where the bias is added to a sum that has c's type. */
struct Result {
  std::vector<double> value, allowed, rounded_first;
};

/* tf32: the factors are rounded to 11 bits. */
static Result reference(const Problem &p, const Array &a, const Array &b, const Array &bias, const Array &c,
                        bool tf32) {
  const struct pd_matmul_shape &s = p.s;
  Result r = {std::vector<double>(c.host.begin(), c.host.end()), std::vector<double>(c.host.size()), {}};
  r.rounded_first = r.allowed;
  double factor = (double)(s.k + 4) * 0x1p-23 + (tf32 ? 0x1p-10 : 0);
  for (int64_t z = 0; z < s.batch; z++)
    for (int64_t i = 0; i < s.m; i++)
      for (int64_t j = 0; j < s.n; j++) {
        size_t at = (size_t)(z * s.c_batch + i * s.c_row + j);
        double sum = 0, size = 0, before = s.accumulate ? c.host[at] : 0, add = s.bias ? bias.host[(size_t)j] : 0;
        for (int64_t q = 0; q < s.k; q++) {
          double product = (double)a.host[(size_t)(z * s.a_batch + i * s.a_row + q * s.a_column)] *
                           b.host[(size_t)(z * s.b_batch + q * s.b_row + j * s.b_column)];
          sum += product;
          size += fabs(product);
        }
        /* a bias of the other type is rounded to c's */
        double other = p.bias != p.c ? rounding(PD_BF16) * fabs(add) : 0;
        r.value[at] = sum + add + before;
        r.allowed[at] = factor * (size + fabs(add) + fabs(before)) + rounding(p.c) * fabs(r.value[at]) + other;
        r.rounded_first[at] = r.allowed[at] + (s.accumulate && s.bias ? rounding(p.c) * fabs(sum + before) : 0);
      }
  return r;
}

/* Whether elements of one row or one column are neighbours, and lines of them do not overlap. */
static bool has_lines(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  bool by_rows = (column == 1 || columns == 1) && (row >= columns || rows == 1);
  bool by_columns = (row == 1 || rows == 1) && (column >= rows || columns == 1);
  return by_rows || by_columns;
}

static bool is_the_librarys(const Problem &p) {
  const struct pd_matmul_shape &s = p.s;
  return p.a == p.b && (p.a == PD_BF16 || p.c == PD_F32) && has_lines(s.m, s.k, s.a_row, s.a_column) &&
         has_lines(s.k, s.n, s.b_row, s.b_column);
}

static int rounded_first, wrong; /* problems that only rounded_first explains; that nothing explains */

/* cuBLASLt 13.1 on an H100 and an H200 rounds the sum of product and c to c's type before it adds the bias. */
static void check(const char *what, const std::vector<float> &got, const Result &want) {
  bool rounded = false, bad = false;
  for (size_t i = 0; i < got.size(); i++) {
    double off = fabs(got[i] - want.value[i]);
    rounded |= !(off <= want.allowed[i]);
    if (!bad && !(off <= want.rounded_first[i])) {
      bad = true;
      printf("%s: element %zu is %.9g, not %.9g +- %.3g\n", what, i, got[i], want.value[i], want.rounded_first[i]);
    }
  }
  rounded_first += rounded;
  wrong += bad;
}

static void run(const Problem &p, bool tf32) {
  const struct pd_matmul_shape &s = p.s;
  char what[256];
  snprintf(what, sizeof what, "%ld x [%ld, %ld] @ [%ld, %ld], a %ld %ld %ld, b %ld %ld %ld, types %d %d %d%s%s",
           (long)s.batch, (long)s.m, (long)s.k, (long)s.k, (long)s.n, (long)s.a_batch, (long)s.a_row,
           (long)s.a_column, (long)s.b_batch, (long)s.b_row, (long)s.b_column, p.a, p.b, p.c,
           s.bias ? " + bias" : "", s.accumulate ? ", adds" : "");
  Array a(p.a, random_floats(p.a_elements), random_below(4) ? 0 : 1), b(p.b, random_floats(p.b_elements));
  Array bias(p.bias, random_floats(s.n), random_below(4) ? 0 : 1),
      c(p.c, random_floats(p.c_elements), random_below(4) ? 0 : 1);
  struct pd_matmul *m = pd_matmul_new(s);
  Scratch scratch((int64_t)pd_matmul_scratch(m));
  Result want = reference(p, a, b, bias, c, tf32);
  int64_t counted = pd_counts.own_products;
  pd_matmul(m, a.in(), b.in(), s.bias ? bias.in() : nullptr, c.out(), scratch.at());
  std::vector<float> first = c.fetch();
  check(what, first, want);
  counted += !is_the_librarys(p);
  if (pd_counts.own_products != counted) pd_fail("%s: counted wrongly", what);
  if (s.accumulate) return;
  pd_matmul(m, a.in(), b.in(), s.bias ? bias.in() : nullptr, c.out(), scratch.at());
  if (pd_counts.own_products != counted) pd_fail("%s: counted twice", what);
  if (c.fetch() != first) pd_fail("%s: another result in the second run", what);
}

int main() {
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (int i = 0; i < 300; i++) run(random_problem(), false);
  Problem many = {}; /* of types that the library does not mix, more than a grid has blocks along y */
  many.s = {.batch = 65537,
            .m = 1,
            .n = 2,
            .k = 1,
            .a_batch = 1,
            .a_row = 1,
            .a_column = 1,
            .b_batch = 0,
            .b_row = 2,
            .b_column = 1,
            .c_batch = 2,
            .c_row = 2,
            PD_MATMUL_F32,
            .bias = false,
            .accumulate = false,
            .few_rows = false,
            .by_sample = false};
  many.a = many.c = PD_F32, many.b = PD_BF16;
  many.a_elements = many.s.batch, many.b_elements = 2, many.c_elements = 2 * many.s.batch;
  const char *seed = getenv("CUDA_HOST_SEED");
  if (!seed || !strcmp(seed, "0")) run(many, false); /* once: the stand-in takes 20 seconds */
  pd_allow_tf32 = true;
  for (int i = 0; i < 20; i++) run(random_problem(), true);
  printf("%d of 320 products were rounded before their bias was added\n", rounded_first);
  return wrong > 0;
}
