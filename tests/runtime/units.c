/* The runtime's parts that need no peer: sample order, initial weights, rates, optimizers, safetensors. */
#include "data/load.h"
#include "run/upward.h"
#include "update/update.h"
#include "lr_goldens.h"
#include "checkpoint/sources.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- samples --------------------------------------------------------------------------------- */

static void every_epoch_is_a_permutation(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 1000, 4096, 4097};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      int64_t n = sizes[i];
      char *seen = calloc((size_t)n, 1);
      for (int64_t s = 0; s < n; s++) {
        int64_t x = pd_sample(7, n, epoch * n + s);
        assert_in_range(x, 0, n - 1);
        assert_false(seen[x]);
        seen[x] = 1;
      }
      free(seen);
    }
}

static void orders_differ_by_epoch_and_seed(void **state) {
  (void)state;
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (int64_t s = 0; s < 1000; s++) {
    same_epoch += pd_sample(1, 1000, s) == pd_sample(1, 1000, 1000 + s);
    same_seed += pd_sample(1, 1000, s) == pd_sample(2, 1000, s);
    fixed += pd_sample(1, 1000, s) == s;
  }
  assert_in_range(same_epoch, 0, 10); /* one is expected of two random orders */
  assert_in_range(same_seed, 0, 10);
  assert_in_range(fixed, 0, 10);
}

/* What a failure names: the pass begun last, as the pipeline counts microbatches and steps. */
static void the_last_work_is_named(void **state) {
  (void)state;
  static const int replicas[] = {2};
  struct pd_stage s = {.n_stages = 1, .replicas = replicas, .microbatches = 4, .chunks = 1};
  pd = (struct pd_run){.stage = &s, .replica = 1};
  assert_string_equal(pd_last_work(), "the start");
  while (pd_begin(PD_BACKWARD, 3)) pd_end();
  assert_string_equal(pd_last_work(), "backward of microbatch 6");
  pd_begin(PD_UPDATE, 0);
  assert_string_equal(pd_last_work(), "update of step 1");
}

/* ---- ranks, microbatches, turns -------------------------------------------------------------- */

/* Every rank is one replica of one stage; the pipeline's microbatches are dealt to a stage's replicas in turn. */
static void microbatches_are_dealt_to_replicas(void **state) {
  (void)state;
  static const int replicas[] = {2, 1, 3};
  struct pd_stage s = {.n_stages = 3, .replicas = replicas, .microbatches = 12, .chunks = 1};
  pd = (struct pd_run){.stage = &s};
  assert_int_equal(pd_planned_ranks(), 6);
  for (int rank = 0; rank < 6; rank++) {
    s.stage = pd_stage_of(rank);
    pd.replica = rank - pd_rank_of(s.stage, 0);
    assert_in_range(pd.replica, 0, replicas[s.stage] - 1);
    assert_int_equal(pd_own_microbatches(), 12 / replicas[s.stage]);
    for (int64_t k = 1; k <= 8; k++) {
      assert_int_equal((pd_number(k) - 1) / replicas[s.stage], k - 1);
      assert_int_equal(pd_rank_of_number(s.stage, pd_number(k)), rank);
    }
  }
}

/* Two stages of three chunks: groups of two microbatches go through all chunks. */
static void turns_go_through_the_chunks(void **state) {
  (void)state;
  static const int replicas[] = {1, 1}, chunks[] = {0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2},
                   microbatches[] = {1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4};
  struct pd_stage s = {.n_stages = 2, .replicas = replicas, .microbatches = 4, .chunks = 3};
  pd = (struct pd_run){.stage = &s};
  for (int i = 0; i < 12; i++) {
    struct pd_turn forward = pd_turn(i + 1, false), backward = pd_turn(i + 1, true);
    assert_int_equal(forward.chunk, chunks[i]);
    assert_int_equal(backward.chunk, 2 - chunks[i]);
    assert_int_equal(forward.k, microbatches[i]);
    assert_int_equal(backward.k, microbatches[i]);
  }
}

/* ---- initial weights ------------------------------------------------------------------------- */

static void initial_weights_follow_seed_and_name(void **state) {
  (void)state;
  enum { N = 100001 };
  static float a[N], b[N];
  struct pd_parameter p = {.name = "h.0.weight", .elements = N, .init = PD_NORMAL, .init_value = 0.5};
  pd_initialise(&p, 3, a);
  p.elements = 1001; /* a prefix is the same: element i depends on i alone */
  pd_initialise(&p, 3, b);
  assert_memory_equal(a, b, 1001 * sizeof(float));
  pd_initialise(&p, 4, b);
  assert_true(a[0] != b[0] && a[1] != b[1]);
  p.name = "h.1.weight";
  pd_initialise(&p, 3, b);
  assert_true(a[0] != b[0] && a[1] != b[1]);
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < N; i++) {
    sum += a[i];
    squares += (double)a[i] * a[i];
    fourth += pow(a[i], 4);
  }
  assert_true(fabs(sum / N) < 0.008 && fabs(squares / N - 0.25) < 0.005);
  assert_true(fabs(fourth / N / 0.0625 - 3) < 0.15);
}

