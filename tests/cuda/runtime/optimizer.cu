/* Updates on a device against host/optimizer.c's, to the bit where there are no products: every rule, parameters of
 * all kinds and sizes, with one version of the weights and with two, with masters and without; working copies are
 * their masters, rounded; the rules over whole tensors, and one written here, with moments of shapes of their own. */
#include "optimizers/pd_newton_schulz.h"
#include "messages/messages.h"
#include "update/update.h"
#include "watch/watch.h"
#include "test.h"

extern "C" {
extern const struct pd_rules host_rules;
#define DECLARE_HOST(rule, optimizer, moments) extern const struct pd_optimizer host_##rule;
PD_TENSOR_RULES(DECLARE_HOST)
}

enum { N = 5, UPDATES = 4, SETS = 2 };
static const int64_t shapes[N][2] = {{13, 3077}, {17, 1}, {128, 128}, {3, 11}, {2, 3}};
enum { DECAYS, PLAIN, TIED, AVERAGE, UNUSED }; /* TIED's last use is elsewhere */

/* Moments: all like the parameter; the first one number a row; one a row, one a column, and none; of hidden matrices
 * one like the parameter, of others two. */
enum own { LIKE, ROWS, FACTORED, HIDDEN };

struct setting {
  const char *name;
  const struct pd_optimizer *device, *host;
  int moments, versions;
  bool masters;
  enum own own;
  const double *arguments;
};

/* What every rule takes for its arguments, which are numbers. */
static const double numbers[] = {0.9, 0.95, 1e-8, 0.1};
static const double adafactor_numbers[] = {-0.8, 1e-7, 1e-3, 0.5, 0.1};
static const double muon_numbers[] = {0.1, 0.9, 1, 3.4445, -4.775, 2.0315, 1e-7, 5, 0.9, 0.95, 1e-8};
static const struct pd_lr_constant_arguments constant = {0};

static size_t after(size_t *at, size_t bytes) {
  size_t here = *at;
  *at = (here + bytes + 63) / 64 * 64;
  return here;
}

/* ---- a rule over whole tensors: LAMB's norms, with a running sum of squares of each row ---- */

struct Whole {
  const float *from, *gradient;
  float *to, *rows, *velocity;
  int64_t n_rows, n_columns;
  float scale, lr;
};

static __host__ __device__ void update_whole(const Whole &x) {
  int64_t n = x.n_rows * x.n_columns;
  float weights = 0, step = 0;
  for (int64_t r = 0; r < x.n_rows; r++) {
    float squares = 0;
    for (int64_t i = r * x.n_columns; i < (r + 1) * x.n_columns; i++) squares += x.gradient[i] * x.gradient[i];
    x.rows[r] = 0.5f * x.rows[r] + squares;
  }
  for (int64_t i = 0; i < n; i++) {
    float v = 0.875f * x.velocity[i] + x.scale * x.gradient[i] / (sqrtf(x.rows[i / x.n_columns]) + 1);
    x.velocity[i] = v;
    weights += x.from[i] * x.from[i];
    step += v * v;
  }
  float trust = step > 0 ? sqrtf(weights) / sqrtf(step) : 1;
  for (int64_t i = 0; i < n; i++) x.to[i] = x.from[i] - x.lr * trust * x.velocity[i];
}

static __global__ void update_whole_here(Whole x) { update_whole(x); }

static Whole whole(const struct pd_tensor_update *x) {
  CHECK(x->arguments == numbers && x->parameter->rank == 2 && !x->parameter->buffer);
  CHECK(pd_moment_shape(x->parameter, 0).rank == 1);
  return {x->from,
          x->gradient,
          x->to,
          x->moment[0],
          x->moment[1],
          x->parameter->dim[0],
          x->parameter->dim[1],
          x->scale,
          static_cast<float>(x->rate.lr)};
}

