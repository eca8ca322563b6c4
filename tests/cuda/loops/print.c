/* usage: loops_print c|cuda [-m MICROBATCH] [-D name=value]... [-b] MODEL.pdm
 * Prints the fused loops of a model, all its pieces in one stage, in C or in CUDA, and a table of functions that
 * run them on arrays. -b: in CUDA every second array that may be in bf16 is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "cut/cut.h"
#include "elaborate/elaborate.h"
#include "emit/print.h"
#include "layout/pad_rows.h"
#include "layout/permutes.h"
#include "simplify/simplify.h"

static StageKernels *kernels_of(const char *path, const char *const *define, int n, int64_t microbatch) {
  const Ast *file = parse_file(path);
  Graph *g = file ? elaborate(file, &(ElaborateOptions){.define = define, .n_define = n}) : NULL;
  diagnostics_flush();
  if (!g) exit(1);
  move_permutes(g);
  pad_rows(g, backend_cuda.lowering->row_multiple); /* C runs the same loops */
  autodiff(g);
  simplify(g);
  Pieces p = cut(g);
  return fuse(g, &p, 0, p.n, 0, 1, microbatch ? microbatch : 2, false, false, (Target){.threads = 1});
}

static void choose_types(StageKernels *k) {
  for (int i = 0; i < k->buffers.n; i += 2) {
    Buffer *b = &k->buffers.at[i];
    b->bf16 = b->type == TYPE_F32 && b->kind != BUFFER_ACCUMULATOR && b->kind != BUFFER_FIGURE &&
              b->kind != BUFFER_TABLE;
  }
}

/* The function that calls a kernel with the arrays of a table. */
static void print_call_of(Text *out, const StageKernels *stage, const Lowered *k, Name name) {
  const Arguments *call = &k->arguments;
  Names list = {0};
  if (call->first) push(&list, intern("first"));
  for (int i = 0; i < call->buffers.n; i++) {
    const Buffer *b = &stage->buffers.at[call->buffers.at[i]];
    push(&list, internf("(%s *)x[%d]", b->type == TYPE_TOKEN ? "int32_t" : b->bf16 ? "pd_bf16" : "float", i));
  }
  for (int i = 0; i < call->keys.n; i++) push(&list, internf("0x%xu", 1000 + i));
  if (call->scratch) push(&list, intern("scratch"));
  text_add(out, "static void run_%s(bool first, void *const *x, char *scratch) {\n", name);
  text_add(out, "  (void)first, (void)x, (void)scratch;\n");
  dialect_of(stage)->print_loop_call(out, 2, stage, k, name, &list);
  text_add(out, "}\n\n");
}

/* Every element is computed by itself, so that both targets give the same bits. */
static bool is_exact(const Kernel *k) {
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].kind == TERM_REDUCE) return false;
  for (int i = 0; i < k->stores.n; i++)
    if (k->stores.at[i].accumulate) return false;
  return true;
}

static void print_entry(Text *out, const StageKernels *stage, const Lowered *k, Name name) {
  const Arguments *call = &k->arguments;
  text_add(out, "  {\"%s\", run_%s, %d, %" PRId64 ", %d, {\n", name, name, is_exact(k->kernel), k->scratch_bytes,
           call->buffers.n);
  for (int i = 0; i < call->buffers.n; i++) {
    const Buffer *b = &stage->buffers.at[call->buffers.at[i]];
    text_add(out, "    {\"%s\", %" PRId64 ", %d, %d},\n", b->name, b->elements,
             b->type == TYPE_TOKEN ? 2 : b->bf16, call->written[i]);
  }
  text_add(out, "  }},\n");
}

static void print_all(const LoweredStage *stage) {
  const StageKernels *k = stage->kernels;
  Text loops = {0}, calls = {0}, table = {0};
  const Dialect *dialect = dialect_of(k);
  Names signatures = {0}, taken = {0};
  bool cuda = backend_of(&k->target) == &backend_cuda;
  int n = 0;
  for (int l = 0; l < N_LISTS; l++)
    for (int i = 0; i < stage->list[l].n; i++) {
      const Lowered *x = &stage->list[l].at[i];
      bool known = x->call != NULL;
      for (int s = 0; s < signatures.n; s++) known |= signatures.at[s] == x->kernel->signature;
      if (known) continue;
      push(&signatures, x->kernel->signature);
      Name name = unique_kernel_name(&taken, x->kernel->name);
      dialect->print_loop(&loops, k, x, name);
      print_call_of(&calls, k, x, name);
      print_entry(&table, k, x, name);
      n++;
    }
  const char *target = cuda ? "cuda" : "c";
  printf("%s#include \"loops.h\"\n\nenum { MICROBATCH = %" PRId64 " };\n\n%s", dialect->includes, k->microbatch,
         cuda ? "" : "static int64_t first_sample = LOOPS_FIRST_SAMPLE;\n\n");
  printf("%s%sconst struct loop %s_loops[] = {\n%s};\nconst int n_%s_loops = %d;\n", loops.at, calls.at, target,
         table.at, target, n);
}

int main(int argc, char **argv) {
  const char *define[16];
  int n = 0, at = 2;
  int64_t microbatch = 0;
  bool bf16 = false;
  for (; at < argc && argv[at][0] == '-'; at++)
    if (!strcmp(argv[at], "-b"))
      bf16 = true;
    else if (!strcmp(argv[at], "-m") && at + 1 < argc)
      microbatch = atoll(argv[++at]);
    else if (!strcmp(argv[at], "-D") && at + 1 < argc && n < 16)
      define[n++] = argv[++at];
  if (at + 1 != argc || (strcmp(argv[1], "c") && strcmp(argv[1], "cuda"))) {
    fprintf(stderr, "usage: loops_print c|cuda [-m MICROBATCH] [-D name=value]... [-b] MODEL.pdm\n");
    return 2;
  }
  StageKernels *k = kernels_of(argv[at], define, n, microbatch);
  k->target.backend = backend_find(argv[1]);
  if (bf16 && k->target.backend == &backend_cuda) choose_types(k);
  print_all(lower(k));
  return 0;
}
