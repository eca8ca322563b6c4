/* Programs in C. */
#include "emit/print.h"

#include <inttypes.h>

/* ---- the program that times kernels ------------------------------------------------------------- */

static const char preamble[] =
    "#define _GNU_SOURCE\n#include <math.h>\n#include <omp.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include "
    "<signal.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/prctl.h>\n#include <time.h>\n#include "
    "<unistd.h>\n\n"
    "#include \"kernels/pd_loops.h\"\n#include \"optimizers/elements.h\"\n#include \"pd_runtime.h\"\n\n"
    "static char *memory;\n\n"
    "/* Numbers that are evenly spread around the mean; which they are depends on the index alone. */\n"
    "__attribute__((unused)) static void fill_spread(char *at, int64_t n, float mean, float spread) {\n"
    "  for (int64_t i = 0; i < n; i++) {\n"
    "    const uint64_t x = ((uint64_t)i ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;\n"
    "    const uint32_t word = (uint32_t)((x ^ x >> 31) * 0x94d049bb133111ebu >> 40);\n"
    "    ((float *)at)[i] = mean + spread * ((float)word * 0x1p-23f - 1);\n  }\n}\n\n"
    "__attribute__((unused)) static void fill_tokens(char *at, int64_t n, int64_t classes) {\n"
    "  for (int64_t i = 0; i < n; i++) ((int32_t *)at)[i] = (int32_t)(i * 7919 % classes);\n}\n\n"
    "static double now(void) {\n  struct timespec t;\n  clock_gettime(CLOCK_MONOTONIC, &t);\n"
    "  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;\n}\n\n";

/* Caches, clocks and the memory bus are in the state of a run, because one process per rank runs the same passes.
 * Only the middle half of the rounds by pass time counts, so the kernels' seconds add up to the predicted time of
 * a pass. */
static const char measuring[] =
    "enum { MIN_ROUNDS = 8, MAX_ROUNDS = 200, WARM_UP = 2 };\nstatic const double MIN_SECONDS = 1;\n\n"
    "struct step {\n  int kernel;\n  const int64_t *at;\n};\n"
    "struct size {\n  const struct step *step;\n  size_t n;\n  void (*fill)(void);\n};\n"
    "struct round {\n  double seconds;\n  const double *of; /* each step's */\n};\n\n"
    "static double pass(const struct size *s, double *seconds) {\n  const double start = now();\n"
    "  double before = start;\n  for (size_t i = 0; i < s->n; i++) {\n    at = s->step[i].at;\n"
    "    kernels[s->step[i].kernel].run();\n    const double end = now();\n"
    "    seconds[i] = end - before;\n    before = end;\n  }\n  return before - start;\n}\n\n"
    "static int by_seconds(const void *a, const void *b) {\n"
    "  const double x = ((const struct round *)a)->seconds, y = ((const struct round *)b)->seconds;\n"
    "  return (x > y) - (x < y);\n}\n\n"
    "static void measure(const struct size *s, double *sum, int64_t *count) {\n"
    "  static struct round round[MAX_ROUNDS];\n"
    "  double *seconds = (double *)calloc(s->n * MAX_ROUNDS + 1, sizeof *seconds), total = 0;\n"
    "  int n = 0;\n  if (!seconds) exit(1);\n  s->fill();\n"
    "  for (int i = 0; i < WARM_UP; i++) pass(s, seconds);\n"
    "  for (; n < MAX_ROUNDS && (n < MIN_ROUNDS || total < MIN_SECONDS); n++) {\n"
    "    double *of = seconds + (size_t)n * s->n;\n    round[n].seconds = pass(s, of);\n"
    "    round[n].of = of;\n    total += round[n].seconds;\n  }\n"
    "  qsort(round, (size_t)n, sizeof *round, by_seconds);\n"
    "  for (int i = n / 4; i < n - n / 4; i++)\n    for (size_t k = 0; k < s->n; k++) {\n"
    "      sum[s->step[k].kernel] += round[i].of[k];\n      count[s->step[k].kernel]++;\n    }\n"
    "  free(seconds);\n}\n\n"
    "/* ---- processes at once ---- */\n\n"
    "static volatile int *turn; /* which size all of them work on */\n"
    "static bool is_beside;     /* this one is not the one that measures */\n\n"
    "static void start_others(int processes) {\n"
    "  turn = (volatile int *)mmap(NULL, sizeof *turn, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n"
    "  if (turn == MAP_FAILED) exit(1);\n  const pid_t parent = getpid();\n"
    "  for (int i = 1; i < processes && !is_beside; i++) is_beside = fork() == 0;\n"
    "  if (!is_beside) return;\n  prctl(PR_SET_PDEATHSIG, SIGKILL);\n  if (getppid() != parent) exit(1);\n"
    "  fclose(stdout);\n}\n\n"
    "static void work_beside(const struct size *sizes) {\n"
    "  for (int filled = -1;;) {\n    const int i = *turn;\n    if (i != filled) sizes[i].fill();\n"
    "    filled = i;\n    double *seconds = (double *)calloc(sizes[i].n + 1, sizeof *seconds);\n"
    "    if (!seconds) exit(1);\n    while (*turn == i) pass(&sizes[i], seconds);\n    free(seconds);\n  }\n}\n\n";

