/* Programs in CUDA. */
#include "emit/print.h"

#include <inttypes.h>

/* ---- the program that times kernels ------------------------------------------------------------- */

static const char preamble[] =
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

static const char measuring[] =
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
    "/* Seconds of one run: the median over rounds, after one run that is not counted. A round makes consecutive runs\n"
    " * for MIN_MILLISECONDS. */\n"
    "static double seconds_of(size_t kernel) {\n  void (*run)(void) = kernels[kernel].run;\n"
    "  float round[ROUNDS];\n  at = kernels[kernel].at;\n  kernels[kernel].fill();\n  timed(run, 1);\n"
    "  const float once = timed(run, 1);\n"
    "  const int n = once * (float)MOST_RUNS < MIN_MILLISECONDS ? MOST_RUNS : (int)(MIN_MILLISECONDS / once) + 1;\n"
    "  for (int i = 0; i < ROUNDS; i++) round[i] = timed(run, n) / (float)n;\n"
    "  qsort(round, ROUNDS, sizeof *round, by_value);\n  return 1e-3 * round[ROUNDS / 2];\n}\n\n";

static void print_start(Text *out, const ProfileTask *task, int64_t bytes, bool reads_now) {
  (void)reads_now;
  if (task->stages[0]->kernels->target.precision == PRECISION_TF32)
    text_add(out, "  pd_allow_tf32 = true;\n");
  if (task->stages[0]->kernels->graph->shards)
    text_add(out, "  static const struct pd_stage stage = {.tensor = SHARDS};\n  pd.stage = &stage;\n");
  text_add(
      out,
      "  static const struct pd_now of_first = {.seed = 1, .first_sample = 0, .following = 0, .training = true};\n"
      "  void *now;\n"
      "  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), \"make a stream\");\n"
      "  pd_cuda_check(cudaMalloc((void **)&memory, %" PRId64 "), \"get memory for profiling\");\n"
      "  pd_cuda_check(cudaMalloc(&now, sizeof of_first), \"get memory for profiling\");\n"
      "  pd_cuda_check(cudaMemcpy(now, &of_first, sizeof of_first, cudaMemcpyHostToDevice), \"copy\");\n"
      "  pd_now = (const struct pd_now *)now;\n",
      bytes);
}

static void print_link(Text *out, const ProfileTask *task, int64_t bytes) {
  (void)bytes;
  text_add(out, "static void tell_link() {\n");
  if (task->link)
    text_add(out, "  const pd_link link = pd_time_link();\n"
                  "  printf(\"to_device %%.9g\\nfrom_device %%.9g\\n\", link.to_device, link.from_device);\n"
                  "  printf(\"at_home %%.9g\\n\", pd_time_home_update());\n");
  text_add(out, "}\n\n");
}

static const char end[] =
    "  pd_time_attentions(false);\n"
    "  pd_cuda_check(cudaFree(memory), \"free memory\");\n  pd_cuda_check(cudaFree(now), \"free memory\");\n"
    "  if (argc == 1) {\n    tell_link();\n    pd_tell_library();\n    pd_tell_cudnn();\n  }\n";

/* ---- the dialect -------------------------------------------------------------------------------- */

const Dialect cuda_dialect = {
    .target = "CUDA",
    .includes =
        "#include <math.h>\n#include <stddef.h>\n\n#include \"cuda/pd_cuda.h\"\n#include \"cuda/pd_loops.h\"\n\n",
    .in_bf16 = "#define PD_FAST /* exp and sigmoid as cuda/pd_fast.h has them */\n\n",
    .caller = "pd_graph",
    .zero = "pd_cuda_check(cudaMemsetAsync(%s, 0, %lld, pd_stream), \"zero a state\");",
    .null = "nullptr",
    .now = "",
    .at = "pd_at(k);",
    .at_says_training = true,
    .word = {[WORD_SAMPLE] = "now->first_sample",
             [WORD_FOLLOWING] = "now->following",
             [WORD_SHARD] = "now->shard",
             [WORD_SEED] = "now->seed",
             [WORD_TRAINING] = "now->training"},
    .takes_algorithms = true,
    .print_loop = cuda_print_loop,
    .print_loop_call = cuda_print_loop_call,
    .timing = {.preamble = preamble,
               .now = "",
               .measuring = measuring,
               .print_beside = print_link,
               .print_start = print_start,
               .before = "  pd_time_algorithms(true);\n  pd_time_attentions(true);\n",
               .each = "    pd_tell_algorithms(argc > 1);\n    pd_tell_attentions(argc > 1);\n",
               .end = end},
};
