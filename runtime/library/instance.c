/* An instance: its block of memory, the objects of its kernels, one microbatch. The block holds the emitted struct, the
 * arena, of a generator lists of tokens, and room for a sample in floats. */
#define PD_KERNELS
#include "library/library.h"
#include "tokens/tokenizer.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures -------------------------------------------------------------------------------------------- */

/* The place to which pd_fail returns. Kernels call it while this thread makes their objects or starts to run them. */
static __thread struct failing {
  jmp_buf place;
  char *why;
} * failing;

void pd_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(failing->why, PD_WHY, format, args);
  va_end(args);
  longjmp(failing->place, 1);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

enum { LINE = 64 };

static size_t rounded(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* Of a list of the tokens of a sequence. */
static size_t held_bytes(const struct pd_model *m) {
  return m->generation ? rounded((size_t)m->generation->context * sizeof(int32_t)) : 0;
}

static size_t order_bytes(const struct pd_model *m) {
  return m->generation ? rounded((size_t)m->generation->classes * sizeof(int32_t)) : 0;
}

static size_t source_bytes(const struct pd_model *m) {
  const bool reads = m->generation && m->generation->encoder;
  return reads ? rounded((size_t)m->inputs[m->generation->source].elements * sizeof(int32_t)) : 0;
}

/* Samples are floats before they are rounded. */
static size_t sample_bytes(const struct pd_model *m) {
  int64_t most = 0;
  for (int i = 0; i < m->n_inputs; i++)
    if (m->inputs[i].bf16 && m->inputs[i].elements > most) most = m->inputs[i].elements;
  return rounded((size_t)most * sizeof(float));
}

size_t pd_instance_bytes(const struct pd_model *m) {
  return rounded(m->instance_bytes) + rounded(m->arena_bytes) + 2 * held_bytes(m) + order_bytes(m) +
         source_bytes(m) + sample_bytes(m);
}

static bool fits(const struct pd_model *m, const void *memory, size_t bytes, int threads, char *why) {
  if (memory && (uintptr_t)memory % LINE)
    return pd_refuse(why, "%s: the memory is not aligned to %d bytes", m->name, LINE);
  if (memory && bytes < pd_instance_bytes(m))
    return pd_refuse(why, "%s: an instance needs %zu bytes, but the memory has %zu", m->name, pd_instance_bytes(m),
                     bytes);
  if (threads < 0 || threads > m->threads)
    return pd_refuse(why, "%s: %d threads are not 0 to %d. help: build with pdc --threads %d", m->name, threads,
                     m->threads, threads > 0 ? threads : 1);
  return true;
}

static struct pd_instance *place(const struct pd_model *m, void *memory) {
  struct pd_instance *x = memset(memory, 0, pd_instance_bytes(m));
  x->model = m;
  x->arena = (char *)memory + rounded(m->instance_bytes);
  x->held = (int32_t *)(x->arena + rounded(m->arena_bytes));
  x->tokens = (int32_t *)((char *)x->held + held_bytes(m));
  x->order = (int32_t *)((char *)x->tokens + held_bytes(m));
  x->source = (int32_t *)((char *)x->order + order_bytes(m));
  x->sample = (float *)((char *)x->source + source_bytes(m));
  return x;
}

/* ---- kernels --------------------------------------------------------------------------------------------- */

/* The state of this thread while it works for an instance, and the caller's. */
struct entered {
  struct failing to, *before;
  int threads;
};

static void enter(struct entered *e, const struct pd_instance *x, char *why) {
  e->to.why = why;
  e->before = failing;
  e->threads = omp_get_max_threads();
  failing = &e->to;
  omp_set_num_threads(x->threads);
}

static void leave(const struct entered *e) {
  failing = e->before;
  omp_set_num_threads(e->threads);
}

static bool make_objects(struct pd_instance *x, char *why) {
  struct entered e;
  volatile bool opened = false;
  enter(&e, x, why);
  bool ok = !setjmp(e.to.place);
  if (ok) {
    pd_engine_open();
    opened = true;
    pd_objects_owner = &x->objects;
    pd_scratch_planned = x->model->scratch_bytes;
    x->model->setup(x);
  }
  pd_objects_owner = NULL;
  leave(&e);
  if (ok) return true;
  pd_objects_destroy(&x->objects);
  if (opened) pd_engine_close();
  return false;
}

bool pd_instance_given(const struct pd_instance *x, const void *text, char *why) {
  return (x || pd_refuse(why, "the instance is NULL")) &&
         (text || pd_refuse(why, "%s: an argument is NULL", x->model->name));
}

bool pd_instance_protect(const struct pd_instance *x, void (*f)(void *of), void *of, char *why) {
  struct entered e;
  enter(&e, x, why);
  const bool ok = !setjmp(e.to.place);
  if (ok) f(of);
  leave(&e);
  return ok;
}

bool pd_instance_forward(struct pd_instance *x, int64_t rows, char *why) {
  struct entered e;
  const int64_t before = __atomic_load_n(&pd_kernel_failures, __ATOMIC_RELAXED);
  enter(&e, x, why);
  const bool ok = !setjmp(e.to.place);
  if (ok) {
    pd_rows_used = rows;
    x->model->forward(x);
  }
  pd_rows_used = 0;
  leave(&e);
  if (!ok) return false;
  return __atomic_load_n(&pd_kernel_failures, __ATOMIC_RELAXED) == before ||
         pd_refuse(why, "%s: oneDNN cannot run a kernel: memory may be short", x->model->name);
}

/* ---- start and end --------------------------------------------------------------------------------------- */

/* Instructions that the library was compiled for and the processor lacks; and whether oneDNN takes other kernels here than
 * the library was planned for, which need other memory and have other bits. */
static bool suits_processor(const struct pd_model *m, char *why) {
#ifdef __x86_64__
  __builtin_cpu_init();
  const char *lacks = NULL;
#ifdef __AVX512BF16__
  if (!__builtin_cpu_supports("avx512bf16")) lacks = "AVX-512 with bf16";
#endif
#ifdef __AVX512BW__
  if (!__builtin_cpu_supports("avx512bw")) lacks = "AVX-512";
#endif
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) lacks = "AVX2";
#endif
  if (lacks)
    return pd_refuse(why,
                     "%s was compiled for a processor with %s. help: build it with pdc --march x86-64-v3, or -v2",
                     m->name, lacks);
  const unsigned here = (unsigned)dnnl_get_effective_cpu_isa();
  const char *limit = NULL;
#if !defined __AVX512BF16__
  if ((here & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) limit = "AVX512_CORE";
#endif
#if !defined __AVX512BW__
  if ((here & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) limit = "AVX2";
#endif
#if !defined __AVX2__
  if ((here & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2) limit = "SSE41";
#endif
  if (limit)
    return pd_refuse(
        why,
        "%s was compiled for an older processor than this one, where oneDNN's results would differ. help: "
        "set the environment variable ONEDNN_MAX_CPU_ISA=%s, or build for this processor",
        m->name, limit);
#endif
  (void)m, (void)why;
  return true;
}

static void count_failures(void) {
  int64_t never = -1;
  __atomic_compare_exchange_n(&pd_kernel_failures, &never, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

struct pd_instance *pd_instance_new(const struct pd_model *m, void *memory, size_t bytes, int threads, char *why) {
  char unseen[PD_WHY];
  why = PD_WHY_OR(why, unseen);
  if (!fits(m, memory, bytes, threads, why) || !suits_processor(m, why)) return NULL;
  void *block = memory ? memory : aligned_alloc(LINE, pd_instance_bytes(m));
  if (!block) {
    pd_refuse(why, "%s: out of memory: an instance needs %zu bytes", m->name, pd_instance_bytes(m));
    return NULL;
  }
  count_failures();
  struct pd_instance *x = place(m, block);
  x->owned = !memory;
  x->threads = threads ? threads : m->threads;
  if (make_objects(x, why)) return x;
  if (x->owned) free(block);
  return NULL;
}

void pd_instance_free(struct pd_instance *x) {
  if (!x) return;
  x->ends = true;
  if (x->busy) return;
  pd_objects_destroy(&x->objects);
  pd_engine_close();
  pd_tokenizer_close(x->tokenizer);
  if (x->owned) free(x);
}
