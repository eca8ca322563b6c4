/* Numbers from the host to the arena and back: views, which wait; inputs and figures, which do not. */
#include "data/data.h"
#include "pd_cuda.h"
#include "offload/spill.h"
#include "workers.h"

#include <stdlib.h>
#include <string.h>

/* An input's microbatches alternate between pinned buffers, so that reading files overlaps with copying. */
enum { AHEAD = 2 };
struct Loads {
  struct {
    char *at;
    cudaEvent_t copied;
  } buffer[AHEAD];
  int turn;
  char *floats; /* of an input in bf16: a sample of each worker */
};

static struct {
  char *room; /* of the view or fill at hand */
  size_t room_bytes;
  Loads *loads; /* by input */
  struct {
    float *pinned; /* [PD_FETCHES][most] */
    int64_t most;  /* elements of one */
    cudaEvent_t come[PD_FETCHES];
    int next;
  } fetches;
} staging;

/* ---- bfloat16 on the host ---------------------------------------------------------------------- */

/* To nearest even; a NaN stays one. */
static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x) {
  uint32_t bits = static_cast<uint32_t>(x) << 16;
  float y;
  memcpy(&y, &bits, sizeof y);
  return y;
}

/* n floats become n bfloat16 numbers, which may stand in the first half of their bytes. */
static void narrow(const char *numbers, int64_t n, char *narrowed) {
  enum { BLOCK = 256 };
  for (int64_t first = 0; first < n; first += BLOCK) {
    float from[BLOCK];
    uint16_t to[BLOCK];
    int64_t m = n - first < BLOCK ? n - first : static_cast<int64_t>(BLOCK);
    memcpy(from, numbers + first * 4, static_cast<size_t>(m) * sizeof *from);
    for (int64_t i = 0; i < m; i++) to[i] = to_bf16(from[i]);
    memcpy(narrowed + first * 2, to, static_cast<size_t>(m) * sizeof *to);
  }
}

/* In place: n bfloat16 numbers in the second half of the bytes become n floats. */
static void widen(char *numbers, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint16_t x;
    memcpy(&x, numbers + n * 2 + i * 2, sizeof x);
    float y = from_bf16(x);
    memcpy(numbers + i * 4, &y, sizeof y);
  }
}

/* ---- views ----------------------------------------------------------------------------------------- */

static char *need_room(int64_t n) {
  size_t bytes = sizeof(float) * static_cast<size_t>(n);
  if (bytes <= staging.room_bytes) return staging.room;
  free(staging.room);
  staging.room = static_cast<char *>(malloc(staging.room_bytes = bytes));
  if (!staging.room) pd_fail("out of memory: cannot get %zu bytes", bytes);
  return staging.room;
}

static size_t bytes_of(int64_t n, bool bf16) { return static_cast<size_t>(n) * (bf16 ? 2 : sizeof(float)); }

static void copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  pd_device_wait("the device's work");
  pd_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, pd_stream), "copy to or from the device");
  pd_cuda_check(cudaStreamSynchronize(pd_stream), "copy to or from the device");
}

const float *pd_view(const void *at, int64_t n, bool bf16) {
  char *to = need_room(n);
  pd_spill_look(at, false);
  copy(bf16 ? to + n * 2 : to, at, bytes_of(n, bf16), cudaMemcpyDeviceToHost);
  if (bf16) widen(to, n);
  return reinterpret_cast<float *>(to);
}

float *pd_fill(void *, int64_t n, bool) { return reinterpret_cast<float *>(need_room(n)); }

void pd_filled(void *at, int64_t n, bool bf16) {
  if (bf16) narrow(staging.room, n, staging.room);
  pd_spill_look(at, true);
  copy(at, staging.room, bytes_of(n, bf16), cudaMemcpyHostToDevice);
}

enum { THREADS = 256, EACH = 8 };

static __global__ void __launch_bounds__(THREADS) round_all(int64_t n, const float *from, pd_bf16 *to) {
  int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS * EACH + threadIdx.x;
  for (int64_t i = first; i < n && i < first + THREADS * EACH; i += THREADS) to[i] = __float2bfloat16_rn(from[i]);
}

