/* The gradient scale of an update, bit-identical on host and device. */
#ifndef PD_CLIP_H
#define PD_CLIP_H

#include "kernels/pd_math.h"

/* The norm of the mean gradient, of gradients that are sums over `elements` loss elements. */
PD_MATH double pd_mean_norm(double sum_of_squares, double elements) { return sqrt(sum_of_squares) / elements; }

/* 1 / elements, clipped as by torch.nn.utils.clip_grad_norm_ unless clip_norm is 0. NaN for a non-finite norm. */
PD_MATH float pd_clipped_scale(double norm, double elements, double clip_norm) {
  double scale = 1 / elements, factor = clip_norm > 0 ? clip_norm / (norm + 1e-6) : 1;
  if (!isfinite(norm)) return (float)NAN;
  if (factor < 1) scale *= factor;
  return (float)scale;
}

#endif
