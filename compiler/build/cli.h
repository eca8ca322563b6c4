/* The command line as tables: options.c reads arguments by them; help.c and manual.c print them. */
#ifndef PDC_CLI_H
#define PDC_CLI_H

#include "build/build.h"

typedef enum {
  FLAG,
  TEXT,
  ARCH,
  LIST,
  COUNT,
  DEGREE,
  LEVELS,
  RATES,
  BYTES,
  CHOICE,
  CHOICE_OR_LAYERS,
  TARGET,
  LORA,
  SPECIAL
} OptionKind;

/* The headings of a command's help, in their order. */
typedef enum {
  GROUP_MODEL,
  GROUP_DATA,
  GROUP_PIPELINE,
  GROUP_MEMORY,
  GROUP_DEVICES,
  GROUP_LAYERS,
  GROUP_OUTPUT,
  GROUP_DEBUGGING,
  N_GROUPS
} OptionGroup;

/* Sets of commands: bit i is row i of the table of commands. */
enum {
  ON_BUILD = 1 << 0,
  ON_INFER = 1 << 1,
  ON_GENERATE = 1 << 2,
  ON_LIBRARY = 1 << 3,
  ON_SHARP = 1 << 4,
  ON_PLAN = 1 << 5,
  ON_SHOW = 1 << 6,
  ON_PROFILE = 1 << 7,
  ON_TOKENIZE = 1 << 8,
  ON_DATA = 1 << 9,
  ON_IMPORT = 1 << 10,
  ON_MERGE = 1 << 11,
  ON_EXPORT = 1 << 12,
  ON_REPORT = 1 << 13,
  ON_CHECKPOINT = 1 << 14,
  ON_FORMAT = 1 << 15,
  ON_LSP = 1 << 16,
  ON_EXPLAIN = 1 << 17,
  ON_DOCTOR = 1 << 18,
  ON_COMPLETION = 1 << 19,
  ON_HELP = 1 << 20,
  ON_ALL = (1 << 21) - 1
};

typedef struct Option {
  const char *name;     /* with its dashes; two rows may share a name if no command has both */
  const char *argument; /* NULL: none */
  OptionKind kind;
  size_t at;           /* offset of the member of Options that the option sets */
  const char *choices; /* CHOICE, CHOICE_OR_LAYERS: "off|on|auto", in the order of the enum */
  OptionGroup group;
  unsigned on;      /* commands whose help lists the option */
  unsigned also;    /* commands that accept the option without listing it */
  const char *help; /* one line, with unit and default; NULL: not shown */
} Option;

typedef struct CommandLine {
  const char *name; /* "plan" */
  Command command;
  size_t mode;              /* offset of the flag of Options that the command sets; 0: none */
  const char *arguments[2]; /* synopses without "pdc NAME"; the second may be NULL */
  const char *help;         /* one line: the command's effect */
  const char *more;         /* a paragraph for the command's own help; NULL: none */
} CommandLine;

const Option *cli_options(int *n);
const CommandLine *cli_commands(int *n);
const CommandLine *cli_command(const char *name); /* NULL: no command has this name */
unsigned cli_bit(const CommandLine *c);           /* ON_PLAN */
bool cli_lists(const Option *o, unsigned on);     /* whether the help of one of these commands lists this row */
/* cli_accepts: whether one of these commands accepts an option of this name, in any row. cli_owners: the commands
 * that list the option, "'pdc plan' and 'pdc show'". */
bool cli_accepts(const Option *o, unsigned on);
const char *cli_owners(const Option *o);
const char *cli_names(unsigned on);        /* "'pdc plan' and 'pdc show'" */
const char *cli_argument(const Option *o); /* the argument as help shows it: "NAME", "c|cuda"; "": none */
const char *cli_targets(void);             /* "c|cuda" */
const char *cli_group(OptionGroup group);  /* the heading: "Pipeline" */

/* ---- help (help.c) ----------------------------------------------------------------------------- */

typedef struct Topic {
  const char *name, *help; /* "schedules"; one line about the text */
  void (*print)(void);
} Topic;
const Topic *cli_topics(int *n);
/* The options most used, in the order of pdc --help. */
const Option *const *cli_most_used(int *n);
void help_print(void);                         /* pdc --help: at most 40 lines of 100 columns */
void help_print_command(const CommandLine *c); /* pdc COMMAND --help */
const Topic *cli_topic(const char *name);      /* NULL: no topic has this name */

/* ---- completions (completion.c) ---------------------------------------------------------------- */

void print_bash(void);
void print_zsh(void);
void print_fish(void);

#endif
