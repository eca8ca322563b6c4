/* The output directory. A build writes all texts and programs to DIR/.pdc-new, then moves them into place. A
 * failed or interrupted build leaves the previous one intact. */
#include "build/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/why.h"

/* The last name of a folder's path, also of "." and of a path that ends in a slash. */
static const char *folder_name(const char *path) {
  char *real = realpath(path, NULL);
  const char *slash = real ? strrchr(real, '/') : NULL, *name = slash && slash[1] ? slash + 1 : "model";
  name = format("%s", name);
  free(real);
  return name;
}

const char *base_name(const char *path) {
  struct stat st;
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
    return folder_name(path);
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  size_t n = dot && dot != name ? (size_t)(dot - name) : strlen(name);
  return format("%.*s", (int)n, name);
}

const char *source_name(const Toolchain *t, int stage) { return format("stage%d.%s", stage, t->suffix); }
const char *program_name(int stage) { return format("stage%d", stage); }
static const char *in_place(const Output *out, const char *name) { return format("%s/%s", out->directory, name); }
const char *new_directory(const Output *out) { return in_place(out, ".pdc-new"); }
const char *in_new(const Output *out, const char *name) { return format("%s/%s", new_directory(out), name); }

const char *output_directory(const Options *o) {
  return o->output ? o->output
                   : format(o->library    ? "%s.library"
                            : o->generate ? "%s.generate"
                            : o->infer    ? "%s.infer"
                                          : "%s.build",
                            base_name(o->input));
}

