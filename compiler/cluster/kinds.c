/* Known kinds of devices: a table of their data sheets. */
#include <string.h>

#include "cluster/internal.h"

/* Shares of data sheet figures that programs reach. Measured on an H100 (tests/gpu/measured/h100.tsv,
 * tests/gpu/fit.py): cuBLASLt products of 10^11 operations and more, by precision; streams. Other GPUs are
 * assumed to reach the same shares. Memory: the CUDA context, NCCL channels and library objects need 5 %. Messages
 * and copies from and to the host: three quarters of the rate per direction. */
static const double OF_PRODUCTS[N_PRECISIONS] = {
    [PRECISION_F32] = 0.74, [PRECISION_TF32] = 0.7, [PRECISION_BF16] = 0.74};
static const double OF_MEMORY_BANDWIDTH = 0.85, OF_MEMORY = 0.95, OF_NVLINK = 0.75, OF_PCIE = 0.75;

/* Attention is bound by one exponential per score beside its products: 16 per clock and multiprocessor (CUDA C++
 * Programming Guide, throughput of native arithmetic instructions). An exponential counts as 14 operations, and
 * three quarters of the rate are reached. */
static double exponentials(double multiprocessors, double hertz) {
  return 0.75 * 14 * 16 * multiprocessors * hertz;
}

/* Operations per streamed byte, if `inside` is unknown: the ratio of the GPUs below. */
static const double INSIDE_OF_STREAM = 14.5;

typedef struct Gpu {
  const char *word, *name;
  const char *model[2]; /* parts of the driver's name; NULL: none */
  int arch;
  double gigabytes;
  double f32, tf32, bf16;            /* TFLOP/s, dense; 0: unsupported */
  double memory_bandwidth, nvlink;   /* GB/s; NVLink: per direction */
  double pcie;                       /* GB/s per direction */
  double multiprocessors, megahertz; /* boost clock */
  double watts;                      /* most power */
} Gpu;

/* V100: NVIDIA Tesla V100 data sheet (SXM2): 15.7 TFLOP/s in f32, 900 GB/s, NVLink 300 GB/s in both directions.
 * Its tensor cores support only fp16, at 125 TFLOP/s.
 * A100: NVIDIA A100 data sheet (SXM): 19.5, 156, 312; 1555 and 2039 GB/s; NVLink 600 GB/s in both directions.
 * H100: NVIDIA H100 data sheet (SXM), half of its figures with sparsity: 67, 495, 989; 3.35 TB/s; NVLink 900 GB/s.
 * H200: NVIDIA H200 data sheet (SXM): as H100, 141 GB at 4.8 TB/s.
 * Power: 300, 400, 700 and 700 W in the same data sheets (SXM).
 * Multiprocessors and clocks: NVIDIA's white papers on the three architectures; H100's clock is that of its peak
 * rate of products. */
static const Gpu gpus[] = {
    {"v100_16gb", "V100 16 GB", {"V100-SXM2", "16GB"}, 70, 16, 15.7, 0, 0, 900, 150, 16, 80, 1530, 300},
    {"v100_32gb", "V100 32 GB", {"V100-SXM2", "32GB"}, 70, 32, 15.7, 0, 0, 900, 150, 16, 80, 1530, 300},
    {"a100_40gb", "A100 40 GB", {"A100-SXM4", "40GB"}, 80, 40, 19.5, 156, 312, 1555, 300, 32, 108, 1410, 400},
    {"a100_80gb", "A100 80 GB", {"A100-SXM4", "80GB"}, 80, 80, 19.5, 156, 312, 2039, 300, 32, 108, 1410, 400},
    {"h100_80gb", "H100 80 GB", {"H100 80GB", "HBM3"}, 90, 80, 67, 495, 989, 3350, 450, 64, 132, 1830, 700},
    {"h200_141gb", "H200 141 GB", {"NVIDIA H200", NULL}, 90, 141, 67, 495, 989, 4800, 450, 64, 132, 1830, 700},
};
enum { N_GPUS = sizeof gpus / sizeof *gpus };

/* One core of a server of the 2020s with 512-bit vectors, measured with hand-written kernels
 * (docs/results/cpu.md), and shared memory between processes. The machine sets the memory per core. */
static const char CORE[] = "core";
static DataSheet sheet_of_core(void) {
  return (DataSheet){.name = intern(CORE),
                     .backend = &backend_c,
                     .peak = {[PRECISION_F32] = 230e9, [PRECISION_BF16] = 500e9},
                     .share = {[PRECISION_F32] = 1, [PRECISION_BF16] = 1},
                     .memory_bandwidth = 25e9,
                     .stream_share = 1,
                     .inside = 60e9,
                     .link = 4e9};
}

DataSheet sheet_of_gpu(Name name) {
  DataSheet s = {.name = name, .backend = &backend_cuda, .stream_share = OF_MEMORY_BANDWIDTH};
  for (int p = 0; p < N_PRECISIONS; p++)
    s.share[p] = OF_PRODUCTS[p];
  return s;
}

