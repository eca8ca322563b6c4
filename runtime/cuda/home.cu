/* Work of a GPU's host on offloaded blocks in pinned memory, concurrently with the device: host functions on a
 * separate stream, so that CUDA orders them. Copies to the device wait for the work on their block, and work waits
 * for copies to the host. Worker threads share the work (workers.h). */
#include "home.h"

#include "offload/spill.h"
#include "update/update.h"
#include "spill_place.h"
#include "workers.h"

#include <memory>
#include <string.h>
#include <vector>

/* ---- start and end ------------------------------------------------------------------------------------- */

static struct {
  cudaStream_t stream;
  std::vector<cudaEvent_t> done; /* by group: its last work */
  std::vector<float *> copies;   /* by parameter; NULL: the gradient is offloaded */
} home;

float *pd_home_copy(int parameter) { return home.copies[static_cast<size_t>(parameter)]; }

static void make_copies() {
  const pd_stage *s = pd.stage;
  home.copies.resize(static_cast<size_t>(s->n_parameters));
  for (int i = 0; i < s->n_parameters; i++) {
    const pd_parameter *p = &s->parameters[i];
    if (p->n_uses && !p->frozen && s->spilled->parameters[i].gradients_stay)
      home.copies[static_cast<size_t>(i)] =
          static_cast<float *>(pd_cuda_pinned(static_cast<size_t>(p->elements) * sizeof(float)));
  }
}

bool pd_home_start(bool pinned, char *why) {
  if (!pd_updates_at_home()) return true;
  if (!pinned)
    return pd_refuse(
        why, "--spill has no effect: these programs update parameters in host memory. help: leave out --spill, or "
             "build with 'pdc --update device'");
  for (int i = 0; i < pd_spill_blocks.n; i++)
    while (static_cast<int>(home.done.size()) <= pd_spill_blocks.at[i].block.group)
      home.done.push_back(pd_cuda_event());
  make_copies();
  home.stream = pd_spill_stream();
  pd_workers_start();
  return true;
}

void pd_home_finish() {
  if (!pd_updates_at_home()) return;
  pd_cuda_check(cudaStreamSynchronize(home.stream), "end the host's updates");
  pd_cuda_check(cudaStreamDestroy(home.stream), "end a stream");
}

/* ---- work ---------------------------------------------------------------------------------------------- */

char *pd_home_at(const void *at) {
  const pd_spill_block *b = pd_spill_block_at(at);
  if (!b) pd_fail("internal: blocks that the host updates are never offloaded");
  return pd_spill_pinned(b) + (static_cast<const char *>(at) - pd.arena - b->block.offset);
}

static void run(void *of) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()> *>(of));
  (*work)();
}

void pd_home_then(const std::function<void()> &work) {
  pd_cuda_check(cudaLaunchHostFunc(home.stream, run, new std::function<void()>(work)), "have the host work");
}

void pd_home_after(cudaEvent_t event) { pd_spill_order(home.stream, event); }
void pd_home_record(cudaEvent_t event) { pd_spill_record(event, home.stream); }

/* Offloaded blocks start as zeros. */
static void begin(pd_spill_block *b) {
  char *at = pd_spill_begin_at_home(b, home.stream);
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
  const cudaEvent_t last = home.done[static_cast<size_t>(group)];
  for_blocks(begin);
  pd_home_then([=] { pd_workers_share(from, to, [&](int tile, int) { work(tile); }); });
  pd_home_record(last);
  for_blocks([=](pd_spill_block *b) { pd_spill_end_at_home(b, last); });
}
