/* Initial weights: Philox 4x32-10, keyed by the run's seed and the parameter's name, counted by element,
 * independent of the partition and of the order of initialisation. */
#include "device.h"
#include "update/update.h"
#include "kernels/pd_math.h"
#include "shared/normal.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Four elements from one Philox block. Uniforms have 24 bits. */
static void block(const struct pd_parameter *p, pd_random r, float *to) {
  if (p->init == PD_UNIFORM) {
    for (int i = 0; i < 4; i++) to[i] = (float)((2 * (double)pd_uniform(r.word[i]) - 1) * p->init_value);
    return;
  }
  for (int i = 0; i < 4; i += 2) pd_normal_pair(p->init_value, r.word[i], r.word[i + 1], to + i);
}

/* Elements [first, first + n) of the whole parameter. */
static void make_run(const struct pd_parameter *p, uint64_t key, int64_t first, int64_t n, float *to) {
  for (int64_t i = first; i < first + n;) {
    float four[4];
    int64_t skipped = i % 4, left = first + n - i, taken = left < 4 - skipped ? left : 4 - skipped;
    block(p, pd_philox((uint32_t)(i / 4), (uint32_t)((i / 4) >> 32), 0, 0, key), four);
    memcpy(to + (i - first), four + skipped, sizeof(float) * (size_t)taken);
    i += taken;
  }
}

/* ---- on all of the rank's threads ------------------------------------------------------------ */

enum {
  ELEMENTS_A_THREAD = 1 << 18,
  MOST_THREADS = 64
}; /* these elements take 5 ms; starting a thread takes about 20 us */

/* Elements [first, end) of this rank's part of a parameter. */
struct share {
  const struct pd_parameter *p;
  uint64_t key;
  int64_t first, end;
  float *to;
};

static void *make_share(void *share) {
  const struct share *s = share;
  const struct pd_parameter *p = s->p;
  int64_t part =
      p->runs ? p->elements / p->runs : p->elements; /* elements that are also adjacent in the whole parameter */
  for (int64_t i = s->first; i < s->end;) {
    int64_t left = part - i % part, n = s->end - i < left ? s->end - i : left;
    make_run(p, s->key, pd_whole_element(p, i), n, s->to + i);
    i += n;
  }
  return NULL;
}

/* An element depends only on its index, so results are bit-identical for any number of threads. The main thread
 * handles signals. */
static void make_all(const struct pd_parameter *p, uint64_t key, int64_t n, float *to) {
  struct share share[MOST_THREADS];
  pthread_t thread[MOST_THREADS];
  bool started[MOST_THREADS] = {false};
  sigset_t all, before;
  int64_t wanted = n / ELEMENTS_A_THREAD, most = pd_host_threads();
  most = most < MOST_THREADS ? most : MOST_THREADS;
  int threads = (int)(wanted < 1 ? 1 : wanted < most ? wanted : most);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  for (int i = 0; i < threads; i++) {
    share[i] = (struct share){p, key, n * i / threads, n * (i + 1) / threads, to};
    started[i] = i > 0 && pthread_create(&thread[i], NULL, make_share, &share[i]) == 0;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  for (int i = 0; i < threads; i++)
    if (!started[i]) make_share(&share[i]);
  for (int i = 1; i < threads; i++)
    if (started[i]) pthread_join(thread[i], NULL);
}

/* Elements [0, own) of this rank's part of a table with a zero row. */
static void clear_zero_row(const struct pd_parameter *p, int64_t own, float *to) {
  int64_t width = pd_whole_shape(p).dim[1];
  for (int64_t i = 0; i < own; i++)
    if (pd_whole_element(p, i) / width == p->zero_row) to[i] = 0;
}

void pd_initialise(const struct pd_parameter *p, uint64_t seed, float *to) {
  int64_t own = pd_own_elements(p);
  for (int64_t i = own; i < p->elements; i++) to[i] = 0;
  if (p->init == PD_ZEROS || p->init == PD_ONES || p->init == PD_CONSTANT) {
    float value = p->init == PD_ZEROS ? 0 : p->init == PD_ONES ? 1 : (float)p->init_value;
    for (int64_t i = 0; i < own; i++) to[i] = value;
  } else {
    make_all(p, pd_mix(seed, pd_hash_name(p->name)), own, to);
  }
  if (p->has_zero_row) clear_zero_row(p, own, to);
}
