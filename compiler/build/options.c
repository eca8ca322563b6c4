/* The command line: a table of options. */
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
static const Option options[] = {
    {"-o", "DIR", TEXT, AT(output), NULL,
     "output directory (default NAME.build, .infer, .generate); profile, report, plan --report: the file"},
    {"-n", "N", LEVELS, AT(plan.workers), NULL,
     "workers (ranks) to use; of a profile of layers also 4x2: by level"},
    {"-D", "name=value", LIST, AT(define), NULL,
     "override an attribute of the model, a setting of its training or an argument of its optimizer"},
    {"-I", "DIR", LIST, AT(include), NULL, "where `use` looks"},
    {"--sharp", NULL, FLAG, AT(sharp), NULL,
     "several models, each with the -D behind it, in one launch whose -n N ranks take the next part of any"},
    {"--name", "NAME", TEXT, AT(name), NULL,
     "--sharp: name of the model before it (default: its file's name and its own -D)"},
    {"--infer", NULL, FLAG, AT(infer), NULL,
     "programs that run the model and do not train it: forward passes alone"},
    {"--generate", NULL, FLAG, AT(generate), NULL, "programs that continue texts or other sequences of tokens"},
    {"--samples", "B", COUNT, AT(samples), NULL, "--generate: so many continuations at once (default 1)"},
    {"--no-cache", NULL, FLAG, AT(no_cache), NULL, "--generate: all positions anew for every token"},
    {"--target", "TARGET", TARGET, AT(plan.target.backend), NULL,
     "what programs are made for: processors or GPUs"},
    {"--arch", "ARCH", ARCH, AT(arch), NULL, "of the GPUs, as sm_90 (default: this machine's)"},
    {"--march", "NAME", TEXT, AT(march), NULL,
     "processors to make programs for, as x86-64-v3 (default: this machine's)"},
    {"--precision", "HOW", CHOICE, AT(plan.target.precision), "f32|tf32|bf16",
     "of products: f32, bf16, or on GPUs tf32"},
    {"--residual", "HOW", CHOICE, AT(plan.target.residual), "f32|bf16",
     "--precision bf16: sums of blocks and their gradients in f32, as autocast has them, or in bf16"},
    {"--schedule", "NAME", TEXT, AT(plan.schedule), NULL,
     "instead of the model's `pipeline`; the names stand below"},
    {"--delay", "0|1", CHOICE, AT(plan.delay), "|0|1",
     "--schedule auto: weights are at most so many updates old (default 1)"},
    {"--depth", "N", COUNT, AT(depth), NULL, "show: instances nested so deep (default 2, in pictures 1)"},
    {"--svg", "FILE", TEXT, AT(svg), NULL, "show: the graph as a picture, stages in colours"},
    {"--dot", "FILE", TEXT, AT(dot), NULL, "show: the graph for Graphviz"},
    {"--check", NULL, FLAG, AT(check), NULL, "fmt: say which files are not in the style, and change none"},
    {"--compare", NULL, FLAG, AT(compare), NULL, "plan: a table of all schedules' best plans"},
    {"--table", NULL, FLAG, AT(table), NULL, "profile: print kernels' times beside what the machine allows"},
    {"--measured", "FILE", TEXT, AT(measured), NULL,
     "profile: output of the program that -S wrote, run on another machine"},
    {"--report", NULL, FLAG, AT(report), NULL, "plan: also a page about it, NAME.plan.html"},
    {"--stages", "S", COUNT, AT(plan.stages), NULL, "this many stages"},
    {"--replicas", "R[,R...]", TEXT, AT(plan.replicas), NULL, "ranks of each stage; one number: of all"},
    {"--split", "PLACES", TEXT, AT(plan.split), NULL, "stages 1.. start here: \"h[3],h[6].ln_2,ln_f\""},
    {"--microbatch", "B", COUNT, AT(plan.microbatch), NULL, "samples a microbatch"},
    {"--microbatches", "M", COUNT, AT(layers.microbatches), NULL, "of a profile of layers: so many make a batch"},
    {"--recompute", "MODE", CHOICE, AT(plan.recompute), "off|on|auto",
     "on, off or auto: rerun forward in backward"},
    {"--shard-optimizer", NULL, FLAG, AT(plan.shard_optimizer), NULL,
     "replicas keep and update a part of the optimizer's state each (else where memory asks for it)"},
    {"--bucket", "SIZE", BYTES, AT(plan.bucket), NULL,
     "gradients that replicas exchange at once, beside the rest of backward (default: 2MiB for each replica)"},
    {"--tensor", "N", DEGREE, AT(plan.tensor), NULL,
     "so many ranks share each layer: heads, hidden units; auto: as many of -n's as is fastest"},
    {"--sharding", "FILE", TEXT, AT(plan.sharding), NULL,
     "--tensor: what parameters are split along, as '--emit sharding' prints it"},
    {"--ahead", "1|2", CHOICE, AT(plan.ahead), "|1|2", "2: one microbatch more in flight between stages"},
    {"--threads", "N", COUNT, AT(plan.target.threads), NULL, "threads a rank (default: processors over ranks)"},
    {"--cluster", "CLUSTER", TEXT, AT(cluster), NULL,
     "devices and links to plan for: a name as dgx_a100, FILE or FILE:NAME"},
    {"--spill", "DIR", TEXT, AT(plan.spill), NULL,
     "--schedule spilled: where parts are that are not in memory; a program's own comes first; profile: measured"},
    {"--update", "WHERE", CHOICE, AT(plan.update), "|host|device",
     "--schedule spilled on GPUs: host, where parameters are at home, or device; else as is faster"},
    {"--memory", "SIZE", BYTES, AT(plan.memory), NULL,
     "of a rank's process, as 16GiB (default: its share of the machine's; of a GPU nearly all)"},
    {"--profile", "FILE", TEXT, AT(plan.profile), NULL,
     "measured costs, from pdc profile; without a model: of layers"},
    {"--cost-model", "NAME", CHOICE, AT(layers.model), "|pipedream",
     "plan --profile without a model: pipedream, by its planner"},
    {"--bandwidth", "B[,B...]", RATES, AT(layers.levels), NULL,
     "bytes/s or 8 GB/s, between machines, then between groups of them"},
    {"--transfers", NULL, FLAG, AT(layers.transfers), NULL, "a stage also takes as long as what crosses its cuts"},
    {"--device", "NAME", TEXT, AT(layers.device), NULL, "of those that a profile of layers has times of"},
    {"--plan", "FILE", TEXT, AT(plan.plan), NULL, "use this (edited) plan"},
    {"--emit", "WHAT", CHOICE, AT(emit), "|ast|graph|sharding|kernels|plan|schedule|schedule.svg|source",
     "print ast, graph, sharding, kernels, plan, schedule or source, and stop"},
    {"-S", NULL, FLAG, AT(sources_only), NULL, "stop after writing sources"},
    {"-d", "LETTERS", TEXT, AT(dump), NULL, "dump after these passes (--help lists them) to stderr"},
    {"--stop-after", "PASS", TEXT, AT(stop_after), NULL, "stop after this pass"},
    {"--time-passes", NULL, FLAG, AT(time_passes), NULL, "how long each pass took"},
    {"--verify-each", NULL, FLAG, AT(verify_each), NULL, "check every structure after the pass that makes it"},
    {"--cc", "CMD", TEXT, AT(cc), NULL, "compiler (default: the one pdc was built with; nvcc)"},
    {"--mpicc", "CMD", TEXT, AT(mpicc), NULL, "MPI's compiler wrapper (default: the one pdc was built with)"},
    {"--quiet", NULL, FLAG, AT(quiet), NULL, "do not print where the programs are"},
    {"-v", NULL, FLAG, AT(verbose), NULL, "show commands"},
    {"-###", NULL, FLAG, AT(dry_run), NULL, "show commands, run none"},
    {"--diagnostics", "FORM", SPECIAL, 0, NULL, "text or json"},
    {"-Werror", NULL, SPECIAL, 0, NULL, "warnings are errors"},
    {"-fsyntax-only", NULL, FLAG, AT(syntax_only), NULL, "only check the model"},
    {"-MD", NULL, FLAG, AT(dependencies), NULL, "write DIR/NAME.d, the files the model was read from"},
    {"-MT", "FILE", TEXT, AT(dependent), NULL, "-MD: what depends on them, instead of the sources"},
    {"-h", NULL, SPECIAL, 0, NULL, NULL},
    {"--help", NULL, SPECIAL, 0, NULL, "print this"},
    {"--version", NULL, SPECIAL, 0, NULL, "print the version"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static const CommandLine commands[] = {
    {"", COMMAND_BUILD, "[options] model.pdm", "build stage programs"},
    {"", COMMAND_BUILD, "--sharp -n N [options] models", "build one launch for several models"},
    {"plan", COMMAND_PLAN, "[options] model.pdm", "print the plan and the runners-up, build nothing"},
    {"plan", COMMAND_PLAN, "--profile FILE [options]", "plan a profile of layers, without a model"},
    {"show", COMMAND_SHOW, "[options] model.pdm", "the model's instances as a table or a picture"},
    {"profile", COMMAND_PROFILE, "[options] model.pdm", "measure this model on this machine: NAME.profile.json"},
    {"report", COMMAND_REPORT, "[-o FILE] RUN_DIR",
     "one HTML page about a run, or about models in one launch: RUN_DIR/report.html"},
    {"checkpoint", COMMAND_CHECKPOINT, "DIR", "a training's checkpoints, each verified"},
    {"import", COMMAND_IMPORT, "[-o FILE] DIR", "a model from a Hugging Face folder's config.json and tensors"},
    {"fmt", COMMAND_FORMAT, "[--check] FILES", "write models in the one style; '-': standard input"},
    {"lsp", COMMAND_LSP, "", "a language server on standard input and output, for editors"},
    {"explain", COMMAND_EXPLAIN, "PD0301|LAYER", "a page about a diagnostic, or what a layer does"},
    {"doctor", COMMAND_DOCTOR, "", "what this machine has of what pdc needs"},
    {"completion", COMMAND_COMPLETION, "bash|zsh|fish|man", "for a shell, or the manual page"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const Option *cli_options(int *n) {
  *n = N_OPTIONS;
  return options;
}

const CommandLine *cli_commands(int *n) {
  *n = N_COMMANDS;
  return commands;
}

__attribute__((format(printf, 1, 2))) _Noreturn static void usage(const char *format_, ...) {
  va_list args;
  va_start(args, format_);
  fprintf(stderr, "pdc: error: ");
  vfprintf(stderr, format_, args);
  fprintf(stderr, "\nusage: pdc [");
  for (int i = 1; i < N_COMMANDS; i++)
    if (strcmp(commands[i].name, commands[i - 1].name))
      fprintf(stderr, "%s%s", i > 1 ? "|" : "", commands[i].name);
  fprintf(stderr, "] [options] model.pdm; 'pdc --help' lists the options\n");
  va_end(args);
  exit(2);
}

/* "c|cuda" */
static const char *target_names(void) {
  Text all = {0};
  for (const Backend *const *b = all_backends; *b; b++)
    text_add(&all, "%s%s", all.n ? "|" : "", (*b)->name);
  return all.at;
}

const char *cli_argument(const Option *o) {
  return o->kind == TARGET ? target_names() : o->argument ? o->argument : "";
}

static void print_help(void) {
  for (int i = 0; i < N_COMMANDS; i++) {
    const CommandLine *c = &commands[i];
    printf("%s pdc %-31s%s\n",
           i ? "      " : "usage:", format("%s%s%s", c->name, *c->name ? " " : "", c->arguments), c->help);
  }
  printf("\n");
  for (int i = 0; i < N_OPTIONS; i++)
    if (options[i].help)
      printf("  %-22s%s\n", format("%s %s", options[i].name, cli_argument(&options[i])), options[i].help);
  int n;
  const char *const *names = schedule_names(&n);
  printf("\nschedules: ");
  for (int i = 0; i < n; i++)
    printf(i ? ", %s" : "%s", names[i]);
  printf(
      "\npasses and their letters: parse p, elaborate e, decode g, layout y, autodiff a, simplify s,\n"
      "tensor x, residual r, biases i, cut c, plan l, fuse f, lower w, schedule t, allocate m, emit o, build b\n");
}

static int64_t read_count(const Option *o, const char *text) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (errno || end == text || *end || n < 1 || n > 1000000000)
    usage("%s needs a whole number from 1, not '%s'", o->name, text);
  return n;
}

/* "4", or "4x2": two groups of four. Returns the workers of all together. */
static int read_levels(const Option *o, const char *text, Cluster *cluster) {
  cluster->n = 0;
  int64_t workers = 1;
  for (const char *at = text;; at++) {
    const char *number = at;
    at += strcspn(at, "x");
    if (cluster->n == MOST_LEVELS)
      usage("%s takes %d levels at most, not '%s'", o->name, MOST_LEVELS, text);
    int64_t machines = read_count(o, number == text && !*at ? text : format("%.*s", (int)(at - number), number));
    cluster->level[cluster->n++].count = (int)machines;
    workers *= machines;
    if (workers > 1000000000)
      usage("%s %s: these are too many", o->name, text);
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
      usage("%s needs bytes a second, as 8e9 or '8 GB/s', for each level, not '%s'", o->name, text);
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

static int read_choice(const Option *o, const char *text) {
  int n = 0;
  for (const char *c = o->choices;; n++) {
    size_t length = strcspn(c, "|");
    if (length > 0 && strlen(text) == length && !strncmp(text, c, length))
      return n;
    if (!c[length])
      usage("%s is one of %s, not '%s'", o->name, o->choices[0] == '|' ? o->choices + 1 : o->choices, text);
    c += length + 1;
  }
}

static void set_special(Options *o, const Option *option, const char *value) {
  (void)o;
  if (!strcmp(option->name, "--diagnostics")) {
    if (strcmp(value, "text") && strcmp(value, "json"))
      usage("--diagnostics is text or json, not '%s'", value);
    diagnostics_json = !strcmp(value, "json");
  } else if (!strcmp(option->name, "-Werror")) {
    diagnostics_werror = true;
  } else if (!strcmp(option->name, "--version")) {
    print_version();
    exit(output_status(0));
  } else {
    print_help();
    exit(output_status(0));
  }
}

/* What only one of the targets has. */
static void check_target(const Options *o) {
  Diagnostic *d = NULL;
  Target target = o->plan.target;
  const Backend *backend = backend_of(&target);
  const Device *device = backend->device;
  if (!device->has_threads && target.threads) {
    d = error_at(NO_SPAN, "PD0613", "'--threads' is for processors: a rank of '--target %s' has a GPU of its own",
                 backend->name);
    help(d, "leave it out");
  } else if (!(device->precisions & 1u << target.precision)) {
    d = error_at(NO_SPAN, "PD0613", "'--precision %s' is for GPUs: programs for processors compute in f32 or bf16",
                 precision_name(target.precision));
    help(d, "'--target cuda'");
  } else if (target.residual != RESIDUAL_F32 && target.precision != PRECISION_BF16) {
    d = error_at(NO_SPAN, "PD0613",
                 "'--residual %s' belongs to '--precision bf16': '--precision %s' has all sums in f32",
                 residual_name(target.residual), precision_name(target.precision));
    help(d, "'--precision bf16'");
  } else if (!device->has_arch && o->arch) {
    d = error_at(NO_SPAN, "PD0613",
                 "'--arch' is for GPUs: programs for processors are for the machine they are "
                 "built on");
    help(d, "'--target cuda', or '--march' for other processors");
  } else if (device->has_arch && o->march) {
    d = error_at(NO_SPAN, "PD0613", "'--march' is for processors: programs of '--target %s' are for GPUs",
                 backend->name);
    help(d, "'--arch'");
  }
}

static const Backend *read_target(const Option *o, const char *text) {
  const Backend *found = backend_find(text);
  if (!found)
    usage("%s is one of %s, not '%s'", o->name, target_names(), text);
  return found;
}

/* The devices to plan for; what is wrong with them is a diagnostic. */
static void read_cluster(Options *o) {
  const Cluster *c = o->cluster ? cluster_read(o->cluster) : NULL;
  if (!c)
    return;
  o->plan.cluster = o->layers.cluster = c;
  for (int i = 0; i < c->n_kinds && o->command == COMMAND_BUILD && o->emit == EMIT_NOTHING; i++)
    if (c->kind[i].arch && c->kind[i].arch < 80) {
      Diagnostic *d =
          warning_at(NO_SPAN, "PD0538", "programs need GPUs from sm_80 on, and '%s' of cluster '%s' is sm_%d",
                     c->kind[i].name, c->name, c->kind[i].arch);
      help(d, "'pdc plan' plans for them");
    }
}

/* "sm_90", "sm_90a" */
static const char *read_arch(const Option *o, const char *text) {
  size_t digits = strncmp(text, "sm_", 3) ? 0 : strspn(text + 3, "0123456789");
  const char *rest = text + 3 + digits;
  if (digits < 2 || digits > 3 || (*rest && (rest[1] || (*rest != 'a' && *rest != 'f'))))
    usage("%s needs an architecture such as sm_90, not '%s'", o->name, text);
  if (strtol(text + 3, NULL, 10) < 80)
    usage("%s is sm_80 or a later one, not '%s': kernels use instructions that came with it", o->name, text);
  return text;
}

static void set_option(Options *o, const Option *option, const char *value) {
  void *to = (char *)o + option->at;
  switch (option->kind) {
  case FLAG: *(bool *)to = true; break;
  case TEXT: *(const char **)to = value; break;
  case ARCH: *(const char **)to = read_arch(option, value); break;
  case LIST: push((Strings *)to, value); break;
  case COUNT:
    if (option->at == AT(plan.microbatch) || option->at == AT(layers.microbatches) || option->at == AT(samples))
      *(int64_t *)to = read_count(option, value);
    else
      *(int *)to = (int)read_count(option, value);
    break;
  case DEGREE: *(int *)to = strcmp(value, "auto") ? (int)read_count(option, value) : TENSOR_AUTO; break;
  case LEVELS: *(int *)to = read_levels(option, value, &o->layers.levels); break;
  case RATES: read_rates(option, value, to, &o->layers.n_bandwidths); break;
  case BYTES: *(int64_t *)to = read_bytes(option, value); break;
  case CHOICE: *(int *)to = read_choice(option, value); break;
  case TARGET: *(const Backend **)to = read_target(option, value); break;
  case SPECIAL: set_special(o, option, value); break;
  }
}

/* The option an argument names, and its value when the argument holds it too: "--name=value", "-n4". */
static const Option *find_option(const char *argument, const char **value) {
  *value = NULL;
  for (int i = 0; i < N_OPTIONS; i++) {
    const Option *o = &options[i];
    size_t n = strlen(o->name);
    if (!strcmp(argument, o->name))
      return o;
    bool longer = o->argument && !strncmp(argument, o->name, n);
    if (longer && n > 2 && argument[n] == '=') {
      *value = argument + n + 1;
      return o;
    }
    if (longer && n == 2 && argument[1] != '-') {
      *value = argument + n;
      return o;
    }
  }
  return NULL;
}

_Noreturn static void unknown_option(const char *argument) {
  const char *names[N_OPTIONS];
  for (int i = 0; i < N_OPTIONS; i++)
    names[i] = options[i].name;
  const char *near = nearest(argument, names, N_OPTIONS);
  usage(near ? "unknown option '%s'; did you mean '%s'?" : "unknown option '%s'", argument, near);
}

/* A continuation is a sample, and all are one microbatch. */
static void check_generate(Options *o) {
  if (!o->generate && (o->samples || o->no_cache))
    usage("%s is for --generate", o->samples ? "--samples" : "--no-cache");
  if (!o->generate)
    return;
  if (o->infer)
    usage("--infer or --generate: programs do one of them");
  if (o->plan.microbatch)
    usage("--generate takes --samples, not --microbatch");
  if (o->plan.replicas)
    usage("--generate has no replicas: --samples makes so many continuations at once");
  if (!o->samples)
    o->samples = 1;
  o->plan.microbatch = o->samples;
}

/* The page is about a whole plan, and shows what --compare prints. */
static void check_report(const Options *o) {
  if (!o->report)
    return;
  if (o->command != COMMAND_PLAN)
    usage("--report is for 'pdc plan'");
  if (o->compare)
    usage("--report shows what --compare prints: leave one of them out");
  if (o->emit != EMIT_NOTHING || o->stop_after)
    usage("--report is of a whole plan: leave %s out", o->stop_after ? "--stop-after" : "--emit");
}

static void check_table(const Options *o) {
  if (o->table && o->command != COMMAND_PROFILE)
    usage("--table is for 'pdc profile'");
  if (o->table && o->sources_only)
    usage("--table is of what was measured: leave -S out");
  if (o->measured && o->command != COMMAND_PROFILE)
    usage("--measured is for 'pdc profile'");
  if (o->measured && o->sources_only)
    usage("-S writes the program whose output --measured reads: give one of them");
}

static bool is_among(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(name, names[i]))
      return true;
  return false;
}

/* A plan is made where something about one is asked for. */
static void check_show(Options *o, const bool *given) {
  static const char *const planning[] = {"-n",         "--stages", "--replicas",  "--split", "--microbatch",
                                         "--schedule", "--delay",  "--recompute", "--ahead", "--threads",
                                         "--cluster",  "--memory", "--profile",   "--plan",  "--shard-optimizer",
                                         "--bucket",   "--tensor", "--update"};
  static const char *const no_use[] = {"-o", "--generate",   "--compare", "--report",      "--emit",
                                       "-S", "--stop-after", "-###",      "-fsyntax-only", "-MD"};
  static const char *const own[] = {"--depth", "--svg", "--dot"};
#define AMONG(name, list) is_among(name, list, sizeof(list) / sizeof *(list))
  bool show = o->command == COMMAND_SHOW;
  for (int i = 0; i < N_OPTIONS; i++) {
    const char *name = options[i].name;
    o->planned |= show && given[i] && AMONG(name, planning);
    if (show && given[i] && AMONG(name, no_use))
      usage("%s is not for 'pdc show'", name);
    if (!show && given[i] && AMONG(name, own))
      usage("%s is for 'pdc show'", name);
  }
#undef AMONG
}

static void check_format(const Options *o, const bool *given) {
  static const char *const known[] = {"--check", "--diagnostics", "-Werror"};
  for (int i = 0; i < N_OPTIONS; i++) {
    bool is_known = is_among(options[i].name, known, sizeof known / sizeof *known);
    if (given[i] && o->command == COMMAND_FORMAT && !is_known)
      usage("%s is not for 'pdc fmt'", options[i].name);
    if (given[i] && o->command != COMMAND_FORMAT && options[i].at == AT(check) && options[i].kind == FLAG)
      usage("%s is for 'pdc fmt'", options[i].name);
  }
}

/* A profile of layers is planned by options of its own, and by some of a model's; by PipeDream's planner, which leaves
 * nothing to choose, by few of those. */
static void check_layers(const Options *o, const bool *given) {
  static const char *const without_model[] = {"--profile",     "--emit",  "-n", "--cluster",
                                              "--diagnostics", "-Werror", "-v"};
  static const char *const of_layers[] = {"--cost-model", "--bandwidth", "--transfers", "--device",
                                          "--microbatches"};
  static const char *const of_planner[] = {"--schedule", "--stages", "--replicas",     "--split",
                                           "--memory",   "--delay",  "--recompute",    "--ahead",
                                           "--target",   "--arch",   "--microbatches", "--compare"};
  const bool model = o->input != NULL, pipedream = o->layers.model == MODEL_PIPEDREAM;
#define AMONG(name, list) is_among(name, list, sizeof(list) / sizeof *(list))
  for (int i = 0; i < N_OPTIONS; i++) {
    const char *name = options[i].name;
    bool layers = AMONG(name, of_layers), planner = AMONG(name, of_planner);
    if (given[i] && model && layers)
      usage("%s is for 'pdc plan --profile' of layers, without a model", name);
    if (given[i] && !model && !layers && !planner && !AMONG(name, without_model))
      usage("%s needs a model; 'pdc plan --profile' of layers does without", name);
    if (given[i] && !model && planner && pipedream)
      usage("%s is not for '--cost-model pipedream', whose planner decides all that itself", name);
  }
#undef AMONG
  if (model && o->layers.levels.n > 1)
    usage("-n by level is for 'pdc plan --profile' of layers, without a model");
  if (!model && o->emit != EMIT_NOTHING && o->emit != EMIT_PLAN)
    usage("--emit of a profile of layers is plan");
}

/* A first word that is no file's name was to be a command. */
static void check_command(const Options *o) {
  const char *word = o->models.n > 1 ? o->models.at[0].input : "";
  const char *names[N_COMMANDS];
  if (!*word || strpbrk(word, "./") || access(word, F_OK) == 0)
    return;
  for (int i = 0; i < N_COMMANDS; i++)
    names[i] = commands[i].name;
  const char *near = nearest(word, names, N_COMMANDS);
  usage(near ? "there is no command '%s'; did you mean '%s'?" : "there is no command '%s'", word, near);
}

/* Without --sharp there is one model, and -D is for it wherever it stands. */
static void check_models(Options *o) {
  check_command(o);
  if (o->sharp && o->command != COMMAND_BUILD)
    usage("--sharp builds, and does nothing else");
  if (o->sharp && (o->emit != EMIT_NOTHING || o->stop_after || o->syntax_only || o->dry_run || o->dependencies))
    usage("--sharp builds all of several models: leave --emit, --stop-after, -fsyntax-only, -MD and -### out");
  if (o->name)
    usage("--name %s stands before the first model: it is for the model before it", o->name);
  for (int i = 0; i < o->models.n && !o->sharp; i++)
    if (o->models.at[i].name)
      usage("--name is for '--sharp', where models have names");
  if (o->sharp || !o->models.n)
    return;
  if (o->models.n > 1 && o->command != COMMAND_FORMAT)
    usage("two models: '%s' and '%s' (--sharp trains several)", o->models.at[0].input, o->models.at[1].input);
  for (int i = 0; i < o->models.n; i++)
    add_all(&o->define, o->models.at[i].define.at, (size_t)o->models.at[i].define.n);
}

void options_read(Options *o, int argc, char **argv) {
  *o = (Options){.plan.recompute = RECOMPUTE_AUTO};
  int i = 1;
  for (int c = 1; argc > 1 && c < N_COMMANDS; c++)
    if (!strcmp(argv[1], commands[c].name)) {
      o->command = commands[c].command;
      i = 2;
    }
  bool only_files = false, given[N_OPTIONS] = {false};
  for (; i < argc; i++) {
    const char *argument = argv[i], *value;
    if (only_files || argument[0] != '-' || !argument[1]) {
      if (o->command == COMMAND_FORMAT)
        push(&o->files, argument);
      else if (o->input && o->command != COMMAND_BUILD)
        usage("two models: '%s' and '%s'", o->input, argument);
      o->input = argument;
      push(&o->models, ((Model){.input = argument}));
      continue;
    }
    if (!strcmp(argument, "--")) {
      only_files = true;
      continue;
    }
    const Option *option = find_option(argument, &value);
    if (!option)
      unknown_option(argument);
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
    given[option - options] = true;
  }
  check_models(o);
  if (o->command == COMMAND_DOCTOR && o->input)
    usage("doctor looks at this machine, and takes no file");
  bool without = o->command == COMMAND_DOCTOR || o->command == COMMAND_LSP ||
                 (o->command == COMMAND_FORMAT && o->files.n) || (o->command == COMMAND_PLAN && o->plan.profile);
  if (!o->input && !without)
    usage(o->command == COMMAND_EXPLAIN      ? "explain needs a code, such as PD0301, or a layer, such as linear"
          : o->command == COMMAND_REPORT     ? "report needs a run's directory"
          : o->command == COMMAND_CHECKPOINT ? "checkpoint needs a training's --checkpoint directory"
          : o->command == COMMAND_IMPORT     ? "import needs a folder with config.json"
          : o->command == COMMAND_FORMAT     ? "fmt needs files, or '-' for standard input"
                                             : "no model given");
  if (o->command != COMMAND_FORMAT && o->command != COMMAND_LSP && o->command != COMMAND_DOCTOR)
    check_layers(o, given);
  o->layers.compare = o->compare;
  if (o->command == COMMAND_COMPLETION && !is_completion(o->input))
    usage("completion is for bash, zsh or fish, and man the manual page, not for '%s'", o->input);
  if (o->dependent && !o->dependencies)
    usage("-MT is for -MD");
  check_target(o);
  check_generate(o);
  check_report(o);
  check_table(o);
  check_show(o, given);
  check_format(o, given);
  read_cluster(o);
}
