/* A stage program written by hand, for tests of the runtime: y = (x * first * shared) * shared + last,
 * loss (y - target)^2, elementwise over 8 numbers. With STAGES 2 the cut is after x * first * shared, so
 * that `shared` is tied across it. STAGE, STAGES and DELAY (0 flush, 1 2BW) are given by the build. */
#include "pd_runtime.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 8, B = 2, M = 4, N = B * WIDTH };
enum { HEAD = STAGE == 0, TAIL = STAGE == STAGES - 1 };
enum { IN_FLIGHT = STAGES - STAGE, LAG = DELAY && STAGE > 0, SETS = 1 + LAG, VERSIONS = 1 + DELAY };
enum { ACTIVATION_SLOTS = IN_FLIGHT + 1, SENT_SLOTS = 2, GRADIENT_SLOTS = 2 };

struct weights {
  float first[16], shared[16], last[16];
}; /* 64-byte members */
struct accumulators {
  float first[16], shared_0[16], shared_1[16], last[16];
};
struct slot {
  float x[N];
};

struct arena {
  struct weights weights[VERSIONS], moment1, moment2;
  struct accumulators accumulators[SETS];
  float remote[16]; /* the other stage's gradient of `shared` */
  struct slot received[ACTIVATION_SLOTS], sent[SENT_SLOTS], gradient_in[GRADIENT_SLOTS],
    gradient_out[GRADIENT_SLOTS];
  struct slot input[IN_FLIGHT], target[IN_FLIGHT], between[IN_FLIGHT], y[IN_FLIGHT], loss;
};

#define AT(member) offsetof(struct arena, member)
#define SHARED(use, own)                                                                                     \
  { STAGES == 2 ? use : 0, STAGES == 1 || STAGE == use ? offsetof(struct accumulators, own) : AT(remote) }
static const struct pd_use shared_uses[] = {SHARED(0, shared_0), SHARED(1, shared_1)};
#define PARAMETER(n)                                                                                         \
  .name = #n, .rank = 1, .dim = {WIDTH}, .elements = WIDTH, .offset = offsetof(struct weights, n)
static const struct pd_parameter parameters[] = {
#if STAGE == 0
  {PARAMETER(first), .init = PD_NORMAL, .init_value = 0.5, .order = 0, .owner = 0, .n_uses = 1,
   .uses = (const struct pd_use[]){{0, offsetof(struct accumulators, first)}}},
#endif
  {PARAMETER(shared), .init = PD_UNIFORM, .init_value = 1, .order = 1, .owner = 0, .n_uses = 2,
   .uses = shared_uses},
#if STAGE == STAGES - 1
  {PARAMETER(last), .init = PD_ZEROS, .order = 2, .owner = STAGES - 1, .n_uses = 1,
   .uses = (const struct pd_use[]){{STAGE, offsetof(struct accumulators, last)}}},
#endif
};
static const struct pd_input inputs[] = {{"x", false, false, 0, 1, {WIDTH}, WIDTH},
                                         {"target", true, false, 0, 1, {WIDTH}, WIDTH}};
static const struct pd_tensor tensors[] = {{"between", AT(between), sizeof(struct slot), IN_FLIGHT, N},
                                           {"y", AT(y), sizeof(struct slot), IN_FLIGHT, N}};
#define VALUE(member)                                                                                        \
  { AT(member), sizeof(struct slot), sizeof(struct slot) }
static const struct pd_channel_value received = VALUE(received), sent = VALUE(sent),
                                     gradient_in = VALUE(gradient_in), gradient_out = VALUE(gradient_out);
static const int64_t planned[] = {sizeof(struct arena), sizeof(struct arena)}, loss_elements[] = {WIDTH};

static const struct pd_stage stage = {.model = "chain",
                                      .schedule = DELAY ? "2bw" : "flush",
                                      .plan_hash = PLAN,
                                      .stage = STAGE,
                                      .chunks = 1, .replicas = (const int[]){1, 1, 1, 1}, .n_stages = STAGES,
                                      .batch = B * M,
                                      .microbatch = B,
                                      .microbatches = M,
                                      .model_parameters = 3 * WIDTH,
                                      .n_model_parameters = 3,
                                      .flops_per_sample = 1,
                                      .threads = 2,
                                      .planned_peak_bytes = planned,
                                      .arena_bytes = sizeof(struct arena),
                                      .weights = AT(weights),
                                      .weights_stride = sizeof(struct weights),
                                      .versions = VERSIONS,
                                      .accumulators = AT(accumulators),
                                      .accumulators_stride = sizeof(struct accumulators),
                                      .accumulator_sets = SETS,
                                      .moments = AT(moment1),
                                      .moments_stride = sizeof(struct weights),
                                      .n_moments = 2,
                                      .per_batch = !DELAY,
                                      .lag = LAG,
                                      .parameters = parameters,
                                      .n_parameters = sizeof parameters / sizeof *parameters,
                                      .inputs = inputs,
                                      .n_inputs = 2,
                                      .tensors = tensors,
                                      .n_tensors = 2,
                                      .activations_in = {{!HEAD, &received, ACTIVATION_SLOTS}},
                                      .activations_out = {{!TAIL, &sent, SENT_SLOTS}},
                                      .gradients_in = {{!TAIL, &gradient_in, GRADIENT_SLOTS}},
                                      .gradients_out = {{!HEAD, &gradient_out, GRADIENT_SLOTS}},
                                      .n_losses = 1,
                                      .loss_elements = loss_elements,
                                      .optimizer = PD_ADAMW,
                                      .lr = 0.05,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .clip_norm = 0.5,
                                      .rate = PD_LR_COSINE,
                                      .lr_warmup = 3,
                                      .lr_total = 40,
                                      .lr_floor = 0.001};

