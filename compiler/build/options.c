/* Reads the command line by the table of options. */
#include "build/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "device/device.h"
#include "schedule/program.h"

#define AT(member) offsetof(Options, member)

static const CommandLine *command; /* named by the first word; NULL: none */

__attribute__((format(printf, 1, 2))) _Noreturn static void usage(const char *format_, ...) {
  va_list args;
  va_start(args, format_);
  fprintf(stderr, "pdc: error: ");
  vfprintf(stderr, format_, args);
  fprintf(stderr, "\nhelp: 'pdc %s%s--help' lists %s\n", command ? command->name : "", command ? " " : "",
          command ? "the options of this command" : "commands and options");
  va_end(args);
  exit(2);
}

static int64_t read_count(const Option *o, const char *text) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (errno || end == text || *end || n < 1 || n > 1000000000)
    usage("%s needs a whole number from 1, not '%s'", o->name, text);
  return n;
}

/* "4", or "4x2": two groups of four. Returns the total number of workers. */
static int read_levels(const Option *o, const char *text, Cluster *cluster) {
  cluster->n = 0;
  int64_t workers = 1;
  for (const char *at = text;; at++) {
    const char *number = at;
    at += strcspn(at, "x");
    if (cluster->n == MOST_LEVELS)
      usage("%s takes at most %d levels, not '%s'", o->name, MOST_LEVELS, text);
    int64_t machines = read_count(o, number == text && !*at ? text : format("%.*s", (int)(at - number), number));
    cluster->level[cluster->n++].count = (int)machines;
    workers *= machines;
    if (workers > 1000000000)
      usage("%s %s: more than 1000000000 ranks", o->name, text);
    if (!*at)
      return (int)workers;
  }
}

/* "8e9", "8 GB/s, 10 Gbit/s": by level. */
static void read_rates(const Option *o, const char *text, Cluster *cluster, int *n) {
  *n = 0;
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ",");
    char *one = format("%.*s", (int)length, at + strspn(at, " ")), *end = strchr(one, ',');
    if (end)
      *end = 0;
    const char *base = "bytes/s";
    double rate = strtod(one, &end);
    bool good = end != one && (!end[strspn(end, " ")] || quantity_read(one, &rate, &base));
    if (!good || strcmp(base, "bytes/s") || !(rate > 0) || !isfinite(rate) || *n == MOST_LEVELS)
      usage("%s needs bytes per second for each level, such as 8e9 or '8 GB/s', not '%s'", o->name, text);
    cluster->level[(*n)++].bandwidth = rate;
    at += length;
    if (!*at)
      return;
  }
}

/* "16GiB", "16 GiB", "800MB", "1000000" */
static int64_t read_bytes(const Option *o, const char *text) {
  char *end;
  const char *base = "bytes";
  double n = strtod(text, &end);
  bool number = end != text;
  bool known = number && (!end[strspn(end, " ")] || quantity_read(text, &n, &base));
  if (known && !strcmp(base, "bytes") && n >= 1 && n < 0x1p60)
    return (int64_t)n;
  usage("%s needs a size such as 16GiB, not '%s'", o->name, text);
}

/* -1: none of the choices. */
static int find_choice(const Option *o, const char *text) {
  int n = 0;
  for (const char *c = o->choices;; n++) {
    size_t length = strcspn(c, "|");
    if (length > 0 && strlen(text) == length && !strncmp(text, c, length))
      return n;
    if (!c[length])
      return -1;
    c += length + 1;
  }
}

static int read_choice(const Option *o, const char *text) {
  const int n = find_choice(o, text);
  if (n < 0)
    usage("%s takes one of %s, not '%s'", o->name, o->choices[0] == '|' ? o->choices + 1 : o->choices, text);
  return n;
}

static void read_recompute(Options *o, const Option *option, const char *text) {
  const int n = find_choice(option, text);
  o->plan.recompute = n < 0 ? RECOMPUTE_OFF : (Recompute)n;
  o->plan.recomputed = n < 0 ? text : NULL;
}