static void uniform_weights_fill_their_range(void **state) {
  (void)state;
  enum { N = 10000 };
  float a[N], low = 1, high = -1;
  struct pd_parameter p = {.name = "w", .elements = N, .init = PD_UNIFORM, .init_value = 0.25};
  pd_initialise(&p, 1, a);
  for (int i = 0; i < N; i++) {
    low = fminf(low, a[i]);
    high = fmaxf(high, a[i]);
  }
  assert_true(low >= -0.25f && low < -0.249f && high < 0.25f && high > 0.249f);
}

/* ---- rates and optimizers -------------------------------------------------------------------- */

static bool near(double a, double b, double relative) { return fabs(a - b) <= relative * fmax(fabs(a), fabs(b)); }

static void rates_warm_up_and_fall_to_the_floor(void **state) {
  (void)state;
  const struct pd_lr_cosine_arguments cosine = {.warmup = 9, .total = 109, .floor = 0.1};
  assert_true(near(pd_lr_cosine(&cosine, 1, 0), 0.1, 1e-12));
  assert_true(near(pd_lr_cosine(&cosine, 1, 8), 0.9, 1e-12));
  assert_true(near(pd_lr_cosine(&cosine, 1, 9), 1, 1e-12));
  assert_true(near(pd_lr_cosine(&cosine, 1, 59), 0.55, 1e-12));
  assert_true(near(pd_lr_cosine(&cosine, 1, 34), 0.1 + 0.9 * 0.5 * (1 + cos(M_PI / 4)), 1e-12));
  assert_true(pd_lr_cosine(&cosine, 1, 109) == 0.1 && pd_lr_cosine(&cosine, 1, 100000) == 0.1);
  const struct pd_lr_linear_arguments linear = {.warmup = 9, .total = 109, .floor = 0.1};
  assert_true(near(pd_lr_linear(&linear, 1, 34), 0.775, 1e-12) && pd_lr_linear(&linear, 1, 109) == 0.1);
  const struct pd_lr_constant_arguments constant = {.warmup = 9};
  assert_true(near(pd_lr_constant(&constant, 1, 4), 0.5, 1e-12) && pd_lr_constant(&constant, 1, 100000) == 1);
}

static void rates_stay_then_fall(void **state) {
  (void)state;
  const struct pd_lr_wsd_arguments a = {.warmup = 4, .total = 100, .decay = 20, .floor = 0.2};
  assert_true(near(pd_lr_wsd(&a, 2, 0), 0.4, 1e-12) && near(pd_lr_wsd(&a, 2, 3), 1.6, 1e-12));
  assert_true(pd_lr_wsd(&a, 2, 4) == 2 && pd_lr_wsd(&a, 2, 80) == 2);
  assert_true(near(pd_lr_wsd(&a, 2, 85), 2 - 1.8 / 4, 1e-12) && near(pd_lr_wsd(&a, 2, 99), 0.2 + 1.8 / 20, 1e-12));
  assert_true(pd_lr_wsd(&a, 2, 100) == 0.2 && pd_lr_wsd(&a, 2, 1000) == 0.2);
}

static void warm_ups_come_before_any_schedule(void **state) {
  (void)state;
  const struct pd_lr_step_arguments step = {.step_size = 3, .gamma = 0.5, .warmup = 10};
  const struct pd_lr_cosine_restarts_arguments restarts = {.period = 4, .multiply = 1, .warmup = 10};
  const struct pd_lr_inverse_sqrt_arguments root = {.warmup = 10};
  for (int t = 0; t < 10; t++) {
    assert_true(near(pd_lr_step(&step, 1, t), (t + 1) / 11.0, 1e-12));
    assert_true(near(pd_lr_cosine_restarts(&restarts, 1, t), (t + 1) / 11.0, 1e-12));
    assert_true(near(pd_lr_inverse_sqrt(&root, 1, t), (t + 1) / 11.0, 1e-12));
  }
  assert_true(pd_lr_step(&step, 1, 12) == 1 && pd_lr_step(&step, 1, 13) == 0.5);
  assert_true(pd_lr_cosine_restarts(&restarts, 1, 10) == 1 && pd_lr_cosine_restarts(&restarts, 1, 14) == 1);
  assert_true(near(pd_lr_cosine_restarts(&restarts, 1, 16), 0.5, 1e-12));
  assert_true(pd_lr_inverse_sqrt(&root, 1, 10) == 1 && pd_lr_inverse_sqrt(&root, 1, 40) == 0.5);
}

