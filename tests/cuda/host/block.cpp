/* Kernels: blocks one after another, in an order of the seed; a block's threads as fibers that give way at
 * barriers and warp operations. A thread that meets none needs no switch: the next one starts on the same stack.
 * */
#include "fiber.h"
#include "host.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

enum : unsigned { MAX_THREADS = 1024, MAX_WARPS = 32 };
enum { WARP = 32 };
enum State : unsigned char { FRESH, READY, IN_WARP, AT_BARRIER, ENDED };

struct Thread {
  Fiber *fiber; /* where it has been left; NULL: it has not started, or runs */
  State state;
  const void *site; /* of the barrier or warp operation that it is in */
  uint3 index;
};

struct Warp {
  unsigned arrived; /* lanes that wait in an operation */
  unsigned mask[WARP];
  void (*step[WARP])(void *const *);
  void *mine[WARP];
  const char *name[WARP];
};

static struct Block {
  const cuda_host_kernel_launch *launch; /* NULL: no kernel runs */
  int threads, ended, at_barrier, counted, count;
  int current;             /* the thread that runs */
  int starting;            /* a free fiber that is switched to starts this one; -1: it chooses */
  int fresh;               /* order[fresh ...] have not started */
  unsigned first, n_ready; /* ring of those that can go on */
  bool newest_first, fresh_first;
  Fiber *running;
  short order[MAX_THREADS], ready[MAX_THREADS];
  Thread thread[MAX_THREADS];
  Warp warp[MAX_WARPS];
} block;

static std::vector<Fiber *> idle;

/* ---- who goes on --------------------------------------------------------------------------------- */

static void make_ready(int t) {
  block.thread[t].state = READY;
  block.ready[(block.first + block.n_ready++) % MAX_THREADS] = (short)t;
}

static int next_thread() { /* -1: none can go on */
  if (block.fresh < block.threads && (block.fresh_first || block.n_ready == 0)) return block.order[block.fresh++];
  if (block.n_ready == 0) return -1;
  block.n_ready--;
  if (block.newest_first) return block.ready[(block.first + block.n_ready) % MAX_THREADS];
  int t = block.ready[block.first];
  block.first = (block.first + 1) % MAX_THREADS;
  return t;
}

static void switch_to(Fiber *to) {
  Fiber *from = block.running;
  block.running = to;
  fiber_switch(from, to);
}

static std::string name_of(int t) {
  uint3 i = block.thread[t].index;
  return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}

[[noreturn]] static void stuck() {
  int ended = -1, waiting = -1, in_warp = -1;
  for (int t = 0; t < block.threads; t++) {
    State s = block.thread[t].state;
    if (s == ENDED && ended < 0) ended = t;
    if (s == AT_BARRIER && waiting < 0) waiting = t;
    if (s == IN_WARP && in_warp < 0) in_warp = t;
  }
  block.current = in_warp >= 0 ? in_warp : waiting;
  threadIdx = block.thread[block.current].index;
  if (in_warp >= 0) {
    Warp *w = &block.warp[in_warp / WARP];
    unsigned missing = w->mask[in_warp % WARP] & ~w->arrived;
    int lane = __builtin_ctz(missing), t = in_warp / WARP * WARP + lane;
    bool gone = t < block.threads && block.thread[t].state == ENDED;
    cuda_host_die("%s waits for lane %d of its warp, %s (lanes missing: 0x%08x)", w->name[in_warp % WARP], lane,
                  t >= block.threads ? "which the block does not have"
                  : gone             ? "which has ended"
                                     : "which waits at __syncthreads",
                  missing);
  }
  cuda_host_die("__syncthreads is missed by thread %s, which has ended", name_of(ended).c_str());
}

/* What a fiber does that holds no thread: takes threads until none is left. */
static void work() {
  for (;;) {
    int t = block.starting >= 0 ? block.starting : next_thread();
    block.starting = -1;
    if (t < 0) {
      if (block.ended < block.threads) stuck();
      idle.push_back(block.running);
      switch_to(fiber_main());
    } else if (block.thread[t].fiber) {
      Fiber *to = block.thread[t].fiber;
      idle.push_back(block.running);
      switch_to(to);
    } else {
      block.current = t;
      threadIdx = block.thread[t].index;
      block.launch->kernel.thread(block.launch->kernel.address, block.launch->parameters.data());
      block.thread[block.current].state = ENDED;
      block.ended++;
    }
  }
}

static Fiber *idle_fiber() {
  if (idle.empty()) return fiber_new(work);
  Fiber *f = idle.back();
  idle.pop_back();
  return f;
}

