/* What stands in for cuDNN's descriptors, and the operations of graphs that are read from them: cudnn_backend.cpp has those
 * of all kinds but convolutions, which cudnn_convolution.cpp reads, judges and computes. */
#ifndef CUDA_HOST_CUDNN_DESCRIPTORS_H
#define CUDA_HOST_CUDNN_DESCRIPTORS_H

#include "host.h"

#include <cuda_bf16.h>
#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

/* Returns the status; the words are kept for cudnnGetLastErrorString. */
cudnnStatus_t cudnn_host_refuse(cudnnStatus_t status, const std::string &why);
inline cudnnStatus_t bad(const std::string &why) { return cudnn_host_refuse(CUDNN_STATUS_BAD_PARAM, why); }
inline cudnnStatus_t not_supported(const std::string &why) {
  return cudnn_host_refuse(CUDNN_STATUS_NOT_SUPPORTED, why);
}

/* ---- descriptors ---------------------------------------------------------------------------------- */

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t n;
  std::vector<char> bytes;
};

struct Backend {
  cudnnBackendDescriptorType_t type;
  bool finished;
  std::map<int, Attribute> has;
};

inline Backend *backend(cudnnBackendDescriptor_t d) { return static_cast<Backend *>(d); }

inline size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_CHAR:
  case CUDNN_TYPE_BOOLEAN: return 1;
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
  default: return 4;
  }
}

/* An attribute's values; none: it was not given. */
template <class T> std::vector<T> values(const Backend *d, cudnnBackendAttributeName_t name) {
  auto at = d->has.find(name);
  if (at == d->has.end()) return {};
  std::vector<T> all(static_cast<size_t>(at->second.n));
  if (bytes_of(at->second.type) != sizeof(T)) cuda_host_die("attribute %d of cuDNN's has another type", name);
  memcpy(all.data(), at->second.bytes.data(), at->second.bytes.size());
  return all;
}
template <class T> T value(const Backend *d, cudnnBackendAttributeName_t name, T otherwise) {
  std::vector<T> all = values<T>(d, name);
  return all.empty() ? otherwise : all[0];
}
inline const Backend *part(const Backend *d, cudnnBackendAttributeName_t name) {
  return backend(value<cudnnBackendDescriptor_t>(d, name, nullptr));
}
template <class T>
inline void put(Backend *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T x) {
  const char *bytes = reinterpret_cast<const char *>(&x);
  d->has[name] = {type, 1, {bytes, bytes + sizeof x}};
}

/* ---- tensors and operations ----------------------------------------------------------------------- */

struct Tensor {
  int64_t number, dim[4], stride[4];
  cudnnDataType_t type;
  bool is_virtual, by_value;
};

inline Tensor tensor_of(const Backend *d) {
  Tensor t = {};
  std::vector<int64_t> dim = values<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
                       stride = values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
  std::copy(dim.begin(), dim.end(), t.dim);
  std::copy(stride.begin(), stride.end(), t.stride);
  t.number = value<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  t.type = value<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  t.is_virtual = value<char>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
  t.by_value = value<char>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
  return t;
}

typedef std::vector<float> Floats;

inline int64_t elements(const Tensor &t) { return t.dim[0] * t.dim[1] * t.dim[2] * t.dim[3]; }
inline int64_t reach(const Tensor &t) { /* elements from the first to behind the last */
  int64_t n = 1;
  for (int i = 0; i < 4; i++) n += (t.dim[i] - 1) * t.stride[i];
  return n;
}

/* f(the element's number, its place in memory, its indices). */
template <class F> void each(const Tensor &t, F f) {
  int64_t i[4], n = 0;
  for (i[0] = 0; i[0] < t.dim[0]; i[0]++)
    for (i[1] = 0; i[1] < t.dim[1]; i[1]++)
      for (i[2] = 0; i[2] < t.dim[2]; i[2]++)
        for (i[3] = 0; i[3] < t.dim[3]; i[3]++, n++)
          f(static_cast<size_t>(n),
            i[0] * t.stride[0] + i[1] * t.stride[1] + i[2] * t.stride[2] + i[3] * t.stride[3], i);
}

inline float rounded(const Tensor &t, float x) {
  return t.type == CUDNN_DATA_BFLOAT16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

struct Images { /* or weights: n output channels, c of the input's */
  int n, c, h, w;
};
struct Convolution {
  cudnnBackendDescriptorType_t kind; /* the operation's */
  Images x, w, y;
  int padding[2], stride[2], dilation[2];
};

struct Operation {
  cudnnBackendDescriptorType_t type;
  int mode, axis;
  std::vector<Tensor> in; /* of a choice: what is chosen, the other, where */
  Tensor to;
  Convolution convolution = {};
};

inline bool is_convolution(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

void cudnn_host_read_convolution(const Backend *d, Operation *o);
/* Of the convolution alone; of an operation with its tensors. */
cudnnStatus_t cudnn_host_judge_convolution(const Backend *d);
cudnnStatus_t cudnn_host_judge_convolution(const Backend *d, const Operation &o);
/* Of x and w, dy and w, or x and dy, dense as they are numbered; with factors that are rounded to TF32, if they are. */
void cudnn_host_convolve(const Operation &o, const Floats &a, const Floats &b, bool rounds, Floats &to);

#endif
