/* pd_expert_linear, its weights' gradient and pd_top_k on a device, against sums in double: experts without rows, with all
 * rows and with more than a tile, strides of views, either type of each operand; bits that are the same in a second run. */
#include "test.h"

struct Case {
  int64_t rows, chosen, count, in, out;
  int busy; /* percent of the rows that go to the last expert */
};

struct Sizes {
  pd_experts e;
  int64_t n_x, n_y;
};

/* form: bits of 1 a row for all experts, 2 matrices transposed, 4 y's columns apart, 8 rows without an expert */
static Sizes sizes_of(const Case &c, int form) {
  Sizes s = {};
  pd_experts &e = s.e;
  const int64_t width = c.in + 3;
  e.rows = c.rows, e.chosen = c.chosen, e.count = c.count, e.in = c.in, e.out = c.out;
  e.drops = form & 8;
  e.x_row = form & 1 ? width : c.chosen * width, e.x_chosen = form & 1 ? 0 : width, e.x_column = 1;
  e.y_row = c.chosen * c.out, e.y_chosen = form & 4 ? 1 : c.out, e.y_column = form & 4 ? c.chosen : 1;
  e.experts_row = c.chosen, e.experts_chosen = 1;
  e.weight_expert = c.in * c.out, e.weight_out = form & 2 ? 1 : c.in, e.weight_in = form & 2 ? c.out : 1;
  s.n_x = c.rows * c.chosen * width, s.n_y = c.rows * c.chosen * c.out;
  return s;
}

static std::vector<int32_t> random_experts(const Case &c, bool drops) {
  std::vector<int32_t> experts((size_t)(c.rows * c.chosen));
  for (int32_t &i : experts) i = (int32_t)(random_below(100) < c.busy ? c.count - 1 : random_below(c.count));
  for (size_t i = 2; i < experts.size() && drops; i += 3) experts[i] = (int32_t)c.count;
  return experts;
}

static int64_t x_at(const pd_experts &e, int64_t i) { return i / e.chosen * e.x_row + i % e.chosen * e.x_chosen; }
static int64_t y_at(const pd_experts &e, int64_t i) { return i / e.chosen * e.y_row + i % e.chosen * e.y_chosen; }

static void forward(const Case &c, int form) {
  const Sizes s = sizes_of(c, form);
  const pd_experts &e = s.e;
  const std::vector<int32_t> experts = random_experts(c, e.drops);
  const pd_type type = random_type();
  Integers at(experts);
  Array x(random_type(), random_floats(s.n_x)), w(random_type(), random_floats(c.count * c.in * c.out));
  Array scratch(PD_F32, filled(pd_cuda_experts_scratch(&e) / 4 + 1, 0));
  std::vector<float> got[2];
  for (int round = 0; round < 2; round++) {
    Array y(type, filled(s.n_y, 9));
    pd_expert_linear(&e, x.in(), w.in(), at.at, y.out(), scratch.at);
    got[round] = y.fetch();
  }
  std::vector<double> want((size_t)s.n_y), allowed((size_t)s.n_y);
  for (int64_t i = 0; i < c.rows * c.chosen; i++)
    for (int64_t n = 0; n < c.out; n++) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < c.in && experts[(size_t)i] < c.count; k++) {
        const double p =
            (double)x.host[(size_t)(x_at(e, i) + k)] *
            w.host[(size_t)(experts[(size_t)i] * e.weight_expert + n * e.weight_out + k * e.weight_in)];
        sum += p, size += fabs(p);
      }
      const size_t to = (size_t)(y_at(e, i) + n * e.y_column);
      want[to] = sum, allowed[to] = (double)c.in * 0x1p-24 * size + rounding(type) * fabs(sum);
    }
  compare("rows times matrices", got[0], want, allowed);
  if (got[0] != got[1]) pd_fail("rows times matrices are others in the second run");
}

