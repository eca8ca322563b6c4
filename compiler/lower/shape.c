/* The iteration of a loop, independent of the target: groups, rows, columns, sums. */
#include "lower/internal.h"

int64_t product(const int64_t *dim, int from, int end) {
  int64_t n = 1;
  for (int i = from; i < end; i++)
    n *= dim[i];
  return n;
}

static bool accumulates(const Kernel *k) {
  for (int i = 0; i < k->stores.n; i++)
    if (k->stores.at[i].accumulate)
      return true;
  return false;
}

static LoweredStore lower_store(const StageKernels *stage, const Kernel *k, const LoopShape *s,
                                const Store *store) {
  bool one_column = s->columns == 1 || store->place.stride[s->row_dims] == 0;
  LoweredStore l = {.scalar = k->terms.at[store->term].scalar && one_column, .sums = 1};
  l.accumulator = store->accumulate && stage->buffers.at[store->place.buffer].kind == BUFFER_ACCUMULATOR;
  for (int i = s->group_dims; i < s->row_dims; i++)
    l.summed |= store->accumulate && store->place.stride[i] == 0 && k->dim[i] > 1;
  l.dense = true;
  for (int i = k->n_dims - 1; i >= s->group_dims; i--) {
    l.moves[i] = i == s->row_dims ? !l.scalar : store->place.stride[i] != 0;
    l.dense &= !l.moves[i] || k->dim[i] == 1 || store->place.stride[i] == l.sums;
    l.sums *= l.moves[i] ? k->dim[i] : 1;
  }
  return l;
}

const LoopShape *loop_shape(const StageKernels *stage, const Kernel *k) {
  LoopShape *s = alloc(sizeof *s);
  s->row_dims = k->n_dims ? k->n_dims - 1 : 0;
  s->columns = k->n_dims ? k->dim[s->row_dims] : 1;
  s->group_dims = accumulates(k) ? k->parallel : s->row_dims;
  s->groups = product(k->dim, 0, s->group_dims);
  s->rows = product(k->dim, s->group_dims, s->row_dims);
  s->elements = product(k->dim, 0, k->n_dims);
  s->live = live_terms(k);
  for (int i = 0; i < k->terms.n; i++)
    s->reduces |= s->live[i] && k->terms.at[i].kind == TERM_REDUCE;
  s->store = alloc((size_t)(k->stores.n + 1) * sizeof *s->store);
  for (int i = 0; i < k->stores.n; i++) {
    s->store[i] = lower_store(stage, k, s, &k->stores.at[i]);
    if (s->store[i].summed)
      s->sums += (s->store[i].sums + LANES - 1) / LANES * LANES;
  }
  return s;
}
