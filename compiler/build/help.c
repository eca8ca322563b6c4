/* Help: pdc --help, help of commands, topics. */
#include "build/cli.h"

#include <string.h>

#include "schedule/program.h"

enum { WIDTH = 100, COLUMN = 26 };

/* ---- commands and options ----------------------------------------------------------------------- */

static void print_option(const Option *o) {
  const char *argument = cli_argument(o);
  const char *head = format("%s%s%s", o->name, *argument ? " " : "", argument);
  printf("  %-*s%s\n", COLUMN - 2, head, o->help);
}

static void print_group(OptionGroup group, unsigned on) {
  int n;
  const Option *options = cli_options(&n);
  bool titled = false;
  for (int i = 0; i < n; i++) {
    if (options[i].group != group || !cli_lists(&options[i], on))
      continue;
    if (!titled)
      printf("\n%s:\n", cli_group(group));
    titled = true;
    print_option(&options[i]);
  }
}

/* Wraps words at WIDTH columns. */
static void print_paragraph(const char *text) {
  size_t column = 0;
  for (size_t n; *text; text += n + (text[n] == ' ')) {
    n = strcspn(text, " ");
    if (column && column + 1 + n > WIDTH) {
      printf("\n");
      column = 0;
    }
    printf("%s%.*s", column ? " " : "", (int)n, text);
    column += n + (column > 0);
  }
  printf("\n");
}

void help_print_command(const CommandLine *c) {
  for (int i = 0; i < 2 && c->arguments[i]; i++)
    printf("%s pdc %s %s\n", i ? "      " : "usage:", c->name, c->arguments[i]);
  printf("\n");
  print_paragraph(format("pdc %s: %s.%s%s", c->name, c->help, c->more ? " " : "", c->more ? c->more : ""));
  for (OptionGroup group = 0; group < N_GROUPS; group++)
    print_group(group, cli_bit(c));
}

static const char *const most_used[] = {"-n",       "-o",          "-D",       "--schedule", "--stages",
                                        "--memory", "--recompute", "--tensor", "--target",   "--precision"};

enum { N_MOST_USED = sizeof most_used / sizeof *most_used };

const Option *const *cli_most_used(int *n) {
  static const Option *found[N_MOST_USED];
  int n_options;
  const Option *options = cli_options(&n_options);
  for (int k = 0; k < N_MOST_USED; k++)
    for (int i = 0; i < n_options; i++)
      if (!strcmp(options[i].name, most_used[k]) && cli_lists(&options[i], ON_BUILD))
        found[k] = &options[i];
  *n = N_MOST_USED;
  return found;
}

void help_print(void) {
  int n;
  const CommandLine *commands = cli_commands(&n);
  printf(
      "usage: pdc [COMMAND] [options] MODEL\n\n"
      "pdc compiles a .pdm file or a Hugging Face folder into one C or CUDA program per pipeline stage.\n\nCommands:\n");
  for (int i = 0; i < n; i++)
    printf("  %-12s%s\n", commands[i].name, commands[i].help);
  printf("\nOptions most used:\n");
  int n_used;
  const Option *const *used = cli_most_used(&n_used);
  for (int i = 0; i < n_used; i++)
    print_option(used[i]);
  int n_topics;
  const Topic *topics = cli_topics(&n_topics);
  printf("\n'pdc COMMAND --help' lists its options. 'pdc help TOPIC' explains");
  for (int i = 0; i < n_topics; i++)
    printf("%s %s", i ? "," : "", topics[i].name);
  printf(".\n");
}

/* ---- topics ------------------------------------------------------------------------------------- */

static void print_schedules(void) {
  int n;
  const char *const *names = schedule_names(&n);
  printf("A schedule decides in which order a stage runs the forward and backward passes of its\n"
         "microbatches, and which version of the weights each pass reads.\n\n"
         "Choose one with `pipeline = NAME;` in the model's `train` block or with --schedule NAME:\n\n");
  for (int i = 0; i < n; i++)
    printf("  %-14s%s\n", names[i], schedule_summary(names[i]));
  printf("  %-14s%s\n", "auto", "the fastest schedule for this model, by the planner's estimate");
  printf("\n'pdc plan --compare MODEL.pdm' prints the fastest plan of each schedule.\n"
         "'pdc build --emit schedule -n 4 MODEL.pdm' prints a schedule as a diagram.\n"
         "'forward' belongs to 'pdc infer' and 'pdc generate': training cannot use it.\n"
         "Read on: docs/guide/schedules.md\n");
}

