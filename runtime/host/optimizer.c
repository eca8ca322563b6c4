/* Updates all parameters of a stage by this process's threads, one tile per thread (elements.c). */
#include "update/update.h"
#include "watch/watch.h"

#include <omp.h>

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

static struct pd_updated run_of(const struct pd_update_arrays *u, const struct pd_tile *c, bool by_elements) {
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  const float *gradient = pd_gradient_at(p, u->t, u->gradient);
  char *to = (char *)u->to + p->offset;
  struct pd_updated r = {.gradient = gradient ? gradient + c->first : NULL, .bf16 = p->bf16};
  if (pd.stage->has_masters) {
    r.from = r.to = (float *)pd_state_at(pd.stage->masters, p) + c->first;
    r.working = to + c->first * (p->bf16 ? 2 : 4);
  } else {
    r.from = (const float *)((const char *)u->from + p->offset) + c->first;
    r.to = (float *)to + c->first;
  }
  by_elements = by_elements && p->n_uses && pd_is_trained(p);
  if (by_elements && u->before) {
    const int64_t first = p->offset + c->first * (p->bf16 ? 2 : 4);
    r.change = (struct pd_change){(const char *)u->from + first, (const char *)u->before + first, p->bf16};
  }
  for (int i = 0; i < pd.stage->n_moments && by_elements; i++) r.moment[i] = pd_moment_at(p, i) + c->first;
  return r;
}

/* The work on a tile. */
struct tile_update {
  const struct pd_update_arrays *u;
  const struct pd_tile *tile;
  pd_elements *elements; /* NULL: parameters with a gradient are updated already */
};

static void update_tile(const void *of) {
  const struct tile_update *x = of;
  const struct pd_parameter *p = &pd.stage->parameters[x->tile->parameter];
  const struct pd_updated r = run_of(x->u, x->tile, x->elements);
  pd_update_some(p, x->tile->n, &r, x->elements, x->u->step[pd_step_of(p)]);
}

static void update_tile_twice(const struct tile_update *x, char *copy) {
  const struct pd_tile *c = x->tile;
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  const size_t bytes = (size_t)c->n * sizeof(float);
  const struct pd_updated r = run_of(x->u, c, x->elements);
  struct pd_written w[2 + PD_MAX_MOMENTS] = {
      {r.working ? PD_ARRAY_MASTERS : PD_ARRAY_WEIGHTS, r.to, bytes, false}};
  int n = 1;
  for (int i = 0; i < pd.stage->n_moments && x->elements && p->n_uses && !p->buffer; i++)
    w[n++] = (struct pd_written){PD_ARRAY_MOMENTS + i, pd_moment_at(p, i) + c->first, bytes, false};
  if (r.working) w[n++] = (struct pd_written){PD_ARRAY_WEIGHTS, r.working, r.bf16 ? bytes / 2 : bytes, r.bf16};
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

static void average_tile(const void *of) {
  const struct tile_update *x = of;
  const struct pd_tile *c = x->tile;
  const struct pd_parameter *p = &pd.stage->parameters[c->parameter];
  pd_average_some(p, c->n, x->u->t, run_of(x->u, c, false).to, pd_average_at(p) + c->first);
}

static void average_all(const struct pd_update_arrays *u) {
  const int first = pd_first_tile(u->first), end = pd_first_tile(u->end);
  char *copy = pd_twice_copy(u->t);
#pragma omp parallel for schedule(static)
  for (int i = first; i < end; i++) {
    const struct pd_tile *c = &pd_tiles[i];
    struct tile_update x = {u, c, NULL};
    struct pd_written w = {PD_ARRAY_AVERAGES, pd_average_at(&pd.stage->parameters[c->parameter]) + c->first,
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
