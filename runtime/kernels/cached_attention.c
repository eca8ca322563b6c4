/* Attention of one position of every sequence to those before it, whose keys and values a cache holds. Softmax
 * online, in blocks of keys, as in kernels/attention.c. One thread does a whole (sample, key head), query heads of
 * a group in order, so that bits do not depend on the number of threads. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"
#include "pd_runtime.h"

#include <string.h>

enum { KEYS = 64 }; /* at a time */

/* The sum of x[i] y[i], in lanes. */
static float dot(const float *x, const float *y, int64_t n) {
  float lane[PD_LANES] = {0};
  int64_t i = 0;
  for (; i + PD_LANES <= n; i += PD_LANES)
    for (int l = 0; l < PD_LANES; l++) lane[l] = fmaf(x[i + l], y[i + l], lane[l]);
  for (int l = 0; i + l < n; l++) lane[l] = fmaf(x[i + l], y[i + l], lane[l]);
  return pd_lanes_sum(lane);
}

/* One head: o = softmax(scale q k^T, capped) v over n keys; rows of k and v follow one another. */
static void attend(const struct pd_cached_attention *a, const float *q, const float *keys, const float *values,
                   int64_t n, float *o) {
  float max = -INFINITY, sum = 0, p[KEYS];
  for (int64_t i = 0; i < a->size; i++) o[i] = 0;
  for (int64_t first = 0; first < n; first += KEYS) {
    int64_t count = n - first < KEYS ? n - first : KEYS;
    float top = max;
    for (int64_t j = 0; j < count; j++) {
      p[j] = dot(q, keys + (first + j) * a->size, a->size) * a->scale;
      if (a->softcap > 0) p[j] = a->softcap * pd_tanh(p[j] / a->softcap);
      top = pd_max(top, p[j]);
    }
    float factor = max == -INFINITY ? 0.0f : pd_exp(max - top);
    sum *= factor;
    for (int64_t j = 0; j < count; j++) p[j] = pd_exp(p[j] - top);
    for (int64_t j = 0; j < count; j++) sum += p[j];
    for (int64_t i = 0; first > 0 && i < a->size; i++) o[i] *= factor;
    for (int64_t j = 0; j < count; j++) {
      const float *v = values + (first + j) * a->size;
      for (int64_t i = 0; i < a->size; i++) o[i] = fmaf(p[j], v[i], o[i]);
    }
    max = top;
  }
  float inverse = 1.0f / sum;
  for (int64_t i = 0; i < a->size; i++) o[i] *= inverse;
}

/* Caches hold floats. */
void pd_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, const int32_t *position,
                         pd_out o, pd_out keys, pd_out values) {
  int64_t group = a->heads / a->kv_heads;
#pragma omp parallel for schedule(static)
  for (int64_t item = 0; item < a->batch * a->kv_heads; item++) {
    int64_t b = item / a->kv_heads, kv = item % a->kv_heads, at = position[b] % a->context;
    int64_t rows = position[b] < a->context ? position[b] + 1 : a->context;
    float *own_keys = (float *)keys.at + item * a->context * a->size, query[a->size], head[a->size];
    float *own_values = (float *)values.at + item * a->context * a->size;
    pd_read(own_keys + at * a->size, k, b * a->k.batch + kv * a->k.head, a->size);
    pd_read(own_values + at * a->size, v, b * a->v.batch + kv * a->v.head, a->size);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      pd_read(query, q, b * a->q.batch + h * a->q.head, a->size);
      attend(a, query, own_keys, own_values, rows, head);
      pd_write(o, b * a->o.batch + h * a->o.head, head, a->size);
    }
  }
}
