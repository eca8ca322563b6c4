/* Input: a .pdm file. Compiles it to the simplified graph and its pieces; for a small model, the interpreter's
 * results before and after the passes must agree. Inputs mutate by words (words.c) or by bytes. */
#include "fuzz.h"

#include <string.h>

#include "autodiff/autodiff.h"
#include "elaborate/elaborate.h"
#include "numbers.h"
#include "words.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size,
                                 uint8_t *out, size_t most, unsigned seed);

static int run(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  Ast *file = parse_file(path);
  Graph *g = file ? elaborate(file, &(ElaborateOptions){0}) : NULL, *before = NULL;
  if (g && numbers_can_be_compared(g)) before = elaborate(file, &(ElaborateOptions){0});
  diagnostics_flush();
  if (!g) return 0;
  fuzz_passes(g);
  if (!before) return 0;
  autodiff(before);
  numbers_compare(before, g, false, format("%.*s", (int)size, (const char *)data));
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return seed % 8 ? words_mutate(data, size, most, seed / 8) : LLVMFuzzerMutate(data, size, most);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size,
                                 uint8_t *out, size_t most, unsigned seed) {
  return words_cross(one, one_size, other, other_size, out, most, seed);
}
