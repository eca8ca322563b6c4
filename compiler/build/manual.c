/* The manual page and the shells' completions, from the tables of the command line. */
#define _GNU_SOURCE
#include "build/cli.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/program.h"

/* ---- words ----------------------------------------------------------------------------------- */

static const char *joined(const char *const *words, int n) {
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_add(&t, "%s%s", i ? " " : "", words[i]);
  return t.n ? t.at : "";
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of files of a folder of pdc's own, without their suffix. */
static const char *names_in(const char *folder, const char *suffix) {
  Strings names = {0};
  DIR *d = opendir(own_folder(folder));
  for (struct dirent *entry; d && (entry = readdir(d));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (dot && !strcmp(dot, suffix))
      push(&names, format("%.*s", (int)(dot - entry->d_name), entry->d_name));
  }
  if (d)
    closedir(d);
  if (names.n > 0)
    qsort(names.at, (size_t)names.n, sizeof *names.at, by_name);
  return joined(names.at, names.n);
}

/* What `pdc explain` knows. */
static const char *explained(void) {
  Strings layers = layer_names();
  return format("%s %s", names_in("diagnostics", ".md"), joined(layers.at, layers.n));
}

static const char *schedules(void) {
  int n;
  const char *const *names = schedule_names(&n);
  return format("auto %s", joined(names, n));
}

/* A command of several lines is named by its first. */
static bool is_named(const CommandLine *c, int i) { return i > 0 && strcmp(c[i].name, c[i - 1].name); }

/* The words that an option's argument may be, with spaces between; "": they are not listed. */
static const char *values_of(const Option *o) {
  if (!strcmp(o->name, "--schedule"))
    return schedules();
  const char *list = o->kind == CHOICE ? o->choices : o->kind == TARGET ? cli_argument(o) : "";
  char *words = format("%s", *list == '|' ? list + 1 : list);
  for (char *c = words; *c; c++)
    if (*c == '|')
      *c = ' ';
  return words;
}

static bool takes_folder(const Option *o) { return o->argument && !strcmp(o->argument, "DIR"); }

/* ---- the manual page ------------------------------------------------------------------------- */

/* roff takes a hyphen for a hyphen, a backslash for a command, and so a dot at a line's start. */
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

static void print_manual(void) {
  int n_commands, n_options;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *options = cli_options(&n_options);
  printf(".TH PDC 1 \"\" \"pdc %s\" \"User Commands\"\n", PDC_VERSION);
  put_section("NAME", "pdc - compile models into pipelines of C or CUDA programs");
  printf(".SH SYNOPSIS\n");
  for (int i = 0; i < n_commands; i++) {
    printf("%s.B pdc %s\n", i ? ".br\n" : "", commands[i].name);
    put_roff(commands[i].arguments);
    printf("\n");
  }
  put_section(
      "DESCRIPTION",
      "pdc reads a model's description, a .pdm file, cuts it into pipeline stages, and writes and compiles one C or "
      "CUDA program for each. mpirun launches them with the 'train' that is written beside them.");
  printf(".SH COMMANDS\n");
  for (int i = 0; i < n_commands; i++)
    put_entry(format("pdc %s", commands[i].name), commands[i].arguments, commands[i].help);
  printf(".SH OPTIONS\n");
  for (int i = 0; i < n_options; i++)
    if (options[i].help)
      put_entry(options[i].name, cli_argument(&options[i]), options[i].help);
  put_section("SCHEDULES", schedules());
  put_section(
      "EXIT STATUS",
      "0, or 1 after an error in what was read or asked for, 2 when the command line is wrong, 70 when pdc has a "
      "bug.");
  printf(".SH ENVIRONMENT\n");
  put_entry("XDG_CACHE_HOME", "", "where an installed pdc keeps the runtime that it compiled for this machine");
  put_entry("CUDA_HOME", "", "the CUDA Toolkit, where PATH does not have nvcc");
  put_entry("TMPDIR", "", "for the program of 'pdc profile'");
  printf(".SH SEE ALSO\n.BR pdc-train (1),\n.BR pdm (5),\n.BR mpirun (1)\n");
}

/* ---- completions ----------------------------------------------------------------------------- */

static void print_bash(void) {
  int n_commands, n_options;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *options = cli_options(&n_options);
  printf("# pdc's completion for bash, by 'pdc completion bash'.\n"
         "_pdc() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} first=${COMP_WORDS[1]}\n"
         "  compopt -o filenames\n"
         "  case $before in\n");
  for (int i = 0; i < n_options; i++) {
    const char *values = values_of(&options[i]);
    if (*values)
      printf("  %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", options[i].name, values);
    else if (options[i].argument)
      printf("  %s) COMPREPLY=($(compgen -%s -- \"$word\")); return ;;\n", options[i].name,
             takes_folder(&options[i]) ? "d" : "f");
  }
  printf("  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W '");
  for (int i = 0; i < n_options; i++)
    if (options[i].help)
      printf("%s%s", i ? " " : "", options[i].name);
  printf("' -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case $first in\n"
         "  explain) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n"
         "  completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")); return ;;\n"
         "  report | checkpoint) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -f -X '!*.pdm' -- \"$word\") $(compgen -d -- \"$word\"))\n"
         "  [[ $COMP_CWORD != 1 ]] || COMPREPLY+=($(compgen -W '",
         explained());
  for (int i = 0; i < n_commands; i++)
    if (is_named(commands, i))
      printf(" %s", commands[i].name);
  printf("' -- \"$word\"))\n"
         "}\n"
         "complete -F _pdc pdc\n");
}

