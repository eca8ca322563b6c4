/* Arguments of kernels, and the arguments that they write. */
#include "lower/internal.h"

/* By index in the list of buffers. */
static bool *written_buffers(const Kernel *k, const Ints *buffers) {
  bool *written = alloc((size_t)buffers->n + 1);
  for (Access x = {0}; next_access(k, &x);)
    for (int i = 0; i < buffers->n; i++)
      written[i] |= x.write && x.place->buffer == buffers->at[i];
  return written;
}

static void add_buffer(Ints *buffers, int buffer) {
  for (int i = 0; i < buffers->n; i++)
    if (buffers->at[i] == buffer)
      return;
  push(buffers, buffer);
}

Arguments loop_arguments(const StageKernels *stage, const Lowered *l) {
  const Kernel *k = l->kernel;
  Arguments a = {0};
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (l->shape->live[i] && t->kind == TERM_LOAD)
      add_buffer(&a.buffers, t->place.buffer);
    if (!l->shape->live[i] || t->kind != TERM_OP)
      continue;
    a.now |= op_reads_words(t->op, lowering_of(stage)->now_words);
    if (op_reads_words(t->op, 1u << WORD_SCOPE))
      push(&a.keys, i);
  }
  for (int i = 0; i < k->stores.n; i++) {
    add_buffer(&a.buffers, k->stores.at[i].place.buffer);
    a.first |= l->shape->store[i].accumulator;
  }
  a.written = written_buffers(k, &a.buffers);
  return a;
}

Arguments call_arguments(const Kernel *k) {
  Arguments a = {.first = k->accumulate, .scratch = k->node->op->scratch && k->part == CALL_WHOLE};
  for (Access x = {0}; next_access(k, &x);)
    push(&a.buffers, x.place->buffer);
  a.written = written_buffers(k, &a.buffers);
  return a;
}
