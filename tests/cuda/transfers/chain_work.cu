/* The passes of chain.h on a device: what the host's loops do in order one thread does in order, so that the
 * numbers have the same bits. */
#include "chain.h"

#include "pd_cuda.h"

static __global__ void forward(const weights *w, const float *x, const float *in, float *product, float *out,
                               float *y) {
  int i = (int)threadIdx.x, j = i % WIDTH;
  product[i] = HEAD ? x[i] * w->first[j] * w->shared[j] : in[i];
  out[i] = MIDDLE ? product[i] * w->middle[j] : product[i];
  if (TAIL) y[i] = out[i] * w->shared[j] + w->last[j];
}

static __global__ void squared_errors(const float *y, const float *target, float *losses) {
  int i = (int)threadIdx.x;
  losses[i] = (y[i] - target[i]) * (y[i] - target[i]);
}

static __global__ void backward(const weights *w, chain_microbatch m, accumulators *part0, accumulators *part1,
                                accumulators *part2, float *g_out) {
  int j = (int)threadIdx.x;
  for (int i = j; i < N; i += WIDTH) {
    float g = TAIL ? 0 : m.g[i];
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

static __global__ void copy(float *to, const float *from) { to[threadIdx.x] = from[threadIdx.x]; }

static __global__ void add_parts(float *to, const float *parts, int w) {
  float sum = parts[threadIdx.x];
  for (int r = 1; r < w; r++) sum += parts[(size_t)r * sizeof(accumulators) / sizeof *parts + threadIdx.x];
  to[threadIdx.x] = sum;
}

void chain_forward(const weights *w, const float *x, const float *in, float *product, float *out, float *y) {
  PD_LAUNCH(forward, 1, N, 0, pd_stream, w, x, in, product, out, y);
}

void chain_losses(const float *y, const float *target, float *losses) {
  PD_LAUNCH(squared_errors, 1, N, 0, pd_stream, y, target, losses);
}

void chain_backward(const weights *w, chain_microbatch m, accumulators *part0, accumulators *part1,
                    accumulators *part2, float *g_out) {
  PD_LAUNCH(backward, 1, WIDTH, 0, pd_stream, w, m, part0, part1, part2, g_out);
}

void chain_copy(float *to, const float *from) { PD_LAUNCH(copy, 1, N, 0, pd_stream, to, from); }

void chain_clear(accumulators *parts, int n) {
  pd_cuda_check(cudaMemsetAsync(parts, 0, sizeof *parts * (size_t)n, pd_stream), "clear gradients");
}

void chain_add_parts(float *to, const float *parts, int w) {
  PD_LAUNCH(add_parts, 1, 16, 0, pd_stream, to, parts, w);
}
