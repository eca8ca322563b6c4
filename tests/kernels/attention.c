/* Attention, forward and backward, against plain loops in double: lengths that are no multiple of a block, grouped
 * heads, causal or not, strides, masks, windows, caps, documents, biases, sinks, values of another size; the same bytes for
 * 1, 2 and 4 threads. */
#include "attention_exact.h"
#include "test.h"

/* Largest difference over the largest magnitude. */
static double error(const float *got, const double *exact, int64_t n) {
  double worst = 0, size = 1e-30;
  for (int64_t i = 0; i < n; i++) {
    double e = fabs(got[i] - exact[i]);
    worst = fmax(worst, isnan(e) ? INFINITY : e);
    if (fabs(exact[i]) > size) size = fabs(exact[i]);
  }
  return worst / size;
}

static int64_t result_elements(const Attention *a) {
  return a->batch * a->heads * a->length * pd_attention_value_size(a);
}

static double *zeros(int64_t n) {
  double *x = calloc((size_t)n, sizeof *x);
  if (!x) pd_fail("out of memory");
  return x;
}

static double *widened(const float *x, int64_t n) {
  double *wide = zeros(n);
  for (int64_t i = 0; i < n; i++) wide[i] = x[i];
  return wide;
}

static void expect(bool ok, const Attention *a, const char *what, double value) {
  if (ok) return;
  printf(
      "FAIL heads %ld/%ld length %ld x %ld size %ld causal %d window %ld softcap %g mask %d %ld %ld documents %d %ld "
      "value size %ld bias %ld %ld %ld by distance %d sinks %d %ld: %s %g\n",
      (long)a->heads, (long)a->kv_heads, (long)a->length, (long)a->kv_length, (long)a->size, a->causal,
      (long)a->window, (double)a->softcap, a->masked, (long)a->mask.batch, (long)a->mask.row, a->parted,
      (long)a->documents.batch, (long)a->value_size, (long)a->bias.batch, (long)a->bias.head, (long)a->bias.row,
      a->by_distance, a->has_sinks, (long)a->sinks.batch, what, value);
  failures++;
}

/* Numbers, hidden keys here and there, most of the last, and of the second sample (or the last row) all. */
static float *new_mask(const Attention *a) {
  int64_t samples = a->mask.batch ? a->batch : 1, rows = a->mask.row ? a->length : 1, n = a->kv_length;
  float *mask = random_floats(samples * rows * n);
  for (int64_t i = 0; i < samples * rows; i++)
    for (int64_t j = 0; j < n; j++)
      if (i + 1 == samples * rows || random_float() > (j < n * 2 / 3 ? 0.6f : -0.8f))
        mask[i * n + j] = j % 3 == 0 ? -INFINITY : j % 3 == 1 ? -10000.0f : -1e9f;
  return mask;
}

/* Runs of one to many positions, also longer than a block; a number may come again. */
static int32_t *new_documents(const Attention *a) {
  int64_t n = a->length * (a->documents.batch ? a->batch : 1);
  int32_t *number = (int32_t *)floats(n);
  for (int64_t i = 0, left = 0; i < n; i++, left--) {
    if (left <= 0)
      left = 1 + (int64_t)(random_float() > 0.5f ? 40 * (random_float() + 1) : 2 * (random_float() + 1));
    number[i] = i && left > 1 ? number[i - 1] : (i ? number[i - 1] + 1 : 0) % 3;
  }
  return number;
}

/* Elements of a bias or its gradient with these strides, of 0 or dense but for a gap between heads. */
static int64_t bias_elements(const Attention *a, int64_t batch, int64_t head) {
  return head ? (batch ? a->batch : 1) * a->heads * head : 0;
}

/* A bias when its stride of heads is above 0. q, k, v lie in one buffer qkv, as their gradients do; outputs are contiguous
 * [batch][length][heads][size]. */
