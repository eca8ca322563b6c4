/* The invariants of kernels. */
#include "fuse/internal.h"

static void verify_place(const StageKernels *k, const Place *p) {
  ensure(p->buffer >= 0 && p->buffer < k->buffers.n);
  int64_t furthest = p->offset;
  for (int i = 0; i < p->rank; i++)
    furthest += (p->dim[i] - 1) * p->stride[i];
  ensure(p->offset >= 0 && furthest < k->buffers.at[p->buffer].elements);
}

static void verify_loop(const Kernel *kernel) {
  int last = kernel->n_dims - 1;
  ensure(last >= 0 && kernel->parallel <= last);
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *t = &kernel->terms.at[i];
    for (int j = 0; j < t->n_in; j++)
      ensure(t->in[j] < i);
    ensure(t->kind != TERM_LOAD || t->place.rank == kernel->n_dims);
    for (int d = 0; t->kind == TERM_LOAD && d < kernel->n_dims; d++)
      ensure(t->place.dim[d] == kernel->dim[d]);
  }
  ensure(kernel->stores.n > 0);
  for (int i = 0; i < kernel->stores.n; i++) {
    ensure(kernel->stores.at[i].place.rank == kernel->n_dims);
    const Store *s = &kernel->stores.at[i];
    bool scalar = kernel->terms.at[s->term].scalar && (s->place.stride[last] == 0 || kernel->dim[last] == 1);
    ensure(s->phase < kernel->phases || (s->phase == kernel->phases && scalar));
  }
}

/* Figures have one copy and forward temporaries end with forward, so backward reads neither. Chunks share only
 * weights. */
static void verify_read(const StageKernels *k, const Kernel *kernel, int buffer, const bool *written) {
  const Buffer *b = &k->buffers.at[buffer];
  ensure(written[buffer] && !(kernel->backward && b->kind == BUFFER_FIGURE));
  ensure(!kernel->backward || b->backward || b->kind != BUFFER_TEMPORARY);
  ensure(b->chunk == kernel->chunk || is_parameter(b->kind));
}

static void verify_written(const StageKernels *k, const Kernel *kernel, int buffer, bool *written) {
  ensure(k->buffers.at[buffer].chunk == kernel->chunk && !is_parameter(k->buffers.at[buffer].kind));
  written[buffer] = true;
}

/* Temporaries are written before they are read, in the order of the kernels. */
static void verify_order(const StageKernels *k, const Kernels *kernels, bool *written) {
  for (int i = 0; i < kernels->n; i++) {
    const Kernel *kernel = &kernels->at[i];
    for (Access a = {0}; next_access(kernel, &a);) {
      verify_place(k, a.place);
      if (a.write)
        verify_written(k, kernel, a.place->buffer, written);
      else
        verify_read(k, kernel, a.place->buffer, written);
    }
    if (kernel->kind == KERNEL_LOOP)
      verify_loop(kernel);
  }
}

/* All ranks of a shard group run these lists, so collectives meet in one order: each one ends, in its region,
 * before the next begins. */
static void verify_collectives(const Kernels *kernels) {
  const Kernel *begun = NULL;
  for (int i = 0; i < kernels->n; i++) {
    const Kernel *kernel = &kernels->at[i];
    bool collective = kernel_is_collective(kernel);
    if (collective && kernel->part == CALL_END) {
      ensure(begun && begun->node == kernel->node && begun->region == kernel->region);
      begun = NULL;
      continue;
    }
    ensure(collective || kernel->part == CALL_WHOLE);
    ensure(!begun || (!collective && !kernels_conflict(kernel, begun)));
    if (kernel->part == CALL_BEGIN)
      begun = kernel;
  }
  ensure(!begun);
}

/* The weights pass writes buffers that no earlier kernel uses, from operands that live until then. */
static void verify_weights(const StageKernels *k) {
  for (int i = 0; i < k->weights.n; i++) {
    const Kernel *kernel = &k->weights.at[i];
    ensure(kernel->kind == KERNEL_CALL && kernel->accumulate && k->split);
    for (int j = 0; j < kernel->in.n; j++)
      ensure(k->buffers.at[kernel->in.at[j].buffer].kind != BUFFER_TEMPORARY &&
             k->buffers.at[kernel->in.at[j].buffer].kind != BUFFER_SAVED &&
             k->buffers.at[kernel->in.at[j].buffer].late);
    for (int j = 0; j < kernel->out.n; j++) {
      ensure(k->buffers.at[kernel->out.at[j].buffer].kind == BUFFER_ACCUMULATOR);
      for (PassKind pass = 0; pass < PASS_KINDS; pass++)
        for (int l = 0; l < pass_kernels(k, pass)->n; l++)
          ensure((pass == PASS_WEIGHTS && l == i) ||
                 !kernel_touches(&pass_kernels(k, pass)->at[l], kernel->out.at[j].buffer));
    }
  }
}

void kernels_verify(const StageKernels *k) {
  bool *written = alloc((size_t)k->buffers.n + 1);
  for (int i = 0; i < k->buffers.n; i++) {
    BufferKind kind = k->buffers.at[i].kind;
    written[i] =
        is_parameter(kind) || kind == BUFFER_INPUT || kind == BUFFER_RECEIVED || kind == BUFFER_GRADIENT_RECEIVED;
  }
  verify_order(k, &k->setup, written);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    verify_order(k, pass_kernels(k, pass), written);
  verify_collectives(&k->setup);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    verify_collectives(pass_kernels(k, pass));
  verify_weights(k);
  verify_precision(k);
  for (int i = 0; i < k->buffers.n; i++)
    ensure(written[i] || k->buffers.at[i].kind == BUFFER_INPUT);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
    for (int c = 0; c < k->chunks.n; c++)
      for (int i = k->chunks.at[c].first[pass]; i < k->chunks.at[c].end[pass]; i++)
        ensure(pass_kernels(k, pass)->at[i].chunk == c);
    for (int r = 0; r < k->regions.n; r++)
      for (int i = k->regions.at[r].first[pass]; i < k->regions.at[r].end[pass]; i++)
        ensure(pass_kernels(k, pass)->at[i].region == r &&
               pass_kernels(k, pass)->at[i].chunk == k->regions.at[r].chunk);
  }
}
