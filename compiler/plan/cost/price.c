/* Costs of a model's pieces: seconds from a profile, or counted from operations and bytes. */
#include <math.h>

#include "ops/rules.h"
#include "optimizers/optimizer.h"
#include "pd_kernels.h"
#include "plan/cost/cost.h"

/* Seconds independent of the microbatch: a product reads its weights, and accumulates their gradients. */
static double weight_traffic(const Graph *g, const Node *n, const OpCost *c, const Rates *rates) {
  double bytes = 0;
  for (int i = 0; i < n->n_in && c->matmul_flops > 0; i++)
    if (!g->values.at[n->in[i]].shape.batched)
      bytes += 4 * (double)shape_elements(&g->values.at[n->in[i]].shape);
  for (int i = 0; i < n->n_out && c->matmul_flops > 0; i++)
    if (!g->values.at[n->out[i]].shape.batched)
      bytes += 8 * (double)shape_elements(&g->values.at[n->out[i]].shape);
  return bytes / rates->stream;
}

/* As in runtime/messages/tensor.c: each rank receives 1/N of the value from each other rank, and adds or stores
 * it. A sum needs a second round; short sums send whole values in one round. */
double collective_seconds(const Planner *r, int node, int64_t b, const Rates *rates) {
  const Graph *g = r->g;
  const Node *n = &g->nodes.at[node];
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  double whole = fmax((double)shape_elements(x), (double)shape_elements(y)); /* the smaller one may be a shard */
  double elements = whole * (double)(y->batched ? b : 1), others = g->shards - 1;
  double in = elements * (r->bf16[n->in[0]] ? 2 : 4), out = elements * (r->bf16[n->out[0]] ? 2 : 4);
  if (n->op->collective > 1 && elements <= PD_SHORT_SUM)
    return rates->latency + others * in / rates->bandwidth + g->shards * in / rates->stream;
  double bytes = in + (n->op->collective > 1 ? out : 0); /* the second round sends the sum */
  return n->op->collective * rates->latency + others / g->shards * bytes / rates->bandwidth +
         bytes / rates->stream;
}

double counted_seconds(const Graph *g, int node, int64_t b, const Rates *rates) {
  const Node *n = &g->nodes.at[node];
  if (n->op->kind == OP_SOURCE || n->op->kind == OP_VIEW || !n->op->cost)
    return 0;
  OpCost c = n->op->cost(g, node);
  bool call = n->op->kind == OP_CALL;
  double samples = (double)b;
  double products = c.matmul_flops - (rates->spares ? c.spared : 0);
  double t = products / rates->product + c.other_flops / (call ? rates->inside : rates->pointwise);
  if (call && c.matmul_flops == 0)
    t = c.bytes / rates->copy;
  return (call ? rates->call : rates->loop) + t * samples / rates->threads + weight_traffic(g, n, &c, rates);
}

int *piece_of_nodes(const Graph *g, const Pieces *p) {
  int *piece = alloc((size_t)(g->nodes.n + 1) * sizeof *piece);
  for (int k = 0; k < p->n; k++)
    for (int i = p->at[k].first; i < p->at[k].end; i++)
      piece[i] = k;
  for (int i = g->n_forward; i < g->nodes.n; i++)
    piece[i] = piece[g->nodes.at[i].serves];
  return piece;
}

/* ---- all together -------------------------------------------------------------------------------- */

/* Whether the cut before node `first` divides an instance that would be one fused loop. */
static bool parts_a_loop(const Graph *g, const bool *calls, int first) {
  for (int a = g->nodes.at[first - 1].scope; a > 0; a = g->scopes.at[a].parent)
    for (int b = g->nodes.at[first].scope; b > 0; b = g->scopes.at[b].parent)
      if (a == b)
        return !calls[a];
  return false;
}

