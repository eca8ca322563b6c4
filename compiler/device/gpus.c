/* NVIDIA's GPUs: the kind of this machine, and rates for counted costs. */
#include <glob.h>
#include <limits.h>
#include <stdlib.h>

#include "device/device.h"

static Name model_of_machine(size_t *n) {
  glob_t found;
  Name model = NULL;
  *n = 0;
  if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0) {
    *n = found.gl_pathc;
    model = line_of(found.gl_pathv[0], "Model");
    globfree(&found);
  }
  return model;
}

static const DeviceKind *kind(const char *arch, bool *assumed) {
  size_t n;
  Name model = arch ? NULL : model_of_machine(&n);
  const DeviceKind *own = model ? kind_of_model(model) : NULL;
  *assumed = !arch && !own;
  return own ? own : kind_of_arch(arch ? (int)strtol(arch + 3, NULL, 10) : INT_MAX);
}

/* ---- rates of kernels ------------------------------------------------------------------------------- */

/* An NVIDIA H100 80GB HBM3 (SXM), fitted to the times in tests/gpu/measured/h100.tsv by tests/gpu/fit.py. The second
 * factor of `large` is the fit's share in products of a millisecond and more: these heat the GPU as a training does.
 * Factors of bf16 with odd rows are copied first (runtime/cuda/matmul.cu). */
static const char MEASURED[] = "h100_80gb";
static const TileRates measured[N_PRECISIONS] = {
    [PRECISION_F32] =
        {.large = 5.24e13, .medium = 0.825, .small = 0.703, .epilogue = 3.87e12, .start = 4.1e-6, .odd = 1},
    [PRECISION_TF32] = {.large = 3.89e14 * 0.97,
                        .medium = 0.895,
                        .small = 0.58,
                        .epilogue = 4.32e12,
                        .start = 4.0e-6,
                        .odd = 2.4},
    [PRECISION_BF16] =
        {.large = 8.23e14 * 0.93, .medium = 0.984, .small = 0.598, .epilogue = 3.91e12, .start = 2.5e-6, .odd = 0},
};

/* The same fit of PyTorch's attention in bf16, by backward, causal, and heads wider than 64. */
static const AttentionRate attention[2][2][2] = {
    {{{4.95e14, 175}, {7.03e14, 232}}, {{4.44e14, 454}, {6.51e14, 612}}},
    {{{4.00e14, 543}, {4.99e14, 588}}, {{3.62e14, 1108}, {4.91e14, 1326}}},
};
/* Rates of pdc's own kernels relative to it: 3.3 ms forward and 9.6 ms backward for the 12 layers of GPT-2 with 32
 * sequences (docs/results/gpu.md, Kernels), where PyTorch's take 2.01 and 7.06 ms. */
static const double OWN_ATTENTION[] = {0.61, 0.735};
/* They use mma.sync, which reaches 63 % of the peak on Hopper (Luo et al., "Benchmarking and Dissecting the Nvidia
 * Hopper GPU Architecture", 2024) and all of it before. */
static const double OF_MMA = 0.63;
/* Without bf16: shares of the rate of products in f32 (runtime/cuda/attention_f32.cu). */
static const double F32_ATTENTION[] = {0.6, 0.45 * 4 / 7};

static void set_attention(const DeviceKind *kind, double scale, Precision precision, Rates *r) {
  double earlier = kind->arch >= 90 ? 1 : 1 / OF_MMA;
  for (int backward = 0; backward < 2; backward++)
    for (int i = 0; i < 4; i++) {
      const AttentionRate *of = &attention[backward][i / 2][i % 2];
      AttentionRate *rate = &r->attention[backward][i / 2][i % 2];
      rate->longer = of->longer;
      rate->rate = of->rate * OWN_ATTENTION[backward] * scale * earlier;
      if (precision != PRECISION_BF16)
        *rate = (AttentionRate){F32_ATTENTION[backward] * kind->product[PRECISION_F32], i / 2 ? 64 : 0};
    }
}

/* Rates of other GPUs are the measured ones, scaled by the rates of large products and of memory. */
static void set_sizes(const DeviceKind *kind, Precision precision, Rates *r) {
  const DeviceKind *of = kind_find(MEASURED);
  double scale = kind->product[precision] / of->product[precision];
  r->multiprocessors = kind->multiprocessors ? kind->multiprocessors : of->multiprocessors;
  r->tiles = measured[precision];
  r->tiles.large *= scale;
  r->tiles.epilogue *= kind->stream / of->stream;
  set_attention(kind, scale, precision, r);
}

/* Between queued kernels a launch takes 2 us; NCCL's kernel starts in 10 us. `pointwise`, one operation per byte, only
 * divides a measured loop over its nodes. */
static Rates rates(const DeviceKind *kind, const Target *t) {
  Rates r = {.product = kind->product[t->precision],
             .pointwise = kind->stream,
             .inside = kind->inside,
             .copy = kind->stream,
             .stream = kind->stream,
             .call = 4e-6,
             .loop = 2e-6,
             .bandwidth = kind->link,
             .latency = 10e-6,
             .host = kind->host,
             .beside = true,
             .threads = 1};
  set_sizes(kind, t->precision, &r);
  return r;
}

/* The driver's name; "": no GPU. */
static Name machine(void) {
  size_t n;
  Name model = model_of_machine(&n);
  return n == 0 ? intern("") : internf("%s, %zu GPU%s", model ? model : "unknown", n, n == 1 ? "" : "s");
}

static Name library(void) { return intern(""); } /* the compiler's line has the versions of driver and toolkit */

static char *rank_text(const Target *t) { return format("a GPU a rank, %s", precision_name(t->precision)); }

const Device gpus = {.has_arch = true,
                     .precisions = (1u << N_PRECISIONS) - 1,
                     .kind = kind,
                     .rates = rates,
                     .page = 2 << 20, /* cuMemGetAllocationGranularity on all of them */
                     .machine = machine,
                     .library = library,
                     .kind_of_machine = kind_of_model,
                     .rank_text = rank_text};
