/* `pdc doctor`: checks pdc's requirements on a machine, and reports missing ones with advice. */
#define _GNU_SOURCE
#include "build/build.h"
#include "shared/openmp.h"
#include "kernels/pd_onednn.h"
#include "pd_kernels.h"

#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

typedef enum { FINE, NOTE, MISSING } Verdict;

/* Prints a line with the check and its result, and the advice below it. */
__attribute__((format(printf, 4, 5))) static bool say(Verdict verdict, const char *what, const char *advice,
                                                      const char *found, ...) {
  static const char *const words[] = {"ok", "note", "missing"};
  va_list args;
  va_start(args, found);
  printf("%-8s %-14s ", words[verdict], what);
  vprintf(found, args);
  printf("\n");
  va_end(args);
  if (advice && verdict != FINE)
    printf("%-23s -> %s\n", "", advice);
  fflush(stdout);
  return verdict != MISSING;
}

/* Reports the first diagnostic since the mark. */
static bool say_failure(const char *what, int mark, const char *advice) {
  const char *why = diagnostics_forget(mark);
  return say(MISSING, what, advice, "%s", why ? why : "it failed");
}

/* The first line with a digit in a program's version output, with runs of spaces reduced to one. */
static const char *version_line(const char *text) {
  const char *digit = strpbrk(text, "0123456789"), *line = digit ? digit : text;
  while (line > text && line[-1] != '\n')
    line--;
  Text t = {0};
  for (; *line && *line != '\n'; line++)
    if (*line != ' ' || (t.n > 0 && line[1] != ' '))
      text_add(&t, "%c", *line);
  return t.n ? t.at : "";
}

/* ---- requirements ---------------------------------------------------------------------------- */

/* The highest of these instruction sets that oneDNN uses here. */
static const char *isa_name(void) {
  static const struct {
    unsigned bits;
    const char *name;
  } sets[] = {{dnnl_cpu_isa_sse41, "SSE4.1"},
              {dnnl_cpu_isa_avx, "AVX"},
              {dnnl_cpu_isa_avx2, "AVX2"},
              {dnnl_cpu_isa_avx2_vnni, "AVX2 with VNNI"},
              {dnnl_cpu_isa_avx512_core, "AVX-512"},
              {dnnl_cpu_isa_avx512_core_vnni, "AVX-512 with VNNI"},
              {dnnl_cpu_isa_avx512_core_bf16, "AVX-512 with bf16"},
              {dnnl_cpu_isa_avx512_core_amx, "AVX-512 with AMX"}};
  struct utsname u;
  const char *name = uname(&u) == 0 ? u.machine : "unknown";
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    if (uses(sets[i].bits))
      name = sets[i].name;
  return name;
}

void print_version(void) {
  const char *nvcc = nvcc_path();
  printf("pdc %s\n", PDC_VERSION);
  printf("files:  %s/share/pdc\n", own_prefix());
  printf("oneDNN: %s, this processor: %s\n", strchr(pd_library_name(), ' ') + 1, isa_name());
  printf("C:      %s\n", PDC_CC);
  printf("MPI:    %s\n", *PDC_MPICC ? PDC_MPICC : "none: programs of one rank");
  printf("images: %s\n", *PDC_IMAGE_LINK ? "JPEG and PNG" : "none");
  printf("texts:  plain%s%s\n", unpacked_kinds() ? ", " : "", unpacked_kinds() ? unpacked_kinds() : "");
  printf("CUDA:   %s\n", nvcc ? nvcc : "none: sources only");
}

static void look_at_system(void) {
  static const char key[] = "PRETTY_NAME=\"";
  const char *text = read_file("/etc/os-release", NULL), *name = text ? strstr(text, key) : NULL;
  struct utsname u;
  const char *machine = uname(&u) == 0 ? u.machine : "unknown";
  say(FINE, "system", NULL, "%s, %s, glibc %s",
      name ? format("%.*s", (int)strcspn(name + sizeof key - 1, "\"\n"), name + sizeof key - 1)
           : "no /etc/os-release",
      machine, gnu_get_libc_version());
}

