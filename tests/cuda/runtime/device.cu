/* The contract of device.h for a device: views, rounding, inputs that keep ahead, figures that come later,
 * pd_now. */
#include "test.h"
#include "data/load.h"
#include "messages/messages.h"
#include "update/update.h"

#include "cuda/workers.h"

#include <atomic>
#include <thread>

enum { B = 3, N = 5, ELEMENTS = 40, TURNS = 12, BIG = 70001 };

struct arena {
  float x[BIG], copied[BIG], moments[2][16];
  alignas(64) pd_bf16 rounded[BIG];
  alignas(64) float loaded[TURNS][B * N];
  alignas(64) pd_bf16 narrow[TURNS][B * N];
  alignas(64) int32_t tokens[TURNS][B * N];
  alignas(64) float figure[B * ELEMENTS];
  alignas(64) struct pd_now now[4];
};
static struct arena *const at = NULL; /* offsets */
#define AT(member) ((size_t)&at->member)
#define IN(member) (pd.arena + AT(member))

static bool same(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && !memcmp(a.data(), b.data(), a.size() * sizeof(float));
}

static void moments_start_at_zero() {
  for (float x : fetch(AT(moments), 32)) CHECK(x == 0);
}

static void views_give_back_what_was_filled() {
  const int sizes[] = {1, 2, 255, 4096, BIG};
  for (int n : sizes) {
    std::vector<float> x((size_t)n), rounded;
    for (int i = 0; i < n; i++) x[(size_t)i] = number((uint64_t)i);
    const float special[] = {0, -0.0f, 1e38f, INFINITY, -INFINITY, 0x1.01p0f, 0x1.03p0f, 1e-41f};
    for (int i = 0; i < 8 && i < n; i++) x[(size_t)(n - 1 - i)] = special[i];
    for (float v : x) rounded.push_back(std::isinf(v) ? v : nearest_bf16(v));
    put(AT(x), x.data(), sizeof(float) * x.size());
    CHECK(same(fetch(AT(x), n), x));
    pd_round(IN(rounded), (const float *)IN(x), n, true);
    CHECK(same(fetch(AT(rounded), n, true), rounded));
    pd_round(IN(copied), (const float *)IN(x), n, false);
    CHECK(same(fetch(AT(copied), n), x));
    memcpy(pd_fill(IN(rounded), n, true), x.data(), sizeof(float) * x.size());
    pd_filled(IN(rounded), n, true);
    CHECK(same(fetch(AT(rounded), n, true), rounded));
  }
  float nan = NAN;
  memcpy(pd_fill(IN(rounded), 1, true), &nan, sizeof nan);
  pd_filled(IN(rounded), 1, true);
  CHECK(std::isnan(fetch(AT(rounded), 1, true)[0]));
}

struct Turn {
  int input, turn;
};

static void load_sample(const void *of, int64_t b, int worker, void *to) {
  const Turn *t = (const Turn *)of;
  CHECK(worker >= 0 && worker < pd_load_workers());
  for (int i = 0; i < N; i++)
    if (t->input == 2)
      ((int32_t *)to)[i] = t->turn * 1000 + (int)b * N + i;
    else
      ((float *)to)[i] = number((uint64_t)(t->turn * 1000 + b * N + i));
}

/* The host goes on to write the next microbatches while the first are not copied yet. */
static void inputs_are_those_of_their_turn() {
  for (int turn = 0; turn < TURNS; turn++) {
    void *to[] = {IN(loaded[turn]), IN(narrow[turn]), IN(tokens[turn])};
    for (int input = 0; input < 3; input++) {
      const Turn of = {input, turn};
      pd_load_samples(input, to[input], input < 2, load_sample, &of);
    }
  }
  for (int turn = 0; turn < TURNS; turn++) {
    std::vector<float> whole = fetch(AT(loaded[turn]), B * N), narrow = fetch(AT(narrow[turn]), B * N, true),
                       tokens = fetch(AT(tokens[turn]), B * N);
    for (int i = 0; i < B * N; i++) {
      int32_t token;
      memcpy(&token, &tokens[(size_t)i], sizeof token);
      CHECK(token == turn * 1000 + i);
      CHECK(whole[(size_t)i] == number((uint64_t)(turn * 1000 + i)));
      CHECK(narrow[(size_t)i] == nearest_bf16(number((uint64_t)(turn * 1000 + i))));
    }
  }
}

/* ---- figures ----------------------------------------------------------------------------------- */

static __global__ void make_figure(float *to, int n, int k) {
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) to[i] = (float)k + 0x1p-20f * (float)i;
}

static int64_t n_taken;
static int batch_size;

static double sum_of(int64_t k, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)((float)k + 0x1p-20f * (float)i);
  return sum;
}

static void take(int figure, int64_t k, double sum) {
  CHECK(figure == (int)(k % 2));
  CHECK(k == ++n_taken);
  CHECK(sum == sum_of(k, k % 7 + 1));
}

