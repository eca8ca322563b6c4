/* Lowers calls: the runtime's function, its arguments and its scratch memory. Also the scratch memory of
 * optimizers that call libraries. */
#include <omp.h>

#include "base/table.h"
#include "lower/internal.h"
#include "pd_runtime.h"

/* Called by the runtime's kernels when a library fails; in a stage program it ends the launch. */
_Noreturn void pd_fail(const char *format_, ...) {
  char text[512];
  va_list args;
  va_start(args, format_);
  vsnprintf(text, sizeof text, format_, args);
  va_end(args);
  BUG("while asking for scratch memory: %s", text);
}

/* The key of a scratch size. */
typedef struct ScratchKey {
  Name signature;
  const Library *library;
  const Workspaces *workspaces;
  int64_t threads;
} ScratchKey;

/* The source of a query: a call or an update rule. */
typedef struct Asking {
  const Site *site;
  const UpdateRule *rule; /* with the parameter that it updates: */
  const Param *param;
} Asking;

/* Equal calls share one query, because it takes as long as preparing the call. */
static int64_t ask(const Asking *a, ScratchKey key) {
  static Table known = {.key_bytes = sizeof(ScratchKey)};
  int64_t *bytes = table_find(&known, &key);
  if (bytes)
    return *bytes;
  Arena *arena = arena_use(NULL); /* the table's own arena */
  int before = omp_get_max_threads();
  if (key.threads > 0)
    omp_set_num_threads((int)key.threads);
  bytes = alloc(sizeof *bytes);
  *bytes = a->site ? a->site->node->op->scratch(a->site) : a->rule->scratch(a->param, key.library);
  omp_set_num_threads(before);
  table_add(&known, &key, bytes);
  arena_use(arena);
  return *bytes;
}

static int64_t scratch_bytes(const Site *site, Name signature) {
  if (!site->node->op->scratch)
    return 0;
  return ask(&(Asking){.site = site}, (ScratchKey){signature, site->library, site->workspaces, site->threads});
}

int64_t update_scratch_bytes(const StageKernels *k, const UpdateRule *rule, const Param *p) {
  Name signature = internf("update by %s of %s%s", rule->name, shape_text(&p->shape), p->hidden ? " hidden" : "");
  return ask(&(Asking){.rule = rule, .param = p},
             (ScratchKey){signature, lowering_of(k)->library, NULL, k->target.threads});
}

static const bool *stored_in_bf16(const StageKernels *stage, const Place *place, int n) {
  bool *bf16 = alloc((size_t)n + 1);
  for (int i = 0; i < n; i++)
    bf16[i] = stage->buffers.at[place[i].buffer].bf16;
  return bf16;
}

void lower_call(const StageKernels *stage, Lowered *l) {
  const Kernel *k = l->kernel;
  bool told = lowering_of(stage)->library->told_types;
  const Site site = {.node = k->node,
                     .in = k->in.at,
                     .n_in = k->in.n,
                     .out = k->out.at,
                     .n_out = k->out.n,
                     .in_bf16 = told ? stored_in_bf16(stage, k->in.at, k->in.n) : NULL,
                     .out_bf16 = told ? stored_in_bf16(stage, k->out.at, k->out.n) : NULL,
                     .bias = k->bias,
                     .accumulate = k->accumulate,
                     .part = k->part,
                     .threads = stage->target.threads,
                     .workspaces = stage->target.workspaces,
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
  if (k->node->op->loops)
    lower_scan(stage, l);
  else if (k->part == CALL_WHOLE)
    l->scratch_bytes = scratch_bytes(&site, k->signature);
  else
    l->meeting_bytes = k->node->op->meeting(&site);
}