static bool look_at_files(void) {
  static const char *const folders[] = {"stdlib_layers", "runtime", "diagnostics"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (access(own_folder(folders[i]), R_OK) != 0)
      return say(MISSING, "own files", "install pdc again: 'cmake --install BUILD', or its package", "no '%s'",
                 own_folder(folders[i]));
  return say(FINE, "own files", NULL, "%s/share/pdc", own_prefix());
}

static bool look_at_compiler(const Options *o) {
  int mark = diagnostics_mark();
  const char *version = cc_version(o, &c_toolchain);
  return version ? say(FINE, "C compiler", NULL, "%s", version)
                 : say_failure("C compiler", mark, "on Debian 'apt install clang libomp-dev'");
}

static bool look_at_onednn(void) {
  unsigned runtime = dnnl_version()->cpu_runtime;
  if (runtime != DNNL_RUNTIME_OMP && runtime != DNNL_RUNTIME_SEQ)
    say(NOTE, "oneDNN", "install oneDNN built for OpenMP", "this oneDNN does not use OpenMP threads");
  say(FINE, "oneDNN", NULL, "%s, %s", strchr(pd_library_name(), ' ') + 1, isa_name());
  return has_bf16() || say(NOTE, "bf16", "'--precision f32' is faster here",
                           "this processor has no bf16 instructions: results are exact, but slow");
}

static const Mpi *look_at_mpi(const Options *o) {
  static const char advice[] =
      "on Debian 'apt install libopenmpi-dev openmpi-bin'; '--mpicc CMD' selects another wrapper";
  int mark = diagnostics_mark();
  const Mpi *mpi = mpi_of(o);
  if (!mpi || !mpi->wrapper) {
    mpi ? say(NOTE, "MPI", advice, "pdc was built without MPI: programs have one rank")
        : say_failure("MPI", mark, advice);
    return NULL;
  }
  Strings ask = {0};
  push(&ask, mpi_launcher(mpi));
  push(&ask, "--version");
  char *version = command_output(&ask, "asking for MPI's version");
  if (!version) {
    say_failure("MPI", mark, advice);
    return NULL;
  }
  say(FINE, "MPI", NULL, "%s: %s", mpi->wrapper, version_line(version));
  return mpi;
}

static void look_at_openmp(void) {
  if (pd_openmp_ignored)
    say(NOTE, "OpenMP", "pdc and its programs ignore this value; unset the variable, or set a number",
        "'%s' is not a setting", pd_openmp_ignored);
}

static void look_at_images(void) {
  if (*PDC_IMAGE_LINK)
    say(FINE, "images", NULL, "libjpeg-turbo and libpng: programs read folders of JPEG and PNG files");
  else
    say(NOTE, "images",
        "for folders of images as data: on Debian 'apt install libjpeg-dev libpng-dev', then build pdc again",
        "pdc was built without libjpeg-turbo and libpng");
}

static bool look_at_shared_memory(void) {
  struct statvfs fs;
  if (statvfs("/dev/shm", &fs) != 0)
    return say(NOTE, "shared memory", "MPI's messages within a machine may be slower", "/dev/shm: %s",
               strerror(errno));
  if (access("/dev/shm", W_OK | X_OK) != 0)
    return say(NOTE, "shared memory", "MPI's messages within a machine may be slower",
               "/dev/shm cannot be written: %s", strerror(errno));
  int64_t bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
  bool small = bytes < 256 << 20;
  return say(small ? NOTE : FINE, "shared memory",
             "containers have 64 MiB by default; increase it with 'docker run --shm-size=2g'",
             "/dev/shm has %s free", bytes_text(bytes));
}

/* The version reported by a GPU library, such as 21801 for 2.18.1; 0: not found. */
static int library_version(const char *file, const char *symbol, bool into) {
  const char *nvcc = nvcc_path();
  int cut = nvcc && strrchr(nvcc, '/') ? (int)(strrchr(nvcc, '/') - nvcc) : 0, version = 0;
  void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (!library && cut)
    library = dlopen(format("%.*s/../lib64/%s", cut, nvcc, file), RTLD_LAZY | RTLD_LOCAL);
  void *found = library ? dlsym(library, symbol) : NULL;
  if (found && into)
    ((int (*)(int *))found)(&version);
  else if (found)
    version = (int)((size_t(*)(void))found)();
  return version;
}

static void look_at_gpu_library(const char *what, int version, int least, const char *use) {
  int major = version / 10000, minor = version / 100 % 100, patch = version % 100;
  if (!version)
    say(NOTE, what, use, "not found");
  else if (version < least)
    say(NOTE, what, use, "%d.%d.%d is older than %d.%d", major, minor, patch, least / 10000, least / 100 % 100);
  else
    say(FINE, what, NULL, "%d.%d.%d", major, minor, patch);
}

static bool look_at_cuda(const Options *o) {
  int mark = diagnostics_mark();
  if (!nvcc_path())
    return say(NOTE, "CUDA", "only '--target cuda' needs CUDA; set CUDA_HOME or PATH if it is installed",
               "nvcc was not found");
  const char *version = cc_version(o, &cuda_toolchain);
  if (!version)
    return say_failure("CUDA", mark, "only '--target cuda' needs CUDA");
  say(FINE, "CUDA", NULL, "%s: %s", nvcc_path(), version);
  look_at_gpu_library("NCCL", library_version("libnccl.so.2", "ncclGetVersion", true), 21800,
                      "without NCCL, programs for several GPUs send messages by MPI: '--comm mpi'");
  look_at_gpu_library("cuDNN", library_version("libcudnn.so.9", "cudnnGetVersion", false), 90000,
                      "without cuDNN, attention and convolutions use pdc's own kernels");
  return access("/proc/driver/nvidia/version", R_OK) == 0
             ? say(FINE, "GPU", NULL, "NVIDIA's driver is loaded")
             : say(NOTE, "GPU", "pdc can compile programs for GPUs here, but not run them",
                   "NVIDIA's driver is not loaded");
}

/* ---- a complete build and training ----------------------------------------------------------- */

static const char model[] = "use nn;\n"
                            "model doctor() {\n"
                            "  input  bytes[16] : token(256);\n"
                            "  target next[1]   : token(256);\n"
                            "  x = reshape(embedding(bytes, 256, 8), [1, 128]);\n"
                            "  x = tanh(linear(x, 64));\n"
                            "  loss cross_entropy(head: linear(x, 256), next);\n"
                            "}\n"
                            "train doctor { batch = 8; optimizer = sgd(lr = 0.1); }\n";

/* Runs a command silently; its standard error goes to the file `log`. */
static bool run(const Strings *command, const char *log, const char *what) {
  Strings shell = {0}; /* the shell only redirects; the words are arguments, which it does not interpret */
  push(&shell, "sh");
  push(&shell, "-c");
  push(&shell, "log=$1; shift; exec \"$@\" >\"$log\" 2>&1");
  push(&shell, "sh");
  push(&shell, log);
  add_all(&shell, command->at, (size_t)command->n);
  pid_t pid = command_start(&shell, -1);
  return pid >= 0 && command_finish(pid, what);
}

static bool build_example(const Options *o, const char *folder, const char *ranks) {
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n < 0 ? 0 : n] = 0;
  const char *words[] = {
      self, "--stages", ranks, "-o", format("%s/build", folder), format("%s/doctor.pdm", folder)};
  Strings command = {0};
  add_all(&command, words, sizeof words / sizeof *words);
  if (o->mpicc) {
    push(&command, "--mpicc");
    push(&command, o->mpicc);
  }
  return run(&command, format("%s/log", folder), "building a model");
}