static void set_special(Options *o, const Option *option, const char *value) {
  (void)o;
  if (!strcmp(option->name, "--diagnostics")) {
    if (strcmp(value, "text") && strcmp(value, "json"))
      usage("--diagnostics takes text or json, not '%s'", value);
    diagnostics_json = !strcmp(value, "json");
  } else if (!strcmp(option->name, "-Werror")) {
    diagnostics_werror = true;
  } else if (!strcmp(option->name, "--version")) {
    print_version();
    exit(output_status(0));
  } else {
    if (command)
      help_print_command(command);
    else
      help_print();
    exit(output_status(0));
  }
}

/* Refuses options of another target. */
static void check_target(const Options *o) {
  Diagnostic *d = NULL;
  Target target = o->plan.target;
  const Backend *backend = backend_of(&target);
  const Device *device = backend->device;
  if (!device->has_threads && target.threads) {
    d = error_at(NO_SPAN, "PD0613", "'--threads' is for processors: with '--target %s' each rank has a GPU",
                 backend->name);
    help(d, "leave '--threads' out");
  } else if (!(device->precisions & 1u << target.precision)) {
    d = error_at(NO_SPAN, "PD0613", "'--precision %s' is for GPUs; processors compute in f32 or bf16",
                 precision_name(target.precision));
    help(d, "'--target cuda'");
  } else if (target.residual != RESIDUAL_F32 && target.precision != PRECISION_BF16) {
    d = error_at(NO_SPAN, "PD0613",
                 "'--residual %s' needs '--precision bf16': with '--precision %s' the residual stream is f32",
                 residual_name(target.residual), precision_name(target.precision));
    help(d, "'--precision bf16'");
  } else if (!device->has_arch && o->arch) {
    d = error_at(NO_SPAN, "PD0613", "'--arch' is for GPUs, and the target is processors");
    help(d, "use '--target cuda', or '--march' for other processors");
  } else if (device->has_arch && o->march) {
    d = error_at(NO_SPAN, "PD0613", "'--march' is for processors, and '--target %s' is for GPUs", backend->name);
    help(d, "'--arch'");
  }
}

static const Backend *read_target(const Option *o, const char *text) {
  const Backend *found = backend_find(text);
  if (!found)
    usage("%s takes one of %s, not '%s'", o->name, cli_targets(), text);
  return found;
}

/* Reads the devices to plan for; invalid ones give diagnostics. */
static void read_cluster(Options *o) {
  const Cluster *c = o->cluster ? cluster_read(o->cluster) : NULL;
  if (!c)
    return;
  o->plan.cluster = o->layers.cluster = c;
  for (int i = 0; i < c->n_kinds && o->command == COMMAND_BUILD && o->emit == EMIT_NOTHING; i++)
    if (c->kind[i].arch && c->kind[i].arch < 80) {
      Diagnostic *d =
          warning_at(NO_SPAN, "PD0538", "programs need GPUs of sm_80 or newer, and '%s' of cluster '%s' is sm_%d",
                     c->kind[i].name, c->name, c->kind[i].arch);
      help(d, "'pdc plan' can plan for these GPUs");
    }
}

/* "sm_90", "sm_90a" */
static const char *read_arch(const Option *o, const char *text) {
  size_t digits = strncmp(text, "sm_", 3) ? 0 : strspn(text + 3, "0123456789");
  const char *rest = text + 3 + digits;
  if (digits < 2 || digits > 3 || (*rest && (rest[1] || (*rest != 'a' && *rest != 'f'))))
    usage("%s needs an architecture such as sm_90, not '%s'", o->name, text);
  if (strtol(text + 3, NULL, 10) < 80)
    usage("%s needs sm_80 or newer, not '%s': kernels use instructions of sm_80", o->name, text);
  return text;
}

/* A number of --lora from `least` up. */
static double read_setting(const Option *o, const char *name, const char *text, double least, double below) {
  char *end;
  const double x = strtod(text, &end);
  if (end == text || *end || !(x >= least && x < below))
    usage("%s: '%s' must be %s%g and below %g, not '%s'", o->name, name, least > 0 ? "at least " : "from ", least,
          below, text);
  return x;
}

