/* Finishes loops once all kernels are built: stores of values read elsewhere, phases, merged dims. */
#include <string.h>

#include "fuse/internal.h"
#include "ops/expression.h"

enum { WIDEST_ROW_BUFFER = 1 << 16 }; /* elements: a row buffer is on a thread's stack */

/* ---- stores of values read elsewhere ------------------------------------------------------------ */

static void store_values(const Fuse *f, Direction d, int at) {
  const Group *group = &f->groups[d]->at[at];
  Kernel *k = &kernels_of(f, d)->at[at];
  for (int i = 0; i < group->items.n; i++) {
    const Item *it = &f->items->of[d].at[group->items.at[i]];
    const Node *n = node_at(f, it->node);
    bool summed = n->op->kind == OP_SUM_TO && !is_row_sum(f, n);
    if (it->kind != ITEM_NODE || summed || !f->places->needed[n->out[0]])
      continue;
    Place to = place_value(f, n->out[0]);
    bool accumulate = f->k->buffers.at[to.buffer].kind == BUFFER_ACCUMULATOR;
    push(&k->stores, (Store){.term = f->built->term[it->node],
                             .accumulate = accumulate,
                             .place = place_broadcast(&to, value_at(f, n->out[0])->shape.batched, group)});
  }
}

void store_needed(const Fuse *f, Direction d) {
  for (int i = 0; i < kernels_of(f, d)->n; i++)
    if (kernels_of(f, d)->at[i].kind == KERNEL_LOOP)
      store_values(f, d, i);
}

/* ---- phases: passes over the row ----------------------------------------------------------------------- */

static int lowest_bit(unsigned x) { return __builtin_ctz(x); }

static void assign_phases(Kernel *k) {
  int n = k->terms.n, last = -1;
  int *ready = alloc(sizeof(int) * (size_t)n);
  unsigned *needs = alloc(sizeof(unsigned) * (size_t)n);
  for (int i = 0; i < n; i++) {
    Term *t = &k->terms.at[i];
    for (int j = 0; j < t->n_in; j++)
      if (ready[t->in[j]] > ready[i])
        ready[i] = ready[t->in[j]];
    t->phase = ready[i];
    if (t->kind == TERM_REDUCE) {
      last = t->phase > last ? t->phase : last;
      ready[i]++;
    }
  }
  for (int i = 0; i < k->stores.n; i++) {
    Store *s = &k->stores.at[i];
    const Term *t = &k->terms.at[s->term];
    bool row = s->place.stride[k->n_dims - 1] != 0 || k->dim[k->n_dims - 1] == 1;
    s->phase = ready[s->term];
    if (!t->scalar || row) {
      needs[s->term] |= 1u << s->phase;
      last = s->phase > last ? s->phase : last;
    }
  }
  k->phases = last + 1;
  for (int i = n - 1; i >= 0; i--) {
    Term *t = &k->terms.at[i];
    unsigned mask = t->kind == TERM_REDUCE ? 1u << t->phase : needs[i];
    if (t->scalar && t->kind != TERM_REDUCE)
      t->phases = 1u << t->phase;
    else
      t->phases = mask;
    if (t->scalar && t->kind != TERM_REDUCE)
      continue;
    if (mask && t->kind != TERM_REDUCE)
      t->phase = lowest_bit(mask);
    t->row_buffer = t->kind == TERM_OP && t->op->expensive && (mask & (mask - 1)) &&
                    k->dim[k->n_dims - 1] <= WIDEST_ROW_BUFFER;
    for (int j = 0; j < t->n_in; j++)
      needs[t->in[j]] |= t->row_buffer ? mask & -mask : mask;
  }
}

/* ---- dims ------------------------------------------------------------------------------------------ */

static void drop_dim(Kernel *k, int d) {
  for (Access a = {0}; next_access(k, &a);) {
    Place *p = a.place;
    p->rank--;
    for (int j = d; j < p->rank; j++) {
      p->dim[j] = p->dim[j + 1];
      p->stride[j] = p->stride[j + 1];
    }
  }
  k->n_dims--;
  for (int j = d; j < k->n_dims; j++)
    k->dim[j] = k->dim[j + 1];
}

