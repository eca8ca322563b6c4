#define PD_KERNELS
#include "kernels/objects.h"
#include "pd_runtime.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- owners --------------------------------------------------------------------------------------------- */

struct pd_object {
  struct pd_object *before;
  void *object;
  void (*destroy)(void *object);
};

__thread struct pd_objects *pd_objects_owner;

void pd_object_own(void *object, void (*destroy)(void *object)) {
  struct pd_objects *owner = pd_objects_owner;
  if (!owner) return;
  struct pd_object *o = malloc(sizeof *o);
  if (!o) {
    destroy(object);
    pd_fail("out of memory");
  }
  *o = (struct pd_object){owner->last, object, destroy};
  owner->last = o;
}

void *pd_object_allocate(size_t bytes) {
  void *object = calloc(1, bytes);
  if (!object) pd_fail("out of memory");
  pd_object_own(object, free);
  return object;
}

void pd_objects_destroy(struct pd_objects *o) {
  for (struct pd_object *x = o->last, *before; x; x = before) {
    before = x->before;
    x->destroy(x->object);
    free(x);
  }
  o->last = NULL;
}

/* ---- oneDNN's engine -------------------------------------------------------------------------------------- */

struct pd_onednn pd_onednn;
static struct {
  pthread_mutex_t lock;
  int n; /* calls of pd_engine_open without their pd_engine_close */
} opened = {PTHREAD_MUTEX_INITIALIZER, 0};

static dnnl_status_t open_engine(void) {
  dnnl_status_t status = dnnl_engine_create(&pd_onednn.engine, dnnl_cpu, 0);
  if (status != dnnl_success) return status;
  status = dnnl_stream_create(&pd_onednn.stream, pd_onednn.engine, dnnl_stream_default_flags);
  if (status != dnnl_success) dnnl_engine_destroy(pd_onednn.engine);
  return status;
}

void pd_engine_open(void) {
  pthread_mutex_lock(&opened.lock);
  dnnl_status_t status = opened.n ? dnnl_success : open_engine();
  if (status == dnnl_success) opened.n++;
  pthread_mutex_unlock(&opened.lock);
  if (status != dnnl_success) pd_fail("oneDNN cannot create its engine (status %d)", (int)status);
}

void pd_engine_close(void) {
  pthread_mutex_lock(&opened.lock);
  if (--opened.n == 0) {
    dnnl_stream_destroy(pd_onednn.stream);
    dnnl_engine_destroy(pd_onednn.engine);
    pd_onednn.engine = NULL;
  }
  pthread_mutex_unlock(&opened.lock);
}

/* ---- failures --------------------------------------------------------------------------------------------- */

int64_t pd_kernel_failures = -1;

void pd_kernel_failed(const char *what, int status) {
  if (__atomic_load_n(&pd_kernel_failures, __ATOMIC_RELAXED) < 0)
    pd_fail("oneDNN cannot %s (status %d)", what, status);
  __atomic_add_fetch(&pd_kernel_failures, 1, __ATOMIC_RELAXED);
}
