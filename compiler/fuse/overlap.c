/* Splits a collective into a begin after its operand and an end before its first use, if products run in between.
 * They overlap the transfer and the wait for other ranks. For example, a product's input gradient is summed during
 * the product for its weight gradient. Collectives do not nest. */
#include "fuse/internal.h"

/* The kernel before which the collective ends, within its region, because a region is one function. */
static int find_end(const Kernels *kernels, const Kernel *c, int from) {
  while (from < kernels->n && kernels->at[from].region == c->region && !kernel_is_collective(&kernels->at[from]) &&
         !kernels_conflict(&kernels->at[from], c))
    from++;
  return from;
}

static bool is_product(const StageKernels *k, const Kernel *kernel) {
  if (kernel->kind != KERNEL_CALL || !kernel->node->op->cost)
    return false;
  return kernel->node->op->cost(k->graph, (int)(kernel->node - k->graph->nodes.at)).matmul_flops > 0;
}

static bool has_products(const StageKernels *k, const Kernels *kernels, int first, int end) {
  for (int i = first; i < end; i++)
    if (is_product(k, &kernels->at[i]))
      return true;
  return false;
}

static void push_part(const StageKernels *k, Kernels *to, const Kernel *collective, CallPart part) {
  Kernel half = *collective;
  half.part = part;
  half.signature = k->named ? sign_kernel(k, &half) : NULL;
  push(to, half);
}

/* The end of a run of consecutive collectives. */
static int end_of_run(const Kernels *kernels, int first) {
  int i = first;
  while (i < kernels->n && kernel_is_collective(&kernels->at[i]) &&
         kernels->at[i].region == kernels->at[first].region)
    i++;
  return i;
}

/* The last collective of a run that can overlap the kernels after the run and move after the run's other
 * collectives; -1: none. */
static int find_beside(const StageKernels *k, const Kernels *kernels, int first, int end) {
  for (int i = end - 1; i >= first; i--) {
    const Kernel *c = &kernels->at[i];
    bool moves = true;
    for (int j = i + 1; j < end; j++)
      moves &= !kernels_conflict(&kernels->at[j], c);
    if (moves && has_products(k, kernels, end, find_end(kernels, c, end)))
      return i;
  }
  return -1;
}

static Kernels overlapped(const StageKernels *k, const Kernels *kernels) {
  Kernels to = {0};
  for (int first = 0, next; first < kernels->n; first = next) {
    int end = end_of_run(kernels, first), beside = find_beside(k, kernels, first, end);
    next = end > first ? end : first + 1;
    for (int i = first; i < next; i++)
      if (i != beside)
        push(&to, kernels->at[i]);
    if (beside < 0)
      continue;
    const Kernel *c = &kernels->at[beside];
    next = find_end(kernels, c, end);
    push_part(k, &to, c, CALL_BEGIN);
    for (int i = end; i < next; i++)
      push(&to, kernels->at[i]);
    push_part(k, &to, c, CALL_END);
  }
  return to;
}

void overlap_collectives(StageKernels *k) {
  k->forward = overlapped(k, &k->forward);
  k->backward = overlapped(k, &k->backward);
}
