/* The mover of blocks on processors: a thread that reads and writes the file (spill_file.h) during computation.
 * Writes have priority, because they free memory for reads; requests of a kind run in order, and requests of a
 * block too, so that reads follow writes. spill_pages.c manages memory. */
#define _GNU_SOURCE /* pthread_condattr_setclock */
#include "offload/spill_file.h"
#include "spill_pages.h"
#include "offload/spill.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096 };

struct request {
  struct pd_spill_block *block;
  enum pd_spill_request what;
};

/* Rings of writes and reads. */
enum { WRITING, READING, N_QUEUES };
static struct {
  pthread_mutex_t lock;
  pthread_cond_t asked, done;
  struct queue {
    struct request *at;
    int first, n;
  } queue[N_QUEUES];
  int room;
  const struct request *doing; /* the thread's current request; NULL: none */
} mover = {.lock = PTHREAD_MUTEX_INITIALIZER, .asked = PTHREAD_COND_INITIALIZER};

static bool is_pending(const struct pd_spill_block *b) { return b->pending[WRITING] || b->pending[READING]; }

/* At the end of a model's turn. */
void pd_spill_unused(size_t from, size_t to) {
  from = (from + PAGE - 1) / PAGE * PAGE;
  to = to / PAGE * PAGE;
  if (from < to) madvise(pd.arena + from, to - from, MADV_DONTNEED);
  pthread_mutex_lock(&mover.lock);
  pd_pages_idle();
  pthread_mutex_unlock(&mover.lock);
}

/* ---- the thread -------------------------------------------------------------------------------- */

static bool do_request(struct request r) {
  struct pd_spill_block *b = r.block;
  char *at = pd.arena + b->block.offset;
  switch (r.what) {
  case PD_SPILL_READ:
    if (b->written) return pd_spill_file_read(b, 0, at, b->block.bytes, b->checksum);
    memset(at, 0, b->block.bytes);
    return true;
  case PD_SPILL_WRITE: return pd_spill_file_write(b, 0, at, b->block.bytes, &b->checksum);
  default: return true;
  }
}

static void *work(void *unused) {
  pthread_mutex_lock(&mover.lock);
  for (;;) {
    while (!mover.queue[WRITING].n && !mover.queue[READING].n) pthread_cond_wait(&mover.asked, &mover.lock);
    const int of = mover.queue[WRITING].n ? WRITING : READING;
    struct queue *q = &mover.queue[of];
    struct request r = q->at[q->first];
    mover.doing = &r;
    if (r.what < PD_SPILL_WRITE) pd_pages_take(r.block);
    pthread_mutex_unlock(&mover.lock);
    bool ok = do_request(r);
    pthread_mutex_lock(&mover.lock);
    if (!ok) break; /* the next wait reports the failure */
    if (r.what == PD_SPILL_WRITE) r.block->written = true;
    if (r.what >= PD_SPILL_WRITE && !r.block->here) pd_pages_leave(r.block);
    r.block->pending[of]--;
    mover.doing = NULL;
    if (q->n > 0) { /* otherwise the thread ends */
      q->first = (q->first + 1) % mover.room;
      q->n--;
    }
    pthread_cond_signal(&mover.done);
  }
  pthread_cond_signal(&mover.done);
  pthread_mutex_unlock(&mover.lock);
  return unused;
}

/* This thread handles no signals. */
static bool start_thread(void) {
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&mover.done, &clock);
  sigset_t all, before;
  sigfillset(&all);
  pthread_t thread;
  pthread_sigmask(SIG_BLOCK, &all, &before);
  int error = pthread_create(&thread, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error) pthread_detach(thread);
  return !error;
}

const char *pd_spill_usual_place(void) { return NULL; }

bool pd_spill_place_start(const char *place, int64_t bytes, char *why) {
  if (!pd_spill_file_make(place, bytes, why)) return false;
  mover.room = 2 * pd_spill_blocks.n + 1;
  for (int i = 0; i < N_QUEUES; i++)
    mover.queue[i].at = pd_allocate(sizeof *mover.queue[i].at * (size_t)mover.room);
  pd_pages_start();
  if (!start_thread()) return pd_refuse(why, "--spill: cannot start the offload thread");
  return true;
}

/* ---- asking ------------------------------------------------------------------------------------ */

static void put(struct pd_spill_block *b, enum pd_spill_request what, int into) {
  struct queue *q = &mover.queue[into];
  if (q->n == mover.room) {
    pthread_mutex_unlock(&mover.lock);
    pd_fail("internal: room for %d requests to the spill file is not enough", mover.room);
  }
  b->pending[into]++;
  q->at[(q->first + q->n++) % mover.room] = (struct request){b, what};
  pthread_cond_signal(&mover.asked);
}

/* Requests without file access are done at once, unless the thread still works on the block. */
void pd_spill_request(struct pd_spill_block *b, enum pd_spill_request what) {
  pthread_mutex_lock(&mover.lock);
  b->here = what == PD_SPILL_READ || what == PD_SPILL_ROOM;
  if (what == PD_SPILL_READ || what == PD_SPILL_WRITE || is_pending(b))
    put(b, what, what == PD_SPILL_READ || b->pending[READING] ? READING : WRITING);
  else if (what == PD_SPILL_DROP)
    pd_pages_leave(b);
  else
    pd_pages_take(b);
  pthread_mutex_unlock(&mover.lock);
}

/* Drops pending reads and writes, which are not needed any more. */
void pd_spill_place_finish(void) {
  pthread_mutex_lock(&mover.lock);
  for (int i = 0; i < N_QUEUES; i++) mover.queue[i].n = 0;
  while (mover.doing && !pd_spill_file_failure()) pthread_cond_wait(&mover.done, &mover.lock);
  pthread_mutex_unlock(&mover.lock);
}

static bool is_done(const struct pd_spill_block *b, bool written) {
  return !b->pending[WRITING] && (written || !b->pending[READING]);
}

/* Waits a tenth of a second at most; the lock is held. */
static void wait_a_little(void) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 100000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&mover.done, &mover.lock, &until);
}

static void give_up(double waited) {
  char name[PD_WHY / 2];
  const struct request *now = mover.doing;
  bool writes = now && now->what == PD_SPILL_WRITE;
  pd_spill_name(now ? now->block : pd_spill_blocks.at, name, sizeof name);
  pthread_mutex_unlock(&mover.lock);
  pd_fail("the spill file in '%s' did not respond for %.0f s (--timeout): waited to %s %s", pd_spill_file_place(),
          waited, writes ? "write" : "read", name);
}

static void await(const struct pd_spill_block *b, bool written) {
  pthread_mutex_lock(&mover.lock);
  int64_t seen = -1;
  double since = pd_seconds();
  while (!is_done(b, written) && !pd_spill_file_failure()) {
    wait_a_little();
    int64_t now = pd_spill_file_moved();
    double waited = pd_seconds() - since;
    if (now != seen)
      seen = now, since = pd_seconds();
    else if (waited > pd_options.timeout)
      give_up(waited);
  }
  pthread_mutex_unlock(&mover.lock);
  if (pd_spill_file_failure()) pd_fail("%s", pd_spill_file_failure());
}

void pd_spill_await(struct pd_spill_block *b) { await(b, false); }
void pd_spill_await_written(struct pd_spill_block *b) { await(b, true); }
