/* The passes of chain.h on the host. */
#include "chain.h"

#include <string.h>

void chain_forward(const struct weights *w, const float *x, const float *in, float *product, float *out,
                   float *y) {
  for (int i = 0; i < N; i++) {
    int j = i % WIDTH;
    product[i] = HEAD ? x[i] * w->first[j] * w->shared[j] : in[i];
    out[i] = MIDDLE ? product[i] * w->middle[j] : product[i];
    if (TAIL) y[i] = out[i] * w->shared[j] + w->last[j];
  }
}

void chain_losses(const float *y, const float *target, float *losses) {
  for (int i = 0; i < N; i++) losses[i] = (y[i] - target[i]) * (y[i] - target[i]);
}

void chain_backward(const struct weights *w, struct chain_microbatch m, struct accumulators *part0,
                    struct accumulators *part1, struct accumulators *part2, float *g_out) {
  for (int i = 0; i < N; i++) {
    int j = i % WIDTH;
    float g = m.g[i];
    if (TAIL) {
      float dy = 2 * (m.y[i] - m.target[i]);
      part2->last[j] += dy;
      part2->shared_1[j] += dy * m.between[i];
      g = dy * w->shared[j];
    }
    if (MIDDLE) {
      part1->middle[j] += g * m.product[i];
      g *= w->middle[j];
    }
    if (!HEAD) g_out[i] = g;
    if (HEAD) {
      part0->first[j] += g * w->shared[j] * m.input[i];
      part0->shared_0[j] += g * (w->first[j] * m.input[i]);
    }
  }
}

void chain_copy(float *to, const float *from) { memcpy(to, from, N * sizeof *to); }
void chain_clear(struct accumulators *parts, int n) { memset(parts, 0, sizeof *parts * (size_t)n); }

void chain_add_parts(float *to, const float *parts, int w) {
  memcpy(to, parts, 16 * sizeof *to);
  for (int r = 1; r < w; r++)
    for (int i = 0; i < 16; i++) to[i] += parts[(size_t)r * sizeof(struct accumulators) / sizeof *parts + i];
}
