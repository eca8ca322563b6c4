/* Kernels as text (`--emit kernels`). */
#include "fuse/kernel.h"

static const char *const kind_names[] = {
    [BUFFER_WEIGHT] = "weight",
    [BUFFER_FROZEN] = "frozen",
    [BUFFER_ACCUMULATOR] = "accumulator",
    [BUFFER_INPUT] = "input",
    [BUFFER_RECEIVED] = "received",
    [BUFFER_SENT] = "sent",
    [BUFFER_GRADIENT_RECEIVED] = "gradient_received",
    [BUFFER_GRADIENT_SENT] = "gradient_sent",
    [BUFFER_SAVED] = "saved",
    [BUFFER_KEPT] = "kept",
    [BUFFER_DEFERRED] = "deferred",
    [BUFFER_TEMPORARY] = "temporary",
    [BUFFER_TABLE] = "table",
    [BUFFER_CACHE] = "cache",
    [BUFFER_FIGURE] = "figure",
};

static void dump_place(const StageKernels *k, const Place *p, FILE *out) {
  fprintf(out, "%s#%d", k->buffers.at[p->buffer].name, p->buffer);
  if (p->offset)
    fprintf(out, "+%lld", (long long)p->offset);
  fprintf(out, "[");
  for (int i = 0; i < p->rank; i++)
    fprintf(out, "%s%lld:%lld", i ? ", " : "", (long long)p->dim[i], (long long)p->stride[i]);
  fprintf(out, "]");
}

static void dump_loop(const StageKernels *k, const Kernel *kernel, FILE *out) {
  fprintf(out, "    loop [");
  for (int i = 0; i < kernel->n_dims; i++)
    fprintf(out, "%s%lld", i ? ", " : "", (long long)kernel->dim[i]);
  fprintf(out, "] parallel %d tiles %d phases %d%s\n", kernel->parallel, kernel->tiles, kernel->phases,
          kernel->samples ? " by sample" : "");
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *t = &kernel->terms.at[i];
    fprintf(out, "    %%%d = ", i);
    if (t->kind == TERM_LOAD)
      dump_place(k, &t->place, out);
    else if (t->kind == TERM_CONSTANT)
      fprintf(out, "%.9g", t->constant);
    else
      fprintf(out, "%s%s", t->kind == TERM_REDUCE ? "row " : "", t->op->name);
    for (int j = 0; j < t->n_in; j++)
      fprintf(out, " %%%d", t->in[j]);
    fprintf(out, "  ; %s%s%s phases %x\n", t->name ? t->name : "", t->scalar ? ", a scalar" : "",
            t->row_buffer ? ", cached for the row" : "", t->phases);
  }
  for (int i = 0; i < kernel->stores.n; i++) {
    fprintf(out, "    ");
    dump_place(k, &kernel->stores.at[i].place, out);
    fprintf(out, " %s %%%d in phase %d\n", kernel->stores.at[i].accumulate ? "+=" : "=", kernel->stores.at[i].term,
            kernel->stores.at[i].phase);
  }
}

static void dump_kernels(const StageKernels *k, const char *title, const Kernels *kernels, FILE *out) {
  fprintf(out, "%s\n", title);
  for (int i = 0; i < kernels->n; i++) {
    const Kernel *kernel = &kernels->at[i];
    fprintf(out, "  %d %s {%s} region %d ; %s\n", i, kernel->name, kernel->signature, kernel->region,
            kernel->comment);
    if (kernel->kind == KERNEL_LOOP) {
      dump_loop(k, kernel, out);
      continue;
    }
    static const char *const parts[] = {[CALL_WHOLE] = "", [CALL_BEGIN] = " begin", [CALL_END] = " end"};
    fprintf(out, "    call %s%s%s%s\n", kernel->node->op->name, parts[kernel->part],
            kernel->accumulate ? " accumulating" : "", kernel->bias >= 0 ? " with bias" : "");
    for (Access a = {0}; next_access(kernel, &a);) {
      fprintf(out, "      %s ", a.write ? "out" : "in ");
      dump_place(k, a.place, out);
      fprintf(out, "\n");
    }
  }
}

static void dump_ranges(const int *first, const int *end, FILE *out) {
  static const char *const names[PASS_KINDS] = {"forward", "backward", "weights"};
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    if (first[pass] < end[pass])
      fprintf(out, " %s %d..%d", names[pass], first[pass], end[pass]);
  fprintf(out, "\n");
}

void kernels_dump(const StageKernels *k, FILE *out) {
  fprintf(out, "stage %d of %d: microbatch %lld%s%s\n", k->stage, k->n_stages, (long long)k->microbatch,
          k->recompute ? ", recomputed" : "", k->split ? ", backward in two" : "");
  for (int i = 0; i < k->chunks.n; i++) {
    const Chunk *c = &k->chunks.at[i];
    fprintf(out, "chunk %d pieces %d to %d", i, c->first_piece, c->end_piece - 1);
    dump_ranges(c->first, c->end, out);
  }
  for (int i = 0; i < k->regions.n; i++) {
    const Region *r = &k->regions.at[i];
    fprintf(out, "region %d '%s' of chunk %d like %d", i, r->path, r->chunk, r->like);
    dump_ranges(r->first, r->end, out);
  }
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    fprintf(out, "buffer %d %s %s [", i, kind_names[b->kind], b->name);
    for (int j = 0; j < b->rank; j++)
      fprintf(out, "%s%lld", j ? ", " : "", (long long)b->dim[j]);
    fprintf(out, "]%s chunk %d region %d kernels %d..%d%s ; %s\n", b->bf16 ? " bf16" : "", b->chunk, b->region,
            b->first, b->last, b->late ? " late" : "", b->comment);
  }
  dump_kernels(k, "setup", &k->setup, out);
  dump_kernels(k, "forward", &k->forward, out);
  dump_kernels(k, "backward", &k->backward, out);
  if (k->weights.n)
    dump_kernels(k, "weights", &k->weights, out);
}