/* Rates of updates 0, 1 ... by PyTorch's StepLR and CosineAnnealingWarmRestarts and by transformers'
 * get_inverse_sqrt_schedule (make_lr_schedules.py). */
static void rates_are_pytorchs(void **state) {
  (void)state;
  static const struct pd_lr_step_arguments step = {.step_size = 7, .gamma = 0.3};
  static const struct pd_lr_cosine_restarts_arguments same = {.period = 6, .multiply = 1, .floor = 0.01},
                                                      longer = {.period = 5, .multiply = 2};
  static const struct pd_lr_inverse_sqrt_arguments root = {.warmup = 8};
  static const struct {
    pd_lr_schedule *rate;
    const void *arguments;
    const double *want;
    int from; /* warm-ups differ */
  } schedules[] = {{pd_lr_step, &step, step_lr, 0},
                   {pd_lr_cosine_restarts, &same, restarts_same, 0},
                   {pd_lr_cosine_restarts, &longer, restarts_longer, 0},
                   {pd_lr_inverse_sqrt, &root, inverse_sqrt, 8}};
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    for (int t = schedules[i].from; t < LR_UPDATES; t++)
      assert_true(near(schedules[i].rate(schedules[i].arguments, 0.1, t), schedules[i].want[t], 1e-12));
}

static void adamw_follows_its_formula(void **state) {
  (void)state;
  enum { N = 37 };
  struct pd_adamw_arguments a = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  float w[2][N], m[N] = {0}, v[N] = {0}, *const moments[] = {m, v};
  double x[N], dm[N] = {0}, dv[N] = {0};
  const struct pd_change unchanged = {0};
  for (int i = 0; i < N; i++) x[i] = w[0][i] = sinf((float)i);
  for (int t = 0; t < 20; t++) {
    float g[N];
    for (int i = 0; i < N; i++) g[i] = cosf((float)(i * t));
    struct pd_adamw_step step = pd_adamw_constants(&a, (struct pd_rate){.lr = 0.01}, t, 0.5f, true);
    pd_adamw_elements(N, &step, w[t % 2], w[(t + 1) % 2], g, moments, &unchanged);
    for (int i = 0; i < N; i++) { /* Loshchilov and Hutter, algorithm 2 */
      dm[i] = 0.9 * dm[i] + 0.1 * 0.5 * g[i];
      dv[i] = 0.95 * dv[i] + 0.05 * 0.25 * g[i] * g[i];
      x[i] -= 0.01 * (dm[i] / (1 - pow(0.9, t + 1)) / (sqrt(dv[i] / (1 - pow(0.95, t + 1))) + 1e-8) + 0.1 * x[i]);
    }
  }
  for (int i = 0; i < N; i++) assert_true(fabs(x[i] - w[0][i]) < 1e-5);
  assert_true(pd_adamw_constants(&a, (struct pd_rate){.lr = 0.01}, 0, 1, false).keep == 1);
}

static void sgd_follows_its_formula(void **state) {
  const struct pd_change unchanged = {0};
  (void)state;
  float w[5] = {1, 2, 3, 4, 5}, u[5] = {0}, g[5] = {1, -1, 1, -1, 1}, *const moments[] = {u};
  struct pd_sgd_step step = {.scale = 2, .decay = 0.5f, .momentum = 0.5f, .lr = 0.25f};
  pd_sgd_momentum_elements(5, &step, w, w, g, moments, &unchanged);
  pd_sgd_momentum_elements(5, &step, w, w, g, moments, &unchanged);
  /* w0: u = 2.5, w = .375; u = 1.25 + 2.1875, w = .375 - .859375 */
  assert_true(w[0] == -0.484375f && u[0] == 3.4375f);
  float plain[5] = {1, 2, 3, 4, 5};
  pd_sgd_elements(5, &step, plain, plain, g, NULL, &unchanged);
  assert_true(plain[0] == 0.375f && plain[1] == 2.25f);
}

enum { TRUSTED_TILES = 8 };

/* LAMB's trust ratio, with a moment of one number a row: what a rule over whole tensors is given. Squares are
 * added by tiles, then in order, whatever the number of threads. */
static void trusted(const struct pd_tensor_update *x) {
  int64_t rows = x->parameter->dim[0], columns = x->parameter->dim[1], n = rows * columns;
  double *part = x->scratch, sum[2] = {0, 0};
  const float *arrays[] = {x->from, x->gradient};
  assert_true((n + PD_TILE - 1) / PD_TILE <= TRUSTED_TILES);
  for (int which = 0; which < 2; which++) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i += PD_TILE)
      part[i / PD_TILE] = pd_sum_of_squares(n - i < PD_TILE ? n - i : PD_TILE, arrays[which] + i);
    for (int64_t i = 0; i < n; i += PD_TILE) sum[which] += part[i / PD_TILE];
  }
  for (int64_t r = 0; r < rows; r++) x->moment[1][r] += (float)(r + 1);
  for (int64_t i = 0; i < n; i++) {
    x->moment[0][i] += x->gradient[i];
    x->to[i] = x->from[i] - (float)(x->rate.lr * sqrt(sum[0] / sum[1])) * x->scale * x->gradient[i];
  }
}

