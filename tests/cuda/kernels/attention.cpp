/* Attention on a GPU against plain loops in double: floats and bf16, on tensor cores or not, lengths that are no
 * multiple of a tile, grouped heads, causal or not, strides, masks, windows, caps, documents; and by graphs of cuDNN's. The
 * loops' gradients against finite differences. */
#include "../../kernels/attention_exact.h"
#include "cuda/scratch.h"
#include "test.h"

/* What tensors are and how far results may be off, by the largest magnitude of each tensor. */
struct Kind {
  const char *name;
  bool bf16;
  int64_t offset; /* elements before the tensors: how they are aligned */
  int64_t gap;    /* between rows of outputs */
};

static const Kind F32 = {"f32", false, 0, 4}, UNALIGNED = {"f32 unaligned", false, 1, 3};
static const Kind BF16 = {"bf16", true, 0, 8}, BF16_UNALIGNED = {"bf16 unaligned", true, 1, 3};

/* Rounded to bf16 (unit roundoff 2^-9) are p, o, which are averages of v with weights p, for the gradients p, ds,
 * o by way of delta, and they themselves. */
static double bound(bool bf16, bool gradient) {
  return bf16 ? (gradient ? 4 : 3) * 0x1p-9 : gradient ? 3e-6 : 2e-6;
}

static void expect(bool ok, const Attention &a, const Kind &kind, const char *what, double value) {
  if (ok) return;
  printf("FAIL %s heads %d/%d length %d x %d size %d causal %d window %d softcap %g mask %d %d %d documents %d %d "
         "values %d bias %d %d %d by distance %d sinks %d: %s %g\n",
         kind.name, (int)a.heads, (int)a.kv_heads, (int)a.length, (int)a.kv_length, (int)a.size, a.causal,
         (int)a.window, a.softcap, a.masked, (int)a.mask.batch, (int)a.mask.row, a.parted, (int)a.documents.batch,
         (int)a.value_size, a.biased, (int)a.bias.batch, (int)a.bias.row, a.by_distance, a.has_sinks, what, value);
  failures++;
}

/* Largest difference over the largest magnitude; where `exact` is NaN nothing was to be written. */
static double error(const std::vector<float> &got, const std::vector<double> &exact) {
  double worst = 0, size = 1e-30;
  for (size_t i = 0; i < got.size(); i++) {
    bool same = isnan(exact[i]) ? isnan(got[i]) : got[i] == exact[i];
    double e = same ? 0 : fabs(got[i] - exact[i]);
    worst = fmax(worst, isnan(e) ? INFINITY : e);
    if (isfinite(exact[i])) size = fmax(size, fabs(exact[i]));
  }
  return worst / size;
}

/* Numbers, hidden keys here and there, most of the last, and of the second sample (or the last row) all. */
static std::vector<float> new_mask(const Attention &a) {
  int64_t rows = (a.mask.batch ? a.batch : 1) * (a.mask.row ? a.length : 1), n = a.kv_length;
  std::vector<float> mask = random_floats(rows * n);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++)
      if ((rows > 1 && i + 1 == rows) || random_float() > (j < n * 2 / 3 ? 0.6f : -0.8f))
        mask[(size_t)(i * n + j)] = j % 3 == 0 ? -INFINITY : j % 3 == 1 ? -10000.0f : -1e9f;
  return mask;
}

/* Runs of one to many positions. */
static std::vector<int32_t> new_documents(const Attention &a) {
  std::vector<int32_t> number((size_t)(a.length * (a.documents.batch ? a.batch : 1)));
  int left = 0;
  for (size_t i = 0; i < number.size(); i++, left--) {
    bool begins = left <= 0;
    if (begins) left = random_float() > 0 ? 1 + (int)(40 * (random_float() + 1)) : 1;
    number[i] = i ? (number[i - 1] + begins) % 3 : 0;
  }
  return number;
}

/* Where q, k and v are, in one array with their gradients' layout; o and d_o are [batch][length][heads][size],
 * with gaps between rows. */
