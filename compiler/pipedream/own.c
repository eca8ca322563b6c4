/* Plans of layer profiles by pdc's own planner, with PipeDream's plan in the same simulator. */
#include <math.h>
#include <string.h>

#include "pipedream/pipedream.h"
#include "base/json.h"

/* ---- PipeDream's stages -------------------------------------------------------------------------- */

typedef struct Flat {
  Ints end, replicas;
} Flat;

/* A stage of an upper level has `machines` copies of its inner stages. */
static void flatten(const Division *d, int groups, Flat *out) {
  for (int i = 0; i < d->n; i++) {
    const PipeStage *s = &d->stage[i];
    if (s->within) {
      flatten(s->within, groups * s->machines, out);
      continue;
    }
    push(&out->end, s->to);
    push(&out->replicas, groups * s->machines);
  }
}

LayerStages stages_of_division(const Division *d) {
  Flat flat = {0};
  flatten(d, 1, &flat);
  return (LayerStages){flat.end.n, flat.end.at, flat.replicas.at};
}

/* ---- output ---------------------------------------------------------------------------------------- */

typedef struct Own {
  const LayerProfile *profile;
  const Cluster *cluster;
  const Division *division; /* PipeDream's; NULL: skipped, too slow */
  LayerStages stages;       /* of `division` */
  LayerPlans plans;
} Own;

static const char *list_text(const int *x, int n) {
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_add(&t, "%s%d", i ? "," : "", x[i]);
  return t.at;
}

/* ---- tables ---------------------------------------------------------------------------------------- */

/* "3 of 12": recomputed pieces of the part. */
static const char *recompute_text(const Plan *plan, int part) {
  const StagePlan *s = &plan->stage[part];
  const bool whole = plan_recomputes(plan, part);
  int again = 0;
  for (int i = 0; s->again && s->again[i]; i++)
    again += s->again[i] == '1';
  return !again ? (whole ? "yes" : "no")
                : format("%s%d of %d", whole ? "yes, " : "", again, s->end_piece - s->first_piece);
}

static void print_stages(const LayerProfile *l, const LayerPlan *p, FILE *out) {
  static const char *const heads[] = {"stage",       "ranks",     "layers", "parameters", "forward ms",
                                      "backward ms", "update ms", "memory", "recompute",  "sends"};
  const Plan *plan = p->plan;
  const int columns = sizeof heads / sizeof *heads;
  Grid grid = {.columns = columns, .left = 2};
  for (int i = 0; i < columns; i++)
    push(&grid.cells, heads[i]);
  for (int i = 0; i < plan_parts(plan); i++) {
    const StagePlan *s = &plan->stage[i];
    int stage = plan_stage_of(plan, i), from = layer_plan_from(p, i), to = layer_plan_to(p, i);
    int64_t before = from < 0 ? 0 : l->states->parameters[from];
    push(&grid.cells,
         plan->pipeline.chunks > 1 ? format("%d.%d", stage, i / plan->pipeline.n_stages) : format("%d", stage));
    push(&grid.cells, format("%d", plan->pipeline.replicas[stage]));
    push(&grid.cells, layers_between(l->graph, l->states, from, to));
    push(&grid.cells, bytes_text(l->states->parameters[to] - before));
    push(&grid.cells, ms(s->forward_seconds));
    push(&grid.cells, ms(s->backward_seconds));
    push(&grid.cells, ms(s->update_seconds));
    push(&grid.cells, bytes_text(s->peak_bytes));
    push(&grid.cells, recompute_text(plan, i));
    push(&grid.cells, crossing_text(l->states, to));
  }
  print_grid(&grid, out);
}

static void print_other(const Own *o, FILE *out) {
  if (!o->division) {
    fprintf(out,
            "PipeDream's planner: skipped, because it would take minutes; run it with '--cost-model pipedream'\n");
    return;
  }
  fprintf(out, "PipeDream's planner: ranks by stage %s, %s ms a microbatch in its own model; ",
          list_text(o->stages.replicas, o->stages.n), ms(o->division->seconds));
  const Plan *other = o->plans.other.plan;
  if (!other) {
    fprintf(out, "not simulated: %s\n", o->plans.no_other);
    return;
  }
  double pace = plan_pace(other), own = plan_pace(o->plans.own.plan);
  fprintf(out, "simulated %s ms", ms(pace));
  if (own > 0 && fabs(pace / own - 1) >= 0.0005)
    fprintf(out, ", %.3f times as long", pace / own);
  fprintf(out, "\n");
}

