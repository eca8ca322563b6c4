/* How a GPU's threads share a kernel's iteration, from its shape alone: results are the same on every GPU. */
#include "emit/loops.h"

#include <limits.h>

enum {
  BLOCK = 256,            /* threads of a block where nothing asks for another number */
  WARP = 32,
  WIDEST_BLOCK = 1024,
  FEW_ELEMENTS = 4096,    /* of a kernel: a thread each */
  BLOCKS = 1056,          /* that many give an H100's 132 multiprocessors eight each */
  ROWS_A_THREAD = 4,      /* of a sum over rows, at least: below it a further chunk costs more than it gives */
  WARP_ELEMENTS = 8,      /* of a row that a warp's thread takes before the row gets a block */
  VECTOR_REGISTERS = 96,  /* of a thread's, for elements side by side */
  THREAD_ELEMENTS = 16,   /* of a row that a thread keeps at most ... */
  THREAD_REGISTERS = 64,  /* ... and of all that it keeps */
  LOOP_THREADS = 512      /* for rows too long to be kept */
};

/* ---- which elements lie side by side ----------------------------------------------------------- */

static bool place_fits(const Kernel *k, const Place *p, int vector) {
  for (int i = 0; i + 1 < k->n_dims; i++)
    if (k->dim[i] > 1 && p->stride[i] % vector != 0)
      return false;
  return p->offset % vector == 0 && p->stride[k->n_dims - 1] == 1;
}

/* Whether threads can take this many elements of a row at once: all that they load and store lies so. What they
 * add up over rows they store once: it may lie anyhow. */
static bool vector_fits(const Kernel *k, const bool *live, int vector) {
  if (columns(k) % vector != 0)
    return false;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (live[i] && t->kind == TERM_LOAD && !t->scalar && !place_fits(k, &t->place, vector))
      return false;
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!store_scalar(k, s) && !sums_rows(k, s) && !place_fits(k, &s->place, vector))
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

/* How many such vectors a thread has at once, at most. */
static int count_vectors(const Kernel *k, const bool *live) {
  int n = 0;
  for (int i = 0; i < k->terms.n; i++)
    n += live[i] && k->terms.at[i].kind == TERM_LOAD && !k->terms.at[i].scalar;
  for (int i = 0; i < k->stores.n; i++)
    n += !store_scalar(k, &k->stores.at[i]);
  return n;
}

/* 16 bytes of the narrowest type; less where that would take too many registers, or leave too few threads. */
static int vector_of(const StageKernels *stage, const Kernel *k, const bool *live) {
  int most = VECTOR_REGISTERS / (count_vectors(k, live) + 1);
  if (product(k->dim, 0, k->n_dims) < FEW_ELEMENTS)
    return 1;
  for (int vector = touches_bf16(stage, k) ? 8 : 4; vector > 1; vector /= 2)
    if (vector <= most && vector_fits(k, live, vector))
      return vector;
  return 1;
}

/* ---- what threads keep ------------------------------------------------------------------------- */

static int count_sums(const Kernel *k) {
  int n = 0;
  for (int i = 0; i < k->stores.n; i++)
    n += sums_rows(k, &k->stores.at[i]) && !store_scalar(k, &k->stores.at[i]);
  return n;
}

/* Expensive values first, then what is loaded for more than one pass, as far as there are registers. */
static void choose_kept(const Kernel *k, const bool *live, Mapping *m) {
  int elements = m->vectors * m->vector, left = THREAD_REGISTERS / (elements ? elements : 1) - count_sums(k);
  m->kept = alloc((size_t)k->terms.n + 1);
  for (int loads = 0; loads < 2; loads++)
    for (int i = 0; i < k->terms.n; i++) {
      const Term *t = &k->terms.at[i];
      bool again = t->kind == TERM_LOAD && !t->scalar && (t->passes & (t->passes - 1)) != 0;
      if (m->vectors > 0 && live[i] && (loads ? again : t->row_buffer) && left > 0) {
        m->kept[i] = true;
        left--;
      }
    }
}

/* ---- the three mappings ------------------------------------------------------------------------ */

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int power_of_two(int64_t at_least, int64_t at_most) {
  int n = 1;
  while (n < at_least && n * 2 <= at_most)
    n *= 2;
  return n;
}

