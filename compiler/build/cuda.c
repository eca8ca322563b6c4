/* Programs for NVIDIA GPUs: nvcc and its toolkit. */
#include "build/build.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const flags[] = {
    "-ccbin", PDC_CUDA_HOST_COMPILER, "-std=c++20", "-O3", "-fmad=false", "-Xcompiler", STACK_PROTECTOR,
};

static bool is_program(const char *path) { return access(path, X_OK) == 0; }

/* Searches in CMake's order. */
const char *nvcc_path(void) {
  const char *home = getenv("CUDA_HOME"), *path = getenv("PATH");
  const char *of_home = format("%s/bin/nvcc", home ? home : "");
  if (*PDC_NVCC)
    return PDC_NVCC;
  if (home && is_program(of_home))
    return of_home;
  for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
    const char *here = format("%.*s/nvcc", (int)strcspn(path, ":"), path);
    if (is_program(here))
      return here;
  }
  return is_program("/usr/local/cuda/bin/nvcc") ? "/usr/local/cuda/bin/nvcc" : NULL;
}

/* The toolkit's folder: /usr/local/cuda of /usr/local/cuda/bin/nvcc. */
static const char *toolkit_folder(void) {
  const char *nvcc = nvcc_path(), *bin = nvcc ? strrchr(nvcc, '/') : NULL;
  while (bin && bin > nvcc && bin[-1] != '/')
    bin--;
  return bin && bin > nvcc ? format("%.*s", (int)(bin - 1 - nvcc), nvcc) : "/usr/local/cuda";
}

/* Translates linker words for nvcc, and adds link folders to the run path. */
static void add_linked(Strings *c, const Strings *words) {
  for (int i = 0; i < words->n; i++) {
    const char *word = words->at[i];
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

/* Without --arch: this machine's GPU; without a GPU, code for sm_80 and PTX for later ones. */
static const char *arch_flag(const Options *o) {
  if (o->arch)
    return format("-arch=%s", o->arch);
  return access("/proc/driver/nvidia/version", F_OK) == 0 ? "-arch=native" : "-arch=sm_80";
}

static bool add_command(Strings *c, const Options *o, const char *source, const char *program) {
  const char *library = library_path(o, &cuda_toolchain);
  const Mpi *mpi = mpi_of(o);
  if (!library || !mpi)
    return false;
  Strings cuda = {0};
  push(&cuda, format("-L%s/lib64", toolkit_folder()));
  add_words(&cuda, "-lcublasLt -lnccl");
  add_all(c, flags, sizeof flags / sizeof *flags);
  push(c, arch_flag(o));
  push(c, format("-I%s", own_folder("runtime")));
  push(c, source);
  push(c, "-o");
  push(c, program);
  push(c, "-Xlinker");
  push(c, READ_ONLY_TABLES);
  push(c, library);
  add_linked(c, &cuda);
  push(c, "-lcjson");
  add_words(c, PDC_IMAGE_LINK);
  add_linked(c, &mpi->link);
  return true;
}

/* Compiles the runtime's C sources and kernels. */
static bool add_object(Strings *c, const Options *o, const char *source, const char *object) {
  const Mpi *mpi = mpi_of(o);
  size_t n = strlen(source);
  if (!mpi)
    return false;
  if (n > 2 && !strcmp(source + n - 2, ".c")) {
    add_words(c, PDC_CC);
    add_c_object(c, mpi, source, object);
    return true;
  }
  push(c, nvcc_path());
  add_all(c, flags, sizeof flags / sizeof *flags);
  push(c, arch_flag(o));
  push(c, format("-I%s", own_folder("runtime")));
  add_all(c, mpi->compile.at, (size_t)mpi->compile.n);
  push(c, "-c");
  push(c, source);
  push(c, "-o");
  push(c, object);
  return true;
}

static bool is_built(void) {
  const char *prefix = own_prefix();
  if (PDC_WITH_CUDA && access(format("%s/%s", prefix, cuda_toolchain.library), R_OK) == 0)
    return true;
  if (PDC_WITH_CUDA) {
    help(error_at(NO_SPAN, "PD0609", "the runtime library for GPUs is not built"),
         "build it with 'cmake --build %s --target pd_runtime_cuda', or use '-S' to write sources only", prefix);
    return false;
  }
  Diagnostic *d =
      error_at(NO_SPAN, "PD0609", "this pdc was built without CUDA: it has no runtime library for GPUs");
  help(d, "use '-S' to write sources only, or build pdc on a machine with nvcc and NCCL");
  return false;
}

static bool is_found(void) {
  if (nvcc_path())
    return true;
  help(error_at(NO_SPAN, "PD0609", "nvcc was not found; it compiles the programs for GPUs"),
       "install the CUDA Toolkit, or set CUDA_HOME or PATH; '-S' writes sources only");
  return false;
}

static const char *compiler(void) { return nvcc_path() ? nvcc_path() : "nvcc"; }

/* nvcc's version is on the last line of its output. */
static char *last_line(char *printed) {
  size_t n = strlen(printed);
  while (n > 0 && printed[n - 1] == '\n')
    printed[--n] = 0;
  char *line = strrchr(printed, '\n');
  return line ? line + 1 : printed;
}

const Toolchain cuda_toolchain = {
    .suffix = "cu",
    .compiler = compiler,
    .library = "libpd_runtime_cuda.a",
    .folders = "cuda",
    .add_command = add_command,
    .add_object = add_object,
    .expands_names = true,
    .is_built = is_built,
    .is_found = is_found,
    .version = last_line,
};