static void tensors_are_updated_as_a_whole(void **state) {
  (void)state;
  enum { ROWS = 3, COLUMNS = PD_TILE, ALL = ROWS * COLUMNS, AVERAGE = 64, KEPT = 128 };
  static struct {
    float from[ALL + KEPT], to[ALL + KEPT], gradient[ALL + KEPT], like[ALL + KEPT], rows[ROWS];
    double scratch[TRUSTED_TILES];
  } arena;
  enum { AT = 4 };
  const struct pd_use uses[] = {{.stage = 0, .offset = 0}, {.stage = 0, .offset = AT * ALL}};
  const struct pd_parameter parameters[] = {
      {.elements = ALL, .dim = {ROWS, COLUMNS}, .rank = 2, .n_uses = 1, .uses = &uses[0]},
      {.elements = 1, .offset = AT * ALL, .n_uses = 1, .uses = &uses[1], .buffer = true, .momentum = 0.5f},
      {.elements = 1, .offset = AT * (ALL + AVERAGE)}};
  enum { LIKE = offsetof(typeof(arena), like), OF_ROWS = offsetof(typeof(arena), rows) };
  const struct pd_moment moments[3][2] = {
      {{.offset = LIKE, .dim = {ROWS, COLUMNS}, .rank = 2}, {.offset = OF_ROWS, .dim = {ROWS}, .rank = 1}},
      {{.offset = 0}},
      {{.offset = LIKE + AT * ALL}, {.offset = OF_ROWS, .dim = {1}, .rank = 1}}};
  const struct pd_optimizer optimizer = {.name = "trusted", .tensor = trusted};
  const struct pd_stage s = {.optimizer = &optimizer,
                             .lr = 0.5,
                             .lr_schedule = pd_lr_constant,
                             .lr_arguments = &(struct pd_lr_constant_arguments){.warmup = 0},
                             .microbatches = 1,
                             .n_parameters = 3,
                             .parameters = parameters,
                             .n_moments = 2,
                             .own_moments = moments[0],
                             .scratch = offsetof(typeof(arena), scratch),
                             .moments = LIKE};
  struct pd_run before = pd;
  pd.stage = &s;
  pd.arena = (char *)&arena;
  pd_optimizer_start();
  for (int i = 0; i < ALL; i++) {
    arena.from[i] = 2;
    arena.gradient[i] = i % 2 ? 4 : -4;
  }
  arena.from[ALL] = 3, arena.gradient[ALL] = 5, arena.from[ALL + AVERAGE] = 7;
  pd_update(0, 0.25f, arena.from, arena.to, arena.gradient);
  for (int i = 0; i < ALL; i++)
    assert_true(arena.to[i] == (i % 2 ? 1.75f : 2.25f) && arena.like[i] == arena.gradient[i]);
  assert_true(arena.rows[0] == 1 && arena.rows[ROWS - 1] == ROWS);
  assert_true(arena.to[ALL] == 0.5f * 3 + 5 && arena.to[ALL + AVERAGE] == 7);
  assert_true(pd_moment_shape(&parameters[0], 1).rank == 1 && pd_moment_shape(&parameters[0], 1).elements == ROWS);
  assert_true(pd_moments_bytes() == OF_ROWS + sizeof arena.rows - LIKE);
  free(pd_tiles);
  pd_n_tiles = 0;
  pd = before;
}

static void squares_add_up(void **state) {
  (void)state;
  float x[1000];
  for (int n = 0; n < 1000; n += 37) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
      x[i] = (float)sin(i);
      sum += (double)x[i] * x[i];
    }
    assert_true(near(pd_sum_of_squares(n, x), sum, 1e-13));
  }
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static size_t small_file(unsigned char **bytes) {
  struct pd_entry entries[] = {{.name = "wte.weight", .rank = 2, .dim = {2, 3}, .elements = 6},
                               {.name = "odd \"name\"", .rank = 1, .dim = {1}, .elements = 1}};
  size_t header;
  unsigned char *h = pd_safetensors_header(entries, 2, (const char *const[][2]){{"format", "pt"}}, 1, &header);
  *bytes = malloc(header + 28);
  memcpy(*bytes, h, header);
  memcpy(*bytes + header, (float[]){1, 2, 3, 4, 5, 6, 7}, 28);
  free(h);
  assert_int_equal(header % 8, 0);
  return header + 28;
}

