/* Kernels as text (`--emit kernels`) and their invariants. */
#include "fuse/kernel.h"

static const char *const kind_names[] = {"weight", "accumulator", "input", "received", "sent", "gradient_received",
                                         "gradient_sent", "saved", "temporary", "table", "loss"};

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

void kernels_dump(const StageKernels *k, FILE *out) {
  fprintf(out, "stage %d of %d: pieces %d to %d, microbatch %lld%s\n", k->stage, k->n_stages, k->first_piece,
          k->end_piece - 1, (long long)k->microbatch, k->recompute ? ", recomputed" : "");
  for (int i = 0; i < k->regions.n; i++) {
    const Region *r = &k->regions.at[i];
    fprintf(out, "region %d '%s' forward %d..%d backward %d..%d like %d\n", i, r->path, r->first_forward, r->end_forward,
            r->first_backward, r->end_backward, r->like);
  }
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    fprintf(out, "buffer %d %s %s [", i, kind_names[b->kind], b->name);
    for (int j = 0; j < b->rank; j++)
      fprintf(out, "%s%lld", j ? ", " : "", (long long)b->dim[j]);
    fprintf(out, "] region %d kernels %d..%d ; %s\n", b->region, b->first, b->last, b->comment);
  }
  dump_kernels(k, "setup", &k->setup, out);
  dump_kernels(k, "forward", &k->forward, out);
  dump_kernels(k, "backward", &k->backward, out);
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

/* Of a loss there is one copy: it does not last until a microbatch's backward pass. */
static void verify_read(const StageKernels *k, const Kernel *kernel, int buffer, const bool *written) {
  ensure(written[buffer] && !(kernel->backward && k->buffers.at[buffer].kind == BUFFER_LOSS));
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
      written[kernel->out.at[j].buffer] = true;
    for (int j = 0; j < kernel->stores.n; j++)
      written[kernel->stores.at[j].place.buffer] = true;
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

void kernels_verify(const StageKernels *k) {
  bool *written = alloc((size_t)k->buffers.n + 1);
  for (int i = 0; i < k->buffers.n; i++) {
    BufferKind kind = k->buffers.at[i].kind;
    written[i] = kind == BUFFER_WEIGHT || kind == BUFFER_INPUT || kind == BUFFER_RECEIVED ||
                 kind == BUFFER_GRADIENT_RECEIVED;
  }
  verify_order(k, &k->setup, written);
  verify_order(k, &k->forward, written);
  verify_order(k, &k->backward, written);
  for (int i = 0; i < k->buffers.n; i++)
    ensure(written[i] || k->buffers.at[i].kind == BUFFER_INPUT);
  for (int r = 0; r < k->regions.n; r++)
    for (int i = k->regions.at[r].first_forward; i < k->regions.at[r].end_forward; i++)
      ensure(k->forward.at[i].region == r);
}
