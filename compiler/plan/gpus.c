/* NVIDIA's GPUs: what they do in a second, for counting costs where nothing was measured. */
#include <glob.h>
#include <stdlib.h>

#include "plan/device.h"

/* Products: three quarters of the data sheet's dense peak (NVIDIA A100 80 GB and H100 SXM data sheets:
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
    .rates = {.pointwise = 1.7e12,
              .inside = 25e12,
              .copy = 1.7e12,
              .stream = 1.7e12,
              .call = 4e-6,
              .loop = 2e-6,
              .bandwidth = 225e9,
              .latency = 10e-6,
              .beside = true},
    .f32 = 17.5e12,
    .tf32 = 117e12,
    .bf16 = 234e12,
};
static const Gpu h100 = {
    .rates = {.pointwise = 2.8e12,
              .inside = 40e12,
              .copy = 2.8e12,
              .stream = 2.8e12,
              .call = 4e-6,
              .loop = 2e-6,
              .bandwidth = 340e9,
              .latency = 10e-6,
              .beside = true},
    .f32 = 60e12,
    .tf32 = 370e12,
    .bf16 = 740e12,
};

static Rates rates(const char *arch, const Target *t) {
  const Gpu *gpu = arch && strtol(arch + 3, NULL, 10) < 90 ? &a100 : &h100;
  const double product[N_PRECISIONS] = {gpu->f32, gpu->tf32, gpu->bf16};
  Rates r = gpu->rates;
  r.threads = 1;
  r.product = product[t->precision];
  return r;
}

/* Of 80 GB all but what CUDA's context, NCCL's channels and the libraries' own objects need. `--memory` of a GPU is
 * what is left beside these: nothing more is taken off (Device.process). */
static int64_t memory(int ranks) {
  static const int64_t gpu = 80000000000, reserved = 4000000000;
  (void)ranks;
  return gpu - reserved;
}

/* As the driver names them. */
static Name machine(void) {
  glob_t found;
  Name model = NULL;
  size_t n = 0;
  if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0) {
    n = found.gl_pathc;
    model = line_of(found.gl_pathv[0], "Model");
    globfree(&found);
  }
  return internf("%s, %zu GPU%s", model ? model : "unknown", n, n == 1 ? "" : "s");
}

static Name library(void) { return intern(""); } /* the driver's and the toolkit's versions are the compiler's */

static char *rank_text(const Target *t) { return format("a GPU a rank, %s", precision_name(t->precision)); }

const Device gpus = {.has_arch = true,
                     .precisions = (1u << N_PRECISIONS) - 1,
                     .rates = rates,
                     .memory = memory,
                     .machine = machine,
                     .library = library,
                     .rank_text = rank_text};
