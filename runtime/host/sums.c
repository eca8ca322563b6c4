/* Sums between the ranks' messages, by this process's threads. */
#include "offload/spill.h"
#include "host/sums.h"
#include "run/upward.h"
#include "update/update.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

static double *tile_squares; /* of the last combined batch, read immediately */

void pd_sums_start(int batches) {
  (void)batches;
  tile_squares = pd_allocate(sizeof *tile_squares * (size_t)pd_n_tiles);
}

void pd_sums_finish(void) { free(tile_squares); }
void pd_sums_begin(void) {}

void pd_add_in_order(const float *const *parts, int n_parts, float *const *sums, int n_sums, size_t n) {
  enum { BLOCK = 1024 };
#pragma omp parallel for schedule(static)
  for (size_t first = 0; first < n; first += BLOCK) {
    float sum[BLOCK];
    size_t m = n - first < BLOCK ? n - first : BLOCK;
    memcpy(sum, parts[0] + first, m * sizeof *sum);
    for (int q = 1; q < n_parts; q++) {
      const float *more = parts[q] + first;
#pragma omp simd
      for (size_t i = 0; i < m; i++) sum[i] += more[i];
    }
    for (int q = 0; q < n_sums; q++) memcpy(sums[q] + first, sum, m * sizeof *sum);
  }
}

void pd_add_replicas(float *own, const float *others, size_t stride, size_t n) {
  const float **parts = pd_allocate(sizeof *parts * (size_t)pd_replicas());
  for (int q = 0, other = 0; q < pd_replicas(); q++)
    parts[q] = q == pd.replica ? own : others + (size_t)other++ * stride;
  pd_add_in_order(parts, pd_replicas(), &own, 1, n);
  free(parts);
}

/* Adds a tile of p's uses into the last use. */
static void add_uses(int64_t t, const struct pd_parameter *p, const struct pd_tile *c) {
  float *sum = pd_gradient_at(p, t, pd_accumulators(t)) + c->first;
  for (int i = p->n_uses - 2; i >= 0; i--) {
    const float *more = pd_use_at(p, i, t, pd_accumulators(t)) + c->first;
#pragma omp simd
    for (int64_t j = 0; j < c->n; j++) sum[j] += more[j];
  }
}

static void combine(int64_t t, int first, int end) {
#pragma omp parallel for schedule(static)
  for (int i = first; i < end; i++) {
    const struct pd_tile *c = &pd_tiles[i];
    const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
    tile_squares[i] = 0;
    if (p->n_uses) add_uses(t, p, c);
    if (pd_in_norm(p))
      tile_squares[i] = pd_sum_of_squares(c->n, pd_gradient_at(p, t, pd_accumulators(t)) + c->first);
  }
}

static void combine_groups(int64_t t, bool all) {
  for (int done = 0, first, end; pd_spill_next_squared(done, all, &first, &end); done++)
    combine(t, pd_first_tile(first), pd_first_tile(end));
}

void pd_combine_ready(int64_t t) { combine_groups(t, false); }

void pd_combine(int64_t t) {
  if (pd_spills())
    combine_groups(t, true);
  else if (!(pd.emulate && pd.stage->spilled)) /* without memory for it */
    combine(t, 0, pd_n_tiles);
}

bool pd_squares(int64_t t, double *to) {
  (void)t;
  for (int i = 0; i < pd_n_tiles; i++)
    to[pd_square_at(&pd.stage->parameters[pd_tiles[i].parameter], pd_tiles[i].first)] += tile_squares[i];
  return true;
}

bool pd_sums_clip(void) { return false; }

double pd_add_squares(const double *square, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += square[i];
  return sum;
}

void pd_gradients_complete(int64_t t) { (void)t; }
