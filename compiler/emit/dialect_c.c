/* Programs in C. */
#include "emit/print.h"

#include <inttypes.h>

/* ---- the program that times kernels ------------------------------------------------------------- */

static const char preamble[] =
    "#define _GNU_SOURCE\n#include <math.h>\n#include <omp.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include "
    "<string.h>\n#include <sys/mman.h>\n#include <time.h>\n\n"
    "#include \"kernels/pd_loops.h\"\n#include \"pd_runtime.h\"\n\n"
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

/* What loops read of the current microbatch, which is a whole batch. */
static const char now[] =
    "static int64_t first_sample;\nstatic const struct pd_stage stage = {.microbatch = MICROBATCH, "
    ".microbatches = 1};\n\n";

static void print_start(Text *out, int64_t bytes, int threads, bool reads_now) {
  text_add(out,
           "  memory = (char *)mmap(NULL, %" PRId64
           ", PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
           "  if (memory == MAP_FAILED) {\n    perror(\"memory for profiling\");\n    return 1;\n  }\n"
           "  omp_set_dynamic(0);\n  omp_set_num_threads(%d);\n  pd.training = true;\n%s",
           bytes, threads > 0 ? threads : 1, reads_now ? "  pd.stage = &stage;\n" : "");
}

/* ---- the dialect -------------------------------------------------------------------------------- */

const Dialect c_dialect = {
    .includes = "#include <assert.h>\n#include <math.h>\n#include <stdalign.h>\n#include <stddef.h>\n"
                "#include <string.h>\n\n#include \"kernels/pd_loops.h\"\n#include \"pd_runtime.h\"\n\n",
    .compound_literals = true,
    .null = "NULL",
    .now = "/* The current microbatch's first sample, counted over the run: random numbers depend on it. */\n"
           "static int64_t first_sample;\n\n",
    .at = "first_sample = pd_first_sample(k);",
    .word = {[WORD_SAMPLE] = "first_sample",
             [WORD_FOLLOWING] = "pd_following(first_sample)",
             [WORD_SEED] = "pd.seed",
             [WORD_TRAINING] = "pd.training"},
    .print_loop = c_print_loop,
    .print_loop_call = c_print_loop_call,
    .timing = {.preamble = preamble, .now = now, .measuring = measuring, .print_start = print_start, .end = ""},
};
