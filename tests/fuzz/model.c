/* A .pdm file, from its characters to the simplified graph and its pieces. */
#include "fuzz.h"

#include "autodiff/autodiff.h"
#include "elaborate/elaborate.h"
#include "layout/permutes.h"
#include "simplify/simplify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Ast *file = parse_file(fuzz_file(data, size));
  Graph *g = file ? elaborate(file, &(ElaborateOptions){0}) : NULL;
  diagnostics_flush();
  if (!g) return 0;
  graph_verify(g);
  move_permutes(g);
  graph_verify(g);
  autodiff(g);
  graph_verify(g);
  simplify(g);
  graph_verify(g);
  Pieces p = cut(g);
  pieces_verify(g, &p);
  return 0;
}