/* n bytes without blanks around them. */
static const char *without_blanks(const char *text, size_t n) {
  while (n && (*text == ' ' || *text == '\t'))
    text++, n--;
  while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
    n--;
  return format("%.*s", (int)n, text);
}

static void set_lora(const Option *o, Lora *l, const char *name, const char *value) {
  enum { MOST = 1000000 };
  if (!strcmp(name, "r")) {
    l->r = (int64_t)read_setting(o, name, value, 1, MOST);
    if (strspn(value, "0123456789") != strlen(value))
      usage("%s: 'r' must be a whole number, not '%s'", o->name, value);
  } else if (!strcmp(name, "alpha"))
    l->alpha = read_setting(o, name, value, 1e-6, 1e6);
  else if (!strcmp(name, "dropout"))
    l->dropout = read_setting(o, name, value, 0, 1);
  else if (!strcmp(name, "targets"))
    l->targets = value;
  else if (!strcmp(name, "modules_to_save"))
    l->whole = value;
  else
    usage("%s has no setting '%s'; it has r, alpha, dropout, targets and modules_to_save", o->name, name);
}

/* "r=8, alpha=16, dropout=0.1, targets=q_proj|v_proj" */
static Lora *read_lora(const Option *o, const char *text) {
  Lora *l = alloc(sizeof *l);
  Vec(const char *) given = {0};
  for (size_t n; *text; text += n + (text[n] == ',')) {
    n = strcspn(text, ",");
    const char *setting = without_blanks(text, n), *equals = strchr(setting, '=');
    const char *name = without_blanks(setting, strcspn(setting, "="));
    const char *value = equals ? without_blanks(equals + 1, strlen(equals + 1)) : "";
    if (!equals && *setting && l->targets && !strcmp(given.at[given.n - 1], "targets"))
      usage("%s takes NAME=VALUE,.., not '%s'; separate targets by '|': targets=\"%s|%s\"", o->name, setting,
            l->targets, setting);
    if (!*value)
      usage("%s takes NAME=VALUE,.., not '%s'", o->name, setting);
    for (int i = 0; i < given.n; i++)
      if (!strcmp(given.at[i], name))
        usage("%s has '%s' twice", o->name, name);
    push(&given, name);
    set_lora(o, l, name, value);
  }
  if (!l->r || !l->targets)
    usage("%s needs r and targets, such as r=8,targets=\"q_proj|v_proj\"", o->name);
  if (l->alpha == 0)
    l->alpha = (double)l->r;
  return l;
}

static void set_option(Options *o, const Option *option, const char *value) {
  void *to = (char *)o + option->at;
  switch (option->kind) {
  case FLAG: *(bool *)to = true; break;
  case TEXT: *(const char **)to = value; break;
  case ARCH: *(const char **)to = read_arch(option, value); break;
  case LIST: push((Strings *)to, value); break;
  case COUNT:
    if (option->at == AT(plan.microbatch) || option->at == AT(layers.microbatches) || option->at == AT(samples) ||
        option->at == AT(tokens.shard) || option->at == AT(tokens.length))
      *(int64_t *)to = read_count(option, value);
    else
      *(int *)to = (int)read_count(option, value);
    break;
  case DEGREE: *(int *)to = strcmp(value, "auto") ? (int)read_count(option, value) : TENSOR_AUTO; break;
  case LEVELS: *(int *)to = read_levels(option, value, &o->layers.levels); break;
  case RATES: read_rates(option, value, to, &o->layers.n_bandwidths); break;
  case BYTES: *(int64_t *)to = read_bytes(option, value); break;
  case CHOICE: *(int *)to = read_choice(option, value); break;
  case CHOICE_OR_LAYERS: read_recompute(o, option, value); break;
  case TARGET: *(const Backend **)to = read_target(option, value); break;
  case LORA: *(Lora **)to = read_lora(option, value); break;
  case SPECIAL: set_special(o, option, value); break;
  }
}

