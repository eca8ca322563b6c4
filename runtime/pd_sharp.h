/* The interface of the launch program of several models (docs/guide/many-models.md). Each model is a separate
 * program, which can also train alone. */
#ifndef PD_SHARP_PROGRAM_H
#define PD_SHARP_PROGRAM_H

struct pd_sharp_program {
  const char *name;    /* in messages, and for {model} in options */
  const char *program; /* path, relative to the folder of the calling program */
};

/* Runs one of `ranks` ranks: starts its share of the models, which take turns on all ranks, and waits until all
 * models have ended. Returns the exit status of main: 0 if all models succeeded. */
int pd_sharp_run(const struct pd_sharp_program *programs, int n, int ranks, int argc, char **argv);

#endif
