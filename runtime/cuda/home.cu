/* What a GPU's host does with blocks of a model that spills where they are at home, in its pinned memory: it works beside the
 * device, in host functions on a stream of their own, so that CUDA keeps the order. Copies from home wait for the work on
 * their block, and the work for copies to it. It is shared among threads that are made once. */
#include "home.h"

#include "internal.h"
#include "spill_place.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* ---- threads ----------------------------------------------------------------------------------------- */

/* These outlive static objects: a launch may end while they work. */
struct Threads {
  std::vector<std::thread> others; /* beside whoever has work to share */
  std::mutex lock;
  std::condition_variable begins, ends;
  const pd_home_work *work;
  std::atomic<int> next;
  int end, busy;
  uint64_t turn; /* of sharing */
  bool over;
};
static Threads &threads = *new Threads{};

static void take_numbers() {
  for (int i; (i = threads.next.fetch_add(1)) < threads.end;) (*threads.work)(i);
}

static void serve() {
  std::unique_lock<std::mutex> held(threads.lock);
  for (uint64_t seen = 0;;) {
    threads.begins.wait(held, [&] { return threads.over || threads.turn != seen; });
    if (threads.over) return;
    seen = threads.turn;
    held.unlock();
    take_numbers();
    held.lock();
    if (--threads.busy == 0) threads.ends.notify_one();
  }
}

void pd_home_share(int first, int end, const pd_home_work &work) {
  std::unique_lock<std::mutex> held(threads.lock);
  threads.work = &work;
  threads.next = first;
  threads.end = end;
  threads.busy = static_cast<int>(threads.others.size());
  threads.turn++;
  threads.begins.notify_all();
  held.unlock();
  take_numbers();
  held.lock();
  threads.ends.wait(held, [] { return threads.busy == 0; });
}

/* The processors that this rank is bound to, or, where it is bound to none, its share of all. */
static int usual_threads() {
  cpu_set_t set;
  const char *wish = getenv("OMP_NUM_THREADS");
  if (wish && atoi(wish) > 0) return atoi(wish);
  const int all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int mine = sched_getaffinity(0, sizeof set, &set) ? all : CPU_COUNT(&set);
  const int share = mine < all ? mine : all / pd_ranks_here();
  return share > 0 ? share : 1;
}

/* Signals are the main thread's. */
void pd_home_make_threads() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  for (int n = usual_threads(); n > 1; n--) threads.others.emplace_back(serve);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int pd_home_threads() { return 1 + static_cast<int>(threads.others.size()); }

static void end_threads() {
  threads.lock.lock();
  threads.over = true;
  threads.begins.notify_all();
  threads.lock.unlock();
  for (std::thread &t : threads.others) t.join();
  threads.others.clear();
}

/* ---- start and end ------------------------------------------------------------------------------------- */

static cudaStream_t stream;
static std::vector<cudaEvent_t> done; /* by group: its last work */
static std::vector<float *> copies;   /* by parameter; NULL: its gradient is at home */

float *pd_home_copy(int parameter) { return copies[static_cast<size_t>(parameter)]; }

static void make_copies() {
  const pd_stage *s = pd.stage;
  copies.resize(static_cast<size_t>(s->n_parameters));
  for (int i = 0; i < s->n_parameters; i++) {
    const pd_parameter *p = &s->parameters[i];
    if (p->n_uses && !p->frozen && s->spilled->parameters[i].gradients_stay)
      copies[static_cast<size_t>(i)] =
          static_cast<float *>(pd_cuda_pinned(static_cast<size_t>(p->elements) * sizeof(float)));
  }
}

bool pd_home_start(bool pinned, char *why) {
  if (!pd_updates_at_home()) return true;
  if (!pinned)
    return pd_refuse(why,
                     "--spill: these programs update parameters on the host, in its memory: leave it out, or make "
                     "programs by 'pdc --update device'");
  for (int i = 0; i < pd_spill_blocks.n; i++)
    while (static_cast<int>(done.size()) <= pd_spill_blocks.at[i].block.group) done.push_back(pd_cuda_event());
  make_copies();
  stream = pd_spill_stream();
  pd_home_make_threads();
  return true;
}

void pd_home_finish() {
  if (!pd_updates_at_home()) return;
  pd_cuda_check(cudaStreamSynchronize(stream), "end the host's updates");
  pd_cuda_check(cudaStreamDestroy(stream), "end a stream");
  end_threads();
}

/* ---- work ---------------------------------------------------------------------------------------------- */

char *pd_home_at(const void *at) {
  const pd_spill_block *b = pd_spill_block_at(at);
  if (!b) pd_fail("internal: what the host is to work on never comes and goes");
  return pd_spill_pinned(b) + (static_cast<const char *>(at) - pd.arena - b->block.offset);
}

static void run(void *of) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()> *>(of));
  (*work)();
}

void pd_home_then(const std::function<void()> &work) {
  pd_cuda_check(cudaLaunchHostFunc(stream, run, new std::function<void()>(work)), "have the host work");
}

void pd_home_after(cudaEvent_t event) { pd_spill_order(stream, event); }
void pd_home_record(cudaEvent_t event) { pd_spill_record(event, stream); }

/* Blocks are zeros before anything has gone home. */
static void begin(pd_spill_block *b) {
  char *at = pd_spill_begin_at_home(b, stream);
  if (!b->written) memset(at, 0, b->block.bytes);
}

void pd_home_tiles(enum pd_step_kind kind, int first, int end, const pd_home_work &work) {
  const int group = pd_spill_block_at(pd_weights_at(&pd.stage->parameters[first], 0))->block.group;
  const pd_step step = {.kind = kind, .part = 0, .slot = 0, .first = false, .group = group, .at_home = true};
  const int from = pd_first_tile(first), to = pd_first_tile(end);
  auto for_blocks = [&](auto each) {
    for (int i = 0; i < pd_spill_blocks.n; i++)
      if (pd_use_of(&step, &pd_spill_blocks.at[i].block) & PD_HOME) each(&pd_spill_blocks.at[i]);
  };
  const cudaEvent_t last = done[static_cast<size_t>(group)];
  for_blocks(begin);
  pd_home_then([=] { pd_home_share(from, to, work); });
  pd_home_record(last);
  for_blocks([=](pd_spill_block *b) { pd_spill_end_at_home(b, last); });
}