/* Whether the argument is this option; sets its value if included: "--name=value", "-n4". */
static bool is_option(const Option *o, const char *argument, const char **value) {
  size_t n = strlen(o->name);
  *value = NULL;
  if (!strcmp(argument, o->name))
    return true;
  bool longer = o->argument && !strncmp(argument, o->name, n);
  if (longer && n > 2 && argument[n] == '=')
    *value = argument + n + 1;
  else if (longer && n == 2 && argument[1] != '-')
    *value = argument + n;
  return *value != NULL;
}

/* The option of an argument; among rows of one name, the command's own. NULL: no option. */
static const Option *find_option(const char *argument, const char **value) {
  int n;
  const Option *options = cli_options(&n), *found = NULL;
  const unsigned on = command ? cli_bit(command) : ON_BUILD;
  for (int i = 0; i < n; i++)
    if (is_option(&options[i], argument, value) && (!found || options[i].on & on))
      found = &options[i];
  if (found)
    is_option(found, argument, value);
  return found;
}

_Noreturn static void unknown_option(const char *argument) {
  int n;
  const Option *options = cli_options(&n);
  const char **names = alloc((size_t)n * sizeof *names);
  for (int i = 0; i < n; i++)
    names[i] = options[i].name;
  const char *near = nearest(argument, names, n);
  usage(near ? "unknown option '%s'; did you mean '%s'?" : "unknown option '%s'", argument, near);
}

/* All rows of a step are one microbatch (decode/decode.h). */
static void check_generate(Options *o) {
  enum { BLOCK = 64 }; /* positions: a product of 64 rows takes about 5 times that of one */
  if (!o->generate && (o->samples || o->block || o->no_cache))
    usage("%s is for --generate", o->samples ? "--samples" : o->block ? "--block" : "--no-cache");
  if (!o->generate)
    return;
  if (o->infer)
    usage("--infer and --generate exclude each other");
  if (o->plan.microbatch)
    usage("--generate takes --samples, not --microbatch");
  if (o->plan.replicas)
    usage("--generate has no replicas; --samples N generates N sequences at the same time");
  if (o->block && o->no_cache)
    usage("--block and --no-cache exclude each other: without caches a step computes all positions");
  if (!o->samples)
    o->samples = 1;
  if (!o->block)
    o->block = BLOCK;
}

/* Functions of a library take any number of samples: by default they compute one at a time. */
static void check_library(Options *o) {
  if (!o->library)
    return;
  if (strcmp(o->plan.target.backend ? backend_of(&o->plan.target)->name : "c", "c"))
    usage("pdc library has --target c only");
  o->infer = !o->generate;
  o->plan.workers = 1;
  if (!o->plan.microbatch && o->infer)
    o->plan.microbatch = 1;
}

static void check_sharding(const Options *o) {
  if (o->plan.shard_optimizer && o->plan.whole_optimizer)
    usage("--shard-optimizer and --no-shard-optimizer exclude each other");
}

/* The page shows a whole plan, with the table of --compare. */
static void check_report(const Options *o) {
  if (!o->report)
    return;
  if (o->compare)
    usage("--report already shows the table of --compare; leave one of them out");
  if (o->emit != EMIT_NOTHING || o->stop_after)
    usage("--report needs a whole plan; leave %s out", o->stop_after ? "--stop-after" : "--emit");
}

static void check_table(const Options *o) {
  if (o->table && o->sources_only)
    usage("--table prints measured times, and -S measures nothing; leave -S out");
  if (o->measured && o->sources_only)
    usage("-S and --measured exclude each other: -S writes the program, --measured reads its output");
}

static bool is_among(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(name, names[i]))
      return true;
  return false;
}

