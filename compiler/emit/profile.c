/* A program that times kernels one by one, for `pdc profile`. */
#include "emit/print.h"
#include "ops/op.h"

#include <inttypes.h>
#include <string.h>

typedef struct Timed {
  const StageKernels *stage;
  const Lowered *kernel;
  Name name;
  int count;     /* of kernels like it in the stage */
  int64_t bytes; /* of the buffers, side by side; scratch comes behind */
} Timed;

typedef Vec(Timed) TimedKernels;

static Name local_name(void *context, int buffer) {
  const Arguments *a = context;
  for (int i = 0; i < a->buffers.n; i++)
    if (a->buffers.at[i] == buffer)
      return internf("x%d", i);
  BUG("a call names buffer %d, which is not among its own", buffer);
}

static void collect(const StageKernels *k, const LoweredList *list, TimedKernels *timed, Names *taken) {
  for (int i = 0; i < list->n; i++) {
    int j = 0;
    while (j < timed->n && timed->at[j].kernel->kernel->signature != list->at[i].kernel->signature)
      j++;
    if (j == timed->n)
      push(timed, (Timed){k, &list->at[i], unique_name(taken, list->at[i].kernel->name), 0, 0});
    timed->at[j].count += timed->at[j].stage == k;
  }
}

/* "run_NAME" calls the kernel over memory; "fill_NAME" gives that memory plausible contents. */
static void print_run(Text *out, Timed *t) {
  const Arguments *c = &t->kernel->arguments;
  Text fills = {0};
  text_add(out, "static void run_%s(void) {\n", t->name);
  for (int i = 0; i < c->buffers.n; i++) {
    const Buffer *b = &t->stage->buffers.at[c->buffers.at[i]];
    bool seen = false;
    for (int j = 0; j < i && !seen; j++)
      seen = c->buffers.at[j] == c->buffers.at[i];
    if (seen)
      continue;
    bool token = b->type == TYPE_TOKEN;
    int64_t classes = token ? t->stage->graph->values.at[b->value].classes : 0;
    const char *type = token ? "int32_t" : b->bf16 ? "pd_bf16" : "float";
    text_add(out, "  %s *x%d = (%s *)(memory + %" PRId64 ");\n", type, i, type, t->bytes);
    text_add(&fills, "  fill_%s(memory + %" PRId64 ", %" PRId64 "%s);\n",
             token     ? "tokens"
             : b->bf16 ? "bf16"
                       : "floats",
             t->bytes, b->elements, token ? format(", %" PRId64, classes) : "");
    t->bytes += buffer_bytes(b);
  }
  if (c->first)
    text_add(out, "  const bool first = false;\n");
  if (c->scratch)
    text_add(out, "  char *scratch = memory + %" PRId64 ";\n", t->bytes);
  if (t->kernel->call) {
    print_call(out, 2, dialect_of(t->stage), t->kernel, t->name, local_name, (void *)c);
  } else {
    Names list = {0};
    if (c->first)
      push(&list, intern("first"));
    for (int i = 0; i < c->buffers.n; i++)
      push(&list, internf("x%d", i));
    for (int i = 0; i < c->keys.n; i++)
      push(&list, intern("1"));
    if (c->scratch)
      push(&list, intern("scratch"));
    dialect_of(t->stage)->print_loop_call(out, 2, t->stage, t->kernel, t->name, &list);
  }
  text_add(out, "}\nstatic void fill_%s(void) {\n%s}\n\n", t->name, fills.n ? fills.at : "");
}

/* ---- the program ---------------------------------------------------------------------------------- */

/* Without an argument lines "SIGNATURE SECONDS"; with one, of JSON, for people who compare with a machine's
 * rates. */
static const char main_loop[] =
    "  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {\n    kernels[i].fill();\n"
    "    const double seconds = measure(kernels[i].run);\n"
    "    if (argc > 1)\n"
    "      printf(\"{\\\"kernel\\\": \\\"%s\\\", \\\"count\\\": %d, \\\"bytes\\\": %.0f, "
    "\\\"operations\\\": %.0f, \\\"seconds\\\": %.9g}\\n\",\n"
    "             kernels[i].name, kernels[i].count, kernels[i].bytes, kernels[i].operations, seconds);\n"
    "    else\n      printf(\"%s %.9g\\n\", kernels[i].signature, seconds);\n"
    "    fflush(stdout);\n  }\n";

