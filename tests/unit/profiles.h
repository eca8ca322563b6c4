/* Shared by tests of profiles: a model, and kernels with simulated times. */
#ifndef PROFILES_H
#define PROFILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/measure.h"
#include "model.h"

static Graph *graph;
static Pieces pieces;
static char *path;

static Target pretended = {.threads = 1};

/* Simulated times: any kernel of a microbatch of b takes b milliseconds, tanh ten times as long. */
static double pretended_seconds(const Kernel *k, int64_t b) {
  bool slow = false;
  for (int i = 0; i < k->terms.n; i++)
    slow |= k->terms.at[i].node && k->terms.at[i].node->op == &op_tanh;
  return (double)b * (slow ? 1e-2 : 1e-3);
}

/* On a GPU, every call is a product and an attention. Each has a size per microbatch and kernel name, except one
 * shared by all. */
static void pretend_products(Text *t, const Kernel *k, int64_t b) {
  if (pretended.backend != &backend_cuda || k->kind != KERNEL_CALL)
    return;
  text_add(t, "algorithm 66 %lld 35 1 0 1 4294967295 0 65535 2e-05 3e-05 bf16 %s of %lld\n", (long long)b + 10,
           k->name, (long long)b);
  text_add(t, "algorithm 0 0 0 8 2 0 0 0 0 1e-05 1e-05 f32 [1, 1] @ [1, 1]\n");
  text_add(t, "attention 5 14,2,24,31 %lld 1e-05 2e-05 backward of %s of %lld\n", (long long)b * 256, k->name,
           (long long)b);
  text_add(t, "attention 1 - 0 3e-05 4e-05 forward [1, 1]\n");
}

/* Appends the end line of the profiling program `text` to its output. */
static char *with_end(const char *printed, const char *text) {
  static const char head[] = "puts(\"end ";
  const char *end = strstr(text, head);
  assert_non_null(end);
  end += strlen("puts(\"");
  return format("%s%.*s\n", printed, (int)strcspn(end, "\""), end);
}

static char *pretend_kernels(void *context, const char *text) {
  const int64_t sizes[] = {1, 2, 3, 4, 6, 12};
  int *calls = context;
  (*calls)++;
  assert_non_null(strstr(text, "main"));
  Text t = {0};
  if (pretended.backend == &backend_cuda)
    text_add(&t, "library 130100 A \"GPU\" of theirs\ncudnn 91900 A \"GPU\" of theirs\n");
  text_add(&t, "update 3e-9\napart 4e-9\nnorm 1e-9\nto_device 5e-11\nfrom_device 8e-11\nat_home 2e-11\n");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    StageKernels *k = fuse(graph, &pieces, 0, pieces.n, 0, 1, sizes[i], false, false, pretended);
    for (int j = 0; j < k->forward.n + k->backward.n; j++) {
      const Kernel *kernel = j < k->forward.n ? &k->forward.at[j] : &k->backward.at[j - k->forward.n];
      text_add(&t, "%s %.9g\n", kernel->signature, pretended_seconds(kernel, sizes[i]));
      pretend_products(&t, kernel, sizes[i]);
    }
  }
  return t.at;
}

static char *pretend(void *context, const char *text) { return with_end(pretend_kernels(context, text), text); }

static PlanRequest request(void) {
  return (PlanRequest){
      .workers = 2, .recompute = RECOMPUTE_AUTO, .target = {.threads = 1}, .compiler = "a compiler, version 1"};
}

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12});
  pieces = cut(graph);
  path = format("/tmp/pdc-profile-%ld.json", (long)getpid());
  int calls = 0;
  PlanRequest q = request();
  bool made = profile_make(graph, &pieces, &q, path, pretend, &calls, NULL);
  return made && calls == 1 ? 0 : -1;
}

static int remove_file(void **unused) {
  (void)unused;
  return unlink(path);
}

#endif