static bool train_example(const Mpi *mpi, const char *folder, const char *ranks) {
  const char *train = format("%s/build/train", folder), *text = format("%s/doctor.pdm", folder);
  const char *launch[] = {mpi ? mpi_launcher(mpi) : "", "-n", ranks};
  const char *words[] = {train, "--data", text, "--steps", "3", "--quiet", "--timeout", "60", "--peak", "1e9"};
  Strings command = {0};
  if (mpi)
    add_all(&command, launch, sizeof launch / sizeof *launch);
  add_all(&command, words, sizeof words / sizeof *words);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0); /* safe: three updates of pdc's own model */
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
  return run(&command, format("%s/log", folder), "training it");
}

/* Builds a model of two stages and trains it in a temporary folder. */
static bool try_loop(const Options *o, const Mpi *mpi) {
  const char *ranks = mpi ? "2" : "1", *what = "a model";
  const char *parent = getenv("TMPDIR");
  char *folder = format("%s/pdc-doctor-XXXXXX", parent && *parent ? parent : "/tmp");
  if (!mkdtemp(folder))
    return say(MISSING, what, "set TMPDIR to another folder", "cannot make '%s': %s", folder, strerror(errno));
  int mark = diagnostics_mark();
  bool good = write_file(format("%s/doctor.pdm", folder), model, sizeof model - 1) &&
              build_example(o, folder, ranks) && train_example(mpi, folder, ranks);
  char *log = read_file(format("%s/log", folder), NULL);
  if (good) {
    diagnostics_forget(mark);
    say(FINE, what, NULL, "was built and trained on %s rank%s", ranks, mpi ? "s" : "");
  } else {
    say_failure(what, mark, "its output:");
    printf("%s", log ? log : "");
  }
  remove_files(format("%s/build", folder));
  remove_files(folder);
  return good;
}

bool doctor(const Options *o) {
  look_at_system();
  bool good = look_at_files();
  good = look_at_compiler(o) && good;
  look_at_onednn();
  say(FINE, "cJSON", NULL, "%s", cJSON_Version());
  const Mpi *mpi = look_at_mpi(o);
  look_at_openmp();
  look_at_images();
  look_at_shared_memory();
  look_at_cuda(o);
  int mark = diagnostics_mark();
  if (good && can_compile(o, &c_toolchain))
    good = say(FINE, "runtime", NULL, "%s", library_path(o, &c_toolchain)) && try_loop(o, mpi);
  else
    good = good && say_failure("runtime", mark, NULL);
  printf(good ? "models can be built and trained here\n" : "models cannot be built here yet\n");
  return good;
}
