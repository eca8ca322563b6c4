/* Maps a loop to a GPU's threads, from its shape alone: results are equal on every GPU. */
#include "lower/internal.h"
#include "cuda/scratch.h"

#include <limits.h>
#include <string.h>

enum {
  BLOCK = 256, /* default threads per block */
  WARP = 32,
  WIDEST_BLOCK = 1024,
  FEW_ELEMENTS = 4096, /* smallest kernel with vectors */
  BLOCKS = 1056,       /* eight for each of an H100's 132 multiprocessors */
  /* fewest rows per thread in a sum over rows: with fewer, a further tile costs more than it saves */
  ROWS_A_THREAD = 4,
  WARP_ELEMENTS = 8,     /* most elements of a row per thread of a warp; longer rows get a block */
  VECTOR_REGISTERS = 96, /* most registers per thread for vectors */
  THREAD_ELEMENTS = 16,  /* most cached elements of a row per thread, */
  SUM_ELEMENTS = 8,      /* the same in backward passes, whose loops also hold sums over rows; */
  THREAD_REGISTERS = 64, /* the same of everything that it caches */
  LOOP_THREADS = 512,    /* for rows that are too long to cache */
  RAGGED_COLUMNS = 512,  /* shortest row with a scalar tail */
  MULTIPROCESSORS = 132, /* an H100's */
  PARTITIONS = 4,        /* of a multiprocessor, which divide its warps evenly */
  /* registers per lane of a partition, on compute capability 8.0 to 10.0; shared by the lane's threads */
  LANE_REGISTERS = 512,
  RESIDENT_BLOCKS = 8 /* BLOCKS / MULTIPROCESSORS: most launched blocks of tiles per multiprocessor */
};

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- vectors ------------------------------------------------------------------------------------ */

static bool place_fits(const Kernel *k, const Place *p, int vector) {
  for (int i = 0; i + 1 < k->n_dims; i++)
    if (k->dim[i] > 1 && p->stride[i] % vector != 0)
      return false;
  return p->offset % vector == 0 && p->stride[k->n_dims - 1] == 1;
}

/* Whether a row may have a scalar tail: long rows without values kept for a later phase or row. */
static bool may_be_ragged(const Lowered *l) {
  const LoopShape *s = l->shape;
  return s->sums == 0 && (s->reduces ? s->columns > (int64_t)THREAD_ELEMENTS * WIDEST_BLOCK
                                     : s->columns >= RAGGED_COLUMNS && l->kernel->phases == 1);
}

/* Whether the loop can use vectors of this many elements: all loads and stores must allow it. Sums over rows are
 * stored once, so their layout does not matter. */
static bool vector_fits(const Lowered *l, int vector) {
  const Kernel *k = l->kernel;
  if (l->shape->columns % vector != 0 && !may_be_ragged(l))
    return false;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (l->shape->live[i] && t->kind == TERM_LOAD && !t->scalar && !place_fits(k, &t->place, vector))
      return false;
  }
  for (int i = 0; i < k->stores.n; i++) {
    const LoweredStore *s = &l->shape->store[i];
    if (!s->scalar && !s->summed && !place_fits(k, &k->stores.at[i].place, vector))
      return false;
  }
  return true;
}

static bool touches_bf16(const StageKernels *stage, const Kernel *k) {
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].kind == TERM_LOAD && stage->buffers.at[k->terms.at[i].place.buffer].bf16)
      return true;
  for (int i = 0; i < k->stores.n; i++)
    if (stage->buffers.at[k->stores.at[i].place.buffer].bf16)
      return true;
  return false;
}

/* Most vectors that a thread holds at once. */
static int count_vectors(const Lowered *l) {
  const Kernel *k = l->kernel;
  int n = 0;
  for (int i = 0; i < k->terms.n; i++)
    n += l->shape->live[i] && k->terms.at[i].kind == TERM_LOAD && !k->terms.at[i].scalar;
  for (int i = 0; i < k->stores.n; i++)
    n += !l->shape->store[i].scalar;
  return n;
}

/* 16 bytes of the narrowest type, less if that would need too many registers or leave too few threads. The order of
 * a sum along a row depends on it, so such loops ask for the program's precision: a cut or recomputation may leave
 * them fewer values. */
static int vector_of(const StageKernels *stage, const Lowered *l) {
  int most = VECTOR_REGISTERS / (count_vectors(l) + 1);
  const bool narrow =
      l->shape->reduces ? stage->target.precision == PRECISION_BF16 : touches_bf16(stage, l->kernel);
  if (l->shape->elements < FEW_ELEMENTS)
    return 1;
  for (int vector = narrow ? 8 : 4; vector > 1; vector /= 2)
    if (vector <= most && vector_fits(l, vector))
      return vector;
  return 1;
}

/* ---- cached values ------------------------------------------------------------------------------ */

static int count_sums(const Lowered *l) {
  int n = 0;
  for (int i = 0; i < l->kernel->stores.n; i++)
    n += l->shape->store[i].summed && !l->shape->store[i].scalar;
  return n;
}