struct Layout {
  int64_t n, k, v, n_o;
};

static Layout lay_out(Attention *a, bool together, int64_t gap) {
  int64_t value_size = pd_attention_value_size(a), v_width = a->kv_heads * value_size;
  int64_t width = a->heads * a->size, kv_width = a->kv_heads * a->size;
  int64_t row = together ? width + kv_width + v_width : width, kv_row = together ? row : kv_width;
  int64_t v_row = together ? row : v_width, n_v = a->batch * a->kv_length * v_row;
  int64_t n_q = a->batch * a->length * row, n_k = a->batch * a->kv_length * kv_row;
  int64_t o_row = a->heads * value_size + gap;
  a->q = a->dq = {a->length * row, a->size, row};
  a->k = a->dk = {a->kv_length * kv_row, a->size, kv_row};
  a->v = a->dv = {a->kv_length * v_row, value_size, v_row};
  a->o = a->d_o = {a->length * o_row, value_size, o_row};
  if (together) return {n_q, width, width + kv_width, a->batch * a->length * o_row};
  return {n_q + n_k + n_v, n_q, n_q + n_k, a->batch * a->length * o_row};
}

/* Zeros where the tensors' elements are, NaN in the gaps. */
static std::vector<double> zeros_of_o(const Attention &a, int64_t n) {
  std::vector<double> o((size_t)n, NAN);
  for (int64_t i = 0; i < n; i++)
    if (i % a.o.row < a.heads * pd_attention_value_size(&a)) o[(size_t)i] = 0;
  return o;
}

struct Exact {
  std::vector<double> o, lse, gradient, d_bias, d_sinks;
};

static Exact compute(const Attention &a, const Layout &l, const std::vector<double> &qkv,
                     const std::vector<double> &d_o, const float *mask, const int32_t *documents = nullptr,
                     const float *bias = nullptr, const float *sinks = nullptr) {
  Exact x = {zeros_of_o(a, l.n_o), {}, std::vector<double>((size_t)l.n), {}, {}};
  x.d_bias.resize((size_t)(a.bias_gradient ? (a.d_bias.batch ? a.batch : 1) * a.heads * a.d_bias.head : 0));
  x.d_sinks.resize((size_t)(a.has_sinks ? (a.d_sinks.batch ? a.batch : 1) * a.heads : 0));
  const Biases biases = {bias, sinks, x.d_bias.empty() ? nullptr : x.d_bias.data(),
                         x.d_sinks.empty() ? nullptr : x.d_sinks.data()};
  std::vector<double> p((size_t)(2 * a.kv_length));
  const double *q = qkv.data(), *k = q + l.k, *v = q + l.v;
  double *d = x.gradient.data();
  for (int64_t b = 0; b < a.batch; b++)
    for (int64_t h = 0; h < a.heads; h++)
      for (int64_t i = 0; i < a.length; i++) {
        x.lse.push_back(forward_exact(&a, q, k, v, mask, documents, &biases, p.data(), x.o.data(), b, h, i));
        backward_exact(&a, q, k, v, d_o.data(), &biases, x.lse.back(), p.data(), x.o.data(), d, d + l.k, d + l.v,
                       b, h, i);
      }
  return x;
}

static std::vector<float> inputs(int64_t n, float size, bool bf16) {
  std::vector<float> x = random_floats(n);
  for (float &e : x) e = bf16 ? rounded(e * size) : e * size;
  return x;
}

static bool by_cudnn; /* what it has graphs for */

/* A plan that has the stand-in's cuDNN compute it. */
struct Planned {
  enum { ENGINE = 2, KNOB = 24, VALUE = 7, VERSION = 91900 };
  char names[2][PD_ATTENTION_NAME];
  pd_planned_attention table[2];