/* Bytes across a cut: in memory with padding, and in messages without. */
static void crossing_bytes(const Planner *r, int64_t b, Costs *c) {
  size_t side = (size_t)r->p->n + 1;
  int64_t *down = alloc(side * sizeof *down), *up = alloc(side * sizeof *up);
  double *message = alloc(side * sizeof *message);
  for (int i = 1; i < r->p->n; i++) {
    const Piece *piece = &r->p->at[i];
    for (int k = 0; k < piece->crossing.n; k++) {
      int v = piece->crossing.at[k];
      down[i] += value_bytes(r, v, b);
      message[i] += (r->bf16[v] ? 2.0 : 4.0) * (double)b * (double)shape_elements(&r->g->values.at[v].shape);
    }
    for (int k = 0; k < piece->returned.n; k++)
      up[i] += value_bytes(r, piece->returned.at[k], b);
  }
  c->activations = down, c->activation_gradients = up;
  c->message = message;
}

/* Seconds of receiving, without the links. */
static void crossing_seconds(const Planner *r, const Rates *rates, Costs *c) {
  size_t side = (size_t)r->p->n + 1;
  const bool *calls = scopes_with_calls(r->g);
  double *receive = alloc(side * sizeof *receive), *back = alloc(side * sizeof *back);
  for (int i = 1; i < r->p->n; i++) {
    double down = (double)c->activations[i], up = (double)c->activation_gradients[i];
    if (rates->beside) { /* copied into the memory that kernels read */
      receive[i] = down / rates->stream;
      back[i] = up / rates->stream;
    }
    if (parts_a_loop(r->g, calls, r->p->at[i].first)) { /* each side stores or loads the rows once more */
      receive[i] += 2 * down / rates->copy;
      back[i] += 2 * up / rates->copy;
    }
  }
  c->receive = receive, c->receive_gradient = back;
}

/* By node: estimated seconds at a microbatch of b samples, without collectives. */
static double *node_seconds(const Planner *r, int64_t b, const Rates *rates) {
  if (rates->multiprocessors > 0)
    return kernel_seconds(r, b, rates);
  const Graph *g = r->g;
  double *seconds = alloc((size_t)(g->nodes.n + 1) * sizeof *seconds);
  for (int i = 0; i < g->nodes.n; i++)
    seconds[i] = g->nodes.at[i].op->collective ? 0 : counted_seconds(g, i, b, rates);
  return seconds;
}

/* By piece: seconds of a microbatch's passes, and of the backward products for weight gradients. */
typedef struct Passes {
  double *forward, *backward, *products;
} Passes;

static Passes count_passes(const Planner *r, int64_t b, const Rates *rates) {
  const Graph *g = r->g;
  const double *of = node_seconds(r, b, rates);
  const size_t n = (size_t)r->p->n;
  const int *piece = piece_of_nodes(g, r->p);
  const bool *product = weight_products(g), *once = nodes_once(g); /* an encoder's, which few steps run */
  Passes s = {alloc(n * sizeof(double)), alloc(n * sizeof(double)), alloc(n * sizeof(double))};
  for (int i = 0; i < g->nodes.n; i++) {
    (i < g->n_forward ? s.forward : s.backward)[piece[i]] += once && once[i] ? 0 : of[i];
    s.products[piece[i]] += product[i] ? of[i] : 0;
  }
  return s;
}

/* Seconds of products between a collective and its first reader or the next collective, in one run, from those of
 * nodes. The collective's transfer overlaps with these (fuse/overlap.c). */
static double seconds_beside(const Graph *g, const int *run, int node, const double *of) {
  double seconds = 0;
  int made = g->nodes.at[node].out[0];
  for (int i = node + 1; i < g->nodes.n && run[i] == run[node] && !g->nodes.at[i].op->collective; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k] == made)
        return seconds;
    if (n->op->kind == OP_CALL && n->op->cost(g, i).matmul_flops > 0)
      seconds += of[i];
  }
  return seconds;
}

/* Adds collectives, which no profile includes. */
static void add_meetings(const Planner *r, int64_t b, const Rates *rates, const Passes *s) {
  const Graph *g = r->g;
  const int *piece = piece_of_nodes(g, r->p), *run = graph_runs(g);
  bool products = rates->beside && !r->traits.split && g->shards; /* absent if they have a pass of their own */
  const double *of = products ? node_seconds(r, b, rates) : NULL;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].op->collective) {
      double beside = of ? seconds_beside(g, run, i, of) : 0;
      (i < g->n_forward ? s->forward : s->backward)[piece[i]] +=
          rates->call + fmax(0, collective_seconds(r, i, b, rates) - beside);
    }
}

