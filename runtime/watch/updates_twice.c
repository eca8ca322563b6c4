/* --audit K, for updates: in every Kth update each unit of work (some tiles, or a parameter with a whole-tensor
 * rule) runs twice from the same memory and must give the same bits. Copies are kept, exchanged and compared as
 * for passes (twice.c). Threads record differences, which are reported after all threads end. */
#include "update/update.h"
#include "watch/watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- what differs ------------------------------------------------------------------------------ */

bool pd_differ(const void *at, const void *other, size_t bytes, size_t size, struct pd_difference *d) {
  char *first = pd_allocate(2 * bytes), *second = first + bytes;
  size_t i = 0;
  pd_read_bytes(first, other, bytes);
  pd_read_bytes(second, at, bytes);
  while (i < bytes && !memcmp(first + i, second + i, size)) i += size;
  *d = (struct pd_difference){.element = (int64_t)(i / size), .digits = (int)size * 2};
  if (i < bytes) {
    memcpy(&d->first, first + i, size);
    memcpy(&d->second, second + i, size);
  }
  free(first);
  return i < bytes;
}

static struct {
  pthread_mutex_t lock;
  struct {
    int parameter; /* the first parameter with a difference; -1: none */
    int array;
    struct pd_difference at;
  } difference;
} checking = {.lock = PTHREAD_MUTEX_INITIALIZER, .difference = {.parameter = -1}};

/* `other`: results of the first update. */
static void note(const struct pd_written *w, const char *other, int parameter, int64_t first_element) {
  struct pd_difference d;
  if (!pd_differ(w->at, other, w->bytes, w->bf16 ? 2 : sizeof(float), &d)) return;
  d.element += first_element;
  pthread_mutex_lock(&checking.lock);
  if (checking.difference.parameter < 0 || parameter < checking.difference.parameter ||
      (parameter == checking.difference.parameter && d.element < checking.difference.at.element)) {
    checking.difference.parameter = parameter;
    checking.difference.array = w->array;
    checking.difference.at = d;
  }
  pthread_mutex_unlock(&checking.lock);
}

bool pd_updates_agree(int64_t t, char *why) {
  const int parameter = checking.difference.parameter;
  const struct pd_difference d = checking.difference.at;
  checking.difference.parameter = -1;
  return parameter < 0 ||
         pd_refuse(
             why,
             "--audit: step %lld: two runs of the update differ in the %s of '%s': element %lld has bits %0*x, "
             "then %0*x: a processor or the memory of this host makes errors. help: test this host's hardware",
             (long long)(t + 1), pd_array_name(checking.difference.array), pd.stage->parameters[parameter].name,
             (long long)d.element, d.digits, d.first, d.digits, d.second);
}

void pd_check_agreement(int64_t t) {
  char why[PD_WHY];
  if (!pd_updates_agree(t, why)) pd_fail("%s", why);
  pd_audit_settle(t);
}

/* ---- two updates --------------------------------------------------------------------------------- */

void pd_update_twice(void (*update)(const void *of), const void *of, const struct pd_written *w, int n, char *copy,
                     int parameter, int64_t first_element) {
  char *other = copy;
  for (int i = 0; i < n; other += pd_copy_step(w[i++].bytes)) {
    pd_copy_bytes(other, w[i].at, w[i].bytes);
    pd_audit_before(&w[i], other, parameter, first_element);
  }
  update(of);
  other = copy;
  for (int i = 0; i < n; other += pd_copy_step(w[i++].bytes)) pd_exchange_bytes(w[i].at, other, w[i].bytes);
  update(of);
  other = copy;
  for (int i = 0; i < n; other += pd_copy_step(w[i++].bytes)) {
    if (!pd_same_bytes(w[i].at, other, w[i].bytes)) note(&w[i], other, parameter, first_element);
    pd_audit_after(&w[i], other, parameter, first_element);
  }
}

/* ---- whole tensors ------------------------------------------------------------------------------- */

struct tensor_update {
  void (*rule)(const struct pd_tensor_update *x);
  const struct pd_tensor_update *x;
};

static void update_tensor(const void *of) {
  const struct tensor_update *x = of;
  x->rule(x->x);
}

void pd_update_tensor(void (*rule)(const struct pd_tensor_update *x), const struct pd_tensor_update *x,
                      char *copy) {
  const struct pd_parameter *p = x->parameter;
  struct pd_written w[1 + PD_MAX_MOMENTS] = {{pd.stage->has_masters ? PD_ARRAY_MASTERS : PD_ARRAY_WEIGHTS, x->to,
                                              (size_t)p->elements * sizeof(float), false}};
  int n = 1;
  if (!copy) {
    rule(x);
    return;
  }
  for (int i = 0; i < pd.stage->n_moments; i++)
    if (x->moment[i])
      w[n++] = (struct pd_written){PD_ARRAY_MOMENTS + i, x->moment[i],
                                   (size_t)pd_moment_shape(p, i).elements * sizeof(float), false};
  pd_update_twice(update_tensor, &(struct tensor_update){rule, x}, w, n, copy, (int)(p - pd.stage->parameters), 0);
}

void pd_update_by_tensors(const struct pd_tensor_update *x) {
  pd_update_tensor(pd.stage->optimizer->tensor, x, pd_twice_copy(x->t));
  pd_check_agreement(x->t);
}
