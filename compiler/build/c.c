/* Programs for processors: the compiler that pdc was built with, at this machine. */
#include "build/build.h"

#include <string.h>

/* The flags that make bits; nobody may change them. */
static const char *const flags[] = {
    "-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-Wall", "-Wextra",
};

/* Debuggers find the source where it stands in the end, not where it was compiled. */
static void add_place(Strings *c, const char *source) {
  static const char beside[] = "/.pdc-new/";
  const char *at = strstr(source, beside);
  if (!at || strchr(source, '='))
    return;
  const char *directory = format("%.*s", (int)(at - source), source);
  push(c, format("-ffile-prefix-map=%s/.pdc-new=%s", directory, directory));
  if (!strncmp(directory, "./", 2)) /* in some places it is written without */
    push(c, format("-ffile-prefix-map=%s/.pdc-new=%s", directory + 2, directory + 2));
}

/* libomp comes before oneDNN, whose own OpenMP library then finds its symbols there: one pool of threads a
 * process. */
static void add_command(Strings *c, const Options *o, const char *source, const char *program) {
  (void)o;
  add_all(c, flags, sizeof flags / sizeof *flags);
  add_place(c, source);
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

static char *first_line(char *printed) {
  printed[strcspn(printed, "\n")] = 0;
  return printed;
}

const Toolchain c_toolchain = {
    .suffix = "c", .compiler = PDC_CC, .add_command = add_command, .version = first_line};
