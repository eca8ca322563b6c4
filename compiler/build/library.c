/* The runtime that stage programs link. A build folder has it compiled. An installed pdc has its sources. It
 * compiles them on first use for the local processor, compiler and MPI, into the user's cache. */
#define _GNU_SOURCE
#include "build/build.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files and key --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds files of a runtime folder by suffix, as "host/device.c". */
static void add_files(Strings *files, const char *folder, const char *suffix) {
  int first = files->n;
  const char *root = own_folder("runtime");
  DIR *d = opendir(format("%s/%s", root, folder));
  for (struct dirent *entry; d && (entry = readdir(d));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (dot && !strcmp(dot + 1, suffix))
      push(files, format("%s%s%s", folder, *folder ? "/" : "", entry->d_name));
  }
  if (d)
    closedir(d);
  qsort(files->at + first, (size_t)(files->n - first), sizeof *files->at, by_name);
}

/* Folders of the runtime with the target's sources: its line of runtime/folders. */
static Strings folders_of(const Toolchain *t) {
  Strings folders = {0};
  const char *text = read_file(format("%s/folders", own_folder("runtime")), NULL);
  const char *head = format("%s ", t->folders);
  const char *line = text;
  while (line && strncmp(line, head, strlen(head)) != 0) {
    const char *end = strchr(line, '\n');
    line = end ? end + 1 : NULL;
  }
  if (line)
    add_words(&folders, format("%.*s", (int)(strcspn(line, "\n") - strlen(head)), line + strlen(head)));
  for (int i = 0; i < folders.n; i++)
    if (!strcmp(folders.at[i], "."))
      folders.at[i] = "";
  return folders;
}

/* Whether a name of runtime/folders is a file. */
static bool is_file(const char *name) {
  size_t n = strlen(name);
  return n > 2 && !strcmp(name + n - 2, ".c");
}

static Strings sources_of(const Toolchain *t) {
  Strings files = {0}, folders = folders_of(t);
  for (int i = 0; i < folders.n; i++) {
    if (is_file(folders.at[i])) {
      push(&files, folders.at[i]);
      continue;
    }
    add_files(&files, folders.at[i], "c");
    if (strcmp(t->suffix, "c"))
      add_files(&files, folders.at[i], t->suffix);
  }
  return files;
}

/* The lines of /proc/cpuinfo that determine -march=native. */
static void add_processor(Text *key) {
  const char *text = read_file("/proc/cpuinfo", NULL);
  static const char *const names[] = {"model name", "flags"};
  for (size_t i = 0; text && i < sizeof names / sizeof *names; i++) {
    const char *line = strstr(text, names[i]);
    if (line)
      text_add(key, "%.*s\n", (int)strcspn(line, "\n"), line);
  }
}

/* A key of all inputs that the library's bytes depend on. */
static const char *key_of(const Options *o, const Toolchain *t) {
  Text key = {0};
  Options plain = *o;
  plain.cc = NULL; /* --cc affects only stages */
  const char *compiler = cc_version(&plain, t), *c_compiler = cc_version(&plain, &c_toolchain);
  if (!compiler || !c_compiler)
    return NULL;
  text_add(&key, "%s\n%s\n%s\n", t->library, compiler, c_compiler);
  Strings command = {0};
  if (!t->add_object(&command, o, "", ""))
    return NULL;
  const char *own = format("-I%s", own_folder("runtime")); /* the install location does not affect the bytes */
  for (int i = 0; i < command.n; i++)
    if (strcmp(command.at[i], own))
      text_add(&key, "%s\n", command.at[i]);
  add_processor(&key);
  Strings files = sources_of(t);
  Strings folders = folders_of(t);
  for (int i = 0; i < folders.n; i++) {
    const char *slash = is_file(folders.at[i]) ? strrchr(folders.at[i], '/') : NULL;
    add_files(&files, slash ? format("%.*s", (int)(slash - folders.at[i]), folders.at[i]) : folders.at[i], "h");
  }
  add_files(&files, "optimizers", "h");
  add_files(&files, "", "h");
  for (int i = 0; i < files.n; i++) {
    size_t n = 0;
    const char *text = read_file(format("%s/%s", own_folder("runtime"), files.at[i]), &n);
    text_add(&key, "%s %s\n", files.at[i], text ? sha256_hex(text, n) : "");
  }
  return format("%.16s", sha256_hex(key.at, (size_t)key.n));
}

bool in_build_folder(void) { return access(format("%s/CMakeCache.txt", own_prefix()), F_OK) == 0; }

bool links_build_folder(const Options *o) { return in_build_folder() && !o->mpicc && !o->march; }

const char *library_path(const Options *o, const Toolchain *t) {
  if (links_build_folder(o))
    return format("%s/%s", own_prefix(), t->library);
  const char *key = key_of(o, t);
  return key ? format("%s/runtime-%s/%s", cache_directory(), key, t->library) : NULL;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static bool compile_sources(const Options *o, const Toolchain *t, const char *folder, const Strings *sources,
                            Strings *archive) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  int at_once = processors < 1 ? 1 : (int)processors, started = 0, done = 0;
  pid_t *job = alloc((size_t)sources->n * sizeof *job);
  bool good = true;
  while (done < started || (good && started < sources->n)) {
    if (good && started < sources->n && started - done < at_once) {
      Strings command = {0};
      const char *object = format("%s/%d.o", folder, started);
      t->add_object(&command, o, format("%s/%s", own_folder("runtime"), sources->at[started]), object);
      push(archive, object);
      job[started] = command_start(&command, -1);
      good = job[started] >= 0;
      started += good;
    } else {
      good = command_finish(job[done], format("compiling the runtime's '%s'", sources->at[done])) && good;
      done++;
    }
  }
  return good;
}

static bool make_in(const Options *o, const Toolchain *t, const char *folder) {
  Strings sources = sources_of(t), archive = {0};
  if (sources.n == 0) {
    error_at(NO_SPAN, "PD0601", "cannot read '%s/folders', which lists the runtime's sources",
             own_folder("runtime"));
    return false;
  }
  push(&archive, "ar");
  push(&archive, "rcs");
  push(&archive, format("%s/%s", folder, t->library));
  if (!compile_sources(o, t, folder, &sources, &archive))
    return false;
  pid_t pid = command_start(&archive, -1);
  if (pid < 0 || !command_finish(pid, "archiving the runtime"))
    return false;
  for (int i = 3; i < archive.n; i++)
    unlink(archive.at[i]);
  return true;
}

bool library_make(const Options *o, const Toolchain *t) {
  const char *path = library_path(o, t);
  if (!path || !cache_open())
    return false;
  const char *to = format("%.*s", (int)(strrchr(path, '/') - path), path);
  CacheEntry found = cache_find(to, t->library);
  if (found != CACHE_LACKS)
    return found == CACHE_HAS;
  char *folder = format("%s-XXXXXX", to);
  if (!mkdtemp(folder))
    return cache_cannot_write(folder);
  fprintf(stderr, "pdc: compiling the runtime for this machine, once, into '%s'\n", to);
  const char *made = format("%s/%s", folder, t->library);
  bool good =
      make_in(o, t, folder) && (chmod(made, 0600) == 0 || cache_cannot_write(made)); /* regardless of the umask */
  /* Another pdc may have finished first; its library is equivalent. */
  if (good && rename(folder, to) != 0) {
    int cause = errno;
    found = cache_find(to, t->library);
    errno = cause;
    good = found == CACHE_HAS || (found == CACHE_LACKS && cache_cannot_write(to));
  }
  if (access(folder, F_OK) == 0)
    remove_files(folder);
  return good;
}
