/* Layer profiles as a subject of the planner: costs of pieces of a chain of states, and their plans. */
#include <math.h>

#include "plan/answer.h"
#include "plan/layers.h"

/* ---- costs ---------------------------------------------------------------------------------------- */

typedef struct Row {
  const LayerProfile *profile;
  Ints chain; /* of states */
} Row;

/* The piece that computes a layer. */
static int piece_of_layer(const Row *row, int layer) {
  int low = 0, high = row->chain.n - 1;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (state_has(row->profile->states, row->chain.at[middle], layer))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Updates read and write moments and weights, and read gradients. */
static const Holdings *layer_holdings(int n, const int64_t *parameters, int moments, const Rates *rates) {
  const int traffic = 3 + 2 * moments;
  Holding *holding = alloc((size_t)n * sizeof *holding);
  int *piece = alloc((size_t)n * sizeof *piece);
  for (int i = 0; i < n; i++) {
    int64_t bytes = parameters[i];
    piece[i] = i;
    holding[i] = (Holding){{.weights = bytes,
                            .masters = bytes,
                            .moments = moments * bytes,
                            .update = traffic * (double)bytes / rates->stream},
                           1,
                           &piece[i]};
  }
  return holdings_make(n, holding, n);
}

/* Profiles do not divide backward passes: half of a layer with parameters counts as weight gradients. */
static const double PRODUCTS = 0.5;

/* Recomputation, if a layer saves more than its output: each piece is a block of its own, and repeated values take the
 * memory of the largest piece. */
static void set_again(const Row *row, Costs *c) {
  const LayerProfile *l = row->profile;
  const size_t n = (size_t)c->n;
  int64_t *gain = alloc(n * sizeof *gain), *lasting = alloc(n * sizeof *lasting);
  double *repeat = alloc(n * sizeof *repeat);
  int *unit = alloc(n * sizeof *unit);
  bool *within = alloc(n), any = false;
  for (int i = 0; i < l->graph->layers.n; i++) {
    const Layer *layer = &l->graph->layers.at[i];
    const int k = piece_of_layer(row, i);
    gain[k] += layer_saved(layer) - layer_saved_again(layer);
    lasting[k] += layer->again.lasting;
    repeat[k] += layer->again.seconds ? layer->again.seconds[l->device] : layer->forward[l->device];
  }
  for (int k = 0; k < c->n; k++)
    unit[k] = k, any |= within[k] = gain[k] > 0;
  if (!any)
    return;
  c->all_saved = c->saved, c->gain = gain, c->late = alloc(n * sizeof *c->late), c->repeat = repeat;
  c->unit = c->block = unit, c->within = within, c->again_lasting = lasting;
}

static void set_pieces(const Row *row, const Rates *rates, Costs *c) {
  const LayerProfile *l = row->profile;
  size_t n = (size_t)c->n;
  double *forward = alloc(n * sizeof *forward), *backward = alloc(n * sizeof *backward);
  double *products = alloc(n * sizeof *products);
  int64_t *parameters = alloc(n * sizeof *parameters), *saved = alloc(n * sizeof *saved);
  int64_t *work = alloc(n * sizeof *work), *deferred = alloc(n * sizeof *deferred),
          *gradients = alloc(n * sizeof *gradients), *none = alloc(n * sizeof *none);
  for (int i = 0; i < l->graph->layers.n; i++) {
    const Layer *layer = &l->graph->layers.at[i];
    int k = piece_of_layer(row, i);
    forward[k] += layer->forward[l->device];
    backward[k] += layer->backward[l->device];
    products[k] += layer->parameters ? PRODUCTS * layer->backward[l->device] : 0;
    parameters[k] += layer->parameters;
    gradients[k] += layer->parameters * l->graph->gradients;
    saved[k] += layer_saved(layer);
    deferred[k] += layer->parameters ? layer->output : 0;
    work[k] = layer->output > work[k] ? layer->output : work[k];
  }
  c->forward = forward, c->backward = backward, c->products = products;
  c->gradients = gradients, c->saved = saved, c->work = work, c->deferred = deferred;
  c->inputs = none;
  c->holdings = layer_holdings(c->n, parameters, l->graph->moments, rates);
  set_again(row, c);
}

static void set_cuts(const Row *row, const Rates *rates, Costs *c) {
  size_t side = (size_t)c->n + 1;
  int64_t *bytes = alloc(side * sizeof *bytes);
  double *message = alloc(side * sizeof *message), *receive = alloc(side * sizeof *receive);
  for (int i = 1; i < c->n; i++) {
    bytes[i] = row->profile->states->output[row->chain.at[i - 1]];
    message[i] = (double)bytes[i];
    receive[i] = rates->beside ? message[i] / rates->stream : 0; /* copied into device memory */
  }
  c->activations = c->activation_gradients = bytes;
  c->message = message;
  c->receive = c->receive_gradient = receive;
}

static Costs *price(const Planner *r, int64_t b, int kind) {
  const Row *row = r->subject.context;
  Costs *c = alloc(sizeof *c);
  *c = (Costs){.n = row->chain.n,
               .share = (double)b / (double)r->subject.batch,
               .exchange = link_byte(&r->topology.link[r->topology.n - 1], 1),
               .beside = r->rates[kind].beside};
  set_pieces(row, &r->rates[kind], c);
  set_cuts(row, &r->rates[kind], c);
  return c;
}

/* ---- the subject ----------------------------------------------------------------------------------- */

/* Layer profiles have no clipping and no tied parameters. */
static bool *exchanges(const Planner *r, const Plan *plan) {
  (void)r;
  return alloc((size_t)plan->pipeline.n_stages);
}

static int find(const Planner *r, Name name) {
  const Row *row = r->subject.context;
  const LayerGraph *g = row->profile->graph;
  for (int i = 0; i < g->layers.n; i++)
    if (g->layers.at[i].name == name)
      return piece_of_layer(row, i);
  const char **names = alloc((size_t)g->layers.n * sizeof *names);
  for (int i = 0; i < g->layers.n; i++)
    names[i] = g->layers.at[i].name;
  const char *near = nearest(name, names, g->layers.n);
  Diagnostic *d = error_at(NO_SPAN, "PD0503", "--split: the profile has no layer '%s'", name);
  if (near)
    help(d, "did you mean '%s'?", near);
  return -1;
}

static Subject layer_subject(const Row *row, int64_t microbatches) {
  return (Subject){.name = row->profile->graph->name,
                   .n = row->chain.n,
                   .batch = microbatches,
                   .price = price,
                   .exchanges = exchanges,
                   .find = find,
                   .context = row};
}

/* ---- microbatches ----------------------------------------------------------------------------------- */

int64_t layer_microbatches(int ranks) {
  enum { SHARED = 8, EACH = 4 };
  int64_t n = 1;
  for (int i = 2; i <= ranks && i <= SHARED; i++)
    n = common_multiple(n, i);
  int64_t least = (int64_t)EACH * ranks;
  return (least + n - 1) / n * n;
}

double layer_bandwidth(const PlanRequest *request) {
  bool assumed;
  const DeviceKind *kind = backend_of(&request->target)->device->kind(request->arch, &assumed);
  return device_rates(kind, &request->target).bandwidth;
}

typedef Vec(int64_t) Counts;

/* Candidate microbatches per batch: one number, except for schedules with one update per round of replicas. Rounds
 * of more than two turns per rank are excluded: there are many, and few are faster. Rounds near the number of
 * ranks come first, because they often win and exclude others early. */
static Counts counts_of(const Planner *r, int64_t asked) {
  Counts counts = {0};
  int64_t least, multiple;
  schedule_needs(&r->form, &least, &multiple);
  if (asked || !r->traits.every_round)
    push(&counts, asked ? asked : layer_microbatches(r->ranks));
  else if (!r->free_replicas)
    push(&counts, multiple);
  else
    for (int64_t n = 0; n < 2 * (int64_t)r->ranks; n++) {
      const int64_t round = n < r->ranks ? r->ranks - n : n + 1;
      if (round_ranks(round, 1) <= r->ranks)
        push(&counts, round);
    }
  return counts;
}

/* ---- plans ------------------------------------------------------------------------------------------ */

typedef struct Job {
  const LayerProfile *profile;
  const PlanRequest *request;
  const Cluster *levels;
} Job;

/* Prepares a planner of the row's pieces; false after a diagnostic. */
static bool prepare(const Job *job, const Row *row, int64_t microbatches, Planner *r) {
  Subject subject = layer_subject(row, microbatches);
  return planner_prepare_layers(r, &subject, job->request, job->levels);
}

static bool faster(const Plan *a, const Plan *b) { return !b || plan_pace(a) < plan_pace(b); }

static void take(LayerPlan *best, Plan *plan, const Row *row) {
  plan->costs = internf("profile %s", row->profile->graph->name);
  if (faster(plan, best->plan))
    *best = (LayerPlan){plan, row->chain};
}

/* Plans all candidate counts of microbatches; `none` is the reason of the last. */
static bool choose(const Job *job, const Row *row, int64_t asked, LayerPlan *best, Planner *r, NoPlan *none) {
  if (!prepare(job, row, 1, r))
    return false;
  Counts counts = counts_of(r, asked);
  for (int i = 0; i < counts.n; i++) {
    if (!prepare(job, row, counts.at[i], r))
      return false;
    r->known = best->plan ? plan_pace(best->plan) * (double)counts.at[i] : 0;
    Plan *plan = plan_choose(r, NULL, 0, none);
    if (plan)
      take(best, plan, row);
  }
  return true;
}

static int place_of(const Ints *chain, int state) {
  for (int i = 0; i < chain->n; i++)
    if (chain->at[i] == state)
      return i;
  return -1;
}

/* Whether the request leaves stages free. */
static bool leaves_open(const PlanRequest *q, const Planner *r, int ranks) {
  return !q->stages && !q->split && !q->replicas && ranks <= r->ranks;
}

/* Whether the candidate is close to the best plan, so that moved cuts may overtake it. */
static bool may_lead(const Planner *r, const Candidate *c, const Plan *best) {
  Partition part;
  if (!best)
    return true;
  return plan_pace(c->plan) < CLOSE_LAYERS * plan_pace(best) && candidate_partition(r, c, INT64_MAX, &part) &&
         part.value < plan_pace(best);
}

/* Simulates the given stages, and refines them into a plan of our own. */
static void simulate_other(const Job *job, const Row *row, int64_t asked, const LayerStages *stages,
                           LayerPlans *out) {
  Planner r;
  int64_t least, multiple;
  int *start = alloc((size_t)stages->n * sizeof *start);
  if (!prepare(job, row, 1, &r))
    return;
  Pipeline form = form_make(&r, stages->n, stages->replicas);
  if ((!r.traits.replicas && !form_is_plain(&form)) || form.chunks > 1) {
    out->no_other = format("'%s' does not run it", form.schedule);
    return;
  }
  schedule_needs(&form, &least, &multiple);
  int64_t usual = r.traits.every_round ? multiple : layer_microbatches(r.ranks);
  if (!prepare(job, row, asked ? asked : usual, &r))
    return;
  if (!schedule_allows(&form, r.subject.batch)) {
    out->no_other = format("it needs %s %lld microbatches a batch",
                           r.traits.every_round ? "exactly" : "multiples of", (long long)multiple);
    return;
  }
  for (int i = 1; i < stages->n; i++)
    start[i] = place_of(&row->chain, stages->end[i - 1]) + 1;
  Candidate c = candidate_of(&r, &form, &(Placement){0}, 1, spans_at(&r, 1), job->request->recompute, start, 0);
  settle(&r, &c);
  if (!c.settled) {
    out->no_other = format("it needs %s on a device", bytes_text(largest_peak(c.plan)));
    return;
  }
  take(&out->other, c.plan, row);
  if (!leaves_open(job->request, &r, pipeline_ranks(&form)))
    return;
  c.pinned = NULL;
  if (may_lead(&r, &c, out->own.plan))
    refine(&r, &c, EFFORT_USUAL);
  take(&out->own, c.plan, row);
}

/* ---- diagnostics ------------------------------------------------------------------------------------- */

static void tell_no_form(const Planner *r, int64_t asked) {
  Diagnostic *d = error_at(NO_SPAN, "PD0550", "'%s' cannot run on %d machine%s with %lld microbatch%s %s",
                           r->form.schedule, r->ranks, r->ranks == 1 ? "" : "s", (long long)r->subject.batch,
                           r->subject.batch == 1 ? "" : "es", schedule_period(r->form.schedule));
  int64_t least, multiple;
  schedule_needs(&r->form, &least, &multiple);
  if (r->traits.every_round && asked)
    help(d, "leave '--microbatches' out: the default is the least common multiple of the stages' ranks");
  else
    help(d, "'--microbatches %lld'", (long long)least);
}

static void tell_nothing_fits_layers(const Planner *r, const Plan *miss) {
  Diagnostic *d = error_at(NO_SPAN, "PD0551", "no plan fits into %d machine%s with %s", r->ranks,
                           r->ranks == 1 ? "" : "s", bytes_text(r->memory.arena));
  if (miss)
    note_at(d, NO_SPAN, "the smallest plan needs %s", bytes_text(largest_peak(miss)));
  help(d, r->request->recompute == RECOMPUTE_OFF ? "use '--recompute auto' or more machines"
          : r->traits.drains ? "use more machines, or a larger '--memory' if the machines have more"
                             : "use more machines, or '--schedule flush', which needs less memory");
}

bool layer_plans_make(const LayerProfile *l, const PlanRequest *request, const Cluster *levels,
                      int64_t microbatches, const LayerStages *other, LayerPlans *out) {
  Job job = {l, request, levels};
  Row *row = alloc(sizeof *row), *through = alloc(sizeof *through);
  *row = *through = (Row){l, states_chain(l->states, NULL, 0)};
  *out = (LayerPlans){.no_other = ""};
  Planner r;
  NoPlan none = {0};
  bool missing = false;
  for (int i = 0; other && i < other->n; i++)
    missing |= place_of(&row->chain, other->end[i]) < 0;
  if (!choose(&job, row, microbatches, &out->own, &r, &none))
    return false;
  out->ranks = r.ranks;
  out->limit = r.memory.arena;
  if (missing) {
    through->chain = states_chain(l->states, other->end, other->n);
    Planner again;
    NoPlan why;
    int64_t found = out->own.plan ? out->own.plan->pipeline.microbatches : 0;
    if (!request->split && !choose(&job, through, microbatches ? microbatches : found, &out->own, &again, &why))
      return false;
  }
  if (other)
    simulate_other(&job, through, microbatches, other, out);
  if (!out->own.plan && none.no_microbatch)
    tell_no_form(&r, microbatches);
  else if (!out->own.plan)
    tell_nothing_fits_layers(&r, none.miss);
  return out->own.plan != NULL;
}