/* `pdc show` makes a plan if an option of the pipeline, of memory or of a cluster is given. */
static void check_show(Options *o, const bool *given) {
  static const char *const of_devices[] = {"--threads", "--cluster"};
  int n;
  const Option *options = cli_options(&n);
  for (int i = 0; i < n && o->command == COMMAND_SHOW; i++)
    o->planned |= given[i] && (options[i].group == GROUP_PIPELINE ||
                               (options[i].group == GROUP_MEMORY && strcmp(options[i].name, "--spill")) ||
                               is_among(options[i].name, of_devices, sizeof of_devices / sizeof *of_devices));
}

/* Every option that is given must have an effect on the command. */
static void check_owners(const CommandLine *c, const bool *given) {
  int n;
  const Option *options = cli_options(&n);
  for (int i = 0; i < n; i++)
    if (given[i] && !cli_accepts(&options[i], cli_bit(c)))
      usage("%s is for %s, not for 'pdc %s'", options[i].name, cli_owners(&options[i]), c->name);
}

/* A layer profile is planned by its own options and by some options of models; PipeDream's planner reads few of
 * those. */
static void check_layers(const Options *o, const bool *given) {
  static const char *const without_model[] = {"--profile", "--emit",        "-n",
                                              "--cluster", "--diagnostics", "-Werror"};
  static const char *const of_planner[] = {"--schedule", "--stages", "--replicas",     "--split",
                                           "--memory",   "--delay",  "--recompute",    "--ahead",
                                           "--target",   "--arch",   "--microbatches", "--compare"};
  const bool model = o->input != NULL, pipedream = o->layers.model == MODEL_PIPEDREAM;
  int n;
  const Option *options = cli_options(&n);
#define AMONG(name, list) is_among(name, list, sizeof(list) / sizeof *(list))
  for (int i = 0; i < n; i++) {
    const char *name = options[i].name;
    bool layers = options[i].group == GROUP_LAYERS, planner = AMONG(name, of_planner);
    if (given[i] && model && layers)
      usage("%s is for 'pdc plan --profile' of layers, without a model", name);
    if (given[i] && !model && !layers && !planner && !AMONG(name, without_model))
      usage("%s needs a model; 'pdc plan --profile' without a model reads a layer profile", name);
    if (given[i] && !model && planner && pipedream)
      usage("%s is not for '--cost-model pipedream': PipeDream's planner has no such choice", name);
  }
#undef AMONG
  if (model && o->layers.levels.n > 1)
    usage("-n by level is for 'pdc plan --profile' of layers, without a model");
  if (!model && o->emit != EMIT_NOTHING && o->emit != EMIT_PLAN)
    usage("--emit of a layer profile takes plan only");
}

/* A first word that is not a file is probably a misspelt command. */
static void check_command(const Options *o) {
  const char *word = o->models.n > 1 ? o->models.at[0].input : "";
  int n;
  const CommandLine *commands = cli_commands(&n);
  if (!*word || strpbrk(word, "./") || access(word, F_OK) == 0)
    return;
  const char **names = alloc((size_t)n * sizeof *names);
  for (int i = 0; i < n; i++)
    names[i] = commands[i].name;
  if (cli_command(word))
    usage("the command comes first: 'pdc %s ...'", word);
  const char *near = nearest(word, names, n);
  usage(near ? "there is no command '%s'; did you mean '%s'?" : "there is no command '%s'", word, near);
}

/* Without --sharp there is one model, and every -D is for this model. */
static void check_models(Options *o) {
  check_command(o);
  if (o->sharp && (o->emit != EMIT_NOTHING || o->stop_after || o->syntax_only || o->dry_run || o->dependencies))
    usage("--sharp builds all of several models; leave --emit, --stop-after, -fsyntax-only, -MD and -### out");
  if (o->library && o->models.n == 1 && o->models.at[0].name)
    o->name = o->models.at[0].name;
  if (o->name && !o->library)
    usage("--name %s stands before the first model; write it behind the model that it names", o->name);
  for (int i = 0; i < o->models.n && !o->sharp && !o->library; i++)
    if (o->models.at[i].name)
      usage("--name is for '--sharp', where models have names");
  if (o->sharp || !o->models.n)
    return;
  if (o->models.n > 1)
    usage("two models: '%s' and '%s'; 'pdc sharp' trains several models", o->models.at[0].input,
          o->models.at[1].input);
  add_all(&o->define, o->models.at[0].define.at, (size_t)o->models.at[0].define.n);
}