static void whole_on_host(const struct pd_tensor_update *x) { update_whole(whole(x)); }
static void whole_on_device(const struct pd_tensor_update *x) {
  PD_LAUNCH(update_whole_here, 1, 1, 0, pd_stream, whole(x));
}
static const struct pd_optimizer whole_host = {.name = "whole", .tensor = whole_on_host};
static const struct pd_optimizer whole_device = {.name = "whole", .tensor = whole_on_device};

/* ---- stages ------------------------------------------------------------------------------------- */

/* A stage of these parameters as a device has it, or without masters, as the host's optimizer does. */
struct laid_out {
  struct pd_parameter parameters[N];
  struct pd_use uses[N][2];
  struct pd_moment own_moments[static_cast<int>(N) * PD_MAX_MOMENTS];
  struct pd_stage stage;
};

static struct laid_out on_device, on_host;

/* What products on the device take, which is more than on the host. */
static int64_t muon_scratch(const int64_t *shape) {
  struct pd_matmul_shape product[PD_NEWTON_SCHULZ_PRODUCTS];
  struct pd_muon_work muon;
  int64_t most = 0;
  pd_newton_schulz_products(shape[0], shape[1], product);
  for (const struct pd_matmul_shape &s : product) {
    int64_t bytes = static_cast<int64_t>(pd_matmul_scratch(pd_matmul_new(s)));
    most = bytes > most ? bytes : most;
  }
  return pd_muon_lay_out(&muon, shape[0], shape[1], most, NULL);
}

static size_t most_scratch() {
  int64_t most = 0;
  for (const int64_t *shape : shapes) {
    struct pd_lamb_work lamb;
    struct pd_adafactor_work adafactor = {};
    adafactor.m = pd_as_matrices(2, shape);
    for (int64_t bytes : {pd_lamb_lay_out(&lamb, shape[0] * shape[1], NULL),
                          pd_adafactor_lay_out(&adafactor, NULL), muon_scratch(shape)})
      most = bytes > most ? bytes : most;
  }
  return static_cast<size_t>(most);
}

static void lay_out(struct laid_out *l, const struct setting *s, bool masters) {
  size_t weights = 0, state = 0, exchanged = 0, at = 0;
  for (int i = 0; i < N; i++) {
    struct pd_parameter *p = &l->parameters[i];
    size_t bytes = sizeof(float) * (size_t)(shapes[i][0] * shapes[i][1]);
    *p = {};
    p->name = "p";
    p->elements = shapes[i][0] * shapes[i][1];
    p->rank = 2;
    memcpy(p->dim, shapes[i], sizeof shapes[i]);
    p->bf16 = masters && (i == DECAYS || i == TIED);
    p->state = after(&state, bytes);
    p->offset = after(&weights, p->bf16 ? bytes / 2 : bytes);
    p->decays = i == DECAYS || i == TIED;
    p->hidden = s->own == HIDDEN && i != PLAIN && i != AVERAGE;
    p->buffer = i == AVERAGE;
    p->momentum = i == AVERAGE ? 0.1f : 0;
    p->order = i;
    l->uses[i][0] = {.stage = 0, .offset = p->state};
    l->uses[i][1] = {.stage = 1, .offset = i == TIED ? after(&exchanged, bytes) : 0};
    p->uses = l->uses[i];
    p->n_uses = i == UNUSED ? 0 : i == TIED ? 2 : 1;
  }
  struct pd_stage *g = &l->stage;
  *g = {};
  g->parameters = l->parameters;
  g->n_parameters = g->n_model_parameters = N;
  g->microbatch = 1;
  g->batch = g->microbatches = 4;
  g->versions = s->versions;
  g->n_moments = s->moments;
  g->weights_stride = weights;
  g->accumulators_stride = g->moments_stride = state;
  g->exchanged_stride = exchanged;
  g->accumulator_sets = 1;
  g->exchange_sets = SETS;
  g->weights = after(&at, weights * (size_t)s->versions);
  g->moments = after(&at, state * (size_t)s->moments);
  for (int i = 0; i < N && s->own != LIKE; i++) {
    const int64_t rows = shapes[i][0], columns = shapes[i][1];
    struct pd_moment *own = &l->own_moments[i * s->moments];
    size_t first = g->moments + l->parameters[i].state, second = first + state;
    own[0] = {.offset = first, .dim = {rows}, .rank = 1};
    if (s->own == HIDDEN) own[0] = {.offset = first, .dim = {rows, columns}, .rank = 2};
    if (s->own == HIDDEN) own[1] = {.offset = second, .dim = {rows, columns}, .rank = 2};
    if (l->parameters[i].hidden) own[1] = {.offset = 0, .dim = {0}, .rank = 1};
    if (s->own == ROWS) own[1] = {.offset = second, .dim = {rows, columns}, .rank = 2};
    if (s->own == FACTORED) own[1] = {.offset = second, .dim = {columns}, .rank = 1};
    if (s->own == FACTORED) own[2] = {.offset = 0, .dim = {0}, .rank = 1};
    g->own_moments = l->own_moments;
  }
  g->accumulators = after(&at, state);
  g->exchanged = after(&at, exchanged * SETS);
  g->has_masters = masters;
  g->masters = after(&at, masters ? state : 0);
  g->scratch = after(&at, most_scratch());
  g->arena_bytes = at;
  for (int i = 0; i < N; i++) l->uses[i][1].offset += g->exchanged;
  g->optimizer = l == &on_device ? s->device : s->host;
  g->arguments = s->arguments;
  g->lr = 0.01;
  g->lr_schedule = pd_lr_constant;
  g->lr_arguments = &constant;
}

