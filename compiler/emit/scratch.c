/* How much scratch memory kernels need. The runtime's own kernels are linked into pdc and asked, so that the
 * planned peak is what a run takes. */
#include <omp.h>

#include "emit/print.h"
#include "pd_runtime.h"

/* What those kernels call when a library refuses; in a stage program it ends the launch. */
_Noreturn void pd_fail(const char *format_, ...) {
  char text[512];
  va_list args;
  va_start(args, format_);
  vsnprintf(text, sizeof text, format_, args);
  va_end(args);
  BUG("while asking for scratch memory: %s", text);
}

typedef struct Known { Name signature; bool cuda; int threads; int64_t bytes; } Known;

int64_t kernel_scratch(const StageKernels *stage, const Kernel *k) {
  static Vec(Known) known; /* asking a library takes as long as preparing the call */
  if (k->kind == KERNEL_LOOP)
    return dialect_of(stage)->loop_scratch(stage, k);
  for (int i = 0; i < known.n; i++)
    if (known.at[i].signature == k->signature && known.at[i].cuda == stage->cuda &&
        known.at[i].threads == stage->threads)
      return known.at[i].bytes;
  if (stage->threads > 0)
    omp_set_num_threads(stage->threads);
  push(&known, (Known){k->signature, stage->cuda, stage->threads, call_scratch(stage, k)});
  return known.at[known.n - 1].bytes;
}