/* Chunks of a group's rows: enough blocks for the GPU, and rows enough for each. */
static void deal_rows(const Kernel *k, Mapping *m) {
  int64_t rows = product(k->dim, parallel_dims(k), row_dims(k));
  int64_t wanted = divide_up(BLOCKS, groups(k) * m->column_blocks), most = rows / (m->y * ROWS_A_THREAD);
  int64_t chunks = wanted < most ? wanted : most;
  m->rows = chunks > 1 ? divide_up(rows, chunks) : rows;
  m->chunks = (int)divide_up(rows, m->rows);
}

/* A thread has some columns, and rows of a chunk of rows. */
static void map_columns(const Kernel *k, Mapping *m) {
  int64_t vectors = columns(k) / m->vector, rows = product(k->dim, parallel_dims(k), row_dims(k));
  m->kind = MAP_COLUMNS;
  m->vectors = 1;
  m->x = power_of_two(vectors, WARP);
  m->y = power_of_two(rows / ROWS_A_THREAD, BLOCK / m->x);
  if (m->x == WARP && m->y < BLOCK / WARP)
    m->x = power_of_two(vectors, BLOCK / m->y);
  m->column_blocks = divide_up(vectors, m->x);
  deal_rows(k, m);
}

/* A warp has a row where a thread then has few elements of it, else a block. */
static void map_rows(const Kernel *k, Mapping *m) {
  int64_t vectors = columns(k) / m->vector;
  int most = THREAD_ELEMENTS, sums = count_sums(k);
  while (sums * most > THREAD_REGISTERS / 2)
    most /= 2;
  m->kind = MAP_ROWS;
  m->column_blocks = 1;
  m->x = WARP;
  if (divide_up(vectors, WARP) * m->vector > (most < WARP_ELEMENTS ? most : WARP_ELEMENTS)) {
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
  bool sum = sums_extent(k) > 0;
  int64_t rows = product(k->dim, sum ? parallel_dims(k) : 0, row_dims(k));
  m->y = m->x > WARP ? 1 : power_of_two(rows, BLOCK / WARP);
  if (sum)
    deal_rows(k, m);
}

static bool fits_int(const StageKernels *stage, const Kernel *k, const KernelCall *call, int64_t partials) {
  bool fits = product(k->dim, 0, k->n_dims) + BLOCK < INT_MAX && partials < INT_MAX;
  for (int i = 0; i < call->buffers.n; i++)
    fits = fits && stage->buffers.at[call->buffers.at[i]].elements < INT_MAX;
  return fits;
}

/* Where a store's partial sums stand among a chunk's: columns first, so that those can be stored side by side. */
static void place_sums(const Kernel *k, Mapping *m) {
  m->sum_at = alloc((size_t)(k->stores.n + 1) * sizeof *m->sum_at);
  for (int scalars = 0; scalars < 2; scalars++)
    for (int i = 0; i < k->stores.n; i++)
      if (sums_rows(k, &k->stores.at[i]) && store_scalar(k, &k->stores.at[i]) == (scalars == 1)) {
        m->sum_at[i] = m->sums;
        m->sums += scalars ? 1 : columns(k);
      }
  m->stride = divide_up(m->sums, LANES) * LANES;
}

Mapping cuda_mapping(const StageKernels *stage, const Kernel *k, const KernelCall *call) {
  Mapping m = {.kind = MAP_ELEMENTS, .x = BLOCK, .y = 1, .vectors = 1, .chunks = 1, .column_blocks = 1};
  bool *live = live_terms(k), reduces = false, elements = false;
  for (int i = 0; i < k->terms.n; i++)
    reduces |= live[i] && k->terms.at[i].kind == TERM_REDUCE;
  for (int i = 0; i < k->stores.n; i++)
    elements |= !store_scalar(k, &k->stores.at[i]);
  m.vector = vector_of(stage, k, live);
  place_sums(k, &m);
  if (reduces)
    map_rows(k, &m);
  else if (m.sums > 0)
    map_columns(k, &m);
  else
    m.columns = elements ? columns(k) / m.vector : 1;
  if (m.kind == MAP_ROWS && m.vectors == 0 && m.sums > 0)
    m.sums_in_memory = true;
  m.in_scratch = m.chunks > 1 || m.sums_in_memory;
  choose_kept(k, live, &m);
  m.wide = !fits_int(stage, k, call, groups(k) * m.chunks * m.stride);
  return m;
}

int64_t cuda_loop_scratch(const StageKernels *stage, const Kernel *k) {
  if (k->kind != KERNEL_LOOP)
    return 0;
  KernelCall none = {0};
  Mapping m = cuda_mapping(stage, k, &none);
  return m.in_scratch ? groups(k) * m.chunks * m.stride * 4 : 0;
}
