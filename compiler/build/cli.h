/* The command line as tables, from which it is read, --help printed, and the manual and completions made. */
#ifndef PDC_CLI_H
#define PDC_CLI_H

#include "build/build.h"

typedef enum { FLAG, TEXT, ARCH, LIST, COUNT, DEGREE, LEVELS, RATES, BYTES, CHOICE, TARGET, SPECIAL } OptionKind;

typedef struct Option {
  const char *name;     /* with its dashes */
  const char *argument; /* NULL: none */
  OptionKind kind;
  size_t at;           /* of the member of Options it sets */
  const char *choices; /* CHOICE: "off|on|auto", in the order of the enum */
  const char *help;    /* NULL: not shown */
} Option;

typedef struct CommandLine {
  const char *name; /* "plan"; "": none, the model alone */
  Command command;
  const char *arguments, *help;
} CommandLine;

const Option *cli_options(int *n);
const CommandLine *cli_commands(int *n);
const char *cli_argument(const Option *o); /* what stands behind it in the help: "NAME", "c|cuda"; "": nothing */

#endif
