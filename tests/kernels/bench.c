/* Rates of the kernels on one thread, each beside dnnl_sgemm at 1024 cubed measured alternately with
 * it: medians of the ratios. Usage: kernels_bench [REPETITIONS] */
#include "test.h"

#include <oneapi/dnnl/dnnl.h>
#include <time.h>

enum { CUBE = 1024, MAX_REPETITIONS = 1001 };

static int repetitions = 15;
static float *cube_a, *cube_b, *cube_c;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
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
  float *a, *b, *c;
  void *scratch;
};

static void run_product(void *work) {
  struct product *p = work;
  pd_matmul(p->matmul, p->a, p->b, NULL, p->c, p->scratch);
}

static void bench_product(const char *form, struct pd_matmul_shape s) {
  char name[99];
  snprintf(name, sizeof name, "%-16s [%ld, %ld] = sum over %ld", form, (long)s.m, (long)s.n, (long)s.k);
  struct product p = {pd_matmul_new(s), random_floats(s.m * s.k), random_floats(s.k * s.n), random_floats(s.m * s.n),
                      NULL};
  p.scratch = floats((int64_t)pd_matmul_scratch(p.matmul) / 4 + 16);
  measure(name, 2.0 * (double)s.m * (double)s.n * (double)s.k, run_product, &p);
  free(p.a), free(p.b), free(p.c), free(p.scratch);
}

/* A linear layer's products: m rows, n outputs, k inputs. */
static void bench_layer(int64_t m, int64_t n, int64_t k) {
  bench_product("x w^T", (struct pd_matmul_shape){1, m, n, k, 0, k, 1, 0, 1, k, 0, n, false, false});
  bench_product("dy w", (struct pd_matmul_shape){1, m, k, n, 0, n, 1, 0, k, 1, 0, k, false, false});
  bench_product("dy^T x", (struct pd_matmul_shape){1, n, k, m, 0, 1, n, 0, k, 1, 0, k, false, false});
  bench_product("dy^T x, added", (struct pd_matmul_shape){1, n, k, m, 0, 1, n, 0, k, 1, 0, k, false, true});
}

struct heads {
  struct pd_attention a;
  float *qkv, *o, *lse, *d_o, *d_qkv;
  void *scratch;
  int64_t width;
};

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

static void bench_attention(int64_t batch, int64_t heads, int64_t length, int64_t size) {
  struct heads h = {.a = {.batch = batch, .heads = heads, .kv_heads = heads, .length = length, .kv_length = length,
                          .size = size, .causal = true, .scale = 0.125f},
                    .width = heads * size};
  int64_t n = batch * length * h.width;
  struct pd_attention *a = &h.a;
  a->q.batch = 3 * length * h.width, a->q.head = size, a->q.row = 3 * h.width;
  a->k = a->v = a->dq = a->dk = a->dv = a->q;
  a->o.batch = length * h.width, a->o.head = size, a->o.row = h.width;
  a->d_o = a->o;
  h.qkv = random_floats(3 * n), h.d_qkv = floats(3 * n), h.o = floats(n), h.d_o = random_floats(n);
  h.lse = floats(batch * heads * length), h.scratch = floats((int64_t)pd_attention_scratch(a, 1) / 4);
  double operations = 2.0 * (double)(batch * heads * length * (length + 1) * size); /* causal: half */
  char name[99];
  snprintf(name, sizeof name, "attention %ld x %ld heads x %ld x %ld", (long)batch, (long)heads, (long)length,
           (long)size);
  measure(name, operations, run_forward, &h);
  measure("  backward", 2.5 * operations, run_backward, &h);
  free(h.qkv), free(h.d_qkv), free(h.o), free(h.d_o), free(h.lse), free(h.scratch);
}

int main(int argc, char **argv) {
  if (argc > 1) repetitions = atoi(argv[1]);
  if (repetitions < 1 || repetitions > MAX_REPETITIONS) pd_fail("REPETITIONS is 1 to %d", MAX_REPETITIONS);
  omp_set_num_threads(1);
  cube_a = random_floats(CUBE * CUBE), cube_b = random_floats(CUBE * CUBE), cube_c = floats(CUBE * CUBE);
  static const int64_t layer[][2] = {{384, 384}, {1152, 384}, {1536, 384}, {384, 1536}, {4096, 384}};
  for (int64_t m = 2048; m >= 1024; m /= 2)
    for (unsigned i = 0; i < sizeof layer / sizeof *layer; i++) bench_layer(m, layer[i][0], layer[i][1]);
  bench_attention(8, 6, 256, 64);
  bench_attention(4, 6, 256, 64);
  bench_attention(12, 4, 64, 32);
  bench_attention(1, 12, 1024, 64);
  return 0;
}
