/* The output directory: sources, plan, launcher. Every file is written beside, synced, renamed. */
#include "build/build.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  size_t n = dot && dot != name ? (size_t)(dot - name) : strlen(name);
  return format("%.*s", (int)n, name);
}

const char *source_name(const Toolchain *t, int stage) { return format("stage%d.%s", stage, t->suffix); }

const char *output_directory(const Options *o) {
  return o->output ? o->output
                   : format(o->generate ? "%s.generate"
                            : o->infer  ? "%s.infer"
                                        : "%s.build",
                            base_name(o->input));
}

static bool cannot_write(const char *path) {
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

static bool write_text(const Output *out, const char *name, const char *text) {
  const char *path = format("%s/%s", out->directory, name);
  return write_file(path, text, strlen(text)) || cannot_write(path);
}

/* Finds its rank under Open MPI, MPICH and Slurm and becomes that rank's stage program. */
static const char launcher[] =
    "#!/bin/sh\n"
    "# Starts one rank of a run: finds this process's rank under Open MPI, MPICH or Slurm and becomes that rank's\n"
    "# stage program. Ranks are numbered stage by stage.\n"
    "replicas='%s' # ranks of each stage\n"
    "stages=%d planned=%d\n"
    "case $0 in\n"
    "*/*) directory=${0%%/*} ;;\n"
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
    "for option in \"$@\"; do # stage 0's program tells it, whatever the number of ranks\n"
    "  case $option in\n"
    "  --help | -h) exec \"$directory/stage0\" --help ;;\n"
    "  esac\n"
    "done\n"
    "if [ \"$ranks\" != \"$planned\" ]; then\n"
    "  if [ \"$rank\" = 0 ]; then\n"
    "    echo \"pd: rank 0: this plan has $stages stage(s) on $planned rank(s), but the launch has $ranks\" \\\n"
    "         \"rank(s): use 'mpirun -n $planned $0 ...'\" >&2\n"
    "  fi\n"
    "  exit 1\n"
    "fi\n"
    "stage=0\n"
    "for n in $replicas; do\n"
    "  [ \"$rank\" -lt \"$n\" ] && break\n"
    "  rank=$((rank - n)) stage=$((stage + 1))\n"
    "done\n"
    "PD_PLAN=$directory/plan.json\n"
    "export PD_PLAN\n"
    "exec \"$directory/stage$stage\" \"$@\"\n";

static bool write_launcher(const Output *out) {
  const char *path = format("%s/%s", out->directory, out->launcher);
  Text replicas = {0};
  int ranks = 0;
  for (int i = 0; i < out->n_stages; i++) {
    text_add(&replicas, "%s%d", i ? " " : "", out->replicas[i]);
    ranks += out->replicas[i];
  }
  return write_text(out, out->launcher, format(launcher, replicas.at, out->n_stages, ranks)) &&
         (chmod(path, 0755) == 0 || cannot_write(path));
}

/* In the order of ranks. Open MPI splits its lines at spaces and knows no quotes. */
static bool write_app(const Output *out) {
  Text t = {0};
  for (int i = 0; i < out->n_stages; i++)
    text_add(&t, "-n %d -x PD_PLAN=%s/plan.json %s/stage%d\n", out->replicas[i], out->directory, out->directory,
             i);
  return write_text(out, "app", t.at);
}

static void add_escaped(Text *t, const char *path) {
  for (; *path; path++)
    text_add(t, strchr(" #$\\", *path) ? (*path == '$' ? "$%c" : "\\%c") : "%c", *path);
}

/* A rule for make: the sources depend on every file the model was read from. */
static bool write_dependencies(const Output *out) {
  Text t = {0};
  for (int i = 0; i < out->n_stages; i++) {
    text_add(&t, i ? " " : "");
    add_escaped(&t, format("%s/%s", out->directory, source_name(out->toolchain, i)));
  }
  text_add(&t, ":");
  for (int i = 0; i < source_count(); i++) {
    if (source_path(i)[0] == '<')
      continue;
    text_add(&t, " \\\n ");
    add_escaped(&t, source_path(i));
  }
  text_add(&t, "\n");
  return write_text(out, format("%s.d", out->model), t.at);
}

static bool remove_file(const Output *out, const char *name) {
  return unlink(format("%s/%s", out->directory, name)) == 0;
}

/* Stages that the plan has no more, and what an earlier build made for another target. */
static void remove_stale_stages(const Output *out) {
  for (int i = 0;; i++) {
    bool gone = i >= out->n_stages, any = false;
    for (const Backend *const *b = all_backends; *b; b++)
      if (gone || (*b)->toolchain != out->toolchain)
        any |= remove_file(out, source_name((*b)->toolchain, i));
    if (gone || any)
      any |= remove_file(out, format("stage%d", i));
    if (gone && !any)
      return;
  }
}

bool output_write(const Options *o, const Output *out) {
  if (mkdir(out->directory, 0777) != 0 && errno != EEXIST)
    return cannot_write(out->directory);
  for (int i = 0; i < out->n_stages; i++)
    if (!write_text(out, source_name(out->toolchain, i), out->source[i]))
      return false;
  if (!write_text(out, "plan.json", out->plan_json) || !write_app(out) || !write_launcher(out))
    return false;
  if (o->dependencies && !write_dependencies(out))
    return false;
  remove_stale_stages(out);
  return true;
}
