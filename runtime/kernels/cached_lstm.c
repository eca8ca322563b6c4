/* Steps of an LSTM for rows of different sequences. Consecutive rows of different sequences are computed together, which
 * reads the weight once; a unit's sums are one thread's, in a fixed order, so that bits depend neither on the number of
 * threads nor on other rows. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"
#include "pd_kernels.h"

#include <string.h>

enum { GATES = 4, PART = 256, TOGETHER = 16 };

typedef struct pd_cached_lstm Lstm;

/* Rows that are computed together, and their states. */
struct group {
  int64_t row[TOGETHER];
  float *h[TOGETHER], *c[TOGETHER];
  int n;
};

/* sum[r] += weight row . state r, in lanes over the parts of the row. */
static void add_products(const struct group *g, pd_in w, int64_t row, int64_t hidden, float *sum) {
  float part[PART], lane[TOGETHER][PD_LANES] = {{0}};
  for (int64_t at = 0, n; at < hidden; at += n) {
    n = hidden - at < PART ? hidden - at : PART;
    pd_read(part, w, row * hidden + at, n);
    for (int r = 0; r < g->n; r++) {
      int64_t i = 0;
      for (; i + PD_LANES <= n; i += PD_LANES)
        for (int j = 0; j < PD_LANES; j++) lane[r][j] = fmaf(part[i + j], g->h[r][at + i + j], lane[r][j]);
      for (int j = 0; i + j < n; j++) lane[r][j] = fmaf(part[i + j], g->h[r][at + i + j], lane[r][j]);
    }
  }
  for (int r = 0; r < g->n; r++) sum[r] += pd_lanes_sum(lane[r]);
}

static void compute(const Lstm *l, const struct group *g, pd_in x, pd_in w, pd_out h) {
  const int64_t hidden = l->hidden;
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < hidden; j++) {
    float gate[GATES][TOGETHER];
    for (int k = 0; k < GATES; k++) {
      for (int r = 0; r < g->n; r++) pd_read(&gate[k][r], x, (g->row[r] * GATES + k) * hidden + j, 1);
      add_products(g, w, k * hidden + j, hidden, gate[k]);
    }
    for (int r = 0; r < g->n; r++) {
      float *c = &g->c[r][j];
      *c = fmaf(pd_sigmoid(gate[1][r]), *c, pd_sigmoid(gate[0][r]) * pd_tanh(gate[2][r]));
      const float out = pd_sigmoid(gate[3][r]) * pd_tanh(*c);
      pd_write(h, g->row[r] * hidden + j, &out, 1);
    }
  }
  for (int r = 0; r < g->n; r++) pd_read(g->h[r], pd_made(h), g->row[r] * hidden, hidden);
}

static void begin(const Lstm *l, float *state, pd_in from, int64_t row) {
  if (from.at)
    pd_read(state, from, row * l->hidden, l->hidden);
  else
    memset(state, 0, (size_t)l->hidden * sizeof *state);
}

/* Whether the sequence with this state is in the group. */
static bool has(const struct group *g, const float *h) {
  for (int r = 0; r < g->n; r++)
    if (g->h[r] == h) return true;
  return false;
}

void pd_cached_lstm(const struct pd_cached_lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *position,
                    const int32_t *sequence, pd_out h, pd_out kept_h, pd_out kept_c) {
  struct group g = {.n = 0};
  for (int64_t row = 0; row < l->batch; row++) {
    if (sequence[row] >= l->sequences) continue;
    float *state = (float *)kept_h.at + sequence[row] * l->hidden,
          *cell = (float *)kept_c.at + sequence[row] * l->hidden;
    if (g.n == TOGETHER || has(&g, state)) {
      compute(l, &g, x, w, h);
      g.n = 0;
    }
    if (!position[row]) begin(l, state, h0, row), begin(l, cell, c0, row);
    g.row[g.n] = row, g.h[g.n] = state, g.c[g.n++] = cell;
  }
  if (g.n) compute(l, &g, x, w, h);
}
