/* The graph of a library: the model's outputs, without losses, metrics and the targets that only they read. */
#include "elaborate/elaborate.h"

bool has_outputs(const Graph *g) {
  if (g->n_outputs)
    return true;
  help(error_at(g->figures.n ? g->figures.at[0].span : NO_SPAN, "PD0821",
                "the model '%s' declares no output for a library to return", g->name),
       "declare one, such as 'output logits;', or build a generator with 'pdc library --generate'");
  return false;
}

void keep_outputs(Graph *g) {
  const int logged = graph_n_logged(g);
  for (int i = logged; i < g->figures.n; i++)
    g->figures.at[i - logged] = g->figures.at[i];
  g->figures.n -= logged;
  g->n_losses = 0;
}