static bool cannot_write(const char *path) {
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

static bool write_text(const Output *out, const char *name, const char *text) {
  const char *path = in_new(out, name);
  return write_file(path, text, strlen(text)) || cannot_write(in_place(out, name));
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* One entry of a launch: ranks of one stage on consecutive devices. */
typedef struct Run {
  int stage, ranks;
} Run;

static int n_runs(const Output *out) {
  int adjacent = out->placement.adjacent;
  return out->n_stages * (adjacent ? out->replicas[0] / adjacent : 1);
}

static Run run_at(const Output *out, int i) {
  int nth = i % out->n_stages, stage = out->placement.backward ? out->n_stages - 1 - nth : nth;
  return (Run){stage, out->placement.adjacent ? out->placement.adjacent : out->replicas[stage]};
}

/* Finds its rank under Open MPI, MPICH and Slurm, and executes that rank's stage program. */
static const char launcher[] =
    "#!/bin/sh\n"
    "# Starts one rank of a run: finds this process's rank under Open MPI, MPICH or Slurm and becomes that rank's\n"
    "# stage program.\n"
    "places='%s' # in the order of the launch: STAGE:RANKS\n"
    "stages=%d planned=%d\n"
    "program=$0\n"
    "if [ -L \"$program\" ]; then # the stage programs are beside the script itself\n"
    "  program=$(readlink -f -- \"$0\"; echo /) # names may end in line breaks\n"
    "  program=${program%%?/}\n"
    "fi\n"
    "case $program in\n"
    "-*/*) directory=./${program%%/*} ;; # no option\n"
    "*/*) directory=${program%%/*} ;;\n"
    "*) directory=. ;;\n"
    "esac\n"
    "if [ -n \"$OMPI_COMM_WORLD_RANK\" ]; then\n"
    "  rank=$OMPI_COMM_WORLD_RANK ranks=$OMPI_COMM_WORLD_SIZE\n"
    "elif [ -n \"$PMI_RANK\" ]; then\n"
    "  rank=$PMI_RANK ranks=$PMI_SIZE\n"
    "elif [ -n \"$PMIX_RANK\" ] && [ -n \"$SLURM_NTASKS\" ]; then\n"
    "  rank=$PMIX_RANK ranks=$SLURM_NTASKS\n"
    "elif [ -n \"$SLURM_PROCID\" ]; then\n"
    "  rank=$SLURM_PROCID ranks=$SLURM_NTASKS\n"
    "else\n"
    "  rank=0 ranks=1\n"
    "fi\n"
    "for number in \"$rank\" \"$ranks\"; do\n"
    "  case $number in\n"
    "  '' | *[!0-9]*)\n"
    "    echo \"pd: rank '$rank' of '$ranks', as the environment has it, are not numbers: use mpirun or srun\" >&2\n"
    "    exit 1\n"
    "    ;;\n"
    "  esac\n"
    "done\n"
    "for option in \"$@\"; do # stage 0's program tells it, whatever the number of ranks\n"
    "  case $option in\n"
    "  --help | -h) exec \"$directory/stage0\" --help ;;\n"
    "  esac\n"
    "done\n"
    "if [ \"$ranks\" != \"$planned\" ]; then\n"
    "  if [ \"$rank\" = 0 ]; then\n"
    "    echo \"pd: rank 0: this plan has $stages stage(s) on $planned rank(s), but the launch has $ranks\" \\\n"
    "         \"rank(s): use 'mpirun -n $planned $0 ...'\" >&2\n"
    "  else\n"
    "    sleep 1 # the first that ends may end the launch: rank 0 is to be heard\n"
    "  fi\n"
    "  exit 1\n"
    "fi\n"
    "for place in $places; do\n"
    "  stage=${place%%:*} n=${place#*:}\n"
    "  [ \"$rank\" -lt \"$n\" ] && break\n"
    "  rank=$((rank - n))\n"
    "done\n"
    "trap '' USR1 USR2 # the stage program answers them\n"
    "PD_PLAN=$directory/plan.json\n"
    "export PD_PLAN\n"
    "exec \"$directory/stage$stage\" \"$@\"\n";

static bool write_launcher(const Output *out) {
  Text places = {0};
  int ranks = 0;
  for (int i = 0; i < n_runs(out); i++) {
    Run run = run_at(out, i);
    text_add(&places, "%s%d:%d", i ? " " : "", run.stage, run.ranks);
    ranks += run.ranks;
  }
  return write_text(out, out->launcher, format(launcher, places.at, out->n_stages, ranks)) &&
         (chmod(in_new(out, out->launcher), 0755) == 0 || cannot_write(in_place(out, out->launcher)));
}

/* Writes entries in device order. Open MPI splits lines at spaces, ends them at #, and knows no quotes. */
static bool write_app(const Output *out) {
  Text t = {0};
  const char *directory = strchr("-@", *out->directory) ? as_path(out->directory) : out->directory;
  if (directory[strcspn(directory, " \t\n#")]) /* better none than a wrong program */
    return write_text(
        out, "app",
        "# Open MPI splits these lines at spaces, ends them at # and knows no quotes, and the directory's name has one:\n"
        "# launch its 'train' instead, or build into a directory without.\n");
  for (int i = 0; i < n_runs(out); i++) {
    Run run = run_at(out, i);
    text_add(&t, "-n %d -x PD_PLAN=%s/plan.json %s/stage%d\n", run.ranks, directory, directory, run.stage);
  }
  return write_text(out, "app", t.at);
}

static void add_escaped(Text *t, const char *path) {
  for (; *path; path++)
    text_add(t, strchr(" #$\\", *path) ? (*path == '$' ? "$%c" : "\\%c") : "%c", *path);
}

/* Writes a rule for make: the sources, or the target of -MT, depend on every file read for the model. */
static bool write_dependencies(const Options *o, const Output *out) {
  Text t = {0};
  if (o->dependent)
    add_escaped(&t, o->dependent);
  for (int i = 0; i < out->n_stages && !o->dependent; i++) {
    text_add(&t, i ? " " : "");
    add_escaped(&t, format("%s/%s", out->directory, source_name(out->toolchain, i)));
  }
  if (!o->dependent && out->n_files)
    add_escaped(&t, in_place(out, out->file[0].name));
  text_add(&t, ":");
  for (int i = 0; i < source_count(); i++) {
    if (!source_is_file(source_path(i)))
      continue;
    text_add(&t, " \\\n ");
    add_escaped(&t, source_path(i));
  }
  text_add(&t, "\n");
  return write_text(out, format("%s.d", out->model), t.at);
}

/* ---- the unfinished build -------------------------------------------------------------------- */

/* All file names of a build. Includes stage programs even if pdc does not compile them, because `train` runs
 * them. */
static Strings names_of(const Options *o, const Output *out, const Strings *made) {
  const char *dependencies = format("%s.d", out->model);
  Strings names = {0};
  for (int i = 0; i < out->n_stages; i++) {
    push(&names, source_name(out->toolchain, i));
    push(&names, program_name(i));
  }
  for (int i = 0; i < out->n_files; i++)
    push(&names, out->file[i].name);
  push(&names, "plan.json");
  if (out->picture)
    push(&names, "model.svg");
  if (!o->sources_only && out->launcher)
    push(&names, reuse_list);
  if (o->dependencies || made_has(made, dependencies))
    push(&names, dependencies);
  if (out->launcher) {
    push(&names, "app");
    push(&names, out->launcher);
  }
  return names;
}

void remove_files(const char *folder) {
  DIR *dir = opendir(folder);
  for (struct dirent *d; dir && (d = readdir(dir));)
    if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
      unlinkat(dirfd(dir), d->d_name, 0);
  if (dir)
    closedir(dir);
  rmdir(folder);
}

/* Removes DIR/.pdc-new with its contents, as left by an interrupted build. */
static void remove_new(const Output *out) {
  const char *path = new_directory(out);
  struct stat st;
  if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
    return;
  remove_files(path);
}

/* Locks the directory against other builds until it is closed; without effect on file systems without locks. */
static bool lock(Output *out) {
  out->lock = open(out->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (out->lock < 0)
    return cannot_write(out->directory);
  if (flock(out->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
    return true;
  close(out->lock);
  out->lock = -1;
  help(error_at(NO_SPAN, "PD0615", "another pdc process is building in '%s'", out->directory),
       "wait until the other process ends, or choose another directory with '-o DIR'");
  return false;
}

/* Refuses newlines in names, because they end a rule of make. */
static bool can_write_dependencies(const Options *o, const Output *out) {
  bool good = !o->dependencies || (!strchr(out->directory, '\n') && !strchr(out->model, '\n') &&
                                   !(o->dependent && strchr(o->dependent, '\n')));
  for (int i = 0; i < source_count() && o->dependencies; i++)
    good = good && !strchr(source_path(i), '\n');
  if (!good)
    error_at(NO_SPAN, "PD0616", "-MD: a make rule cannot contain a file name with a line break");
  return good;
}

static bool write_all(const Options *o, const Output *out) {
  const char *path = new_directory(out);
  remove_new(out);
  if (mkdir(path, 0777) != 0)
    return cannot_write(path);
  for (int i = 0; i < out->n_stages; i++)
    if (!write_text(out, source_name(out->toolchain, i), out->source[i]))
      return false;
  for (int i = 0; i < out->n_files; i++)
    if (out->file[i].text && !write_text(out, out->file[i].name, out->file[i].text))
      return false;
  return write_text(out, "plan.json", out->plan_json) &&
         (!out->picture || write_text(out, "model.svg", out->picture)) &&
         (!out->launcher || (write_app(out) && write_launcher(out))) &&
         (!o->dependencies || write_dependencies(o, out));
}

bool output_write(const Options *o, Output *out) {
  out->lock = -1;
  if (!can_write_dependencies(o, out))
    return false;
  out->made_directory = mkdir(out->directory, 0777) == 0;
  if (!out->made_directory && errno != EEXIST)
    return cannot_write(out->directory);
  if (!lock(out))
    return false;
  Strings made = made_read(out->directory), wanted = names_of(o, out, &made);
  if (made_spares(out->directory, &made, &wanted) && write_all(o, out))
    return true;
  output_abandon(out);
  return false;
}

void output_abandon(const Output *out) {
  remove_new(out);
  if (out->made_directory)
    rmdir(out->directory);
  if (out->lock >= 0)
    close(out->lock);
}

/* ---- installing ------------------------------------------------------------------------------ */

static bool remove_file(const Output *out, const char *name) {
  const char *path = in_place(out, name);
  return unlink(path) == 0 || errno == ENOENT || cannot_write(path);
}

static bool move(const Output *out, const char *name) {
  const char *path = in_place(out, name);
  return rename(in_new(out, name), path) == 0 || cannot_write(path);
}

/* Whether the installed source equals the new one: then a program that a user compiled from it remains valid. */
static bool is_unchanged(const Output *out, int stage) {
  size_t n;
  const char *text = read_file(in_place(out, source_name(out->toolchain, stage)), &n);
  return text && n == strlen(out->source[stage]) && !memcmp(text, out->source[stage], n);
}

/* Removes the launcher first and installs it last: a directory with files of two builds cannot be launched. */
static bool move_all(const Options *o, const Output *out, const Strings *made, const Strings *wanted) {
  static const char *const starters[] = {"app", "train", "infer", "generate"};
  for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
    if (made_has(made, starters[i]) && !remove_file(out, starters[i]))
      return false;
  for (int i = 0; i < made->n; i++)
    if (!made_has(wanted, made->at[i]) && !remove_file(out, made->at[i]))
      return false;
  for (int i = 0; i < out->n_stages; i++) {
    bool kept = o->sources_only && is_unchanged(out, i);
    if (!(o->sources_only ? kept || remove_file(out, program_name(i)) : move(out, program_name(i))) ||
        !move(out, source_name(out->toolchain, i)))
      return false;
  }
  for (int i = 0; i < out->n_files; i++)
    if (!move(out, out->file[i].name))
      return false;
  return move(out, "plan.json") && (!out->picture || move(out, "model.svg")) &&
         (o->sources_only || !out->launcher || move(out, reuse_list)) &&
         (!o->dependencies || move(out, format("%s.d", out->model))) &&
         (!out->launcher || (move(out, "app") && move(out, out->launcher)));
}

const char *shell_quoted(const char *path) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,/:@%=";
  Text text = {0};
  char *shown = format("%s", path);
  pd_make_plain(shown);
  for (const char *c = shown; *c; c++)
    if (*c == '\'')
      text_add(&text, "'\\''");
    else
      text_add(&text, "%c", *c);
  return path[strspn(path, plain)] ? format("'%s'", text.at) : path;
}

static void announce_library(const Output *out) {
  Text names = {0};
  for (int i = 0; i < out->n_files; i++)
    text_add(&names, "%s%s", i ? ", " : "", out->file[i].name);
  printf("%s: %s\n", shell_quoted(out->directory), names.at);
}

/* Prints one line with the programs' location and launch command. */
static void announce(const Options *o, const Output *out) {
  if (!out->launcher) {
    announce_library(out);
    return;
  }
  int ranks = 0;
  for (int i = 0; i < out->n_stages; i++)
    ranks += out->replicas[i];
  const char *directory = shell_quoted(out->directory),
             *program = shell_quoted(format("%s/%s", out->directory, out->launcher));
  if (o->sources_only)
    printf("%s: %d source%s, not compiled\n", directory, out->n_stages, out->n_stages == 1 ? "" : "s");
  else if (ranks == 1)
    printf("%s: run %s %s\n", directory, program, out->arguments);
  else
    printf("%s: run %s -n %d --bind-to none %s %s\n", directory, mpi_launcher(mpi_of(o)), ranks, program,
           out->arguments);
}

bool output_install(const Options *o, const Output *out) {
  Strings made = made_read(out->directory), wanted = names_of(o, out, &made), both = made;
  for (int i = 0; i < wanted.n; i++)
    made_add(&both, wanted.at[i]);
  bool good =
      made_write(out->directory, &both) && move_all(o, out, &made, &wanted) && made_write(out->directory, &wanted);
  remove_new(out);
  good = (fsync(out->lock) == 0 || errno == EINVAL || cannot_write(out->directory)) && good;
  close(out->lock);
  if (good && !o->quiet)
    announce(o, out);
  return good;
}
