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

static void row(const float *x, int64_t n, int64_t k, float *values, int32_t *indices) {
  struct heap h = {values, indices, 0};
  for (int64_t i = 0; i < n; i++)
    if (h.n < k)
      add(&h, x[i], (int32_t)i);
    else if (comes_first(x[i], (int32_t)i, values[0], indices[0]))
      replace_top(h, x[i], (int32_t)i);
  while (h.n > 1) { /* the top goes behind all that come before it */
    const float value = h.value[0];
    const int32_t at = h.at[0];
    h.n--;
    replace_top(h, h.value[h.n], h.at[h.n]);
    h.value[h.n] = value, h.at[h.n] = at;
  }
}

void pd_top_k(const float *x, int64_t rows, int64_t n, int64_t k, float *values, int32_t *indices) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) row(x + r * n, n, k, values + r * k, indices + r * k);
}

void pd_top_k_gradient(const int32_t *indices, const float *dy, int64_t rows, int64_t n, int64_t k, float *dx) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    memset(dx + r * n, 0, (size_t)n * sizeof *dx);
    for (int64_t j = 0; j < k; j++) dx[r * n + indices[r * k + j]] = dy[r * k + j];
  }
}