static void backward(const Case &c, int form, bool first) {
  const Sizes s = sizes_of(c, form);
  const pd_experts &e = s.e;
  const std::vector<int32_t> experts = random_experts(c, e.drops);
  const int64_t n_w = c.count * c.in * c.out;
  Integers at(experts);
  Array x(random_type(), random_floats(s.n_x)), dy(random_type(), random_floats(s.n_y));
  Array scratch(PD_F32, filled(pd_cuda_experts_scratch(&e) / 4 + 1, 0)), dw(PD_F32, random_floats(n_w));
  std::vector<double> want((size_t)n_w), allowed((size_t)n_w);
  for (size_t i = 0; i < want.size() && !first; i++) want[i] = dw.host[i], allowed[i] = 0x1p-23 * fabs(want[i]);
  for (int64_t i = 0; i < c.rows * c.chosen; i++)
    for (int64_t n = 0; n < c.out && experts[(size_t)i] < c.count; n++)
      for (int64_t k = 0; k < c.in; k++) {
        const size_t to = (size_t)((experts[(size_t)i] * c.out + n) * c.in + k);
        const double p = (double)dy.host[(size_t)(y_at(e, i) + n * e.y_column)] * x.host[(size_t)(x_at(e, i) + k)];
        want[to] += p, allowed[to] += ((double)(c.rows * c.chosen) * 0x1p-24 + 0x1p-23) * fabs(p);
      }
  pd_expert_linear_weights(&e, x.in(), dy.in(), at.at, (float *)dw.at, first, scratch.at);
  compare("gradients of matrices", dw.fetch(), want, allowed);
}

static void largest(int64_t rows, int64_t n, int64_t k) {
  std::vector<float> numbers = random_floats(rows * n);
  for (size_t i = 0; i < numbers.size(); i++)
    numbers[i] = i % 7 == 3 ? NAN : floorf(numbers[i] * 4); /* many equal */
  Array x(PD_F32, numbers), values(PD_F32, filled(rows * k, 9)), dy(PD_F32, random_floats(rows * k));
  Array dx(PD_F32, filled(rows * n, 9));
  Integers indices(std::vector<int32_t>((size_t)(rows * k), -1));
  pd_top_k((const float *)x.at, rows, n, k, (float *)values.at, indices.at);
  pd_top_k_gradient(indices.at, (const float *)dy.at, rows, n, k, (float *)dx.at);
  const std::vector<float> got = values.fetch(), back = dx.fetch();
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) {
      const float *row = &numbers[(size_t)(r * n)];
      int64_t before = 0;
      for (int64_t j = 0; j < n; j++) {
        const bool a = std::isnan(row[j]), b = std::isnan(row[i]);
        before += a != b ? a : row[j] > row[i] || (!(row[j] < row[i]) && j < i);
      }
      const float want = before < k ? dy.host[(size_t)(r * k + before)] : 0;
      const float value = before < k ? got[(size_t)(r * k + before)] : row[i];
      if (back[(size_t)(r * n + i)] != want || !(value == row[i] || (std::isnan(value) && std::isnan(row[i]))))
        pd_fail("element %ld of row %ld of the largest", (long)i, (long)r);
    }
}

/* NaN before all numbers; of equal ones the lower index. */
static bool comes_first(float a, int64_t i, float b, int64_t j) {
  const bool a_is_nan = std::isnan(a), b_is_nan = std::isnan(b);
  return a_is_nan != b_is_nan ? a_is_nan : a > b || (!(a < b) && i < j);
}

/* The places of x's elements in falling order. */
static std::vector<int64_t> ranks(const std::vector<float> &x) {
  std::vector<int64_t> rank(x.size(), 0);
  for (size_t i = 0; i < x.size(); i++)
    for (size_t j = 0; j < x.size(); j++) rank[i] += j != i && comes_first(x[j], (int64_t)j, x[i], (int64_t)i);
  return rank;
}

