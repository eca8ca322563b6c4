/* A .pdm file, from its characters to the simplified graph and its pieces. */
#include "fuzz.h"

#include "elaborate/elaborate.h"

static int run(const uint8_t *data, size_t size) {
  Ast *file = parse_file(fuzz_file(data, size));
  Graph *g = file ? elaborate(file, &(ElaborateOptions){0}) : NULL;
  diagnostics_flush();
  if (!g) return 0;
  fuzz_passes(g);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