static bool merge_dims(Kernel *k, int d) { /* d with d + 1 */
  for (Access a = {0}; next_access(k, &a);)
    if (k->dim[d] > 1 && a.place->stride[d] != a.place->stride[d + 1] * k->dim[d + 1])
      return false;
  int64_t size = k->dim[d] * k->dim[d + 1];
  drop_dim(k, d);
  k->dim[d] = size;
  for (Access a = {0}; next_access(k, &a);)
    a.place->dim[d] = size;
  return true;
}

/* Moves accumulating axes after all others, in their order. */
static void move_sums_last(Kernel *k, unsigned sums) {
  int order[MAX_DIM], n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i + 1 < k->n_dims; i++)
      if (((sums >> i) & 1) == (unsigned)pass)
        order[n++] = i;
  k->parallel = k->n_dims - 1 - __builtin_popcount(sums);
  Kernel old = *k;
  for (int j = 0; j < n; j++)
    k->dim[j] = old.dim[order[j]];
  for (Access a = {0}; next_access(k, &a);) {
    Place q = *a.place;
    for (int j = 0; j < n; j++) {
      a.place->dim[j] = q.dim[order[j]];
      a.place->stride[j] = q.stride[order[j]];
    }
  }
}

static void merge_outer(Kernel *k) {
  int first = k->samples ? 1 : 0;
  for (int d = first; d + 1 < k->n_dims && k->n_dims > 1 + first;)
    if (k->dim[d] == 1) {
      k->parallel -= d < k->parallel;
      drop_dim(k, d);
    } else {
      d++;
    }
  for (int d = first; d + 2 < k->n_dims;) {
    bool same_class = (d < k->parallel) == (d + 1 < k->parallel);
    if (same_class && merge_dims(k, d))
      k->parallel -= d < k->parallel;
    else
      d++;
  }
}

static void merge_rows(Kernel *k, bool counts_columns) {
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].kind == TERM_REDUCE || (k->terms.at[i].scalar && k->terms.at[i].kind == TERM_LOAD))
      return;
  int first = k->samples ? 1 : 0;
  if (k->dim[k->n_dims - 1] == 1 && k->n_dims > 1 + first && !counts_columns) {
    drop_dim(k, k->n_dims - 1);
    k->parallel = k->n_dims - 1;
  }
  while (k->n_dims > 1 + first && k->parallel == k->n_dims - 1 && !counts_columns && k->dim[k->n_dims - 1] < 256 &&
         merge_dims(k, k->n_dims - 2))
    k->parallel--;
}

/* The number of rows alone decides the tiles, so results depend only on shapes. */
static void deal_tiles(Kernel *k) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < k->n_dims; i++)
    rows *= k->dim[i];
  k->tiles = rows >= 512 ? 16 : rows >= 128 ? 4 : 1;
}

static void arrange(Kernel *k, unsigned sums) {
  bool counts_columns = false;
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].op) {
      k->samples |= op_reads_words(k->terms.at[i].op, 1u << WORD_ELEMENT | 1u << WORD_SAMPLE);
      counts_columns |= op_reads_words(k->terms.at[i].op, 1u << WORD_COLUMN);
    }
  unsigned outer = 0;
  for (int i = 0; i + 1 < k->n_dims; i++)
    outer |= k->dim[i] > 1 ? 1u << i : 0;
  bool whole = sums && (sums & outer) == outer;
  if (whole)
    k->parallel = 0;
  else
    move_sums_last(k, sums);
  if (whole)
    deal_tiles(k);
  merge_outer(k);
  if (!sums)
    merge_rows(k, counts_columns);
}

const Group *group_of(const Fuse *f, Direction kernels, int kernel, Direction *d) {
  const int group = f->built->group[kernels].at[kernel];
  *d = group < 0 ? FORWARD : kernels;
  return &f->groups[*d]->at[group < 0 ? ~group : group];
}

/* Drops loops without stores. A running average may have only its buffer as reader, and the backward pass may
 * rematerialise the values that its share depends on. */
void finish_loops(const Fuse *f, Direction d) {
  Kernels *kernels = kernels_of(f, d);
  Ints *group = &f->built->group[d];
  int kept = 0;
  for (int i = 0; i < kernels->n; i++) {
    Kernel *k = &kernels->at[i];
    Direction items;
    if (k->kind == KERNEL_LOOP) {
      if (!k->stores.n)
        continue;
      assign_phases(k);
      arrange(k, group_of(f, d, i, &items)->sums);
    }
    group->at[kept] = group->at[i];
    kernels->at[kept++] = *k;
  }
  kernels->n = group->n = kept;
}
