/* Calls: which function of the runtime does the node, with what, and how much scratch memory it takes. */
#include <omp.h>

#include "lower/internal.h"
#include "pd_runtime.h"

/* What the runtime's kernels call when a library refuses; in a stage program it ends the launch. */
_Noreturn void pd_fail(const char *format_, ...) {
  char text[512];
  va_list args;
  va_start(args, format_);
  vsnprintf(text, sizeof text, format_, args);
  va_end(args);
  BUG("while asking for scratch memory: %s", text);
}

typedef struct CachedCall {
  Name signature;
  const Library *library;
  int threads;
  int64_t bytes;
} CachedCall;

/* Asking a library takes as long as preparing the call: once for all kernels of a signature. */
static int64_t scratch_bytes(const Site *site, Name signature) {
  static Vec(CachedCall) cached;
  const Op *op = site->node->op;
  if (!op->scratch)
    return 0;
  for (int i = 0; i < cached.n; i++)
    if (cached.at[i].signature == signature && cached.at[i].library == site->library &&
        cached.at[i].threads == site->threads)
      return cached.at[i].bytes;
  if (site->threads > 0)
    omp_set_num_threads(site->threads);
  push(&cached, (CachedCall){signature, site->library, site->threads, op->scratch(site)});
  return cached.at[cached.n - 1].bytes;
}

void lower_call(const StageKernels *stage, Lowered *l) {
  const Kernel *k = l->kernel;
  const Site site = {.node = k->node,
                     .in = k->in.at,
                     .n_in = k->in.n,
                     .out = k->out.at,
                     .n_out = k->out.n,
                     .bias = k->bias,
                     .accumulate = k->accumulate,
                     .threads = stage->target.threads,
                     .library = lowering_of(stage)->library};
  Call *c = alloc(sizeof *c);
  if (!k->node->op->call)
    BUG("no call computes '%s'", k->node->op->name);
  k->node->op->call(&site, c);
  c->twice = c->made && (k->accumulate || (c->sums && c->outer.n > 0));
  if (c->twice)
    field_name(c, "accumulate", "!first");
  l->call = c;
  l->arguments = call_arguments(k);
  l->scratch_bytes = scratch_bytes(&site, k->signature);
}
