/* Sums between the ranks' messages, on a stream parallel to computation. All orders are independent of timing:
 * replicas by number, uses from last to first, squares by thread, then by tile, then by parameter. */
#include "update/clip.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "update/update.h"
#include "home.h"
#include "offload/spill.h"
#include "transport.h"

#include <cstdlib>
#include <vector>

enum { THREADS = 256 };

/* A parameter for kernels. */
struct summed {
  int first_use, n_uses;
};
struct used {
  size_t offset;
  bool here;
}; /* in the accumulator set, else in the exchange set */

/* Tiles whose squares are summed to one number: all of a parameter, or one tile with sharding. */
struct contribution {
  int first_tile, n_tiles;
};

static struct {
  const pd_tile *tiles;     /* pd_tiles on the device */
  const summed *parameters; /* those held here */
  const used *uses;
  const contribution *contributions;
  std::vector<contribution> contributed; /* the same on the host */
  int n_contributions, *contributed_at;  /* pd_square_at() */
  double *tile_squares;                  /* on the device, as the next */
  double *squares;                       /* [contribution] */
  double *tile_squares_at_home;          /* pinned: where the host adds up gradients */
  cudaEvent_t copied;                    /* without offloaded gradients */
  double **known;                        /* pinned: [batch % batches][contribution] */
  cudaEvent_t *combined;                 /* [batch % batches] */
  cudaEvent_t order;
  int n_batches;
  float *scales; /* [batch % batches], on the device: gradient scale; NULL: passed by the host */
} sums;

/* ---- kernels --------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    add_replicas(float *own, const float *others, size_t stride, size_t n, int w, int replica) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  float sum = replica ? others[i] : own[i];
  for (int q = 1; q < w; q++)
    sum += q == replica ? own[i] : others[(size_t)(q < replica ? q : q - 1) * stride + i];
  own[i] = sum;
}

/* The sum over a block's threads, halves first; for thread 0. */
static __device__ double sum_of_block(double x) {
  __shared__ double part[THREADS];
  part[threadIdx.x] = x;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  return part[0];
}

/* The same on the host. */
static double sum_of_parts(double *part) {
  for (int half = THREADS / 2; half; half /= 2)
    for (int j = 0; j < half; j++) part[j] += part[j + half];
  return part[0];
}

/* One block per tile: adds uses into the last use, and sums squares. */
static __global__ void __launch_bounds__(THREADS)
    combine(int first, const pd_tile *tiles, const summed *parameters, const used *uses, char *accumulators,
            char *exchanged, double *tile_squares) {
  const int tile = first + (int)blockIdx.x;
  pd_tile c = tiles[tile];
  summed p = parameters[c.parameter];
  if (!p.n_uses) return;
  auto gradient = [=](int use) {
    used u = uses[p.first_use + use];
    return (float *)((u.here ? accumulators : exchanged) + u.offset) + c.first;
  };
  float *sum = gradient(p.n_uses - 1);
  double square = 0;
  for (int64_t i = threadIdx.x; i < c.n; i += THREADS) {
    float x = sum[i];
    for (int use = p.n_uses - 2; use >= 0; use--) x += gradient(use)[i];
    if (p.n_uses > 1) sum[i] = x;
    square += (double)x * (double)x;
  }
  square = sum_of_block(square);
  if (!threadIdx.x) tile_squares[tile] = square;
}

/* A block a contribution. */
static __global__ void __launch_bounds__(THREADS)
    add_tiles(const contribution *contributions, const double *tile_squares, double *squares) {
  contribution c = contributions[blockIdx.x];
  double sum = 0;
  for (int i = threadIdx.x; i < c.n_tiles; i += THREADS) sum += tile_squares[c.first_tile + i];
  sum = sum_of_block(sum);
  if (!threadIdx.x) squares[blockIdx.x] = sum;
}

/* One block: sums the squares of all parameters in order, and computes the scale from the norm. */
static __global__ void __launch_bounds__(THREADS)
    find_scale(const double *squares, int n, double elements, double clip_norm, float *scale) {
  __shared__ double some[THREADS];
  double sum = 0;
  for (int first = 0; first < n; first += THREADS) {
    int end = n - first < THREADS ? n - first : THREADS;
    if ((int)threadIdx.x < end) some[threadIdx.x] = squares[first + (int)threadIdx.x];
    __syncthreads();
    for (int i = 0; !threadIdx.x && i < end; i++) sum += some[i];
    __syncthreads();
  }
  if (!threadIdx.x) *scale = pd_clipped_scale(pd_mean_norm(sum, elements), elements, clip_norm);
}

/* ---- start ----------------------------------------------------------------------------------- */

template <class T> static T *on_device(const T *from, size_t n) {
  T *to = (T *)pd_cuda_memory((n ? n : 1) * sizeof *to);
  if (from && n) {
    pd_cuda_check(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyHostToDevice, pd_stream), "fill a table");
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "fill a table"); /* `from` may go */
  }
  return to;
}