static void safetensors_read_back(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  unsigned char *bytes;
  size_t n = small_file(&bytes);
  struct pd_safetensors s;
  assert_true(pd_safetensors_parse(bytes, n, &s, why));
  assert_int_equal(s.n, 2);
  const struct pd_entry *e = pd_safetensors_find(&s, "wte.weight");
  assert_non_null(e);
  assert_true(e->rank == 2 && e->dim[0] == 2 && e->dim[1] == 3 && pd_entry_float(e, 5) == 6);
  e = pd_safetensors_find(&s, "odd \"name\"");
  assert_true(e && pd_entry_float(e, 0) == 7);
  assert_null(pd_safetensors_find(&s, "wte"));
  assert_string_equal(pd_safetensors_metadata(&s, "format"), "pt");
  assert_string_equal(pd_safetensors_metadata(&s, "none"), "");
  pd_safetensors_free(&s);
  for (size_t cut = 0; cut < n; cut++) assert_false(pd_safetensors_parse(bytes, cut, &s, why));
  free(bytes);
}

static bool parse_text(const char *header, const void *data, size_t n, struct pd_safetensors *s, char *why) {
  static unsigned char bytes[4096];
  size_t length = strlen(header);
  memset(bytes, 0, 8);
  bytes[0] = (unsigned char)length;
  bytes[1] = (unsigned char)(length >> 8);
  memcpy(bytes + 8, header, length);
  memcpy(bytes + 8 + length, data, n);
  return pd_safetensors_parse(bytes, 8 + length + n, s, why);
}

static void safetensors_convert_types(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  struct pd_safetensors s;
  uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x3f80, 0xc049, 1};
  assert_true(parse_text(
      "{\"h\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BF16\",\"shape\":"
      "[2],\"data_offsets\":[8,12]},\"mask\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[12,14]}}",
      halves, sizeof halves, &s, why));
  const struct pd_entry *h = pd_safetensors_find(&s, "h"), *b = pd_safetensors_find(&s, "b");
  assert_true(pd_entry_float(h, 0) == 1 && pd_entry_float(h, 1) == -2 && pd_entry_float(h, 2) == 0x1p-24f);
  assert_true(isinf(pd_entry_float(h, 3)) && pd_entry_float(b, 0) == 1 && pd_entry_float(b, 1) == -3.140625f);
  assert_int_equal(pd_safetensors_find(&s, "mask")->dtype, PD_DTYPE_OTHER);
  pd_safetensors_free(&s);
}

static float read_half(enum pd_dtype dtype, uint16_t half) {
  const struct pd_entry e = {.dtype = dtype, .data = (unsigned char *)&half};
  return pd_entry_float(&e, 0);
}

static uint16_t round_half(enum pd_dtype dtype, float x) {
  uint16_t half;
  pd_dtype_round(dtype, &x, 1, &half);
  return half;
}

/* Every number of both types; the middle of neighbours goes to the even one, the next float beside it to the nearer. */
static void types_are_rounded_to(void **state) {
  (void)state;
  const enum pd_dtype types[] = {PD_DTYPE_F16, PD_DTYPE_BF16};
  const uint16_t infinity[] = {0x7c00, 0x7f80};
  for (int i = 0; i < 2; i++)
    for (uint16_t h = 0; h < infinity[i]; h++) {
      const float x = read_half(types[i], h), y = read_half(types[i], (uint16_t)(h + 1));
      assert_int_equal(round_half(types[i], x), h);
      assert_int_equal(round_half(types[i], -x), h | 0x8000);
      if (isinf(y)) continue;
      const float middle = (float)(((double)x + (double)y) / 2);
      assert_int_equal(round_half(types[i], middle), h + (h & 1));
      assert_int_equal(round_half(types[i], nextafterf(middle, 0)), h);
      assert_int_equal(round_half(types[i], nextafterf(middle, INFINITY)), h + 1);
    }
  const float beyond[] = {1, 65519.996f, 65520, -70000}, large[] = {INFINITY, 0x1.fep127f, 0x1.ffp127f};
  uint16_t halves[4];
  assert_int_equal(pd_dtype_round(PD_DTYPE_F16, beyond, 2, halves), -1);
  assert_int_equal(halves[1], 0x7bff);
  assert_int_equal(pd_dtype_round(PD_DTYPE_F16, beyond, 4, halves), 2);
  assert_true(halves[2] == 0x7c00 && halves[3] == 0xfc00);
  assert_int_equal(pd_dtype_round(PD_DTYPE_BF16, large, 2, halves), -1);
  assert_int_equal(pd_dtype_round(PD_DTYPE_BF16, large, 3, halves), 2);
  assert_true(isnan(read_half(PD_DTYPE_F16, round_half(PD_DTYPE_F16, NAN))));
  assert_true(isnan(read_half(PD_DTYPE_BF16, round_half(PD_DTYPE_BF16, NAN))));
  assert_int_equal(pd_dtype_of("bfloat16"), PD_DTYPE_BF16);
  assert_int_equal(pd_dtype_of("f16"), PD_DTYPE_F16);
  assert_int_equal(pd_dtype_of("I64"), PD_DTYPE_OTHER);
}

