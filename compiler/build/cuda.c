/* Programs for NVIDIA's GPUs: nvcc, and what CMake found of CUDA. */
#include "build/build.h"

#include <string.h>
#include <unistd.h>

static const char *const flags[] = {"-ccbin", PDC_CUDA_HOST_COMPILER, "-std=c++20", "-O3", "-fmad=false"};

static const bool with_cuda = sizeof PDC_NVCC > 1; /* CMake found nvcc and built what programs link */

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

static void add_command(Strings *c, const Options *o, const char *source, const char *program) {
  add_all(c, flags, sizeof flags / sizeof *flags);
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

static bool is_built(void) {
  if (with_cuda && access(PDC_BINARY_DIR "/libpd_runtime_cuda.a", R_OK) == 0)
    return true;
  if (with_cuda) {
    help(error_at(NO_SPAN, "PD0609", "what programs for GPUs are linked with is not built"),
         "'cmake --build " PDC_BINARY_DIR
         " --target pd_runtime_cuda' builds it; '-S' stops after writing programs");
    return false;
  }
  Diagnostic *d = error_at(NO_SPAN, "PD0609",
                           "this pdc was built without CUDA: it writes programs for GPUs, but "
                           "has nothing to link them with");
  help(d, "'-S' stops after writing them; CMake builds what they need where it finds nvcc, cuDNN and NCCL");
  return false;
}

/* nvcc's first lines say whose it is, its last one which. */
static char *last_line(char *printed) {
  size_t n = strlen(printed);
  while (n > 0 && printed[n - 1] == '\n')
    printed[--n] = 0;
  char *line = strrchr(printed, '\n');
  return line ? line + 1 : printed;
}

const Toolchain cuda_toolchain = {.suffix = "cu",
                                  .compiler = sizeof PDC_NVCC > 1 ? PDC_NVCC : "nvcc",
                                  .add_command = add_command,
                                  .expands_names = true,
                                  .is_built = is_built,
                                  .version = last_line};
