/* Objects that kernels make, such as the plans of oneDNN's primitives. In a program they live as long as the process,
 * and a failure ends it. In a library (runtime/library) an instance owns them, and a failure is an error of its call. */
#ifndef PD_KERNELS_OBJECTS_H
#define PD_KERNELS_OBJECTS_H

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>
#include <stdint.h>

struct pd_objects {
  struct pd_object *last; /* destroyed first */
};

/* The owner of objects that this thread makes; NULL: the process. */
extern __thread struct pd_objects *pd_objects_owner;
/* Zeroed memory; calls pd_fail if there is none. */
void *pd_object_allocate(size_t bytes);
/* Makes the owner destroy `object`. */
void pd_object_own(void *object, void (*destroy)(void *object));
void pd_objects_destroy(struct pd_objects *o);

/* oneDNN's engine and stream, alike for all kernels and owners of the process. */
extern struct pd_onednn {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
} pd_onednn;
void pd_engine_open(void); /* counts: the last pd_engine_close closes it */
void pd_engine_close(void);

/* A failure of oneDNN in a kernel, possibly on a worker thread. A program ends; a library counts it, and the call that
 * runs kernels compares the count before and after. */
void pd_kernel_failed(const char *what, int status);
extern int64_t pd_kernel_failures; /* read and written atomically; -1: failures end the process */

#endif
