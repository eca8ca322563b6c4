/* Where the printed texts of the targets differ: most of a program is both C11 and C++20. */
#include "emit/print.h"

static const Dialect c_dialect = {
  .includes = "#include <assert.h>\n#include <math.h>\n#include <stdalign.h>\n#include <stddef.h>\n"
              "#include <string.h>\n\n#include \"kernels/pd_lanes.h\"\n#include \"pd_runtime.h\"\n\n",
  .compound_literals = true,
  .null = "NULL",
  .now = "/* The current microbatch's first sample, counted over the run: random numbers depend on it. */\n"
         "static int64_t first_sample;\n\n",
  .at = "first_sample = pd_first_sample(k);",
  .now_words = (const char *const[]){"s", "following", NULL},
  .print_loop = c_print_loop,
  .print_loop_call = c_print_loop_call,
  .print_loop_helpers = c_print_loop_helpers,
  .loop_scratch = c_loop_scratch,
};

static const Dialect cuda_dialect = {
  .target = "CUDA",
  .includes = "#include <math.h>\n#include <stddef.h>\n\n#include \"cuda/pd_cuda.h\"\n#include \"cuda/pd_loops.h\"\n\n",
  .null = "nullptr",
  .now = "",
  .at = "pd_at(k);",
  .now_words = (const char *const[]){"s", "following", "seed", "training", NULL},
  .print_loop = cuda_print_loop,
  .print_loop_call = cuda_print_loop_call,
  .print_loop_helpers = cuda_print_loop_helpers,
  .loop_scratch = cuda_loop_scratch,
};

const Dialect *dialect_of(const StageKernels *k) { return k->cuda ? &cuda_dialect : &c_dialect; }
