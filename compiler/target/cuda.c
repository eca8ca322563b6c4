/* NVIDIA's GPUs: CUDA, cuBLASLt, cuDNN, NCCL. */
#include "build/build.h"
#include "emit/print.h"
#include "lower/lower.h"
#include "plan/device.h"

const Backend backend_cuda = {
  .name = "cuda",
  .device = &gpus,
  .lowering = &gpu_lowering,
  .dialect = &cuda_dialect,
  .toolchain = &cuda_toolchain,
};