static DataSheet sheet_of(const Gpu *gpu) {
  DataSheet s = sheet_of_gpu(intern(gpu->name));
  s.arch = gpu->arch;
  s.memory = gpu->gigabytes * 1e9;
  s.peak[PRECISION_F32] = gpu->f32 * 1e12;
  s.peak[PRECISION_TF32] = gpu->tf32 * 1e12;
  s.peak[PRECISION_BF16] = gpu->bf16 * 1e12;
  s.memory_bandwidth = gpu->memory_bandwidth * 1e9;
  s.inside = exponentials(gpu->multiprocessors, gpu->megahertz * 1e6);
  s.link = OF_NVLINK * gpu->nvlink * 1e9;
  s.host = OF_PCIE * gpu->pcie * 1e9;
  s.multiprocessors = (int)gpu->multiprocessors;
  s.watts = gpu->watts;
  return s;
}

DeviceKind kind_of_sheet(const DataSheet *s) {
  DeviceKind k = {.name = s->name,
                  .backend = s->backend,
                  .arch = s->arch,
                  .memory = (int64_t)(s->memory * OF_MEMORY),
                  .stream = s->memory_bandwidth * s->stream_share,
                  .link = s->link,
                  .host = s->host,
                  .multiprocessors = s->multiprocessors,
                  .price = s->price,
                  .watts = s->watts};
  for (int p = 0; p < N_PRECISIONS; p++)
    k.product[p] = s->peak[p] * s->share[p];
  k.inside = s->inside > 0 ? s->inside : INSIDE_OF_STREAM * k.stream;
  return k;
}

const DataSheet *sheet_find(const char *word) {
  DataSheet sheet = sheet_of_core();
  bool found = !strcmp(word, CORE);
  for (int i = 0; i < N_GPUS && !found; i++)
    if ((found = !strcmp(word, gpus[i].word)))
      sheet = sheet_of(&gpus[i]);
  return found ? alloc_copy(&sheet, sizeof sheet) : NULL;
}

const DeviceKind *kind_find(const char *word) {
  const DataSheet *sheet = sheet_find(word);
  if (!sheet)
    return NULL;
  DeviceKind kind = kind_of_sheet(sheet);
  return alloc_copy(&kind, sizeof kind);
}

const char *const *kind_words(int *n) {
  static const char *words[N_GPUS + 1];
  for (int i = 0; i < N_GPUS; i++)
    words[i] = gpus[i].word;
  words[N_GPUS] = CORE;
  *n = N_GPUS + 1;
  return words;
}

const DeviceKind *kind_of_arch(int arch) { return kind_find(arch < 90 ? "a100_80gb" : "h100_80gb"); }

const DeviceKind *kind_of_model(const char *model) {
  for (int i = 0; i < N_GPUS; i++) {
    const char *const *part = gpus[i].model;
    if (strstr(model, part[0]) && (!part[1] || strstr(model, part[1])))
      return kind_find(gpus[i].word);
  }
  return NULL;
}

DeviceKind cluster_least(const Cluster *c, int devices) {
  DeviceKind least = *cluster_kind(c, 0);
  for (int i = 1; i < devices; i++) {
    const DeviceKind *k = cluster_kind(c, i);
    if (!least.memory || (k->memory && k->memory < least.memory))
      least.memory = k->memory;
    least.stream = k->stream < least.stream ? k->stream : least.stream;
    least.inside = k->inside < least.inside ? k->inside : least.inside;
    for (int p = 0; p < N_PRECISIONS; p++)
      least.product[p] = k->product[p] < least.product[p] ? k->product[p] : least.product[p];
  }
  return least;
}

void cluster_verify(const Cluster *c) {
  ensure(c->n >= 1 && c->n <= MOST_LEVELS && c->n_kinds <= MOST_KINDS && (c->n_kinds >= 1 || !c->name));
  int64_t devices = 1;
  for (int i = 0; i < c->n; i++) {
    const ClusterLevel *l = &c->level[i];
    ensure(l->count >= 1 && l->count <= MOST_MACHINES && l->bandwidth > 0 && l->latency >= 0 &&
           l->device_bandwidth >= 0);
    devices *= l->count;
  }
  ensure(devices <= MOST_DEVICES);
  for (int i = 0; i < c->n_kinds; i++) {
    const DeviceKind *k = &c->kind[i];
    double most = 0;
    for (int p = 0; p < N_PRECISIONS; p++)
      most = k->product[p] > most ? k->product[p] : most;
    ensure(k->name && k->backend == c->kind[0].backend && k->memory >= 0);
    ensure(most > 0 && k->stream > 0 && k->inside > 0);
  }
  for (int i = 0; c->kind_of && i < devices; i++)
    ensure(c->kind_of[i] < c->n_kinds);
}

const Cluster *cluster_grouped(const Cluster *c, int n) {
  Cluster *groups = alloc_copy(c, sizeof *c);
  int devices = cluster_devices(c);
  if (c->level[0].count % n)
    return NULL;
  groups->level[0].count /= n;
  for (int i = 1; i < c->n; i++)
    groups->level[i].bandwidth /= n;
  for (int i = 0; i < c->n_kinds; i++)
    groups->kind[i].price *= n, groups->kind[i].watts *= n;
  if (!c->kind_of)
    return groups;
  uint8_t *kind_of = alloc((size_t)(devices / n));
  for (int i = 0; i < devices; i++) {
    kind_of[i / n] = c->kind_of[i / n * n];
    if (c->kind_of[i] != kind_of[i / n])
      return NULL;
  }
  groups->kind_of = kind_of;
  return groups;
}
