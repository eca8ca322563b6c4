/* The part of oneDNN's C API that kernels use, alike for 2.6 and 3.x: descriptors, plans, attributes and memory
 * objects without memory. Differences between versions end here. */
#ifndef PD_ONEDNN_H
#define PD_ONEDNN_H

#include "kernels/objects.h"
#include "pd_runtime.h"

#include <stdlib.h>

/* Of calls at the start. */
static inline void check(dnnl_status_t status, const char *what) {
  if (status != dnnl_success) pd_fail("oneDNN cannot %s (status %d)", what, (int)status);
}

/* Of calls while kernels run. */
static inline void check_run(dnnl_status_t status, const char *what) {
  if (status != dnnl_success) pd_kernel_failed(what, (int)status);
}

static inline void open_library(void) {
  if (!pd_onednn.engine) pd_engine_open();
}

/* ---- processor and version ----------------------------------------------------------------------------- */

/* True if oneDNN uses these instruction sets of x86. On Arm the same bits are other instruction sets. */
static inline bool uses(unsigned sets) {
#ifdef __x86_64__
  return ((unsigned)dnnl_get_effective_cpu_isa() & sets) == sets;
#else
  (void)sets;
  return false;
#endif
}

/* True if products and convolutions are bit-identical for any number of threads: with AVX-512; other
 * implementations divide sums. ONEDNN_MAX_CPU_ISA=AVX2 simulates processors without AVX-512. */
static inline bool threads_leave_bits(void) { return uses(dnnl_cpu_isa_avx512_core); }

/* True if the processor has bf16 instructions. Without them, bf16 products are as slow as f32 products, and bits
 * depend on the number of threads. */
static inline bool has_bf16(void) { return uses(dnnl_cpu_isa_avx512_core_bf16); }

/* True if kernels/tiles.c computes the product of two matrices: on x86 with AVX2, large products whose bits would
 * depend on threads; on other processors all products, which are thus bit-identical on all processors of the
 * kind. */
static inline bool tiles_are_faster(bool large) {
#ifdef __x86_64__
  return large && !threads_leave_bits() && uses(dnnl_cpu_isa_avx2);
#else
  (void)large;
  return true;
#endif
}

/* Longer sums of a product may be divided among threads, even if threads_leave_bits(): by a transposed `a` from
 * 2048 on; since 3.0 by others from 20000 on (brgemm_matmul_utils.cpp: bwd_w_par_k_blk, is_huge_k). */
static inline int64_t longest_sum(bool transposed) {
  if (transposed) return 1984;
  return DNNL_VERSION_MAJOR < 3 ? INT64_MAX : 19968;
}

/* ---- descriptors: of memory that kernels own ------------------------------------------------------------ */

#if DNNL_VERSION_MAJOR < 3
typedef dnnl_memory_desc_t *descriptor;
typedef const dnnl_memory_desc_t *descriptor_seen; /* another's */
#else
typedef dnnl_memory_desc_t descriptor;
typedef const_dnnl_memory_desc_t descriptor_seen;
#endif

static inline dnnl_data_type_t library_type(enum pd_type type) { return type == PD_BF16 ? dnnl_bf16 : dnnl_f32; }

#if DNNL_VERSION_MAJOR < 3
static inline descriptor descriptor_allocate(void) {
  descriptor d = malloc(sizeof *d);
  if (!d) pd_fail("out of memory");
  return d;
}
#endif

/* An array of n dimensions whose elements lie as the strides say. */
static inline descriptor by_strides(int n, const int64_t *dim, enum pd_type type, const int64_t *stride) {
  descriptor d;
#if DNNL_VERSION_MAJOR < 3
  d = descriptor_allocate();
  dnnl_status_t status = dnnl_memory_desc_init_by_strides(d, n, dim, library_type(type), stride);
#else
  dnnl_status_t status = dnnl_memory_desc_create_with_strides(&d, n, dim, library_type(type), stride);
#endif
  check(status, "describe an array");
  return d;
}

/* A descriptor in a layout of the library. */
static inline descriptor by_tag(int n, const int64_t *dim, enum pd_type type, dnnl_format_tag_t tag) {
  descriptor d;
#if DNNL_VERSION_MAJOR < 3
  d = descriptor_allocate();
  dnnl_status_t status = dnnl_memory_desc_init_by_tag(d, n, dim, library_type(type), tag);
#else
  dnnl_status_t status = dnnl_memory_desc_create_with_tag(&d, n, dim, library_type(type), tag);
#endif
  check(status, "describe an array");
  return d;
}

static inline void descriptor_free(descriptor d) {
#if DNNL_VERSION_MAJOR < 3
  free(d);
#else
  if (d) dnnl_memory_desc_destroy(d);
#endif
}

/* The descriptor that a plan chose, valid until descriptor_free. */
static inline descriptor chosen(dnnl_primitive_desc_t plan, dnnl_query_t what) {
  descriptor_seen seen = dnnl_primitive_desc_query_md(plan, what, 0);
  descriptor d;
#if DNNL_VERSION_MAJOR < 3
  d = descriptor_allocate();
  *d = *seen;
#else
  check(dnnl_memory_desc_clone(&d, seen), "copy a description");
#endif
  return d;
}

static inline size_t descriptor_bytes(descriptor_seen d) { return dnnl_memory_desc_get_size(d); }

/* ---- memory objects ----------------------------------------------------------------------------------- */

static inline void destroy_memory(void *memory) { dnnl_memory_destroy(memory); }

