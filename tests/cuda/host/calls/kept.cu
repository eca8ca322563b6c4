/* pd_keep, pd_cached_rows, states of loops, and pd_cached_lstm on a device, against sums in double. */
#include "test.h"

static std::vector<double> exactly(const std::vector<float> &x) { return std::vector<double>(x.begin(), x.end()); }

static void run_copies(pd_type from, pd_type to) {
  const struct pd_cached_rows r = {3, 2, 5, 7};
  const int64_t n = r.batch * r.outer * r.inner;
  Array x(from, random_floats(n)), kept(to, filled(n, NAN)), rows(to, filled(n * r.context, 1.5f));
  Integers position({4, 0, 2});
  pd_keep(x.in(), n, kept.out());
  compare("kept", kept.fetch(), exactly(x.host), std::vector<double>((size_t)n, 2 * rounding(to)));
  std::vector<double> want((size_t)(n * r.context), 1.5);
  const int32_t at[] = {4, 0, 2};
  for (int64_t i = 0; i < n; i++) {
    const int64_t row = i / r.inner;
    want[(size_t)((row * r.context + at[row / r.outer]) * r.inner + i % r.inner)] = (double)x.host[(size_t)i];
  }
  pd_cached_rows(&r, x.in(), position.at, rows.out());
  compare("cached rows", rows.fetch(), want, std::vector<double>(want.size(), 2 * rounding(to)));
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Rows: two positions of sequence 0 around one of sequence 1, and an unused one. */
static void run_lstm(int64_t n, bool begins, pd_type from, pd_type to) {
  enum { ROWS = 4 };
  const struct pd_cached_lstm l = {ROWS, 2, n};
  Array x(from, random_floats(ROWS * 4 * n)), w(from, random_floats(4 * n * n)),
      h0(PD_F32, random_floats(ROWS * n)), c0(PD_F32, random_floats(ROWS * n)), h(to, filled(ROWS * n, 0.25f)),
      kept_h(PD_F32, filled(2 * n, NAN)), kept_c(PD_F32, filled(2 * n, NAN));
  Integers position({0, 0, 1, 0}), sequence({0, 1, 0, 2});
  pd_cached_lstm(&l, x.in(), w.in(), begins ? h0.in() : nullptr, begins ? c0.in() : nullptr, position.at,
                 sequence.at, h.out(), kept_h.out(), kept_c.out());
  std::vector<double> want((size_t)(ROWS * n), 0.25), state((size_t)(2 * n)), cell((size_t)(2 * n)),
      gate((size_t)(4 * n));
  const int of[] = {0, 1, 0};
  for (int64_t row = 0; row < 3; row++) {
    double *s = &state[(size_t)(of[row] * n)], *c = &cell[(size_t)(of[row] * n)];
    for (int64_t j = 0; j < n && row < 2; j++) {
      s[j] = begins ? (double)h0.host[(size_t)(row * n + j)] : 0;
      c[j] = begins ? (double)c0.host[(size_t)(row * n + j)] : 0;
    }
    for (int64_t k = 0; k < 4 * n; k++) {
      gate[(size_t)k] = (double)x.host[(size_t)(row * 4 * n + k)];
      for (int64_t j = 0; j < n; j++) gate[(size_t)k] += (double)w.host[(size_t)(k * n + j)] * s[j];
    }
    for (int64_t j = 0; j < n; j++) {
      c[j] = sigmoid(gate[(size_t)(n + j)]) * c[j] + sigmoid(gate[(size_t)j]) * tanh(gate[(size_t)(2 * n + j)]);
      s[j] = sigmoid(gate[(size_t)(3 * n + j)]) * tanh(c[j]);
      want[(size_t)(row * n + j)] = s[j];
    }
  }
  compare("steps of an LSTM", h.fetch(), want, std::vector<double>(want.size(), 1e-5 + 4 * rounding(to)));
}

static void expect_exactly(const char *what, Array *found, const std::vector<float> &want) {
  compare(what, found->fetch(), exactly(want), std::vector<double>(want.size(), 0));
}

static void run_states(int64_t n) {
  const std::vector<float> first = random_floats(2 * n), start = random_floats(n);
  Array kept(PD_F32, first), initial(PD_F32, start), state(PD_F32, filled(n, NAN));
  Integers number({0, 1, 2});
  auto take = [&](int position, int sequence, bool begins) {
    pd_take_state(n, 2, number.at + position, number.at + sequence,
                  begins ? static_cast<const float *>(initial.in().at) : nullptr,
                  static_cast<const float *>(kept.in().at), static_cast<float *>(state.out().at));
  };
  auto put = [&](int sequence) {
    pd_put_state(n, 2, number.at + sequence, static_cast<const float *>(state.in().at),
                 static_cast<float *>(kept.out().at));
  };
  take(0, 1, true);
  expect_exactly("the initial state", &state, start);
  take(0, 2, false); /* an unused row */
  put(2);
  expect_exactly("the state of an unused row", &state, start);
  expect_exactly("kept beside an unused row", &kept, first);
  take(2, 0, true);
  expect_exactly("the kept state", &state, std::vector<float>(first.begin(), first.begin() + n));
  put(1);
  std::vector<float> both(first.begin(), first.begin() + n);
  both.insert(both.end(), first.begin(), first.begin() + n);
  expect_exactly("kept states", &kept, both);
  take(0, 1, false);
  expect_exactly("a state of zeros", &state, filled(n, 0));
}

int main() {
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  run_states(7);
  run_states(1000);
  for (pd_type type : {PD_F32, PD_BF16}) {
    run_copies(PD_F32, type);
    run_copies(type, PD_F32);
    for (int64_t n : {1, 9, 40, 300}) {
      run_lstm(n, false, type, PD_F32);
      run_lstm(n, true, PD_F32, type);
    }
  }
  return 0;
}