static char *device_arena;
struct alignas(64) Line { /* of a processor's cache, at which arenas begin */
  float at[16];
};
static std::vector<Line> host_arena;

static void use_device() {
  pd.stage = &on_device.stage;
  pd.arena = device_arena;
}

static void use_host() {
  pd.stage = &on_host.stage;
  pd.arena = (char *)host_arena.data();
}

static float *host_at(size_t offset) {
  return reinterpret_cast<float *>(host_arena.data()) + offset / sizeof(float);
}

static void update(int64_t t, const struct pd_rules *rules) {
  const struct pd_stage *s = pd.stage;
  char *weights = pd.arena + s->weights;
  const void *from = weights + (size_t)(t % s->versions) * s->weights_stride;
  void *to = weights + (size_t)((t + 1) % s->versions) * s->weights_stride, *gradient = pd.arena + s->accumulators;
  pd_update_with(rules, t, 0.25f, from, to, gradient);
}

static void fill_weights() {
  for (int i = 0; i < N; i++) {
    const struct pd_parameter *p = &on_device.parameters[i];
    float *host = host_at(on_host.stage.weights + on_host.parameters[i].offset), *device = pd_fill_newest(p, 0);
    for (int64_t j = 0; j < p->elements; j++) host[j] = device[j] = number((uint64_t)(i * 100000 + j));
    pd_newest_filled(p, 0, device);
  }
}

static void fill_gradients(int64_t t) {
  for (int i = 0; i < N; i++)
    for (int use = 0; use < on_device.parameters[i].n_uses; use++) {
      const struct pd_use *d = &on_device.uses[i][use], *h = &on_host.uses[i][use];
      size_t device_set =
          use ? (size_t)(t % SETS) * on_device.stage.exchanged_stride : on_device.stage.accumulators;
      size_t host_set = use ? (size_t)(t % SETS) * on_host.stage.exchanged_stride : on_host.stage.accumulators;
      int64_t n = on_device.parameters[i].elements;
      float *host = host_at(host_set + h->offset), *device = pd_fill(device_arena, n, false);
      for (int64_t j = 0; j < n; j++)
        host[j] = device[j] = number((uint64_t)(((t + 1) * 10 + i * 2 + use) * 1000000 + j));
      pd_filled(device_arena + device_set + d->offset, n, false);
    }
}

