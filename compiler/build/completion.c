/* Shell completions, generated from the tables of the command line. */
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

/* Sorted names of the files in one of pdc's own folders, without suffix. */
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

/* Names of the pages of `pdc explain`. */
static const char *explained(void) {
  Strings layers = layer_names();
  return format("%s %s", names_in("diagnostics", ".md"), joined(layers.at, layers.n));
}

static const char *schedules(void) {
  int n;
  const char *const *names = schedule_names(&n);
  return format("auto %s", joined(names, n));
}

/* The values of an option, separated by spaces; "": any value. */
static const char *values_of(const Option *o) {
  if (!strcmp(o->name, "--schedule"))
    return schedules();
  const char *list = o->choices ? o->choices : o->kind == TARGET ? cli_argument(o) : "";
  char *words = format("%s", *list == '|' ? list + 1 : list);
  for (char *c = words; *c; c++)
    if (*c == '|')
      *c = ' ';
  return words;
}

/* The commands' names, separated by spaces. */
static const char *command_names(void) {
  int n;
  const CommandLine *commands = cli_commands(&n);
  const char **names = alloc((size_t)n * sizeof *names);
  for (int i = 0; i < n; i++)
    names[i] = commands[i].name;
  return joined(names, n);
}

static const char *help_names(void) {
  int n;
  const Topic *topics = cli_topics(&n);
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_add(&t, " %s", topics[i].name);
  return format("%s%s", command_names(), t.at);
}

/* The options that a command's help lists, separated by spaces. */
static const char *option_names(unsigned on) {
  int n;
  const Option *options = cli_options(&n);
  Text t = {0};
  for (int i = 0; i < n; i++)
    if (cli_lists(&options[i], on))
      text_add(&t, "%s%s", t.n ? " " : "", options[i].name);
  return t.n ? t.at : "";
}

/* Whether another row of this name comes before. */
static bool is_repeated(const Option *options, int row) {
  for (int i = 0; i < row; i++)
    if (!strcmp(options[i].name, options[row].name))
      return true;
  return false;
}

/* Whether the option takes a directory, not a file, for all commands. */
static bool takes_folder(const Option *options, int n, const char *name) {
  bool folder = true;
  for (int i = 0; i < n; i++)
    if (!strcmp(options[i].name, name))
      folder = folder && options[i].argument && !strcmp(options[i].argument, "DIR");
  return folder;
}

static const char forms[] = "bash zsh fish markdown man";

/* ---- bash -------------------------------------------------------------------------------------- */

void print_bash(void) {
  int n_commands, n_options;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *options = cli_options(&n_options);
  printf(
      "# pdc's completion for bash, by 'pdc completion bash'.\n"
      "_pdc() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} first=${COMP_WORDS[1]} options\n"
      "  compopt -o filenames\n"
      "  case $before in\n");
  for (int i = 0; i < n_options; i++) {
    const char *values = values_of(&options[i]);
    if (is_repeated(options, i))
      continue;
    if (*values)
      printf("  %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", options[i].name, values);
    else if (options[i].argument)
      printf("  %s) COMPREPLY=($(compgen -%s -- \"$word\")); return ;;\n", options[i].name,
             takes_folder(options, n_options, options[i].name) ? "d" : "f");
  }
  printf("  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    case $first in\n");
  for (int i = 1; i < n_commands; i++)
    printf("    %s) options='%s' ;;\n", commands[i].name, option_names(cli_bit(&commands[i])));
  printf("    *) options='%s' ;;\n"
         "    esac\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case $first in\n"
         "  explain) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n"
         "  completion) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n"
         "  help) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n"
         "  report | checkpoint) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -f -X '!*.pdm' -- \"$word\") $(compgen -d -- \"$word\"))\n"
         "  [[ $COMP_CWORD != 1 ]] || COMPREPLY+=($(compgen -W '%s' -- \"$word\"))\n"
         "}\n"
         "complete -F _pdc pdc\n",
         option_names(ON_BUILD), explained(), forms, help_names(), command_names());
}

