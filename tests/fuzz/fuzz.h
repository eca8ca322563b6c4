/* Fuzz targets: readers of users' files get arbitrary bytes. A diagnostic is a correct result; a signal, a
 * sanitizer's report, BUG() and any other exit are failures. */
#ifndef PDC_FUZZ_H
#define PDC_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "cut/cut.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The path by which the compiler reads these bytes, which stay where they are; the next call replaces them. */
const char *fuzz_file(const uint8_t *data, size_t size);
/* Runs a target on an input, from the state of a compiler that has read the standard layers and nothing else:
 * whatever it takes, names and tells is gone when the next one comes, so that inputs do not meet and millions run
 * in a process. */
int fuzz_afresh(int (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size);
/* The passes up to cuts, each verified. */
void fuzz_passes(Graph *g);
/* The model that plans and profiles are read for: tests/fuzz/small.pdm. */
const Graph *fuzz_graph(void);
const Pieces *fuzz_pieces(void);

#endif
