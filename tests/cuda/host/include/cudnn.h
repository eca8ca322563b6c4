/* Stands in for cuDNN's header of this name: handles, and graphs of operations
 * (cudnn_backend_host.h). */
#ifndef CUDA_HOST_CUDNN_H
#define CUDA_HOST_CUDNN_H

#include <cstddef>

#include <cuda_runtime.h>

#define CUDNN_MAJOR 9
#define CUDNN_VERSION 91900

typedef enum {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_NOT_SUPPORTED_SHAPE = 3002
} cudnnStatus_t;
#define CUDNN_STATUS_CATEGORY(status) ((status) / 1000 * 1000)
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_BFLOAT16 = 9, CUDNN_DATA_BOOLEAN = 11 } cudnnDataType_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;

typedef struct cudnnContext *cudnnHandle_t;

const char *cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);

#include "cudnn_backend_host.h"

#endif
