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
             token ? "tokens" : b->bf16 ? "bf16" : "floats", t->bytes, b->elements,
             token ? format(", %" PRId64, classes) : "");
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
    if (c->now && t->stage->target.kind == TARGET_CUDA)
      push(&list, intern("pd_now"));
    dialect_of(t->stage)->print_loop_call(out, 2, t->stage, t->kernel, t->name, &list);
  }
  text_add(out, "}\nstatic void fill_%s(void) {\n%s}\n\n", t->name, fills.n ? fills.at : "");
}

/* ---- C ------------------------------------------------------------------------------------------ */

static const char c_preamble[] =
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

static const char c_measuring[] =
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

/* Before the first kernel is set up; with bytes and threads. */
static const char c_start[] =
    "  memory = (char *)mmap(NULL, %" PRId64 ", PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
    "  if (memory == MAP_FAILED) {\n    perror(\"memory for profiling\");\n    return 1;\n  }\n"
    "  omp_set_dynamic(0);\n  omp_set_num_threads(%d);\n  pd.training = true;\n";

/* ---- CUDA --------------------------------------------------------------------------------------- */

static const char cuda_preamble[] =
    "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
    "#include \"cuda/pd_cuda.h\"\n#include \"cuda/pd_loops.h\"\n\n"
    "static char *memory;\n\n"
    "/* Work on n elements, a thread each. */\n"
    "static dim3 grid_of(int64_t n) { return dim3((unsigned)((n + 255) / 256)); }\n\n"
    "static inline __device__ int64_t element() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }\n\n"
    "template <typename T> __global__ void __launch_bounds__(256) put_numbers(T *at, int64_t n) {\n"
    "  const int64_t i = element();\n  if (i < n) at[i] = (T)(0.01f * (float)(i % 97 - 48));\n}\n\n"
    "[[maybe_unused]] static void fill_floats(char *at, int64_t n) {\n"
    "  PD_LAUNCH(put_numbers<float>, grid_of(n), 256, 0, pd_stream, (float *)at, n);\n}\n\n"
    "[[maybe_unused]] static void fill_bf16(char *at, int64_t n) {\n"
    "  PD_LAUNCH(put_numbers<pd_bf16>, grid_of(n), 256, 0, pd_stream, (pd_bf16 *)at, n);\n}\n\n"
    "static __global__ void __launch_bounds__(256) put_tokens(int32_t *at, int64_t n, int64_t classes) {\n"
    "  const int64_t i = element();\n  if (i < n) at[i] = (int32_t)(i * 7919 % classes);\n}\n\n"
    "[[maybe_unused]] static void fill_tokens(char *at, int64_t n, int64_t classes) {\n"
    "  PD_LAUNCH(put_tokens, grid_of(n), 256, 0, pd_stream, (int32_t *)at, n, classes);\n}\n\n";

static const char cuda_measuring[] =
    "static const int ROUNDS = 9, MOST_RUNS = 1000;\nstatic const float MIN_MILLISECONDS = 2;\n\n"
    "static int by_value(const void *a, const void *b) {\n"
    "  const float x = *(const float *)a, y = *(const float *)b;\n  return (x > y) - (x < y);\n}\n\n"
    "/* Milliseconds that n runs take on the stream, from event to event. */\n"
    "static float timed(void (*run)(void), int n) {\n  static cudaEvent_t start, end;\n  float milliseconds;\n"
    "  if (!start) {\n    pd_cuda_check(cudaEventCreate(&start), \"make an event\");\n"
    "    pd_cuda_check(cudaEventCreate(&end), \"make an event\");\n  }\n"
    "  pd_cuda_check(cudaEventRecord(start, pd_stream), \"record an event\");\n"
    "  for (int i = 0; i < n; i++) run();\n"
    "  pd_cuda_check(cudaEventRecord(end, pd_stream), \"record an event\");\n"
    "  pd_cuda_check(cudaEventSynchronize(end), \"time a kernel\");\n"
    "  pd_cuda_check(cudaEventElapsedTime(&milliseconds, start, end), \"time a kernel\");\n"
    "  return milliseconds;\n}\n\n"
    "/* Seconds of one run: the median over rounds of so many runs, one behind the other, that a round takes\n"
    " * MIN_MILLISECONDS; after one that is not counted. */\n"
    "static double measure(void (*run)(void)) {\n  float round[ROUNDS];\n  timed(run, 1);\n"
    "  const float once = timed(run, 1);\n"
    "  const int n = once * (float)MOST_RUNS < MIN_MILLISECONDS ? MOST_RUNS : (int)(MIN_MILLISECONDS / once) + 1;\n"
    "  for (int i = 0; i < ROUNDS; i++) round[i] = timed(run, n) / (float)n;\n"
    "  qsort(round, ROUNDS, sizeof *round, by_value);\n  return 1e-3 * round[ROUNDS / 2];\n}\n\n";