static void test(Attention a, bool together) {
  int64_t value_size = pd_attention_value_size(&a), v_width = a.kv_heads * value_size;
  int64_t width = a.heads * a.size, kv_width = a.kv_heads * a.size,
          row = together ? width + kv_width + v_width : width;
  int64_t kv_row = together ? row : kv_width, n_q = a.batch * a.length * row, n_k = a.batch * a.kv_length * kv_row;
  int64_t v_row = together ? row : v_width, n_v = a.batch * a.kv_length * v_row, o_row = a.heads * value_size;
  int64_t n = together ? n_q : n_q + n_k + n_v, n_o = result_elements(&a), n_lse = a.batch * a.heads * a.length;
  int64_t at_k = together ? width : n_q, at_v = together ? width + kv_width : n_q + n_k;
  a.q.batch = a.dq.batch = a.length * row, a.q.head = a.dq.head = a.size, a.q.row = a.dq.row = row;
  a.k.batch = a.kv_length * kv_row, a.k.head = a.size, a.k.row = kv_row;
  a.dk = a.k;
  a.v.batch = a.kv_length * v_row, a.v.head = value_size, a.v.row = v_row;
  a.dv = a.v;
  a.o.batch = a.d_o.batch = a.length * o_row, a.o.head = a.d_o.head = value_size, a.o.row = a.d_o.row = o_row;
  const int64_t n_bias = bias_elements(&a, a.d_bias.batch, a.d_bias.head);
  const int64_t n_sinks = a.has_sinks ? (a.d_sinks.batch ? a.batch : 1) * a.heads : 0;

  int32_t *documents = a.parted ? new_documents(&a) : NULL;
  const bool biased = a.bias.head || a.has_sinks, general = a.masked || a.parted;
  float *bias = random_floats(bias_elements(&a, a.bias.batch, a.bias.head)),
        *sinks = random_floats(a.batch * a.heads);
  float *mask = a.masked ? new_mask(&a) : NULL, *qkv = random_floats(n), *d_o = random_floats(n_o), *first = NULL;
  for (int64_t i = 0; i < n; i++) qkv[i] *= 1.5f;
  double *in = widened(qkv, n), *in_d_o = widened(d_o, n_o);
  double *p = zeros(2 * a.kv_length), *o_exact = zeros(n_o), *gradient = zeros(n + n_bias + n_sinks);
  const Biases x = {a.bias.head ? bias : NULL, a.has_sinks ? sinks : NULL, n_bias ? gradient + n : NULL,
                    n_sinks ? gradient + n + n_bias : NULL};
  for (int64_t b = 0; b < a.batch; b++)
    for (int64_t h = 0; h < a.heads; h++)
      for (int64_t i = 0; i < a.length; i++) {
        const double l = forward_exact(&a, in, in + at_k, in + at_v, mask, documents, &x, p, o_exact, b, h, i);
        backward_exact(&a, in, in + at_k, in + at_v, in_d_o, &x, l, p, o_exact, gradient, gradient + at_k,
                       gradient + at_v, b, h, i);
      }
  int64_t total = n_o + n_lse + n + n_bias + n_sinks;
  float *out = floats(total), *lse = out + n_o, *d = lse + n_lse, *d_bias = n_bias ? d + n : NULL,
        *d_sinks = n_sinks ? d + n + n_bias : NULL;
  for (int threads = 1; threads <= 4; threads *= 2) {
    omp_set_num_threads(threads);
    size_t scratch = pd_attention_scratch(&a, threads);
    char *space = (char *)floats((int64_t)scratch / 4 + 16);
    memset(space, 0xff, scratch + 64); /* NaN */
    memset(out, 0xff, (size_t)total * sizeof *out);
    if (biased)
      pd_biased_attention_forward(&a, qkv, qkv + at_k, qkv + at_v, mask, documents, x.bias, x.sinks, out, lse,
                                  space);
    else if (general)
      pd_masked_attention_forward(&a, qkv, qkv + at_k, qkv + at_v, mask, documents, out, lse, space);
    else
      pd_attention_forward(&a, qkv, qkv + at_k, qkv + at_v, out, lse, space);
    memset(space, 0xff, scratch);
    if (biased)
      pd_biased_attention_backward(&a, qkv, qkv + at_k, qkv + at_v, out, lse, d_o, mask, documents, x.bias,
                                   x.sinks, d, d + at_k, d + at_v, d_bias, d_sinks, space);
    else if (general)
      pd_masked_attention_backward(&a, qkv, qkv + at_k, qkv + at_v, out, lse, d_o, mask, documents, d, d + at_k,
                                   d + at_v, space);
    else
      pd_attention_backward(&a, qkv, qkv + at_k, qkv + at_v, out, lse, d_o, d, d + at_k, d + at_v, space);
    for (int i = 0; i < 64; i++) expect((space[scratch + i] & 0xff) == 0xff, &a, "writes past its scratch at", i);
    free(space);
    if (threads == 1) {
      double e = error(out, o_exact, n_o), g = error(d, gradient, n);
      expect(e < 2e-6, &a, "error of o", e);
      expect(g < 3e-6, &a, "error of the gradients", g);
      g = error(d + n, gradient + n, n_bias);
      expect(g < 3e-6, &a, "error of the bias's gradient", g);
      g = error(d + n + n_bias, gradient + n + n_bias, n_sinks);
      expect(g < 3e-6, &a, "error of the sinks' gradient", g);
      first = floats(total);
      memcpy(first, out, (size_t)total * sizeof *out);
      add_to_digest(out, (size_t)total * sizeof *out);
      add_to_digest(&scratch, sizeof scratch);
    } else {
      expect(!memcmp(first, out, (size_t)total * sizeof *out), &a, "other bytes for threads", threads);
    }
  }
  free(bias), free(sinks), free(mask), free(documents), free(qkv), free(d_o), free(first), free(p), free(in),
      free(in_d_o), free(o_exact), free(gradient), free(out);
}