/* Scales a measurement by the ratio of counted seconds. */
static double scaled(double measured, double here, double there) {
  return there > 0 ? measured * (here / there) : measured;
}

static Passes scale_passes(const Planner *r, int64_t b, const Passes *measured, const Passes *here) {
  Passes s = count_passes(r, b, &r->profile->rates);
  for (int i = 0; i < r->p->n; i++) {
    s.forward[i] = scaled(measured->forward[i], here->forward[i], s.forward[i]);
    s.backward[i] = scaled(measured->backward[i], here->backward[i], s.backward[i]);
    s.products[i] = fmin(scaled(measured->products[i], here->products[i], s.products[i]), s.backward[i]);
  }
  return s;
}

/* Scales piece j of another form of the graph; -1 (no such piece): counted seconds times `rest`. */
static double of_form(const double *measured, const double *there, int j, double here, double rest) {
  return j < 0 ? here * rest : scaled(measured[j], here, there[j]);
}

/* By piece of the planned graph, from another form of it, matched by name. */
static Passes scale_form(const Planner *r, int64_t b, const Rates *rates, const Passes *measured) {
  Planner other = *r;
  other.g = r->request->profiled->g, other.p = r->request->profiled->p;
  Passes s = count_passes(r, b, rates), there = count_passes(&other, b, rates);
  double all = 0, counted = 0;
  for (int j = 0; j < other.p->n; j++) {
    all += measured->forward[j] + measured->backward[j];
    counted += there.forward[j] + there.backward[j];
  }
  for (int i = 0; i < r->p->n; i++) {
    int j = piece_find(other.p, r->p->at[i].name);
    s.forward[i] = of_form(measured->forward, there.forward, j, s.forward[i], all / counted);
    s.backward[i] = of_form(measured->backward, there.backward, j, s.backward[i], all / counted);
    s.products[i] =
        fmin(of_form(measured->products, there.products, j, s.products[i], all / counted), s.backward[i]);
  }
  return s;
}

/* Profiles of older versions of pdc have no products. */
static Passes measured_passes(const Planner *r, int64_t b, const Rates *rates, const MeasuredSize *measured) {
  const Profiled *of = r->request->profiled;
  Planner planner = *r;
  planner.g = of ? of->g : r->g, planner.p = of ? of->p : r->p;
  Passes counted = count_passes(&planner, b, rates);
  const size_t bytes = (size_t)planner.p->n * sizeof(double);
  Passes s = {alloc_copy(measured->forward, bytes), alloc_copy(measured->backward, bytes), alloc(bytes)};
  for (int i = 0; i < planner.p->n; i++)
    s.products[i] = measured->products        ? measured->products[i]
                    : counted.backward[i] > 0 ? counted.products[i] / counted.backward[i] * measured->backward[i]
                                              : 0;
  if (r->profile->device)
    s = scale_passes(&planner, b, &s, &counted);
  return of ? scale_form(r, b, rates, &s) : s;
}

/* Programs that generate are planned for the step of one token of each sample. The rows of a prompt's block stream
 * through the stages and take less time each. */
static void piece_seconds(const Planner *r, int64_t b, const Rates *rates, Costs *c) {
  if (r->g->generation.context)
    b = r->g->generation.samples;
  const MeasuredSize *measured = r->profile ? profile_at(r->profile, b) : NULL;
  Passes s = measured ? measured_passes(r, b, rates, measured) : count_passes(r, b, rates);
  add_meetings(r, b, rates, &s);
  c->forward = s.forward, c->backward = s.backward, c->products = s.products;
}

static Costs *price(const Planner *r, int64_t b, int kind) {
  const Graph *g = r->g;
  const Pieces *p = r->p;
  const Rates *rates = &r->rates[kind];
  const int *piece = piece_of_nodes(g, p);
  Costs *c = alloc(sizeof *c);
  *c = (Costs){.n = p->n,
               .holdings = model_holdings(r, rates),
               .gradients = accumulator_bytes(g, p, piece),
               .saved = saved_bytes(r, piece, b),
               .inputs = input_bytes(r, b),
               .deferred = deferred_bytes(r, piece, b),
               .work = work_bytes(r, piece, b),
               .cache = cache_bytes(r, piece, b),
               .share = (double)b / (double)g->train.batch,
               .exchange = link_byte(&r->topology.link[r->topology.n - 1], 1),
               .beside = rates->beside};
  piece_seconds(r, b, rates, c);
  crossing_bytes(r, b, c);
  crossing_seconds(r, rates, c);
  return c;
}

