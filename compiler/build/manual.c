/* Manual pages and docs/reference/pdc.md, from the tables of the command line. */
#include "build/cli.h"

#include <ctype.h>
#include <string.h>

#include "schedule/program.h"

static const struct {
  const char *name, *help;
} variables[] = {
    {"XDG_CACHE_HOME",
     "directory in which an installed pdc keeps the runtime compiled for this machine (default ~/.cache)"},
    {"CUDA_HOME", "directory of the CUDA Toolkit, if PATH does not have nvcc"},
    {"TMPDIR", "directory for the program of 'pdc profile' and of 'pdc doctor' (default /tmp)"},
};
enum { N_VARIABLES = sizeof variables / sizeof *variables };

static const char exit_status[] =
    "0 after success; 1 after an error in the input; 2 after a wrong command line; 70 after "
    "a bug in pdc.";

/* ---- manual pages ---------------------------------------------------------------------------- */

/* Escapes text for roff: literal hyphens, no backslash, and no dot that starts a request. */
static void put_roff(const char *text) {
  if (*text == '.' || *text == '\'')
    printf("\\&");
  for (; *text; text++)
    printf(*text == '-' ? "\\-" : *text == '\\' ? "\\e" : "%c", *text);
}

static void put_section(const char *title, const char *text) {
  printf(".SH %s\n", title);
  put_roff(text);
  printf("\n");
}

static void put_entry(const char *bold, const char *italic, const char *text) {
  printf(".TP\n.B ");
  put_roff(bold);
  if (*italic) {
    printf(" \\fI");
    put_roff(italic);
    printf("\\fR");
  }
  printf("\n");
  put_roff(text);
  printf("\n");
}

static void put_synopsis(const CommandLine *c) {
  for (int i = 0; i < 2 && c->arguments[i]; i++) {
    printf("%s.B pdc %s\n", i ? ".br\n" : "", c->name);
    put_roff(c->arguments[i]);
    printf("\n");
  }
}

static void put_option(const Option *o) { put_entry(o->name, cli_argument(o), o->help); }

static void put_end(const char *see_also) {
  put_section("EXIT STATUS", exit_status);
  printf(".SH ENVIRONMENT\n");
  for (int i = 0; i < N_VARIABLES; i++)
    put_entry(variables[i].name, "", variables[i].help);
  printf(".SH SEE ALSO\n%s.BR pdc-train (1),\n.BR pdm (5),\n.BR mpirun (1)\n", see_also);
}

static void print_manual(void) {
  int n_commands, n_used, n_topics;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *const *used = cli_most_used(&n_used);
  const Topic *topics = cli_topics(&n_topics);
  printf(".TH PDC 1 \"\" \"pdc %s\" \"User Commands\"\n", PDC_VERSION);
  put_section("NAME", "pdc - compile models into pipelines of C or CUDA programs");
  printf(".SH SYNOPSIS\n.B pdc\n[COMMAND] [options] MODEL\n");
  put_section(
      "DESCRIPTION",
      "pdc reads a model, a .pdm file or a Hugging Face folder, cuts it into pipeline stages, and writes and "
      "compiles one C or CUDA program per stage. The launcher, 'train', is written beside the programs; mpirun starts it on every rank.");
  printf(".SH COMMANDS\nEach command has a page of its own, such as\n.BR pdc-plan (1).\n");
  for (int i = 0; i < n_commands; i++)
    put_entry(format("pdc %s", commands[i].name), commands[i].arguments[0], commands[i].help);
  printf(".SH OPTIONS MOST USED\n");
  for (int i = 0; i < n_used; i++)
    put_option(used[i]);
  printf(".SH TOPICS\nPrinted by\n.BR \"pdc help\" .\n");
  for (int i = 0; i < n_topics; i++)
    put_entry(topics[i].name, "", topics[i].help);
  put_end(".BR pdc-build (1),\n");
}

static const char *upper(const char *text) {
  char *copy = format("%s", text);
  for (char *c = copy; *c; c++)
    *c = (char)toupper((unsigned char)*c);
  return copy;
}