/* In the order of tiles, which is the order of parameters. */
static void make_contributions() {
  std::vector<contribution> mine;
  sums.contributed_at = (int *)pd_allocate(sizeof *sums.contributed_at * (size_t)(pd_n_tiles + 1));
  for (int i = 0; i < pd_n_tiles; i++) {
    const pd_parameter *p = &pd.stage->parameters[pd_tiles[i].parameter];
    if (!pd_in_norm(p)) continue;
    int at = pd_square_at(p, pd_tiles[i].first);
    if (mine.empty() || sums.contributed_at[mine.size() - 1] != at) {
      sums.contributed_at[mine.size()] = at;
      mine.push_back({i, 0});
    }
    mine.back().n_tiles++;
  }
  sums.contributions = on_device(mine.data(), mine.size());
  sums.n_contributions = (int)mine.size();
  sums.contributed = mine;
}

static void make_tables() {
  const pd_stage *s = pd.stage;
  std::vector<summed> all((size_t)s->n_parameters);
  std::vector<used> every;
  for (int i = 0; i < s->n_parameters; i++) {
    const pd_parameter *p = &s->parameters[i];
    all[(size_t)i] = {(int)every.size(), p->n_uses};
    for (int u = 0; u < p->n_uses; u++) every.push_back({p->uses[u].offset, p->uses[u].stage == s->stage});
  }
  sums.tiles = on_device(pd_tiles, (size_t)pd_n_tiles);
  sums.parameters = on_device(all.data(), all.size());
  sums.uses = on_device(every.data(), every.size());
  make_contributions();
}

/* Clipping needs all squares, which the device has only in a run of one rank; without clipping no squares are
 * needed. Whole-tensor rules get the scale from the host, and with offload computation waits for the sums
 * anyway. */
static bool finds_scale() {
  const pd_stage *s = pd.stage;
  bool in_order = true;
  if (s->inference || s->optimizer->tensor || pd_spills()) return false;
  for (int i = 1; i < sums.n_contributions; i++)
    in_order = in_order && sums.contributed_at[i - 1] < sums.contributed_at[i];
  const bool all = pd.ranks == 1 && pd_tensor_degree() == 1 && in_order;
  return all || !(s->clip_norm > 0);
}

void pd_sums_start(int batches) {
  make_tables();
  sums.scales = finds_scale() ? on_device<float>(NULL, (size_t)batches) : NULL;
  sums.tile_squares = on_device<double>(NULL, (size_t)pd_n_tiles);
  sums.squares = on_device<double>(NULL, (size_t)sums.n_contributions);
  sums.order = pd_cuda_event();
  if (pd_updates_at_home()) {
    sums.copied = pd_cuda_event();
    sums.tile_squares_at_home =
        (double *)pd_cuda_pinned(sizeof *sums.tile_squares_at_home * (size_t)(pd_n_tiles + 1));
  }
  sums.n_batches = batches;
  sums.known = (double **)pd_allocate(sizeof *sums.known * (size_t)batches);
  sums.combined = (cudaEvent_t *)pd_allocate(sizeof *sums.combined * (size_t)batches);
  for (int i = 0; i < batches; i++) {
    sums.combined[i] = pd_cuda_event();
    sums.known[i] = (double *)pd_cuda_pinned(sizeof **sums.known * (size_t)(sums.n_contributions + 1));
  }
}

void pd_sums_finish() {
  free(sums.known);
  free(sums.combined);
  free(sums.contributed_at);
}

/* ---- transfer.h ------------------------------------------------------------------------------ */

void pd_sums_begin() { pd_order(pd_stream, pd_exchange_stream, sums.order); }

void pd_add_replicas(float *own, const float *others, size_t stride, size_t n) {
  if (n)
    PD_LAUNCH(add_replicas, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, pd_exchange_stream, own, others,
              stride, n, pd_replicas(), pd.replica);
}

static void combine_tiles(int64_t t, int first, int end, cudaStream_t stream) {
  if (first < end)
    PD_LAUNCH(combine, (unsigned)(end - first), THREADS, 0, stream, first, sums.tiles, sums.parameters, sums.uses,
              (char *)pd_accumulators(t), pd.arena + pd_exchange_set(t), sums.tile_squares);
}

/* ---- sums by the host of offloaded gradients ---------------------------------------------------- */

/* The host's equivalent of combine() for a tile. */
static double combine_tile_at_home(int64_t t, int tile) {
  const pd_tile &c = pd_tiles[tile];
  const pd_parameter *p = &pd.stage->parameters[c.parameter];
  double part[THREADS] = {0};
  auto gradient = [&](int use) { return pd_home(pd_use_at(p, use, t, pd_accumulators(t))) + c.first; };
  float *sum = gradient(p->n_uses - 1);
  for (int use = p->n_uses - 2; use >= 0; use--) {
    const float *more = gradient(use);
    for (int64_t i = 0; i < c.n; i++) sum[i] += more[i];
  }
  for (int64_t i = 0; i < c.n; i += THREADS)
    for (int64_t j = 0; j < THREADS && i + j < c.n; j++) part[j] += (double)sum[i + j] * (double)sum[i + j];
  return sum_of_parts(part);
}