/* Without a mask, and with one of each sample or the same for all, of rows or the same for all rows. */
static void test_masks(Attention a, bool together) {
  test(a, together);
  a.masked = true;
  for (int kind = 0; kind < 4; kind++) {
    bool rows = kind & 1, samples = kind & 2;
    a.mask.row = rows ? a.kv_length : 0;
    a.mask.batch = samples ? a.kv_length * (rows ? a.length : 1) : 0;
    test(a, together);
  }
}

/* Windows of one key to nearly all, with and without a cap, a mask of rows, and documents. */
static void test_ranges(Attention a) {
  for (int kind = 0; kind < 16; kind++) {
    a.softcap = kind & 1 ? 1.5f : 0.0f;
    a.masked = kind & 2, a.mask.row = a.masked ? a.kv_length : 0;
    a.parted = kind & 4, a.documents.batch = kind & 8 && a.parted ? a.length : 0;
    if (kind & 8 && !a.parted) continue;
    for (int64_t window = 0; window < a.length; window = 5 * window + 1) {
      a.window = window;
      test(a, true);
    }
  }
}

/* A bias of each sample or the same for all, of scores or of distances, with its gradient or without; sinks; values larger
 * and smaller than keys; alone and with masks, windows, caps and documents. */
static void test_biases(Attention a, bool together) {
  for (int kind = 0; kind < 48; kind++) {
    const bool samples = kind & 1, distances = kind & 2, sinks = kind % 3 != 1, bias = kind % 3 != 2,
               learns = kind % 5;
    const int64_t rows = distances ? 1 : a.length, row = distances ? a.length + a.kv_length - 1 : a.kv_length;
    a.value_size = kind % 4 == 0 ? 0 : kind % 4 == 1 ? a.size + 37 : a.size / 2 + 1;
    a.bias.row = bias ? row : 0, a.bias.head = bias ? rows * row + 3 : 0;
    a.bias.batch = bias && samples ? a.heads * a.bias.head : 0;
    a.biased = bias, a.by_distance = bias && distances, a.bias_gradient = bias && learns;
    a.d_bias.row = learns ? a.bias.row : 0, a.d_bias.head = learns && bias ? rows * row : 0;
    a.d_bias.batch = samples ? a.heads * a.d_bias.head : 0;
    a.has_sinks = sinks, a.sinks.batch = a.d_sinks.batch = samples ? a.heads : 0;
    a.softcap = kind % 7 == 1 ? 1.5f : 0.0f;
    a.masked = kind % 5 == 2, a.mask.row = a.masked ? a.kv_length : 0;
    a.window = a.length == a.kv_length && kind % 6 == 1 ? a.length / 3 + 1 : 0;
    a.parted = a.length == a.kv_length && kind % 6 == 4;
    test(a, together);
  }
}

/* Results of rows first .. first + n of [length][width] differ. */
static bool differ(const float *a, const float *b, int64_t first, int64_t n, int64_t width) {
  return memcmp(a + first * width, b + first * width, (size_t)(n * width) * sizeof *a) != 0;
}

/* Tiles of other documents are not read, so that time falls with their lengths: NaN there changes no bit of a document that
 * begins and ends where tiles do. */
