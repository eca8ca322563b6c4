/* Runs compilers without a shell, so names from a model are never words of a command. */
#define _GNU_SOURCE
#include "build/build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void cc_show(const Strings *command) {
  for (int i = 0; i < command->n; i++) {
    bool plain =
        command->at[i][strspn(command->at[i],
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+,:@%")] == 0;
    fprintf(stderr, plain && command->at[i][0] ? "%s%s" : "%s\"%s\"", i ? " " : "", command->at[i]);
  }
  fprintf(stderr, "\n");
}

static bool cannot_run(const char *what) {
  error_at(NO_SPAN, "PD0606", "cannot run '%s': %s", what, strerror(errno));
  return false;
}

pid_t command_start(const Strings *command, int out) {
  Strings c = *command;
  push(&c, NULL);
  fflush(NULL);
  int broken[2];
  if (pipe2(broken, O_CLOEXEC) != 0) {
    cannot_run(c.at[0]);
    return -1;
  }
  pid_t pid = fork();
  if (pid == 0) {
    if (out >= 0)
      dup2(out, 1);
    execvp(c.at[0], (char *const *)c.at);
    int cause = errno;
    if (write(broken[1], &cause, sizeof cause) < 0)
      _exit(126);
    _exit(127);
  }
  close(broken[1]);
  int cause = 0;
  ssize_t n = pid < 0 ? 0 : read(broken[0], &cause, sizeof cause);
  close(broken[0]);
  if (n == (ssize_t)sizeof cause) {
    waitpid(pid, NULL, 0);
    errno = cause;
    pid = -1;
  }
  if (pid < 0)
    cannot_run(c.at[0]);
  return pid;
}

bool command_finish(pid_t pid, const char *what) {
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return true;
  if (WIFSIGNALED(status))
    error_at(NO_SPAN, "PD0606", "%s was killed by signal %d", what, WTERMSIG(status));
  else
    error_at(NO_SPAN, "PD0606", "%s failed with exit status %d", what, WEXITSTATUS(status));
  return false;
}

typedef struct Job {
  pid_t pid;
  const char *source; /* its final path */
} Job;

/* Makes a temporary directory whose name is safe in a shell; NULL after a diagnostic. */
static char *make_temporary(void) {
  const char *parent = getenv("TMPDIR");
  if (!parent || !*parent || strpbrk(parent, "$`\"\\\n"))
    parent = "/tmp";
  char *directory = format("%s/pdc-XXXXXX", parent);
  if (mkdtemp(directory))
    return directory;
  error_at(NO_SPAN, "PD0605", "cannot create a temporary directory '%s': %s", directory, strerror(errno));
  return NULL;
}

/* The directory for compiling; NULL after a diagnostic. A compiler that passes absolute paths to a shell gets
 * copies in a temporary directory if the path has characters that a shell interprets. */
static const char *directory_for(const Output *out) {
  const char *directory = new_directory(out);
  if (!out->toolchain->expands_names)
    return directory;
  char *real = realpath(directory, NULL);
  bool plain = real && !strpbrk(real, "$`\"\\\n");
  free(real);
  if (plain || !(directory = make_temporary()))
    return directory;
  for (int i = 0; i < out->n_stages; i++) {
    const char *path = format("%s/%s", directory, source_name(out->toolchain, i));
    if (!write_file(path, out->source[i], strlen(out->source[i])))
      error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  }
  return directory;
}

/* Moves the programs back from a temporary directory. */
static bool leave_directory(const Output *out, const char *directory, bool good) {
  if (!directory || !strcmp(directory, new_directory(out)))
    return good;
  for (int i = 0; i < out->n_stages; i++) {
    const char *source = format("%s/%s", directory, source_name(out->toolchain, i));
    const char *program = format("%s/%s", directory, program_name(i)), *to = in_new(out, program_name(i));
    size_t n;
    const char *bytes = good ? read_file(program, &n) : NULL;
    if (good && (!bytes || !write_file(to, bytes, n) || chmod(to, 0755) != 0)) {
      error_at(NO_SPAN, "PD0605", "cannot copy '%s': %s", program, strerror(errno));
      good = false;
    }
    unlink(source);
    unlink(program);
  }
  rmdir(directory);
  return good;
}

/* Syncs programs to disk before they replace earlier ones. */
bool cc_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool good = fd >= 0 && fsync(fd) == 0;
  if (!good)
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  if (fd >= 0)
    close(fd);
  return good;
}