/* Caches expensive values, then loads of several phases, within the register budget. */
static void choose_cached(const Lowered *l, GpuLoop *m) {
  const Kernel *k = l->kernel;
  int elements = m->vectors * m->vector, left = THREAD_REGISTERS / (elements ? elements : 1) - count_sums(l);
  m->cached = alloc((size_t)k->terms.n + 1);
  for (int loads = 0; loads < 2; loads++)
    for (int i = 0; i < k->terms.n; i++) {
      const Term *t = &k->terms.at[i];
      bool again = t->kind == TERM_LOAD && !t->scalar && (t->phases & (t->phases - 1)) != 0;
      if (m->vectors > 0 && l->shape->live[i] && (loads ? again : t->row_buffer) && left > 0) {
        m->cached[i] = true;
        left--;
      }
    }
}

/* ---- the three mappings ------------------------------------------------------------------------ */

static int power_of_two(int64_t at_least, int64_t at_most) {
  int n = 1;
  while (n < at_least && n * 2 <= at_most)
    n *= 2;
  return n;
}

/* Whether a warp has a row of this loop, if it reduces rows; else a block has it. */
static bool warp_has_row(const LoopShape *s) { return s->columns <= WARP * WARP_ELEMENTS; }

/* Divides a group's rows over a block's threads and into tiles: enough blocks for the GPU, with enough rows each. Both
 * follow from the shape alone, also whether the loop reduces rows: the same sum may be in another loop in another
 * stage. */
static void deal_rows(const LoopShape *s, GpuLoop *m) {
  m->y = warp_has_row(s) ? power_of_two(s->rows, BLOCK / WARP) : 1;
  int64_t wanted = divide_up(BLOCKS, s->groups), most = s->rows / (m->y * ROWS_A_THREAD);
  int64_t tiles = wanted < most ? wanted : most;
  m->rows = tiles > 1 ? divide_up(s->rows, tiles) : s->rows;
  m->tiles = (int)divide_up(s->rows, m->rows);
}

/* A thread has some columns of some rows of a tile. */
static void map_columns(const LoopShape *s, GpuLoop *m) {
  int64_t vectors = s->columns / m->vector;
  m->kind = MAP_COLUMNS;
  m->vectors = 1;
  deal_rows(s, m);
  m->x = power_of_two(vectors, BLOCK / m->y);
  m->column_blocks = divide_up(vectors, m->x);
}

/* A warp has a row if its threads then have few elements each, else a block has it. The number of threads decides the
 * order of a row's sum, so it does not depend on the number of sums over rows: a cut can move one to another loop. */
static void map_rows(const Lowered *l, GpuLoop *m) {
  const LoopShape *s = l->shape;
  int64_t vectors = divide_up(s->columns, m->vector);
  const bool sums = l->kernel->backward && !l->kernel->again && s->columns <= SUM_ELEMENTS * WIDEST_BLOCK;
  const int most = sums ? SUM_ELEMENTS : THREAD_ELEMENTS;
  m->kind = MAP_ROWS;
  m->column_blocks = 1;
  m->x = WARP;
  if (!warp_has_row(s)) {
    m->x = BLOCK;
    while (m->x < WIDEST_BLOCK && divide_up(vectors, m->x) * m->vector > most)
      m->x *= 2;
  }
  int64_t each = divide_up(vectors, m->x);
  m->vectors = each * m->vector <= most ? (int)each : 0;
  if (m->vectors == 0)
    m->x = LOOP_THREADS;
  else if (m->x > WARP)
    m->x = (int)divide_up(divide_up(vectors, m->vectors), WARP) * WARP;
  if (s->sums > 0)
    deal_rows(s, m);
  else
    m->y = m->x > WARP ? 1 : power_of_two(s->groups * s->rows, BLOCK / WARP);
}

/* Whether 32-bit indices suffice. Indices exceed the last element by a block's or a loop's step, or by a tile's
 * surplus of rows. */
static bool fits_int(const StageKernels *stage, const Lowered *l, int64_t partials) {
  enum { PAST = 1 << 16 };
  bool fits = l->shape->elements + PAST < INT_MAX && partials + PAST < INT_MAX;
  for (int i = 0; i < l->arguments.buffers.n; i++)
    fits = fits && stage->buffers.at[l->arguments.buffers.at[i]].elements < INT_MAX;
  return fits;
}

/* Offsets of a store's partial sums within a tile's: columns first, so that they can be stored as vectors. */
static void place_sums(const Lowered *l, GpuLoop *m) {
  m->sum_at = alloc((size_t)(l->kernel->stores.n + 1) * sizeof *m->sum_at);
  for (int scalars = 0; scalars < 2; scalars++)
    for (int i = 0; i < l->kernel->stores.n; i++)
      if (l->shape->store[i].summed && l->shape->store[i].scalar == (scalars == 1)) {
        m->sum_at[i] = m->sums;
        m->sums += scalars ? 1 : l->shape->columns;
      }
  m->stride = divide_up(m->sums, LANES) * LANES;
}

