/* `pdc profile`: measures the kernels of a model on this machine. Stands above emit, which prints what it runs. */
#ifndef PDC_MEASURE_H
#define PDC_MEASURE_H

#include "plan/request.h"
#include "profile/profile.h"

/* The text of the program that measures the model at the microbatches the request leaves open; NULL after
 * diagnostics. */
char *profile_program(const Graph *g, const Pieces *p, const PlanRequest *request);
/* Compiles and runs such a text; returns what it prints, or NULL after diagnostics. */
typedef char *(*ProfileRun)(void *context, const char *text);
/* `pdc profile`: measures and writes out_path. table: NULL, or where to print kernels beside what the machine allows. */
bool profile_make(const Graph *g, const Pieces *p, const PlanRequest *request, const char *out_path,
                  ProfileRun run, void *context, FILE *table);

#endif
