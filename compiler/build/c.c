/* Programs for processors: by default, pdc's own build compiler for this machine. */
#include "build/build.h"

#include <string.h>

/* Flags that determine bits of results; users cannot change them. */
static const char *const flags[] = {
    "-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-Wall", "-Wextra", STACK_PROTECTOR,
};

/* Flags of the runtime, as in CMakeLists.txt. */
static const char *const object_flags[] = {
    "-std=gnu11",      "-O3",           "-DNDEBUG", "-fno-strict-aliasing", "-ffp-contract=off",
    "-fno-math-errno", STACK_PROTECTOR,
};

/* Maps the path of compilation to the final path of the source, for debuggers. */
static void add_place(Strings *c, const char *source) {
  static const char beside[] = "/.pdc-new/";
  const char *at = strstr(source, beside);
  if (!at || strchr(source, '='))
    return;
  const char *directory = format("%.*s", (int)(at - source), source);
  push(c, format("-ffile-prefix-map=%s/.pdc-new=%s", directory, directory));
  if (!strncmp(directory, "./", 2)) /* other places omit the "./" */
    push(c, format("-ffile-prefix-map=%s/.pdc-new=%s", directory + 2, directory + 2));
}

void add_c_flags(Strings *c, const Options *o) {
  add_all(c, flags, sizeof flags / sizeof *flags);
  add_march(c, o->march);
}

/* libomp precedes oneDNN, so that oneDNN's OpenMP symbols resolve to it: one thread pool per process. */
static bool add_command(Strings *c, const Options *o, const char *source, const char *program) {
  const char *library = library_path(o, &c_toolchain);
  const Mpi *mpi = mpi_of(o);
  if (!library || !mpi)
    return false;
  add_c_flags(c, o);
  add_place(c, source);
  push(c, format("-I%s", own_folder("runtime")));
  push(c, source);
  push(c, "-o");
  push(c, program);
  push(c, "-Wl," READ_ONLY_TABLES);
  push(c, "-Wl,-u,pd_openmp_ignored"); /* runtime/shared/openmp.c, which is never called */
  push(c, library);
  add_words(c, PDC_LIBRARY_LINK);
  push(c, "-lomp");
  push(c, "-ldnnl");
  push(c, "-lcjson");
  add_words(c, PDC_IMAGE_LINK);
  add_all(c, mpi->link.at, (size_t)mpi->link.n);
  return true;
}

void add_c_object(Strings *c, const Mpi *mpi, const char *source, const char *object) {
  add_all(c, object_flags, sizeof object_flags / sizeof *object_flags);
  push(c, format("-I%s", own_folder("runtime")));
  add_words(c, PDC_LIBRARY_COMPILE);
  add_all(c, mpi->compile.at, (size_t)mpi->compile.n);
  push(c, "-c");
  push(c, source);
  push(c, "-o");
  push(c, object);
}

static bool add_object(Strings *c, const Options *o, const char *source, const char *object) {
  const Mpi *mpi = mpi_of(o);
  if (!mpi)
    return false;
  add_words(c, PDC_CC);
  add_march(c, o->march);
  push(c, "-fopenmp");
  add_c_object(c, mpi, source, object);
  return true;
}

static char *first_line(char *printed) {
  printed[strcspn(printed, "\n")] = 0;
  return printed;
}

static const char *compiler(void) { return PDC_CC; }

const Toolchain c_toolchain = {
    .suffix = "c",
    .compiler = compiler,
    .library = "libpd_runtime.a",
    .folders = "c",
    .add_command = add_command,
    .add_object = add_object,
    .version = first_line,
};
