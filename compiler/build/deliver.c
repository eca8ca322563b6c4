/* A model as a C library. Its object has the emitted file and the runtime's functions that it calls, and no global name
 * but those of the header: programs may link several models. */
#include "build/build.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the runtime of libraries ----------------------------------------------------------------------------- */

static const char *const hidden[] = {"-fPIC", "-fvisibility=hidden"};

/* Without MPI: the stand-in has the declarations that headers need. */
static bool add_object(Strings *c, const Options *o, const char *source, const char *object) {
  const Mpi none = {0};
  add_words(c, PDC_CC);
  add_march(c, o->march);
  push(c, "-fopenmp");
  add_all(c, hidden, sizeof hidden / sizeof *hidden);
  push(c, format("-I%s/single", own_folder("runtime")));
  add_c_object(c, &none, source, object);
  return true;
}

static const char *compiler(void) { return PDC_CC; }

static char *first_line(char *printed) {
  printed[strcspn(printed, "\n")] = 0;
  return printed;
}

const Toolchain library_toolchain = {
    .suffix = "c",
    .compiler = compiler,
    .library = "libpd_library.a",
    .folders = "library",
    .add_object = add_object,
    .version = first_line,
};

/* ---- commands --------------------------------------------------------------------------------------------- */

static Strings compile_source(const Options *o, const char *directory, const char *name, const char *object) {
  Strings c = compiler_command(o, &library_toolchain);
  add_c_flags(&c, o);
  add_all(&c, hidden, sizeof hidden / sizeof *hidden);
  push(&c, format("-I%s", own_folder("runtime")));
  add_words(&c, PDC_LIBRARY_COMPILE);
  push(&c, format("-I%s", as_path(directory)));
  push(&c, "-c");
  push(&c, as_path(format("%s/%s.c", directory, name)));
  push(&c, "-o");
  push(&c, object);
  return c;
}

/* One object of the emitted file and the parts of the runtime that it needs. */
static Strings join_objects(const Options *o, const char *part, const char *runtime, const char *object) {
  Strings c = compiler_command(o, &library_toolchain);
  push(&c, "-r");
  push(&c, "-nostdlib");
  push(&c, "-o");
  push(&c, object);
  push(&c, part);
  push(&c, runtime);
  return c;
}

static Strings hide_names(const char *object) {
  Strings c = {0};
  push(&c, "objcopy");
  push(&c, "--localize-hidden");
  push(&c, object);
  return c;
}

static Strings archive(const char *object, const char *file) {
  Strings c = {0};
  push(&c, "ar");
  push(&c, "rcs");
  push(&c, file);
  push(&c, object);
  return c;
}

static Strings link_shared(const Options *o, const char *object, const char *name, const char *file) {
  Strings c = compiler_command(o, &library_toolchain);
  push(&c, "-shared");
  push(&c, "-o");
  push(&c, file);
  push(&c, object);
  push(&c, format("-Wl,-soname,lib%s.so", name));
  push(&c, "-Wl,-z,defs," READ_ONLY_TABLES);
  add_words(&c, PDC_LIBRARY_LINK);
  push(&c, "-lomp");
  push(&c, "-ldnnl");
  push(&c, "-lcjson");
  push(&c, "-lpthread");
  push(&c, "-lm");
  return c;
}

static bool run(const Options *o, Strings command, const char *what) {
  if (o->verbose || o->dry_run)
    cc_show(&command);
  if (o->dry_run)
    return true;
  pid_t pid = command_start(&command, -1);
  return pid >= 0 && command_finish(pid, what);
}

static bool compile(const Options *o, const ModelLibrary *l, const char *directory) {
  const char *runtime = library_path(o, &library_toolchain);
  if (!runtime || (!o->dry_run && !can_compile(o, &library_toolchain)))
    return false;
  const char *at = as_path(directory), *part = format("%s/%s.part.o", at, l->name),
             *object = format("%s/%s.o", at, l->name), *file = format("%s/lib%s.a", at, l->name),
             *shared = format("%s/lib%s.so", at, l->name), *what = format("building the library of '%s'", l->name);
  bool good = run(o, compile_source(o, directory, l->name, part), format("compiling '%s.c'", l->name)) &&
              run(o, join_objects(o, part, runtime, object), what) && run(o, hide_names(object), what) &&
              run(o, archive(object, file), what) && run(o, link_shared(o, object, l->name, shared), what);
  unlink(part);
  unlink(object);
  return good && (o->dry_run || (cc_sync(file) && cc_sync(shared)));
}

bool library_deliver(const Options *o, const ModelLibrary *l, Output *out) {
  const OutputFile files[] = {{format("%s.h", l->name), l->header},
                              {format("%s.c", l->name), l->source},
                              {format("lib%s.a", l->name), NULL},
                              {format("lib%s.so", l->name), NULL}};
  out->file = files;
  out->n_files = o->sources_only ? 2 : 4;
  if (o->dry_run)
    return o->sources_only || compile(o, l, out->directory);
  if (!output_write(o, out))
    return false;
  if (o->sources_only || compile(o, l, new_directory(out)))
    return output_install(o, out);
  output_abandon(out);
  return false;
}
