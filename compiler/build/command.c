/* The commands that make a stage program of its source, for each target. */
#include "build/build.h"

#include <string.h>
#include <unistd.h>

/* The flags that make bits; nobody may change them. */
static const char *const c_flags[] = {
    "-std=gnu11",      "-O3",      "-march=native", "-ffp-contract=off",
    "-fno-math-errno", "-fopenmp", "-Wall",         "-Wextra",
};
static const char *const cuda_flags[] = {"-ccbin", PDC_CUDA_HOST_COMPILER, "-std=c++20", "-O3", "-fmad=false"};

static const bool with_cuda = sizeof PDC_NVCC > 1; /* CMake found nvcc and built what programs link */

const char *cc_of(const Options *o, TargetKind target) {
  const char *nvcc = with_cuda ? PDC_NVCC : "nvcc";
  return o->cc ? o->cc : target == TARGET_CUDA ? nvcc : PDC_CC;
}

void add_words(Strings *command, const char *words) {
  while (*words) {
    size_t n = strcspn(words, " ");
    if (n > 0)
      push(command, format("%.*s", (int)n, words));
    words += n;
    while (*words == ' ')
      words++;
  }
}

static void add_all(Strings *command, const char *const *words, size_t n) {
  for (size_t i = 0; i < n; i++)
    push(command, words[i]);
}

/* libomp comes before oneDNN, whose own OpenMP library then finds its symbols there: one pool of threads a
 * process. */
static void c_command(Strings *c, const char *source, const char *program) {
  add_all(c, c_flags, sizeof c_flags / sizeof *c_flags);
  push(c, "-I" PDC_SOURCE_DIR "/runtime");
  push(c, source);
  push(c, "-o");
  push(c, program);
  push(c, PDC_BINARY_DIR "/libpd_runtime.a");
  push(c, "-lomp");
  push(c, "-ldnnl");
  push(c, "-lcjson");
  add_words(c, PDC_MPI_LINK);
}

/* Words of a linker's command line as nvcc takes them; where a library is linked from it is found at run time. */
static void add_linked(Strings *c, const char *words) {
  Strings list = {0};
  add_words(&list, words);
  for (int i = 0; i < list.n; i++) {
    const char *word = list.at[i];
    if (!strncmp(word, "-Wl,", 4)) {
      push(c, "-Xlinker");
      push(c, word + 4);
    } else if (!strcmp(word, "-pthread")) {
      push(c, "-lpthread");
    } else {
      push(c, word);
    }
    if (!strncmp(word, "-L", 2)) {
      push(c, "-Xlinker");
      push(c, format("-rpath,%s", word + 2));
    }
  }
}

/* Without --arch: this machine's GPU; where there is none, code for sm_80, and PTX that later ones take. */
static const char *arch_flag(const Options *o) {
  if (o->arch)
    return format("-arch=%s", o->arch);
  return access("/proc/driver/nvidia/version", F_OK) == 0 ? "-arch=native" : "-arch=sm_80";
}

static void cuda_command(Strings *c, const Options *o, const char *source, const char *program) {
  add_all(c, cuda_flags, sizeof cuda_flags / sizeof *cuda_flags);
  push(c, arch_flag(o));
  push(c, "-I" PDC_SOURCE_DIR "/runtime");
  push(c, source);
  push(c, "-o");
  push(c, program);
  push(c, PDC_BINARY_DIR "/libpd_runtime_cuda.a");
  add_linked(c, PDC_CUDA_LINK);
  push(c, "-lcjson");
  add_linked(c, PDC_MPI_LINK);
}

Strings compile_command(const Options *o, TargetKind target, const char *source, const char *program) {
  Strings c = {0};
  add_words(&c, cc_of(o, target));
  if (target == TARGET_CUDA)
    cuda_command(&c, o, source, program);
  else
    c_command(&c, source, program);
  push(&c, "-lpthread");
  push(&c, "-lm");
  return c;
}

bool can_compile(TargetKind target) {
  if (target != TARGET_CUDA)
    return true;
  if (with_cuda && access(PDC_BINARY_DIR "/libpd_runtime_cuda.a", R_OK) == 0)
    return true;
  if (with_cuda) {
    help(error_at(NO_SPAN, "PD0609", "what programs for GPUs are linked with is not built"),
         "'cmake --build " PDC_BINARY_DIR " --target pd_runtime_cuda' builds it; '-S' stops after writing programs");
    return false;
  }
  Diagnostic *d = error_at(NO_SPAN, "PD0609", "this pdc was built without CUDA: it writes programs for GPUs, but "
                           "has nothing to link them with");
  help(d, "'-S' stops after writing them; CMake builds what they need where it finds nvcc, cuDNN and NCCL");
  return false;
}