static void test_unread(bool causal) {
  enum { OWN = 128, N = 3 * OWN, HEADS = 2, SIZE = 16, WIDTH = HEADS * SIZE, ROW = 3 * WIDTH };
  Attention a = {.batch = 1, .heads = HEADS, .kv_heads = HEADS, .length = N, .kv_length = N, .size = SIZE};
  a.causal = causal, a.scale = 0.25f, a.parted = true;
  a.q.head = SIZE, a.q.row = ROW;
  a.k = a.v = a.dq = a.dk = a.dv = a.q;
  a.o.head = a.d_o.head = SIZE, a.o.row = a.d_o.row = WIDTH;
  int32_t documents[N];
  for (int i = 0; i < N; i++) documents[i] = i / OWN;
  const int64_t n_qkv = N * ROW, n_o = N * WIDTH;
  float *qkv = random_floats(n_qkv), *d_o = random_floats(n_o), *lse = floats(HEADS * N),
        *scratch = floats((int64_t)pd_attention_scratch(&a, 1) / 4), *o[2], *d[2];
  omp_set_num_threads(1);
  for (int first = 0; first < N; first += OWN) {
    float *with = floats(n_qkv), *d_with = floats(n_o);
    for (int poisoned = 0; poisoned < 2; poisoned++) {
      memcpy(with, qkv, (size_t)n_qkv * sizeof *qkv), memcpy(d_with, d_o, (size_t)n_o * sizeof *d_o);
      for (int i = 0; i < N && poisoned; i++)
        if (i < first || i >= first + OWN) {
          for (int j = 0; j < ROW; j++) with[i * ROW + j] = NAN;
          for (int j = 0; j < WIDTH; j++) d_with[i * WIDTH + j] = NAN;
        }
      o[poisoned] = floats(n_o), d[poisoned] = floats(n_qkv);
      pd_masked_attention_forward(&a, with, with + WIDTH, with + 2 * WIDTH, NULL, documents, o[poisoned], lse,
                                  scratch);
      pd_masked_attention_backward(&a, with, with + WIDTH, with + 2 * WIDTH, o[poisoned], lse, d_with, NULL,
                                   documents, d[poisoned], d[poisoned] + WIDTH, d[poisoned] + 2 * WIDTH, scratch);
    }
    expect(!differ(o[0], o[1], first, OWN, WIDTH), &a, "reads other documents forward, from", first);
    expect(!differ(d[0], d[1], first, OWN, ROW), &a, "reads other documents backward, from", first);
    for (int i = 0; i < 2; i++) free(o[i]), free(d[i]);
    free(with), free(d_with);
  }
  free(qkv), free(d_o), free(lse), free(scratch);
}

int main(void) {
  static const int64_t lengths[] = {1, 7, 63, 64, 65, 200, 256};
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int causal = 0; causal < 2; causal++) {
      int64_t t = lengths[i];
      Attention a = {.batch = 2, .heads = 3, .kv_heads = 3, .length = t, .kv_length = t, .size = 64};
      a.causal = causal, a.scale = 0.125f;
      test_masks(a, true);
      a.heads = 4, a.kv_heads = 2, a.size = 24, a.scale = 0.2f;
      test_masks(a, true);
      a.heads = 2, a.kv_heads = 1, a.size = 80, a.kv_length = t + 130;
      test_masks(a, false);
      a.kv_length = t / 2 + 1, a.size = 5;
      test_masks(a, false);
      a.softcap = 0.8f;
      test_masks(a, false);
    }
  for (int causal = 0; causal < 2; causal++) {
    Attention a = {.batch = 2, .heads = 2, .kv_heads = 1, .length = 7, .kv_length = 7, .size = 24};
    a.causal = causal, a.scale = 0.2f;
    test_ranges(a);
    a.length = a.kv_length = 170, a.kv_heads = 2, a.size = 8;
    test_ranges(a);
    a.batch = 1, a.length = a.kv_length = 100, a.kv_heads = 1, a.size = 40;
    test_ranges(a);
  }
  for (int causal = 0; causal < 2; causal++)
    for (int64_t length = 20; length < 200; length = 3 * length + 14) { /* a lone key's bias has no gradient */
      Attention a = {.batch = 3, .heads = 4, .kv_heads = 2, .length = length, .kv_length = length, .size = 24};
      a.causal = causal, a.scale = 0.2f;
      test_biases(a, true);
      a.kv_length = length + 71, a.kv_heads = 1;
      test_biases(a, false);
    }
  for (int causal = 0; causal < 2; causal++) test_unread(causal);
  printf("%016lx\n", (unsigned long)digest);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
