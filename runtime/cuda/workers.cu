/* Worker threads that wait for work; the calling thread takes part. One caller at a time uses the workers. */
#include "workers.h"

#include "device.h"
#include "pd_cuda.h"
#include "processors.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <signal.h>
#include <stdlib.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* These outlive static objects: a launch may end while they work. */
struct Workers {
  std::vector<std::thread> others; /* in addition to the caller, as workers from 1 */
  std::mutex sharing;              /* who has some */
  std::mutex lock;
  std::condition_variable begins, ends;
  const pd_shared_work *work;
  std::atomic<int> next;
  int end, busy;
  uint64_t turn; /* of sharing */
  bool over;
};
static Workers &workers = *new Workers{};

static void take_numbers(int worker) {
  for (int i; (i = workers.next.fetch_add(1)) < workers.end;) (*workers.work)(i, worker);
}

static void serve(int worker) {
  std::unique_lock<std::mutex> held(workers.lock);
  for (uint64_t seen = 0;;) {
    workers.begins.wait(held, [&] { return workers.over || workers.turn != seen; });
    if (workers.over) return;
    seen = workers.turn;
    held.unlock();
    take_numbers(worker);
    held.lock();
    if (--workers.busy == 0) workers.ends.notify_one();
  }
}

static void share(int first, int end, const pd_shared_work &work) {
  std::unique_lock<std::mutex> held(workers.lock);
  workers.work = &work;
  workers.next = first;
  workers.end = end;
  workers.busy = static_cast<int>(workers.others.size());
  workers.turn++;
  workers.begins.notify_all();
  held.unlock();
  take_numbers(0);
  held.lock();
  workers.ends.wait(held, [] { return workers.busy == 0; });
}

void pd_workers_share(int first, int end, const pd_shared_work &work) {
  std::unique_lock<std::mutex> sharing(workers.sharing, std::try_to_lock);
  if (sharing.owns_lock() && !workers.others.empty()) {
    share(first, end, work);
    return;
  }
  for (int i = first; i < end; i++) work(i, 0);
}

/* The processors that the launcher bound this rank to or, without a binding, its share; at most those near its
 * device. */
int pd_host_threads(void) {
  const char *wish = getenv("OMP_NUM_THREADS");
  if (wish && atoi(wish) > 0) return atoi(wish);
  const int all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), given = pd_processors_given();
  const int share = given && given < all ? given : all / pd_ranks_here();
  const int usable = pd_processors() && pd_processors() < share ? pd_processors() : share;
  return usable > 0 ? usable : 1;
}

/* The main thread handles signals. */
void pd_workers_start() {
  sigset_t all, before;
  if (!workers.others.empty()) return;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  for (int worker = 1; worker < pd_host_threads(); worker++) workers.others.emplace_back(serve, worker);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int pd_workers() { return 1 + static_cast<int>(workers.others.size()); }

void pd_workers_finish() {
  workers.lock.lock();
  workers.over = true;
  workers.begins.notify_all();
  workers.lock.unlock();
  for (std::thread &t : workers.others) t.join();
  workers.others.clear();
}