/* The running thread waits, or is ready behind others: those go on. */
static void give_way() {
  int me = block.current, t = next_thread();
  if (t < 0) stuck();
  if (t != me) {
    block.thread[me].fiber = block.running;
    Fiber *to = block.thread[t].fiber;
    if (!to) {
      block.starting = t;
      to = idle_fiber();
    }
    switch_to(to);
    block.thread[me].fiber = nullptr;
  }
  block.current = me;
  threadIdx = block.thread[me].index;
}

/* ---- barriers and warps -------------------------------------------------------------------------- */

static void check_kernel(const char *what) {
  if (!block.launch) cuda_host_die("%s outside a kernel", what);
}

static int barrier(const void *site, int predicate) {
  check_kernel("__syncthreads");
  Thread *me = &block.thread[block.current];
  me->site = site;
  me->state = AT_BARRIER;
  block.counted += predicate != 0;
  if (++block.at_barrier == block.threads) {
    for (int t = 0; t < block.threads; t++)
      if (block.thread[t].site != site)
        cuda_host_die("this thread and thread %s wait at different __syncthreads: the block's threads have "
                      "diverged",
                      name_of(t).c_str());
    block.at_barrier = 0;
    block.count = block.counted;
    block.counted = 0;
    cuda_host_order order = cuda_host_shuffled((uint64_t)block.threads);
    for (int i = 0; i < block.threads; i++) make_ready((int)order.next());
  }
  give_way();
  return block.count;
}

void __syncthreads() { barrier(__builtin_return_address(0), 0); }
int __syncthreads_count(int predicate) { return barrier(__builtin_return_address(0), predicate); }

int cuda_host_lane() { return block.current % WARP; }

void cuda_host_lane_missing(const char *name, int lane, int source) {
  cuda_host_die("%s: lane %d reads lane %d, which takes no part", name, lane, source);
}

void cuda_host_warp(const char *name, unsigned mask, void *mine, void (*step)(void *const *)) {
  check_kernel(name);
  int first = block.current / WARP * WARP, lane = block.current % WARP;
  Warp *w = &block.warp[block.current / WARP];
  if (!(mask >> lane & 1))
    cuda_host_die("%s: the mask 0x%08x does not name lane %d, which calls", name, mask, lane);
  w->arrived |= 1u << lane;
  w->mask[lane] = mask;
  w->step[lane] = step;
  w->mine[lane] = mine;
  w->name[lane] = name;
  block.thread[block.current].state = IN_WARP;
  if ((w->arrived & mask) == mask) {
    void *lanes[WARP] = {};
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      int i = __builtin_ctz(rest);
      if (w->mask[i] != mask)
        cuda_host_die("%s of mask 0x%08x: lane %d has come with mask 0x%08x", name, mask, i, w->mask[i]);
      if (w->step[i] != step)
        cuda_host_die("%s: lane %d has come to %s: the warp's lanes have diverged", name, i, w->name[i]);
      lanes[i] = w->mine[i];
    }
    step(lanes);
    w->arrived &= ~mask;
    for (unsigned rest = mask & ~(1u << lane); rest; rest &= rest - 1) make_ready(first + __builtin_ctz(rest));
    block.thread[block.current].state = READY;
  } else {
    give_way();
  }
}

/* ---- shared memory ------------------------------------------------------------------------------- */

extern "C" char __start_cuda_host_shared[] __attribute__((weak)), __stop_cuda_host_shared[] __attribute__((weak));

enum { PAGE = 64 << 10, MOST_SHARED = 227 << 10, LEARNING = 4 };

static char *dynamic_end; /* a guard page begins here */

void *cuda_host_dynamic_shared() {
  check_kernel("dynamic shared memory");
  return dynamic_end - (block.launch->shape.shared + 15) / 16 * 16;
}

ptrdiff_t cuda_host_in_shared(const void *p, size_t *bytes) {
  if (!block.launch || (char *)p < dynamic_end || (char *)p >= dynamic_end + PAGE) return -1;
  *bytes = block.launch->shape.shared;
  return (char *)p - (char *)cuda_host_dynamic_shared();
}

/* Which static variables a kernel has cannot be asked, so its first launches tell: what is no longer poison after
 * them. Those parts are poisoned before each of its blocks. */
struct Shared {
  int launches = 0;
  std::vector<std::pair<char *, size_t>> parts = {};
};
static std::unordered_map<const void *, Shared> shared_of;

static bool known(const Shared &s, const char *at) {
  for (auto [first, bytes] : s.parts)
    if (at >= first && at < first + bytes) return true;
  return false;
}

static void learn(Shared *s) {
  const uint64_t *at = (const uint64_t *)(((uintptr_t)__start_cuda_host_shared + 7) / 8 * 8);
  const uint64_t *end = (const uint64_t *)((uintptr_t)__stop_cuda_host_shared / 8 * 8);
  for (; at < end; at++) {
    if (*at == CUDA_HOST_POISON || known(*s, (const char *)at)) continue;
    std::pair<char *, size_t> *last = s->parts.empty() ? nullptr : &s->parts.back();
    if (last && (char *)at > last->first && (char *)at - (last->first + last->second) < 256)
      last->second = (size_t)((char *)(at + 1) - last->first);
    else
      s->parts.push_back({(char *)at, sizeof *at});
  }
}