int cc_at_once(void) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  return processors < 2 ? 2 : processors > 8 ? 8 : (int)processors;
}

/* `origin`: of reusable programs; NULL: reuse none. */
static bool compile_all(const Options *o, const Output *out, const char *directory, const char *origin) {
  const int at_once = cc_at_once();
  Job *job = alloc((size_t)out->n_stages * sizeof *job);
  bool good = true;
  int started = 0, done = 0;
  while (done < out->n_stages) {
    if (started < out->n_stages && started - done < at_once && good) {
      Job *j = &job[started];
      if (origin && reuse_program(o, out, origin, started)) {
        started++;
        continue;
      }
      const char *name = source_name(out->toolchain, started);
      j->source = format("%s/%s", out->directory, name);
      Strings command = compile_command(o, out->toolchain, format("%s/%s", directory, name),
                                        format("%s/%s", directory, program_name(started++)));
      if ((o->verbose || o->dry_run) && command.n > 0)
        cc_show(&command);
      j->pid = command.n == 0 ? -1 : o->dry_run ? 0 : command_start(&command, -1);
      good = j->pid >= 0;
      continue;
    }
    if (done >= started)
      break;
    Job *j = &job[done++];
    if (j->pid > 0)
      good = command_finish(j->pid, format("compiling '%s'", j->source)) && good;
  }
  return good;
}

bool cc_stages(const Options *o, const Output *out) {
  if (o->dry_run)
    return compile_all(o, out, out->directory, NULL);
  if (!can_compile(o, out->toolchain))
    return false;
  const char *directory = directory_for(out), *origin = reuse_list_exists(out) ? reuse_origin(o, out) : NULL;
  bool in_place = directory && !strcmp(directory, new_directory(out));
  bool good =
      leave_directory(out, directory, directory && compile_all(o, out, directory, in_place ? origin : NULL));
  if (!good && diagnostic_last())
    help(diagnostic_last(), "'-S' writes the sources and compiles nothing; '%s' is unchanged", out->directory);
  for (int i = 0; i < out->n_stages && good; i++)
    good = cc_sync(in_new(out, program_name(i)));
  return good && reuse_write(o, out, origin ? origin : reuse_origin(o, out));
}

char *command_output(const Strings *command, const char *what) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    cannot_run(command->at[0]);
    return NULL;
  }
  pid_t pid = command_start(command, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return NULL;
  }
  Text text = {0};
  char part[4096];
  text_add(&text, "%s", "");
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0)
      text_add(&text, "%.*s", (int)n, part);
  close(ends[0]);
  return command_finish(pid, what) ? text.at : NULL;
}

const char *cc_version(const Options *o, const Toolchain *t) {
  Strings c = compiler_command(o, t);
  push(&c, "--version");
  char *text = command_output(&c, "asking the compiler for its version");
  return text ? t->version(text) : NULL;
}

const char *cc_version_if_found(const Options *o, const Toolchain *t) {
  int mark = diagnostics_mark();
  const char *version = cc_version(o, t);
  if (!version)
    diagnostics_forget(mark);
  return version ? version : "";
}

static char *read_measured(const char *path) {
  size_t n = 0;
  char *printed = read_file(path, &n);
  if (!printed)
    error_at(NO_SPAN, "PD0601", "cannot read '%s': %s", path, strerror(errno));
  else if (strlen(printed) != n)
    error_at(NO_SPAN, "PD0604", "'%s' is not the output of a profiling program: it contains a zero byte", path);
  return printed && strlen(printed) == n ? printed : NULL;
}

char *cc_run(const Options *o, const char *text) {
  const Toolchain *t = toolchain_of(o);
  if (o->measured)
    return read_measured(o->measured);
  if (!can_compile(o, t))
    return NULL;
  const char *directory = make_temporary();
  if (!directory)
    return NULL;
  const char *program = format("%s/profile", directory);
  const char *source = format("%s.%s", program, t->suffix);
  char *printed = NULL;
  if (!write_file(source, text, strlen(text))) {
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", source, strerror(errno));
  } else {
    Strings compile = compile_command(o, t, source, program), run = {0};
    push(&run, as_path(program));
    if (o->verbose)
      cc_show(&compile);
    pid_t pid = compile.n > 0 ? command_start(&compile, -1) : -1;
    if (pid >= 0 && command_finish(pid, "compiling the profiling program"))
      printed = command_output(&run, "the profiling program");
  }
  unlink(source);
  unlink(program);
  rmdir(directory);
  return printed;
}