/* Within quotes of zsh's _arguments, or of fish. */
static const char *quoted(const char *text, const char *escaped) {
  Text t = {0};
  for (; *text; text++)
    text_add(&t, *text == '\'' ? "'\\''" : strchr(escaped, *text) ? "\\%c" : "%c", *text);
  return t.n ? t.at : "";
}

static void print_zsh(void) {
  int n_commands, n_options;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *options = cli_options(&n_options);
  printf("#compdef pdc\n"
         "# pdc's completion for zsh, by 'pdc completion zsh'.\n"
         "_pdc_words() {\n"
         "  case ${words[2]} in\n"
         "  explain) compadd %s ;;\n"
         "  completion) compadd bash zsh fish ;;\n"
         "  report | checkpoint) _files -/ ;;\n"
         "  *)\n"
         "    [[ $CURRENT != 2 ]] || compadd",
         explained());
  for (int i = 0; i < n_commands; i++)
    if (is_named(commands, i))
      printf(" %s", commands[i].name);
  printf("\n"
         "    _files -g '*.pdm'\n"
         "    ;;\n"
         "  esac\n"
         "}\n"
         "_arguments");
  for (int i = 0; i < n_options; i++) {
    const Option *o = &options[i];
    if (!o->help)
      continue;
    printf(" \\\n  '*%s[%s]", o->name, quoted(o->help, "[]:"));
    if (*values_of(o))
      printf(":%s:(%s)", quoted(cli_argument(o), ":"), values_of(o));
    else if (o->argument)
      printf(":%s:_files%s", quoted(cli_argument(o), ":"), takes_folder(o) ? " -/" : "");
    printf("'");
  }
  printf(" \\\n  '*:model:_pdc_words'\n");
}

static void print_fish(void) {
  int n_commands, n_options;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *options = cli_options(&n_options);
  printf("# pdc's completion for fish, by 'pdc completion fish'.\n");
  for (int i = 0; i < n_commands; i++)
    if (is_named(commands, i))
      printf("complete -c pdc -n __fish_use_subcommand -a %s -d '%s'\n", commands[i].name,
             quoted(commands[i].help, "\\"));
  printf("complete -c pdc -n '__fish_seen_subcommand_from explain' -x -a '%s'\n", explained());
  printf("complete -c pdc -n '__fish_seen_subcommand_from completion' -x -a 'bash zsh fish'\n");
  for (int i = 0; i < n_options; i++) {
    const Option *o = &options[i];
    if (!o->help)
      continue;
    bool is_long = !strncmp(o->name, "--", 2);
    printf("complete -c pdc -%c '%s' -d '%s'",
           is_long      ? 'l'
           : o->name[2] ? 'o'
                        : 's',
           o->name + 1 + is_long, quoted(o->help, "\\"));
    if (*values_of(o))
      printf(" -x -a '%s'", values_of(o));
    else if (o->argument)
      printf(" -r");
    printf("\n");
  }
}

static const struct {
  const char *name;
  void (*print)(void);
} forms[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}, {"man", print_manual}};
enum { N_FORMS = sizeof forms / sizeof *forms };

bool is_completion(const char *shell) {
  for (int i = 0; i < N_FORMS; i++)
    if (!strcmp(shell, forms[i].name))
      return true;
  return false;
}

bool print_completion(const char *shell) {
  for (int i = 0; i < N_FORMS; i++)
    if (!strcmp(shell, forms[i].name))
      forms[i].print();
  return ferror(stdout) == 0;
}
