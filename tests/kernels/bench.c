/* Rates of the kernels on one thread, each beside dnnl_sgemm at 1024 cubed measured alternately with
 * it: medians of the ratios. Usage: kernels_bench [REPETITIONS [convolution | product | attention | documents | lstm |
 * experts]] */
#include "test.h"

#include <oneapi/dnnl/dnnl.h>
#include <time.h>

enum { CUBE = 1024, MAX_REPETITIONS = 1001 };

static int repetitions = 15;
static float *cube_a, *cube_b, *cube_c;

static double now(void) { /* processor time: others on the machine do not count */
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Measures run(work), of so many operations, and prints its line. */
static void measure(const char *name, double operations, void (*run)(void *work), void *work) {
  double ratio[MAX_REPETITIONS], seconds[MAX_REPETITIONS];
  run(work);
  for (int i = 0; i < repetitions; i++) {
    double t0 = now();
    dnnl_sgemm('N', 'N', CUBE, CUBE, CUBE, 1, cube_a, CUBE, cube_b, CUBE, 0, cube_c, CUBE);
    double t1 = now();
    run(work);
    double t2 = now();
    seconds[i] = t2 - t1;
    ratio[i] = operations / seconds[i] / (2.0 * CUBE * CUBE * CUBE / (t1 - t0));
  }
  qsort(ratio, (size_t)repetitions, sizeof *ratio, compare);
  qsort(seconds, (size_t)repetitions, sizeof *seconds, compare);
  double middle = seconds[repetitions / 2];
  printf("%-44s %8.3f ms %6.1f GFLOP/s %6.3f of sgemm\n", name, middle * 1e3, operations / middle * 1e-9,
         ratio[repetitions / 2]);
  fflush(stdout);
}

struct product {
  struct pd_matmul *matmul;
  pd_in a, b;
  pd_out c;
  void *scratch;
};

/* Past the macro that takes pointers (pd_calls.h). */
static void run_product(void *work) {
  struct product *p = work;
  (pd_matmul)(p->matmul, p->a, p->b, (pd_in){NULL, PD_F32}, p->c, p->scratch);
}

static pd_in random_operand(int64_t n, enum pd_type type) {
  float *x = random_floats(n);
  pd_in made = operand(x, n, type);
  free(x);
  return made;
}

/* The result in f32 where it is added to, else in the operands' type. */
static void bench_product(const char *form, struct pd_matmul_shape s, enum pd_type type) {
  char name[99];
  snprintf(name, sizeof name, "%s%-16s [%ld, %ld] = sum over %ld", type == PD_BF16 ? "bf16 " : "", form, (long)s.m,
           (long)s.n, (long)s.k);
  s.batch = s.c_batch = 1;
  s.c_row = s.n;
  s.a_type = s.b_type = type;
  s.c_type = s.accumulate ? PD_F32 : type;
  pd_in c = random_operand(s.m * s.n, s.c_type);
  struct product p = {pd_matmul_new(s),
                      random_operand(s.m * s.k, type),
                      random_operand(s.k * s.n, type),
                      {(void *)c.at, c.type},
                      NULL};
  p.scratch = floats((int64_t)pd_matmul_scratch(p.matmul) / 4 + 16);
  measure(name, 2.0 * (double)s.m * (double)s.n * (double)s.k, run_product, &p);
  free((void *)p.a.at), free((void *)p.b.at), free(p.c.at), free(p.scratch);
}

/* A linear layer's products: m rows, n outputs, k inputs. */
static void bench_layer(int64_t m, int64_t n, int64_t k) {
  for (enum pd_type type = PD_F32; type <= PD_BF16; type++) {
    bench_product(
        "x w^T",
        (struct pd_matmul_shape){.m = m, .n = n, .k = k, .a_row = k, .a_column = 1, .b_row = 1, .b_column = k},
        type);
    bench_product(
        "dy w",
        (struct pd_matmul_shape){.m = m, .n = k, .k = n, .a_row = n, .a_column = 1, .b_row = k, .b_column = 1},
        type);
    struct pd_matmul_shape dw = {.m = n, .n = k, .k = m, .a_row = 1, .a_column = n, .b_row = k, .b_column = 1};
    if (type == PD_F32) bench_product("dy^T x", dw, type);
    dw.accumulate = true;
    bench_product("dy^T x, added", dw, type);
  }
}

struct heads {
  struct pd_attention a;
  float *qkv, *o, *lse, *d_o, *d_qkv, *bias, *d_bias; /* bias NULL: none */
  int32_t *documents;
  void *scratch;
  int64_t width;
};

static void run_biased_forward(void *work) {
  struct heads *h = work;
  pd_biased_attention_forward(&h->a, h->qkv, h->qkv + h->width, h->qkv + 2 * h->width, (float *)NULL, NULL,
                              h->bias, NULL, h->o, h->lse, h->scratch);
}

static void run_biased_backward(void *work) {
  struct heads *h = work;
  int64_t w = h->width;
  pd_biased_attention_backward(&h->a, h->qkv, h->qkv + w, h->qkv + 2 * w, h->o, h->lse, h->d_o, (float *)NULL,
                               NULL, h->bias, (float *)NULL, h->d_qkv, h->d_qkv + w, h->d_qkv + 2 * w, h->d_bias,
                               NULL, h->scratch);
}

static void run_forward(void *work) {
  struct heads *h = work;
  pd_attention_forward(&h->a, h->qkv, h->qkv + h->width, h->qkv + 2 * h->width, h->o, h->lse, h->scratch);
}

static void run_backward(void *work) {
  struct heads *h = work;
  int64_t w = h->width;
  pd_attention_backward(&h->a, h->qkv, h->qkv + w, h->qkv + 2 * w, h->o, h->lse, h->d_o, h->d_qkv, h->d_qkv + w,
                        h->d_qkv + 2 * w, h->scratch);
}

typedef enum { UNBIASED, BY_SCORE, BY_DISTANCE } Bias;

/* Causal; window 0: none. Rates count visible keys. The gradient of the bias is computed. */
static void bench_attention(int64_t batch, int64_t heads, int64_t length, int64_t size, int64_t window,
                            float softcap, Bias bias) {
  struct heads h = {.a = {.batch = batch,
                          .heads = heads,
                          .kv_heads = heads,
                          .length = length,
                          .kv_length = length,
                          .size = size,
                          .causal = true,
                          .window = window,
                          .scale = 0.125f,
                          .softcap = softcap},
                    .width = heads * size};
  int64_t n = batch * length * h.width;
  struct pd_attention *a = &h.a;
  a->q.batch = 3 * length * h.width, a->q.head = size, a->q.row = 3 * h.width;
  a->k = a->v = a->dq = a->dk = a->dv = a->q;
  a->o.batch = length * h.width, a->o.head = size, a->o.row = h.width;
  a->d_o = a->o;
  h.qkv = random_floats(3 * n), h.d_qkv = floats(3 * n), h.o = floats(n), h.d_o = random_floats(n);
  const int64_t row = bias == BY_DISTANCE ? 2 * length - 1 : length, head = bias == BY_SCORE ? length * row : row;
  a->biased = a->bias_gradient = bias != UNBIASED, a->by_distance = bias == BY_DISTANCE;
  a->bias.row = a->d_bias.row = row, a->bias.head = a->d_bias.head = head;
  h.bias = bias ? random_floats(heads * head) : NULL, h.d_bias = floats(heads * head);
  h.lse = floats(batch * heads * length), h.scratch = floats((int64_t)pd_attention_scratch(a, 1) / 4);
  int64_t most = window ? window : length, pairs = most * (2 * length - most + 1) / 2;
  double operations = 4.0 * (double)(batch * heads * pairs * size);
  char name[99];
  static const char *const of[] = {"", ", bias", ", by distance"};
  snprintf(name, sizeof name, "attention %ld x %ld heads x %ld x %ld, %ld, %g%s", (long)batch, (long)heads,
           (long)length, (long)size, (long)window, (double)softcap, of[bias]);
  measure(name, operations, bias ? run_biased_forward : run_forward, &h);
  measure("  backward", 2.5 * operations, bias ? run_biased_backward : run_backward, &h);
  free(h.bias), free(h.d_bias);
  free(h.qkv), free(h.d_qkv), free(h.o), free(h.d_o), free(h.lse), free(h.scratch);
}

static void run_packed_forward(void *work) {
  struct heads *h = work;
  pd_masked_attention_forward(&h->a, h->qkv, h->qkv + h->width, h->qkv + 2 * h->width, NULL, h->documents, h->o,
                              h->lse, h->scratch);
}

static void run_packed_backward(void *work) {
  struct heads *h = work;
  const int64_t w = h->width;
  pd_masked_attention_backward(&h->a, h->qkv, h->qkv + w, h->qkv + 2 * w, h->o, h->lse, h->d_o, NULL, h->documents,
                               h->d_qkv, h->d_qkv + w, h->d_qkv + 2 * w, h->scratch);
}

/* Causal, a row of documents of one length. Rates count visible keys. */
static void bench_packed(int64_t heads, int64_t length, int64_t size, int64_t document) {
  struct heads h = {.a = {.batch = 1,
                          .heads = heads,
                          .kv_heads = heads,
                          .length = length,
                          .kv_length = length,
                          .size = size,
                          .causal = true,
                          .parted = true,
                          .scale = 0.125f},
                    .width = heads * size};
  const int64_t n = length * h.width, pairs = length * (document + 1) / 2;
  struct pd_attention *a = &h.a;
  a->q.head = size, a->q.row = 3 * h.width;
  a->k = a->v = a->dq = a->dk = a->dv = a->q;
  a->o.head = a->d_o.head = size, a->o.row = a->d_o.row = h.width;
  h.qkv = random_floats(3 * n), h.d_qkv = floats(3 * n), h.o = floats(n), h.d_o = random_floats(n);
  h.lse = floats(heads * length), h.scratch = floats((int64_t)pd_attention_scratch(a, 1) / 4);
  h.documents = (int32_t *)floats(length);
  for (int64_t i = 0; i < length; i++) h.documents[i] = (int32_t)(i / document);
  const double operations = 4.0 * (double)(heads * pairs * size);
  char name[99];
  snprintf(name, sizeof name, "attention %ld heads x %ld x %ld, documents of %ld", (long)heads, (long)length,
           (long)size, (long)document);
  measure(name, operations, run_packed_forward, &h);
  measure("  backward", 2.5 * operations, run_packed_backward, &h);
  free(h.documents), free(h.qkv), free(h.d_qkv), free(h.o), free(h.d_o), free(h.lse), free(h.scratch);
}

/* As of a layer in the middle of a model in bf16: cells and gates stay floats. */
struct recurrence {
  struct pd_lstm l;
  pd_in x, w, dh;
  pd_out h, last, d_gates, previous;
  float *c, *last_c, *gates;
  void *scratch;
};

static void run_lstm(void *work) {
  struct recurrence *r = work;
  (pd_lstm_forward)(&r->l, r->x, r->w, (pd_in){NULL, PD_F32}, (pd_in){NULL, PD_F32}, NULL, r->h, r->last,
                    (pd_out){r->last_c, PD_F32}, (pd_out){r->c, PD_F32}, (pd_out){r->gates, PD_F32}, r->scratch);
}

static void run_lstm_backward(void *work) {
  struct recurrence *r = work;
  pd_in no = {NULL, PD_F32};
  pd_out none = {NULL, PD_F32};
  (pd_lstm_backward)(&r->l, r->w, no, no, NULL, pd_made(r->h), (pd_in){r->c, PD_F32}, (pd_in){r->gates, PD_F32},
                     r->dh, no, no, r->d_gates, r->previous, none, none, r->scratch);
}

static pd_out result(int64_t n, enum pd_type type) { return (pd_out){floats(n), type}; }

static void bench_lstm(int64_t batch, int64_t length, int64_t hidden, enum pd_type type) {
  int64_t n = batch * length * hidden;
  float *w = random_floats(4 * hidden * hidden);
  for (int64_t i = 0; i < 4 * hidden * hidden; i++) w[i] *= 0.05f;
  struct recurrence r = {.l = {.batch = batch, .length = length, .hidden = hidden},
                         .x = random_operand(4 * n, type),
                         .w = operand(w, 4 * hidden * hidden, type),
                         .dh = random_operand(n, type),
                         .h = result(n, type),
                         .last = result(batch * hidden, type),
                         .d_gates = result(4 * n, type),
                         .previous = result(n, type),
                         .c = floats(n),
                         .last_c = floats(batch * hidden),
                         .gates = floats(4 * n)};
  size_t forward = pd_lstm_scratch(&r.l), backward = pd_lstm_backward_scratch(&r.l);
  r.scratch = floats((int64_t)(forward > backward ? forward : backward) / 4);
  char name[99];
  snprintf(name, sizeof name, "%slstm %ld x %ld steps of %ld", type == PD_BF16 ? "bf16 " : "", (long)batch,
           (long)length, (long)hidden);
  double operations = 8.0 * (double)n * (double)hidden;
  measure(name, operations, run_lstm, &r);
  measure("  backward", operations, run_lstm_backward, &r);
  free(w), free((void *)r.x.at), free((void *)r.w.at), free((void *)r.dh.at), free(r.h.at), free(r.last.at);
  free(r.d_gates.at), free(r.previous.at), free(r.c), free(r.last_c), free(r.gates), free(r.scratch);
}

struct images {
  struct pd_convolution *convolution;
  float *x, *w, *y;
  void *scratch;
};

static void run_convolution(void *work) {
  struct images *i = work;
  pd_convolution(i->convolution, i->x, i->w, NULL, i->y, i->scratch);
}

static void run_convolution_backward(void *work) {
  struct images *i = work;
  pd_convolution_backward(i->convolution, i->y, i->w, i->x, i->scratch);
}

static void run_convolution_weights(void *work) {
  struct images *i = work;
  pd_convolution_weights(i->convolution, i->x, i->y, i->w, i->scratch);
}

/* A layer forward, for its input's gradient (not of the first layer's three channels) and for its weights'. */
static void bench_convolution(const char *model, int64_t in, int64_t out, int64_t size, int64_t height,
                              int64_t width, int64_t stride, int64_t padding, int64_t groups) {
  enum { BATCH = 8 };
  static void (*const runs[])(void *) = {run_convolution, run_convolution_backward, run_convolution_weights};
  static const char *const forms[] = {"", "  for x", "  for w"};
  for (int kind = 0; kind < 3; kind++) {
    struct pd_convolution_shape s = {.kind = (enum pd_convolution_kind)kind,
                                     .batch = BATCH,
                                     .in_channels = in,
                                     .out_channels = out,
                                     .groups = groups,
                                     .height = size,
                                     .width = size,
                                     .kernel = {height, width},
                                     .stride = {stride, stride},
                                     .padding = {height > 1 ? padding : 0, width > 1 ? padding : 0},
                                     .dilation = {1, 1}};
    if (in == 3 && kind == PD_CONVOLUTION_BACKWARD) continue;
    int64_t pixels = BATCH;
    for (int i = 0; i < 2; i++) pixels *= (size + 2 * s.padding[i] - s.kernel[i]) / stride + 1;
    struct images i = {pd_convolution_new(s), random_floats(BATCH * size * size * in),
                       random_floats(out * (in / groups) * height * width), random_floats(pixels * out), NULL};
    i.scratch = floats((int64_t)pd_convolution_scratch(i.convolution) / 4 + 16);
    char name[99];
    snprintf(name, sizeof name, "%-9s %ld x %ld, %4ld -> %4ld of %3ld / %ld%s", model, (long)height, (long)width,
             (long)in, (long)out, (long)size, (long)stride, forms[kind]);
    measure(name, 2.0 * (double)(pixels * out * (in / groups) * height * width), runs[kind], &i);
    free(i.x), free(i.w), free(i.y), free(i.scratch);
  }
}

/* Layers that stand for their models: first ones, those that take most, strides, kernels that are not square. */
static void bench_convolutions(void) {
  static const struct {
    const char *model;
    int64_t in, out, size, height, width, stride, padding, groups;
  } layer[] = {{"alexnet", 3, 64, 224, 11, 11, 4, 2, 1},     {"alexnet", 64, 192, 27, 5, 5, 1, 2, 1},
               {"vgg16", 3, 64, 224, 3, 3, 1, 1, 1},         {"vgg16", 64, 64, 224, 3, 3, 1, 1, 1},
               {"vgg16", 128, 128, 112, 3, 3, 1, 1, 1},      {"vgg16", 256, 256, 56, 3, 3, 1, 1, 1},
               {"vgg16", 512, 512, 28, 3, 3, 1, 1, 1},       {"vgg16", 512, 512, 14, 3, 3, 1, 1, 1},
               {"resnet50", 3, 64, 224, 7, 7, 2, 3, 1},      {"resnet50", 64, 256, 56, 1, 1, 1, 0, 1},
               {"resnet50", 128, 128, 56, 3, 3, 2, 1, 1},    {"resnet50", 256, 512, 56, 1, 1, 2, 0, 1},
               {"resnet50", 1024, 2048, 14, 1, 1, 2, 0, 1},  {"resnet50", 64, 64, 56, 3, 3, 1, 1, 1},
               {"resnet50", 128, 128, 28, 3, 3, 1, 1, 1},    {"resnet50", 256, 256, 14, 3, 3, 1, 1, 1},
               {"resnet50", 512, 512, 7, 3, 3, 1, 1, 1},     {"resnet50", 256, 1024, 14, 1, 1, 1, 0, 1},
               {"inception", 3, 32, 299, 3, 3, 2, 0, 1},     {"inception", 32, 32, 149, 3, 3, 1, 0, 1},
               {"inception", 80, 192, 73, 3, 3, 1, 0, 1},    {"inception", 48, 64, 35, 5, 5, 1, 2, 1},
               {"inception", 288, 384, 35, 3, 3, 2, 0, 1},   {"inception", 192, 192, 17, 1, 7, 1, 3, 1},
               {"inception", 192, 192, 17, 7, 1, 1, 3, 1},   {"inception", 448, 384, 8, 3, 3, 1, 1, 1},
               {"depthwise", 208, 208, 28, 3, 3, 1, 1, 208}, {"depthwise", 208, 208, 28, 5, 5, 1, 2, 208},
               {"depthwise", 208, 208, 28, 7, 7, 1, 3, 208}};
  for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
    bench_convolution(layer[i].model, layer[i].in, layer[i].out, layer[i].size, layer[i].height, layer[i].width,
                      layer[i].stride, layer[i].padding, layer[i].groups);
}

static void bench_layers(void) {
  static const int64_t layer[][2] = {{384, 384}, {1152, 384}, {1536, 384}, {384, 1536}, {4096, 384}};
  for (int64_t m = 2048; m >= 1024; m /= 2)
    for (unsigned i = 0; i < sizeof layer / sizeof *layer; i++) bench_layer(m, layer[i][0], layer[i][1]);
}

static void bench_heads(void) {
  bench_attention(8, 6, 256, 64, 0, 0, UNBIASED);
  bench_attention(4, 6, 256, 64, 0, 0, UNBIASED);
  bench_attention(12, 4, 64, 32, 0, 0, UNBIASED);
  for (Bias bias = UNBIASED; bias <= BY_DISTANCE; bias++) bench_attention(1, 12, 1024, 64, 0, 0, bias);
  bench_attention(1, 12, 1024, 64, 0, 50, UNBIASED);
  for (int64_t window = 128; window <= 1024; window *= 2) bench_attention(1, 4, 4096, 64, window, 0, UNBIASED);
  bench_attention(1, 4, 4096, 64, 0, 0, UNBIASED);
}

static void bench_documents(void) {
  for (int64_t document = 4096; document >= 64; document /= 2) bench_packed(4, 4096, 64, document);
}

static void bench_recurrences(void) {
  for (enum pd_type type = PD_F32; type <= PD_BF16; type++) {
    bench_lstm(8, 50, 512, type);
    bench_lstm(32, 50, 512, type);
  }
}

/* ---- experts --------------------------------------------------------------------------------------------- */

struct experts {
  struct pd_experts sizes;
  pd_in x, weight;
  int32_t *chosen;
  pd_out y;
  void *scratch;
};

static void run_experts(void *work) {
  struct experts *e = work;
  (pd_expert_linear)(&e->sizes, e->x, e->weight, e->chosen, e->y, e->scratch);
}

static void bench_expert(const char *name, int64_t rows, int64_t chosen, int64_t count, int64_t in, int64_t out) {
  struct experts e = {.sizes = {.rows = rows, .chosen = chosen, .count = count, .in = in, .out = out}};
  e.sizes.x_row = in, e.sizes.x_column = e.sizes.y_column = 1;
  e.sizes.y_row = chosen * out, e.sizes.y_chosen = out;
  e.sizes.experts_row = chosen, e.sizes.experts_chosen = 1;
  e.sizes.weight_expert = in * out, e.sizes.weight_out = in, e.sizes.weight_in = 1;
  e.x = random_operand(rows * in, PD_F32), e.weight = random_operand(count * in * out, PD_F32);
  e.y = (pd_out){floats(rows * chosen * out), PD_F32};
  e.chosen = malloc((size_t)(rows * chosen) * sizeof *e.chosen);
  for (int64_t i = 0; i < rows * chosen; i++) e.chosen[i] = (int32_t)(i * 7 % count);
  e.scratch = floats((int64_t)pd_expert_linear_scratch(&e.sizes, 1) / 4 + 16);
  measure(name, 2.0 * (double)(rows * chosen) * (double)in * (double)out, run_experts, &e);
  free((void *)e.x.at), free((void *)e.weight.at), free(e.y.at), free(e.chosen), free(e.scratch);
}

/* The work of one of n ranks on 512 positions and 8 of 64 experts: 1/n of each matrix, or 1/n of the matrices on 1/n of the
 * rows. */
static void bench_experts(void) {
  char name[64];
  for (int64_t n = 1; n <= 8; n *= 2) {
    snprintf(name, sizeof name, "experts, 1/%ld of each matrix", (long)n);
    bench_expert(name, 512, 8, 64, 512, 1408 / n);
    snprintf(name, sizeof name, "experts, 1/%ld of the matrices", (long)n);
    bench_expert(name, 512 / n, 8, 64 / n, 512, 1408);
  }
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } part[] = {{"convolution", bench_convolutions}, {"product", bench_layers},   {"attention", bench_heads},
              {"documents", bench_documents},      {"lstm", bench_recurrences}, {"experts", bench_experts}};
  const char *only = argc > 2 ? argv[2] : NULL;
  if (argc > 1) repetitions = atoi(argv[1]);
  if (repetitions < 1 || repetitions > MAX_REPETITIONS) pd_fail("REPETITIONS is 1 to %d", MAX_REPETITIONS);
  omp_set_num_threads(1);
  cube_a = random_floats(CUBE * CUBE), cube_b = random_floats(CUBE * CUBE), cube_c = floats(CUBE * CUBE);
  for (size_t i = 0; i < sizeof part / sizeof *part; i++)
    if (!only || !strcmp(only, part[i].name)) part[i].run();
  return 0;
}
