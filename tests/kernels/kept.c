/* pd_keep, pd_cached_rows, states of loops, and pd_cached_lstm against plain loops in double; the same bytes for 1 to 3 threads, and for
 * rows of several sequences in one call, in blocks, and beside unused ones. */
#include "test.h"

#define EXPECT(condition, ...) \
  if (!(condition)) printf("FAIL " __VA_ARGS__), puts(""), failures++

static bool same(const void *x, const void *y, size_t bytes) { return !memcmp(x, y, bytes); }

static void test_copies(void) {
  enum { BATCH = 3, OUTER = 2, CONTEXT = 5, INNER = 7, N = BATCH * OUTER * INNER };
  const struct pd_cached_rows r = {BATCH, OUTER, CONTEXT, INNER};
  const int32_t position[BATCH] = {4, 0, 2};
  float *x = random_floats(N), *y = random_floats(N * CONTEXT), *want = floats(N * CONTEXT);
  memcpy(want, y, sizeof *y * N * CONTEXT);
  for (int b = 0; b < BATCH; b++)
    for (int o = 0; o < OUTER; o++)
      for (int i = 0; i < INNER; i++)
        want[((b * OUTER + o) * CONTEXT + position[b]) * INNER + i] = x[(b * OUTER + o) * INNER + i];
  pd_cached_rows(&r, x, position, y);
  EXPECT(same(y, want, sizeof *y * N * CONTEXT), "cached rows");
  pd_keep(x, N, y);
  EXPECT(same(y, x, sizeof *y * N) && same(y + N, want + N, sizeof *y * (CONTEXT - 1) * N), "keep");
  pd_bf16 half[N];
  for (int i = 0; i < N; i++) half[i] = pd_to_bf16(x[i]);
  pd_keep(half, N, y);
  for (int i = 0; i < N; i++) EXPECT(y[i] == pd_from_bf16(half[i]), "keep of bf16, %d", i);
  free(x), free(y), free(want);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void step(int64_t n, const float *x, const float *w, double *h, double *c) {
  double *gate = malloc(sizeof *gate * (size_t)(4 * n));
  for (int64_t row = 0; row < 4 * n; row++) {
    gate[row] = x[row];
    for (int64_t j = 0; j < n; j++) gate[row] += (double)w[row * n + j] * h[j];
  }
  for (int64_t j = 0; j < n; j++) {
    c[j] = sigmoid(gate[n + j]) * c[j] + sigmoid(gate[j]) * tanh(gate[2 * n + j]);
    h[j] = sigmoid(gate[3 * n + j]) * tanh(c[j]);
  }
  free(gate);
}

/* Two sequences of STEPS positions; sequence 1 lags one behind, sequence 2 is unused. */
static void test_lstm(int64_t n, bool begins) {
  enum { STEPS = 4, ROWS = 2 * STEPS };
  float *x = random_floats(ROWS * 4 * n), *w = random_floats(4 * n * n), *h0 = random_floats(ROWS * n),
        *c0 = random_floats(ROWS * n), *h = floats((ROWS + 1) * n), *kept_h = floats(2 * n),
        *kept_c = floats(2 * n), *first = floats((ROWS + 1) * n);
  int32_t position[ROWS + 1], sequence[ROWS + 1];
  float *all = floats((ROWS + 1) * 4 * n);
  memcpy(all, x, sizeof *x * (size_t)(ROWS * 4 * n));
  memcpy(all + ROWS * 4 * n, x, sizeof *x * (size_t)(4 * n));
  for (int r = 0; r < ROWS; r++) sequence[r] = r % 2, position[r] = r / 2;
  sequence[ROWS] = 2, position[ROWS] = 0;
  const struct pd_cached_lstm l = {ROWS + 1, 2, n};
  float *from_h = begins ? h0 : NULL, *from_c = begins ? c0 : NULL;
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    pd_cached_lstm(&l, all, w, from_h, from_c, position, sequence, h, kept_h, kept_c);
    if (threads == 1) memcpy(first, h, sizeof *h * (size_t)(ROWS * n));
    EXPECT(same(first, h, sizeof *h * (size_t)(ROWS * n)), "%d threads differ", threads);
  }
  for (int s = 0; s < 2; s++) {
    double *state = calloc(2 * (size_t)n, sizeof *state), *cell = state + n;
    for (int64_t j = 0; j < n && begins; j++) state[j] = h0[s * n + j], cell[j] = c0[s * n + j];
    for (int t = 0; t < STEPS; t++) {
      step(n, x + (2 * t + s) * 4 * n, w, state, cell);
      for (int64_t j = 0; j < n; j++)
        EXPECT(fabs(state[j] - (double)h[(2 * t + s) * n + j]) < 3e-6, "sequence %d, step %d: %g", s, t,
               state[j] - (double)h[(2 * t + s) * n + j]);
    }
    for (int64_t j = 0; j < n; j++) EXPECT(kept_h[s * n + j] == h[(ROWS - 2 + s) * n + j], "the kept state");
    free(state);
  }
  const struct pd_cached_lstm one = {1, 2, n};
  for (int r = 0; r < ROWS; r++) { /* a row a call */
    float *row = x + r * 4 * n, *h_row = begins ? h0 + r * n : NULL, *c_row = begins ? c0 + r * n : NULL;
    pd_cached_lstm(&one, row, w, h_row, c_row, &position[r], &sequence[r], h, kept_h, kept_c);
    EXPECT(same(h, first + r * n, sizeof *h * (size_t)n), "row %d alone differs", r);
  }
  free(x), free(w), free(h0), free(c0), free(h), free(kept_h), free(kept_c), free(first), free(all);
}

/* A state comes from the initial one, from zeros, or from what is kept; that of an unused row is left. */
static void test_states(void) {
  enum { N = 5, SEQUENCES = 2 };
  float *kept = random_floats(N * SEQUENCES), *initial = random_floats(N), *state = random_floats(N),
        *was = random_floats(N), *before = random_floats(N * SEQUENCES);
  memcpy(before, kept, sizeof *kept * N * SEQUENCES);
  const int32_t zero = 0, one = 1, two = 2, three = 3;
  const float none[N] = {0};
  pd_take_state(N, SEQUENCES, &zero, &one, initial, kept, state);
  EXPECT(same(state, initial, sizeof none), "the initial state");
  pd_take_state(N, SEQUENCES, &three, &one, initial, kept, state);
  EXPECT(same(state, kept + N, sizeof none), "the kept state");
  pd_take_state(N, SEQUENCES, &zero, &zero, NULL, kept, state);
  EXPECT(same(state, none, sizeof none), "a state of zeros");
  memcpy(state, was, sizeof none);
  pd_take_state(N, SEQUENCES, &zero, &two, initial, kept, state);
  pd_put_state(N, SEQUENCES, &two, state, kept);
  EXPECT(same(state, was, sizeof none) && same(kept, before, sizeof none * SEQUENCES), "an unused row");
  pd_put_state(N, SEQUENCES, &one, state, kept);
  EXPECT(same(kept, before, sizeof none) && same(kept + N, state, sizeof none), "keeping a state");
  free(kept), free(initial), free(state), free(was), free(before);
}

int main(void) {
  test_copies();
  const int64_t sizes[] = {1, 7, 16, 40, 300};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) test_lstm(sizes[i], false), test_lstm(sizes[i], true);
  test_states();
  return failures > 0;
}
