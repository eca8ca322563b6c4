/* Layer profiles and PipeDream's plans as tables for users. */
#include <string.h>

#include "pipedream/pipedream.h"

enum { MOST_COLUMNS = 10 };

void print_grid(const Grid *g, FILE *out) {
  int width[MOST_COLUMNS] = {0};
  for (int i = 0; i < g->cells.n; i++) {
    int n = (int)strlen(g->cells.at[i]);
    width[i % g->columns] = n > width[i % g->columns] ? n : width[i % g->columns];
  }
  for (int i = 0; i < g->cells.n; i++) {
    int column = i % g->columns, w = column == g->left ? -width[column] : width[column];
    fprintf(out, "%s%*s%s", column ? "  " : "", w, g->cells.at[i], column == g->columns - 1 ? "\n" : "");
  }
}

const char *ms(double seconds) { return format("%.3f", seconds * 1e3); }

static const char *layer_text(const Layer *l) {
  return l->kind && *l->kind ? format("%s %s", l->name, l->kind) : l->name;
}

const char *layers_between(const LayerGraph *g, const States *s, int from, int to) {
  int first = -1, last = -1;
  for (int i = 0; i < g->layers.n; i++)
    if (state_has(s, to, i) && (from < 0 || !state_has(s, from, i))) {
      first = first < 0 ? i : first;
      last = i;
    }
  const char *text = layer_text(&g->layers.at[first]);
  return first == last ? text : format("%s .. %s", text, layer_text(&g->layers.at[last]));
}

const char *crossing_text(const States *s, int state) {
  if (state == s->n - 1)
    return "-";
  const char *bytes = bytes_text(s->output[state]);
  return s->values[state] > 1 ? format("%s in %d", bytes, s->values[state]) : bytes;
}

const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* ---- a profile ------------------------------------------------------------------------------------ */

void layers_table(const LayerGraph *g, const States *s, int device, FILE *out) {
  double forward = 0, backward = 0;
  int edges = 0, heaviest = 0;
  for (int i = 0; i < g->layers.n; i++) {
    const Layer *l = &g->layers.at[i], *most = &g->layers.at[heaviest];
    forward += l->forward[device];
    backward += l->backward[device];
    edges += l->inputs.n;
    if (l->forward[device] + l->backward[device] > most->forward[device] + most->backward[device])
      heaviest = i;
  }
  const Layer *l = &g->layers.at[heaviest];
  fprintf(out, "%s: %d layer%s, %d edge%s, %d place%s to cut\n", g->name, g->layers.n, plural(g->layers.n), edges,
          plural(edges), s->n - 1, plural(s->n - 1));
  fprintf(out, "a microbatch: %s ms forward, %s ms backward; %s of parameters\n", ms(forward), ms(backward),
          bytes_text(s->parameters[s->n - 1]));
  fprintf(out, "the slowest layer: %s, %s ms\n", layer_text(l), ms(l->forward[device] + l->backward[device]));
  for (int i = 0; i < g->devices.n && g->devices.n > 1; i++)
    fprintf(out, "%s%s%s", i ? ", " : "devices: ", g->devices.at[i], i + 1 == g->devices.n ? "\n" : "");
}

/* ---- a plan ----------------------------------------------------------------------------------------- */

static const char *rate_text(double bytes) {
  return bytes >= 1e9   ? format("%.4g GB/s", bytes / 1e9)
         : bytes >= 1e6 ? format("%.4g MB/s", bytes / 1e6)
                        : format("%.4g bytes/s", bytes);
}

const char *machines_text(const Cluster *c) {
  Text t = {0};
  int machines = cluster_devices(c);
  text_add(&t, "%d machine%s", machines, plural(machines));
  if (c->n > 1)
    text_add(&t, ": %d", c->level[0].count);
  for (int i = 0; i < c->n && machines > 1; i++) {
    if (i)
      text_add(&t, ", %d such groups", c->level[i].count);
    if (c->level[i].bandwidth > 0)
      text_add(&t, " at %s", rate_text(c->level[i].bandwidth));
  }
  return t.at;
}

static void print_head(const PipedreamPlan *p, FILE *out) {
  fprintf(out, "%s: %d layer%s, %d place%s to cut; %s", p->graph->name, p->graph->layers.n,
          plural(p->graph->layers.n), p->states->n - 1, plural(p->states->n - 1), machines_text(p->cluster));
  fprintf(out, "\nPipeDream's cost model, transfers %s%s%s\n\n", p->transfers ? "counted" : "not counted",
          p->device ? "; times on " : "", p->device ? p->device : "");
}

static void add_stages(const PipedreamPlan *p, const Division *d, const char *prefix, Grid *grid) {
  for (int i = 0; i < d->n; i++) {
    const PipeStage *s = &d->stage[i];
    const States *states = p->states;
    const char *number = format("%s%d", prefix, i);
    push(&grid->cells, number);
    push(&grid->cells, format(d->level ? "%d group%s" : "%d", s->machines, plural(s->machines)));
    push(&grid->cells, layers_between(p->graph, states, s->from, s->to));
    push(&grid->cells, bytes_text(states->parameters[s->to] - (s->from < 0 ? 0 : states->parameters[s->from])));
    push(&grid->cells, ms(s->compute));
    push(&grid->cells, ms(s->exchange));
    if (p->transfers) {
      push(&grid->cells, ms(s->receive));
      push(&grid->cells, ms(s->send));
    }
    push(&grid->cells, ms(s->seconds));
    push(&grid->cells, crossing_text(states, s->to));
    if (s->within)
      add_stages(p, s->within, format("%s.", number), grid);
  }
}

static void print_stages(const PipedreamPlan *p, FILE *out) {
  static const char *const heads[MOST_COLUMNS] = {"stage",      "machines",    "layers",     "parameters",
                                                  "compute ms", "exchange ms", "receive ms", "send ms",
                                                  "time ms",    "sends"};
  Grid grid = {.left = 2};
  for (int i = 0; i < MOST_COLUMNS; i++)
    if (p->transfers || (i != 6 && i != 7))
      push(&grid.cells, heads[i]);
  grid.columns = grid.cells.n;
  add_stages(p, p->division, "", &grid);
  print_grid(&grid, out);
}

static void print_end(const PipedreamPlan *p, FILE *out) {
  const Division *d = p->division;
  int slowest = 0;
  for (int i = 0; i < d->n; i++)
    if (d->stage[i].seconds > d->stage[slowest].seconds)
      slowest = i;
  const PipeStage *s = &d->stage[slowest];
  double one = p->states->compute[p->states->n - 1], parallel = pipedream_data_parallel(p->states, p->cluster);
  const char *why = s->seconds <= s->compute + s->exchange ? "compute and exchange"
                    : s->seconds <= s->receive             ? "receiving messages"
                                                           : "sending messages";
  fprintf(out, "\nslowest: stage %d, %s ms a microbatch: %s\n", slowest, ms(d->seconds), why);
  if (d->seconds > 0)
    fprintf(out,
            "throughput: %.3f times that of one machine (%s ms), %.3f times that of data parallelism (%s ms)\n",
            one / d->seconds, ms(one), parallel / d->seconds, ms(parallel));
}

void pipedream_table(const PipedreamPlan *p, FILE *out) {
  print_head(p, out);
  print_stages(p, out);
  print_end(p, out);
}