/* ---- zsh, fish --------------------------------------------------------------------------------- */

/* Escapes text in quotes of zsh's _arguments or of fish. */
static const char *quoted(const char *text, const char *escaped) {
  Text t = {0};
  for (; *text; text++)
    text_add(&t, *text == '\'' ? "'\\''" : strchr(escaped, *text) ? "\\%c" : "%c", *text);
  return t.n ? t.at : "";
}

static void print_zsh_options(unsigned on) {
  int n;
  const Option *options = cli_options(&n);
  printf("_arguments");
  for (int i = 0; i < n; i++) {
    const Option *o = &options[i];
    if (!cli_lists(o, on))
      continue;
    printf(" \\\n      '*%s[%s]", o->name, quoted(o->help, "[]:"));
    if (*values_of(o))
      printf(":%s:(%s)", quoted(cli_argument(o), ":"), values_of(o));
    else if (o->argument)
      printf(":%s:_files%s", quoted(cli_argument(o), ":"), strcmp(o->argument, "DIR") ? "" : " -/");
    printf("'");
  }
  printf(" \\\n      '*:model:_pdc_words'");
}

void print_zsh(void) {
  int n;
  const CommandLine *commands = cli_commands(&n);
  printf("#compdef pdc\n"
         "# pdc's completion for zsh, by 'pdc completion zsh'.\n"
         "_pdc_words() {\n"
         "  case ${words[2]} in\n"
         "  explain) compadd %s ;;\n"
         "  completion) compadd %s ;;\n"
         "  help) compadd %s ;;\n"
         "  report | checkpoint) _files -/ ;;\n"
         "  *)\n"
         "    [[ $CURRENT != 2 ]] || compadd %s\n"
         "    _files -g '*.pdm'\n"
         "    ;;\n"
         "  esac\n"
         "}\n"
         "case ${words[2]} in\n",
         explained(), forms, help_names(), command_names());
  for (int i = 1; i < n; i++) {
    printf("  %s) ", commands[i].name);
    print_zsh_options(cli_bit(&commands[i]));
    printf(" ;;\n");
  }
  printf("  *) ");
  print_zsh_options(ON_BUILD);
  printf(" ;;\nesac\n");
}

/* The condition under which fish offers an option: the commands that list the option. */
static const char *fish_condition(const Option *o) {
  int n;
  const CommandLine *commands = cli_commands(&n);
  Text with = {0}, without = {0};
  for (int i = 0; i < n; i++)
    text_add(o->on & cli_bit(&commands[i]) ? &with : &without, " %s", commands[i].name);
  return o->on & ON_BUILD ? format("not __fish_seen_subcommand_from%s", without.n ? without.at : "")
                          : format("__fish_seen_subcommand_from%s", with.at);
}

void print_fish(void) {
  int n_commands, n_options;
  const CommandLine *commands = cli_commands(&n_commands);
  const Option *options = cli_options(&n_options);
  printf("# pdc's completion for fish, by 'pdc completion fish'.\n");
  for (int i = 0; i < n_commands; i++)
    printf("complete -c pdc -n __fish_use_subcommand -a %s -d '%s'\n", commands[i].name,
           quoted(commands[i].help, "\\"));
  printf("complete -c pdc -n '__fish_seen_subcommand_from explain' -x -a '%s'\n", explained());
  printf("complete -c pdc -n '__fish_seen_subcommand_from completion' -x -a '%s'\n", forms);
  printf("complete -c pdc -n '__fish_seen_subcommand_from help' -x -a '%s'\n", help_names());
  for (int i = 0; i < n_options; i++) {
    const Option *o = &options[i];
    if (!o->help || !o->on)
      continue;
    bool is_long = !strncmp(o->name, "--", 2);
    printf("complete -c pdc");
    if (o->on != ON_ALL)
      printf(" -n '%s'", fish_condition(o));
    printf(" -%c '%s' -d '%s'",
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