  explicit Planned(const Attention &a) {
    cudaDeviceProp device;
    pd_cuda_check(cudaGetDeviceProperties(&device, 0), "ask for the device");
    for (int backward = 0; backward < 2; backward++) {
      pd_attention_name(names[backward], &a, backward);
      int64_t workspace = 12 + (backward ? 2 * a.batch * a.heads * a.length * a.size : 0);
      table[backward] = {names[backward], ENGINE, workspace, 1, {KNOB, VALUE}};
    }
    pd_use_attentions(table, by_cudnn ? 2 : 0, device.name, VERSION);
  }
  int64_t scratch(const Attention &a, bool backward) const {
    return pd_cuda_attention_scratch(&a, backward, by_cudnn ? table[backward].workspace : 0);
  }
};

static const float *floats_of(const Device &x, bool any) { return any ? (const float *)x.at(0) : nullptr; }

static void run(const Attention &a, const Layout &l, const Device &in, const Device &in_d_o, const Device &mask,
                const int32_t *documents, const Device &bias, const Device &sinks, const Device &o,
                const Device &lse, const Device &d, const Device &d_bias, const Device &d_sinks, bool backward) {
  Planned plan(a);
  Device space((plan.scratch(a, true) + 3) / 4, false), forward_space((plan.scratch(a, false) + 3) / 4, false);
  pd_in q = in.in(), k = in.in(l.k), v = in.in(l.v);
  pd_out dq = d.out(), dk = d.out(l.k), dv = d.out(l.v);
  bool general = a.masked || a.parted, biased = a.biased || a.has_sinks;
  pd_in with_bias = a.biased ? bias.in() : pd_in(nullptr), with_sinks = a.has_sinks ? sinks.in() : pd_in(nullptr);
  pd_in with = a.masked ? mask.in() : pd_in(nullptr);
  if (biased)
    pd_biased_attention_forward(&a, q, k, v, with, documents, with_bias, with_sinks, o.out(), lse.out(),
                                forward_space.at(0));
  else if (general)
    pd_masked_attention_forward(&a, q, k, v, with, documents, o.out(), lse.out(), forward_space.at(0));
  else
    pd_attention_forward(&a, q, k, v, o.out(), lse.out(), forward_space.at(0));
  if (biased && backward)
    pd_biased_attention_backward(&a, q, k, v, o.in(), lse.in(), in_d_o.in(), with, documents, with_bias,
                                 with_sinks, dq, dk, dv, (float *)floats_of(d_bias, a.bias_gradient),
                                 (float *)floats_of(d_sinks, a.has_sinks), space.at(0));
  else if (general && backward)
    pd_masked_attention_backward(&a, q, k, v, o.in(), lse.in(), in_d_o.in(), with, documents, dq, dk, dv,
                                 space.at(0));
  else if (backward)
    pd_attention_backward(&a, q, k, v, o.in(), lse.in(), in_d_o.in(), dq, dk, dv, space.at(0));
  space.fetch();
  forward_space.fetch();
}

