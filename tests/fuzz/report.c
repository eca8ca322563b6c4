/* Input: an edited file of a run; the first byte selects l (log), t (trace) or p (plan). */
#include "fuzz.h"

#include "report/report.h"

static void put(const char *json) {
  if (json) page_make(PAGE_OF_RUN, "fuzz", json);
}

static void put_timeline(const Timeline *t) {
  Text text = {0};
  if (!t) return;
  timeline_json(t, &text);
  put(text.at);
}

static int run(const uint8_t *data, size_t size) {
  const char *why, *path;
  bool evaluates = false;
  if (size == 0) return 0;
  path = fuzz_file(data + 1, size - 1);
  if (data[0] == 'l')
    put(read_log(path, &evaluates));
  else if (data[0] == 't')
    put_timeline(read_trace(path));
  else if (data[0] == 'p') {
    PlanFile plan;
    if (plan_file_read(path, PLAN_TO_DRAW, &plan)) put_timeline(predict(&plan, evaluates, &why));
  }
  diagnostics_flush();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
