/* cuDNN's convolutions on the host, of images and weights by channels. Its heuristics list first an algorithm that
 * takes too much workspace and for gradients one that is not deterministic, so that a caller must choose; it
 * refuses layouts that its tables do not list, a workspace that is too small, and fused multiply-adds of bfloat16.
 * Operands outside device memory end the program. With CUDNN_HOST_REFUSE=list no algorithm is offered, with
 * CUDNN_HOST_REFUSE=run those that are listed refuse to run, with CUDNN_HOST_REFUSE=first those without workspace.
 */
#include "host.h"

#include <cudnn.h>
#include <cuda_bf16.h>

#include <cstdlib>
#include <cstring>
#include <vector>

struct cudnnContext {
  cudaStream_t stream;
  bool has_stream;
};
struct Tensor {
  bool set;
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int n, c, h, w;
};
struct cudnnTensorStruct : Tensor {};
struct cudnnFilterStruct : Tensor {}; /* n: output channels */
struct cudnnConvolutionStruct {
  bool set;
  int padding[2], stride[2], dilation[2];
  cudnnMathType_t math;
};

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
  case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
  case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
  case CUDNN_STATUS_NOT_SUPPORTED_SHAPE: return "CUDNN_STATUS_NOT_SUPPORTED_SHAPE";
  }
  return "a status of no library";
}

/* ---- descriptions ------------------------------------------------------------------------------- */

template <class T> static cudnnStatus_t create(T **x) {
  *x = new T{};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) { return create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *handle = {stream, true};
  return CUDNN_STATUS_SUCCESS;
}

cudaStream_t cudnn_host_stream(cudnnHandle_t handle) {
  if (!handle->has_stream) cuda_host_die("cuDNN is used before it has been given a stream");
  return handle->stream;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *d) { return create(d); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *d) { return create(d); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *d) { return create(d); }

