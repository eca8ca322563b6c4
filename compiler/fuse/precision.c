/* Decides which values --precision bf16 stores in bf16. Library calls multiply in bf16, so values that a call
 * reads or writes are bf16 in memory, unless the call's op keeps them in f32. Values that only loops use
 * (statistics, losses) keep the loops' precision. Calls read rounded copies of the residual stream, or the stream
 * itself is bf16 (residual/residual.h). The choice depends on the graph alone, so both sides of a cut agree. A
 * loop rounds such a value before its next use, so its result equals that of a loop after a cut. */
#include "fuse/internal.h"

static bool stays_f32(const Node *n, bool result, int index) {
  return n->op->stays_f32 && n->op->stays_f32(n, result, index);
}

static void mark(const Graph *g, bool *bf16, int value) {
  int root = behind_views(g, value);
  bf16[root] |= g->values.at[root].type == TYPE_F32;
}

/* The addition of a vector to a product may become part of the call (merge_biases), which then reads the vector
 * and writes the sum. */
static void mark_bias(const Graph *g, const Node *add, bool *bf16) {
  for (int side = 0; side < 2; side++) {
    const Value *product = &g->values.at[add->in[side]], *vector = &g->values.at[add->in[1 - side]];
    const Node *m = &g->nodes.at[product->node];
    if (m->op->takes_bias && vector->shape.rank == 1 && !vector->shape.batched &&
        vector->shape.dim[0] == product->shape.dim[product->shape.rank - 1]) {
      mark(g, bf16, add->in[1 - side]);
      mark(g, bf16, add->out[0]);
      return;
    }
  }
}

/* Calls may write directly into their parts of a concatenation. */
static void mark_concat(const Graph *g, const Node *concat, bool *bf16) {
  for (int k = 0; k < concat->n_in; k++)
    if (bf16[behind_views(g, concat->in[k])])
      mark(g, bf16, concat->out[0]);
}

bool *values_in_bf16(const Graph *g, Precision precision) {
  bool *bf16 = alloc((size_t)g->values.n + 1);
  if (precision != PRECISION_BF16)
    return bf16;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->adds_bias)
      mark_bias(g, n, bf16);
    for (int k = 0; n->op->kind == OP_CALL && k < n->n_in; k++)
      if (!stays_f32(n, false, k))
        mark(g, bf16, n->in[k]);
    for (int k = 0; n->op->kind == OP_CALL && k < n->n_out; k++)
      if (!stays_f32(n, true, k))
        mark(g, bf16, n->out[k]);
  }
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].op->kind == OP_CONCAT)
      mark_concat(g, &g->nodes.at[i], bf16);
  for (int v = 0; v < g->values.n; v++)
    bf16[v] |= g->values.at[v].bf16;
  for (int v = 0; v < g->values.n; v++)
    bf16[v] = bf16[behind_views(g, v)];
  return bf16;
}

/* Sums over a batch, losses and tables stay in f32. */
static bool stays_exact(const Buffer *b) {
  bool made_exact = b->kind == BUFFER_ACCUMULATOR || b->kind == BUFFER_FIGURE || b->kind == BUFFER_TABLE;
  return b->type != TYPE_F32 || made_exact;
}

/* Terms with only bf16 stores need no rounding in the loop: the store rounds. */
static void round_terms(const StageKernels *k, Kernel *kernel) {
  bool *used = alloc((size_t)kernel->terms.n + 1);
  for (int i = 0; i < kernel->terms.n; i++)
    for (int j = 0; j < kernel->terms.at[i].n_in; j++)
      used[kernel->terms.at[i].in[j]] = true;
  for (int i = 0; i < kernel->stores.n; i++) {
    const Store *s = &kernel->stores.at[i];
    used[s->term] |= s->accumulate || !k->buffers.at[s->place.buffer].bf16;
  }
  for (int i = 0; i < kernel->terms.n; i++)
    kernel->terms.at[i].rounded &= used[i];
}

bool figure_in_bf16(const Graph *g, int figure) { return g->loop.bf16 && g->loop.bf16[g->inputs.n + figure]; }

/* Inputs and results of a scan's body are stored as in the scan's graph. */
static bool is_stored_in_bf16(const Fuse *f, const Buffer *b) {
  for (int i = 0; i < f->g->inputs.n && f->g->loop.steps && b->kind == BUFFER_INPUT; i++)
    if (f->g->inputs.at[i].value == b->value)
      return f->g->loop.bf16 && f->g->loop.bf16[i];
  if (f->g->loop.steps && b->kind == BUFFER_FIGURE)
    return figure_in_bf16(f->g, b->figure);
  return !stays_exact(b) && b->value >= 0 && f->facts->bf16[f->k->target.precision][b->value];
}

void choose_precision(const Fuse *f) {
  StageKernels *k = f->k;
  for (int i = 0; i < k->buffers.n; i++)
    k->buffers.at[i].bf16 = is_stored_in_bf16(f, &k->buffers.at[i]);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    for (int i = 0; i < pass_kernels(k, pass)->n; i++)
      round_terms(k, &pass_kernels(k, pass)->at[i]);
}

static void verify_operand(const StageKernels *k, const Kernel *kernel, const Access *a) {
  const Buffer *b = &k->buffers.at[a->place->buffer];
  bool exact = stays_exact(b) && !k->graph->loop.steps;
  bool rounded = k->target.precision == PRECISION_BF16 && !exact && b->type == TYPE_F32 &&
                 !stays_f32(kernel->node, a->write, a->index);
  ensure(b->bf16 || !rounded);
}

void verify_precision(const StageKernels *k) {
  for (int i = 0; i < k->buffers.n; i++)
    ensure(!k->buffers.at[i].bf16 ||
           (k->target.precision == PRECISION_BF16 && (k->graph->loop.steps || !stays_exact(&k->buffers.at[i]))));
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    for (int i = 0; i < pass_kernels(k, pass)->n; i++) {
      const Kernel *kernel = &pass_kernels(k, pass)->at[i];
      for (Access a = {0}; kernel->kind == KERNEL_CALL && next_access(kernel, &a);)
        verify_operand(k, kernel, &a);
    }
}
