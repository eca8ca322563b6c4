/* Reuse of programs from an earlier build in the same directory. DIR/.pdc-programs has a line per program: name,
 * key of all its inputs, and checksum of its bytes. */
#include "build/build.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Adds the checksum of a file, or a note that it is unreadable. */
static void add_file(Text *t, const char *path) {
  size_t n;
  const char *bytes = read_file(path, &n);
  text_add(t, "%s %s\n", path, bytes ? sha256_hex(bytes, n) : "missing");
}

/* Adds the headers shared by programs and their library, in a folder and its subfolders. */
static void add_headers(Text *t, const char *folder) {
  struct dirent **entry;
  int n = scandir(folder, &entry, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    const char *name = entry[i]->d_name, *dot = strrchr(name, '.'), *path = format("%s/%s", folder, name);
    struct stat st;
    if (*name == '.' || stat(path, &st) != 0)
      continue;
    if (S_ISDIR(st.st_mode))
      add_headers(t, path);
    else if (dot && !strcmp(dot, ".h"))
      add_file(t, path);
  }
}

/* Adds libraries given by path in the command. */
static void add_libraries(Text *t, const Strings *command) {
  for (int i = 0; i < command->n; i++) {
    size_t n = strlen(command->at[i]);
    if (n > 2 && !strcmp(command->at[i] + n - 2, ".a"))
      add_file(t, command->at[i]);
  }
}

/* The meaning of `native`: the first processor's constant lines. */
static void add_processor(Text *t) {
  static const char *const fields[] = {"vendor_id", "cpu family", "model", "stepping", "flags", "Features"};
  size_t n;
  const char *text = read_file("/proc/cpuinfo", &n);
  for (const char *line = text; line && *line && *line != '\n';) {
    size_t length = strcspn(line, "\n");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
      if (!strncmp(line, fields[i], strlen(fields[i])))
        text_add(t, "%.*s\n", (int)length, line);
    line += length + (line[length] == '\n');
  }
}

/* The complete output of the compiler's --version. NULL, without a diagnostic, if it fails: the compilation will
 * report it. */
static const char *version_of(const Options *o, const Output *out) {
  Strings c = compiler_command(o, out->toolchain);
  push(&c, "--version");
  int mark = diagnostics_mark();
  const char *text = command_output(&c, "asking the compiler for its version");
  if (!text)
    diagnostics_forget(mark);
  return text;
}

const char *reuse_origin(const Options *o, const Output *out) {
  Text t = {0};
  const char *version = version_of(o, out);
  if (!version)
    return NULL;
  text_add(&t, "%s\n", version);
  Strings command = compile_command(o, out->toolchain, "", "");
  add_libraries(&t, &command);
  add_headers(&t, own_folder("runtime"));
  add_processor(&t);
  return t.at;
}

static const char *key_of(const Options *o, const Output *out, const char *origin, int stage) {
  Text t = {0};
  Strings command = compile_command(o, out->toolchain, in_new(out, source_name(out->toolchain, stage)),
                                    in_new(out, program_name(stage)));
  for (int i = 0; i < command.n; i++)
    text_add(&t, "%s\n", command.at[i]);
  text_add(&t, "%s%s", origin, out->source[stage]);
  return sha256_hex(t.at, t.n);
}

/* The program's line in the list; NULL: it cannot be read. */
static const char *line_of(const char *name, const char *key, const char *program) {
  size_t n;
  const char *bytes = read_file(program, &n);
  return bytes ? format("%s %s %s\n", name, key, sha256_hex(bytes, n)) : NULL;
}

bool reuse_list_exists(const Output *out) {
  return access(format("%s/%s", out->directory, reuse_list), R_OK) == 0;
}

bool reuse_program(const Options *o, const Output *out, const char *origin, int stage) {
  size_t n;
  const char *name = program_name(stage), *place = format("%s/%s", out->directory, name);
  const char *list = read_file(format("%s/%s", out->directory, reuse_list), &n);
  const char *line = list && origin ? line_of(name, key_of(o, out, origin, stage), place) : NULL;
  const char *found = line ? strstr(list, line) : NULL;
  return found && (found == list || found[-1] == '\n') && link(place, in_new(out, name)) == 0;
}

bool reuse_write(const Options *o, const Output *out, const char *origin) {
  Text t = {0};
  text_add(&t,
           "# What each program was made of, and its bytes: a build that would make the same takes it over.\n");
  for (int i = 0; i < out->n_stages && origin; i++) {
    const char *name = program_name(i), *line = line_of(name, key_of(o, out, origin, i), in_new(out, name));
    text_add(&t, "%s", line ? line : "");
  }
  const char *path = in_new(out, reuse_list);
  if (write_file(path, t.at, t.n))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}
