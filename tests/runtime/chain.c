/* A stage program written by hand, for tests of the runtime: y = (x * first * shared * middle) * shared + last,
 * loss (y - target)^2, elementwise over 8 numbers. With two stages the cut is before `middle`, with three also
 * behind it, so that `shared` is tied across stages. The build gives STAGES and STAGE; W0, W1, W2, the stages'
 * replicas (1, 1, 1); M, microbatches a batch; DELAY (0 flush, 1 2BW, 2 with M = 1 PipeDream with vertical sync
 * over three stages). One stage adds gradients up as stages of P0, P1, P2 replicas would: the reference. */
#include "chain.h"

#ifndef CLIP
#define CLIP 0.5
#endif
#define AT(member) offsetof(struct arena, member)
#if STAGE == 0 || STAGE == STAGES - 1
static const struct pd_use shared_uses[] = {
    {.stage = 0, .offset = HEAD ? offsetof(struct accumulators, shared_0) : AT(exchange[0].remote)},
    {.stage = STAGES - 1, .offset = TAIL ? offsetof(struct accumulators, shared_1) : AT(exchange[0].remote)}};
#endif
#define PARAMETER(n) \
  .name = #n, .dim = {WIDTH}, .rank = 1, .elements = WIDTH, .offset = offsetof(struct weights, n)
#define USE(s, n)                                              \
  (const struct pd_use[]) {                                    \
    { .stage = s, .offset = offsetof(struct accumulators, n) } \
  }
static const struct pd_parameter parameters[] = {
#if STAGE == 0
    {PARAMETER(first), .init = PD_NORMAL, .init_value = 0.5, .order = 0, .owner = 0, .n_uses = 1,
     .uses = USE(0, first)},
#endif
#if STAGE == 0 || STAGE == STAGES - 1
    {PARAMETER(shared), .init = PD_UNIFORM, .init_value = 1, .order = 1, .owner = 0, .n_uses = 2,
     .uses = shared_uses},
#endif
#if STAGES == 1 || STAGE == 1
    {PARAMETER(middle), .init = PD_CONSTANT, .init_value = 0.9, .order = 2, .owner = STAGE, .n_uses = 1,
     .uses = USE(STAGE, middle)},
#endif
#if STAGE == STAGES - 1
    {PARAMETER(last), .init = PD_ZEROS, .order = 3, .owner = STAGES - 1, .n_uses = 1, .uses = USE(STAGE, last)},
#endif
};
static const struct pd_input inputs[] = {
    {.name = "x", .dim = {WIDTH}, .rank = 1, .elements = WIDTH},
    {.name = "target", .target = true, .dim = {WIDTH}, .rank = 1, .elements = WIDTH}};
#define IN_FLIGHT_AT(member) .offset = AT(member), .stride = sizeof(struct slot), .slots = IN_FLIGHT, .elements = N
static const struct pd_tensor tensors[] = {{.name = "between", IN_FLIGHT_AT(between)},
                                           {.name = "y", IN_FLIGHT_AT(y)}};
#define VALUE(member) \
  { .offset = AT(member), .bytes = sizeof(struct slot) }
#define CHANNEL(there, value, count)                                                       \
  {                                                                                        \
    { .values = &value, .n_values = there, .slots = count, .stride = sizeof(struct slot) } \
  }
static const struct pd_channel_value received = VALUE(received), sent = VALUE(sent),
                                     gradient_in = VALUE(gradient_in), gradient_out = VALUE(gradient_out);
static const int replicas[] = {W0, W1, W2};
static const int64_t planned[] = {1, 2, 3, 4, 5, 6, 7, 8}; /* by rank */
static const struct pd_figure figures[] = {{.elements = WIDTH}};

static const struct pd_lr_cosine_arguments cosine = {.warmup = 3, .total = 40, .floor = 0.001};
static const struct pd_adamw_arguments adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
/* Of a Llama, though this model is none: what config.json says is compared with them (weights.sh). */
static const char *const traits[] = {"num_attention_heads", "8",    "head_dim",   "32",    "rms_norm_eps", "1e-05",
                                     "rotary_dim",          "32",   "rope_theta", "10000", "hidden_act",   "silu",
                                     "tie_word_embeddings", "false"};
static const struct pd_stage stage = {.model = "chain",
                                      .schedule = DELAY > 1 ? "pipedream"
                                                  : DELAY   ? "2bw"
                                                            : "flush",
                                      .plan_hash = PLAN,
                                      .stage = STAGE,
                                      .chunks = 1,
                                      .replicas = replicas,
                                      .n_stages = STAGES,
                                      .batch = B * M,
                                      .microbatch = B,
                                      .microbatches = M,
                                      .model_parameters = 4 * WIDTH,
                                      .n_model_parameters = 4,
                                      .traits = traits,
                                      .n_traits = sizeof traits / sizeof *traits / 2,
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
                                      .exchanged = AT(exchange),
                                      .exchanged_stride = sizeof(struct exchange),
                                      .exchange_sets = SETS,
                                      .reduced = AT(exchange[0].shards),
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
                                      .activations_in = CHANNEL(!HEAD, received, ACTIVATION_SLOTS),
                                      .activations_out = CHANNEL(!TAIL, sent, SENT_SLOTS),
                                      .gradients_in = CHANNEL(!TAIL, gradient_in, GRADIENT_SLOTS),
                                      .gradients_out = CHANNEL(!HEAD, gradient_out, GRADIENT_SLOTS),
                                      .n_losses = 1,
                                      .figures = figures,
                                      .n_figures = 1,
                                      .optimizer = &pd_adamw,
                                      .arguments = &adamw,
                                      .lr = 0.05,
                                      .clip_norm = CLIP,
                                      .lr_schedule = pd_lr_cosine,
                                      .lr_arguments = &cosine,
                                      .lr_total = 40};

