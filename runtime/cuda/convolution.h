/* Convolutions in three ways beside the product of a 1x1 kernel: by cuDNN (convolution.cu), by columns and a
 * matrix product (columns.cu), and, where every channel has kernels of its own, directly (depthwise.cu). */
#ifndef PD_CUDA_CONVOLUTION_H
#define PD_CUDA_CONVOLUTION_H

#include "pd_elements.h"
#include "scratch.h"

/* What kernels need of a convolution, in numbers that are quick to divide by. */
struct Geometry {
  int in, out, own_in, own_out; /* channels; of one group */
  int height, width, out_height, out_width;
  int kernel[2], stride[2], padding[2], dilation[2];
  int64_t batch;
};
Geometry pd_geometry(const struct pd_convolution_shape &s); /* fails where a size is too large */

/* The products that columns need. */
struct Columns {
  struct pd_matmul *product[2][2]; /* [a smaller number of samples, the last][adds] */
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