static inline dnnl_memory_t memory(descriptor_seen d) {
  dnnl_memory_t m;
  check(dnnl_memory_create(&m, d, pd_onednn.engine, DNNL_MEMORY_NONE), "create a memory object");
  pd_object_own(m, destroy_memory);
  return m;
}

static inline void set(dnnl_memory_t memory, const void *at) {
  check_run(dnnl_memory_set_data_handle(memory, (void *)at), "set a memory object");
}

/* ---- primitives ---------------------------------------------------------------------------------------- */

static inline void destroy_primitive(void *primitive) { dnnl_primitive_destroy(primitive); }

/* The primitive of a plan; `what`: "create a matmul". */
static inline dnnl_primitive_t primitive_new(dnnl_primitive_desc_t plan, const char *what) {
  dnnl_primitive_t p;
  check(dnnl_primitive_create(&p, plan), what);
  pd_object_own(p, destroy_primitive);
  return p;
}

/* ---- plans of primitives --------------------------------------------------------------------------------- */

/* The caller owns scratch memory; accumulate: adds to the result. */
static inline dnnl_primitive_attr_t attributes_new(bool accumulate) {
  dnnl_primitive_attr_t a;
  dnnl_post_ops_t post;
  check(dnnl_primitive_attr_create(&a), "create attributes");
  check(dnnl_primitive_attr_set_scratchpad_mode(a, dnnl_scratchpad_mode_user), "set the scratchpad's mode");
  if (!accumulate) return a;
  check(dnnl_post_ops_create(&post), "create post-operations");
#if DNNL_VERSION_MAJOR < 3
  check(dnnl_post_ops_append_sum(post, 1.0f), "append a sum");
#else
  check(dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef), "append a sum");
#endif
  check(dnnl_primitive_attr_set_post_ops(a, post), "set post-operations");
  dnnl_post_ops_destroy(post);
  return a;
}

/* bias: or NULL. */
static inline dnnl_status_t plan_matmul(dnnl_primitive_desc_t *plan, descriptor_seen a, descriptor_seen b,
                                        descriptor_seen bias, descriptor_seen c,
                                        dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR < 3
  dnnl_matmul_desc_t d;
  dnnl_status_t status = dnnl_matmul_desc_init(&d, a, b, bias, c);
  return status == dnnl_success ? dnnl_primitive_desc_create(plan, &d, attributes, pd_onednn.engine, NULL)
                                : status;
#else
  return dnnl_matmul_primitive_desc_create(plan, pd_onednn.engine, a, b, bias, c, attributes);
#endif
}

static inline dnnl_status_t plan_reorder(dnnl_primitive_desc_t *plan, descriptor_seen from, descriptor_seen to,
                                         dnnl_primitive_attr_t attributes) {
  return dnnl_reorder_primitive_desc_create(plan, from, pd_onednn.engine, to, pd_onednn.engine, attributes);
}

/* A convolution's description: images, weights, bias (or NULL), results, and the kernel's geometry in rows and
 * columns; dilation: skipped positions between two taps. */
struct convolved {
  descriptor x, w, bias, y;
  dnnl_dims_t stride, dilation, padding;
};

static inline dnnl_status_t plan_convolution(dnnl_primitive_desc_t *plan, const struct convolved *c,
                                             dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR < 3
  dnnl_convolution_desc_t d;
  dnnl_status_t status =
      dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, c->x, c->w,
                                                 c->bias, c->y, c->stride, c->dilation, c->padding, c->padding);
  return status == dnnl_success ? dnnl_primitive_desc_create(plan, &d, attributes, pd_onednn.engine, NULL)
                                : status;
#else
  return dnnl_convolution_forward_primitive_desc_create(plan, pd_onednn.engine, dnnl_forward_training,
                                                        dnnl_convolution_direct, c->x, c->w, c->bias, c->y,
                                                        c->stride, c->dilation, c->padding, c->padding,
                                                        attributes);
#endif
}

/* The gradient of images; forward: the plan whose gradient it is. */
static inline dnnl_status_t plan_convolution_backward(dnnl_primitive_desc_t *plan, const struct convolved *c,
                                                      dnnl_primitive_desc_t forward,
                                                      dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR < 3
  dnnl_convolution_desc_t d;
  dnnl_status_t status =
      dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, c->x, c->w, c->y, c->stride,
                                                       c->dilation, c->padding, c->padding);
  return status == dnnl_success ? dnnl_primitive_desc_create(plan, &d, attributes, pd_onednn.engine, forward)
                                : status;
#else
  return dnnl_convolution_backward_data_primitive_desc_create(plan, pd_onednn.engine, dnnl_convolution_direct,
                                                              c->x, c->w, c->y, c->stride, c->dilation, c->padding,
                                                              c->padding, forward, attributes);
#endif
}

/* The gradient of weights. */
static inline dnnl_status_t plan_convolution_weights(dnnl_primitive_desc_t *plan, const struct convolved *c,
                                                     dnnl_primitive_desc_t forward,
                                                     dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR < 3
  dnnl_convolution_desc_t d;
  dnnl_status_t status =
      dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, c->x, c->w, NULL, c->y,
                                                          c->stride, c->dilation, c->padding, c->padding);
  return status == dnnl_success ? dnnl_primitive_desc_create(plan, &d, attributes, pd_onednn.engine, forward)
                                : status;
#else
  return dnnl_convolution_backward_weights_primitive_desc_create(plan, pd_onednn.engine, dnnl_convolution_direct,
                                                                 c->x, c->w, NULL, c->y, c->stride, c->dilation,
                                                                 c->padding, c->padding, forward, attributes);
#endif
}

#endif
