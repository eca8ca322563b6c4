/* A program that times kernels one by one, for `pdc profile`. */
#include "emit/print.h"

#include <inttypes.h>
#include <string.h>

typedef struct Timed {
  const StageKernels *stage;
  const Kernel *kernel;
  Name name;
  int64_t bytes; /* of the buffers, side by side; scratch comes behind */
} Timed;

typedef Vec(Timed) TimedKernels;

static Name local_name(void *context, int buffer) {
  const KernelCall *c = context;
  for (int i = 0; i < c->buffers.n; i++)
    if (c->buffers.at[i] == buffer)
      return internf("x%d", i);
  BUG("a call names buffer %d, which is not among its own", buffer);
}

static void collect(const StageKernels *k, const Kernels *list, TimedKernels *timed, Names *taken) {
  for (int i = 0; i < list->n; i++) {
    bool known = false;
    for (int j = 0; j < timed->n && !known; j++)
      known = timed->at[j].kernel->signature == list->at[i].signature;
    if (!known)
      push(timed, (Timed){k, &list->at[i], unique_name(taken, list->at[i].name), 0});
  }
}

/* "run_NAME" calls the kernel over memory; "fill_NAME" gives that memory plausible contents. */
static void print_run(Text *out, Timed *t) {
  KernelCall c = kernel_call(t->stage, t->kernel);
  Text fills = {0};
  text_add(out, "static void run_%s(void) {\n", t->name);
  for (int i = 0; i < c.buffers.n; i++) {
    const Buffer *b = &t->stage->buffers.at[c.buffers.at[i]];
    bool seen = false;
    for (int j = 0; j < i && !seen; j++)
      seen = c.buffers.at[j] == c.buffers.at[i];
    if (seen)
      continue;
    bool token = b->type == TYPE_TOKEN;
    int64_t classes = token ? t->stage->graph->values.at[b->value].classes : 0;
    text_add(out, "  %s *x%d = (%s *)(memory + %" PRId64 ");\n", token ? "int32_t" : "float", i,
             token ? "int32_t" : "float", t->bytes);
    text_add(&fills, "  fill_%s(memory + %" PRId64 ", %" PRId64 "%s);\n", token ? "tokens" : "floats",
             t->bytes, b->elements, token ? format(", %" PRId64, classes) : "");
    t->bytes += buffer_bytes(b);
  }
  if (c.first)
    text_add(out, "  const bool first = false;\n");
  if (c.scratch)
    text_add(out, "  char *scratch = memory + %" PRId64 ";\n", t->bytes);
  if (t->kernel->kind == KERNEL_CALL) {
    print_call(out, 2, t->stage, t->kernel, t->name, local_name, &c);
  } else {
    Names list = {0};
    if (c.first)
      push(&list, intern("first"));
    for (int i = 0; i < c.buffers.n; i++)
      push(&list, internf("x%d", i));
    for (int i = 0; i < c.keys.n; i++)
      push(&list, intern("1"));
    if (c.scratch)
      push(&list, intern("scratch"));
    dialect_of(t->stage)->print_loop_call(out, 2, t->stage, t->kernel, t->name, &list);
  }
  text_add(out, "}\nstatic void fill_%s(void) {\n%s}\n\n", t->name, fills.n ? fills.at : "");
}

static const char preamble[] =
    "#define _GNU_SOURCE\n#include <math.h>\n#include <omp.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include "
    "<string.h>\n#include <sys/mman.h>\n#include <time.h>\n\n"
    "#include \"kernels/pd_lanes.h\"\n#include \"pd_runtime.h\"\n\n"
    "static char *memory;\n\n"
    "__attribute__((unused)) static void fill_floats(char *at, int64_t n) {\n"
    "  for (int64_t i = 0; i < n; i++) ((float *)at)[i] = 0.01f * (float)(i % 97 - 48);\n}\n\n"
    "__attribute__((unused)) static void fill_tokens(char *at, int64_t n, int64_t classes) {\n"
    "  for (int64_t i = 0; i < n; i++) ((int32_t *)at)[i] = (int32_t)(i * 7919 % classes);\n}\n\n"
    "static double now(void) {\n  struct timespec t;\n  clock_gettime(CLOCK_MONOTONIC, &t);\n"
    "  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;\n}\n\n";

