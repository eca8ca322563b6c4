/* pd_cached_attention, position by position, against plain loops in double, with caps, and with windows beyond the end of
 * the cache; the same bytes for 1 to 4 threads, and for rows in blocks, in other slots, and beside unused ones. */
#include "test.h"

static double worst_error(const struct pd_cached_attention *a, const float *q, const float *keys,
                          const float *values, int64_t at, const float *o) {
  const int64_t begin = a->window && at >= a->window ? at - a->window + 1 : 0;
  double worst = 0, *p = malloc(sizeof *p * (size_t)(at + 1));
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->heads; h++) {
      const float *x = q + b * a->q.batch + h * a->q.head;
      int64_t head = (b * a->kv_heads + h / (a->heads / a->kv_heads)) * a->context * a->size;
      double top = -INFINITY, sum = 0;
      for (int64_t j = begin; j <= at; j++) {
        const float *key = keys + head + j % a->context * a->size;
        p[j] = 0;
        for (int64_t i = 0; i < a->size; i++) p[j] += a->scale * (double)x[i] * key[i];
        if (a->softcap > 0) p[j] = a->softcap * tanh(p[j] / a->softcap);
        top = fmax(top, p[j]);
      }
      for (int64_t j = begin; j <= at; j++) sum += p[j] = exp(p[j] - top);
      for (int64_t i = 0; i < a->size; i++) {
        double exact = 0;
        for (int64_t j = begin; j <= at; j++) exact += p[j] / sum * values[head + j % a->context * a->size + i];
        worst = fmax(worst, fabs(exact - o[b * a->o.batch + h * a->o.head + i]));
      }
    }
  free(p);
  return worst;
}

/* q, k and v side by side in a row of a sample, as one product makes them. */
static void test(int64_t batch, int64_t heads, int64_t kv_heads, int64_t context, int64_t size, int64_t window,
                 float softcap) {
  int64_t width = (heads + 2 * kv_heads) * size, cache = batch * kv_heads * context * size;
  struct pd_cached_attention a = {.batch = batch,
                                  .sequences = batch,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .context = context,
                                  .size = size,
                                  .window = window,
                                  .scale = 0.3f,
                                  .softcap = softcap,
                                  .q = {width, size},
                                  .k = {width, size},
                                  .v = {width, size},
                                  .o = {heads * size, size}};
  float *exact_keys = floats(cache), *exact_values = floats(cache), *keys[4], *values[4];
  float *o = floats(batch * heads * size), *first = floats(batch * heads * size);
  int32_t *position = (int32_t *)floats(batch), *sequence = (int32_t *)floats(batch);
  for (int64_t b = 0; b < batch; b++) sequence[b] = (int32_t)b;
  for (int t = 0; t < 4; t++) keys[t] = floats(cache), values[t] = floats(cache);
  for (int64_t at = 0; at < (window ? 2 * context + 3 : context); at++) {
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
      pd_cached_attention(&a, qkv, k, v, position, sequence, o, keys[t], values[t]);
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
  free(exact_keys), free(exact_values), free(o), free(first), free(position), free(sequence);
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
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
