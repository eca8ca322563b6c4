/* The optimizers' rules (optimizers/list.h) over arrays, and over all parameters of a stage. Compiled with
 * -ffp-contract=off the bits depend on the inputs alone. */
#include "internal.h"
#include "kernels/pd_bf16.h"
#include "kernels/pd_math.h"

#include <omp.h>
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

/* What is done with a tile. */
struct tile_update {
  const struct pd_update_arrays *u;
  const struct pd_tile *tile;
  pd_elements *elements; /* NULL: what has a gradient is updated already */
};

/* A parameter without a gradient keeps its value, as in PyTorch. */
static void update_tile(const void *of) {
  const struct tile_update *x = of;
  const struct pd_update_arrays *u = x->u;
  const struct pd_tile *c = x->tile;
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  const float *g = pd_gradient_at(p, u->t, u->gradient);
  float *moment[PD_MAX_MOMENTS] = {NULL};
  struct run r = run_of(u, c);
  if (p->buffer)
    average(p, c->n, g + c->first, &r);
  else if (!g && r.from != r.to)
    memcpy(r.to, r.from, (size_t)c->n * sizeof(float));
  else if (g && x->elements) {
    for (int i = 0; i < pd.stage->n_moments; i++) moment[i] = pd_moment_at(p, i) + c->first;
    x->elements(c->n, u->step[pd_step_of(p)], r.from, r.to, g + c->first, moment);
  }
  if (r.working.at) pd_write(r.working, 0, r.to, c->n);
}

static void update_tile_twice(const struct tile_update *x, char *copy) {
  const struct pd_tile *c = x->tile;
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  const size_t bytes = (size_t)c->n * sizeof(float);
  struct run r = run_of(x->u, c);
  struct pd_written w[2 + PD_MAX_MOMENTS] = {{r.working.at ? "masters" : "weights", r.to, bytes, false}};
  int n = 1;
  for (int i = 0; i < pd.stage->n_moments && x->elements && p->n_uses && !p->buffer; i++)
    w[n++] = (struct pd_written){pd_moments_name(i), pd_moment_at(p, i) + c->first, bytes, false};
  bool bf16 = r.working.type == PD_BF16;
  if (r.working.at) w[n++] = (struct pd_written){"weights", r.working.at, bf16 ? bytes / 2 : bytes, bf16};
  pd_update_twice(update_tile, x, w, n, copy, c->parameter, c->first);
}

static char *copy_of_thread(char *copy) {
  return copy + (size_t)omp_get_thread_num() * pd_update_tile_copy_bytes();
}

void pd_update_tiles(const struct pd_update_arrays *u, pd_elements *elements, char *copy) {
  const int first = pd_first_tile(u->first), end = pd_first_tile(u->end);
#pragma omp parallel for schedule(static)
  for (int i = first; i < end; i++) {
    struct tile_update x = {u, &pd_tiles[i], elements};
    if (copy)
      update_tile_twice(&x, copy_of_thread(copy));
    else
      update_tile(&x);
  }
}

static void update_all(const struct pd_update_arrays *u, pd_elements *elements) {
  pd_update_tiles(u, elements, pd_twice_copy(u->t));
  pd_check_agreement(u->t);
}

#define UPDATE(rule, optimizer, moments) \
  static void rule##_update(const struct pd_update_arrays *u) { update_all(u, pd_##rule##_elements); }
PD_ELEMENT_RULES(UPDATE)

static void after_tensors(const struct pd_update_arrays *u) { update_all(u, NULL); }

/* ---- averages ---------------------------------------------------------------------------------- */

/* torch.optim.swa_utils.AveragedModel: the first update's weights, then a += (1 - ema) (w - a); buffers as they
 * are. */
static void average_tile(const void *of) {
  const struct tile_update *x = of;
  const struct pd_tile *c = x->tile;
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  float *a = pd_average_at(p) + c->first, rest = (float)(1 - pd.stage->ema);
  const float *w = run_of(x->u, c).to;
  for (int64_t i = 0; i < c->n; i++) a[i] = p->buffer || x->u->t == 0 ? w[i] : a[i] + rest * (w[i] - a[i]);
}

static void average_all(const struct pd_update_arrays *u) {
  const int first = pd_first_tile(u->first), end = pd_first_tile(u->end);
  char *copy = pd_twice_copy(u->t);
#pragma omp parallel for schedule(static)
  for (int i = first; i < end; i++) {
    const struct pd_tile *c = &pd_tiles[i];
    struct tile_update x = {u, c, NULL};
    struct pd_written w = {"averages", pd_average_at(&pd.stage->parameters[c->parameter]) + c->first,
                           (size_t)c->n * sizeof(float), false};
    if (copy)
      pd_update_twice(average_tile, &x, &w, 1, copy_of_thread(copy), c->parameter, c->first);
    else
      average_tile(&x);
  }
  pd_check_agreement(u->t);
}

#define ROW(rule, optimizer, moments) [PD_RULE_##rule] = rule##_update,
const struct pd_rules pd_rules = {.by_elements = {PD_ELEMENT_RULES(ROW)},
                                  .after_tensors = after_tensors,
                                  .average = average_all,
                                  .tensor = pd_update_by_tensors,
                                  .next_group = pd_next_updated};
