/* The interface of kernels/winograd.c for kernels/convolution.c: convolutions of 3x3 kernels, stride 1, in floats,
 * with fewer multiplications. */
#ifndef PD_WINOGRAD_H
#define PD_WINOGRAD_H

#include "pd_kernels.h"

/* Fraction of the multiplications of plain convolution: 4x4 points instead of 2x2 results of 3x3 each. */
#define PD_WINOGRAD_SHARE (16.0 / 36)

struct pd_winograd;
/* True if fewer multiplications are faster, by shape alone. */
bool pd_winograd_suits(const struct pd_convolution_shape *s);
struct pd_winograd *pd_winograd_new(const struct pd_convolution_shape *s);
size_t pd_winograd_scratch(const struct pd_winograd *w); /* bytes; for any number of threads */
/* x is the image that the kernels see: a pass forward's x, a pass backward's dy. y is the result. bias may be
 * NULL. scratch is aligned to 64 bytes. */
void pd_winograd_images(const struct pd_winograd *w, const float *x, const float *weights, const float *bias,
                        float *y, void *scratch);
/* The gradient of the weights, stored or added to dw, as the shape says. */
void pd_winograd_weights(const struct pd_winograd *w, const float *x, const float *dy, float *dw, void *scratch);

#endif
