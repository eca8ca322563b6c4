/* Calls: which function of the runtime does the node, with what, and how much scratch memory it takes. */
#include <omp.h>

#include "base/table.h"
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

/* What a library is asked about. */
typedef struct ScratchKey {
  Name signature;
  const Library *library;
  int64_t threads;
} ScratchKey;

/* Asking a library takes as long as preparing the call: once for all kernels of a signature. */
static int64_t scratch_bytes(const Site *site, Name signature) {
  static Table known = {.key_bytes = sizeof(ScratchKey)};
  const Op *op = site->node->op;
  if (!op->scratch)
    return 0;
  ScratchKey key = {signature, site->library, site->threads};
  int64_t *bytes = table_find(&known, &key);
  if (bytes)
    return *bytes;
  int before = omp_get_max_threads();
  if (site->threads > 0)
    omp_set_num_threads(site->threads);
  bytes = alloc(sizeof *bytes);
  *bytes = op->scratch(site);
  omp_set_num_threads(before);
  table_add(&known, &key, bytes);
  return *bytes;
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
