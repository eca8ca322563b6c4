/* pd_cached_attention, position by position, against plain loops in double, with caps, with windows beyond the end of
 * the cache, and with biases, sinks and values of another size; the same bytes for 1 to 4 threads, and for rows in blocks, in other slots, and beside unused ones. */
#include "test.h"

static int64_t value_size_of(const struct pd_cached_attention *a) {
  return a->value_size ? a->value_size : a->size;
}

/* bias [heads][distances], sinks [heads]; NULL: none */
static double worst_error(const struct pd_cached_attention *a, const float *q, const float *keys,
                          const float *values, const float *bias, const float *sinks, int64_t at, const float *o) {
  const int64_t value_size = value_size_of(a);
  const int64_t begin = a->window && at >= a->window ? at - a->window + 1 : 0;
  double worst = 0, *p = malloc(sizeof *p * (size_t)(at + 1));
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->heads; h++) {
      const float *x = q + b * a->q.batch + h * a->q.head;
      int64_t head = (b * a->kv_heads + h / (a->heads / a->kv_heads)) * a->context;
      double top = sinks ? sinks[h] : -INFINITY, sum = 0;
      for (int64_t j = begin; j <= at; j++) {
        const float *key = keys + (head + j % a->context) * a->size;
        p[j] = 0;
        for (int64_t i = 0; i < a->size; i++) p[j] += a->scale * (double)x[i] * key[i];
        if (a->softcap > 0) p[j] = a->softcap * tanh(p[j] / a->softcap);
        if (bias) p[j] += bias[h * a->bias_head + j - at + a->distances / 2];
        top = fmax(top, p[j]);
      }
      for (int64_t j = begin; j <= at; j++) sum += p[j] = exp(p[j] - top);
      if (sinks) sum += exp(sinks[h] - top);
      for (int64_t i = 0; i < value_size; i++) {
        double exact = 0;
        for (int64_t j = begin; j <= at; j++)
          exact += p[j] / sum * values[(head + j % a->context) * value_size + i];
        worst = fmax(worst, fabs(exact - o[b * a->o.batch + h * a->o.head + i]));
      }
    }
  free(p);
  return worst;
}

/* q, k and v side by side in a row of a sample, as one product makes them. With a value size of its own also a bias and
 * sinks. */
static void test_values(int64_t batch, int64_t heads, int64_t kv_heads, int64_t context, int64_t size,
                        int64_t value_size, int64_t window, float softcap) {
  const bool biased = value_size != size;
  int64_t width = (heads + kv_heads) * size + kv_heads * value_size, rows = batch * kv_heads * context;
  int64_t cache = rows * size, value_cache = rows * value_size, last = (window ? 2 * context + 3 : context) - 1;
  struct pd_cached_attention a = {.batch = batch,
                                  .sequences = batch,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .context = context,
                                  .size = size,
                                  .value_size = biased ? value_size : 0,
                                  .distances = 2 * last + 1,
                                  .window = window,
                                  .scale = 0.3f,
                                  .softcap = softcap,
                                  .q = {width, size},
                                  .k = {width, size},
                                  .v = {width, value_size},
                                  .o = {heads * value_size, value_size},
                                  .bias_head = 2 * last + 4};
  float *exact_keys = floats(cache), *exact_values = floats(value_cache), *keys[4], *values[4];
  float *bias = random_floats(heads * a.bias_head), *sinks = random_floats(heads);
  float *o = floats(batch * heads * value_size), *first = floats(batch * heads * value_size);
  int32_t *position = (int32_t *)floats(batch), *sequence = (int32_t *)floats(batch);
  for (int64_t b = 0; b < batch; b++) sequence[b] = (int32_t)b;
  for (int t = 0; t < 4; t++) keys[t] = floats(cache), values[t] = floats(value_cache);
  for (int64_t at = 0; at <= last; at++) {
    float *qkv = random_floats(batch * width), *k = qkv + heads * size, *v = k + kv_heads * size;
    for (int64_t b = 0; b < batch; b++) {
      position[b] = (int32_t)at;
      for (int64_t h = 0; h < kv_heads; h++)
        for (int64_t i = 0; i < size; i++) {
          int64_t to = ((b * kv_heads + h) * context + at % context) * size + i;
          exact_keys[to] = k[b * width + h * size + i];
        }
      for (int64_t h = 0; h < kv_heads; h++)
        for (int64_t i = 0; i < value_size; i++) {
          int64_t to = ((b * kv_heads + h) * context + at % context) * value_size + i;
          exact_values[to] = v[b * width + h * value_size + i];
        }
    }
    for (int t = 0; t < 4; t++) {
      omp_set_num_threads(t + 1);
      if (biased)
        pd_biased_cached_attention(&a, qkv, k, v, bias, sinks, position, sequence, o, keys[t], values[t]);
      else
        pd_cached_attention(&a, qkv, k, v, position, sequence, o, keys[t], values[t]);
      const float *with = biased ? bias : NULL;
      double e = t ? 0 : worst_error(&a, qkv, exact_keys, exact_values, with, biased ? sinks : NULL, at, o);
      if (!(e < 2e-6)) printf("FAIL position %ld of %ld: error %g\n", (long)at, (long)context, e), failures++;
      if (!t) memcpy(first, o, (size_t)(batch * heads * value_size) * sizeof *o);
      if (memcmp(first, o, (size_t)(batch * heads * value_size) * sizeof *o))
        printf("FAIL %d threads differ\n", t + 1), failures++;
    }
    free(qkv);
  }
  if (memcmp(keys[0], exact_keys, (size_t)cache * sizeof(float)) ||
      memcmp(values[0], exact_values, (size_t)value_cache * sizeof(float)))
    printf("FAIL the cache of %ld positions\n", (long)context), failures++;
  for (int t = 0; t < 4; t++) free(keys[t]), free(values[t]);
  free(exact_keys), free(exact_values), free(bias), free(sinks), free(o), free(first), free(position),
      free(sequence);
}

