/* Where the printed texts of the targets differ: most of a program is both C11 and C++20. */
#include "emit/print.h"

/* In CUDA's headers, in double and overloaded: a kernel of such a name could not be launched by it. */
static const char *const cuda_functions[] = {
  "max", "min", "pow", "rsqrt", "cbrt", "rcbrt", "hypot", "norm", "rnorm", "norm3d", "norm4d", "exp2", "exp10",
  "expm1", "log2", "log10", "log1p", "logb", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh",
  "acosh", "atanh", "sinpi", "cospi", "erfc", "erfinv", "erfcinv", "erfcx", "lgamma", "tgamma", "floor", "ceil",
  "trunc", "round", "rint", "fabs", "fmin", "fmax", "fmod", "fdim", "fma", "modf", "frexp", "ldexp", "scalbn",
  "remainder", "remquo", "signbit", "isnan", "isinf", "isfinite", "nan", "labs", "llabs", "clock", "malloc",
  "free", "printf", NULL,
};

const Dialect c_dialect = {
  .includes = "#include <assert.h>\n#include <math.h>\n#include <stdalign.h>\n#include <stddef.h>\n"
              "#include <string.h>\n\n#include \"kernels/pd_lanes.h\"\n#include \"pd_runtime.h\"\n\n",
  .compound_literals = true,
  .null = "NULL",
  .now = "/* The current microbatch's first sample, counted over the run: random numbers depend on it. */\n"
         "static int64_t first_sample;\n\n",
  .at = "first_sample = pd_first_sample(k);",
  .word = {[WORD_SAMPLE] = "first_sample", [WORD_FOLLOWING] = "pd_following(first_sample)",
           [WORD_SEED] = "pd.seed", [WORD_TRAINING] = "pd.training"},
  .print_loop = c_print_loop,
  .print_loop_call = c_print_loop_call,
  .print_loop_helpers = c_print_loop_helpers,
};

const Dialect cuda_dialect = {
  .target = "CUDA",
  .includes = "#include <math.h>\n#include <stddef.h>\n\n#include \"cuda/pd_cuda.h\"\n#include \"cuda/pd_loops.h\"\n\n",
  .caller = "pd_graph",
  .null = "nullptr",
  .functions = cuda_functions,
  .now = "",
  .at = "pd_at(k);",
  .at_says_training = true,
  .word = {[WORD_SAMPLE] = "now->first_sample", [WORD_FOLLOWING] = "now->following",
           [WORD_SEED] = "now->seed", [WORD_TRAINING] = "now->training"},
  .print_loop = cuda_print_loop,
  .print_loop_call = cuda_print_loop_call,
  .print_loop_helpers = cuda_print_loop_helpers,
};

Names dialect_names(const Dialect *d) {
  Names taken = {0};
  for (const char *const *name = d->functions; name && *name; name++)
    push(&taken, intern(*name));
  return taken;
}

const Dialect *dialect_of(const StageKernels *k) { return backend_of(k->target.kind)->dialect; }