static void print_memory(void) {
  printf("Every rank has a memory limit: --memory SIZE, else seven eighths of this machine's memory divided\n"
         "by the ranks, on a GPU 95 %% of the GPU's memory. pdc allocates all memory of a stage while\n"
         "compiling, so a plan that fits does not run out of memory. 'pdc plan MODEL.pdm' prints the peak\n"
         "of each rank.\n\n"
         "If no plan fits, these options save memory, at the cost of time:\n\n"
         "  --microbatch N       smaller microbatches: fewer activations\n"
         "  --recompute 'h[*]'   activation checkpointing: the backward pass repeats these layers, or all (on)\n"
         "  --shard-optimizer    each replica holds a shard of the optimizer state (ZeRO-1)\n"
         "  --stages N           more stages: fewer parameters per rank\n"
         "  --tensor N           N ranks share each layer\n"
         "  --precision bf16     activations and messages of half the size\n"
         "  --schedule spilled   offload: parts that are not resident stay in --spill DIR or host memory\n\n"
         "The planner uses activation checkpointing and optimizer sharding by itself if memory needs them.\n"
         "Read on: docs/guide/offload.md, docs/guide/tensor-parallelism.md, docs/guide/planning.md\n");
}

static void print_files(void) {
  printf("A model declares its inputs and targets, such as `input image[1, 28, 28];`. The programs read them\n"
         "from files:\n\n"
         "  train --data PATH...          text, tokens (.bin), images (IDX, CIFAR) or arrays (.npy, .npz)\n"
         "  train --data FILE.csv         columns of numbers by the names of inputs\n"
         "  train --data DIR, FILE.tar    JPEG and PNG: a folder for each class, or a tar file\n"
         "  train --data DIR              without images: the files of the folder\n"
         "  train --data NAME=PATH...     a file for each input or target\n"
         "  train --data A=7:X B=3:Y      sources with shares of the samples\n\n"
         "A text is a sequence of bytes: tokens of a vocabulary of 256. 'pdc tokenize' writes files of tokens\n"
         "and of chats for other vocabularies; 'train --tokenizer DIR' calls it.\n"
         "The order of samples depends on --seed alone, not on the ranks.\n"
         "'NAME.build/train --help' lists the options of a training run.\n"
         "Read on: docs/guide/data.md, docs/reference/language.md\n");
}

static void print_passes(void) {
  printf("pdc runs these passes in order. -d LETTERS prints the result of each pass named by its letter;\n"
         "--stop-after PASS takes the name:\n\n"
         "  parse p, elaborate e, decode g, layout y, autodiff a, simplify s, tensor x, residual r,\n"
         "  biases i, cut c, plan l, fuse f, lower w, schedule t, allocate m, emit o, build b\n\n"
         "Read on: docs/internals/architecture.md\n");
}

static const Topic topics[] = {
    {"schedules", "the schedules that a pipeline can run", print_schedules},
    {"memory", "the memory limit of a rank, and how to stay below it", print_memory},
    {"files", "the files that a training run reads", print_files},
    {"passes", "the compiler's passes and their letters", print_passes},
};
enum { N_TOPICS = sizeof topics / sizeof *topics };

const Topic *cli_topics(int *n) {
  *n = N_TOPICS;
  return topics;
}

const Topic *cli_topic(const char *name) {
  for (int i = 0; i < N_TOPICS; i++)
    if (!strcmp(name, topics[i].name))
      return &topics[i];
  return NULL;
}

void print_help(const char *name) {
  const CommandLine *c = name ? cli_command(name) : NULL;
  const Topic *topic = name ? cli_topic(name) : NULL;
  if (c)
    help_print_command(c);
  else if (topic)
    topic->print();
  else
    help_print();
}