static void print_command_manual(const CommandLine *c) {
  int n;
  const Option *options = cli_options(&n);
  printf(".TH PDC-%s 1 \"\" \"pdc %s\" \"User Commands\"\n", upper(c->name), PDC_VERSION);
  put_section("NAME", format("pdc-%s - %s", c->name, c->help));
  printf(".SH SYNOPSIS\n");
  put_synopsis(c);
  if (c->more)
    put_section("DESCRIPTION", c->more);
  printf(".SH OPTIONS\n");
  for (OptionGroup group = 0; group < N_GROUPS; group++) {
    bool titled = false;
    for (int i = 0; i < n; i++) {
      if (options[i].group != group || !cli_lists(&options[i], cli_bit(c)))
        continue;
      if (!titled)
        printf(".SS %s\n", cli_group(group));
      titled = true;
      put_option(&options[i]);
    }
  }
  put_end(".BR pdc (1),\n");
}

/* ---- docs/reference/pdc.md ----------------------------------------------------------------------- */

/* Escapes text for a table cell. */
static void put_cell(const char *text) {
  for (; *text; text++)
    printf(*text == '|' ? "\\|" : *text == '<' ? "&lt;" : "%c", *text);
}

static const char *commands_of(const Option *o) {
  int n;
  const CommandLine *commands = cli_commands(&n);
  Text t = {0};
  for (int i = 0; i < n; i++)
    if (o->on & cli_bit(&commands[i]))
      text_add(&t, "%s%s", t.n ? ", " : "", commands[i].name);
  return o->on == ON_ALL ? "all" : t.n ? t.at : "all";
}

static void put_group(OptionGroup group) {
  int n;
  const Option *options = cli_options(&n);
  printf("\n### %s\n\n| option | effect | commands |\n|---|---|---|\n", cli_group(group));
  for (int i = 0; i < n; i++) {
    const Option *o = &options[i];
    if (o->group != group || !o->help)
      continue;
    const char *argument = cli_argument(o);
    printf("| `%s%s", o->name, *argument ? " " : "");
    put_cell(argument);
    printf("` | ");
    put_cell(o->help);
    printf(" | %s |\n", commands_of(o));
  }
}

static void print_markdown(void) {
  int n;
  const CommandLine *commands = cli_commands(&n);
  printf(
      "# pdc\n\n"
      "The command line of the compiler. `pdc COMMAND --help` prints the same options for one command. This page is\n"
      "generated: `pdc completion markdown >docs/reference/pdc.md`.\n\n"
      "```sh\npdc --stages 2 models/gpt_mini.pdm    # builds gpt_mini.build/train\n"
      "pdc plan -n 4 models/gpt_mini.pdm     # prints the fastest plan for 4 ranks\n```\n\n"
      "## Commands\n");
  for (int i = 0; i < n; i++) {
    const CommandLine *c = &commands[i];
    printf("\n### pdc %s\n\n", c->name);
    for (int k = 0; k < 2 && c->arguments[k]; k++)
      printf("    pdc %s%s%s\n", c->name, *c->arguments[k] ? " " : "", c->arguments[k]);
    printf("\n%c%s.%s%s\n", toupper((unsigned char)*c->help), c->help + 1, c->more ? " " : "",
           c->more ? c->more : "");
  }
  printf("\n## Options\n\n"
         "An option given to a command that does not use the option is an error. `--name VALUE` may be written\n"
         "`--name=VALUE`, and `-n 4` may be written `-n4`.\n");
  for (OptionGroup group = 0; group < N_GROUPS; group++)
    put_group(group);
  int n_names;
  const char *const *names = schedule_names(&n_names);
  printf("\n## Schedules\n\n| schedule | order of passes, and weights they read |\n|---|---|\n");
  for (int i = 0; i < n_names; i++)
    printf("| `%s` | %s |\n", names[i], schedule_summary(names[i]));
  printf("\n## Exit status\n\n%s\n\n## Environment\n\n| variable | meaning |\n|---|---|\n", exit_status);
  for (int i = 0; i < N_VARIABLES; i++)
    printf("| `%s` | %s |\n", variables[i].name, variables[i].help);
}

/* ---- pdc completion --------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void (*print)(void);
} forms[] = {{"bash", print_bash},
             {"zsh", print_zsh},
             {"fish", print_fish},
             {"markdown", print_markdown},
             {"man", print_manual}};
enum { N_FORMS = sizeof forms / sizeof *forms };

bool is_completion(const char *form) {
  for (int i = 0; i < N_FORMS; i++)
    if (!strcmp(form, forms[i].name))
      return true;
  return false;
}

bool print_completion(const char *form, const char *name) {
  if (name)
    print_command_manual(cli_command(name));
  for (int i = 0; i < N_FORMS && !name; i++)
    if (!strcmp(form, forms[i].name))
      forms[i].print();
  return ferror(stdout) == 0;
}