static bool is_expensive(const Lowered *l) {
  for (int i = 0; i < l->kernel->terms.n; i++)
    if (l->shape->live[i] && l->kernel->terms.at[i].kind == TERM_OP && l->kernel->terms.at[i].op->expensive)
      return true;
  return false;
}

/* Registers per thread to run without spills: values kept across phases and rows, plus those of an element's
 * expressions. The constants are measured: ptxas on the models of tests/cuda/nvcc. */
static int64_t registers_of(const Lowered *l, const GpuLoop *m) {
  enum { FEWEST = 64, ELEMENT = 24, EXPENSIVE = 8 };
  int64_t kept = m->sums_in_memory ? 0 : count_sums(l);
  for (int i = 0; i < l->kernel->terms.n; i++)
    kept += m->cached[i];
  int64_t all = kept * m->vectors * m->vector + ELEMENT + (is_expensive(l) ? EXPENSIVE : 0);
  return all > FEWEST ? all : FEWEST;
}

/* Blocks per multiprocessor: its share of the launch, limited by its registers. */
static int resident_blocks(const Lowered *l, const GpuLoop *m) {
  int64_t warps = divide_up(m->x * m->y, WARP), fit = LANE_REGISTERS / registers_of(l, m) * PARTITIONS / warps;
  int64_t share = divide_up(m->blocks, MULTIPROCESSORS);
  int64_t n = share < RESIDENT_BLOCKS ? share : RESIDENT_BLOCKS;
  n = n < fit ? n : fit;
  return n > 1 ? (int)n : 1;
}

static int64_t launch_blocks(const LoopShape *s, const GpuLoop *m) {
  if (m->sums > 0)
    return s->groups * m->tiles * m->column_blocks;
  int64_t rows = s->groups * s->rows;
  return m->kind == MAP_ROWS ? divide_up(rows, m->y) : divide_up(rows * m->columns, m->x);
}

static void lower_loop(const StageKernels *stage, Lowered *l) {
  const LoopShape *s = l->shape;
  GpuLoop *m = alloc(sizeof *m);
  *m = (GpuLoop){.kind = MAP_ELEMENTS, .x = BLOCK, .y = 1, .vectors = 1, .tiles = 1, .column_blocks = 1};
  bool elements = false;
  for (int i = 0; i < l->kernel->stores.n; i++)
    elements |= !s->store[i].scalar;
  m->vector = vector_of(stage, l);
  place_sums(l, m);
  if (s->reduces)
    map_rows(l, m);
  else if (m->sums > 0)
    map_columns(s, m);
  else
    m->columns = elements ? divide_up(s->columns, m->vector) : 1;
  m->sums_in_memory = m->kind == MAP_ROWS && m->vectors == 0 && m->sums > 0;
  m->in_scratch = m->tiles > 1 || m->sums_in_memory;
  choose_cached(l, m);
  m->partials = s->groups * m->tiles * m->stride;
  m->blocks = launch_blocks(s, m);
  m->resident = resident_blocks(l, m);
  m->total_blocks = divide_up(m->sums, SUMS_BLOCK);
  m->wide = !fits_int(stage, l, m->partials);
  l->scratch_bytes = m->in_scratch ? m->partials * 4 : 0;
  l->gpu = m;
}

/* ---- calls ------------------------------------------------------------------------------------- */

/* Workspace of an attention for which the plan selects cuDNN; 0: the runtime's own kernels. */
static int64_t planned_workspace(const struct pd_attention *a, bool backward, const Workspaces *planned) {
  char name[PD_ATTENTION_NAME];
  pd_attention_name(name, a, backward);
  for (int i = 0; planned && pd_attention_is_plain(a) && i < planned->n; i++)
    if (!strcmp(planned->at[i].call, name))
      return planned->at[i].bytes;
  return 0;
}

static int64_t attention(const struct pd_attention *a, int threads, const Workspaces *planned) {
  (void)threads;
  return pd_cuda_attention_scratch(a, false, planned_workspace(a, false, planned));
}
static int64_t attention_backward(const struct pd_attention *a, int threads, const Workspaces *planned) {
  (void)threads;
  return pd_cuda_attention_scratch(a, true, planned_workspace(a, true, planned));
}

static int64_t experts(const struct pd_experts *e, int threads) {
  (void)threads;
  return pd_cuda_experts_scratch(e);
}

static const Library library = {.matmul = pd_cuda_matmul_scratch,
                                .convolution = pd_cuda_convolution_scratch,
                                .attention = attention,
                                .attention_backward = attention_backward,
                                .lstm = pd_cuda_lstm_scratch,
                                .lstm_backward = pd_cuda_lstm_backward_scratch,
                                .experts = experts,
                                .experts_weights = experts};

const Lowering gpu_lowering = {.loop = lower_loop,
                               .library = &library,
                               /* a multiple of product tiles and of a cache line's elements */
                               .row_multiple = 128,
                               .epilogues = true,
                               .now_words = 1u << WORD_SAMPLE | 1u << WORD_FOLLOWING | 1u << WORD_SEED |
                                            1u << WORD_SHARD | 1u << WORD_TRAINING};
