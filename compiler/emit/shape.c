/* The shape of a kernel's iteration: rows, columns, which dims are dealt to threads, where sums go. */
#include "emit/loops.h"

enum {
  STACK_FLOATS = 4096        /* partial sums up to this many live on the stack */
};

int64_t product(const int64_t *dim, int from, int end) {
  int64_t n = 1;
  for (int i = from; i < end; i++)
    n *= dim[i];
  return n;
}

int64_t columns(const Kernel *k) { return k->n_dims ? k->dim[k->n_dims - 1] : 1; }

int row_dims(const Kernel *k) { return k->n_dims ? k->n_dims - 1 : 0; }

bool store_scalar(const Kernel *k, const Store *s) {
  return k->terms.at[s->term].scalar && (columns(k) == 1 || s->place.stride[k->n_dims - 1] == 0);
}

static bool accumulates(const Kernel *k) {
  for (int i = 0; i < k->stores.n; i++)
    if (k->stores.at[i].accumulate)
      return true;
  return false;
}

int parallel_dims(const Kernel *k) { return accumulates(k) ? k->parallel : row_dims(k); }

bool sums_rows(const Kernel *k, const Store *s) {
  if (!s->accumulate)
    return false;
  for (int i = parallel_dims(k); i < row_dims(k); i++)
    if (s->place.stride[i] == 0 && k->dim[i] > 1)
      return true;
  return false;
}

bool sum_moves(const Kernel *k, const Store *s, int dim) {
  return dim == row_dims(k) ? !store_scalar(k, s) : s->place.stride[dim] != 0;
}

int64_t sum_extent(const Kernel *k, const Store *s) {
  int64_t n = 1;
  for (int i = parallel_dims(k); i < k->n_dims; i++)
    if (sum_moves(k, s, i))
      n *= k->dim[i];
  return n;
}

int64_t sums_extent(const Kernel *k) {
  int64_t n = 0;
  for (int i = 0; i < k->stores.n; i++)
    if (sums_rows(k, &k->stores.at[i]))
      n += (sum_extent(k, &k->stores.at[i]) + LANES - 1) / LANES * LANES;
  return n;
}

bool chunked(const Kernel *k) { return parallel_dims(k) == 0 && k->chunks > 1 && sums_extent(k) > 0; }

int64_t groups(const Kernel *k) { return product(k->dim, 0, parallel_dims(k)); }

static bool has_reduce(const Kernel *k) {
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].kind == TERM_REDUCE)
      return true;
  return false;
}

bool is_split(const Kernel *k) {
  if (chunked(k))
    return true;
  if (k->n_dims == 0 || product(k->dim, 0, k->n_dims) < PARALLEL_ELEMENTS)
    return false;
  if (k->n_dims == 1)
    return k->phases == 1 && sums_extent(k) == 0 && !has_reduce(k);
  return groups(k) > 1;
}

bool sums_in_scratch(const Kernel *k) { return chunked(k) || sums_extent(k) > STACK_FLOATS; }

int64_t c_loop_scratch(const StageKernels *stage, const Kernel *k) {
  (void)stage;
  if (k->kind != KERNEL_LOOP || sums_extent(k) == 0 || !sums_in_scratch(k))
    return 0;
  return (chunked(k) ? k->chunks : groups(k)) * sums_extent(k) * 4;
}

/* ---- what the function is called with -------------------------------------------------------- */

static void mark(const Kernel *k, bool *live, int term) {
  if (live[term])
    return;
  live[term] = true;
  for (int i = 0; i < k->terms.at[term].n_in; i++)
    mark(k, live, k->terms.at[term].in[i]);
}

bool *live_terms(const Kernel *k) {
  bool *live = alloc((size_t)k->terms.n + 1);
  for (int i = 0; i < k->stores.n; i++)
    mark(k, live, k->stores.at[i].term);
  return live;
}

bool accumulator_store(const StageKernels *stage, const Store *s) {
  return s->accumulate && stage->buffers.at[s->place.buffer].kind == BUFFER_ACCUMULATOR;
}

static void add_buffer(Ints *buffers, int buffer) {
  for (int i = 0; i < buffers->n; i++)
    if (buffers->at[i] == buffer)
      return;
  push(buffers, buffer);
}

KernelCall loop_call(const StageKernels *stage, const Kernel *k) {
  const Dialect *dialect = dialect_of(stage);
  KernelCall c = {.scratch = dialect->loop_scratch(stage, k) > 0};
  bool *live = live_terms(k);
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (live[i] && t->kind == TERM_LOAD)
      add_buffer(&c.buffers, t->place.buffer);
    if (!live[i] || t->kind != TERM_OP)
      continue;
    c.now |= op_reads_words(t->op, dialect->now_words);
    if (op_reads_words(t->op, 1u << WORD_SCOPE))
      push(&c.keys, i);
  }
  for (int i = 0; i < k->stores.n; i++) {
    add_buffer(&c.buffers, k->stores.at[i].place.buffer);
    c.first = c.first || accumulator_store(stage, &k->stores.at[i]);
  }
  return c;
}

bool kernel_writes(const Kernel *k, int buffer) {
  for (int i = 0; i < k->out.n; i++)
    if (k->out.at[i].buffer == buffer)
      return true;
  for (int i = 0; i < k->stores.n; i++)
    if (k->stores.at[i].place.buffer == buffer)
      return true;
  return false;
}

KernelCall kernel_call(const StageKernels *stage, const Kernel *k) {
  return k->kind == KERNEL_LOOP ? loop_call(stage, k) : call_buffers(k);
}