static int files_in(const char *path) {
  int n = 0;
  DIR *dir = opendir(path);
  for (struct dirent *d; dir && (d = readdir(dir));) n += d->d_name[0] != '.';
  if (dir) closedir(dir);
  return n;
}

/* A folder with files of these names, as the next one. */
static bool write_folder(const char *path, const char *const *names, bool ok) {
  struct pd_output_folder o;
  assert_true(pd_output_folder_open(&o, path));
  for (; *names; names++) {
    FILE *file = pd_output_folder_file(&o, *names);
    assert_true(file && pd_output_folder_file_close(file, fputs(*names, file) >= 0));
  }
  return pd_output_folder_close(&o, ok);
}

static void folders_are_whole_or_nothing(void **state) {
  (void)state;
  char folder[] = "/tmp/pd_folder_XXXXXX", path[64], left[64];
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/out", folder);
  assert_false(write_folder(path, (const char *const[]){"a", NULL}, false));
  assert_int_equal(files_in(folder), 0);
  assert_true(write_folder(path, (const char *const[]){"a", "b", NULL}, true));
  assert_int_equal(files_in(path), 2);
  assert_false(write_folder(path, (const char *const[]){"c", NULL}, false));
  assert_int_equal(files_in(path), 2);
  assert_true(write_folder(path, (const char *const[]){"c", NULL}, true)); /* replaces all files */
  assert_int_equal(files_in(path), 1);
  struct pd_output_folder o;
  assert_true(pd_output_folder_open(&o, path));
  FILE *kept = pd_output_folder_file(&o, "kept");
  assert_true(kept && pd_output_folder_file_close(kept, true));
  snprintf(o.self.path, sizeof o.self.path, "%s/none/out", folder); /* the path becomes unreachable */
  assert_false(pd_output_folder_close(&o, true));
  assert_string_equal(o.kept, "");
  assert_int_equal(files_in(folder), 1);
  snprintf(left, sizeof left, "%s/file", folder);
  assert_true(pd_output_folder_open(&o, left));
  fclose(fopen(left, "w"));
  assert_false(pd_output_folder_close(&o, true)); /* no folder replaces a file */
  assert_true(*o.kept && !rmdir(o.kept) && !unlink(left));
  assert_true(pd_output_folder_open(&o, path) && pd_output_folder_file(&o, "d"));
  pd_output_abandon(); /* as by a signal */
  assert_int_equal(files_in(folder), 1);
  close(o.lock);
  snprintf(left, sizeof left, "%s.%d.new", path, (int)getpid());
  assert_int_equal(mkdir(left, 0777), 0); /* of a killed process */
  pd_remove_left(folder, "other");
  assert_int_equal(files_in(folder), 2);
  pd_remove_left(folder, "out");
  assert_int_equal(files_in(folder), 1);
  snprintf(left, sizeof left, "%s/c", path);
  unlink(left);
  rmdir(path);
  rmdir(folder);
}

/* An F32 of one element. */
#define ENTRY(name, offsets) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" offsets "]}"

static void damaged_safetensors_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *header, *says;
  } cases[] = {
      {"[]", "not a JSON object"},
      {"{\"__metadata__\":{\"a\":1}}", "not a map of strings"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ twice"},
      {"{\"a\":3}", "has an invalid entry"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "outside the file"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "has an invalid entry"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0.5],\"data_offsets\":[0,4]}}", "has an invalid entry"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "outside the file"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", "outside the file"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "do not match its shape"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4503599627370496,4503599627370496],\"data_offsets\":[0,4]}}",
       "has an invalid entry"},
      {"{" ENTRY("a", "0,4") "," ENTRY("b", "0,4") "}", "tensors 'a' and 'b' overlap"},
      {"{" ENTRY("a", "2,6") "," ENTRY("b", "0,4") "}", "tensors 'b' and 'a' overlap"},
      {"{" ENTRY("a", "4,8") "}", "4 bytes before tensor 'a' belong to no tensor"},
      {"{" ENTRY("a", "0,4") "}", "4 bytes after the last tensor belong to no tensor"},
      {"{}", "8 bytes after the last tensor belong to no tensor"},
      {"{" ENTRY("a", "0,4") "," ENTRY("a", "4,8") "}", "has tensor 'a' twice"},
      {"{" ENTRY("a\\u001b[2J", "4,8") "}", "'a?[2J'"},
      {" {\"a\":{}}", "not a JSON object"},
      {"{" ENTRY("a", "0,4") "," ENTRY("b", "4,8") "} x", "not a JSON object"},
      {"{\"a\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[0,4]}}", "do not match its shape"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY] = "";
    struct pd_safetensors s;
    assert_false(parse_text(cases[i].header, "12345678", 8, &s, why));
    if (!strstr(why, cases[i].says)) fail_msg("%s: expected '%s' in '%s'", cases[i].header, cases[i].says, why);
  }
}

