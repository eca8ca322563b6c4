/* Values that generating programs keep between steps, and the steps of an LSTM. */
#include "pd_elements.h"

enum { THREADS = 256, GATES = 4 };

static unsigned blocks_of(int64_t n) { return static_cast<unsigned>((n + THREADS - 1) / THREADS); }

static __global__ void __launch_bounds__(THREADS) copy(pd_in x, int64_t n, pd_out y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) pd_set_element(y, i, pd_element(x, i));
}

void pd_keep(pd_in x, int64_t n, pd_out y) { PD_LAUNCH(copy, blocks_of(n), THREADS, 0, pd_stream, x, n, y); }

static __global__ void __launch_bounds__(THREADS)
    cached_rows(struct pd_cached_rows r, pd_in x, const int32_t *position, pd_out y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x, row = i / r.inner;
  if (row >= r.batch * r.outer) return;
  pd_set_element(y, (row * r.context + position[row / r.outer]) * r.inner + i % r.inner, pd_element(x, i));
}

void pd_cached_rows(const struct pd_cached_rows *r, pd_in x, const int32_t *position, pd_out y) {
  PD_LAUNCH(cached_rows, blocks_of(r->batch * r->outer * r->inner), THREADS, 0, pd_stream, *r, x, position, y);
}

/* ---- states of loops over time ------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    take_state(int64_t n, int64_t sequences, const int32_t *position, const int32_t *sequence,
               const float *initial, const float *kept, float *state) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n && *sequence < sequences) state[i] = *position ? kept[*sequence * n + i] : initial ? initial[i] : 0.0f;
}

void pd_take_state(int64_t elements, int64_t sequences, const int32_t *position, const int32_t *sequence,
                   const float *initial, const float *kept, float *state) {
  PD_LAUNCH(take_state, blocks_of(elements), THREADS, 0, pd_stream, elements, sequences, position, sequence,
            initial, kept, state);
}

static __global__ void __launch_bounds__(THREADS)
    put_state(int64_t n, int64_t sequences, const int32_t *sequence, const float *state, float *kept) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n && *sequence < sequences) kept[*sequence * n + i] = state[i];
}

void pd_put_state(int64_t elements, int64_t sequences, const int32_t *sequence, const float *state, float *kept) {
  PD_LAUNCH(put_state, blocks_of(elements), THREADS, 0, pd_stream, elements, sequences, sequence, state, kept);
}

/* ---- an LSTM ---------------------------------------------------------------------------------------------- */

/* The state before position 0 of a row's sequence. */
static __global__ void __launch_bounds__(THREADS)
    begin(struct pd_cached_lstm l, int64_t row, pd_in h0, pd_in c0, const int32_t *position,
          const int32_t *sequence, float *h, float *c) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (j >= l.hidden || sequence[row] >= l.sequences || position[row]) return;
  h[sequence[row] * l.hidden + j] = h0.at ? pd_element(h0, row * l.hidden + j) : 0.0f;
  c[sequence[row] * l.hidden + j] = c0.at ? pd_element(c0, row * l.hidden + j) : 0.0f;
}

static __device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

static __device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* A warp computes a unit of a row. */
static __global__ void __launch_bounds__(THREADS)
    step(struct pd_cached_lstm l, int64_t row, pd_in x, pd_in w, const int32_t *sequence, const float *h, float *c,
         pd_out to) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (j >= l.hidden || sequence[row] >= l.sequences) return;
  const int64_t state = sequence[row] * l.hidden;
  float gate[GATES];
  for (int k = 0; k < GATES; k++) {
    float sum = 0;
    for (int64_t i = lane; i < l.hidden; i += 32)
      sum = fmaf(pd_element(w, (k * l.hidden + j) * l.hidden + i), h[state + i], sum);
    gate[k] = warp_sum(sum) + pd_element(x, (row * GATES + k) * l.hidden + j);
  }
  if (lane > 0) return;
  const float cell = fmaf(sigmoid(gate[1]), c[state + j], sigmoid(gate[0]) * tanhf(gate[2]));
  c[state + j] = cell;
  pd_set_element(to, row * l.hidden + j, sigmoid(gate[3]) * tanhf(cell));
}

static __global__ void __launch_bounds__(THREADS)
    take(struct pd_cached_lstm l, int64_t row, pd_out made, const int32_t *sequence, float *h) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (j < l.hidden && sequence[row] < l.sequences)
    h[sequence[row] * l.hidden + j] = pd_element(made, row * l.hidden + j);
}

/* Rows in order, because several may be positions of one sequence. */
void pd_cached_lstm(const struct pd_cached_lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *position,
                    const int32_t *sequence, pd_out h, pd_out kept_h, pd_out kept_c) {
  const dim3 units(blocks_of(l->hidden)), warps(blocks_of(32 * l->hidden));
  float *state = static_cast<float *>(kept_h.at), *cell = static_cast<float *>(kept_c.at);
  for (int64_t row = 0; row < l->batch; row++) {
    PD_LAUNCH(begin, units, THREADS, 0, pd_stream, *l, row, h0, c0, position, sequence, state, cell);
    PD_LAUNCH(step, warps, THREADS, 0, pd_stream, *l, row, x, w, sequence, static_cast<const float *>(state), cell,
              h);
    PD_LAUNCH(take, units, THREADS, 0, pd_stream, *l, row, h, sequence, state);
  }
}
