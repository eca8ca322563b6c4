/* Input: a dump of stage programs. Reads and runs it. */
#include "fuzz.h"

#include "schedule/program.h"

static int run(const uint8_t *data, size_t size) {
  int n;
  Program *p = program_read("dump", (const char *)format("%.*s", (int)size, (const char *)data), &n);
  diagnostics_flush();
  char *why = NULL;
  if (p && p->period <= 64 && !verify_schedule(p, n, 3, &why) && !why) BUG("refused without a reason");
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