static void indices_are_read(void **state) {
  (void)state;
  static const char index[] = "{\"metadata\":{\"total_size\":4},\"weight_map\":"
                              "{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";
  char why[PD_WHY] = "";
  struct pd_index x;
  assert_true(pd_index_parse(index, sizeof index - 1, &x, why));
  assert_true(x.n == 3 && x.n_files == 2);
  assert_string_equal(x.at[2].name, "c");
  assert_string_equal(x.files[x.at[0].file], "2.safetensors");
  assert_string_equal(x.files[x.at[1].file], "1.safetensors");
  assert_int_equal(x.at[2].file, x.at[0].file);
  pd_index_free(&x);
  for (size_t cut = 0; cut < sizeof index - 1; cut++) assert_false(pd_index_parse(index, cut, &x, why));
  static const char *const cases[][2] = {{"[]", "lacks \"weight_map\""},
                                         {"{\"weight_map\":[]}", "lacks \"weight_map\""},
                                         {"{\"weight_map\":{}}", "is empty"},
                                         {"{\"weight_map\":{\"a\":1}}",
                                          "it names for tensor 'a' is not in the same directory"},
                                         {"{\"weight_map\":{\"a\":\"../b\"}}", "is not in the same directory"},
                                         {"{\"weight_map\":{\"a\":\"..\"}}", "is not in the same directory"},
                                         {"{\"weight_map\":{\"a\":\"\"}}", "is not in the same directory"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_false(pd_index_parse(cases[i][0], strlen(cases[i][0]), &x, why));
    if (!strstr(why, cases[i][1])) fail_msg("%s: expected '%s' in '%s'", cases[i][0], cases[i][1], why);
  }
}

static void names_are_mapped(void **state) {
  (void)state;
  static const char *const cases[][3] = {{"a.*.b=x.*.y", "a.1.2.b", "x.1.2.y"},
                                         {"*.?.*=?", "", NULL},
                                         {"model.layers.*.self_attn.?_proj.weight=h.*.attn.?.weight",
                                          "model.layers.10.self_attn.q_proj.weight", "h.10.attn.q.weight"},
                                         {"a=b", "a", "b"},
                                         {"a=b", "a.c", NULL},
                                         {"*=**", "", NULL},
                                         {"*.*=***", "", NULL},
                                         {"*=x.*", "a", "x.a"},
                                         {"a.*=*", "a.", ""},
                                         {"=b", "", NULL},
                                         {"a=", "", NULL},
                                         {"a", "", NULL},
                                         {"a=b=c", "", NULL},
                                         {"*****************=*****************", "", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY] = "";
    bool is_rename = *cases[i][1];
    assert_int_equal(pd_rename_check(cases[i][0], why), is_rename);
    if (!is_rename) {
      assert_non_null(strstr(why, "--rename"));
      continue;
    }
    char *renamed = pd_renamed(cases[i][0], cases[i][1]);
    if (cases[i][2])
      assert_string_equal(renamed, cases[i][2]);
    else
      assert_null(renamed);
    free(renamed);
  }
}

/* ---- options --------------------------------------------------------------------------------- */

/* What is written reaches its name whole or leaves nothing: neither a failure nor a signal in between. */
static void outputs_are_whole_or_nothing(void **state) {
  (void)state;
  char directory[] = "/tmp/pd_units_XXXXXX", path[64], text[16] = "";
  assert_non_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/out", directory);
  struct pd_output o;
  for (int end = 0; end < 3; end++) {
    assert_true(pd_output_open(&o, path));
    assert_int_equal(fputs(end ? "new" : "old", o.file) < 0, 0);
    if (end == 1) pd_output_abandon();
    assert_int_equal(access(o.beside, F_OK), end == 1 ? -1 : 0);
    if (end == 1) fclose(o.file);
    if (end != 1) assert_int_equal(pd_output_close(&o, end == 0), end == 0);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_string_equal(fgets(text, sizeof text, in), "old");
    fclose(in);
  }
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(directory), 0); /* nothing else is there */
}