/* More than may be out at once, one buffer for all; batches' sums are waited for, those of later ones are not. */
static void figures_come_in_order() {
  batch_size = 8;
  enum { MICROBATCHES = 3 * PD_FETCHES };
  for (int64_t k = 1; k <= MICROBATCHES; k++) {
    PD_LAUNCH(make_figure, 1, 32, 0, pd_stream, (float *)IN(figure), B * ELEMENTS, (int)k);
    pd_add_up((int)(k % 2), (k - 1) / batch_size, k, (const float *)IN(figure), k % 7 + 1, take);
    CHECK(n_taken <= k && k - n_taken <= PD_FETCHES);
    if (k % 20 == 0) {
      int64_t batch = (k - 1) / batch_size - 1;
      pd_figures_fold(batch);
      CHECK(n_taken >= (batch + 1) * batch_size && pd_figures_are_known(batch));
    }
  }
  pd_figures_fold(INT64_MAX);
  CHECK(n_taken == MICROBATCHES);
}

/* ---- now ----------------------------------------------------------------------------------------- */

static __global__ void copy_now(PD_READS(struct pd_now, 1) now, struct pd_now *to) { *to = now[0]; }

/* Two batches of two microbatches, the last one's while validating. */
static void now_follows_the_stream() {
  for (int k = 1; k <= 4; k++) {
    pd.training = k < 4;
    pd_at(k);
    PD_LAUNCH(copy_now, 1, 1, 0, pd_stream, pd_now, (struct pd_now *)IN(now[k - 1]));
  }
  pd.training = true;
  std::vector<float> bytes = fetch(AT(now), sizeof(struct pd_now));
  struct pd_now now[4];
  memcpy(now, bytes.data(), sizeof now);
  for (int k = 1; k <= 4; k++) {
    CHECK(now[k - 1].seed == 0x123456789abcdefu);
    CHECK(now[k - 1].first_sample == 100 + (k - 1) * B);
    CHECK(now[k - 1].following == k % 2);
    CHECK(now[k - 1].training == (k < 4));
  }
}

/* ---- counts -------------------------------------------------------------------------------------- */

static int64_t counted(const char *name) {
  struct pd_device_count counts[PD_DEVICE_COUNTS];
  int n = pd_device_counts(counts), i = 0;
  while (i < n && strcmp(counts[i].name, name) != 0) i++;
  CHECK(i < n);
  return counts[i].n;
}

/* A place's first launch counts when two updates are done, and no other does. */
static void late_kernels_are_counted() {
  for (int i = 0; i < 6; i++) {
    pd_updates.done = i < 2 ? 1 : 2;
    pd_memory_sample();
    PD_LAUNCH(copy_now, 1, 1, 0, pd_stream, pd_now, (struct pd_now *)IN(now[0]));
    CHECK(counted("late_kernels") == (i > 4));
    if (i >= 4) PD_LAUNCH(copy_now, 1, 1, 0, pd_stream, pd_now, (struct pd_now *)IN(now[0]));
    CHECK(counted("late_kernels") == (i >= 4));
  }
  CHECK(counted("own_products") == 0);
  pd_counts.own_products = 7;
  CHECK(counted("own_products") == 7);
}

/* Each number once, whether the others help or are busy with what somebody else shares. */
static void share_often(std::atomic<int> *alone) {
  enum { NUMBERS = 500, ROUNDS = 200 };
  for (int round = 0; round < ROUNDS; round++) {
    std::vector<std::atomic<int>> times(NUMBERS);
    std::atomic<int> helped{0};
    pd_workers_share(round, NUMBERS, [&](int i, int worker) {
      CHECK(worker >= 0 && worker < pd_workers());
      times[(size_t)i]++;
      if (worker) helped++;
      if (i % 100 == 0) std::this_thread::yield();
    });
    for (int i = 0; i < NUMBERS; i++) CHECK(times[(size_t)i] == (i >= round));
    if (!helped) (*alone)++;
  }
}

static void two_may_share_at_once() {
  std::atomic<int> alone{0};
  std::thread other(share_often, &alone);
  share_often(&alone);
  other.join();
  CHECK(alone > 0);
}

int main(int argc, char **argv) {
  struct pd_input inputs[3] = {};
  struct pd_figure figures[2] = {};
  for (struct pd_input &in : inputs) in.elements = N;
  for (int i = 0; i < 2; i++) inputs[i].rank = 3; /* images, which several threads load */
  inputs[1].bf16 = true;
  inputs[2].token = true;
  setenv("OMP_NUM_THREADS", "4", true);
  for (struct pd_figure &f : figures) f.elements = ELEMENTS;
  struct pd_stage stage = {};
  stage.batch = 2 * B;
  stage.microbatch = B;
  stage.microbatches = 2;
  stage.arena_bytes = sizeof(struct arena);
  stage.moments = AT(moments);
  stage.moments_stride = sizeof at->moments[0];
  stage.n_moments = 2;
  stage.inputs = inputs;
  stage.n_inputs = 3;
  stage.figures = figures;
  stage.n_figures = 2;
  pd.stage = &stage;
  MPI_Init(&argc, &argv);
  pd_comm_open(0);
  pd.seed = 0x123456789abcdefu;
  pd_sample_base = 100;
  start_rank(&stage);
  CHECK(pd_load_workers() == 4);
  moments_start_at_zero();
  views_give_back_what_was_filled();
  inputs_are_those_of_their_turn();
  figures_come_in_order();
  now_follows_the_stream();
  late_kernels_are_counted();
  two_may_share_at_once();
  CHECK(pd_memory_peak() >= (int64_t)sizeof(struct arena));
  CHECK(pd_device_name() && pd_measure_peak() > 0);
  pd_device_finish();
  MPI_Finalize();
  printf("passed\n");
  return 0;
}