static void print_own(const Own *o, FILE *out) {
  const LayerProfile *l = o->profile;
  const Plan *plan = o->plans.own.plan;
  const Pipeline *p = &plan->pipeline;
  const int device = l->device;
  Name times = l->graph->devices.at[device];
  int pieces = o->plans.own.chain.n;
  fprintf(out, "%s: %d layer%s, %d place%s to cut in a row; %s\n", l->graph->name, l->graph->layers.n,
          plural(l->graph->layers.n), pieces - 1, plural(pieces - 1), machines_text(o->cluster));
  fprintf(out, "schedule %s, %lld microbatch%s a batch%s%s%s\n\n", p->schedule, (long long)p->microbatches,
          p->microbatches == 1 ? "" : "es", times ? "; times on " : "", times ? times : "",
          p->ahead[0] > 1 ? "; one more in flight between stages hides messages" : "");
  print_stages(l, &o->plans.own, out);
  double pace = plan_pace(plan), one = l->states->compute[l->states->n - 1];
  fprintf(out, "\npredicted: %s ms a microbatch, %s ms a batch, %.1f %% of the machines' time spent waiting\n",
          ms(pace), ms(plan->batch_seconds), plan_waiting(plan) * 100);
  if (pace > 0)
    fprintf(out, "throughput: %.3f times that of one machine (%s ms, without updates)\n", one / pace, ms(one));
  print_other(o, out);
}

/* ---- JSON ------------------------------------------------------------------------------------------ */

static void add_number(Text *t, const char *key, double x) {
  text_add(t, ", \"%s\": ", key);
  json_double(t, x);
}

/* The recomputed layers of a part: those that enter the chain of states with a recomputed piece. */
static void add_recomputed(const LayerProfile *l, const LayerPlan *p, int part, Text *t) {
  const StagePlan *s = &p->plan->stage[part];
  bool first = true;
  if (!part_recomputes(p->plan, part)) {
    text_add(t, "false");
    return;
  }
  text_add(t, "{ \"layers\": [");
  for (int k = s->first_piece; s->again && k < s->end_piece; k++)
    for (int i = 0; s->again[k - s->first_piece] == '1' && i < l->graph->layers.n; i++) {
      if (!state_has(l->states, p->chain.at[k], i) || (k > 0 && state_has(l->states, p->chain.at[k - 1], i)))
        continue;
      text_add(t, first ? "" : ", ");
      json_string(t, l->graph->layers.at[i].name);
      first = false;
    }
  text_add(t, "], \"whole\": %s, \"saves_bytes\": %lld", plan_recomputes(p->plan, part) ? "true" : "false",
           (long long)s->again_bytes);
  add_number(t, "adds_seconds", recomputed_seconds(p->plan, part));
  text_add(t, " }");
}

static void add_plan(const LayerProfile *l, const LayerPlan *p, int indent, Text *t) {
  const Plan *plan = p->plan;
  const Pipeline *pipeline = &plan->pipeline;
  text_add(t, "\"microbatches\": %lld", (long long)pipeline->microbatches);
  add_number(t, "seconds", plan_pace(plan));
  add_number(t, "batch_seconds", plan->batch_seconds);
  add_number(t, "waiting", plan_waiting(plan));
  text_add(t, ",\n%*s\"stages\": [", indent, "");
  for (int i = 0; i < plan_parts(plan); i++) {
    const StagePlan *s = &plan->stage[i];
    int stage = plan_stage_of(plan, i), from = layer_plan_from(p, i), to = layer_plan_to(p, i);
    text_add(t, "%s\n%*s{ \"replicas\": %d, \"ahead\": %d, \"recompute\": ", i ? "," : "", indent + 2, "",
             pipeline->replicas[stage], pipeline->ahead[stage]);
    add_recomputed(l, p, i, t);
    add_number(t, "forward_seconds", s->forward_seconds);
    add_number(t, "backward_seconds", s->backward_seconds);
    add_number(t, "update_seconds", s->update_seconds);
    text_add(t, ", \"memory_bytes\": %lld", (long long)s->peak_bytes);
    text_add(t, ", \"parameter_bytes\": %lld",
             (long long)(l->states->parameters[to] - (from < 0 ? 0 : l->states->parameters[from])));
    text_add(t, ", \"output_bytes\": %lld,\n%*s  ", (long long)(to < l->states->n - 1 ? l->states->output[to] : 0),
             indent + 2, "");
    json_layers(l->graph, l->states, from, to, t);
    text_add(t, " }");
  }
  text_add(t, "\n%*s]", indent, "");
}