/* apart: added to q, taken from k, so that scores become small. */
static void test(Attention a, const Kind &kind, bool together, bool backward = true, float apart = 0) {
  Layout l = lay_out(&a, together, kind.gap);
  std::vector<float> mask = a.masked ? new_mask(a) : std::vector<float>();
  std::vector<float> qkv = inputs(l.n, 1.5f, kind.bf16), d_o = inputs(l.n_o, 1, kind.bf16);
  for (int64_t i = 0; i < l.v && apart != 0; i++) qkv[(size_t)i] = i < l.k ? apart : -apart;
  std::vector<int32_t> documents = a.parted ? new_documents(a) : std::vector<int32_t>();
  std::vector<float> bias =
      inputs(a.biased ? (a.bias.batch ? a.batch : 1) * a.heads * a.bias.head : 0, 1, kind.bf16);
  std::vector<float> sinks = inputs(a.has_sinks ? a.batch * a.heads : 0, 1, kind.bf16);
  Exact exact = compute(a, l, {qkv.begin(), qkv.end()}, {d_o.begin(), d_o.end()}, mask.data(), documents.data(),
                        a.biased ? bias.data() : nullptr, a.has_sinks ? sinks.data() : nullptr);

  Device in(qkv, kind.bf16, kind.offset), in_d_o(d_o, kind.bf16, kind.offset), in_mask(mask, false);
  std::vector<float> words(documents.size());
  if (a.parted) memcpy(words.data(), documents.data(), documents.size() * sizeof documents[0]);
  Device in_documents(words, false);
  Device o(l.n_o, kind.bf16, kind.offset), d(l.n, kind.bf16, kind.offset);
  Device lse(a.batch * a.heads * a.length, false);
  Device in_bias(bias, kind.bf16), in_sinks(sinks, kind.bf16);
  Device d_bias((int64_t)exact.d_bias.size(), false), d_sinks((int64_t)exact.d_sinks.size(), false);
  run(a, l, in, in_d_o, in_mask, a.parted ? (const int32_t *)in_documents.at(0) : nullptr, in_bias, in_sinks, o,
      lse, d, d_bias, d_sinks, backward);
  double of_o = error(o.fetch(), exact.o), of_lse = error(lse.fetch(), exact.lse);
  expect(of_o < bound(kind.bf16, false), a, kind, "error of o", of_o);
  expect(of_lse < 1e-6, a, kind, "error of lse", of_lse);
  double of_d = backward ? error(d.fetch(), exact.gradient) : 0;
  expect(of_d < bound(kind.bf16, true), a, kind, "error of the gradients", of_d);
  if (a.bias_gradient && backward) of_d = error(d_bias.fetch(), exact.d_bias);
  expect(of_d < bound(kind.bf16, true), a, kind, "error of the bias's gradient", of_d);
  if (a.has_sinks && backward) of_d = error(d_sinks.fetch(), exact.d_sinks);
  /* rows' parts, of which each is rounded, cancel */
  expect(of_d < (kind.bf16 ? 4 : 1) * bound(kind.bf16, true), a, kind, "error of the sinks' gradient", of_d);
}

/* Windows of one key to nearly all, capped scores, documents, masks of rows. */
static void test_ranges(Attention a, const Kind &kind) {
  for (int which = 0; which < 12; which++) {
    a.window = which % 3 == 0 ? 0 : which % 3 == 1 ? 1 + which / 3 : a.length / 2;
    a.softcap = which & 2 ? 0.9f : 0.0f;
    a.parted = which & 4, a.documents.batch = a.parted && which & 1 ? a.length : 0;
    a.masked = which == 5 || which == 10, a.mask.row = a.masked ? a.kv_length : 0;
    test(a, kind, true);
  }
}

/* With a mask of each sample or the same for all, of rows or the same for all rows. */
static void test_masks(Attention a, const Kind &kind, bool together) {
  a.masked = true;
  for (int which = 0; which < 4; which++) {
    bool rows = which & 1, samples = which & 2;
    a.mask.row = rows ? a.kv_length : 0;
    a.mask.batch = samples ? a.kv_length * (rows ? a.length : 1) : 0;
    test(a, kind, together);
  }
}

/* A bias of each sample or shared, of scores or of distances; sinks; values of another size; with masks, windows, caps,
 * documents. */
static void test_biases(Attention a, const Kind &kind, bool together) {
  for (int which = 0; which < 12; which++) {
    bool samples = which & 1, distances = which & 2, same = a.length == a.kv_length;
    int64_t rows = distances ? 1 : a.length, row = distances ? a.length + a.kv_length - 1 : a.kv_length;
    a.value_size = which % 4 == 0 ? 0 : which % 4 == 1 ? a.size + 24 : a.size / 16 * 8;
    a.biased = which % 3 != 2, a.by_distance = a.biased && distances, a.bias_gradient = a.biased && which % 5 != 1;
    a.bias = {samples ? a.heads * rows * row : 0, rows * row, row};
    a.d_bias = a.bias;
    a.has_sinks = which % 3 != 1, a.sinks.batch = a.d_sinks.batch = samples ? a.heads : 0;
    a.softcap = which == 7 ? 0.9f : 0.0f;
    a.masked = which == 4 || which == 9, a.mask.row = a.masked ? a.kv_length : 0;
    a.window = same && which == 6 ? a.length / 2 + 1 : 0;
    a.parted = same && which == 10;
    test(a, kind, together);
  }
}