static void price_again(const Planner *r, int64_t b, int kind, Costs *c) {
  again_costs(r, piece_of_nodes(r->g, r->p), b, node_seconds(r, b, &r->rates[kind]), c);
}

/* For each trained parameter with uses in several pieces: these pieces, ascending. */
typedef Vec(Ints) Shared;

static const Shared *shared_parameters(const Graph *g, const Pieces *p) {
  Shared *shared = alloc(sizeof *shared);
  Ints *pieces = alloc((size_t)(g->params.n + 1) * sizeof *pieces);
  for (int k = 0; k < p->n; k++)
    for (int m = 0; m < p->at[k].params.n; m++)
      push(&pieces[p->at[k].params.at[m]], k);
  for (int q = 0; q < g->params.n; q++)
    if (pieces[q].n > 1 && !g->params.at[q].frozen)
      push(shared, pieces[q]);
  return shared;
}

static int stage_of_piece(const Plan *plan, int piece) {
  int part = 0;
  while (plan->stage[part].end_piece <= piece)
    part++;
  return plan_stage_of(plan, part);
}

/* All stages of a parameter exchange, except the lowest. */
static void exchange_shared(const Plan *plan, const Ints *pieces, bool *exchanges) {
  int lowest = plan->pipeline.n_stages;
  for (int k = 0; k < pieces->n; k++) {
    int stage = stage_of_piece(plan, pieces->at[k]), other = stage < lowest ? lowest : stage;
    if (stage != lowest && other < plan->pipeline.n_stages)
      exchanges[other] = true;
    lowest = stage < lowest ? stage : lowest;
  }
}

static bool *exchanges_of(const Graph *g, const Shared *shared, const Plan *plan) {
  int n_stages = plan->pipeline.n_stages;
  bool *exchanges = alloc((size_t)n_stages);
  for (int s = 1; s < n_stages && !g->inference; s++)
    exchanges[s] = g->train.clip_norm > 0;
  for (int q = 0; q < shared->n && !g->inference; q++)
    exchange_shared(plan, &shared->at[q], exchanges);
  return exchanges;
}

bool *plan_exchanges(const Graph *g, const Pieces *p, const Plan *plan) {
  return exchanges_of(g, shared_parameters(g, p), plan);
}

int64_t stage_parameters(const Graph *g, const Pieces *p, const StagePlan *stage) {
  bool *held = alloc((size_t)g->params.n + 1);
  int64_t n = 0;
  for (int k = stage->first_piece; k < stage->end_piece; k++)
    for (int m = 0; m < p->at[k].params.n; m++)
      held[p->at[k].params.at[m]] = true;
  for (int i = 0; i < g->params.n; i++)
    if (held[i] && !g->params.at[i].buffer)
      n += shape_elements(&g->params.at[i].shape);
  return n;
}

static bool *exchanges(const Planner *r, const Plan *plan) { return exchanges_of(r->g, r->subject.context, plan); }
static int find(const Planner *r, Name name) { return piece_find_or_tell(r->g, r->p, name, NO_SPAN, "--split"); }

/* Whether updates wait for other stages under any cut: gradients of tied parameters, or clipping. */
static bool may_be_tied(const Graph *g) {
  bool tied = g->train.clip_norm > 0 && !g->inference;
  for (int i = 0; i < g->params.n && !g->inference; i++)
    tied |= g->params.at[i].uses.n > 1 && !g->params.at[i].frozen;
  return tied;
}

Subject model_subject(const Graph *g, const Pieces *p) {
  return (Subject){.name = g->name,
                   .n = p->n,
                   .batch = g->train.batch,
                   .inference = g->inference,
                   .tied = may_be_tied(g),
                   .price = price,
                   .price_again = g->inference ? NULL : price_again,
                   .exchanges = exchanges,
                   .find = find,
                   .context = shared_parameters(g, p)};
}