static void compare(const char *what, const struct setting *s, int parameter, int64_t t, const float *got,
                    const float *host, bool bf16, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    float want = bf16 ? nearest_bf16(host[j]) : host[j];
    float near = !on_device.parameters[parameter].hidden ? 0 : bf16 ? 0x1p-7f : 1e-5f;
    if (near > 0 ? !(fabsf(got[j] - want) <= near * fmaxf(1, fabsf(want))) : memcmp(&got[j], &want, sizeof want))
      pd_fail("%s, %d versions, masters %d: %s of parameter %d after update %d: element %d is %.9g, not %.9g",
              s->name, s->versions, s->masters, what, parameter, (int)t, (int)j, (double)got[j], (double)want);
  }
}

static void compare_all(const struct setting *s, int64_t t) {
  for (int i = 0; i < N; i++) {
    const struct pd_parameter *d = &on_device.parameters[i], *h = &on_host.parameters[i];
    const struct pd_stage *host = &on_host.stage;
    for (int back = 0; back < s->versions && back <= t; back++) {
      size_t version = (size_t)((t - back) % s->versions) * host->weights_stride;
      const float *want = host_at(host->weights + version + h->offset);
      compare(back ? "the older version" : "the working copy", s, i, t,
              pd_view(pd_weights_at(d, t - back), d->elements, d->bf16), want, d->bf16, d->elements);
      if (!back) compare("the newest weights", s, i, t, pd_view_newest(d, t), want, false, d->elements);
    }
    for (int m = 0; m < s->moments && i != AVERAGE; m++) {
      int64_t n = pd_moment_shape(d, m).elements;
      if (!n) {
        CHECK(((s->own == FACTORED && m == 2) || (d->hidden && m == 1)) && !pd_moment_at(d, m));
        continue;
      }
      use_host();
      const float *want = pd_moment_at(h, m);
      use_device();
      bool sums = s->own == ROWS || s->own == FACTORED;
      CHECK(n == (sums && !m ? shapes[i][0] : s->own == FACTORED ? shapes[i][1] : d->elements));
      compare("a moment", s, i, t, pd_view(pd_moment_at(d, m), n, false), want, false, n);
    }
  }
}

static void try_setting(const struct setting *s) {
  lay_out(&on_device, s, s->masters);
  lay_out(&on_host, s, false);
  host_arena.assign((on_host.stage.arena_bytes + sizeof(Line) - 1) / sizeof(Line), Line{});
  start_rank(&on_device.stage);
  device_arena = pd.arena;
  pd_n_tiles = 0;
  free(pd_tiles);
  pd_optimizer_start();
  use_host();
  pd_start_rule();
  use_device();
  fill_weights();
  for (int64_t t = 0; t < UPDATES; t++) {
    fill_gradients(t);
    update(t, &pd_rules);
    use_host();
    update(t, &host_rules);
    use_device();
    compare_all(s, t + 1);
  }
  pd_device_finish();
}

int main(int argc, char **argv) {
#define BY_ELEMENTS(rule, optimizer, moments) {#rule, &pd_##rule, &pd_##rule, moments, 1, false, LIKE, numbers},
  static const struct setting settings[] = {
      PD_ELEMENT_RULES(BY_ELEMENTS){"whole tensors", &whole_device, &whole_host, 2, 1, false, ROWS, numbers},
      {"lamb", &pd_lamb, &host_lamb, 2, 1, false, LIKE, numbers},
      {"muon", &pd_muon, &host_muon, 2, 1, false, HIDDEN, muon_numbers},
      {"adafactor", &pd_adafactor, &host_adafactor, 3, 1, false, FACTORED, adafactor_numbers},
  };
  static struct pd_stage alone;
  pd.stage = &alone;
  MPI_Init(&argc, &argv);
  pd_comm_open(0);
  for (struct setting s : settings)
    for (s.versions = 1; s.versions <= 2; s.versions++)
      for (int masters = 0; masters < 2; masters++) {
        s.masters = masters;
        try_setting(&s);
      }
  MPI_Finalize();
  printf("passed\n");
  return 0;
}
