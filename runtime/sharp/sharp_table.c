/* A lock that survives the death of its holder, and waits for a change of a number in shared memory. */
#define _GNU_SOURCE /* cpu_set_t */
#include "sharp/sharp_table.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct pd_sharp_table *pd_sharp_map(int fd) {
  void *at = mmap(NULL, sizeof(struct pd_sharp_table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

void pd_sharp_table_start(struct pd_sharp_table *t, int models, int ranks, double slice) {
  pthread_mutexattr_t shared;
  pthread_mutexattr_init(&shared);
  pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&t->lock, &shared);
  pd_sharp_start(&t->s, models, ranks, slice);
  for (int i = 0; i < models; i++) t->result[i].loss = t->result[i].validation_loss = NAN;
}

static uint32_t seen_at_lock[PD_SHARP_MODELS];

struct pd_sharp *pd_sharp_lock(struct pd_sharp_table *t) {
  if (pthread_mutex_lock(&t->lock) == EOWNERDEAD) pthread_mutex_consistent(&t->lock);
  for (int i = 0; i < t->s.models; i++) seen_at_lock[i] = t->s.model[i].changes;
  return &t->s;
}

void pd_sharp_unlock(struct pd_sharp_table *t) {
  bool changed[PD_SHARP_MODELS];
  const int models = t->s.models;
  for (int i = 0; i < models; i++) changed[i] = t->s.model[i].changes != seen_at_lock[i];
  pthread_mutex_unlock(&t->lock);
  for (int i = 0; i < models; i++)
    if (changed[i]) syscall(SYS_futex, &t->s.model[i].changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void pd_sharp_await_change(struct pd_sharp_table *t, int model, uint32_t seen) {
  struct timespec second = {1, 0}; /* wakes waiting models */
  syscall(SYS_futex, &t->s.model[model].changes, FUTEX_WAIT, seen, &second, NULL, 0);
}
