/* NVIDIA's GPUs: CUDA, cuBLASLt, cuDNN, NCCL. */
#include "target/target.h"

extern const struct Device gpus;
extern const struct Lowering gpu_lowering;
extern const struct Dialect cuda_dialect;
extern const struct Toolchain cuda_toolchain;

const Backend backend_cuda = {
    .name = "cuda",
    .device = &gpus,
    .lowering = &gpu_lowering,
    .dialect = &cuda_dialect,
    .toolchain = &cuda_toolchain,
};
