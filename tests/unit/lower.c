/* Lowered kernels of whole models on both targets: every element of a loop belongs to exactly one thread, partial
 * sums have separate places in the planned scratch memory, and calls are described. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "cut/cut.h"
#include "elaborate/elaborate.h"
#include "layout/permutes.h"
#include "lower/lower.h"
#include "simplify/simplify.h"

enum { WARP = 32, MOST_THREADS = 1024 };

static const char *const models[] = {
    "tests/golden/pointwise.pdm", "tests/golden/shapes.pdm",    "tests/golden/products.pdm",
    "tests/golden/layers.pdm",    "tests/golden/blocks.pdm",    "tests/golden/statistics.pdm",
    "tests/golden/sequence.pdm",  "tests/golden/attention.pdm", "tests/golden/convolution.pdm",
    "tests/golden/pooling.pdm",   "tests/golden/lstms.pdm",     "models/gpt_mini.pdm",
    "models/lenet.pdm",           "tests/cuda/loops/rows.pdm",
};

static LoweredStage *lowered(const char *model, int64_t microbatch, Target target) {
  Graph *g = elaborate(parse_file(model), &(ElaborateOptions){0});
  move_permutes(g);
  autodiff(g);
  simplify(g);
  Pieces p = cut(g);
  return lower(fuse(g, &p, 0, p.n, 0, 1, microbatch, false, false, target));
}

static void each_kernel(Target target, void (*check)(const StageKernels *, const Lowered *)) {
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (int64_t microbatch = 1; microbatch <= 4; microbatch += 3) {
      const LoweredStage *s = lowered(models[m], microbatch, target);
      lowered_verify(s);
      for (int list = 0; list < N_LISTS; list++)
        for (int i = 0; i < s->list[list].n; i++)
          check(s->kernels, &s->list[list].at[i]);
    }
}

/* ---- loops ------------------------------------------------------------------------------------- */

static void check_shape(const Lowered *k) {
  const LoopShape *s = k->shape;
  int64_t n = 1;
  for (int i = 0; i < k->kernel->n_dims; i++)
    n *= k->kernel->dim[i];
  assert_int_equal(s->groups * s->rows * s->columns, n);
  assert_int_equal(s->elements, n);
}

/* A tile's partial sums do not overlap and end within `room`. */
static void check_sums(const Lowered *k, const int64_t *at, const int64_t *size, int64_t room) {
  for (int i = 0; i < k->kernel->stores.n; i++) {
    if (!k->shape->store[i].summed)
      continue;
    assert_true(at[i] >= 0 && at[i] + size[i] <= room);
    for (int j = 0; j < i; j++)
      assert_true(!k->shape->store[j].summed || at[i] + size[i] <= at[j] || at[j] + size[j] <= at[i]);
  }
}

static void check_host(const StageKernels *stage, const Lowered *k) {
  (void)stage;
  if (k->call)
    return;
  const HostLoop *h = k->host;
  const LoopShape *s = k->shape;
  int64_t sizes[64] = {0};
  check_shape(k);
  assert_true(k->kernel->stores.n <= 64);
  for (int i = 0; i < k->kernel->stores.n; i++)
    sizes[i] = s->store[i].sums;
  check_sums(k, h->sum_at, sizes, s->sums);
  if (h->tiled) {
    assert_int_equal(s->groups, 1);
    assert_true(k->kernel->tiles <= s->rows);
  } else if (h->ranged) {
    assert_true(h->share >= 1 && h->ways > 1 && s->elements % h->ways == 0);
  }
  int64_t sets = h->tiled ? k->kernel->tiles : s->groups;
  assert_int_equal(k->scratch_bytes, h->in_scratch ? sets * s->sums * 4 : 0);
  assert_int_equal(k->arguments.scratch, k->scratch_bytes > 0);
}

