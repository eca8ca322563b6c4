/* Attention, forward and backward, against plain loops in double: lengths that are no multiple of a block, grouped
 * heads, causal or not, strides, masks, windows, caps, documents; the same bytes for 1, 2 and 4 threads. */
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

static int64_t query_elements(const Attention *a) { return a->batch * a->heads * a->length * a->size; }

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
      "FAIL heads %ld/%ld length %ld x %ld size %ld causal %d window %ld softcap %g mask %d %ld %ld documents %d %ld: %s "
      "%g\n",
      (long)a->heads, (long)a->kv_heads, (long)a->length, (long)a->kv_length, (long)a->size, a->causal,
      (long)a->window, (double)a->softcap, a->masked, (long)a->mask.batch, (long)a->mask.row, a->parted,
      (long)a->documents.batch, what, value);
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

/* q, k, v lie in one buffer qkv, as their gradients do; outputs are contiguous [batch][length][heads][size]. */
static void test(Attention a, bool together) {
  int64_t width = a.heads * a.size, kv_width = a.kv_heads * a.size, row = together ? width + 2 * kv_width : width;
  int64_t kv_row = together ? row : kv_width, n_q = a.batch * a.length * row, n_k = a.batch * a.kv_length * kv_row;
  int64_t n = together ? n_q : n_q + 2 * n_k, n_o = query_elements(&a), n_lse = a.batch * a.heads * a.length;
  int64_t at_k = together ? width : n_q, at_v = together ? width + kv_width : n_q + n_k;
  a.q.batch = a.dq.batch = a.length * row, a.q.head = a.dq.head = a.size, a.q.row = a.dq.row = row;
  a.k.batch = a.kv_length * kv_row, a.k.head = a.size, a.k.row = kv_row;
  a.v = a.dk = a.dv = a.k;
  a.o.batch = a.d_o.batch = a.length * width, a.o.head = a.d_o.head = a.size, a.o.row = a.d_o.row = width;

  int32_t *documents = a.parted ? new_documents(&a) : NULL;
  const bool general = a.masked || a.parted;
  float *mask = a.masked ? new_mask(&a) : NULL, *qkv = random_floats(n), *d_o = random_floats(n_o), *first = NULL;
  for (int64_t i = 0; i < n; i++) qkv[i] *= 1.5f;
  double *in = widened(qkv, n), *in_d_o = widened(d_o, n_o);
  double *p = zeros(2 * a.kv_length), *o_exact = zeros(n_o), *gradient = zeros(n);
  for (int64_t b = 0; b < a.batch; b++)
    for (int64_t h = 0; h < a.heads; h++)
      for (int64_t i = 0; i < a.length; i++) {
        forward_exact(&a, in, in + at_k, in + at_v, mask, documents, p, o_exact, b, h, i);
        backward_exact(&a, in, in + at_k, in + at_v, in_d_o, p, o_exact, gradient, gradient + at_k,
                       gradient + at_v, b, h, i);
      }
  int64_t total = n_o + n_lse + n;
  float *out = floats(total), *lse = out + n_o, *d = lse + n_lse;
  for (int threads = 1; threads <= 4; threads *= 2) {
    omp_set_num_threads(threads);
    size_t scratch = pd_attention_scratch(&a, threads);
    char *space = (char *)floats((int64_t)scratch / 4 + 16);
    memset(space, 0xff, scratch + 64); /* NaN */
    memset(out, 0xff, (size_t)total * sizeof *out);
    if (general)
      pd_masked_attention_forward(&a, qkv, qkv + at_k, qkv + at_v, mask, documents, out, lse, space);
    else
      pd_attention_forward(&a, qkv, qkv + at_k, qkv + at_v, out, lse, space);
    memset(space, 0xff, scratch);
    if (general)
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
      first = floats(total);
      memcpy(first, out, (size_t)total * sizeof *out);
      add_to_digest(out, (size_t)total * sizeof *out);
      add_to_digest(&scratch, sizeof scratch);
    } else {
      expect(!memcmp(first, out, (size_t)total * sizeof *out), &a, "other bytes for threads", threads);
    }
  }
  free(mask), free(documents), free(qkv), free(d_o), free(first), free(p), free(in), free(in_d_o), free(o_exact),
      free(gradient), free(out);
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
  printf("%016lx\n", (unsigned long)digest);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