/* ---- arguments -------------------------------------------------------------------------------------- */

/* Whether the command takes several names, instead of one model, code or directory. */
static bool takes_words(Command c) {
  return c == COMMAND_FORMAT || c == COMMAND_TOKENIZE || c == COMMAND_MERGE || c == COMMAND_COMPLETION ||
         c == COMMAND_HELP;
}

/* Whether a word of `data` is a model: a .pdm file, or a folder of Hugging Face. Other words are files of data. */
static bool is_model(const char *word) {
  const size_t n = strlen(word);
  return (n > 4 && !strcmp(word + n - 4, ".pdm")) || access(format("%s/config.json", word), F_OK) == 0;
}

static void read_word(Options *o, const char *word) {
  if (takes_words(o->command) || (o->command == COMMAND_DATA && !is_model(word))) {
    push(&o->files, word);
    return;
  }
  if (o->input && command && o->command != COMMAND_BUILD)
    usage("pdc %s takes one argument, not two: '%s' and '%s'", command->name, o->input, word);
  o->input = word;
  push(&o->models, ((Model){.input = word}));
}

/* Reads an option, whose value may be the next argument; returns the index of the last argument read. */
static int read_option(Options *o, int argc, char **argv, int i, bool *given) {
  const char *value;
  const Option *option = find_option(argv[i], &value);
  if (!option)
    unknown_option(argv[i]);
  if (option->argument && !value) {
    if (i + 1 >= argc)
      usage("%s needs an argument: %s", option->name, cli_argument(option));
    value = argv[++i];
  }
  Model *model = o->models.n ? &o->models.at[o->models.n - 1] : NULL;
  if (option->at == AT(define) && model)
    push(&model->define, value);
  else if (option->at == AT(name) && model)
    model->name = value;
  else
    set_option(o, option, value);
  int n;
  given[option - cli_options(&n)] = true;
  return i;
}

/* The command whose options apply: --infer, --generate and --sharp count as commands. */
static const CommandLine *command_meant(const Options *o) {
  if (command && o->command != COMMAND_BUILD)
    return command;
  return cli_command(o->sharp      ? "sharp"
                     : o->library  ? "library"
                     : o->infer    ? "infer"
                     : o->generate ? "generate"
                                   : "build");
}

static void check_words(const Options *o) {
  const char *word = o->files.n ? o->files.at[0] : NULL;
  if (o->command == COMMAND_HELP && o->files.n > 1)
    usage("pdc help takes one command or topic, not '%s' and '%s'", word, o->files.at[1]);
  if (o->command == COMMAND_HELP && word && !cli_command(word) && !cli_topic(word))
    usage("there is no help about '%s': it is neither a command nor a topic", word);
  if (o->command != COMMAND_COMPLETION)
    return;
  if (!word || !is_completion(word))
    usage("pdc completion needs bash, zsh, fish, markdown or man%s", word ? format(", not '%s'", word) : "");
  if (o->files.n > (strcmp(word, "man") ? 1 : 2))
    usage("pdc completion %s takes no '%s'", word, o->files.at[o->files.n - 1]);
  if (o->files.n == 2 && !cli_command(o->files.at[1]))
    usage("pdc completion man: there is no command '%s'", o->files.at[1]);
}

/* pdc tokenize: options of samples need their length. */
static void check_samples(const Options *o) {
  const TokenizeRequest *t = &o->tokens;
  const char *needs = t->template   ? "--chat-template"
                      : t->loss_on  ? "--loss-on"
                      : t->too_long ? "--too-long"
                      : t->pack     ? "--pack"
                      : t->labels   ? "--labels"
                                    : NULL;
  if (!o->output)
    usage("tokenize needs -o FILE");
  if (needs && !t->length)
    usage("%s needs --length N, the positions of a sample", needs);
  if (t->labels && (t->template || t->loss_on || t->pack))
    usage("--labels is for texts: --chat-template, --loss-on and --pack are for chats");
  if (t->resume && !t->shard)
    usage("--resume needs --shard N: it continues after the complete files of an earlier call");
  if (t->length && t->shard)
    usage("--shard is for files of tokens, not for the samples of --length");
}

