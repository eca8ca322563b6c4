/* PipeDream's plans as JSON. */
#include "pipedream/pipedream.h"
#include "base/json.h"

static void add_number(Text *t, const char *key, double x) {
  text_add(t, ", \"%s\": ", key);
  json_double(t, x);
}

void json_layers(const LayerGraph *g, const States *s, int from, int to, Text *t) {
  bool first = true;
  text_add(t, "\"layers\": [");
  for (int i = 0; i < g->layers.n; i++) {
    if (!state_has(s, to, i) || (from >= 0 && state_has(s, from, i)))
      continue;
    text_add(t, first ? "" : ", ");
    json_string(t, g->layers.at[i].name);
    first = false;
  }
  text_add(t, "]");
}

static void add_stages(const PipedreamPlan *p, const Division *d, int indent, Text *t) {
  const States *states = p->states;
  text_add(t, "\"stages\": [");
  for (int i = 0; i < d->n; i++) {
    const PipeStage *s = &d->stage[i];
    int64_t before = s->from < 0 ? 0 : states->parameters[s->from];
    text_add(t, "%s\n%*s{ \"machines\": %d, ", i ? "," : "", indent, "", s->machines);
    text_add(t, "\"parameter_bytes\": %lld, ", (long long)(states->parameters[s->to] - before));
    text_add(t, "\"output_bytes\": %lld", (long long)(s->to < states->n - 1 ? states->output[s->to] : 0));
    add_number(t, "seconds", s->seconds);
    add_number(t, "compute_seconds", s->compute);
    add_number(t, "exchange_seconds", s->exchange);
    add_number(t, "receive_seconds", s->receive);
    add_number(t, "send_seconds", s->send);
    text_add(t, ",\n%*s  ", indent, "");
    json_layers(p->graph, states, s->from, s->to, t);
    if (s->within) {
      text_add(t, ",\n%*s  ", indent, "");
      add_stages(p, s->within, indent + 4, t);
    }
    text_add(t, " }");
  }
  text_add(t, "\n%*s]", indent - 2, "");
}

void pipedream_json(const PipedreamPlan *p, FILE *out) {
  Text t = {0};
  text_add(&t, "{\n  \"model\": ");
  json_string(&t, p->graph->name);
  text_add(&t, ",\n  \"cost_model\": \"pipedream\",\n");
  if (p->device) {
    text_add(&t, "  \"device\": ");
    json_string(&t, p->device);
    text_add(&t, ",\n");
  }
  text_add(&t, "  \"transfers\": %s,\n  \"levels\": [", p->transfers ? "true" : "false");
  for (int i = 0; i < p->cluster->n; i++) {
    const ClusterLevel *l = &p->cluster->level[i];
    text_add(&t, "%s{ \"machines\": %d, \"bandwidth\": ", i ? ", " : "", l->count);
    json_double(&t, l->bandwidth);
    text_add(&t, " }");
  }
  text_add(&t, "],\n  \"seconds\": ");
  json_double(&t, p->division->seconds);
  add_number(&t, "one_machine_seconds", p->states->compute[p->states->n - 1]);
  add_number(&t, "data_parallel_seconds", pipedream_data_parallel(p->states, p->cluster));
  text_add(&t, ",\n  ");
  add_stages(p, p->division, 4, &t);
  text_add(&t, "\n}\n");
  fputs(t.at, out);
}
