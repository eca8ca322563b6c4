/* `pdc profile --table`: time of a batch by kernel, with bounds from bytes and operations at the machine's best
 * rates. The bound of a kernel is the longer of moving every buffer element once, and of its operations.
 * Operations outside products count double, because products fuse multiply and add. Cached data may beat the
 * memory bound: then the gap is 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/internal.h"

enum { MOST_ROWS = 20 };

typedef struct Row {
  Name name, kind, what;
  Name key; /* rows with equal keys are merged: a kernel's signature, or a kind's name */
  double calls, seconds, by_memory, by_operations;
} Row;
typedef Vec(Row) Rows;

static double allowed(const Row *r) { return fmax(r->by_memory, r->by_operations); }
static double gap(const Row *r) { return fmax(r->seconds - allowed(r), 0); }

static int by_gap(const void *a, const void *b) {
  const Row *x = a, *y = b;
  if (gap(x) != gap(y))
    return gap(x) < gap(y) ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void add(Rows *rows, const Row *r) {
  for (int i = 0; i < rows->n; i++)
    if (rows->at[i].key == r->key) {
      Row *to = &rows->at[i];
      to->calls += r->calls;
      to->seconds += r->seconds;
      to->by_memory += r->by_memory;
      to->by_operations += r->by_operations;
      return;
    }
  push(rows, *r);
}

/* The row of one call. */
static bool kernel_row(const ProfileTable *t, const Lowered *l, double calls, Row *row) {
  double seconds;
  if (!find_seconds(t->timings, l->kernel, &seconds))
    return false;
  const KernelWork w = kernel_work(t->stage->kernels, l);
  const double operations = (w.products - w.spared) / t->rates.products + 2 * w.others / t->rates.operations;
  *row = (Row){.name = l->kernel->name,
               .kind = intern(l->call ? l->kernel->node->op->name : "loop"),
               .what = l->kernel->comment,
               .key = l->kernel->signature,
               .calls = calls,
               .seconds = calls * seconds,
               .by_memory = calls * w.bytes / t->rates.memory,
               .by_operations = calls * operations};
  return true;
}

/* The row of a runtime loop over all trained elements, in this number of arrays. */
static Row update_row(const ProfileTable *t, const char *name, const char *what, int arrays) {
  double elements = (double)t->elements;
  return (Row){.name = intern(name),
               .kind = intern(name),
               .what = intern(what),
               .key = intern(name),
               .calls = 1,
               .seconds = elements * timing_named(t->timings, name),
               .by_memory = 4 * elements * arrays / t->rates.memory};
}

/* Collects the kernels of a batch. */
static bool collect(const ProfileTable *t, Rows *kernels) {
  const Graph *g = t->stage->kernels->graph;
  const double calls = (double)g->train.batch / (double)t->stage->kernels->microbatch;
  for (PassKind pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++) {
    const LoweredList *list = lowered_pass(t->stage, pass);
    for (int i = 0; i < list->n; i++) {
      Row row;
      if (!kernel_row(t, &list->at[i], calls, &row))
        return false;
      add(kernels, &row);
    }
  }
  if (!t->rule)
    return true;
  const Row update = update_row(t, "update", format("optimizer %s", t->rule), 3 + 2 * t->n_moments);
  const Row norm = update_row(t, "norm", "squares of gradients", 1);
  add(kernels, &update);
  add(kernels, &norm);
  return true;
}

/* The bound of a kind is the sum of its kernels' bounds. */
static Rows sum_up(const Rows *kernels) {
  Rows kinds = {0};
  for (int i = 0; i < kernels->n; i++) {
    Row row = kernels->at[i];
    row.by_memory = allowed(&row);
    row.by_operations = 0;
    row.name = row.key = row.kind;
    add(&kinds, &row);
  }
  return kinds;
}

static const char *bound_of(const Row *r) { return r->by_memory >= r->by_operations ? "bytes" : "operations"; }

static void print_rows(Rows *rows, const char *title, double total, bool kernels, FILE *out) {
  int width = (int)strlen(title), n = rows->n < MOST_ROWS ? rows->n : MOST_ROWS;
  qsort(rows->at, (size_t)rows->n, sizeof *rows->at, by_gap);
  for (int i = 0; i < n; i++)
    width = (int)strlen(rows->at[i].name) > width ? (int)strlen(rows->at[i].name) : width;
  fprintf(out, "\n%-*s  %6s  %9s  %6s  %10s  %7s  %8s%s\n", width, title, "calls", "ms", "share", "allowed ms",
          "reached", "gap ms", kernels ? "  bound by    computes" : "");
  double rest = 0, rest_gap = 0;
  for (int i = 0; i < rows->n; i++) {
    const Row *r = &rows->at[i];
    if (i >= n) {
      rest += r->seconds;
      rest_gap += gap(r);
      continue;
    }
    fprintf(out, "%-*s  %6.0f  %9.3f  %4.1f %%  %10.3f  %5.0f %%  %8.3f", width, r->name, r->calls,
            1e3 * r->seconds, 100 * r->seconds / total, 1e3 * allowed(r),
            r->seconds > 0 ? 100 * allowed(r) / r->seconds : 0, 1e3 * gap(r));
    fprintf(out, kernels ? "  %-10s  %s\n" : "\n", bound_of(r), r->what);
  }
  if (rows->n > n)
    fprintf(out, "and %d more, %.3f ms, gaps of %.3f ms\n", rows->n - n, 1e3 * rest, 1e3 * rest_gap);
}

bool profile_table(const ProfileTable *t, FILE *out) {
  const StageKernels *k = t->stage->kernels;
  Rows kernels = {0};
  if (!collect(t, &kernels))
    return false;
  Rows kinds = sum_up(&kernels);
  double total = 0, least = 0;
  for (int i = 0; i < kinds.n; i++) {
    total += kinds.at[i].seconds;
    least += allowed(&kinds.at[i]);
  }
  fprintf(out, "a batch of %lld in microbatches of %lld: %.2f ms, of which bytes and operations allow %.2f\n",
          (long long)k->graph->train.batch, (long long)k->microbatch, 1e3 * total, 1e3 * least);
  fprintf(out, "%s: products at %.1f GFLOP/s in %s, memory at %.1f GB/s (%s)\n", t->machine,
          t->rates.products / 1e9, precision_name(k->target.precision), t->rates.memory / 1e9,
          t->measured ? "measured beside" : "as plans count");
  print_rows(&kinds, "kind", total, false, out);
  print_rows(&kernels, "kernel", total, true, out);
  return true;
}
