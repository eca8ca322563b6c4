/* Decodes the images of the next microbatches on threads of their own, while the training thread computes. Each
 * image input that this rank loads has a ring of microbatches for training and one for evaluation, started by the
 * first load. Threads only read options and files and write samples; the training thread queues microbatches, waits
 * for them, and reports errors when their microbatch is due. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "data/load.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct slot {
  int64_t k; /* microbatch; 0: none */
  int64_t begun, done;
  float *samples;
  bool failed;
  char why[PD_WHY];
};

struct ring {
  struct ring *next;
  int input;
  bool evaluation;
  int64_t due, newest; /* the microbatch that was loaded last, and the last queued one */
  int n;
  struct slot *slots; /* microbatch k is in slot k % n */
};

static struct {
  struct ring *rings;
  pthread_mutex_t lock;
  pthread_cond_t queued, done;
  pthread_t *threads;
  int running;      /* started threads */
  int first_worker; /* number of the first thread as a worker, found by the training thread */
  bool ending;
  double waited;
} ahead = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .queued = PTHREAD_COND_INITIALIZER,
           .done = PTHREAD_COND_INITIALIZER};

double pd_ahead_seconds(void) { return ahead.waited; }

/* Processors of this rank that its computation leaves, within bounds. */
static int spare_processors(void) {
  enum { MOST = 16 };
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  int mine = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  if (mine >= all) mine /= pd_local_ranks(); /* not bound: ranks share the machine */
  mine -= pd_device_threads();
  return mine < 1 ? 1 : mine > MOST ? MOST : mine;
}

int pd_data_threads(void) {
  static int spare;
  if (pd_options.data_threads >= 0) return (int)pd_options.data_threads;
  if (!spare) spare = spare_processors();
  return spare;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* The slot of the next sample to decode, of the oldest microbatch of a ring. NULL: nothing is queued. */
static struct slot *next_slot(struct ring **of) {
  for (struct ring *r = ahead.rings; r; r = r->next)
    for (int64_t k = r->due; k <= r->newest; k++) {
      struct slot *s = &r->slots[k % r->n];
      *of = r;
      if (s->k == k && s->begun < pd.stage->microbatch) return s;
    }
  return NULL;
}

static void decode(const struct ring *r, struct slot *s, int64_t i, int worker) {
  char why[PD_WHY];
  const int64_t k = s->k;
  pthread_mutex_unlock(&ahead.lock);
  const bool ok = pd_make_sample(r->input, r->evaluation, k, i, worker,
                                 s->samples + i * pd.stage->inputs[r->input].elements, why);
  pthread_mutex_lock(&ahead.lock);
  if (!ok && !s->failed) memcpy(s->why, why, sizeof why);
  s->failed |= !ok;
  if (++s->done == s->begun) pthread_cond_broadcast(&ahead.done);
}

static void *work(void *number) {
  const int worker = ahead.first_worker + (int)((pthread_t *)number - ahead.threads);
  pthread_mutex_lock(&ahead.lock);
  while (!ahead.ending) {
    struct ring *r;
    struct slot *s = next_slot(&r);
    if (s)
      decode(r, s, s->begun++, worker);
    else
      pthread_cond_wait(&ahead.queued, &ahead.lock);
  }
  pthread_mutex_unlock(&ahead.lock);
  return NULL;
}

static void start_threads(void) {
  const int n = pd_data_threads();
  ahead.threads = pd_allocate(sizeof *ahead.threads * (size_t)n);
  ahead.first_worker = pd_load_workers();
  sigset_t others,
      before; /* the training thread handles all signals except the one of a file that became shorter */
  sigfillset(&others);
  sigdelset(&others, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  for (; ahead.running < n; ahead.running++) {
    const int failed = pthread_create(&ahead.threads[ahead.running], NULL, work, &ahead.threads[ahead.running]);
    if (failed) pd_fail("cannot start thread %d of --data-threads %d: %s", ahead.running + 1, n, strerror(failed));
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void pd_ahead_finish(void) {
  pthread_mutex_lock(&ahead.lock);
  ahead.ending = true;
  pthread_cond_broadcast(&ahead.queued);
  pthread_mutex_unlock(&ahead.lock);
  for (; ahead.running > 0; ahead.running--) pthread_join(ahead.threads[ahead.running - 1], NULL);
  ahead.ending = false;
  ahead.rings = NULL;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Two microbatches beyond the current one, and enough samples for all threads. */
static struct ring *new_ring(int input, bool evaluation) {
  const int64_t b = pd.stage->microbatch, elements = pd.stage->inputs[input].elements;
  struct ring *r = pd_allocate(sizeof *r);
  *r = (struct ring){.input = input, .evaluation = evaluation, .due = 1, .n = 3 + (int)(pd_data_threads() / b)};
  r->slots = pd_allocate(sizeof *r->slots * (size_t)r->n);
  for (int i = 0; i < r->n; i++) r->slots[i].samples = pd_allocate(sizeof(float) * (size_t)(b * elements));
  return r;
}

static struct ring *ring_of(int input, bool evaluation) {
  struct ring *r = ahead.rings;
  while (r && (r->input != input || r->evaluation != evaluation)) r = r->next;
  if (r) return r;
  r = new_ring(input, evaluation);
  pthread_mutex_lock(&ahead.lock);
  r->next = ahead.rings;
  ahead.rings = r;
  pthread_mutex_unlock(&ahead.lock);
  if (!ahead.running) start_threads();
  return r;
}

/* Drops the queue, for a load that does not continue the last one. */
static void restart(struct ring *r, int64_t k) {
  for (int i = 0; i < r->n; i++) r->slots[i].k = 0;
  for (struct slot *s = r->slots; s < r->slots + r->n; s++)
    while (s->done < s->begun) pthread_cond_wait(&ahead.done, &ahead.lock);
  r->newest = k - 1;
}

static void queue(struct ring *r, int64_t k, int64_t last) {
  r->due = k;
  while (r->newest < k || (r->newest < last && r->newest < k + r->n - 1)) {
    struct slot *s = &r->slots[++r->newest % r->n];
    s->k = r->newest;
    s->begun = s->done = 0;
    s->failed = false;
  }
  pthread_cond_broadcast(&ahead.queued);
}

const float *pd_ahead(int input, bool evaluation, int64_t k, int64_t last) {
  if (!pd_data_threads()) return NULL;
  struct ring *r = ring_of(input, evaluation);
  const struct slot *s = &r->slots[k % r->n];
  if (k < r->due && !evaluation) return NULL; /* loaded once more, to recompute */
  const double started = pd_seconds();
  pthread_mutex_lock(&ahead.lock);
  if (k != r->due && k != r->due + 1) restart(r, k);
  queue(r, k, last);
  while (s->done < pd.stage->microbatch) pthread_cond_wait(&ahead.done, &ahead.lock);
  pthread_mutex_unlock(&ahead.lock);
  ahead.waited += pd_seconds() - started;
  if (s->failed) pd_fail("%s", s->why);
  return s->samples;
}