void pd_round(void *to, const float *from, int64_t n, bool bf16) {
  pd_spill_look(from, false);
  pd_spill_look(to, true);
  if (!bf16) {
    pd_cuda_check(cudaMemcpyAsync(to, from, bytes_of(n, false), cudaMemcpyDeviceToDevice, pd_stream),
                  "copy weights");
    return;
  }
  int64_t blocks = (n + THREADS * EACH - 1) / (THREADS * EACH);
  PD_LAUNCH(round_all, static_cast<unsigned>(blocks), THREADS, 0, pd_stream, n, from, static_cast<pd_bf16 *>(to));
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

static void loads_start(void) {
  const struct pd_stage *s = pd.stage;
  staging.loads = static_cast<Loads *>(pd_allocate(sizeof *staging.loads * static_cast<size_t>(s->n_inputs)));
  for (int i = 0; i < s->n_inputs; i++)
    if (pd_is_image(&s->inputs[i])) pd_workers_start();
  for (int i = 0; i < s->n_inputs; i++) {
    const struct pd_input *in = &s->inputs[i];
    for (auto &b : staging.loads[i].buffer) {
      b.at = static_cast<char *>(pd_cuda_pinned(bytes_of(s->microbatch * in->elements, in->bf16)));
      b.copied = pd_cuda_event();
    }
    if (in->bf16)
      staging.loads[i].floats = static_cast<char *>(pd_allocate(bytes_of(pd_workers() * in->elements, false)));
  }
}

int pd_load_workers(void) { return pd_workers(); }

/* For bf16 inputs, each worker writes a sample as floats first. */
void pd_load_samples(int input, void *to, bool shared, pd_load_sample *load, const void *context) {
  const struct pd_input *in = &pd.stage->inputs[input];
  Loads *l = &staging.loads[input];
  l->turn = (l->turn + 1) % AHEAD;
  auto *b = &l->buffer[l->turn];
  int64_t n = pd.stage->microbatch * in->elements;
  pd_cuda_await(b->copied, "inputs to be copied to the device");
  const auto sample = [&](int i, int worker) {
    char *at = b->at + bytes_of(i * in->elements, in->bf16);
    char *numbers = in->bf16 ? l->floats + bytes_of(worker * in->elements, false) : at;
    load(context, i, worker, numbers);
    if (in->bf16) narrow(numbers, in->elements, at);
  };
  if (shared)
    pd_workers_share(0, static_cast<int>(pd.stage->microbatch), sample);
  else
    for (int i = 0; i < pd.stage->microbatch; i++) sample(i, 0);
  pd_cuda_check(cudaMemcpyAsync(to, b->at, bytes_of(n, in->bf16), cudaMemcpyHostToDevice, pd_stream),
                "copy inputs to the device");
  pd_cuda_check(cudaEventRecord(b->copied, pd_stream), "record an event");
}

/* ---- figures ---------------------------------------------------------------------------------------------- */

static void fetches_start(void) {
  staging.fetches = {};
  for (int i = 0; i < pd.stage->n_figures; i++) {
    int64_t n = pd.stage->microbatch * pd.stage->figures[i].elements;
    if (n > staging.fetches.most) staging.fetches.most = n;
  }
  staging.fetches.pinned =
      static_cast<float *>(pd_cuda_pinned(PD_FETCHES * bytes_of(staging.fetches.most, false) + 1));
  for (int i = 0; i < PD_FETCHES; i++) staging.fetches.come[i] = pd_cuda_event();
}

void pd_pinned_start(void) {
  loads_start();
  fetches_start();
}

const float *pd_fetch(const float *from, int64_t n) {
  int i = staging.fetches.next;
  float *to = staging.fetches.pinned + i * staging.fetches.most;
  staging.fetches.next = (i + 1) % PD_FETCHES;
  pd_cuda_check(cudaMemcpyAsync(to, from, bytes_of(n, false), cudaMemcpyDeviceToHost, pd_stream),
                "fetch a figure");
  pd_cuda_check(cudaEventRecord(staging.fetches.come[i], pd_stream), "record an event");
  return to;
}

bool pd_fetched(const float *fetch) {
  return pd_cuda_happened(staging.fetches.come[(fetch - staging.fetches.pinned) / staging.fetches.most]);
}
