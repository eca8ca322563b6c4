/* Input: a plan.json, possibly edited. */
#include "fuzz.h"

#include "plan/request.h"

static int run(const uint8_t *data, size_t size) {
  Plan *plan = plan_read(fuzz_graph(), fuzz_pieces(), fuzz_file(data, size));
  diagnostics_flush();
  if (plan) plan_verify(fuzz_graph(), fuzz_pieces(), plan);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
