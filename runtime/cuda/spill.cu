/* Who moves blocks of a model that spills, on a GPU: copies from and to pinned memory of the host, in a stream each way.
 * What is read gets its pages of the device's memory first (pages.h), and waits for those until blocks that have left give
 * theirs back, which they do once the device has done what it still had to do with them. The host asks and goes on;
 * computation waits by events for what it needs. */
#include "spill.h"

#include "internal.h"
#include "pages.h"
#include "pd_cuda.h"
#include "transport.h"

#include <algorithm>
#include <deque>
#include <string.h>
#include <vector>

/* What is known of a block beside its struct pd_spill_block, at the same place in its array. */
struct Moving {
  bool has_pages;
  bool leaves;         /* it has them until the device is done with it */
  bool comes;          /* computation has not been told to wait for `arrived` */
  bool room;           /* what is in it is going to be overwritten */
  cudaEvent_t used;    /* by computation, as it was told to leave */
  cudaEvent_t arrived; /* a copy to the device */
  cudaEvent_t gone;    /* a copy home */
};

static std::vector<Moving> moving;
static std::deque<pd_spill_block *> asked;    /* and without pages yet, in the order of need */
static std::vector<pd_spill_block *> leaving; /* and still with pages */
static cudaStream_t in, out;
static char *home; /* pinned */

static Moving &of(const pd_spill_block *b) { return moving[static_cast<size_t>(b - pd_spill_blocks.at)]; }
static char *on_device(const pd_spill_block *b) { return pd.arena + b->block.offset; }

static void record(cudaEvent_t event, cudaStream_t stream) {
  pd_cuda_check(cudaEventRecord(event, stream), "record an event");
}

static void let_wait(cudaStream_t stream, cudaEvent_t event) {
  pd_cuda_check(cudaStreamWaitEvent(stream, event, 0), "let a stream wait");
}

/* ---- start and end ----------------------------------------------------------------------------------- */

const char *pd_spill_usual_place(void) { return "host"; }

static bool get_home(size_t bytes, char *why) {
  cudaError_t status = cudaMallocHost(&home, bytes);
  return status == cudaSuccess ||
         pd_refuse(why, "--spill host: cannot pin the %.1f MiB of this machine's memory that come and go: %s",
                   static_cast<double>(bytes) / (1 << 20), cudaGetErrorString(status));
}

bool pd_spill_place_start(const char *place, int64_t bytes, char *why) {
  if (strcmp(place, "host"))
    return pd_refuse(why,
                     "--spill '%s': programs for GPUs keep what comes and goes in pinned memory: --spill host",
                     place);
  if (!pd_pages_start(why) || !get_home(static_cast<size_t>(bytes), why)) return false;
  moving.resize(static_cast<size_t>(pd_spill_blocks.n));
  for (Moving &m : moving) m.used = pd_cuda_event(), m.arrived = pd_cuda_event(), m.gone = pd_cuda_event();
  for (cudaStream_t *s : {&in, &out})
    pd_cuda_check(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "make a stream");
  return true;
}

/* The device has nothing more to do with what computes; copies may be under way. */
void pd_spill_place_finish(void) {
  if (!home) return;
  for (cudaStream_t s : {in, out}) {
    pd_cuda_check(cudaStreamSynchronize(s), "end copies");
    pd_cuda_check(cudaStreamDestroy(s), "end a stream");
  }
  pd_cuda_check(cudaFreeHost(home), "give back pinned memory");
  home = NULL;
}

/* ---- what leaves ------------------------------------------------------------------------------------- */

static bool is_done(const pd_spill_block *b) {
  const Moving &m = of(b);
  return pd_cuda_happened(m.used) && pd_cuda_happened(m.arrived) && pd_cuda_happened(m.gone);
}

static void take_pages(pd_spill_block *b) {
  pd_pages_take(b->block.offset, b->block.bytes);
  of(b).has_pages = of(b).leaves = false;
}

static void take_pages_of_done() {
  auto done = [](pd_spill_block *b) { return is_done(b) && (take_pages(b), true); };
  leaving.erase(std::remove_if(leaving.begin(), leaving.end(), done), leaving.end());
}

/* Of the block that has been leaving longest. */
static void await_pages() {
  if (leaving.empty()) pd_fail("internal: the planned memory does not suffice for what comes");
  pd_spill_block *b = leaving.front();
  char name[PD_WHY / 2], what[PD_WHY];
  snprintf(what, sizeof what, "%s to leave the GPU", pd_spill_name(b, name, sizeof name));
  for (cudaEvent_t event : {of(b).used, of(b).arrived, of(b).gone}) pd_cuda_await(event, what);
  take_pages_of_done();
}

static void leave(pd_spill_block *b, bool changed) {
  Moving &m = of(b);
  auto queued = std::find(asked.begin(), asked.end(), b);
  if (queued != asked.end()) { /* nobody has used it */
    asked.erase(queued);
    return;
  }
  record(m.used, pd_stream);
  if (changed) {
    let_wait(out, m.used);
    pd_cuda_check(cudaMemcpyAsync(home + b->home, on_device(b), b->block.bytes, cudaMemcpyDeviceToHost, out),
                  "copy a block to the host");
    record(m.gone, out);
    b->written = true;
  }
  m.leaves = true;
  leaving.push_back(b);
}

/* ---- what comes --------------------------------------------------------------------------------------- */

static void begin_copy(pd_spill_block *b) {
  Moving &m = of(b);
  if (m.room) return;
  pd_cuda_check(b->written
                    ? cudaMemcpyAsync(on_device(b), home + b->home, b->block.bytes, cudaMemcpyHostToDevice, in)
                    : cudaMemsetAsync(on_device(b), 0, b->block.bytes, in),
                "copy a block to the device");
  record(m.arrived, in);
  m.comes = true;
}

/* What there are pages for. */
static void begin_copies() {
  if (!leaving.empty()) take_pages_of_done();
  while (!asked.empty() && pd_pages_give(asked.front()->block.offset, asked.front()->block.bytes)) {
    of(asked.front()).has_pages = true;
    begin_copy(asked.front());
    asked.pop_front();
  }
}

/* One that is still leaving stays as it is: what it holds is what it would be read as. */
static void come(pd_spill_block *b, bool room) {
  Moving &m = of(b);
  m.room = room;
  if (m.leaves) {
    leaving.erase(std::find(leaving.begin(), leaving.end(), b));
    m.leaves = false;
    m.comes = true; /* where it has left for home that must be over before it is changed */
  } else {
    asked.push_back(b);
  }
  begin_copies();
}

void pd_spill_request(struct pd_spill_block *b, enum pd_spill_request what) {
  b->here = what == PD_SPILL_READ || what == PD_SPILL_ROOM;
  if (b->here)
    come(b, what == PD_SPILL_ROOM);
  else
    leave(b, what == PD_SPILL_WRITE);
}

void pd_spill_await(struct pd_spill_block *b) {
  Moving &m = of(b);
  begin_copies();
  while (!m.has_pages) {
    await_pages();
    begin_copies();
  }
  if (!m.comes) return;
  m.comes = false;
  let_wait(pd_stream, m.arrived);
  let_wait(pd_stream, m.gone);
}

/* Whoever needs its memory waits for that. */
void pd_spill_await_written(struct pd_spill_block *b) { (void)b; }
void pd_spill_unused(size_t from, size_t to) { (void)from, (void)to; }
