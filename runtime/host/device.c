/* The device of the C target: this process's processors and memory. The arena is used in place. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "device.h"
#include "offload/spill.h"
#include "processor.h"
#include "shared.h"
#include "kernels/pd_bf16.h"

#include <errno.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void pd_device_prepare(void) { pd_limit_to_compiled(); }
bool pd_device_recording(void) { return false; }
void pd_device_use_rows(int64_t rows) { pd_rows_used = rows; }

/* ---- start ----------------------------------------------------------------------------------- */

/* flags: additional mmap flags. */
static char *map_bytes(size_t bytes, int flags) {
  enum { HUGE = 2 << 20 };
  size_t whole = bytes ? (bytes + HUGE - 1) / HUGE * HUGE : HUGE;
  char *p = mmap(NULL, whole + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (p == MAP_FAILED) return NULL;
  char *arena = p + (HUGE - (uintptr_t)p % HUGE) % HUGE;
  if (bytes >= 16 * (size_t)HUGE) madvise(arena, bytes / HUGE * HUGE, MADV_HUGEPAGE);
  return arena;
}

char *pd_map_arena(size_t bytes) { return map_bytes(bytes, 0); }

/* With offload, reserves addresses without committing memory. */
static bool map_arena(const struct pd_stage *s, char *why) {
  pd.arena = map_bytes(s->arena_bytes, s->spilled ? MAP_NORESERVE : 0);
  if (!pd.arena)
    return pd_refuse(why, "cannot get the %.1f MiB that the plan gives this stage: %s",
                     (double)s->arena_bytes / (1 << 20), strerror(errno));
  return true;
}

/* Touches the memory that passes would use. */
static void touch_arena(const struct pd_stage *s) {
  for (size_t i = 0; i < s->arena_bytes; i += 4096) *(volatile char *)(pd.arena + i) = 0;
}

/* Every rank may warn, because bindings differ by rank. */
static void warn_of_binding(int threads, int processors) {
  fprintf(
      stderr,
      "pd: warning: rank %d runs %d threads but is bound to %d processor%s. help: launch with mpirun --bind-to "
      "none, or --map-by slot:PE=%d\n",
      pd.rank, threads, processors, processors == 1 ? "" : "s", threads);
}

/* Scratch memory is planned for s->threads threads: at most as many may run. */
static void set_threads(const struct pd_stage *s) {
  int planned = s->threads > 0 ? s->threads : 1, threads = planned;
  const char *wish = getenv("OMP_NUM_THREADS");
  if (wish && atoi(wish) > 0) threads = atoi(wish);
  if (threads > planned) {
    pd_note("OMP_NUM_THREADS is %d, but the plan has scratch memory for %d threads: using %d. help: plan with pdc "
            "--threads %d",
            threads, planned, planned, threads);
    threads = planned;
  }
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) < threads)
    warn_of_binding(threads, CPU_COUNT(&set));
}

static bool has_bf16_instructions(void) {
#if defined __x86_64__
  return __builtin_cpu_supports("avx512bf16");
#else
  return true; /* not known */
#endif
}

static void note_slow_bf16(const struct pd_stage *s) {
  bool bf16 = false;
  for (int i = 0; i < s->n_parameters; i++) bf16 |= s->parameters[i].bf16;
  if (bf16 && !pd.rank && !has_bf16_instructions())
    pd_note(
        "this processor has no bf16 instructions: bf16 saves memory, but matrix products are slower than in f32");
}

bool pd_device_start(char *why) {
  if (pd_options.device >= 0)
    return pd_refuse(
        why,
        "--device %lld has no effect: this program runs on the CPU. help: build for GPUs with pdc --target cuda",
        (long long)pd_options.device);
  if (pd_options.graphs)
    return pd_refuse(
        why, "--graphs has no effect: this program runs on the CPU. help: build for GPUs with pdc --target cuda");
  set_threads(pd.stage);
  pd_scratch_planned = pd.stage->scratch_bytes;
  note_slow_bf16(pd.stage);
  bool mapped = map_arena(pd.stage, why), shared = pd_shared_start(mapped ? why : (char[PD_WHY]){""});
  if (mapped && pd_options.emulate && !pd.stage->spilled) touch_arena(pd.stage);
  return mapped && shared && pd_spill_start(why);
}

/* The process ends. */
void pd_device_finish(void) {
  pd_spill_place_finish();
  pd.arena = NULL;
}

const char *pd_device_name(void) { return NULL; }
const char *pd_device_library(void) { return pd_library_name(); }
int pd_device_threads(void) { return omp_get_max_threads(); }

int pd_host_threads(void) { return omp_get_max_threads(); }
const struct pd_binding *pd_device_binding(void) { return NULL; }
bool pd_device_profiled(void) { return false; }
void pd_device_range_begin(const char *name) { (void)name; }
void pd_device_range_end(void) {}
int pd_device_counts(struct pd_device_count to[PD_DEVICE_COUNTS]) { return (void)to, 0; }

/* ---- work is done when it is asked for -------------------------------------------------------- */

void pd_device_wait(const char *what) { (void)what; }

/* Buffer of floats for bf16 numbers. */
static struct {
  float *floats;
  int64_t n_floats;
} rounding;

static float *room_for(int64_t n) {
  if (n > rounding.n_floats) {
    free(rounding.floats);
    rounding.floats = pd_allocate(sizeof *rounding.floats * (size_t)n);
    rounding.n_floats = n;
  }
  return rounding.floats;
}

const float *pd_view(const void *at, int64_t n, bool bf16) {
  pd_spill_look(at, false);
  if (!bf16) return at;
  pd_read(room_for(n), (pd_in){at, PD_BF16}, 0, n);
  return rounding.floats;
}

float *pd_fill(void *at, int64_t n, bool bf16) {
  pd_spill_look(at, true);
  return bf16 ? room_for(n) : at;
}

void pd_filled(void *at, int64_t n, bool bf16) {
  pd_spill_look(at, true);
  if (!bf16) return;
  pd_write((pd_out){at, PD_BF16}, 0, rounding.floats, n);
  free(rounding.floats);
  rounding.floats = NULL;
  rounding.n_floats = 0;
}

void pd_round(void *to, const float *from, int64_t n, bool bf16) {
  pd_spill_look(from, false);
  pd_spill_look(to, true);
  pd_write((pd_out){to, bf16 ? PD_BF16 : PD_F32}, 0, from, n);
}

int pd_load_workers(void) { return omp_get_max_threads(); }

/* For bf16 inputs, each worker writes a sample as floats first. */
void pd_load_samples(int input, void *to, bool shared, pd_load_sample *load, const void *context) {
  static float *samples;
  static int64_t room; /* floats in them */
  const struct pd_input *in = &pd.stage->inputs[input];
  const int64_t n = in->elements, wanted = in->bf16 ? (shared ? pd_load_workers() : 1) * n : 0;
  if (wanted > room) {
    free(samples);
    samples = pd_allocate(sizeof *samples * (size_t)wanted);
    room = wanted;
  }
#pragma omp parallel for schedule(static) if (shared)
  for (int64_t i = 0; i < pd.stage->microbatch; i++) {
    const int worker = omp_get_thread_num();
    float *numbers = in->bf16 ? samples + worker * n : (float *)to + i * n;
    load(context, i, worker, numbers);
    if (in->bf16) pd_write((pd_out){to, PD_BF16}, i * n, numbers, n);
  }
}

const float *pd_fetch(const float *from, int64_t n) {
  (void)n;
  return from;
}

bool pd_fetched(const float *fetch) { return fetch != NULL; }