static void biased(int64_t rows, int64_t n, int64_t k, int64_t groups, int64_t kept) {
  std::vector<float> numbers = random_floats(rows * n), biases = random_floats(n);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = i % 29 == 3 ? NAN : floorf(numbers[i] * 4);
  for (float &b : biases) b = floorf(b * 2);
  Array scores(PD_F32, numbers), bias(PD_F32, biases), values(PD_F32, filled(rows * k, 9));
  Integers indices(std::vector<int32_t>((size_t)(rows * k), -1));
  pd_biased_top_k((const float *)scores.at, (const float *)bias.at, rows, n, k, groups, kept, (float *)values.at,
                  indices.at);
  const std::vector<float> got = values.fetch();
  const std::vector<int32_t> at = indices.fetch((size_t)(rows * k));
  const size_t size = (size_t)(n / groups);
  for (int64_t r = 0; r < rows; r++) {
    std::vector<float> choice((size_t)n), sums((size_t)groups);
    for (size_t i = 0; i < choice.size(); i++) choice[i] = numbers[(size_t)(r * n) + i] + biases[i];
    for (size_t g = 0; g < sums.size(); g++) {
      const std::vector<float> of(choice.begin() + (long)(g * size), choice.begin() + (long)((g + 1) * size));
      const std::vector<int64_t> rank = ranks(of);
      for (size_t i = 0; i < size; i++) sums[g] += rank[i] < 2 ? of[i] : 0;
    }
    const std::vector<int64_t> of_group = ranks(sums);
    for (size_t i = 0; i < choice.size(); i++)
      if (kept < groups && of_group[i / size] >= kept) choice[i] = -INFINITY;
    const std::vector<int64_t> rank = ranks(choice);
    for (size_t i = 0; i < choice.size(); i++) {
      if (rank[i] >= k) continue;
      const size_t to = (size_t)(r * k + rank[i]);
      const float want = numbers[(size_t)(r * n) + i];
      if (at[to] != (int32_t)i || !(got[to] == want || (std::isnan(got[to]) && std::isnan(want))))
        pd_fail("score %ld of row %ld", (long)i, (long)r);
    }
  }
}

static void sums(int64_t rows, int64_t chosen, int64_t width) {
  const pd_type type = random_type();
  Array y(random_type(), random_floats(rows * chosen * width)), weights(PD_F32, random_floats(rows * chosen));
  Array sum(type, filled(rows * width, 9));
  pd_expert_sum(y.in(), (const float *)weights.at, rows, chosen, width, sum.out());
  std::vector<double> want((size_t)(rows * width)), allowed(want.size());
  for (int64_t i = 0; i < rows * width; i++)
    for (int64_t j = i / width * chosen; j < (i / width + 1) * chosen; j++) {
      const double p = (double)weights.host[(size_t)j] * y.host[(size_t)(j * width + i % width)];
      want[(size_t)i] += p, allowed[(size_t)i] += ((double)chosen * 0x1p-24 + rounding(type)) * fabs(p);
    }
  compare("sums over experts", sum.fetch(), want, allowed);
}

static void capacity(int64_t samples, int64_t rows, int64_t count, int64_t room) {
  std::vector<int32_t> experts((size_t)(samples * rows));
  for (int32_t &i : experts) i = (int32_t)random_below(count);
  Integers at(experts), kept(std::vector<int32_t>(experts.size(), -1));
  pd_within_capacity(at.at, samples, rows, count, room, kept.at);
  const std::vector<int32_t> got = kept.fetch(experts.size());
  for (int64_t i = 0; i < samples * rows; i++) {
    int64_t before = 0;
    for (int64_t j = i / rows * rows; j < i; j++) before += experts[(size_t)j] == experts[(size_t)i];
    if (got[(size_t)i] != (before < room ? experts[(size_t)i] : count))
      pd_fail("row %ld within a capacity", (long)i);
  }
}

int main() {
  static const Case cases[] = {{1, 1, 1, 1, 1, 0},      {5, 2, 3, 7, 9, 0},     {40, 2, 8, 33, 70, 0},
                               {150, 1, 2, 16, 64, 90}, {70, 3, 5, 20, 65, 50}, {3, 2, 100, 5, 4, 0}};
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (const Case &c : cases)
    for (int form = 0; form < 16; form++) {
      forward(c, form);
      backward(c, form, form % 2);
      backward(c, form, form % 2 == 0);
    }
  capacity(1, 1, 1, 1);
  capacity(3, 700, 5, 100);
  capacity(2, 300, 600, 1);
  biased(9, 12, 3, 1, 1);
  biased(20, 12, 4, 4, 2);
  biased(10, 256, 8, 8, 4);
  biased(3, 128, 5, 64, 63);
  sums(5, 3, 7);
  sums(40, 8, 64);
  for (int64_t k = 1; k <= 5; k++) largest(9, 5, k);
  largest(10, 64, 8);
  largest(3, 100, 100);
  return 0;
}
