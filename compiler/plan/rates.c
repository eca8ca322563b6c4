/* What machines do in a second, for counting costs where nothing was measured. Only the ratios within a row
 * matter for where cuts fall; the whole for what is predicted. */
#include <stdlib.h>

#include "plan/planner.h"

/* One core of a server of the 2020s with 512-bit vectors, measured by hand-written kernels (docs/performance.md),
 * and shared memory between processes. */
static const Rates core = {
    .product = 230e9,  /* oneDNN f32 */
    .pointwise = 60e9,
    .inside = 60e9,
    .copy = 10e9,
    .stream = 25e9,
    .call = 2e-6,
    .loop = 0.3e-6,
    .bandwidth = 4e9,
    .latency = 10e-6,
};

/* GPUs. Products: three quarters of the data sheet's dense peak (NVIDIA A100 80 GB and H100 SXM data sheets:
 * bf16 312 and 989, tf32 156 and 495, f32 19.5 and 67 TFLOP/s), which large cuBLASLt products reach; f32 nine
 * tenths. Streams: 85 % of 2.04 and 3.35 TB/s. A fused loop does about one operation for a byte that it moves.
 * Inside attention an exponential a score is what takes time beside the products: 16 a clock and multiprocessor
 * (CUDA C++ Programming Guide, throughput of native arithmetic instructions), counted as 14 operations. A launch
 * that the stream is ahead of takes 2 us between kernels. Messages: three quarters of NVLink's 300 and 450 GB/s
 * in a direction; NCCL's own kernel starts in 10 us. */
typedef struct Gpu {
  Rates rates;
  double f32, tf32, bf16; /* rates of products */
} Gpu;

static const Gpu a100 = {
    .rates = {.pointwise = 1.7e12, .inside = 25e12, .copy = 1.7e12, .stream = 1.7e12, .call = 4e-6, .loop = 2e-6,
              .bandwidth = 225e9, .latency = 10e-6, .beside = true},
    .f32 = 17.5e12, .tf32 = 117e12, .bf16 = 234e12,
};
static const Gpu h100 = {
    .rates = {.pointwise = 2.8e12, .inside = 40e12, .copy = 2.8e12, .stream = 2.8e12, .call = 4e-6, .loop = 2e-6,
              .bandwidth = 340e9, .latency = 10e-6, .beside = true},
    .f32 = 60e12, .tf32 = 370e12, .bf16 = 740e12,
};

Rates rates_of_core(int threads) {
  Rates r = core;
  r.threads = threads;
  return r;
}

Rates rates_of_gpu(const char *arch, Precision precision) {
  const Gpu *gpu = arch && strtol(arch + 3, NULL, 10) < 90 ? &a100 : &h100;
  Rates r = gpu->rates;
  r.threads = 1;
  r.product = precision == PRECISION_BF16 ? gpu->bf16 : precision == PRECISION_TF32 ? gpu->tf32 : gpu->f32;
  return r;
}
