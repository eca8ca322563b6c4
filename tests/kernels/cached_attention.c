/* pd_cached_attention, position by position, against plain loops in double, with caps, and beyond the context, whose
 * rows are then those of the last positions; the same bytes for 1 to 4 threads. */
#include "test.h"

static double worst_error(const struct pd_cached_attention *a, const float *q, const float *keys,
                          const float *values, int64_t position, const float *o) {
  const int64_t at = position < a->context ? position : a->context - 1; /* the last row in use */
  double worst = 0, *p = malloc(sizeof *p * (size_t)(at + 1));
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->heads; h++) {
      const float *x = q + b * a->q.batch + h * a->q.head;
      int64_t head = (b * a->kv_heads + h / (a->heads / a->kv_heads)) * a->context * a->size;
      double top = -INFINITY, sum = 0;
      for (int64_t j = 0; j <= at; j++) {
        p[j] = 0;
        for (int64_t i = 0; i < a->size; i++) p[j] += a->scale * (double)x[i] * keys[head + j * a->size + i];
        if (a->softcap > 0) p[j] = a->softcap * tanh(p[j] / a->softcap);
        top = fmax(top, p[j]);
      }
      for (int64_t j = 0; j <= at; j++) sum += p[j] = exp(p[j] - top);
      for (int64_t i = 0; i < a->size; i++) {
        double exact = 0;
        for (int64_t j = 0; j <= at; j++) exact += p[j] / sum * values[head + j * a->size + i];
        worst = fmax(worst, fabs(exact - o[b * a->o.batch + h * a->o.head + i]));
      }
    }
  free(p);
  return worst;
}

/* q, k and v side by side in a row of a sample, as one product makes them. */
static void test(int64_t batch, int64_t heads, int64_t kv_heads, int64_t context, int64_t size, float softcap) {
  int64_t width = (heads + 2 * kv_heads) * size, cache = batch * kv_heads * context * size;
  struct pd_cached_attention a = {.batch = batch,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .context = context,
                                  .size = size,
                                  .scale = 0.3f,
                                  .softcap = softcap,
                                  .q = {width, size},
                                  .k = {width, size},
                                  .v = {width, size},
                                  .o = {heads * size, size}};
  float *exact_keys = floats(cache), *exact_values = floats(cache), *keys[4], *values[4];
  float *o = floats(batch * heads * size), *first = floats(batch * heads * size);
  int32_t *position = (int32_t *)floats(batch);
  for (int t = 0; t < 4; t++) keys[t] = floats(cache), values[t] = floats(cache);
  for (int64_t at = 0; at < context + context / 2; at++) {
    float *qkv = random_floats(batch * width), *k = qkv + heads * size, *v = k + kv_heads * size;
    for (int64_t b = 0; b < batch; b++) {
      position[b] = (int32_t)at;
      for (int64_t h = 0; h < kv_heads; h++)
        for (int64_t i = 0; i < size; i++) {
          int64_t to = ((b * kv_heads + h) * context + at % context) * size + i;
          exact_keys[to] = k[b * width + h * size + i], exact_values[to] = v[b * width + h * size + i];
        }
    }
    for (int t = 0; t < 4; t++) {
      omp_set_num_threads(t + 1);
      pd_cached_attention(&a, qkv, k, v, position, o, keys[t], values[t]);
      double e = t ? 0 : worst_error(&a, qkv, exact_keys, exact_values, at, o);
      if (!(e < 2e-6)) printf("FAIL position %ld of %ld: error %g\n", (long)at, (long)context, e), failures++;
      if (!t) memcpy(first, o, (size_t)(batch * heads * size) * sizeof *o);
      if (memcmp(first, o, (size_t)(batch * heads * size) * sizeof *o))
        printf("FAIL %d threads differ\n", t + 1), failures++;
    }
    free(qkv);
  }
  if (memcmp(keys[0], exact_keys, (size_t)cache * sizeof(float)) ||
      memcmp(values[0], exact_values, (size_t)cache * sizeof(float)))
    printf("FAIL the cache of %ld positions\n", (long)context), failures++;
  for (int t = 0; t < 4; t++) free(keys[t]), free(values[t]);
  free(exact_keys), free(exact_values), free(o), free(first), free(position);
}

int main(void) {
  test(1, 1, 1, 1, 1, 0);
  test(1, 4, 4, 130, 16, 0);
  test(3, 6, 2, 65, 20, 1.5f);
  test(2, 3, 1, 200, 64, 0);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
