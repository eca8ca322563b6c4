/* What an update multiplies gradients by, computed by the host or by a device, to the same bit. */
#ifndef PD_CLIP_H
#define PD_CLIP_H

#include "kernels/pd_math.h"

/* The norm of gradients that are sums over so many elements of losses, once divided by these. */
PD_MATH double pd_mean_norm(double sum_of_squares, double elements) { return sqrt(sum_of_squares) / elements; }

/* That division, and torch.nn.utils.clip_grad_norm_ unless clip_norm is 0. Not finite where the norm is not. */
PD_MATH float pd_clipped_scale(double norm, double elements, double clip_norm) {
  double scale = 1 / elements, factor = clip_norm > 0 ? clip_norm / (norm + 1e-6) : 1;
  if (!isfinite(norm)) return (float)NAN;
  if (factor < 1) scale *= factor;
  return (float)scale;
}

#endif
