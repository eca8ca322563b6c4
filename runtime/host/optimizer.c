/* The optimizers' rules (optimizers/list.h) over arrays, and over all parameters of a stage. Compiled with
 * -ffp-contract=off the bits depend on the inputs alone. */
#include "internal.h"
#include "kernels/pd_bf16.h"
#include "kernels/pd_math.h"

#include <string.h>

/* ---- rules ----------------------------------------------------------------------------------- */

/* from and to are one array or two that do not overlap: every element is independent of the others. */
#define ELEMENTS(rule, optimizer, moments)                                                              \
  _Static_assert(moments <= PD_MAX_ELEMENT_MOMENTS, "the loop below has two");                          \
  void pd_##rule##_elements(int64_t n, const void *constants, const float *from, float *to,             \
                            const float *gradient, float *const *moment) {                              \
    const struct pd_##optimizer##_step step = *(const struct pd_##optimizer##_step *)constants;         \
    float *first = moments > 0 ? moment[0] : NULL, *second = moments > 1 ? moment[1] : NULL;            \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                               \
      float of_one[PD_MAX_ELEMENT_MOMENTS] = {moments > 0 ? first[i] : 0, moments > 1 ? second[i] : 0}; \
      to[i] = pd_##rule##_element(step, from[i], gradient[i], of_one);                                  \
      if (moments > 0) first[i] = of_one[0];                                                            \
      if (moments > 1) second[i] = of_one[1];                                                           \
    }                                                                                                   \
  }
PD_ELEMENT_RULES(ELEMENTS)

/* Element i goes to lane i % 16; lanes are added as a balanced tree, halves first. */
double pd_sum_of_squares(int64_t n, const float *x) {
  enum { LANES = 16 };
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j] * (double)x[i + j];
  for (int j = 0; i < n; i++, j++) lane[j] += (double)x[i] * (double)x[i];
  for (int half = LANES / 2; half; half /= 2)
    for (int j = 0; j < half; j++) lane[j] += lane[j + half];
  return lane[0];
}

/* ---- over a stage's parameters --------------------------------------------------------------- */

void pd_optimizer_start(void) {
  pd_deal_tiles();
  pd_start_rule();
}

/* A tile of an update: what is updated, which is the master where there are any, and the working copy beside it. */
struct run {
  const float *from;
  float *to;
  pd_out working; /* at NULL: `to` is it */
};

static struct run run_of(const struct pd_update_arrays *u, const struct pd_tile *c) {
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  float *to = (float *)((char *)u->to + p->offset);
  if (!pd.stage->has_masters)
    return (
        struct run){(const float *)((const char *)u->from + p->offset) + c->first, to + c->first, {NULL, PD_F32}};
  float *master = (float *)pd_state_at(pd.stage->masters, p) + c->first;
  return (struct run){master, master, pd_out_from((pd_out){to, p->bf16 ? PD_BF16 : PD_F32}, c->first)};
}

static void average(const struct pd_parameter *p, int64_t n, const float *shares, const struct run *r) {
  float left = (float)pd_power(1 - (double)p->momentum, pd.stage->microbatches);
  for (int64_t i = 0; i < n; i++) r->to[i] = left * r->from[i] + shares[i];
}

/* elements NULL: what has a gradient is updated already. A parameter without one keeps its value, as in PyTorch. */
static void update_tile(const struct pd_update_arrays *u, const struct pd_tile *c, pd_elements *elements) {
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  const float *g = pd_gradient_at(p, u->t, u->gradient);
  float *moment[PD_MAX_MOMENTS] = {NULL};
  struct run r = run_of(u, c);
  if (p->buffer)
    average(p, c->n, g + c->first, &r);
  else if (!g && r.from != r.to)
    memcpy(r.to, r.from, (size_t)c->n * sizeof(float));
  else if (g && elements) {
    for (int i = 0; i < pd.stage->n_moments; i++) moment[i] = pd_moment_at(p, i) + c->first;
    elements(c->n, u->step[pd_step_of(p)], r.from, r.to, g + c->first, moment);
  }
  if (r.working.at) pd_write(r.working, 0, r.to, c->n);
}

static void update_all(const struct pd_update_arrays *u, pd_elements *elements) {
#pragma omp parallel for schedule(static)
  for (int i = 0; i < pd_n_tiles; i++) update_tile(u, &pd_tiles[i], elements);
}

#define UPDATE(rule, optimizer, moments) \
  static void rule##_update(const struct pd_update_arrays *u) { update_all(u, pd_##rule##_elements); }
PD_ELEMENT_RULES(UPDATE)

static void after_tensors(const struct pd_update_arrays *u) { update_all(u, NULL); }

/* torch.optim.swa_utils.AveragedModel: the first update's weights, then a += (1 - ema) (w - a); buffers as they
 * are. */
static void average_tile(const struct pd_update_arrays *u, const struct pd_tile *c) {
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  float *a = pd_average_at(p) + c->first, rest = (float)(1 - pd.stage->ema);
  const float *w = run_of(u, c).to;
  for (int64_t i = 0; i < c->n; i++) a[i] = p->buffer || u->t == 0 ? w[i] : a[i] + rest * (w[i] - a[i]);
}

static void average_all(const struct pd_update_arrays *u) {
#pragma omp parallel for schedule(static)
  for (int i = 0; i < pd_n_tiles; i++) average_tile(u, &pd_tiles[i]);
}

#define ROW(rule, optimizer, moments) [PD_RULE_##rule] = rule##_update,
const struct pd_rules pd_rules = {.by_elements = {PD_ELEMENT_RULES(ROW)},
                                  .after_tensors = after_tensors,
                                  .average = average_all};
