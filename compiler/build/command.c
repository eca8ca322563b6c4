/* The command that compiles a stage program: the part common to all targets. */
#include "build/build.h"

#include <string.h>

const Toolchain *toolchain_of(const Options *o) { return backend_of(&o->plan.target)->toolchain; }

const char *as_path(const char *name) {
  return *name == '/' || !strncmp(name, "./", 2) || !strncmp(name, "../", 3) ? name : format("./%s", name);
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

void add_all(Strings *command, const char *const *words, size_t n) {
  for (size_t i = 0; i < n; i++)
    push(command, words[i]);
}

Strings compiler_command(const Options *o, const Toolchain *t) {
  Strings c = {0};
  add_words(&c, o->cc ? o->cc : t->compiler());
  return c;
}

Strings compile_command(const Options *o, const Toolchain *t, const char *source, const char *program) {
  Strings c = compiler_command(o, t);
  if (!t->add_command(&c, o, as_path(source), as_path(program)))
    return (Strings){0};
  push(&c, "-lpthread");
  push(&c, "-lm");
  return c;
}

bool can_compile(const Options *o, const Toolchain *t) {
  if (links_build_folder(o))
    return !t->is_built || t->is_built();
  return (!t->is_found || t->is_found()) && library_make(o, t);
}