/* Rows of o without the gaps behind them. */
static std::vector<float> without_gaps(std::vector<float> o, const Attention &a) {
  for (size_t i = 0; i < o.size(); i++)
    if ((int64_t)i % a.o.row >= a.heads * a.size) o[i] = 0;
  return o;
}

/* Tiles of other documents are not read, so that time falls with their lengths: NaN there changes no bit of a document that
 * begins and ends where tiles do. */
static void test_unread(Attention a, const Kind &kind) {
  enum { OWN = 128 };
  a.batch = 1, a.parted = true;
  Layout l = lay_out(&a, true, kind.gap);
  std::vector<int32_t> documents((size_t)a.length);
  for (size_t i = 0; i < documents.size(); i++) documents[i] = (int32_t)i / OWN;
  std::vector<float> qkv = inputs(l.n, 1.5f, kind.bf16), d_o = inputs(l.n_o, 1, kind.bf16),
                     words(documents.size());
  memcpy(words.data(), documents.data(), documents.size() * sizeof documents[0]);
  Device in_documents(words, false), none(0, false);
  const auto within = [&](const std::vector<float> &x, int64_t row, int64_t first) {
    return std::vector<float>(x.begin() + first * row, x.begin() + (first + OWN) * row);
  };
  for (int64_t first = 0; first < a.length; first += OWN) {
    std::vector<float> got[2][2];
    for (int poisoned = 0; poisoned < 2; poisoned++) {
      std::vector<float> with = qkv, d_with = d_o;
      for (int64_t i = 0; i < a.length && poisoned; i++)
        if (i / OWN != first / OWN) {
          std::fill_n(with.begin() + i * a.q.row, a.q.row, NAN);
          std::fill_n(d_with.begin() + i * a.o.row, a.o.row, NAN);
        }
      Device in(with, kind.bf16, kind.offset), in_d_o(d_with, kind.bf16, kind.offset);
      Device o(l.n_o, kind.bf16, kind.offset), d(l.n, kind.bf16, kind.offset), lse(a.heads * a.length, false);
      run(a, l, in, in_d_o, none, (const int32_t *)in_documents.at(0), none, none, o, lse, d, none, none, true);
      got[poisoned][0] = without_gaps(within(o.fetch(), a.o.row, first), a);
      got[poisoned][1] = within(d.fetch(), a.q.row, first);
    }
    expect(got[0][0] == got[1][0], a, kind, "reads other documents forward, from", (double)first);
    expect(got[0][1] == got[1][1], a, kind, "reads other documents backward, from", (double)first);
  }
}

static Attention shape(int64_t length, int64_t kv_length, int64_t size, bool causal) {
  Attention a = {};
  a.batch = 2, a.heads = a.kv_heads = 1, a.length = length, a.kv_length = kv_length, a.size = size;
  a.causal = causal, a.scale = (float)(1 / sqrt((double)size));
  return a;
}

static Attention grouped(Attention a, int64_t heads, int64_t kv_heads) {
  a.heads = heads, a.kv_heads = kv_heads;
  return a;
}

/* The plain loops' gradients: what o . d_o changes by when an element of q, k or v does. */
static void test_exact() {
  Attention a = grouped(shape(5, 5, 3, true), 4, 2);
  Layout l = lay_out(&a, true, 0);
  std::vector<float> x = random_floats(l.n), y = random_floats(l.n_o);
  std::vector<double> qkv(x.begin(), x.end()), d_o(y.begin(), y.end());
  std::vector<double> gradient = compute(a, l, qkv, d_o, nullptr).gradient;
  for (size_t i = 0; i < qkv.size(); i++) {
    double value = qkv[i], step = 1e-5, change = 0;
    for (int side = -1; side <= 1; side += 2) {
      qkv[i] = value + side * step;
      Exact e = compute(a, l, qkv, d_o, nullptr);
      for (size_t j = 0; j < d_o.size(); j++) change += side * e.o[j] * d_o[j];
    }
    qkv[i] = value;
    expect(fabs(change / (2 * step) - gradient[i]) < 1e-8, a, F32, "finite difference of element", (double)i);
  }
}