/* Bytes that a kernel must move: its buffers' once each, of a table that a call looks rows up in those rows'.
 * Operations of products, as mfu counts them. */
static void weigh(const Timed *t, double *bytes, double *operations) {
  const Kernel *k = t->kernel->kernel;
  *bytes = (double)t->bytes;
  *operations = 0;
  if (k->kind != KERNEL_CALL || !k->node->op->cost)
    return;
  OpCost c = k->node->op->cost(t->stage->graph, (int)(k->node - t->stage->graph->nodes.at));
  *operations = c.matmul_flops * (double)t->stage->microbatch;
  if (c.matmul_flops == 0 && c.bytes * (double)t->stage->microbatch < *bytes)
    *bytes = c.bytes * (double)t->stage->microbatch;
}

static void print_table(Text *out, const TimedKernels *timed) {
  text_add(out, "static const struct {\n  const char *signature, *name;\n  void (*run)(void), (*fill)(void);\n"
                "  int count;\n  double bytes, operations;\n} kernels[] = {\n");
  for (int i = 0; i < timed->n; i++) {
    const Timed *t = &timed->at[i];
    double bytes, operations;
    weigh(t, &bytes, &operations);
    text_add(out,
             "  {.signature = \"%s\", .name = \"%s\",\n   .run = run_%s, .fill = fill_%s,\n"
             "   .count = %d, .bytes = %.0f, .operations = %.0f},\n",
             t->kernel->kernel->signature, t->name, t->name, t->name, t->count, bytes, operations);
  }
  text_add(out, "};\n\n");
}

char *emit_profile(const LoweredStage *const *stages, int n) {
  enum { MOST_OPERANDS = 64 };
  const StageKernels *first = stages[0]->kernels;
  const Dialect *dialect = dialect_of(first);
  bool now = false;
  TimedKernels timed = {0};
  Names taken = dialect_names(dialect);
  for (int i = 0; i < MOST_OPERANDS; i++)
    push(&taken, internf("x%d", i));
  for (int i = 0; i < n; i++) {
    collect(stages[i]->kernels, lowered_pass(stages[i], PASS_FORWARD), &timed, &taken);
    collect(stages[i]->kernels, lowered_pass(stages[i], PASS_BACKWARD), &timed, &taken);
  }
  Text out = {0}, loops = {0}, objects = {0}, runs = {0}, setup = {0};
  text_add(&out, "%s", dialect->timing.preamble);
  text_add(&out, "enum { MICROBATCH = %" PRId64 " };\n", first->microbatch);
  int64_t bytes = 0;
  for (int i = 0; i < timed.n; i++) {
    Timed *t = &timed.at[i];
    now |= t->kernel->arguments.now;
    if (!t->kernel->call) {
      dialect->print_loop(&loops, t->stage, t->kernel, t->name);
    } else {
      print_call_object(&objects, t->kernel, t->name);
      print_call_setup(&setup, dialect, t->kernel, t->name);
    }
    print_run(&runs, t);
    int64_t need = t->bytes + t->kernel->scratch_bytes;
    bytes = need > bytes ? need : bytes;
  }
  if (now)
    text_add(&out, "%s", dialect->timing.now);
  text_add(&out, "%s%s\n%s%s", loops.n ? loops.at : "", objects.n ? objects.at : "", runs.n ? runs.at : "",
           dialect->timing.measuring);
  print_table(&out, &timed);
  text_add(&out, "int main(int argc, char **argv) {\n  (void)argv;\n");
  dialect->timing.print_start(&out, bytes + 4096, first->target.threads, now);
  text_add(&out, "%s%s%s  return 0;\n}\n", setup.n ? setup.at : "", main_loop, dialect->timing.end);
  return out.at;
}