static void options_are_read(void **state) {
  static const struct pd_stage stage;
  (void)state;
  pd = (struct pd_run){.stage = &stage};
  char why[PD_WHY] = "";
  struct pd_options o;
  char *good[] = {"train",  "--data",    "a",      "b", "--steps=5", "--seed", "18446744073709551615",
                  "--peak", "2.5TFLOPS", "--quiet"};
  assert_true(pd_parse_options(&o, 10, good, why));
  assert_true(o.n_data == 2 && !strcmp(o.data[1], "b") && o.steps == 5 && o.seed == UINT64_MAX &&
              o.peak == 2.5e12);
  assert_true(o.quiet && !o.emulate && o.timeout == 300);
  char *init[] = {"train", "--init", "a", "b", "--quiet", "--init=c", "--init", "d"};
  assert_true(pd_parse_options(&o, 8, init, why));
  assert_true(o.n_init == 4 && !strcmp(o.init[1], "b") && !strcmp(o.init[2], "c") && !strcmp(o.init[3], "d"));
  char *run[] = {"train", "--run", "made", "--log", "own"};
  assert_true(pd_parse_options(&o, 5, run, why));
  assert_string_equal(o.log, "own");
  assert_string_equal(o.trace, "made/trace.json");
  assert_string_equal(o.plan, "made/plan.json");
  char *images[] = {"train", "--augment", "crop=4,flip", "--pad", "3"};
  assert_true(pd_parse_options(&o, 5, images, why));
  assert_true(o.augment.flip && o.augment.crop == 4 && o.pad == 3);
  assert_true(o.data_threads == -1 && o.resize == 0 && !o.skip_broken && o.augment.color == 0);
  char *files[] = {"train", "--augment",    "resized_crop,flip,color=0.4", "--resize=256", "--data-threads",
                   "3",     "--skip-broken"};
  assert_true(pd_parse_options(&o, 7, files, why));
  assert_true(o.augment.resized_crop == 0.08 && o.augment.color == 0.4 && o.augment.flip && !o.augment.crop);
  assert_true(o.resize == 256 && o.data_threads == 3 && o.skip_broken);
  char *half[] = {"train", "--augment", "resized_crop=0.5"};
  assert_true(pd_parse_options(&o, 3, half, why) && o.augment.resized_crop == 0.5);
  static const struct {
    const char *a, *b, *says;
  } cases[] = {{"--augment", "resized_crop=2", "needs flip"},
               {"--augment", "flip,resized_crop=224,color=0.4",
                "not 'resized_crop=224'. help: images get the size"},
               {"--augment", "flip,normalize", "not 'normalize'. help: leave it out"},
               {"--augment", "color", "needs flip"},
               {"--augment", "color=0", "needs flip"},
               {"--augment", "flip=1", "needs flip"},
               {"--resize", "70000", "--resize 70000 is more than 65536"},
               {"--data-threads", "257", "--data-threads 257 is more than 256"},
               {"--dtaa", "x", "unknown option '--dtaa'"},
               {"--steps", "-3", "whole number, not '-3'"},
               {"--steps", "3x", "whole number, not '3x'"},
               {"--seed", "-1", "whole number, not '-1'"},
               {"--data", "--quiet", "needs a path"},
               {"--timeout", "0", "needs a number of seconds"},
               {"--quiet=1", "--quiet", "takes no value"},
               {"--validate-every", "3", "needs --validation"},
               {"--quiet", "--save", "needs a value"},
               {"--peak", "fast", "operations per second"},
               {"--augment", "flip,", "needs flip, crop"},
               {"--augment", "crop=0", "needs flip, crop"},
               {"--init", "--quiet", "--init needs PATH"},
               {"--rename", "a=b", "--rename needs --init"},
               {"--augment", "flop", "needs flip, crop"},
               {"--augment", "crop=99999", "needs flip, crop"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *argv[] = {"train", strdup(cases[i].a), strdup(cases[i].b)};
    *why = 0;
    assert_false(pd_parse_options(&o, 3, argv, why));
    if (!strstr(why, cases[i].says)) fail_msg("expected '%s' in '%s'", cases[i].says, why);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_epoch_is_a_permutation),
      cmocka_unit_test(orders_differ_by_epoch_and_seed),
      cmocka_unit_test(the_last_work_is_named),
      cmocka_unit_test(microbatches_are_dealt_to_replicas),
      cmocka_unit_test(turns_go_through_the_chunks),
      cmocka_unit_test(initial_weights_follow_seed_and_name),
      cmocka_unit_test(uniform_weights_fill_their_range),
      cmocka_unit_test(rates_warm_up_and_fall_to_the_floor),
      cmocka_unit_test(rates_stay_then_fall),
      cmocka_unit_test(warm_ups_come_before_any_schedule),
      cmocka_unit_test(rates_are_pytorchs),
      cmocka_unit_test(adamw_follows_its_formula),
      cmocka_unit_test(sgd_follows_its_formula),
      cmocka_unit_test(tensors_are_updated_as_a_whole),
      cmocka_unit_test(squares_add_up),
      cmocka_unit_test(safetensors_read_back),
      cmocka_unit_test(safetensors_convert_types),
      cmocka_unit_test(types_are_rounded_to),
      cmocka_unit_test(damaged_safetensors_are_refused),
      cmocka_unit_test(indices_are_read),
      cmocka_unit_test(names_are_mapped),
      cmocka_unit_test(outputs_are_whole_or_nothing),
      cmocka_unit_test(folders_are_whole_or_nothing),
      cmocka_unit_test(options_are_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
