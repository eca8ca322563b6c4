/* Flags for compiling and linking with MPI, as printed by its compiler wrapper. */
#include "build/build.h"

#include <string.h>

/* Whether a word of the wrapper's command concerns MPI: include and library paths, libraries and macros.
 * Optimization and warning flags of the wrapper's own compiler do not. */
static bool is_compiled_with(const char *word) {
  return !strncmp(word, "-I", 2) || (!strncmp(word, "-D", 2) && strncmp(word, "-D_FORTIFY", 10));
}
static bool is_linked_with(const char *word) {
  return !strncmp(word, "-L", 2) || !strncmp(word, "-l", 2) || !strncmp(word, "-Wl,", 4) ||
         !strcmp(word, "-pthread");
}

/* Open MPI, MPICH and their derivatives print the command that they would run. */
static bool ask(const char *wrapper, Mpi *mpi) {
  Strings show = {0}, words = {0};
  add_words(&show, wrapper);
  push(&show, "-show");
  char *text = command_output(&show, format("asking '%s' for MPI's flags", wrapper));
  if (!text)
    return false;
  text[strcspn(text, "\n")] = 0;
  add_words(&words, text);
  for (int i = 1; i < words.n; i++)
    if (is_compiled_with(words.at[i]))
      push(&mpi->compile, words.at[i]);
    else if (is_linked_with(words.at[i]))
      push(&mpi->link, words.at[i]);
  return true;
}

const Mpi *mpi_of(const Options *o) {
  const char *wrapper = o->mpicc ? o->mpicc : PDC_MPICC;
  static Mpi *known;
  static const char *asked;
  if (known && !strcmp(asked, wrapper))
    return known;
  Mpi *mpi = alloc(sizeof *mpi);
  *mpi = (Mpi){.wrapper = *wrapper ? wrapper : NULL};
  if (!mpi->wrapper) {
    push(&mpi->compile, format("-I%s/single", own_folder("runtime")));
  } else if (!ask(wrapper, mpi)) {
    help(
        diagnostic_last(),
        "install MPI (on Debian 'apt install libopenmpi-dev openmpi-bin'), or choose a wrapper with '--mpicc CMD'; 'pdc doctor' checks this machine");
    return NULL;
  }
  asked = wrapper;
  return known = mpi;
}

const char *mpi_launcher(const Mpi *mpi) {
  const char *name = strrchr(mpi->wrapper, '/'), *dot = strchr(name ? name : mpi->wrapper, '.');
  return format("%.*smpirun%s", name ? (int)(name + 1 - mpi->wrapper) : 0, mpi->wrapper, dot ? dot : "");
}
