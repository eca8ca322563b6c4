/* Kernels as text (`--emit kernels`) and their invariants. */
#include "fuse/internal.h"

static const char *const kind_names[] = {
  "weight", "accumulator", "input", "received", "sent", "gradient_received", "gradient_sent", "saved", "kept",
  "deferred", "temporary", "table", "figure",
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
  fprintf(out, "] parallel %d chunks %d passes %d%s\n", kernel->parallel, kernel->chunks, kernel->phases,
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
    fprintf(out, "  ; %s%s%s passes %x\n", t->name ? t->name : "", t->scalar ? ", a scalar" : "",
            t->row_buffer ? ", kept for the row" : "", t->passes);
  }
  for (int i = 0; i < kernel->stores.n; i++) {
    fprintf(out, "    ");
    dump_place(k, &kernel->stores.at[i].place, out);
    fprintf(out, " %s %%%d in pass %d\n", kernel->stores.at[i].accumulate ? "+=" : "=", kernel->stores.at[i].term,
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
    fprintf(out, "    call %s%s%s\n", kernel->node->op->name, kernel->accumulate ? " accumulating" : "",
            kernel->bias >= 0 ? " with bias" : "");
    for (int j = 0; j < kernel->in.n + kernel->out.n; j++) {
      bool in = j < kernel->in.n;
      fprintf(out, "      %s ", in ? "in " : "out");
      dump_place(k, in ? &kernel->in.at[j] : &kernel->out.at[j - kernel->in.n], out);
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

/* ---- invariants --------------------------------------------------------------------------------------- */

static void verify_place(const StageKernels *k, const Place *p) {
  ensure(p->buffer >= 0 && p->buffer < k->buffers.n);
  int64_t furthest = p->offset;
  for (int i = 0; i < p->rank; i++)
    furthest += (p->dim[i] - 1) * p->stride[i];
  ensure(p->offset >= 0 && furthest < k->buffers.at[p->buffer].elements);
}

static void verify_loop(const StageKernels *k, const Kernel *kernel) {
  int last = kernel->n_dims - 1;
  ensure(last >= 0 && kernel->parallel <= last);
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *t = &kernel->terms.at[i];
    for (int j = 0; j < t->n_in; j++)
      ensure(t->in[j] < i);
    if (t->kind == TERM_LOAD) {
      verify_place(k, &t->place);
      ensure(t->place.rank == kernel->n_dims);
      for (int d = 0; d < kernel->n_dims; d++)
        ensure(t->place.dim[d] == kernel->dim[d]);
    }
  }
  ensure(kernel->stores.n > 0);
  for (int i = 0; i < kernel->stores.n; i++) {
    verify_place(k, &kernel->stores.at[i].place);
    ensure(kernel->stores.at[i].place.rank == kernel->n_dims);
    const Store *s = &kernel->stores.at[i];
    bool scalar = kernel->terms.at[s->term].scalar && (s->place.stride[last] == 0 || kernel->dim[last] == 1);
    ensure(s->phase < kernel->phases || (s->phase == kernel->phases && scalar));
  }
}

/* Figures, of which there is one copy, and temporaries of the forward pass do not last until a microbatch's
 * backward pass. Chunks share weights alone. */
static void verify_read(const StageKernels *k, const Kernel *kernel, int buffer, const bool *written) {
  const Buffer *b = &k->buffers.at[buffer];
  ensure(written[buffer] && !(kernel->backward && b->kind == BUFFER_FIGURE));
  ensure(!kernel->backward || b->backward || b->kind != BUFFER_TEMPORARY);
  ensure(b->chunk == kernel->chunk || b->kind == BUFFER_WEIGHT);
}

static void verify_written(const StageKernels *k, const Kernel *kernel, int buffer, bool *written) {
  ensure(k->buffers.at[buffer].chunk == kernel->chunk && k->buffers.at[buffer].kind != BUFFER_WEIGHT);
  written[buffer] = true;
}

/* Temporaries are written before they are read, in the order of the kernels. */
static void verify_order(const StageKernels *k, const Kernels *kernels, bool *written) {
  for (int i = 0; i < kernels->n; i++) {
    const Kernel *kernel = &kernels->at[i];
    for (int j = 0; j < kernel->in.n; j++)
      verify_read(k, kernel, kernel->in.at[j].buffer, written);
    for (int j = 0; j < kernel->terms.n; j++)
      if (kernel->terms.at[j].kind == TERM_LOAD)
        verify_read(k, kernel, kernel->terms.at[j].place.buffer, written);
    for (int j = 0; j < kernel->out.n; j++)
      verify_written(k, kernel, kernel->out.at[j].buffer, written);
    for (int j = 0; j < kernel->stores.n; j++)
      verify_written(k, kernel, kernel->stores.at[j].place.buffer, written);
    if (kernel->kind == KERNEL_LOOP) {
      verify_loop(k, kernel);
      continue;
    }
    for (int j = 0; j < kernel->in.n; j++)
      verify_place(k, &kernel->in.at[j]);
    for (int j = 0; j < kernel->out.n; j++)
      verify_place(k, &kernel->out.at[j]);
  }
}

static bool touches(const Kernel *kernel, int buffer) {
  bool any = false;
  for (int i = 0; i < kernel->in.n; i++)
    any |= kernel->in.at[i].buffer == buffer;
  for (int i = 0; i < kernel->out.n; i++)
    any |= kernel->out.at[i].buffer == buffer;
  for (int i = 0; i < kernel->terms.n; i++)
    any |= kernel->terms.at[i].kind == TERM_LOAD && kernel->terms.at[i].place.buffer == buffer;
  for (int i = 0; i < kernel->stores.n; i++)
    any |= kernel->stores.at[i].place.buffer == buffer;
  return any;
}

/* The weights pass makes what nobody else touches, from what lasts until then. */
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
                 !touches(&pass_kernels(k, pass)->at[l], kernel->out.at[j].buffer));
    }
  }
}

void kernels_verify(const StageKernels *k) {
  bool *written = alloc((size_t)k->buffers.n + 1);
  for (int i = 0; i < k->buffers.n; i++) {
    BufferKind kind = k->buffers.at[i].kind;
    written[i] = kind == BUFFER_WEIGHT || kind == BUFFER_INPUT || kind == BUFFER_RECEIVED ||
                 kind == BUFFER_GRADIENT_RECEIVED;
  }
  verify_order(k, &k->setup, written);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    verify_order(k, pass_kernels(k, pass), written);
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
