/* The command line of several models; most options are for the models. */
#include "sharp/sharp_options.h"
#include "run/run.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* Allocates without the runtime's tables of a stage. */
static void *allocate(size_t bytes) {
  void *p = calloc(1, bytes);
  if (p) return p;
  fprintf(stderr, "pd: out of memory\n");
  exit(1);
}

void pd_sharp_usage(const struct pd_sharp_program *models, int n, int ranks) {
  printf("usage: mpirun -n %d train [options] [--for MODEL options]...\n"
         "Train %d models on %d rank%s, which take turns among the models: ",
         ranks, n, ranks, ranks == 1 ? "" : "s");
  for (int i = 0; i < n; i++) printf("%s%s", i ? ", " : "", models[i].name);
  printf("\n\nOptions of the launch:\n"
         "  --for MODEL          apply the following options to this model only; * and ? are wildcards\n"
         "  --run DIR            directory for timeline and plan, and for each model's log, trace and plan\n"
         "  --timeline FILE      Chrome trace of the model on each rank over time\n"
         "  --slice SECONDS      shortest time that a model keeps its rank, in seconds (default 0.1)\n"
         "  --timeout SECONDS    longest wait for a rank, in seconds; also for the models (default 300)\n"
         "  --quiet              print warnings and errors only, no progress and no notes\n"
         "  --help               print this help\n\n"
         "All other options apply to the models: see '%s --help'. {model} in an option stands for the\n"
         "model's name. Models need different output files, such as '--log {model}.jsonl'.\n",
         models[0].program);
}

/* ---- one model's arguments --------------------------------------------------------------------- */

/* The text with each {model} replaced by the model's name. */
static char *fill_in(const char *text, const char *name) {
  static const char mark[] = "{model}";
  int marks = 0;
  for (const char *at = text; (at = strstr(at, mark)); at += sizeof mark - 1) marks++;
  char *whole = allocate(strlen(text) + (size_t)marks * strlen(name) + 1), *to = whole;
  for (const char *found; (found = strstr(text, mark)); text = found + sizeof mark - 1)
    to += sprintf(to, "%.*s%s", (int)(found - text), text, name);
  strcpy(to, text);
  return whole;
}

static char *join(const char *folder, const char *name) {
  char *path = allocate(strlen(folder) + strlen(name) + 2);
  sprintf(path, "%s/%s", folder, name);
  return path;
}

static char **arguments_of(const struct pd_sharp_program *model, const char *run, int argc, char **argv) {
  char **all = allocate(sizeof *all * (size_t)(argc + 4));
  int n = 0;
  bool own = true;
  all[n++] = fill_in(model->program, model->name);
  if (run) {
    all[n++] = fill_in("--run", "");
    all[n++] = join(run, model->name);
  }
  for (int i = 0; i < argc; i++)
    if (!strcmp(argv[i], "--for"))
      own = !fnmatch(argv[++i], model->name, 0);
    else if (own)
      all[n++] = fill_in(argv[i], model->name);
  return all;
}

/* The final value of an option; NULL: none. */
static const char *value_of(char **arguments, const char *option) {
  const char *value = NULL;
  size_t n = strlen(option);
  for (; *arguments; arguments++)
    if (!strcmp(*arguments, option))
      value = arguments[1];
    else if (!strncmp(*arguments, option, n) && (*arguments)[n] == '=')
      value = *arguments + n + 1;
  return value;
}

static bool check_outputs(const struct pd_sharp_program *models, int n, char ***arguments, char *why) {
  static const char *const outputs[] = {"--log",        "--save",        "--save-raw",
                                        "--checkpoint", "--tensorboard", "--trace"};
  for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
    for (int i = 0; i < n; i++)
      for (int j = 0; j < i; j++) {
        const char *a = value_of(arguments[i], outputs[o]), *b = value_of(arguments[j], outputs[o]);
        if (a && b && !strcmp(a, b) && strncmp(a, "/dev/", 5))
          return pd_refuse(
              why,
              "%s '%s' is the same path for '%s' and '%s'. help: use {model}, which stands for the model's name",
              outputs[o], a, models[j].name, models[i].name);
      }
  return true;
}

/* ---- the launch's own -------------------------------------------------------------------------- */

static bool read_seconds(const char *option, const char *text, double least, double *to, char *why) {
  char *end;
  double seconds = text ? strtod(text, &end) : -1;
  if (!text || end == text || *end || !(seconds >= least && seconds < 1e9))
    return pd_refuse(why, "%s needs a number of seconds, not '%s'", option, text ? text : "");
  *to = seconds;
  return true;
}

static bool read_path(const char *option, const char *path, const char **to, char *why) {
  if (!path || !*path || strstr(path, "{model}"))
    return pd_refuse(why, "%s needs one path for the launch, not '%s'", option, path ? path : "");
  *to = path;
  return true;
}

static bool meets_a_model(const struct pd_sharp_program *models, int n, const char *pattern) {
  for (int i = 0; i < n; i++)
    if (!fnmatch(pattern, models[i].name, 0)) return true;
  return false;
}

/* Parses the option argv[*i] if it belongs to the launch, which sets *taken. */
static bool take(struct pd_sharp_options *o, int argc, char **argv, int *i, bool *taken, char *why) {
  const char *a = argv[*i];
  *taken = true;
  if (!strcmp(a, "--slice")) return read_seconds(a, ++*i < argc ? argv[*i] : NULL, 0, &o->slice, why);
  if (!strcmp(a, "--timeline")) return read_path(a, ++*i < argc ? argv[*i] : NULL, &o->timeline, why);
  if (!strcmp(a, "--run")) return read_path(a, ++*i < argc ? argv[*i] : NULL, &o->run, why);
  *taken = false; /* these options are also for the models */
  if (!strcmp(a, "--timeout")) return read_seconds(a, *i + 1 < argc ? argv[*i + 1] : NULL, 1e-3, &o->timeout, why);
  o->quiet |= !strcmp(a, "--quiet");
  o->help |= !strcmp(a, "--help") || !strcmp(a, "-h");
  return true;
}

bool pd_sharp_parse(struct pd_sharp_options *o, const struct pd_sharp_program *models, int n, int argc,
                    char **argv, char ***arguments, char *why) {
  char **rest = allocate(sizeof *rest * (size_t)(argc + 1));
  int n_rest = 0;
  *o = (struct pd_sharp_options){.slice = 0.1, .timeout = 300};
  for (int i = 1; i < argc; i++) {
    bool taken;
    if (!take(o, argc, argv, &i, &taken, why)) return false;
    if (taken) continue;
    rest[n_rest++] = argv[i];
    if (strcmp(argv[i], "--for")) continue;
    if (i + 1 >= argc) return pd_refuse(why, "--for needs a model's name");
    if (!meets_a_model(models, n, argv[++i])) return pd_refuse(why, "--for '%s': no model has this name", argv[i]);
    rest[n_rest++] = argv[i];
  }
  if (o->run && !o->timeline) o->timeline = join(o->run, "timeline.json");
  for (int i = 0; i < n; i++) arguments[i] = arguments_of(&models[i], o->run, n_rest, rest);
  return check_outputs(models, n, arguments, why);
}
