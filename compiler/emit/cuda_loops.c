/* Kernels of kind LOOP as CUDA kernels, launched on pd_stream. */
#include "emit/loops.h"

#include <string.h>

void cuda_print_loop(Text *out, const StageKernels *stage, const Kernel *k, const char *function) {
  (void)stage;
  text_comment(out, 0, k->comment ? k->comment : k->name);
  text_add(out, "__global__ void %s();\n\n", function);
}

void cuda_print_loop_call(Text *out, int indent, const StageKernels *stage, const Kernel *k, const char *function,
                          const Names *arguments) {
  (void)stage, (void)k;
  Names list = {0};
  push(&list, intern(function));
  push(&list, intern("1"));
  push(&list, intern("1"));
  push(&list, intern("0"));
  push(&list, intern("pd_stream"));
  for (int i = 0; i < arguments->n; i++)
    push(&list, arguments->at[i]);
  text_list(out, indent + 10, format("%*sPD_LAUNCH(", indent, ""), &list, ");\n");
}

void cuda_print_loop_helpers(Text *out, const char *loops) { (void)out, (void)loops; }

int64_t cuda_loop_scratch(const StageKernels *stage, const Kernel *k) {
  (void)stage, (void)k;
  return 0;
}