/* Checks the rows and columns of a launch's threads, computed from its numbers. */
static void check_dealt(const Lowered *k) {
  const GpuLoop *g = k->gpu;
  const LoopShape *s = k->shape;
  int64_t rows = s->groups * s->rows, vectors = s->columns / g->vector;
  assert_int_equal(s->columns % g->vector, 0);
  if (g->sums > 0) {
    assert_true(g->tiles * g->rows >= s->rows && (g->tiles - 1) * g->rows < s->rows);
    assert_int_equal(g->blocks, s->groups * g->tiles * g->column_blocks);
  }
  switch (g->kind) {
  case MAP_ELEMENTS:
    assert_true(g->sums == 0 && (g->columns == vectors || g->columns == 1));
    assert_true(g->blocks * g->x >= rows * g->columns && (g->blocks - 1) * g->x < rows * g->columns);
    break;
  case MAP_ROWS:
    assert_true(g->vectors == 0 || (int64_t)g->vectors * g->x >= vectors);
    assert_true(g->sums > 0 || (g->blocks * g->y >= rows && (g->blocks - 1) * g->y < rows));
    break;
  case MAP_COLUMNS:
    assert_true(g->column_blocks * g->x >= vectors && (g->column_blocks - 1) * g->x < vectors);
    break;
  }
}

static void check_gpu(const StageKernels *stage, const Lowered *k) {
  if (k->call)
    return;
  const GpuLoop *g = k->gpu;
  int64_t sizes[64] = {0};
  check_shape(k);
  check_dealt(k);
  assert_true(k->kernel->stores.n <= 64);
  for (int i = 0; i < k->kernel->stores.n; i++)
    sizes[i] = k->shape->store[i].scalar ? 1 : k->shape->columns;
  check_sums(k, g->sum_at, sizes, g->sums);
  assert_true(g->x >= 1 && g->y >= 1 && g->x * g->y <= MOST_THREADS);
  assert_true(g->kind != MAP_ROWS || g->x % WARP == 0);
  assert_true(g->stride >= g->sums);
  assert_int_equal(k->scratch_bytes, g->in_scratch ? k->shape->groups * g->tiles * g->stride * 4 : 0);
  assert_true(!g->in_scratch || g->total_blocks * SUMS_BLOCK >= g->sums);
  for (int i = 0; i < k->arguments.buffers.n; i++)
    assert_true(g->wide || stage->buffers.at[k->arguments.buffers.at[i]].elements < INT32_MAX);
}

static void loops_on_processors(void **unused) {
  (void)unused;
  for (int threads = 1; threads <= 3; threads += 2)
    each_kernel((Target){.backend = &backend_c, .threads = threads}, check_host);
}

static void loops_on_gpus(void **unused) {
  (void)unused;
  for (Precision p = PRECISION_F32; p <= PRECISION_BF16; p++)
    each_kernel((Target){.backend = &backend_cuda, .precision = p, .threads = 1}, check_gpu);
}

/* ---- calls ------------------------------------------------------------------------------------- */

/* A call's places are among its declared buffers. */
static void check_call(const StageKernels *stage, const Lowered *k) {
  (void)stage;
  if (!k->call)
    return;
  assert_non_null(k->call->function);
  for (int i = 0; i < k->call->arguments.n; i++) {
    const Argument *a = &k->call->arguments.at[i];
    bool found = a->kind != ARGUMENT_PLACE;
    for (int j = 0; j < k->arguments.buffers.n; j++)
      found |= a->kind == ARGUMENT_PLACE && a->place->buffer == k->arguments.buffers.at[j];
    assert_true(found);
    assert_true(a->kind != ARGUMENT_SCRATCH || k->arguments.scratch || k->scratch_bytes == 0);
  }
}

static void calls_on_both(void **unused) {
  (void)unused;
  for (const Backend *const *b = all_backends; *b; b++)
    each_kernel((Target){.backend = *b, .threads = 1}, check_call);
}

/* Decisions do not depend on the number of threads, except memory needs of libraries. */
static void loops_do_not_depend_on_threads(void **unused) {
  (void)unused;
  const LoweredStage *one = lowered(models[3], 4, (Target){.backend = &backend_c, .threads = 1});
  const LoweredStage *four = lowered(models[3], 4, (Target){.backend = &backend_c, .threads = 4});
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < one->list[list].n; i++) {
      const Lowered *a = &one->list[list].at[i], *b = &four->list[list].at[i];
      if (a->call)
        continue;
      assert_int_equal(a->scratch_bytes, b->scratch_bytes);
      assert_true(a->host->tiled == b->host->tiled && a->host->share == b->host->share);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops_on_processors),
      cmocka_unit_test(loops_on_gpus),
      cmocka_unit_test(calls_on_both),
      cmocka_unit_test(loops_do_not_depend_on_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
