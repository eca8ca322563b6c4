/* Several models in one launch (docs/guide/many-models.md). Each model is built for one rank, into its own folder.
 * The ranks' program, beside the folders, refers to them by name. */
#include "build/build.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "base/json.h"
#include "sharp/sharp.h"

/* ---- unsupported combinations ------------------------------------------------------------------- */

static bool refuse(const char *advice, const char *what) {
  help(error_at(NO_SPAN, "PD0711", "'--sharp' %s", what), "%s", advice);
  return false;
}

static bool can_build(const Options *o) {
  const PlanRequest *p = &o->plan;
  if (o->generate || o->infer)
    return refuse("build each model separately", format("is for training and cannot be combined with '--%s'",
                                                        o->generate ? "generate" : "infer"));
  if (!backend_of(&p->target)->device->has_threads)
    return refuse("'--target c'", "is for processors only");
  if (p->schedule && strcmp(p->schedule, "sequential") && strcmp(p->schedule, "spilled"))
    return refuse("leave '--schedule' out, or use 'sequential' or 'spilled'",
                  format("trains each model on one rank at a time and cannot use schedule '%s'", p->schedule));
  if (p->stages > 1 || p->replicas || p->plan)
    return refuse("use '-n N' alone: the number of ranks that all models share",
                  "trains each model on one rank at a time and cannot use '--stages', '--replicas' or '--plan'");
  if (!p->workers)
    return refuse("'-n 2'", "needs the number of ranks");
  if (o->models.n < 2)
    return refuse("pdc sharp -n 2 a.pdm b.pdm, or pdc sharp -n 2 a.pdm -D lr=1e-3 a.pdm -D lr=3e-3",
                  "needs at least two models");
  if (o->models.n > PD_SHARP_MODELS)
    return refuse("use several launches", format("takes at most %d models, not %d", PD_SHARP_MODELS, o->models.n));
  if (p->workers > o->models.n)
    return refuse(format("'-n %d'", o->models.n),
                  format("has %d ranks for %d models; each model uses one rank at a time", p->workers,
                         o->models.n));
  return true;
}

/* ---- names ------------------------------------------------------------------------------------- */