static const char before[] =
    "  const int n_sizes = (int)(sizeof sizes / sizeof *sizes);\n"
    "  if (is_beside) work_beside(sizes);\n"
    "  for (*turn = 0; *turn < n_sizes - 1; ++*turn) measure(&sizes[*turn], sums, counts);\n"
    "  measure(&sizes[*turn], sums, counts);\n";

/* The state that loops and calls read: a microbatch that is a whole batch, and their rank. */
static const char now[] =
    "__attribute__((unused)) static int64_t first_sample;\nstatic const struct pd_stage stage = {.microbatch = MICROBATCH, "
    ".microbatches = 1, .tensor = SHARDS};\n\n";

/* Times the update rule in place, the rule into another version of the weights, and the gradient's sum of squares.
 * The number of elements is the model's, or the most that memory holds; each runs after a pass, for a run's cache
 * state; the median counts. */
static const char updating[] =
    "static const struct pd_change unchanged; /* no step is damped */\n\n"
    "enum { TILE = 16384 }; /* of an update of the runtime */\n\n"
    "static void update_to(float *to, int64_t first, int64_t n) {\n  float *moment[2];\n"
    "  for (int i = 0; i < 2; i++) moment[i] = (float *)memory + (2 + (i < MOMENTS ? i : 0)) * ELEMENTS + first;\n"
    "  float *w = (float *)memory + first;\n  UPDATE(n, constants, w, to + first, w + ELEMENTS, moment, &unchanged);\n}\n\n"
    "static void update_tile(int64_t first, int64_t n) { update_to((float *)memory, first, n); }\n\n"
    "static void apart_tile(int64_t first, int64_t n) {\n"
    "  update_to((float *)memory + (2 + MOMENTS) * ELEMENTS, first, n);\n}\n\n"
    "static double squares_of_tile[ELEMENTS / TILE + 1];\n\n"
    "static void square_tile(int64_t first, int64_t n) {\n"
    "  squares_of_tile[first / TILE] = pd_sum_of_squares(n, (float *)memory + ELEMENTS + first);\n}\n\n"
    "static double seconds_of_element(void (*tile)(int64_t first, int64_t n), const struct size *s) {\n"
    "  enum { ROUNDS = 7 };\n  struct round round[ROUNDS];\n"
    "  double *of = (double *)calloc(s->n + 1, sizeof *of);\n  if (!of) exit(1);\n"
    "  for (int i = 0; i < ROUNDS; i++) {\n    s->fill(); /* updates stood there */\n    pass(s, of);\n"
    "    const double start = now();\n"
    "#pragma omp parallel for schedule(static)\n"
    "    for (int64_t first = 0; first < ELEMENTS; first += TILE)\n"
    "      tile(first, ELEMENTS - first < TILE ? ELEMENTS - first : TILE);\n"
    "    round[i].seconds = now() - start;\n  }\n  free(of);\n"
    "  qsort(round, ROUNDS, sizeof *round, by_seconds);\n"
    "  return round[ROUNDS / 2].seconds / (double)ELEMENTS;\n}\n\n";

