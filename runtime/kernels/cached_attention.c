/* Attention of rows, each one position of a sequence, to those before it, whose keys and values a cache holds. Softmax
 * online, in blocks of keys, as in kernels/attention.c. One thread does a whole (row, key head), query heads of a
 * group in order, so that bits depend neither on the number of threads nor on other rows. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"
#include "pd_kernels.h"

#include <string.h>

enum { KEYS = 64, TOGETHER = 8 }; /* keys at a time, and in the inner loops */

/* The sum of x[i] y[i], in lanes. */
static float dot(const float *x, const float *y, int64_t n) {
  float lane[PD_LANES] = {0};
  int64_t i = 0;
  for (; i + PD_LANES <= n; i += PD_LANES)
    for (int l = 0; l < PD_LANES; l++) lane[l] = fmaf(x[i + l], y[i + l], lane[l]);
  for (int l = 0; i + l < n; l++) lane[l] = fmaf(x[i + l], y[i + l], lane[l]);
  return pd_lanes_sum(lane);
}

/* Several of them, whose rows y follow one another: the same sums. */
static void dots(const float *x, const float *y, int64_t n, float *to) {
  vector lanes[TOGETHER] = {{0}};
  int64_t i = 0;
  for (; i + PD_LANES <= n; i += PD_LANES) {
    vector a = *(const unaligned *)(x + i);
    for (int k = 0; k < TOGETHER; k++) {
      vector b = *(const unaligned *)(y + k * n + i);
#if defined __AVX512F__
      lanes[k] = (vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)lanes[k]);
#else
      for (int l = 0; l < PD_LANES; l++) lanes[k][l] = fmaf(a[l], b[l], lanes[k][l]);
#endif
    }
  }
  for (int k = 0; k < TOGETHER; k++) {
    float lane[PD_LANES];
    for (int l = 0; l < PD_LANES; l++) lane[l] = lanes[k][l];
    for (int l = 0; i + l < n; l++) lane[l] = fmaf(x[i + l], y[k * n + i + l], lane[l]);
    to[k] = pd_lanes_sum(lane);
  }
}

/* o = o + p[0] v[0] + p[1] v[1] + .., in this order. */
static void add_values(const float *p, const float *v, int64_t rows, int64_t n, float *restrict o) {
  int64_t j = 0;
  for (; j + TOGETHER <= rows; j += TOGETHER)
    for (int64_t i = 0; i < n; i++) {
      float sum = o[i];
      for (int k = 0; k < TOGETHER; k++) sum = fmaf(p[j + k], v[(j + k) * n + i], sum);
      o[i] = sum;
    }
  for (; j < rows; j++)
    for (int64_t i = 0; i < n; i++) o[i] = fmaf(p[j], v[j * n + i], o[i]);
}

static int64_t value_size_of(const struct pd_cached_attention *a) {
  return a->value_size ? a->value_size : a->size;
}

/* One head: o = softmax(scale q k^T, capped, + bias) v over the keys that a position sees; rows of k and v follow one
 * another up to the end of the cache, where they go on at its start. bias: of the head, at distance 0. */
static void attend(const struct pd_cached_attention *a, const float *q, const float *keys, const float *values,
                   pd_in bias, const float *sink, int64_t position, float *o) {
  const int64_t begin = a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
  const int64_t value_size = value_size_of(a);
  float max = -INFINITY, sum = 0, p[KEYS];
  for (int64_t i = 0; i < value_size; i++) o[i] = 0;
  for (int64_t first = begin, count; first <= position; first += count) {
    const int64_t row = first % a->context, left = position + 1 - first, together = a->context - row;
    const float *k = keys + row * a->size;
    count = left < KEYS ? left : KEYS;
    if (count > together) count = together;
    float top = max;
    int64_t done = 0;
    for (; done + TOGETHER <= count; done += TOGETHER) dots(q, k + done * a->size, a->size, p + done);
    for (; done < count; done++) p[done] = dot(q, k + done * a->size, a->size);
    float numbers[KEYS] = {0};
    if (bias.at) pd_read(numbers, bias, first - position, count);
    for (int64_t j = 0; j < count; j++) {
      p[j] *= a->scale;
      if (a->softcap > 0) p[j] = a->softcap * pd_tanh(p[j] / a->softcap);
      if (bias.at) p[j] += numbers[j];
      top = pd_max(top, p[j]);
    }
    float factor = max == -INFINITY ? 0.0f : pd_exp(max - top);
    sum *= factor;
    for (int64_t j = 0; j < count; j++) p[j] = pd_exp(p[j] - top);
    for (int64_t j = 0; j < count; j++) sum += p[j];
    for (int64_t i = 0; first > begin && i < value_size; i++) o[i] *= factor;
    add_values(p, values + row * value_size, count, value_size, o);
    max = top;
  }
  const float top = sink ? pd_max(max, *sink) : max, factor = sink ? pd_exp(max - top) : 1.0f;
  if (sink) sum = fmaf(sum, factor, pd_exp(*sink - top));
  float inverse = factor / sum;
  for (int64_t i = 0; i < value_size; i++) o[i] *= inverse;
}

/* Caches hold floats. */
void pd_biased_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, pd_in bias,
                                pd_in sinks, const int32_t *position, const int32_t *sequence, pd_out o,
                                pd_out keys, pd_out values) {
  const int64_t value_size = value_size_of(a);
  int64_t group = a->heads / a->kv_heads, items = a->batch * a->kv_heads;
  for (int64_t item = 0; item < items; item++) {
    int64_t b = item / a->kv_heads, kv = item % a->kv_heads;
    if (sequence[b] >= a->sequences) continue;
    int64_t to = (sequence[b] * a->kv_heads + kv) * a->context + position[b] % a->context;
    pd_read((float *)keys.at + to * a->size, k, b * a->k.batch + kv * a->k.head, a->size);
    pd_read((float *)values.at + to * value_size, v, b * a->v.batch + kv * a->v.head, value_size);
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t item = 0; item < items; item++) {
    int64_t b = item / a->kv_heads, kv = item % a->kv_heads;
    if (sequence[b] >= a->sequences) continue;
    int64_t cache = (sequence[b] * a->kv_heads + kv) * a->context;
    const float *own_keys = (const float *)keys.at + cache * a->size,
                *own_values = (const float *)values.at + cache * value_size;
    float query[a->size], head[value_size];
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      pd_read(query, q, b * a->q.batch + h * a->q.head, a->size);
      float sink;
      if (sinks.at) pd_read(&sink, sinks, h, 1);
      const pd_in own_bias = bias.at ? pd_in_from(bias, h * a->bias_head + a->distances / 2) : bias;
      attend(a, query, own_keys, own_values, own_bias, sinks.at ? &sink : NULL, position[b], head);
      pd_write(o, b * a->o.batch + h * a->o.head, head, value_size);
    }
  }
}

void pd_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, const int32_t *position,
                         const int32_t *sequence, pd_out o, pd_out keys, pd_out values) {
  pd_biased_cached_attention(a, q, k, v, (pd_in){NULL, PD_F32}, (pd_in){NULL, PD_F32}, position, sequence, o, keys,
                             values);
}
