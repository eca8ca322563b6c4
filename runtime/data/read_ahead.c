/* Asks the system for the samples of the next microbatches on a thread of its own: a request for pages of a file waits
 * while the disk's queue is full. */
#include "data/load.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct wish {
  int64_t asked, wanted; /* the last microbatch that is being read, and the last one to read */
};

static struct {
  pthread_mutex_t lock;
  pthread_cond_t wished;
  pthread_t thread;
  bool running, ending;
  int inputs;
  struct wish *wish; /* by input */
  void (*ask)(int input, int64_t k);
} reading = {.lock = PTHREAD_MUTEX_INITIALIZER, .wished = PTHREAD_COND_INITIALIZER};

/* The input with the oldest microbatch to ask for; -1: none. */
static int next_input(void) {
  int next = -1;
  for (int i = 0; i < reading.inputs; i++) {
    const struct wish *w = &reading.wish[i];
    if (w->asked < w->wanted && (next < 0 || w->asked < reading.wish[next].asked)) next = i;
  }
  return next;
}

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&reading.lock);
  while (!reading.ending) {
    const int input = next_input();
    if (input < 0) {
      pthread_cond_wait(&reading.wished, &reading.lock);
      continue;
    }
    const int64_t k = ++reading.wish[input].asked;
    pthread_mutex_unlock(&reading.lock);
    reading.ask(input, k);
    pthread_mutex_lock(&reading.lock);
  }
  pthread_mutex_unlock(&reading.lock);
  return NULL;
}

void pd_read_ahead_start(int inputs, void (*ask)(int input, int64_t k)) {
  sigset_t all, before; /* the training thread handles signals */
  reading.inputs = inputs, reading.ask = ask;
  reading.wish = pd_allocate(sizeof *reading.wish * (size_t)inputs);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&reading.thread, NULL, work, NULL);
  if (failed) pd_fail("cannot start the thread that reads data ahead: %s", strerror(failed));
  reading.running = true;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void pd_read_ahead(int input, int64_t first, int64_t last) {
  struct wish *w = &reading.wish[input];
  pthread_mutex_lock(&reading.lock);
  if (w->asked < first - 1) w->asked = first - 1;
  if (w->wanted < last) w->wanted = last;
  pthread_cond_signal(&reading.wished);
  pthread_mutex_unlock(&reading.lock);
}

void pd_read_ahead_finish(void) {
  if (!reading.running) return;
  pthread_mutex_lock(&reading.lock);
  reading.ending = true;
  pthread_cond_signal(&reading.wished);
  pthread_mutex_unlock(&reading.lock);
  pthread_join(reading.thread, NULL);
  reading.running = reading.ending = false;
}