static void test_f32() {
  static const int64_t lengths[] = {1, 7, 64, 65, 128, 200};
  for (int64_t n : lengths) {
    test(shape(n, n, 64, true), F32, true);
    test(shape(n, n, 24, false), F32, true);
  }
  test(grouped(shape(65, 130, 8, false), 4, 2), F32, false);
  test(grouped(shape(70, 33, 80, true), 2, 1), F32, false);
  test(shape(65, 65, 128, true), F32, true);
  test(shape(40, 70, 256, true), F32, false);
  test(grouped(shape(33, 40, 5, false), 2, 1), UNALIGNED, false);
  test(shape(33, 65, 64, false), UNALIGNED, false);
  Attention turned = shape(20, 70, 16, false);
  turned.scale = -0.5f;
  test(turned, F32, false);
  test(turned, BF16, false);
  test_masks(grouped(shape(65, 65, 24, true), 2, 1), F32, true);
  test_masks(shape(20, 100, 64, false), F32, false);
  for (bool causal : {false, true}) test_ranges(grouped(shape(150, 150, 24, causal), 2, 1), F32);
  test_ranges(shape(70, 70, 128, true), F32);
  for (bool causal : {false, true}) test_unread(grouped(shape(384, 384, 16, causal), 2, 1), F32);
  test_biases(grouped(shape(70, 70, 40, true), 4, 2), F32, true);
  test_biases(grouped(shape(33, 80, 24, false), 2, 1), F32, false);
  test_biases(shape(20, 40, 136, false), F32, false);
}

static void test_bf16() {
  static const int64_t lengths[] = {1, 7, 64, 65, 128, 200};
  for (int64_t n : lengths) test(shape(n, n, 64, n % 2), BF16, true);
  test(shape(130, 130, 64, true), BF16, true);
  test(grouped(shape(70, 70, 64, true), 66, 33), BF16, true, false); /* enough for blocks of 128 rows */
  test(grouped(shape(33, 70, 128, false), 66, 66), BF16, false, false);
  test(grouped(shape(65, 130, 8, false), 4, 2), BF16, false);
  test(grouped(shape(70, 33, 80, true), 2, 1), BF16, false);
  test(shape(65, 65, 128, true), BF16, true);
  test(shape(40, 70, 256, true), BF16, false);
  test(grouped(shape(33, 40, 5, false), 2, 1), BF16_UNALIGNED, false);
  test(shape(33, 65, 64, false), BF16_UNALIGNED, false);
  test(shape(33, 40, 64, false), BF16, false, true, 6); /* keys behind the last are likelier than the others */
  test_masks(grouped(shape(65, 65, 24, true), 2, 1), BF16, true);
  test_masks(shape(20, 100, 80, false), BF16, false);
  for (bool causal : {false, true}) test_ranges(grouped(shape(150, 150, 24, causal), 2, 1), BF16);
  test_ranges(shape(70, 70, 128, true), BF16);
  for (bool causal : {false, true}) test_unread(grouped(shape(384, 384, 16, causal), 2, 1), BF16);
  test_biases(grouped(shape(70, 70, 40, true), 4, 2), BF16, true);
  test_biases(grouped(shape(33, 80, 24, false), 2, 1), BF16, false);
}

int main(int argc, char **argv) {
  by_cudnn = argc > 1 && !strcmp(argv[1], "cudnn");
  bool bf16 = by_cudnn || (argc > 1 && !strcmp(argv[1], "bf16"));
  pd_cuda_check(cudaStreamCreate(&pd_stream), "create a stream");
  test_exact();
  if (bf16)
    test_bf16();
  else
    test_f32();
  if (pd_counts.own_attentions)
    printf("FAIL %d are our own kernels'\n", (int)pd_counts.own_attentions), failures++;
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
