/* Input: a layer profile in PipeDream's format or in JSON. Plans it. */
#include "fuzz.h"

#include <stdlib.h>

#include "pipedream/pipedream.h"

static int run(const uint8_t *data, size_t size) {
  static const Cluster clusters[] = {
      {.n = 1, .level = {{.count = 4, .bandwidth = 1e9}}},
      {.n = 2, .level = {{.count = 2, .bandwidth = 8e9}, {.count = 3, .bandwidth = 1e9}}},
  };
  const LayerGraph *g = layers_read(fuzz_file(data, size));
  for (int i = 0; g && i < g->layers.n; i++)
    for (int k = 0; k < g->layers.at[i].inputs.n; k++)
      if (g->layers.at[i].inputs.at[k] >= i) abort();
  enum { LARGE = 300 }; /* under a sanitizer, planning more layers leaves no time for other inputs */
  const States *s = g && g->layers.n < LARGE ? states_find(g, 0) : NULL;
  diagnostics_flush();
  if (!s || s->n > LARGE) return 0;
  FILE *out = fopen("/dev/null", "w");
  layers_table(g, s, 0, out);
  for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
    bool transfers = clusters[i].n > 1;
    PipedreamPlan p = {
        g, s, &clusters[i], transfers, pipedream_divide(s, &clusters[i], transfers), g->devices.at[0]};
    pipedream_table(&p, out);
    pipedream_json(&p, out);
  }
  fclose(out);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
