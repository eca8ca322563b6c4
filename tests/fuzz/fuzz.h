/* Fuzz targets: readers of users' files get arbitrary bytes. A diagnostic is a correct result; a signal, a
 * sanitizer report, BUG() and any other exit are failures. */
#ifndef PDC_FUZZ_H
#define PDC_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "cut/cut.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The path by which the compiler reads these bytes, without a copy; valid until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);
/* Runs a target on an input, from the state of a compiler that has read only the standard layers. Afterwards its
 * memory, names and diagnostics are dropped, so inputs are independent and millions run in one process. */
int fuzz_afresh(int (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size);
/* Runs and verifies the passes up to cuts. */
void fuzz_passes(Graph *g);
/* The model for plans and profiles: tests/fuzz/small.pdm. */
const Graph *fuzz_graph(void);
const Pieces *fuzz_pieces(void);

#endif