static const char cuda_start[] =
    "  static const struct pd_now of_first = {1, 0, 0, true};\n  void *now;\n"
    "  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), \"make a stream\");\n"
    "  pd_cuda_check(cudaMalloc((void **)&memory, %" PRId64 "), \"get memory for profiling\");\n"
    "  pd_cuda_check(cudaMalloc(&now, sizeof of_first), \"get memory for profiling\");\n"
    "  pd_cuda_check(cudaMemcpy(now, &of_first, sizeof of_first, cudaMemcpyHostToDevice), \"copy\");\n"
    "  pd_now = (const struct pd_now *)now;\n";

/* ---- the program ---------------------------------------------------------------------------------- */

/* Without an argument lines "SIGNATURE SECONDS"; with one, of JSON, for people who compare with a machine's rates. */
static const char main_loop[] =
    "  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {\n    kernels[i].fill();\n"
    "    const double seconds = measure(kernels[i].run);\n"
    "    if (argc > 1)\n"
    "      printf(\"{\\\"kernel\\\": \\\"%s\\\", \\\"count\\\": %d, \\\"bytes\\\": %.0f, "
    "\\\"operations\\\": %.0f, \\\"seconds\\\": %.9g}\\n\",\n"
    "             kernels[i].name, kernels[i].count, kernels[i].bytes, kernels[i].operations, seconds);\n"
    "    else\n      printf(\"%s %.9g\\n\", kernels[i].signature, seconds);\n"
    "    fflush(stdout);\n  }\n";

static const char cuda_end[] =
    "  pd_cuda_check(cudaFree(memory), \"free memory\");\n  pd_cuda_check(cudaFree(now), \"free memory\");\n";

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
    text_add(out, "  {\"%s\",\n   \"%s\", run_%s, fill_%s, %d, %.0f, %.0f},\n", t->kernel->kernel->signature, t->name, t->name,
             t->name, t->count, bytes, operations);
  }
  text_add(out, "};\n\n");
}

char *emit_profile(const LoweredStage *const *stages, int n) {
  enum { MOST_OPERANDS = 64 };
  const StageKernels *first = stages[0]->kernels;
  const Dialect *dialect = dialect_of(first);
  bool cuda = first->target.kind == TARGET_CUDA, now = false;
  TimedKernels timed = {0};
  Names taken = dialect_names(dialect);
  for (int i = 0; i < MOST_OPERANDS; i++)
    push(&taken, internf("x%d", i));
  for (int i = 0; i < n; i++) {
    collect(stages[i]->kernels, lowered_pass(stages[i], PASS_FORWARD), &timed, &taken);
    collect(stages[i]->kernels, lowered_pass(stages[i], PASS_BACKWARD), &timed, &taken);
  }
  Text out = {0}, loops = {0}, objects = {0}, runs = {0}, setup = {0};
  text_add(&out, "%s", cuda ? cuda_preamble : c_preamble);
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
  if (now && !cuda) /* of a batch of one microbatch */
    text_add(&out, "static int64_t first_sample;\nstatic const struct pd_stage stage = {.microbatch = MICROBATCH, "
                   ".microbatches = 1};\n\n");
  dialect->print_loop_helpers(&out, loops.n ? loops.at : "");
  text_add(&out, "%s%s\n%s%s", loops.n ? loops.at : "", objects.n ? objects.at : "", runs.n ? runs.at : "",
           cuda ? cuda_measuring : c_measuring);
  print_table(&out, &timed);
  text_add(&out, "int main(int argc, char **argv) {\n  (void)argv;\n");
  if (cuda)
    text_add(&out, cuda_start, bytes + 4096);
  else
    text_add(&out, c_start, bytes + 4096, first->target.threads > 0 ? first->target.threads : 1);
  text_add(&out, "%s%s%s", now && !cuda ? "  pd.stage = &stage;\n" : "", setup.n ? setup.at : "", main_loop);
  text_add(&out, "%s  return 0;\n}\n", cuda ? cuda_end : "");
  return out.at;
}