/* Makes a folder name: other characters become '_'. */
static const char *plain(const char *text) {
  char *name = format("%s", text);
  for (char *c = name; *c; c++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.=+", *c))
      *c = '_';
  return *name == '.' || *name == '-' ? format("_%s", name) : name;
}

/* The definition without its owner: "lr=1e-3" of "optimizer.lr=1e-3". */
static const char *without_owner(const char *define) {
  const size_t owner = strcspn(define, ".=");
  return define[owner] == '.' ? define + owner + 1 : define;
}

static bool is_given(const Options *o, const char *name) {
  for (int i = 0; i < o->models.n; i++)
    if (o->models.at[i].name && !strcmp(o->models.at[i].name, name))
      return true;
  return false;
}

/* "gpt", or with the model's own definitions "gpt-lr=1e-3" if short; a second equal name becomes "gpt-2". */
static const char *made_name(const Options *o, const Model *m, const Strings *before) {
  enum { LONGEST = 40 };
  const char *name = plain(base_name(m->input)), *longer = name;
  for (int i = 0; i < m->define.n; i++)
    longer = format("%s-%s", longer, without_owner(m->define.at[i]));
  longer = plain(longer);
  if (strlen(longer) <= LONGEST)
    name = longer;
  const char *free_name = name;
  for (int n = 2; made_has(before, free_name) || is_given(o, free_name); n++)
    free_name = format("%s-%d", name, n);
  return free_name;
}

/* Checks --name, which becomes a folder. */
static bool check_name(const char *name, const Strings *before) {
  const char *what = !*name                      ? "is empty"
                     : strlen(name) > NAME_MAX   ? "is longer than a file's name may be"
                     : strcmp(plain(name), name) ? "cannot be the name of a folder"
                     : made_has(before, name)    ? "is also the name of another model"
                                                 : NULL;
  if (!what)
    return true;
  help(
      error_at(NO_SPAN, "PD0721", "--name '%s' %s", name, what),
      "a name starts with a letter or digit, followed by letters, digits, '-', '_', '.', '=' and '+'; each model needs another name");
  return false;
}

/* Names all models; false after a diagnostic. */
static bool name_models(const Options *o, Strings *names) {
  for (int i = 0; i < o->models.n; i++) {
    const Model *m = &o->models.at[i];
    if (m->name && !check_name(m->name, names))
      return false;
    push(names, m->name ? m->name : made_name(o, m, names));
  }
  return true;
}

/* ---- models ------------------------------------------------------------------------------------ */

/* The options of one model's build: ranks share the processors, models share the memory. */
static Options options_of(const Options *o, int model, const char *name) {
  Options one = *o;
  const Device *device = backend_of(&o->plan.target)->device;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  one.input = o->models.at[model].input;
  one.output = format("%s/%s", o->output, name);
  one.quiet = true; /* no message per model */
  one.define = (Strings){0};
  add_all(&one.define, o->define.at, (size_t)o->define.n);
  add_all(&one.define, o->models.at[model].define.at, (size_t)o->models.at[model].define.n);
  one.plan.workers = 1;
  if (!one.plan.schedule)
    one.plan.schedule = o->plan.spill ? "spilled" : "sequential";
  if (!one.plan.target.threads)
    one.plan.target.threads = processors > o->plan.workers ? (int)(processors / o->plan.workers) : 1;
  if (!one.plan.memory)
    one.plan.memory = device->memory(o->models.n);
  return one;
}

typedef struct Build {
  Options options;
  pid_t pid;
  FILE *said; /* its output, printed when it ends, so that messages of models do not mix */
} Build;

/* Builds in a separate process, so that no state of the compilation remains. */
static bool start_build(Build *b, BuildModel *build, void *context, ModelBuilt *built) {
  b->said = tmpfile();
  fflush(NULL);
  b->pid = b->said ? fork() : -1;
  if (b->pid < 0)
    error_at(NO_SPAN, "PD0606", "cannot build '%s': %s", b->options.input, strerror(errno));
  if (b->pid != 0)
    return b->pid > 0;
  dup2(fileno(b->said), STDOUT_FILENO);
  dup2(fileno(b->said), STDERR_FILENO);
  bool good = build(context, &b->options, built);
  diagnostics_flush();
  fflush(NULL);
  _exit(good && !error_count() ? 0 : 1);
}

static bool finish_build(Build *b) {
  char part[4096];
  int status = 1;
  while (waitpid(b->pid, &status, 0) < 0 && errno == EINTR)
    ;
  rewind(b->said);
  for (size_t n; (n = fread(part, 1, sizeof part, b->said)) > 0;)
    fwrite(part, 1, n, stderr);
  fclose(b->said);
  if (status == 0)
    return true;
  error_at(NO_SPAN, "PD0712", "the build of '%s' failed, and a launch needs all models%s", b->options.output,
           WIFSIGNALED(status) ? format(": signal %d ended the build", WTERMSIG(status)) : "");
  return false;
}

/* Builds models in parallel, limited by compilations and memory. Child processes write the results. NULL after
 * diagnostics. */
static ModelBuilt *build_all(Build *all, int n, BuildModel *build, void *context) {
  const int64_t room = (int64_t)1 << 30, memory = backend_of(&all->options.plan.target)->device->memory(1);
  int at_once = cc_at_once(), started = 0, done = 0;
  ModelBuilt *built =
      mmap(NULL, (size_t)n * sizeof *built, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  bool good = built != MAP_FAILED;
  if (!good)
    error_at(NO_SPAN, "PD0606", "cannot build %d models: %s", n, strerror(errno));
  if (memory / room < at_once)
    at_once = memory < room ? 1 : (int)(memory / room);
  while (good ? done < n : done < started) {
    if (good && started < n && started - done < at_once) {
      good = start_build(&all[started], build, context, &built[started]);
      started += good;
    } else {
      good = finish_build(&all[done++]) && good;
    }
  }
  return good ? built : NULL;
}

/* Resident models must fit together. Of offloaded models, each rank holds the current and the next one. */
static bool fit_together(const Options *o, const ModelBuilt *built) {
  int64_t resident = 0, parts = 0, room = backend_of(&o->plan.target)->device->memory(1);
  for (int i = 0; i < o->models.n; i++)
    if (built[i].parts == 1)
      resident += built[i].bytes;
    else if (built[i].bytes > parts)
      parts = built[i].bytes;
  int64_t all = resident + 2 * parts * o->plan.workers;
  if (all <= room)
    return true;
  Diagnostic *d =
      error_at(NO_SPAN, "PD0713", "the %d models need %.1f GiB together, and this machine has %.1f GiB available",
               o->models.n, (double)all / (1 << 30), (double)room / (1 << 30));
  help(d, "use fewer models, or '--spill DIR --memory SIZE': each model is then resident only during its turn");
  return false;
}

/* ---- the program of the ranks ------------------------------------------------------------------ */

static char *program_text(const Options *o, const Strings *names, const ModelBuilt *built) {
  Text t = {0};
  text_add(
      &t,
      "/* %d models on %d rank%s, which take the next part of any. pdc wrote this; each model's own program is in\n"
      " * the folder of its name, and trains it alone just as well. */\n"
      "#include \"pd_sharp.h\"\n\n"
      "enum { RANKS = %d };\n\n"
      "static const struct pd_sharp_program models[] = {\n",
      o->models.n, o->plan.workers, o->plan.workers == 1 ? "" : "s", o->plan.workers);
  for (int i = 0; i < names->n; i++) {
    const char *parts = built[i].parts > 1 ? format(", in %d parts", built[i].parts) : "";
    text_add(&t, "    {\"%s\", \"%s/stage0\"}, /* %.4g s an update, %.1f MiB%s */\n", names->at[i], names->at[i],
             built[i].seconds, (double)built[i].bytes / (1 << 20), parts);
  }
  text_add(&t, "};\n\n"
               "int main(int argc, char **argv) {\n"
               "  return pd_sharp_run(models, sizeof models / sizeof *models, RANKS, argc, argv);\n"
               "}\n");
  return t.at;
}

static void add_model(const Options *o, int model, const char *name, const ModelBuilt *built, Text *t) {
  const Strings *define = &o->models.at[model].define;
  text_add(t,
           "      {\"name\": \"%s\", \"update_seconds\": %.6g, \"parts\": %d, \"peak_bytes\": %lld, \"define\": [",
           name, built->seconds, built->parts, (long long)built->bytes);
  for (int i = 0; i < define->n; i++) {
    text_add(t, i ? ", " : "");
    json_string(t, define->at[i]);
  }
  text_add(t, "]}");
}

/* Predicted times and planned memory of the models; their own plans are in their folders. */
static char *plan_text(const Options *o, const Strings *names, const ModelBuilt *built) {
  Text t = {0};
  text_add(&t, "{\n  \"sharp\": {\n    \"ranks\": %d,\n    \"models\": [\n", o->plan.workers);
  for (int i = 0; i < names->n; i++) {
    add_model(o, i, names->at[i], &built[i], &t);
    text_add(&t, i + 1 < names->n ? ",\n" : "\n");
  }
  text_add(&t, "    ]\n  }\n}\n");
  return t.at;
}

static bool write_ranks(const Options *o, const Strings *names, const ModelBuilt *built) {
  int ranks = o->plan.workers;
  char *source[] = {program_text(o, names, built)};
  Output out = {.directory = o->output,
                .model = base_name(o->output),
                .launcher = "train",
                .arguments = "--data PATH --steps N",
                .toolchain = toolchain_of(o),
                .n_stages = 1,
                .replicas = &ranks,
                .source = source,
                .plan_json = plan_text(o, names, built)};
  if (!output_write(o, &out))
    return false;
  if (o->sources_only || cc_stages(o, &out))
    return output_install(o, &out);
  output_abandon(&out);
  return false;
}

bool sharp_build(const Options *given, BuildModel *build, void *context) {
  Options o = *given;
  Strings names = {0};
  if (!can_build(&o) || !name_models(&o, &names))
    return false;
  if (!o.output)
    o.output = "sharp.build";
  if (!o.sources_only && !can_compile(&o, toolchain_of(&o))) /* compiles the runtime once, for all models */
    return false;
  if (mkdir(o.output, 0777) != 0 && errno != EEXIST) {
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", o.output, strerror(errno));
    return false;
  }
  Build *all = alloc((size_t)o.models.n * sizeof *all);
  for (int i = 0; i < o.models.n; i++)
    all[i].options = options_of(&o, i, names.at[i]);
  const ModelBuilt *built = build_all(all, o.models.n, build, context);
  return built && fit_together(&o, built) && write_ranks(&o, &names, built);
}