static void test(int64_t batch, int64_t heads, int64_t kv_heads, int64_t context, int64_t size, int64_t window,
                 float softcap) {
  test_values(batch, heads, kv_heads, context, size, size, window, softcap);
}

static float *zeros(int64_t n) { return memset(floats(n), 0, (size_t)n * sizeof(float)); }

/* A sequence of 14 positions in blocks of 3 rows, with an unused row, in slot 1 of 2: the bytes of one position at a time.
 * With a window the cache is just large enough for it and a block. */
static void test_blocks(int64_t heads, int64_t kv_heads, int64_t size, int64_t window) {
  enum { LENGTH = 14, ROWS = 3 };
  const int64_t context = window ? window + ROWS - 1 : LENGTH;
  int64_t width = (heads + 2 * kv_heads) * size, cache = 2 * kv_heads * context * size, out = heads * size;
  struct pd_cached_attention a = {.batch = 1,
                                  .sequences = 2,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .context = context,
                                  .size = size,
                                  .window = window,
                                  .scale = 0.3f,
                                  .q = {width, size},
                                  .k = {width, size},
                                  .v = {width, size},
                                  .o = {out, size}};
  float *qkv = random_floats((LENGTH + ROWS) * width), *keys[2], *values[2];
  float *single = zeros(LENGTH * out), *blocks = zeros((LENGTH + ROWS) * out);
  for (int t = 0; t < 2; t++) keys[t] = zeros(cache), values[t] = zeros(cache);
  for (int32_t at = 0; at < LENGTH; at++) {
    float *q = qkv + at * width, *k = q + heads * size;
    pd_cached_attention(&a, q, k, k + kv_heads * size, &at, &(int32_t){1}, single + at * out, keys[0], values[0]);
  }
  a.batch = ROWS;
  for (int32_t at = 0; at < LENGTH; at += ROWS) {
    float *q = qkv + at * width, *k = q + heads * size;
    int32_t position[ROWS], sequence[ROWS];
    for (int32_t r = 0; r < ROWS; r++) {
      bool used = at + r < LENGTH;
      position[r] = used ? at + r : 0, sequence[r] = used ? 1 : 2;
    }
    pd_cached_attention(&a, q, k, k + kv_heads * size, position, sequence, blocks + at * out, keys[1], values[1]);
  }
  if (memcmp(single, blocks, (size_t)(LENGTH * out) * sizeof(float)) || blocks[LENGTH * out] != 0)
    printf("FAIL blocks of rows differ from single rows\n"), failures++;
  if (memcmp(keys[0], keys[1], (size_t)cache * sizeof(float)) ||
      memcmp(values[0], values[1], (size_t)cache * sizeof(float)))
    printf("FAIL the cache of blocks\n"), failures++;
  for (int t = 0; t < 2; t++) free(keys[t]), free(values[t]);
  free(qkv), free(single), free(blocks);
}

int main(void) {
  test_blocks(4, 2, 16, 0);
  test_blocks(3, 3, 5, 0);
  test_blocks(4, 2, 16, 1);
  test_blocks(3, 3, 5, 6);
  test(1, 1, 1, 1, 1, 0, 0);
  test(1, 4, 4, 130, 16, 0, 0);
  test(3, 6, 2, 65, 20, 0, 1.5f);
  test(2, 3, 1, 200, 64, 0, 0);
  test(2, 4, 2, 21, 16, 13, 0);
  test(1, 2, 1, 90, 20, 90, 1.5f);
  test_values(2, 4, 2, 70, 16, 24, 0, 0);
  test_values(1, 3, 3, 21, 20, 7, 13, 1.5f);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
