/* The k largest elements of rows. A thread has a row and a heap of its k largest so far, the smallest at the top. */
#define PD_KERNELS
#include <math.h>
#include <omp.h>
#include <string.h>

#include "pd_kernels.h"

/* Whether an element a comes before one that is b. */
static inline bool comes_first(float a, int32_t a_at, float b, int32_t b_at) {
  if (a > b) return true;
  if (a < b) return false;
  const bool a_is_nan = isnan(a), b_is_nan = isnan(b);
  return a_is_nan != b_is_nan ? a_is_nan : a_at < b_at;
}

struct heap {
  float *value;
  int32_t *at;
  int64_t n;
};

/* Puts an element in the place of the top, and restores the order. */
static void replace_top(struct heap h, float value, int32_t at) {
  int64_t i = 0;
  for (;;) {
    int64_t child = 2 * i + 1;
    if (child >= h.n) break;
    if (child + 1 < h.n && comes_first(h.value[child], h.at[child], h.value[child + 1], h.at[child + 1])) child++;
    if (!comes_first(value, at, h.value[child], h.at[child])) break;
    h.value[i] = h.value[child], h.at[i] = h.at[child];
    i = child;
  }
  h.value[i] = value, h.at[i] = at;
}

static void add(struct heap *h, float value, int32_t at) {
  int64_t i = h->n++;
  while (i > 0 && comes_first(h->value[(i - 1) / 2], h->at[(i - 1) / 2], value, at)) {
    h->value[i] = h->value[(i - 1) / 2], h->at[i] = h->at[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  h->value[i] = value, h->at[i] = at;
}

/* An element of a row, unless the k elements of the heap come before it. */
static inline void offer(struct heap *h, int64_t k, float value, int64_t at) {
  if (h->n < k)
    add(h, value, (int32_t)at);
  else if (comes_first(value, (int32_t)at, h->value[0], h->at[0]))
    replace_top(*h, value, (int32_t)at);
}

static void sort(struct heap h) {
  while (h.n > 1) { /* the top goes behind all that come before it */
    const float value = h.value[0];
    const int32_t at = h.at[0];
    h.n--;
    replace_top(h, h.value[h.n], h.at[h.n]);
    h.value[h.n] = value, h.at[h.n] = at;
  }
}

static void row(const float *x, int64_t n, int64_t k, float *values, int32_t *indices) {
  struct heap h = {values, indices, 0};
  for (int64_t i = 0; i < n; i++) offer(&h, k, x[i], i);
  sort(h);
}

/* The groups of `size` scores with the largest sums of their two largest choices: bit g for group g. */
static uint64_t best_groups(const float *scores, const float *bias, int64_t size, int64_t groups, int64_t kept) {
  float sums[PD_MOST_GROUPS], best[PD_MOST_GROUPS];
  int32_t at[PD_MOST_GROUPS], of_two[2];
  uint64_t bits = 0;
  for (int64_t g = 0; g < groups; g++) {
    float two[2];
    struct heap h = {two, of_two, 0};
    for (int64_t i = g * size; i < (g + 1) * size; i++) offer(&h, 2, scores[i] + bias[i], i);
    sums[g] = two[0] + two[1];
  }
  row(sums, groups, kept, best, at);
  for (int64_t i = 0; i < kept; i++) bits |= (uint64_t)1 << at[i];
  return bits;
}

void pd_top_k(const float *x, int64_t rows, int64_t n, int64_t k, float *values, int32_t *indices) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) row(x + r * n, n, k, values + r * k, indices + r * k);
}

void pd_biased_top_k(const float *scores, const float *bias, int64_t rows, int64_t n, int64_t k, int64_t groups,
                     int64_t kept, float *values, int32_t *indices) {
  const int64_t size = n / groups;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const float *x = scores + r * n;
    const uint64_t best = kept < groups ? best_groups(x, bias, size, groups, kept) : ~(uint64_t)0;
    struct heap h = {values + r * k, indices + r * k, 0};
    for (int64_t g = 0; g < groups; g++)
      for (int64_t i = g * size; best >> g & 1 && i < (g + 1) * size; i++) offer(&h, k, x[i] + bias[i], i);
    sort(h);
    for (int64_t j = 0; j < k; j++) values[r * k + j] = x[indices[r * k + j]];
  }
}

void pd_top_k_gradient(const int32_t *indices, const float *dy, int64_t rows, int64_t n, int64_t k, float *dx) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    memset(dx + r * n, 0, (size_t)n * sizeof *dx);
    for (int64_t j = 0; j < k; j++) dx[r * n + indices[r * k + j]] = dy[r * k + j];
  }
}
