/* Private to sharp_ranks.c: the command line of a launch of several models. */
#ifndef PD_SHARP_OPTIONS_H
#define PD_SHARP_OPTIONS_H

#include "pd_sharp.h"
#include "shared/why.h"

struct pd_sharp_options {
  double slice;         /* seconds */
  double timeout;       /* the same */
  const char *run;      /* a folder for all that pdc report reads; NULL: none */
  const char *timeline; /* a file, with `run` one in there; NULL: none */
  bool quiet, help;
};

/* Reads what the launch itself is told, and makes for each model the arguments it is started with, behind its name and
 * ending with NULL: those for all, then those that follow a --for PATTERN of its name; {model} in them is its name.
 * False after filling `why`, also where two models would write one file. */
bool pd_sharp_parse(struct pd_sharp_options *o, const struct pd_sharp_program *models, int n, int argc,
                    char **argv, char ***arguments, char *why);
void pd_sharp_usage(const struct pd_sharp_program *models, int n, int ranks);

#endif