/* Gradients that are resident on the device because other stages receive them. */
static void combine_and_copy(int64_t t, int parameter) {
  const int first = pd_first_tile(parameter), end = pd_first_tile(parameter + 1);
  const pd_parameter *p = &pd.stage->parameters[parameter];
  if (first == end) return;
  combine_tiles(t, first, end, pd_stream);
  pd_cuda_check(cudaMemcpyAsync(sums.tile_squares_at_home + first, sums.tile_squares + first,
                                sizeof(double) * (size_t)(end - first), cudaMemcpyDeviceToHost, pd_stream),
                "copy a gradient's squares");
  pd_cuda_check(cudaMemcpyAsync(pd_home_copy(parameter), pd_gradient_at(p, t, pd_accumulators(t)),
                                sizeof(float) * (size_t)p->elements, cudaMemcpyDeviceToHost, pd_stream),
                "copy a gradient");
}

static void combine_at_home(int64_t t, int first, int end) {
  for (int i = first; i < end; i++)
    if (pd_home_copy(i)) combine_and_copy(t, i);
  pd_cuda_check(cudaEventRecord(sums.copied, pd_stream), "record an event");
  pd_home_after(sums.copied);
  pd_home_tiles(PD_STEP_SQUARE, first, end, [t](int tile) {
    const int parameter = pd_tiles[tile].parameter;
    if (pd.stage->parameters[parameter].n_uses && !pd_home_copy(parameter))
      sums.tile_squares_at_home[tile] = combine_tile_at_home(t, tile);
  });
}

/* As add_tiles() does it. */
static void add_tiles_at_home(const contribution *all, int n, double *to) {
  for (int i = 0; i < n; i++)
    to[i] = pd_add_squares(sums.tile_squares_at_home + all[i].first_tile, all[i].n_tiles);
}

/* Computation waits for these sums. */
static void combine_groups(int64_t t, bool all) {
  for (int done = 0, first, end; pd_spill_next_squared(done, all, &first, &end); done++)
    if (pd_updates_at_home())
      combine_at_home(t, first, end);
    else
      combine_tiles(t, pd_first_tile(first), pd_first_tile(end), pd_stream);
}

void pd_combine_ready(int64_t t) { combine_groups(t, false); }

static void add_up_at_home(int64_t t) {
  const int at = (int)(t % sums.n_batches);
  pd_home_then([=] { add_tiles_at_home(sums.contributed.data(), sums.n_contributions, sums.known[at]); });
  pd_home_record(sums.combined[at]);
}

/* Offloaded gradients with parts of other stages wait for those parts. */
void pd_combine(int64_t t) {
  const int at = (int)(t % sums.n_batches);
  const cudaStream_t stream = pd_spills() ? pd_stream : pd_exchange_stream;
  if (pd_spills()) {
    pd_order(pd_exchange_stream, pd_stream, sums.order);
    combine_groups(t, true);
    if (pd_updates_at_home()) {
      add_up_at_home(t);
      return;
    }
  } else if (!(pd.emulate && pd.stage->spilled)) { /* without memory for it */
    combine_tiles(t, 0, pd_n_tiles, stream);
  }
  if (sums.n_contributions) {
    PD_LAUNCH(add_tiles, sums.n_contributions, THREADS, 0, stream, sums.contributions, sums.tile_squares,
              sums.squares);
    pd_cuda_check(cudaMemcpyAsync(sums.known[at], sums.squares, sizeof(double) * (size_t)sums.n_contributions,
                                  cudaMemcpyDeviceToHost, stream),
                  "copy the gradients' squares");
  }
  if (sums.scales)
    PD_LAUNCH(find_scale, 1, THREADS, 0, stream, sums.squares, sums.n_contributions, pd_loss_elements(),
              pd.stage->clip_norm, sums.scales + at);
  pd_cuda_check(cudaEventRecord(sums.combined[at], stream), "record an event");
}

bool pd_squares(int64_t t, double *to) {
  int at = (int)(t % sums.n_batches);
  if (!pd_cuda_happened(sums.combined[at])) return false;
  for (int i = 0; i < sums.n_contributions; i++) to[sums.contributed_at[i]] += sums.known[at][i];
  return true;
}

bool pd_sums_clip() { return sums.scales; }
const float *pd_scale_of(int64_t t) { return sums.scales ? sums.scales + t % sums.n_batches : NULL; }

/* As add_tiles does it. */
double pd_add_squares(const double *square, int n) {
  double part[THREADS] = {0};
  for (int i = 0; i < n; i++) part[i % THREADS] += square[i];
  return sum_of_parts(part);
}

void pd_gradients_complete(int64_t t) {
  pd_cuda_check(cudaStreamWaitEvent(pd_stream, sums.combined[t % sums.n_batches], 0), "let a stream wait");
}
