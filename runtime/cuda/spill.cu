/* The mover of offloaded blocks on a GPU, from and to their place (spill_place.h), in separate streams. A block
 * gets pages of device memory before it is read (pages.h), after leaving blocks have released theirs, which
 * requires the device to finish its work on them. The host enqueues requests without waiting; computation waits by
 * events. */
#include "offload/spill.h"

#include "home.h"
#include "pages.h"
#include "spill_place.h"

#include <algorithm>
#include <deque>
#include <string.h>
#include <vector>

/* A block's state in addition to struct pd_spill_block, at the same index. */
struct Moving {
  bool has_pages;
  bool leaves; /* the block keeps its pages until the device has finished with it */
  bool stale;  /* and differs from the offloaded copy */
  bool comes;  /* computation does not wait for `arrived` yet */
  bool room;   /* its contents will be overwritten */
  pd_spill_events events;
};

static struct {
  std::vector<Moving> moving;
  std::deque<pd_spill_block *> asked;    /* blocks without pages yet, in the order of need */
  std::vector<pd_spill_block *> leaving; /* leaving blocks that still have pages */
  const pd_spill_place *place;           /* NULL: not started */
} mover;

static Moving &of(const pd_spill_block *b) { return mover.moving[static_cast<size_t>(b - pd_spill_blocks.at)]; }

cudaStream_t pd_spill_stream() {
  cudaStream_t stream;
  pd_cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return stream;
}

void pd_spill_record(cudaEvent_t event, cudaStream_t stream) {
  pd_cuda_check(cudaEventRecord(event, stream), "record an event");
}

void pd_spill_order(cudaStream_t stream, cudaEvent_t behind) {
  pd_cuda_check(cudaStreamWaitEvent(stream, behind, 0), "let a stream wait");
}

/* ---- start and end ----------------------------------------------------------------------------------- */

const char *pd_spill_usual_place(void) { return "host"; }

bool pd_spill_place_start(const char *where, int64_t bytes, char *why) {
  const pd_spill_place *to = strcmp(where, "host") ? &pd_spill_to_disk : &pd_spill_to_host;
  if (!to->start(where, bytes, why) || !pd_pages_start(why)) return false;
  mover.moving.resize(static_cast<size_t>(pd_spill_blocks.n));
  for (Moving &m : mover.moving) m.events = {pd_cuda_event(), pd_cuda_event(), pd_cuda_event(), NULL};
  mover.place = to;
  return pd_home_start(to == &pd_spill_to_host, why);
}

/* The device has finished computation; copies may be in flight. */
void pd_spill_place_finish(void) {
  for (const Moving &m : mover.moving)
    for (cudaEvent_t event : {m.events.arrived, m.events.gone}) pd_cuda_await(event, "blocks to be moved");
  pd_home_finish();
  if (mover.place) mover.place->finish();
  mover.place = NULL;
}

/* Describes the wait of a block that arrives or leaves. */
static void await(const pd_spill_block *b, cudaEvent_t event, const char *what) {
  char name[PD_WHY / 2], whole[PD_WHY];
  snprintf(whole, sizeof whole, "%s %s", pd_spill_name(b, name, sizeof name), what);
  pd_cuda_await(event, whole);
  if (mover.place->failure()) pd_fail("%s", mover.place->failure());
}

/* ---- leaving blocks ---------------------------------------------------------------------------------- */

static bool is_done(const pd_spill_block *b) {
  const pd_spill_events &e = of(b).events;
  return pd_cuda_happened(e.used) && pd_cuda_happened(e.arrived) && pd_cuda_happened(e.gone);
}

static void take_pages(pd_spill_block *b) {
  pd_pages_take(b->block.offset, b->block.bytes);
  of(b).has_pages = of(b).leaves = of(b).stale = false;
}

static void take_pages_of_done() {
  auto done = [](pd_spill_block *b) { return is_done(b) && (take_pages(b), true); };
  mover.leaving.erase(std::remove_if(mover.leaving.begin(), mover.leaving.end(), done), mover.leaving.end());
}

/* Releases the pages of the block that has been leaving longest. */
static void await_pages() {
  if (mover.leaving.empty()) pd_fail("internal: the planned memory cannot hold the next block");
  pd_spill_block *b = mover.leaving.front();
  const pd_spill_events &e = of(b).events;
  for (cudaEvent_t event : {e.used, e.arrived, e.gone}) await(b, event, "to leave the GPU");
  take_pages_of_done();
}

static void leave(pd_spill_block *b, bool changed) {
  Moving &m = of(b);
  auto queued = std::find(mover.asked.begin(), mover.asked.end(), b);
  if (queued != mover.asked.end()) { /* nobody has used it */
    mover.asked.erase(queued);
    return;
  }
  pd_spill_record(m.events.used, pd_stream);
  if (changed) mover.place->send(b, m.events);
  b->written |= changed;
  m.leaves = true;
  mover.leaving.push_back(b);
}

/* ---- arriving blocks ---------------------------------------------------------------------------------- */

/* Zeros the block if it has no offloaded copy yet, in the order of computation. */
static void begin_copy(pd_spill_block *b) {
  Moving &m = of(b);
  if (m.room) return;
  if (b->written) {
    mover.place->bring(b, m.events);
    m.comes = true;
  } else {
    pd_cuda_check(cudaMemsetAsync(pd.arena + b->block.offset, 0, b->block.bytes, pd_stream), "clear a block");
  }
}

/* Reads the blocks that pages are available for. */
static void begin_copies() {
  if (!mover.leaving.empty()) take_pages_of_done();
  while (!mover.asked.empty() &&
         pd_pages_give(mover.asked.front()->block.offset, mover.asked.front()->block.bytes)) {
    of(mover.asked.front()).has_pages = true;
    begin_copy(mover.asked.front());
    mover.asked.pop_front();
  }
}

/* A block that is still leaving stays resident: its contents equal the offloaded copy, unless the host has changed
 * that copy. */
static void come(pd_spill_block *b, bool room) {
  Moving &m = of(b);
  m.room = room;
  if (m.leaves) {
    mover.leaving.erase(std::find(mover.leaving.begin(), mover.leaving.end(), b));
    m.leaves = false;
    m.comes = true; /* a pending copy to the offload place must end before the block changes */
    if (m.stale) begin_copy(b);
    m.stale = false;
  } else {
    mover.asked.push_back(b);
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
  if (mover.place->may_fail) await(b, m.events.arrived, "to come to the GPU");
  pd_spill_order(pd_stream, m.events.arrived);
  pd_spill_order(pd_stream, m.events.gone);
}

/* ---- work of the host on offloaded blocks --------------------------------------------------------------- */

char *pd_spill_begin_at_home(pd_spill_block *b, cudaStream_t stream) {
  const Moving &m = of(b);
  if (b->here) pd_fail("internal: a block is resident while its host copy changes");
  for (cudaEvent_t event : {m.events.used, m.events.arrived, m.events.gone}) pd_spill_order(stream, event);
  return pd_spill_pinned(b);
}

void pd_spill_end_at_home(pd_spill_block *b, cudaEvent_t done) {
  Moving &m = of(b);
  m.events.at_home = done;
  m.stale = m.leaves;
  b->written = true;
}

/* The next user of the memory waits for this event. */
void pd_spill_await_written(struct pd_spill_block *b) { (void)b; }
void pd_spill_unused(size_t from, size_t to) { (void)from, (void)to; }
