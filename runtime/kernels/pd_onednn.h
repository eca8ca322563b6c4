/* What the kernels that call oneDNN share (its C API before 3.0): an engine and a stream, memory objects
 * without memory, and an end with a message where it cannot do what it is asked. */
#ifndef PD_ONEDNN_H
#define PD_ONEDNN_H

#include "pd_runtime.h"

#include <oneapi/dnnl/dnnl.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void check(dnnl_status_t status, const char *what) {
  if (status != dnnl_success) pd_fail("oneDNN cannot %s (status %d)", what, (int)status);
}

static void open_library(void) {
  if (engine) return;
  check(dnnl_engine_create(&engine, dnnl_cpu, 0), "create its engine");
  check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "create its stream");
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *d) {
  dnnl_memory_t m;
  check(dnnl_memory_create(&m, d, engine, DNNL_MEMORY_NONE), "create a memory object");
  return m;
}

static void set(dnnl_memory_t memory, const void *at) {
  check(dnnl_memory_set_data_handle(memory, (void *)at), "set a memory object");
}

/* Whether bits of matmuls and convolutions are the same however many threads share one: those for AVX-512 are, others
 * deal out sums. ONEDNN_MAX_CPU_ISA=AVX2 makes any processor one of the others. */
static bool threads_leave_bits(void) {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

/* Whether the processor has instructions for bf16. Without them the library's products in bf16 are no faster than in f32,
 * and their bits depend on the threads. */
static bool has_bf16(void) {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

static dnnl_data_type_t library_type(enum pd_type type) { return type == PD_BF16 ? dnnl_bf16 : dnnl_f32; }

/* Scratch belongs to the caller; accumulate: the result is added to what stands there. */
static dnnl_primitive_attr_t attributes_new(bool accumulate) {
  dnnl_primitive_attr_t a;
  dnnl_post_ops_t post;
  check(dnnl_primitive_attr_create(&a), "create attributes");
  check(dnnl_primitive_attr_set_scratchpad_mode(a, dnnl_scratchpad_mode_user), "set the scratchpad's mode");
  if (!accumulate) return a;
  check(dnnl_post_ops_create(&post), "create post-operations");
  check(dnnl_post_ops_append_sum(post, 1.0f), "append a sum");
  check(dnnl_primitive_attr_set_post_ops(a, post), "set post-operations");
  dnnl_post_ops_destroy(post);
  return a;
}

#endif
