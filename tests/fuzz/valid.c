/* Input: bytes for a valid model (maker.c). The interpreter's losses and gradients before and after the passes
 * must agree, and gradients must equal the loss's change along a parameter direction. */
#include "fuzz.h"

#include <string.h>

#include "autodiff/autodiff.h"
#include "elaborate/elaborate.h"
#include "maker.h"
#include "numbers.h"

static const char *text;

static Graph *forward(const char *path) {
  Ast *file = parse_file(path);
  Graph *g = file ? elaborate(file, &(ElaborateOptions){0}) : NULL;
  if (!g) diagnostics_flush();
  if (!g) BUG("a valid model is refused:\n%s", text);
  return g;
}

static Graph *compiled(const char *path) {
  Graph *g = forward(path);
  fuzz_passes(g);
  return g;
}

static int run(const uint8_t *data, size_t size) {
  bool smooth;
  text = make_model_text(data, size, &smooth);
  const char *path = fuzz_file((const uint8_t *)text, strlen(text));
  Graph *before = forward(path), *after = compiled(path);
  autodiff(before);
  numbers_compare(before, after, smooth, text);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
