/* Splits the backward pass (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024). Library calls for weight
 * gradients move to a separate pass, because no other stage waits for them. Their operands live until that pass
 * (lifetimes.c). */
#include "fuse/internal.h"

/* By buffer: the number of kernel accesses. */
static int *count_touches(const StageKernels *k) {
  int *touches = alloc(sizeof(int) * (size_t)(k->buffers.n + 1));
  const Kernels *lists[] = {&k->setup, &k->forward, &k->backward};
  for (int list = 0; list < 3; list++)
    for (int i = 0; i < lists[list]->n; i++)
      for (Access a = {0}; next_access(&lists[list]->at[i], &a);)
        touches[a.place->buffer]++;
  return touches;
}

static bool can_wait(const StageKernels *k, const Kernel *kernel, const int *touches) {
  bool waits = kernel->kind == KERNEL_CALL && kernel->accumulate;
  for (int i = 0; i < kernel->out.n && waits; i++) {
    int buffer = kernel->out.at[i].buffer;
    waits = k->buffers.at[buffer].kind == BUFFER_ACCUMULATOR && touches[buffer] == 1;
  }
  return waits;
}

bool *find_waiting(const StageKernels *k) {
  const int *touches = count_touches(k);
  bool *waits = alloc((size_t)k->backward.n + 1);
  for (int i = 0; i < k->backward.n; i++)
    waits[i] = can_wait(k, &k->backward.at[i], touches);
  return waits;
}

void split_backward(StageKernels *k) {
  const bool *waits = find_waiting(k);
  Kernels now = {0};
  for (int i = 0; i < k->backward.n; i++) {
    const Kernel *kernel = &k->backward.at[i];
    if (!waits[i]) {
      push(&now, *kernel);
      continue;
    }
    push(&k->weights, *kernel);
  }
  k->backward = now;
}
