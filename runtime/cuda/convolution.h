/* Three implementations of convolutions, besides 1x1 kernels as matrix products: cuDNN (convolution.cu), columns
 * and a matrix product (columns.cu), and a direct kernel for depthwise convolutions (depthwise.cu). */
#ifndef PD_CUDA_CONVOLUTION_H
#define PD_CUDA_CONVOLUTION_H

#include "pd_elements.h"
#include "scratch.h"

/* A convolution's sizes for kernels, as int for fast division. */
struct Geometry {
  int in, out, own_in, own_out; /* channels; of one group */
  int height, width, out_height, out_width;
  int kernel[2], stride[2], padding[2], dilation[2];
  int64_t batch;
};
Geometry pd_geometry(const struct pd_convolution_shape &s); /* ends the launch if a size is too large */

/* The matrix products of columns. */
struct Columns {
  struct pd_matmul *product[2][2]; /* [the smaller last group of samples][accumulates] */
};
Columns pd_columns_new(const struct pd_convolution_shape &s);
void pd_columns_forward(const struct pd_convolution_shape &s, const Columns &c, pd_in x, pd_in w, pd_out y,
                        char *scratch);
void pd_columns_backward(const struct pd_convolution_shape &s, const Columns &c, pd_in dy, pd_in w, pd_out dx,
                         char *scratch);
void pd_columns_weights(const struct pd_convolution_shape &s, const Columns &c, pd_in x, pd_in dy, pd_out dw,
                        char *scratch);

void pd_depthwise_forward(const struct pd_convolution_shape &s, pd_in x, pd_in w, pd_in bias, pd_out y);
void pd_depthwise_backward(const struct pd_convolution_shape &s, pd_in dy, pd_in w, pd_out dx);
void pd_depthwise_weights(const struct pd_convolution_shape &s, pd_in x, pd_in dy, pd_out dw, char *scratch);

#endif
