/* The optimizers' elementwise formulas, in PyTorch's order of operations, and their loop over all parameters
 * of a stage. No FMA is written here: compiled with -ffp-contract=off the bits depend on the inputs alone. */
#include "internal.h"
#include "kernels/pd_math.h"

#include <math.h>
#include <string.h>

/* ---- formulas -------------------------------------------------------------------------------- */

/* from and to are one array or two that do not overlap: every element is independent of the others. */
void pd_adamw_elements(int64_t n, struct pd_adamw_step s, const float *from, float *to, const float *gradient,
                       float *moment1, float *moment2) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float g = gradient[i] * s.scale;
    float w = from[i] * s.keep;
    float m = moment1[i] * s.beta1 + g * s.rest1;
    float v = moment2[i] * s.beta2 + s.rest2 * g * g;
    moment1[i] = m;
    moment2[i] = v;
    to[i] = w - s.step_size * m / (sqrtf(v) / s.root2 + s.eps);
  }
}

/* torch.optim.SGD with dampening 0: g += decay w; u = momentum u + g; w -= lr u. */
void pd_sgd_elements(int64_t n, struct pd_sgd_step s, const float *from, float *to, const float *gradient,
                     float *momentum) {
  if (!momentum) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = from[i] - s.lr * (gradient[i] * s.scale + s.decay * from[i]);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float u = s.momentum * momentum[i] + (gradient[i] * s.scale + s.decay * from[i]);
    momentum[i] = u;
    to[i] = from[i] - s.lr * u;
  }
}

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

void pd_optimizer_start(void) { pd_deal_chunks(); }

/* A parameter without a gradient keeps its value, as in PyTorch. */
static void keep(const struct pd_chunk *c, const float *from, float *to) {
  if (from != to) memcpy(to + c->first, from + c->first, (size_t)c->n * sizeof(float));
}

static void average(const struct pd_parameter *p, const struct pd_chunk *c, const float *shares, const float *from,
                    float *to) {
  float left = (float)pd_power(1 - (double)p->momentum, pd.stage->microbatches);
  for (int64_t i = c->first; i < c->first + c->n; i++) to[i] = left * from[i] + shares[i];
}

void pd_adamw(int64_t t, float scale, const void *from, void *to, void *gradient, void *moment1,
              void *moment2) {
  const struct pd_stage *s = pd.stage;
  struct pd_adamw_step step[2] = {pd_adamw_constants(s, t, scale, false),
                                  pd_adamw_constants(s, t, scale, true)};
#pragma omp parallel for schedule(static)
  for (int i = 0; i < pd_n_chunks; i++) {
    const struct pd_chunk *c = &pd_chunks[i];
    const struct pd_parameter *p = &s->parameters[c->parameter];
    const float *g = pd_gradient_at(p, t, gradient), *w = (const float *)((const char *)from + p->offset);
    float *u = (float *)((char *)to + p->offset), *m = (float *)((char *)moment1 + p->offset),
          *v = (float *)((char *)moment2 + p->offset);
    if (p->buffer)
      average(p, c, g, w, u);
    else if (g)
      pd_adamw_elements(c->n, step[p->decays], w + c->first, u + c->first, g + c->first, m + c->first,
                        v + c->first);
    else
      keep(c, w, u);
  }
}

void pd_sgd(int64_t t, float scale, const void *from, void *to, void *gradient, void *momentum) {
  const struct pd_stage *s = pd.stage;
  float lr = (float)pd_learning_rate(s, t);
#pragma omp parallel for schedule(static)
  for (int i = 0; i < pd_n_chunks; i++) {
    const struct pd_chunk *c = &pd_chunks[i];
    const struct pd_parameter *p = &s->parameters[c->parameter];
    const float *g = pd_gradient_at(p, t, gradient), *w = (const float *)((const char *)from + p->offset);
    float *u = (float *)((char *)to + p->offset);
    float *m = s->n_moments ? (float *)((char *)momentum + p->offset) + c->first : NULL;
    struct pd_sgd_step step = {scale, p->decays ? (float)s->weight_decay : 0, (float)s->momentum, lr};
    if (p->buffer)
      average(p, c, g, w, u);
    else if (g)
      pd_sgd_elements(c->n, step, w + c->first, u + c->first, g + c->first, m);
    else
      keep(c, w, u);
  }
}
