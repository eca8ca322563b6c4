/* In place of convolution.cu on a machine without cuDNN (toolchain.py): what convolves is not started there, but
 * programs that do not need no more than to be linked. */
#include "internal.h"

[[noreturn]] static void refuse() { pd_fail("this program was built without cuDNN, and its model convolves"); }

struct pd_convolution *pd_convolution_new(struct pd_convolution_shape) {
  refuse();
}
size_t pd_convolution_scratch(const struct pd_convolution *) { refuse(); }
void pd_convolution(const struct pd_convolution *, pd_in, pd_in, pd_in, pd_out, void *) { refuse(); }
void pd_convolution_backward(const struct pd_convolution *, pd_in, pd_in, pd_out, void *) { refuse(); }
void pd_convolution_weights(const struct pd_convolution *, pd_in, pd_in, pd_out, void *) { refuse(); }
