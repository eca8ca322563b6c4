/* What the program of a launch of several models calls (docs/guide/many-models.md). Each model is a program of its own, which also
 * trains alone. */
#ifndef PD_SHARP_PROGRAM_H
#define PD_SHARP_PROGRAM_H

struct pd_sharp_program {
  const char *name;    /* in what is said of it, and for {model} in options */
  const char *program; /* a file, seen from the folder of the one that calls */
};

/* One of so many ranks: starts its share of the models, which take turns on all ranks, and waits until every
 * model has ended. The exit status for main: 0 if all models did what they were asked to. */
int pd_sharp_run(const struct pd_sharp_program *programs, int n, int ranks, int argc, char **argv);

#endif