/* Comes last, because measuring rates overwrites the memory of the passes. */
static void print_rates(Text *out, const ProfileTask *task) {
  text_add(out, "static void tell_rates(void) {\n");
  if (task->rates) {
    bool bf16 = task->stages[0]->kernels->target.precision == PRECISION_BF16;
    text_add(out,
             "  printf(\"products %%.9g\\n\", pd_product_rate(%s));\n"
             "  printf(\"operations %%.9g\\n\", pd_product_rate(PD_F32));\n"
             "  printf(\"memory %%.9g\\n\", pd_memory_rate());\n",
             bf16 ? "PD_BF16" : "PD_F32");
  }
  text_add(out, "}\n\n");
}

static void print_update(Text *out, const ProfileTask *task, int64_t bytes) {
  print_rates(out, task);
  int64_t most = bytes / (int64_t)sizeof(float) / (3 + task->n_moments);
  int64_t elements = task->elements < most ? task->elements : most;
  if (!task->rule || elements < 1) {
    text_add(out, "static void tell_update(void) {}\n\n");
    return;
  }
  text_add(out,
           "enum { MOMENTS = %d };\n#define ELEMENTS INT64_C(%" PRId64 ")\n#define UPDATE pd_%s_elements\n"
           "static const double constants[32];\n\n%s",
           task->n_moments, elements, task->rule, updating);
  text_add(out, "static void tell_update(void) {\n"
                "  printf(\"update %%.9g\\n\", seconds_of_element(update_tile, sizes));\n"
                "  printf(\"apart %%.9g\\n\", seconds_of_element(apart_tile, sizes));\n"
                "  printf(\"norm %%.9g\\n\", seconds_of_element(square_tile, sizes));\n}\n\n");
}

static void print_start(Text *out, const ProfileTask *task, int64_t bytes, bool reads_now) {
  int threads = task->stages[0]->kernels->target.threads;
  text_add(out,
           "  start_others(%d);\n  memory = pd_map_arena(%" PRId64 ");\n"
           "  if (!memory) {\n    perror(\"memory for profiling\");\n    return 1;\n  }\n"
           "  omp_set_dynamic(0);\n  omp_set_num_threads(%d);\n  pd.training = true;\n%s",
           task->processes, bytes, threads > 0 ? threads : 1, reads_now ? "  pd.stage = &stage;\n" : "");
}

/* ---- the dialect -------------------------------------------------------------------------------- */

const Dialect c_dialect = {
    .includes = "#include <assert.h>\n#include <math.h>\n#include <stdalign.h>\n#include <stddef.h>\n"
                "#include <string.h>\n\n#include \"kernels/pd_loops.h\"\n#include \"pd_runtime.h\"\n\n",
    .compound_literals = true,
    .zero = "memset(%s, 0, %lld);",
    .unused_row = "    if (%s[t] >= %lld)\n      continue;\n",
    .null = "NULL",
    .now = "/* The current microbatch's first sample, counted over the run: random numbers depend on it. */\n"
           "static int64_t first_sample;\n\n",
    .at = "first_sample = pd_first_sample(k);",
    .word = {[WORD_SAMPLE] = "first_sample",
             [WORD_FOLLOWING] = "pd_following(first_sample)",
             [WORD_SHARD] = "pd.tensor_rank",
             [WORD_SEED] = "pd.seed",
             [WORD_TRAINING] = "pd.training"},
    .print_loop = c_print_loop,
    .print_loop_call = c_print_loop_call,
    .timing = {.preamble = preamble,
               .now = now,
               .in_passes = true,
               .measuring = measuring,
               .print_beside = print_update,
               .print_start = print_start,
               .before = before,
               .each = "",
               .end = "  if (argc == 1) {\n    tell_update();\n    tell_rates();\n  }\n"},
};
