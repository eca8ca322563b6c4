/* NVIDIA's GPUs: CUDA, cuBLASLt, cuDNN, NCCL. */
#include "build/build.h"
#include "emit/print.h"
#include "lower/lower.h"

extern const Backend backend_cuda;
const Backend backend_cuda = {
  .name = "cuda",
  .lowering = &gpu_lowering,
  .dialect = &cuda_dialect,
  .toolchain = &cuda_toolchain,
};
