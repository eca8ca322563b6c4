/* Private to sharp_ranks.c: the command line of a launch of several models. */
#ifndef PD_SHARP_OPTIONS_H
#define PD_SHARP_OPTIONS_H

#include "pd_sharp.h"
#include "shared/why.h"

struct pd_sharp_options {
  double slice;         /* seconds */
  double timeout;       /* seconds */
  const char *run;      /* directory for pdc report; NULL: none */
  const char *timeline; /* file, by default in `run`; NULL: none */
  bool quiet, help;
};

/* Parses the options of the launch and builds each model's arguments, NULL-terminated, after its program name:
 * common options, then those after a --for PATTERN that matches the model's name, with {model} replaced. False
 * after filling `why`, also if two models would write the same file. */
bool pd_sharp_parse(struct pd_sharp_options *o, const struct pd_sharp_program *models, int n, int argc,
                    char **argv, char ***arguments, char *why);
void pd_sharp_usage(const struct pd_sharp_program *models, int n, int ranks);

#endif