static const char measuring[] =
    "enum { MIN_RUNS = 3, MAX_RUNS = 2000 };\nstatic const double MIN_SECONDS = 0.02;\n\n"
    "static int by_value(const void *a, const void *b) {\n"
    "  const double x = *(const double *)a, y = *(const double *)b;\n  return (x > y) - (x < y);\n}\n\n"
    "/* The median of as many runs as take MIN_SECONDS, at least MIN_RUNS, after one that is not counted. "
    "*/\n"
    "static double measure(void (*run)(void)) {\n  static double seconds[MAX_RUNS];\n  run();\n"
    "  int n = 0;\n  for (double total = 0; n < MAX_RUNS && (n < MIN_RUNS || total < MIN_SECONDS); n++) {\n"
    "    const double start = now();\n    run();\n    seconds[n] = now() - start;\n    total += "
    "seconds[n];\n  }\n"
    "  qsort(seconds, (size_t)n, sizeof *seconds, by_value);\n  return seconds[n / 2];\n}\n\n";

char *emit_profile(const StageKernels *const *stages, int n) {
  enum { MOST_OPERANDS = 64 };
  TimedKernels timed = {0};
  Names taken = {0};
  for (int i = 0; i < MOST_OPERANDS; i++)
    push(&taken, internf("x%d", i));
  for (int i = 0; i < n; i++) {
    collect(stages[i], &stages[i]->forward, &timed, &taken);
    collect(stages[i], &stages[i]->backward, &timed, &taken);
  }
  Text out = {0}, loops = {0}, objects = {0}, runs = {0}, setup = {0}, table = {0};
  text_add(&out, "%s", preamble);
  bool now = false; /* of a batch of one microbatch */
  text_add(&out, "enum { MICROBATCH = %" PRId64 " };\n", stages[0]->microbatch);
  for (int i = 0; i < timed.n; i++)
    now = now || kernel_call(timed.at[i].stage, timed.at[i].kernel).now;
  if (now)
    text_add(&out, "static int64_t first_sample;\nstatic const struct pd_stage stage = {.microbatch = MICROBATCH, "
                   ".microbatches = 1};\n\n");
  int64_t bytes = 0;
  for (int i = 0; i < timed.n; i++) {
    Timed *t = &timed.at[i];
    if (t->kernel->kind == KERNEL_LOOP) {
      dialect_of(t->stage)->print_loop(&loops, t->stage, t->kernel, t->name);
    } else {
      print_call_object(&objects, t->stage, t->kernel, t->name);
      print_call_setup(&setup, t->stage, t->kernel, t->name);
    }
    print_run(&runs, t);
    text_add(&table, "  {\"%s\", run_%s, fill_%s},\n", t->kernel->signature, t->name, t->name);
    int64_t need = t->bytes + kernel_scratch(t->stage, t->kernel);
    bytes = need > bytes ? need : bytes;
  }
  dialect_of(stages[0])->print_loop_helpers(&out, loops.n ? loops.at : "");
  text_add(&out, "%s%s\n", loops.n ? loops.at : "", objects.n ? objects.at : "");
  text_add(&out, "%s%s", runs.n ? runs.at : "", measuring);
  text_add(&out,
           "static const struct { const char *signature; void (*run)(void), (*fill)(void); } kernels[] = "
           "{\n%s};\n\n",
           table.n ? table.at : "");
  text_add(&out,
           "int main(void) {\n  memory = mmap(NULL, %" PRId64 ", PROT_READ | PROT_WRITE, MAP_PRIVATE | "
           "MAP_ANONYMOUS, -1, 0);\n"
           "  if (memory == MAP_FAILED) {\n    perror(\"memory for profiling\");\n    return 1;\n  }\n"
           "  omp_set_dynamic(0);\n  omp_set_num_threads(%d);\n  pd.training = true;\n%s%s"
           "  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {\n    kernels[i].fill();\n"
           "    printf(\"%%s %%.9g\\n\", kernels[i].signature, measure(kernels[i].run));\n  }\n  return 0;\n}\n",
           bytes + 4096, n > 0 && stages[0]->threads > 0 ? stages[0]->threads : 1,
           now ? "  pd.stage = &stage;\n" : "", setup.n ? setup.at : "");
  return out.at;
}