static struct arena *a;

/* The microbatch's forward pass; reads x, or `in` where it was received; leaves y, or `out` to be sent. */
static void forward(const struct weights *w, const float *x, const float *in, float *out, float *y) {
  for (int i = 0; i < N; i++) {
    if (HEAD) out[i] = x[i] * w->first[i % WIDTH] * w->shared[i % WIDTH];
    if (TAIL) y[i] = (HEAD ? out : in)[i] * w->shared[i % WIDTH] + w->last[i % WIDTH];
  }
}

static const float *losses(const float *y, const float *target) {
  for (int i = 0; i < N; i++) a->loss.x[i] = (y[i] - target[i]) * (y[i] - target[i]);
  return a->loss.x;
}

static const struct weights *weights_of(int64_t k) {
  int64_t v = (k - 1) / M - DELAY;
  return &a->weights[v > 0 ? v % VERSIONS : 0];
}

static void forward_of(int64_t k) {
  int64_t slot = k % IN_FLIGHT;
  if (HEAD) pd_load(0, k, a->input[slot].x);
  if (TAIL) pd_load(1, k, a->target[slot].x);
  pd_receive_activations(k);
  pd_await_activations_slot(k);
  float *out = TAIL ? a->between[slot].x : a->sent[k % SENT_SLOTS].x;
  forward(weights_of(k), a->input[slot].x, a->received[k % ACTIVATION_SLOTS].x, out, a->y[slot].x);
  if (!TAIL) memcpy(a->between[slot].x, out, sizeof(struct slot));
  if (TAIL) pd_loss(0, k, losses(a->y[slot].x, a->target[slot].x), N);
  pd_send_activations(k);
}

static void backward_of(int64_t k) {
  int64_t slot = k % IN_FLIGHT;
  const struct weights *w = weights_of(k);
  struct accumulators *to = &a->accumulators[(k - 1) / M % SETS];
  if ((k - 1) % M == 0) memset(to, 0, sizeof *to);
  pd_receive_gradients(k);
  pd_await_gradients_slot(k);
  pd_progress();
  const float *in = HEAD ? a->between[slot].x : a->received[k % ACTIVATION_SLOTS].x;
  for (int i = 0; i < N; i++) {
    int j = i % WIDTH;
    float g = a->gradient_in[k % GRADIENT_SLOTS].x[i];
    if (TAIL) {
      float dy = 2 * (a->y[slot].x[i] - a->target[slot].x[i]);
      to->last[j] += dy;
      to->shared_1[j] += dy * in[i];
      g = dy * w->shared[j];
    }
    if (!HEAD) a->gradient_out[k % GRADIENT_SLOTS].x[i] = g;
    if (HEAD) {
      to->first[j] += g * w->shared[j] * a->input[slot].x[i];
      to->shared_0[j] += g * (w->first[j] * a->input[slot].x[i]);
    }
  }
  pd_send_gradients(k);
}

static void validate(const struct weights *w, int64_t f) {
  for (int64_t v = 1; pd_validation_next(v); v++) {
    float *x = a->loss.x, target[N], y[N], out[N];
    int64_t in_slot = (f + 1) % ACTIVATION_SLOTS;
    pd_await_activations_slot(f);
    if (HEAD) pd_validation_load(0, v, x);
    if (TAIL) pd_validation_load(1, v, target);
    pd_validation_receive(v, in_slot);
    forward(w, x, a->received[in_slot].x, TAIL ? out : a->sent[f % SENT_SLOTS].x, y);
    if (TAIL) pd_validation_loss(0, v, losses(y, target), N);
    pd_validation_send(v, f % SENT_SLOTS);
  }
}

static void update(int64_t t, int64_t f) {
  float scale = pd_gradient_scale(t);
  struct weights *to = &a->weights[(t + 1) % VERSIONS];
  pd_adamw(t, scale, &a->weights[t % VERSIONS], to, &a->accumulators[t % SETS], &a->moment1, &a->moment2);
  if (pd_updated(t)) validate(to, f);
}

static void run(int64_t first, int64_t K) {
  int64_t f = first, b = first, u = (first - 1) / M;
  while (b <= K) {
    if (f <= K) forward_of(f++);
    if (f <= K && f - b < IN_FLIGHT) continue;
    backward_of(b++);
    if (b - 1 - LAG > u * M && (b - 1 - LAG) % M == 0) update(u++, f);
    if ((b - 1) % M == 0) pd_exchange((b - 1) / M - 1);
  }
  while (u < K / M) update(u++, f);
}

int main(int argc, char **argv) {
  pd_start(&stage, argc, argv);
  a = (struct arena *)pd.arena;
  if (pd.emulate) pd_emulate(0.01);
  if (DELAY)
    run(pd.first_step * M + 1, pd.steps * M);
  else
    for (int64_t t = pd.first_step; t < pd.steps; t++) run(t * M + 1, (t + 1) * M);
  return pd_finish();
}
