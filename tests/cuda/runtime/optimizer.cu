/* Updates on a device against host/optimizer.c's, to the bit: parameters of all kinds and sizes, with one version of
 * the weights and with two, with masters and without; and working copies are their masters, rounded. */
#include "test.h"

extern "C" {
void host_adamw(int64_t t, float scale, const void *from, void *to, void *gradient, void *moment1, void *moment2);
void host_sgd(int64_t t, float scale, const void *from, void *to, void *gradient, void *momentum);
}

enum { N = 5, UPDATES = 4, SETS = 2 };
static const int64_t elements[N] = {40001, 17, 16384, 33, 6};
enum { DECAYS, PLAIN, TIED, AVERAGE, UNUSED }; /* TIED's last use is elsewhere */

struct setting {
  const char *name;
  enum pd_optimizer optimizer;
  int moments, versions;
  bool masters;
};

static size_t after(size_t *at, size_t bytes) {
  size_t here = *at;
  *at = (here + bytes + 63) / 64 * 64;
  return here;
}

/* A stage of these parameters as a device has it, or without masters, as the host's optimizer does. */
struct laid_out {
  struct pd_parameter parameters[N];
  struct pd_use uses[N][2];
  struct pd_stage stage;
};

static void lay_out(struct laid_out *l, const struct setting *s, bool masters) {
  size_t weights = 0, state = 0, exchanged = 0, at = 0;
  for (int i = 0; i < N; i++) {
    struct pd_parameter *p = &l->parameters[i];
    size_t bytes = sizeof(float) * (size_t)elements[i];
    *p = {};
    p->name = "p";
    p->elements = elements[i];
    p->bf16 = masters && (i == DECAYS || i == TIED);
    p->state = after(&state, bytes);
    p->offset = after(&weights, p->bf16 ? bytes / 2 : bytes);
    p->decays = i == DECAYS || i == TIED;
    p->buffer = i == AVERAGE;
    p->momentum = i == AVERAGE ? 0.1f : 0;
    p->order = i;
    l->uses[i][0] = {0, p->state};
    l->uses[i][1] = {1, i == TIED ? after(&exchanged, bytes) : 0};
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
  g->accumulators = after(&at, state);
  g->exchanged = after(&at, exchanged * SETS);
  g->has_masters = masters;
  g->masters = after(&at, masters ? state : 0);
  g->arena_bytes = at;
  for (int i = 0; i < N; i++) l->uses[i][1].offset += g->exchanged;
  g->optimizer = s->optimizer;
  g->lr = 0.01;
  g->beta1 = 0.9;
  g->beta2 = 0.95;
  g->eps = 1e-8;
  g->weight_decay = 0.1;
  g->momentum = s->moments == 1 ? 0.9 : 0;
}

static struct laid_out on_device, on_host;
static char *device_arena;
static std::vector<float> host_arena;

static void use_device() {
  pd.stage = &on_device.stage;
  pd.arena = device_arena;
}

static void use_host() {
  pd.stage = &on_host.stage;
  pd.arena = (char *)host_arena.data();
}

static float *host_at(size_t offset) { return host_arena.data() + offset / sizeof(float); }

static void update(int64_t t, decltype(host_adamw) *adamw, decltype(host_sgd) *sgd) {
  const struct pd_stage *s = pd.stage;
  char *weights = pd.arena + s->weights, *moment = pd.arena + s->moments;
  const void *from = weights + (size_t)(t % s->versions) * s->weights_stride;
  void *to = weights + (size_t)((t + 1) % s->versions) * s->weights_stride, *gradient = pd.arena + s->accumulators;
  if (s->optimizer == PD_ADAMW)
    adamw(t, 0.25f, from, to, gradient, moment, moment + s->moments_stride);
  else
    sgd(t, 0.25f, from, to, gradient, s->n_moments ? moment : NULL);
}

static void fill_weights() {
  for (int i = 0; i < N; i++) {
    const struct pd_parameter *p = &on_device.parameters[i];
    char *at = pd_newest_at(p, 0);
    float *host = host_at(on_host.stage.weights + on_host.parameters[i].offset), *device = pd_fill(at, p->elements);
    for (int64_t j = 0; j < p->elements; j++) host[j] = device[j] = number((uint64_t)(i * 100000 + j));
    pd_filled(at, p->elements, false);
    pd_newest_written(p, 0);
  }
}

static void fill_gradients(int64_t t) {
  for (int i = 0; i < N; i++)
    for (int use = 0; use < on_device.parameters[i].n_uses; use++) {
      const struct pd_use *d = &on_device.uses[i][use], *h = &on_host.uses[i][use];
      size_t device_set = use ? (size_t)(t % SETS) * on_device.stage.exchanged_stride : on_device.stage.accumulators;
      size_t host_set = use ? (size_t)(t % SETS) * on_host.stage.exchanged_stride : on_host.stage.accumulators;
      float *host = host_at(host_set + h->offset), *device = pd_fill(device_arena, elements[i]);
      for (int64_t j = 0; j < elements[i]; j++)
        host[j] = device[j] = number((uint64_t)(((t + 1) * 10 + i * 2 + use) * 1000000 + j));
      pd_filled(device_arena + device_set + d->offset, elements[i], false);
    }
}

static void compare(const char *what, const struct setting *s, int parameter, int64_t t, const void *at,
                    const float *host, bool bf16) {
  const float *got = pd_view(at, elements[parameter], bf16);
  for (int64_t j = 0; j < elements[parameter]; j++) {
    float want = bf16 ? nearest_bf16(host[j]) : host[j];
    if (memcmp(&got[j], &want, sizeof want))
      pd_fail("%s: %s of parameter %d after update %d: element %d is %.9g, not %.9g", s->name, what, parameter,
              (int)t, (int)j, (double)got[j], (double)want);
  }
}

static void compare_all(const struct setting *s, int64_t t) {
  for (int i = 0; i < N; i++) {
    const struct pd_parameter *d = &on_device.parameters[i], *h = &on_host.parameters[i];
    const struct pd_stage *host = &on_host.stage, *device = &on_device.stage;
    for (int back = 0; back < s->versions && back <= t; back++) {
      size_t version = (size_t)((t - back) % s->versions) * host->weights_stride;
      const float *want = host_at(host->weights + version + h->offset);
      compare(back ? "the older version" : "the working copy", s, i, t, pd_weights_at(d, t - back), want, d->bf16);
      if (!back) compare("the newest weights", s, i, t, pd_newest_at(d, t), want, false);
    }
    for (int m = 0; m < s->moments && i != AVERAGE; m++)
      compare("a moment", s, i, t, pd.arena + device->moments + (size_t)m * device->moments_stride + d->state,
              host_at(host->moments + (size_t)m * host->moments_stride + h->offset), false);
  }
}

static void try_setting(const struct setting *s) {
  lay_out(&on_device, s, s->masters);
  lay_out(&on_host, s, false);
  host_arena.assign(on_host.stage.arena_bytes / sizeof(float), 0);
  start_rank(&on_device.stage);
  device_arena = pd.arena;
  pd_n_chunks = 0;
  free(pd_chunks);
  pd_optimizer_start();
  fill_weights();
  for (int64_t t = 0; t < UPDATES; t++) {
    fill_gradients(t);
    update(t, pd_adamw, pd_sgd);
    use_host();
    update(t, host_adamw, host_sgd);
    use_device();
    compare_all(s, t + 1);
  }
  pd_device_finish();
}

int main(int argc, char **argv) {
  static const struct setting settings[] = {
    {"AdamW", PD_ADAMW, 2, 1, false},   {"AdamW, two versions", PD_ADAMW, 2, 2, false},
    {"AdamW, masters", PD_ADAMW, 2, 1, true}, {"AdamW, masters, two versions", PD_ADAMW, 2, 2, true},
    {"SGD", PD_SGD, 0, 2, false},       {"SGD, masters", PD_SGD, 0, 2, true},
    {"momentum", PD_SGD, 1, 1, false},  {"momentum, masters", PD_SGD, 1, 2, true},
  };
  MPI_Init(&argc, &argv);
  pd_comm_open();
  for (const struct setting &s : settings) try_setting(&s);
  MPI_Finalize();
  printf("passed\n");
  return 0;
}
