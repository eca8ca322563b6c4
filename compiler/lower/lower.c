/* Lowers a stage's kernels, in the same order. */
#include "lower/internal.h"

#include <inttypes.h>

static Lowered lower_kernel(const StageKernels *stage, const Kernel *k) {
  Lowered l = {.kernel = k};
  if (k->kind == KERNEL_CALL) {
    lower_call(stage, &l);
    return l;
  }
  l.shape = loop_shape(stage, k);
  l.arguments = loop_arguments(stage, &l);
  lowering_of(stage)->loop(stage, &l);
  l.arguments.scratch = l.scratch_bytes > 0;
  return l;
}

LoweredStage *lower(const StageKernels *k) {
  LoweredStage *s = alloc(sizeof *s);
  s->kernels = k;
  for (int list = 0; list < N_LISTS; list++) {
    const Kernels *from = list ? pass_kernels(k, (PassKind)(list - 1)) : &k->setup;
    for (int i = 0; i < from->n; i++)
      push(&s->list[list], lower_kernel(k, &from->at[i]));
  }
  return s;
}

/* ---- dump -------------------------------------------------------------------------------------- */

static void dump_host(const Lowered *k, FILE *out) {
  const HostLoop *h = k->host;
  if (h->tiled)
    fprintf(out, ", %d tiles%s", k->kernel->tiles, h->parallel ? " on threads" : "");
  else if (h->ranged)
    fprintf(out, ", %" PRId64 " to threads, %" PRId64 " a task", h->ways, h->share);
  if (k->shape->sums)
    fprintf(out, ", partial sums of %" PRId64 " in %s", k->shape->sums, h->in_scratch ? "scratch" : "the stack");
}

static void dump_gpu(const Lowered *k, FILE *out) {
  static const char *const kinds[] = {"elements", "rows", "columns"};
  const GpuLoop *g = k->gpu;
  fprintf(out, ", %s on %" PRId64 " blocks of %d x %d, %d x %d elements a thread", kinds[g->kind], g->blocks, g->x,
          g->y, g->vectors, g->vector);
  if (g->in_scratch)
    fprintf(out, ", %" PRId64 " partial sums of %d tiles", g->sums, g->tiles);
}

static void dump_kernel(const StageKernels *stage, const Lowered *k, FILE *out) {
  fprintf(out, "  %s: ", k->kernel->name);
  if (k->call) {
    fprintf(out, "%s", k->call->function);
  } else {
    fprintf(out, "%" PRId64 " groups of %" PRId64 " rows of %" PRId64, k->shape->groups, k->shape->rows,
            k->shape->columns);
    (k->host ? dump_host : dump_gpu)(k, out);
  }
  fprintf(out, "; scratch %" PRId64 "; with", k->scratch_bytes);
  for (int i = 0; i < k->arguments.buffers.n; i++)
    fprintf(out, " %s%s", stage->buffers.at[k->arguments.buffers.at[i]].name, k->arguments.written[i] ? "!" : "");
  fprintf(out, "\n");
}

void lowered_dump(const LoweredStage *s, FILE *out) {
  static const char *const names[N_LISTS] = {"setup", "forward", "backward", "weights"};
  for (int list = 0; list < N_LISTS; list++) {
    if (s->list[list].n)
      fprintf(out, "stage %d, lowered, %s:\n", s->kernels->stage, names[list]);
    for (int i = 0; i < s->list[list].n; i++)
      dump_kernel(s->kernels, &s->list[list].at[i], out);
  }
}

/* ---- checks ------------------------------------------------------------------------------------ */

/* Checks that every place of the kernel has an argument, marked as written if the kernel writes there. */
static void verify_arguments(const Lowered *k) {
  const Arguments *a = &k->arguments;
  for (Access x = {0}; next_access(k->kernel, &x);) {
    bool found = !k->call && !x.write && !k->shape->live[x.index]; /* a load that no store depends on */
    for (int i = 0; i < a->buffers.n; i++)
      found |= a->buffers.at[i] == x.place->buffer && (a->written[i] || !x.write);
    if (!found)
      BUG("kernel '%s' is not called with all that it uses", k->kernel->name);
  }
}

void lowered_verify(const LoweredStage *s) {
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < s->list[list].n; i++) {
      const Lowered *k = &s->list[list].at[i];
      bool loop = k->kernel->kind == KERNEL_LOOP;
      ensure(loop == (k->shape != NULL) && loop == ((k->host != NULL) != (k->gpu != NULL)) && loop == !k->call);
      ensure(k->scratch_bytes >= 0 && (k->arguments.scratch || k->scratch_bytes == 0));
      verify_arguments(k);
    }
}