static struct arena *a;

static const struct weights *weights_of(int64_t k) {
  int64_t v = (k - 1) / OWN - DELAY;
  return &a->weights[v > 0 ? v % VERSIONS : 0];
}

static void forward_of(int64_t k) {
  int64_t slot = k % IN_FLIGHT;
  if (HEAD) pd_load(0, k, a->input[slot].x);
  if (TAIL) pd_load(1, k, a->target[slot].x);
  pd_receive_activations(k);
  pd_await_activations_slot(k);
  float *out = a->between[slot].x;
  chain_forward(weights_of(k), a->input[slot].x, a->received[k % ACTIVATION_SLOTS].x, a->product[slot].x, out,
                a->y[slot].x);
  if (!TAIL) chain_copy(((struct slot *)pd_activations_slot(0, k))->x, out);
  if (TAIL) {
    chain_losses(a->y[slot].x, a->target[slot].x, a->loss.x);
    pd_figure(0, k, a->loss.x, N);
  }
  pd_send_activations(k);
}

/* Where microbatch k's gradients are added: that of a stage with w replicas. */
static struct accumulators *part(int64_t k, int w) { return &a->part[(k - 1) % w]; }

static void backward_of(int64_t k) {
  int64_t slot = k % IN_FLIGHT;
  const struct weights *w = weights_of(k);
  struct accumulators *to = &a->accumulators[(k - 1) / OWN % SETS];
  if ((k - 1) % OWN == 0) chain_clear(a->part, sizeof a->part / sizeof *a->part);
  pd_receive_gradients(k);
  pd_await_gradients_slot(k);
  pd_progress();
  struct chain_microbatch m = {a->input[slot].x,   a->target[slot].x, a->product[slot].x,
                               a->between[slot].x, a->y[slot].x,      a->gradient_in[k % GRADIENT_SLOTS].x};
  float *d_x = HEAD ? a->gradient_out[k % GRADIENT_SLOTS].x : ((struct slot *)pd_gradients_slot(0, k))->x;
  chain_backward(w, m, part(k, P0), part(k, P1), part(k, P2), d_x);
  pd_send_gradients(k);
  if (k % OWN) return;
  chain_add_parts(to->first, a->part[0].first, P0);
  chain_add_parts(to->shared_0, a->part[0].shared_0, P0);
  chain_add_parts(to->middle, a->part[0].middle, P1);
  chain_add_parts(to->shared_1, a->part[0].shared_1, P2);
  chain_add_parts(to->last, a->part[0].last, P2);
}

static void validate(const struct weights *w, int64_t f) {
  float *x = a->validated[0].x, *target = a->validated[1].x, *product = a->validated[2].x;
  float *out = a->validated[3].x, *y = a->validated[4].x;
  for (int64_t v = 1; pd_evaluation_next(v); v++) {
    int64_t in_slot = (f + 1) % ACTIVATION_SLOTS;
    pd_await_activations_slot(f);
    if (HEAD) pd_evaluation_load(0, v, x);
    if (TAIL) pd_evaluation_load(1, v, target);
    pd_evaluation_receive(v, in_slot);
    chain_forward(w, x, a->received[in_slot].x, product, TAIL ? out : a->sent[f % SENT_SLOTS].x, y);
    if (TAIL) {
      chain_losses(y, target, a->loss.x);
      pd_evaluation_figure(0, v, a->loss.x, N);
    }
    pd_evaluation_send(v, f % SENT_SLOTS);
  }
}

static void update(int64_t t, int64_t f) {
  float scale = pd_gradient_scale(t);
  struct weights *to = &a->weights[(t + 1) % VERSIONS];
  pd_update(t, scale, &a->weights[t % VERSIONS], to, &a->accumulators[t % SETS]);
  if (pd_updated(t)) validate(to, f);
}

static bool goes_on(int64_t f, int64_t K) { return DELAY ? pd_goes_on(f) : f <= K; }

static void run(int64_t first, int64_t K) {
  int64_t f = first, b = first, u = (first - 1) / OWN;
  while (b < f || goes_on(f, K)) {
    if (goes_on(f, K)) forward_of(f++);
    if (goes_on(f, K) && f - b < IN_FLIGHT) continue;
    backward_of(b++);
    if (b - 1 - LAG > u * OWN && (b - 1 - LAG) % OWN == 0) update(u++, f);
    if ((b - 1) % OWN == 0) pd_exchange((b - 1) / OWN - 1);
  }
  while (u < (DELAY ? pd.steps : K / OWN)) update(u++, f);
}

int main(int argc, char **argv) {
  pd_start(&stage, argc, argv);
  a = (struct arena *)pd.arena;
  if (pd.emulate) pd_emulate(0.01);
  if (DELAY)
    run(pd.first_step * OWN + 1, pd.steps * OWN);
  else
    for (int64_t t = pd.first_step; t < pd.steps; t++) run(t * OWN + 1, (t + 1) * OWN);
  return pd_finish();
}