static void add_other(const Own *o, Text *t) {
  text_add(t, ",\n  \"pipedream\": { \"replicas\": [%s]", list_text(o->stages.replicas, o->stages.n));
  add_number(t, "own_seconds", o->division->seconds);
  if (o->plans.other.plan) {
    text_add(t, ",\n    ");
    add_plan(o->profile, &o->plans.other, 4, t);
  }
  text_add(t, " }");
}

static void print_json(const Own *o, FILE *out) {
  Text t = {0};
  const LayerProfile *l = o->profile;
  Name times = l->graph->devices.at[l->device];
  text_add(&t, "{\n  \"model\": ");
  json_string(&t, l->graph->name);
  text_add(&t, ",\n  \"cost_model\": \"pdc\",\n");
  if (times) {
    text_add(&t, "  \"device\": ");
    json_string(&t, times);
    text_add(&t, ",\n");
  }
  text_add(&t, "  \"levels\": [");
  for (int i = 0; i < o->cluster->n; i++) {
    const ClusterLevel *level = &o->cluster->level[i];
    text_add(&t, "%s{ \"machines\": %d", i ? ", " : "", level->count);
    if (level->bandwidth > 0)
      add_number(&t, "bandwidth", level->bandwidth);
    text_add(&t, " }");
  }
  text_add(&t, "],\n  \"schedule\": \"%s\", ", o->plans.own.plan->pipeline.schedule);
  add_plan(l, &o->plans.own, 2, &t);
  if (o->division)
    add_other(o, &t);
  text_add(&t, "\n}\n");
  fputs(t.at, out);
}

/* ---- the command ------------------------------------------------------------------------------------ */

/* The default target is cuda, because profiles are measured on GPUs. */
static PlanRequest request_of(const PlanRequest *asked, const Cluster *cluster) {
  PlanRequest q = *asked;
  q.workers = q.workers ? q.workers : cluster_devices(cluster);
  q.target.backend = q.target.backend ? q.target.backend : backend_find("cuda");
  q.profile = NULL;
  return q;
}

static void tell_unused(int machines, int used) {
  if (used == machines)
    return;
  Diagnostic *d = warning_at(NO_SPAN, "PD0510", "of %d machines, the plan uses only %d", machines, used);
  note_at(d, NO_SPAN,
          "more ranks would not make a batch faster: the ranks of a stage share its microbatches evenly");
  help(d, "set the number of microbatches per batch with '--microbatches'");
}

static bool is_open(const PlanRequest *q) { return q->schedule && !strcmp(q->schedule, "auto"); }

/* Refuses options for several schedules together with a fixed schedule. */
static bool schedules_agree(const LayersRequest *r, const PlanRequest *q) {
  if (r->compare && (q->schedule || q->delay)) {
    help(error_at(NO_SPAN, "PD0511", "--compare plans all training schedules and cannot be combined with '%s'",
                  q->schedule ? "--schedule" : "--delay"),
         "leave one of them out");
    return false;
  }
  if (q->delay && !is_open(q)) {
    help(error_at(NO_SPAN, "PD0511", "--delay selects among schedules, but the schedule is fixed"),
         "use '--schedule auto', or leave '--delay' out");
    return false;
  }
  return true;
}

/* Time limit in seconds of PipeDream's planner, which is for comparison only. */
static const double PATIENCE = 5;

bool plan_layers_ourselves(const LayerProfile *l, const LayersRequest *r, const PlanRequest *plan, bool json,
                           FILE *out) {
  Cluster cluster = r->cluster ? *r->cluster : r->levels;
  PlanRequest q = request_of(plan, &cluster);
  if (!r->cluster && !r->n_bandwidths)
    cluster.level[0].bandwidth = layer_bandwidth(&q);
  const LayersJob job = {l, &q, &cluster, r->microbatches};
  if (!schedules_agree(r, &q))
    return false;
  if (r->compare)
    return layers_compare(&job, out);
  if (is_open(&q)) {
    q.schedule = layers_fastest_schedule(&job);
    q.delay = DELAY_FREE;
  }
  Own o = {.profile = l, .cluster = &cluster};
  if (pipedream_effort(l->states, &cluster) < PATIENCE) {
    o.division = pipedream_divide(l->states, &cluster, r->transfers);
    o.stages = stages_of_division(o.division);
  }
  if (!layer_plans_make(l, &q, &cluster, r->microbatches, o.division ? &o.stages : NULL, &o.plans))
    return false;
  tell_unused(o.plans.ranks, pipeline_ranks(&o.plans.own.plan->pipeline));
  if (json)
    print_json(&o, out);
  else
    print_own(&o, out);
  return true;
}