static cudnnStatus_t set(Tensor *d, const Tensor &to) {
  if (to.n < 1 || to.c < 1 || to.h < 1 || to.w < 1) return CUDNN_STATUS_BAD_PARAM;
  *d = to;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return set(d, {true, type, format, n, c, h, w});
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return set(d, {true, type, format, k, c, h, w});
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1)
    return CUDNN_STATUS_BAD_PARAM;
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) return CUDNN_STATUS_NOT_SUPPORTED;
  *d = {true, {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  d->math = math;
  return CUDNN_STATUS_SUCCESS;
}

/* ---- problems ----------------------------------------------------------------------------------- */

struct Problem {
  Tensor x, w, y;
  cudnnConvolutionStruct c;
};

static int results(const Problem &p, int axis) {
  int size = axis ? p.x.w : p.x.h, kernel = axis ? p.w.w : p.w.h;
  return (size + 2 * p.c.padding[axis] - p.c.dilation[axis] * (kernel - 1) - 1) / p.c.stride[axis] + 1;
}

static cudnnStatus_t judge(const Problem &p) {
  if (!p.x.set || !p.w.set || !p.y.set || !p.c.set) return CUDNN_STATUS_BAD_PARAM;
  if (p.w.c != p.x.c || p.w.n != p.y.c || p.x.n != p.y.n) return CUDNN_STATUS_BAD_PARAM;
  if (p.y.h != results(p, 0) || p.y.w != results(p, 1)) return CUDNN_STATUS_BAD_PARAM;
  for (const Tensor *t : {&p.x, &p.w, &p.y})
    if (t->type != p.x.type || t->format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_NOT_SUPPORTED;
  if (p.x.type == CUDNN_DATA_BFLOAT16 && p.c.math == CUDNN_FMA_MATH) return CUDNN_STATUS_NOT_SUPPORTED;
  return CUDNN_STATUS_SUCCESS;
}

static size_t elements(const Tensor &t) { return (size_t)t.n * (size_t)t.c * (size_t)t.h * (size_t)t.w; }

/* Of an algorithm's workspace: not a round number, so that one that is too small by little is too small. */
static size_t memory_of(const Problem &p) { return 4 * elements(p.w) + 12; }

static bool refuses(const char *when) {
  const char *refused = getenv("CUDNN_HOST_REFUSE");
  return refused && strcmp(refused, when) == 0;
}

/* In the order of the time that they are said to take. */
template <class Algorithm>
static cudnnStatus_t list(cudnnHandle_t handle, const Problem &p, Algorithm large, Algorithm odd, Algorithm good,
                          int most, int *n, cudnn_host_found<Algorithm> *found) {
  cudnnStatus_t status = judge(p);
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (refuses("list")) status = CUDNN_STATUS_NOT_SUPPORTED;
  cudnnDeterminism_t by_odd = odd == good ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
  const cudnn_host_found<Algorithm> all[] = {
      {large, status, 1, (size_t)1 << 40, CUDNN_DETERMINISTIC, p.c.math, {}},
      {odd, status, 2, 0, by_odd, p.c.math, {}},
      {good, status, 3, memory_of(p), CUDNN_DETERMINISTIC, p.c.math, {}},
  };
  *n = most < 3 ? most : 3;
  for (int i = 0; i < *n; i++) found[i] = all[i];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t y, int most, int *n,
                                                     cudnnConvolutionFwdAlgoPerf_t *found) {
  return list(handle, {*x, *w, *y, *c}, CUDNN_CONVOLUTION_FWD_ALGO_FFT,
              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
              most, n, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t c,
                                                          cudnnTensorDescriptor_t dx, int most, int *n,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *found) {
  return list(handle, {*dx, *w, *dy, *c}, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
              CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, most, n, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t c,
                                                            cudnnFilterDescriptor_t dw, int most, int *n,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *found) {
  return list(handle, {*x, *dw, *dy, *c}, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
              CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, most, n, found);
}

/* ---- convolutions ------------------------------------------------------------------------------- */

typedef std::vector<float> Floats;

static Floats read(const Tensor &t, const void *x) {
  Floats to(elements(t));
  for (size_t i = 0; i < to.size(); i++)
    to[i] = t.type == CUDNN_DATA_FLOAT ? ((const float *)x)[i] : (float)((const __nv_bfloat16 *)x)[i];
  return to;
}

static void write(const Tensor &t, const Floats &from, void *x) {
  for (size_t i = 0; i < from.size(); i++)
    if (t.type == CUDNN_DATA_FLOAT)
      ((float *)x)[i] = from[i];
    else
      ((__nv_bfloat16 *)x)[i] = __nv_bfloat16(from[i]);
}

/* f(pixel of y, pixel of x, tap) for all that meet, the last first. */
template <class F> static void for_taps(const Problem &p, F f) {
  int taps = p.w.h * p.w.w;
  for (int i = p.y.n * p.y.h * p.y.w; i-- > 0;)
    for (int k = taps; k-- > 0;) {
      int row = i / p.y.w % p.y.h * p.c.stride[0] - p.c.padding[0] + k / p.w.w * p.c.dilation[0];
      int column = i % p.y.w * p.c.stride[1] - p.c.padding[1] + k % p.w.w * p.c.dilation[1];
      if (row >= 0 && row < p.x.h && column >= 0 && column < p.x.w)
        f((size_t)i, (size_t)((i / (p.y.h * p.y.w) * p.x.h + row) * p.x.w + column), (size_t)k);
    }
}

static void forward(const Problem &p, const Floats &x, const Floats &w, Floats &y) {
  size_t in = (size_t)p.x.c, out = (size_t)p.y.c, taps = (size_t)(p.w.h * p.w.w);
  for_taps(p, [&](size_t to, size_t from, size_t k) {
    for (size_t o = 0; o < out; o++) {
      double sum = 0;
      for (size_t c = 0; c < in; c++) sum += (double)x[from * in + c] * w[(o * taps + k) * in + c];
      y[to * out + o] += (float)sum;
    }
  });
}

static void backward(const Problem &p, Floats &dx, const Floats &w, const Floats &dy) {
  size_t in = (size_t)p.x.c, out = (size_t)p.y.c, taps = (size_t)(p.w.h * p.w.w);
  for_taps(p, [&](size_t from, size_t to, size_t k) {
    for (size_t o = 0; o < out; o++)
      for (size_t c = 0; c < in; c++) dx[to * in + c] += dy[from * out + o] * w[(o * taps + k) * in + c];
  });
}

static void gradient(const Problem &p, const Floats &x, Floats &dw, const Floats &dy) {
  size_t in = (size_t)p.x.c, out = (size_t)p.y.c, taps = (size_t)(p.w.h * p.w.w);
  for_taps(p, [&](size_t i, size_t from, size_t k) {
    for (size_t o = 0; o < out; o++)
      for (size_t c = 0; c < in; c++) dw[(o * taps + k) * in + c] += dy[i * out + o] * x[from * in + c];
  });
}

/* Checks what all three have in common; then `work` runs in the stream, between reading and writing. */
struct Operand {
  const char *name;
  const Tensor &tensor;
  const void *at;
};

static cudnnStatus_t begin(cudnnHandle_t handle, const Problem &p, std::initializer_list<Operand> operands,
                           bool deterministic, const void *alpha, const void *beta, void *workspace,
                           size_t workspace_bytes) {
  cudnnStatus_t status = judge(p);
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  if (status != CUDNN_STATUS_SUCCESS) return status;
  cudnn_host_stream(handle);
  if (!deterministic) cuda_host_die("a convolution is made by an algorithm that is not deterministic");
  if (*(const float *)alpha != 1 || *(const float *)beta != 0)
    cuda_host_die("the stand-in for cuDNN neither scales nor adds");
  if (refuses("run") || (refuses("first") && !workspace_bytes)) return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
  for (const Operand &o : operands)
    cuda_host_must_be_device(o.at, elements(o.tensor) * (o.tensor.type == CUDNN_DATA_FLOAT ? 4 : 2), o.name);
  if (workspace_bytes) cuda_host_must_be_device(workspace, workspace_bytes, "cuDNN's workspace");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                      const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t workspace_bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_desc, void *y) {
  Problem p = {*x_desc, *w_desc, *y_desc, *c};
  bool known = algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnStatus_t status = begin(handle, p, {{"cuDNN's x", p.x, x}, {"cuDNN's w", p.w, w}, {"cuDNN's y", p.y, y}},
                               known, alpha, beta, workspace, workspace_bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  cuda_host_enqueue(handle->stream, {"cudnnConvolutionForward", [=] {
                                       Floats to(elements(p.y));
                                       if (workspace_bytes) cuda_host_poison(workspace, workspace_bytes);
                                       forward(p, read(p.x, x), read(p.w, w), to);
                                       write(p.y, to, y);
                                     }});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w_desc,
                                           const void *w, cudnnTensorDescriptor_t dy_desc, const void *dy,
                                           cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void *workspace, size_t workspace_bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx_desc, void *dx) {
  Problem p = {*dx_desc, *w_desc, *dy_desc, *c};
  bool known = algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  cudnnStatus_t status =
      begin(handle, p, {{"cuDNN's dx", p.x, dx}, {"cuDNN's w", p.w, w}, {"cuDNN's dy", p.y, dy}}, known, alpha,
            beta, workspace, workspace_bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (workspace_bytes < memory_of(p)) return CUDNN_STATUS_BAD_PARAM;
  cuda_host_enqueue(handle->stream, {"cudnnConvolutionBackwardData", [=] {
                                       Floats to(elements(p.x));
                                       cuda_host_poison(workspace, workspace_bytes);
                                       backward(p, to, read(p.w, w), read(p.y, dy));
                                       write(p.x, to, dx);
                                     }});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_desc, const void *x,
                                             cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t workspace_bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw_desc, void *dw) {
  Problem p = {*x_desc, *dw_desc, *dy_desc, *c};
  bool known = algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  cudnnStatus_t status =
      begin(handle, p, {{"cuDNN's x", p.x, x}, {"cuDNN's dw", p.w, dw}, {"cuDNN's dy", p.y, dy}}, known, alpha,
            beta, workspace, workspace_bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (workspace_bytes < memory_of(p)) return CUDNN_STATUS_BAD_PARAM;
  cuda_host_enqueue(handle->stream, {"cudnnConvolutionBackwardFilter", [=] {
                                       Floats to(elements(p.w));
                                       cuda_host_poison(workspace, workspace_bytes);
                                       gradient(p, read(p.x, x), to, read(p.y, dy));
                                       write(p.w, to, dw);
                                     }});
  return CUDNN_STATUS_SUCCESS;
}
