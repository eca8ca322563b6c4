/* `pdc profile`: measures the kernels of a model on this machine. Depends on emit, which prints the measured
 * program. */
#ifndef PDC_MEASURE_H
#define PDC_MEASURE_H

#include "plan/request.h"
#include "profile/profile.h"

/* The program that measures the model at the microbatches the request leaves free; NULL after diagnostics. */
char *profile_program(const Graph *g, const Pieces *p, const PlanRequest *request);
/* Compiles and runs a program; returns its output, or NULL after diagnostics. */
typedef char *(*ProfileRun)(void *context, const char *text);
/* `pdc profile`: measures and writes out_path. table: NULL, or the output of the table of kernels. */
bool profile_make(const Graph *g, const Pieces *p, const PlanRequest *request, const char *out_path,
                  ProfileRun run, void *context, FILE *table);

#endif
