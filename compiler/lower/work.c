/* Data movement and operations of a kernel, independent of the target and its speed. */
#include "lower/internal.h"

/* operations that an expensive elementwise function (exp, tanh, erf ..) counts as */
enum { EXPENSIVE = 12 };

/* The most elements of a buffer that a loop's places access. */
static double reached(const Lowered *l, int buffer) {
  double elements = 0;
  for (Access a = {0}; next_access(l->kernel, &a);) {
    bool dead = !a.write && !l->shape->live[a.index];
    double each = 1;
    for (int i = 0; i < a.place->rank && !dead; i++)
      each *= a.place->stride[i] ? (double)a.place->dim[i] : 1;
    elements += a.place->buffer == buffer && !dead ? each : 0;
  }
  return elements;
}

static double bytes_of(const StageKernels *stage, const Lowered *l) {
  const Ints *buffers = &l->arguments.buffers;
  double bytes = 0;
  for (int i = 0; i < buffers->n; i++) {
    bool before = false;
    for (int j = 0; j < i; j++)
      before |= buffers->at[j] == buffers->at[i];
    const Buffer *b = &stage->buffers.at[buffers->at[i]];
    double elements = (double)b->elements;
    if (!l->call && reached(l, buffers->at[i]) < elements)
      elements = reached(l, buffers->at[i]);
    bytes += before ? 0 : elements * (double)element_bytes(b);
  }
  return bytes;
}

static double operations_of(const Lowered *l) {
  const LoopShape *s = l->shape;
  double operations = 0;
  for (int i = 0; i < l->kernel->terms.n; i++) {
    const Term *t = &l->kernel->terms.at[i];
    double each = t->kind == TERM_OP ? (t->op->expensive ? EXPENSIVE : 1) : t->kind == TERM_REDUCE;
    double rows = (double)s->groups * (double)s->rows;
    bool by_row = t->scalar && t->kind == TERM_OP;
    operations += s->live[i] ? each * (by_row ? rows : (double)s->elements) : 0;
  }
  return operations;
}

static bool all_floats(const StageKernels *stage, const Lowered *l) {
  const Ints *buffers = &l->arguments.buffers;
  for (int i = 0; i < buffers->n; i++)
    if (stage->buffers.at[buffers->at[i]].bf16)
      return false;
  return true;
}

KernelWork kernel_work(const StageKernels *stage, const Lowered *l) {
  KernelWork w = {.bytes = bytes_of(stage, l)};
  const Node *node = l->kernel->node;
  if (!l->call) {
    w.others = operations_of(l);
  } else if (node->op->cost) {
    OpCost c = node->op->cost(stage->graph, (int)(node - stage->graph->nodes.at));
    double samples = (double)stage->microbatch;
    w.products = c.matmul_flops * samples;
    w.spared = all_floats(stage, l) ? c.spared * samples : 0;
    w.others = c.other_flops * samples;
    if (c.matmul_flops == 0 && c.bytes * samples < w.bytes)
      w.bytes = c.bytes * samples;
  }
  return w;
}