/* Checks the model, directory or name that the command works on. */
static void check_input(const Options *o) {
  if (o->input && (o->command == COMMAND_DOCTOR || o->command == COMMAND_LSP))
    usage("pdc %s takes no file: '%s'", command->name, o->input);
  if (o->command == COMMAND_DATA && !o->input && (o->define.n || o->include.n))
    usage("-D and -I need a model: pdc data --show FILE -D NAME=VALUE MODEL");
  if (o->first_line && (o->shown_data || o->input))
    usage("--first-line takes a file alone");
  if (o->data_page && o->files.n)
    usage("--html makes a page of one file: --show takes '%s', too", o->files.at[0]);
  if (o->command == COMMAND_DATA && !o->shown_data && !o->first_line)
    usage("data needs --show FILE%s", o->input     ? format(" beside the model '%s'", o->input)
                                      : o->files.n ? format(" before '%s'", o->files.at[0])
                                                   : "");
  if (o->command == COMMAND_DATA)
    return;
  if (o->input || o->command == COMMAND_DOCTOR || o->command == COMMAND_LSP || takes_words(o->command)) {
    if (o->command == COMMAND_FORMAT && !o->files.n)
      usage("fmt needs files, or '-' for standard input");
    if (o->command == COMMAND_TOKENIZE && !o->files.n)
      usage("tokenize needs texts: files of text, or .jsonl files");
    if (o->command == COMMAND_TOKENIZE)
      check_samples(o);
    if (o->command == COMMAND_EXPORT && (!o->gguf || !o->output))
      usage("export needs %s", o->gguf ? "-o FILE" : "a format: --gguf");
    if (o->command == COMMAND_MERGE && (o->files.n != 2 || !o->output))
      usage("merge needs -o OUT_DIR, a folder and the folder of its adapters");
    return;
  }
  if (o->command == COMMAND_PLAN && o->plan.profile)
    return;
  usage(o->command == COMMAND_EXPLAIN      ? "explain needs a code such as PD0301, or a layer such as linear"
        : o->command == COMMAND_REPORT     ? "report needs the directory of a run"
        : o->command == COMMAND_IMPORT     ? "import needs a folder with config.json"
        : o->command == COMMAND_EXPORT     ? "export needs a folder with config.json and weights"
        : o->command == COMMAND_CHECKPOINT ? "checkpoint needs the directory of `train --checkpoint`"
                                           : "no model given");
}

void options_read(Options *o, int argc, char **argv) {
  *o = (Options){.plan.recompute = RECOMPUTE_AUTO};
  command = argc > 1 ? cli_command(argv[1]) : NULL;
  if (command)
    o->command = command->command;
  if (command && command->mode)
    *(bool *)((char *)o + command->mode) = true;
  int n;
  cli_options(&n);
  bool only_files = false, *given = alloc((size_t)n * sizeof *given);
  for (int i = command ? 2 : 1; i < argc; i++)
    if (only_files || argv[i][0] != '-' || !argv[i][1])
      read_word(o, argv[i]);
    else if (!strcmp(argv[i], "--"))
      only_files = true;
    else
      i = read_option(o, argc, argv, i, given);
  check_generate(o);
  check_library(o);
  check_models(o);
  check_owners(command_meant(o), given);
  check_words(o);
  check_input(o);
  if (o->input || o->command == COMMAND_PLAN)
    check_layers(o, given);
  o->layers.compare = o->compare;
  if (o->dependent && !o->dependencies)
    usage("-MT needs -MD");
  check_target(o);
  check_report(o);
  check_sharding(o);
  check_table(o);
  check_show(o, given);
  read_cluster(o);
}