static void poison_shared(const Shared &s, size_t dynamic) {
  for (auto [at, bytes] : s.parts) cuda_host_poison(at, bytes);
  dynamic = (dynamic + 15) / 16 * 16;
  cuda_host_poison(dynamic_end - dynamic, dynamic);
}

/* ---- blocks -------------------------------------------------------------------------------------- */

static void set_indices(const cuda_host_kernel_launch &launch) {
  int t = 0;
  for (unsigned z = 0; z < launch.shape.block.z; z++)
    for (unsigned y = 0; y < launch.shape.block.y; y++)
      for (unsigned x = 0; x < launch.shape.block.x; x++) block.thread[t++].index = {x, y, z};
  block.threads = t;
}

/* Warp by warp, in any order of both, or all over the block. */
static void order_threads() {
  uint64_t n = (uint64_t)block.threads;
  if (n <= WARP || cuda_host_random_below(4) == 0) {
    cuda_host_order order = cuda_host_shuffled(n);
    for (uint64_t i = 0; i < n; i++) block.order[i] = (short)order.next();
    return;
  }
  uint64_t warps = (n + WARP - 1) / WARP;
  cuda_host_order warp = cuda_host_shuffled(warps), lane = cuda_host_shuffled(WARP);
  int k = 0;
  for (uint64_t i = 0; i < warps; i++) {
    uint64_t first = warp.next() * WARP;
    for (uint64_t j = 0; j < WARP; j++)
      if (uint64_t t = first + lane.next(); t < n) block.order[k++] = (short)t;
  }
}

static void run_block() {
  for (int t = 0; t < block.threads; t++) block.thread[t].state = FRESH;
  block.ended = block.at_barrier = block.counted = block.fresh = block.first = block.n_ready = 0;
  block.starting = -1;
  uint64_t choice = cuda_host_seed() ? cuda_host_random() : 0;
  block.newest_first = choice & 1;
  block.fresh_first = (choice >> 1 & 3) == 3;
  order_threads();
  block.running = fiber_main();
  switch_to(idle_fiber());
}

void cuda_host_run_kernel(const cuda_host_kernel_launch &launch) {
  if (!dynamic_end) {
    char *at = (char *)mmap(nullptr, 2 * PAGE + (MOST_SHARED + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) cuda_host_die("no memory for shared memory");
    dynamic_end = at + PAGE + (MOST_SHARED + PAGE - 1) / PAGE * PAGE;
    mprotect(dynamic_end, PAGE, PROT_NONE);
  }
  Shared &shared = shared_of[launch.kernel.address];
  bool learning = shared.launches++ < LEARNING;
  if (learning)
    cuda_host_poison(__start_cuda_host_shared, (size_t)(__stop_cuda_host_shared - __start_cuda_host_shared));
  block.launch = &launch;
  blockDim = launch.shape.block;
  gridDim = launch.shape.grid;
  set_indices(launch);
  uint64_t x = gridDim.x, y = gridDim.y;
  cuda_host_order order = cuda_host_shuffled(x * y * gridDim.z);
  for (uint64_t i = 0; i < order.n; i++) {
    uint64_t b = order.next();
    blockIdx = {(unsigned)(b % x), (unsigned)(b / x % y), (unsigned)(b / x / y)};
    poison_shared(shared, launch.shape.shared);
    run_block();
    if (learning && i == 0) learn(&shared);
  }
  if (learning) learn(&shared);
  block.launch = nullptr;
}

const char *cuda_host_where() {
  static char text[512];
  if (!block.launch) return cuda_host_doing;
  snprintf(text, sizeof text, "kernel '%s', block (%u, %u, %u), thread (%u, %u, %u)", block.launch->name,
           blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  return text;
}

void cuda_host_out_of_bounds(int64_t index, int64_t elements, size_t size, bool reads) {
  cuda_host_die("%s of %zu bytes at index %lld of a buffer of %lld elements is out of bounds",
                reads ? "a read" : "an access", size, (long long)index, (long long)elements);
}

void cuda_host_misaligned(int64_t index, size_t size, size_t bytes) {
  cuda_host_die("an access of %zu bytes at index %lld of elements of %zu bytes is misaligned", bytes,
                (long long)index, size);
}

void cuda_host_read_of_poison(int64_t index, int64_t elements) {
  cuda_host_die("index %lld of a buffer of %lld elements is read, which nobody has written", (long long)index,
                (long long)elements);
}
