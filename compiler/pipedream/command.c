/* pdc plan --profile FILE without a model: prints the plan of a layer profile. */
#include "pipedream/pipedream.h"

static bool refuse(const char *what, const char *way_out) {
  Diagnostic *d = error_at(NO_SPAN, "PD0529", "%s", what);
  help(d, "%s", way_out);
  return false;
}

/* Index of a device of the graph; -1 after a diagnostic. */
static int find_device(const LayerGraph *g, const char *name) {
  for (int i = 0; i < g->devices.n; i++)
    if (!name || g->devices.at[i] == intern(name))
      return i;
  Diagnostic *d = error_at((Span){.file = g->file}, "PD0529", "the profile has no device '%s'", name);
  const char *near = g->devices.at[0] ? nearest(name, g->devices.at, g->devices.n) : NULL;
  if (near)
    help(d, "did you mean '%s'?", near);
  else
    help(d,
         g->devices.at[0] ? "the first device of the profile is '%s'"
                          : "the profile has one unnamed device: leave '--device' out",
         g->devices.at[0]);
  return -1;
}

/* Checks machines, the bandwidth of each level, and the cost model. */
static bool check_request(const LayersRequest *r) {
  const Cluster *c = &r->levels;
  if (r->cluster && (c->n || r->n_bandwidths))
    return refuse("'--cluster' already defines the machines and their links", "leave '-n' and '--bandwidth' out");
  if (!r->cluster && !c->n && (r->model || r->n_bandwidths || r->transfers))
    return refuse("the number of machines is missing",
                  "add '-n 4', or '-n 4x2' for two groups of four, or '--cluster'");
  for (int i = 0; i < c->n; i++)
    if (c->level[i].count > MOST_MACHINES)
      return refuse(format("%d machines at one level", c->level[i].count),
                    format("use at most %d, or more levels: '-n 8x512'", MOST_MACHINES));
  if (r->cluster)
    return true;
  bool alone = c->n == 1 && c->level[0].count == 1, ours = r->model == MODEL_NONE && c->n == 1;
  if (!((alone || ours) && !r->n_bandwidths) && c->n != r->n_bandwidths)
    return refuse(format("'-n' has %d level%s of machines, and '--bandwidth' has %d", c->n, c->n == 1 ? "" : "s",
                         r->n_bandwidths),
                  c->n < 2 ? "for example '-n 4 --bandwidth 8e9'"
                           : "for example '-n 4x2 --bandwidth 8e9,1.25e9': within a group, then between groups");
  return true;
}

static void tell_effort(const States *s, const Cluster *c) {
  const double LONG = 20, seconds = pipedream_effort(s, c);
  if (seconds < LONG)
    return;
  Diagnostic *d =
      warning_at(NO_SPAN, "PD0552", "%d places to cut and %d machines: planning may take %.0f minute%s", s->n - 1,
                 cluster_devices(c), seconds / 60 + 1, seconds < 60 ? "" : "s");
  help(d, "combine several layers of the model into one, or use fewer machines per level");
}

/* Warns of merged layers, largest first, unless the plan is known to be optimal. least: lower bound of `seconds`;
 * both 0: unknown. */
static void tell_contracted(const LayerGraph *g, const States *s, int device, double seconds, double least) {
  enum { SHOWN = 3 };
  const bool exact = seconds > 0 && least >= seconds;
  ContractedGroup largest[SHOWN];
  const int n = exact ? 0 : states_largest_groups(g, s, device, largest, SHOWN);
  if (n == 0)
    return;
  Diagnostic *d = warning_at((Span){.file = g->file}, "PD0560",
                             "the profile can be cut in more than %d ways: %d of %d layers are merged into %d",
                             MOST_STATES, s->contracted, g->layers.n, s->groups);
  for (int i = 0; i < n; i++)
    note_at(d, NO_SPAN, "no stage ends within the %d layers %s .. %s (%.3f ms)", largest[i].layers,
            largest[i].first, largest[i].last, largest[i].seconds * 1e3);
  if (seconds > 0)
    note_at(d, NO_SPAN, "a plan with cuts there would be at most %.1f %% faster", (1 - least / seconds) * 100);
  help(d, "to avoid this, combine whole branches into one layer of the file");
}

bool plan_layers(const LayersRequest *r, const PlanRequest *plan, bool json, FILE *out) {
  if (!check_request(r))
    return false;
  const LayerGraph *g = layers_read(plan->profile);
  int device = g ? find_device(g, r->device) : -1;
  const States *s = device < 0 ? NULL : states_find(g, device);
  if (!s)
    return false;
  const Cluster *cluster = r->cluster ? r->cluster : &r->levels;
  if (!cluster->n || !r->model)
    tell_contracted(g, s, device, 0, 0);
  if (!cluster->n) {
    layers_table(g, s, device, out);
    return true;
  }
  if (!r->model)
    return plan_layers_ourselves(&(LayerProfile){g, device, s}, r, plan, json, out);
  tell_effort(s, cluster);
  PipedreamPlan p = {
      g, s, cluster, r->transfers, pipedream_divide(s, cluster, r->transfers), g->devices.at[device]};
  const double seconds = p.division->seconds;
  tell_contracted(g, s, device, seconds, pipedream_least_seconds(g, s, cluster, r->transfers, seconds));
  if (json)
    pipedream_json(&p, out);
  else
    pipedream_table(&p, out);
  return true;
}
