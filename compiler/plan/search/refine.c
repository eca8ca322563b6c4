/* Local search on simulated batches, the last step of planning. It moves cuts and ranks, merges and splits stages,
 * and changes the microbatch. The exact programs before it ignore how stages wait for each other. */
#include <math.h>
#include <string.h>

#include "base/table.h"
#include "plan/search/search.h"

/* Key of a rank whose layout is cached, so another layout is nearly free. */
typedef struct LaidRank {
  int32_t microbatch, stage, replicas, recompute;
  Name again;
  int32_t first[MOST_INTERLEAVED], end[MOST_INTERLEAVED];
} LaidRank;

typedef struct Climb {
  const Planner *r;
  Candidate at;
  int *start;    /* cuts of the best plan */
  int left;      /* remaining simulations */
  int layouts;   /* remaining layouts of ranks near the memory limit, or NO_MATTER */
  Table *laid;   /* by LaidRank: ranks laid out */
  int64_t turns; /* simulated turns of microbatches through parts */
  bool moves_cuts_only;
  double below; /* lay out only plans faster than this, in seconds per batch */
} Climb;

enum {
  SHORT = 16,
  LONG = 256
}; /* microbatches per simulation: shorter batches repeat, longer ones run as two shorter ones */

static int64_t turns_simulated(const Plan *plan) {
  int64_t microbatches = plan->pipeline.microbatches;
  return plan_parts(plan) * (microbatches < SHORT ? SHORT : microbatches < LONG ? microbatches : LONG);
}

/* Large pipelines get fewer simulations. Several chunks per rank get more, unless batches are long, because no
 * exact program balances chunks. */
static int simulations(const Plan *plan, Effort effort) {
  int times = plan->pipeline.chunks > 1 && plan->pipeline.microbatches <= LONG ? TIMES_OF_CHUNKS : 1;
  times *= effort == EFFORT_THOROUGH ? TIMES_THOROUGH : 1;
  int64_t n = BUDGET_TURNS / turns_simulated(plan);
  return times * (n > BUDGET_STEPS ? BUDGET_STEPS : n < LEAST_STEPS ? LEAST_STEPS : (int)n);
}

static int64_t turns_of(const Planner *r, const Candidate *c) { return r->subject.batch / c->microbatch; }

/* ---- trying a plan ----------------------------------------------------------------------------------- */

enum { NO_MATTER = -1 };

/* In ranks. Large models lay out only the final plan. */
static int layouts(const Planner *r, const Plan *plan, Effort effort) {
  const int by_pieces = BUDGET_REFINE_PIECES / r->subject.n,
            plans = by_pieces < MOST_REFINE_LAYOUTS ? by_pieces : MOST_REFINE_LAYOUTS;
  const int large = effort == EFFORT_THOROUGH ? VERY_LARGE_MODEL : LARGE_MODEL;
  return !r->request->peak || r->subject.n > large ? NO_MATTER : plans * plan->pipeline.n_stages;
}

static Table *no_ranks(void) {
  Table *t = alloc(sizeof *t);
  *t = (Table){.key_bytes = sizeof(LaidRank)};
  return t;
}

/* Number of ranks not laid out before; adds them. */
static int new_ranks(const Climb *c, const Plan *plan) {
  const Pipeline *p = &plan->pipeline;
  int n = 0;
  for (int i = 0; i < p->n_stages; i++) {
    LaidRank rank = {(int32_t)p->microbatch, i, p->replicas[i], p->recompute[i], NULL, {0}, {0}};
    for (int k = 0; k < p->chunks; k++) {
      const StagePlan *part = &plan->stage[plan_part_of(plan, i, k)];
      rank.first[k] = part->first_piece, rank.end[k] = part->end_piece;
      rank.again = k == 0 ? part->again : rank.again;
    }
    if (!table_find(c->laid, &rank))
      table_add(c->laid, &rank, c->laid), n++;
  }
  return n;
}

/* Adds the layout's error to the estimates of this candidate and its neighbours. */
static void learn(Candidate *c, const int64_t *error) {
  const int parts = pipeline_parts(c->form);
  c->copies = alloc_copy(c->copies, (size_t)parts * sizeof *c->copies);
  for (int i = 0; i < parts; i++)
    c->copies[i].extra += error[stage_of_part(c->form->n_stages, i)] / c->form->chunks;
}

/* Lays out a plan whose estimate is near the limit. A step that does not fit is refused, because later steps would
 * not fit either. */
static bool may_fit(Climb *c, Candidate *next) {
  static const double NEAR = 0.75;
  const Planner *r = c->r;
  if (c->layouts == NO_MATTER || next->plan->batch_seconds >= c->below ||
      (double)largest_peak(next->plan) < NEAR * (double)r->memory.arena)
    return true;
  if (c->layouts <= 0)
    return false;
  Plan laid = *next->plan;
  int64_t *error = alloc((size_t)laid.pipeline.n_stages * sizeof *error);
  laid.stage = alloc_copy(laid.stage, (size_t)plan_parts(&laid) * sizeof *laid.stage);
  c->layouts -= new_ranks(c, &laid);
  find_peaks(r, &laid, error);
  learn(next, error);
  return largest_peak(&laid) <= r->memory.arena;
}

/* Whether the pinned form takes at most `most` seconds per batch; sets its plan. */
static bool is_shorter(Climb *c, Candidate *next, double most) {
  Partition part;
  if (!candidate_partition(c->r, next, c->r->memory.arena, &part) ||
      candidate_least_seconds(c->r, next, &part) > most)
    return false;
  c->left--;
  next->plan = plan_of(c->r, next, &part, most);
  c->turns += turns_simulated(next->plan);
  return schedulable(c->r, next->plan) && next->plan->batch_seconds <= most;
}

/* Takes the form of `other`, cut at `start`, if its simulated batch is shorter. */
static bool climbs(Climb *c, const Candidate *other, const int *start) {
  double worth = other == &c->at ? WORTH_CUT : WORTH_FORM, most = (1 - worth) * c->at.plan->batch_seconds;
  Candidate next = *other;
  next.pinned = start;
  if (c->left <= 0)
    return false;
  ArenaMark mark = arena_mark();
  if (!is_shorter(c, &next, most)) {
    arena_release(mark);
    return false;
  }
  if (!may_fit(c, &next) && !(is_shorter(c, &next, most) && may_fit(c, &next))) { /* retries with recomputation */
    if (isfinite(c->below))
      c->at.copies = next.copies;
    return false;
  }
  c->at = next;
  c->start = alloc_copy(start, (size_t)pipeline_parts(next.form) * sizeof *start);
  return true;
}

/* ---- cuts -------------------------------------------------------------------------------------------- */

/* Moves the cuts from `first` to `last` by `by` pieces, if there is room. */
static bool move(Climb *c, int first, int last, int by) {
  int parts = pipeline_parts(c->at.form), n = c->r->subject.n;
  int end = last + 1 < parts ? c->start[last + 1] : n;
  if (c->start[first] + by <= c->start[first - 1] || c->start[last] + by >= end)
    return false;
  int *start = alloc_copy(c->start, (size_t)parts * sizeof *start);
  for (int i = first; i <= last; i++)
    start[i] += by;
  return climbs(c, &c->at, start);
}

/* Moves single cuts, then up to most_together adjacent cuts, by at most `farthest` pieces. */
static bool move_cuts(Climb *c, int most_together, int farthest) {
  bool any = false;
  int parts = pipeline_parts(c->at.form);
  for (int together = 1; together < parts && together <= most_together; together++)
    for (int first = 1; first + together <= parts; first++)
      for (int by = 1; by <= farthest && c->left > 0; by *= 2)
        for (int way = -1; way <= 1; way += 2)
          while (move(c, first, first + together - 1, way * by))
            any = true;
  return any;
}

/* Moves two distant cuts in opposite directions, so that the range between them grows or shrinks. */
static bool stretch(Climb *c) {
  int parts = pipeline_parts(c->at.form), n = c->r->subject.n;
  for (int i = 1; i < parts; i++)
    for (int k = i + 1; k < parts; k++)
      for (int way = -1; way <= 1 && c->left > 0; way += 2) {
        int *start = alloc_copy(c->start, (size_t)parts * sizeof *start);
        start[i] += way, start[k] -= way;
        bool room = true;
        for (int s = 1; s < parts; s++)
          room &= start[s] > start[s - 1] && start[s] < n;
        if (room && climbs(c, &c->at, start))
          return true;
      }
  return false;
}

/* ---- ranks ------------------------------------------------------------------------------------------- */

/* The largest number of ranks up to `up_to` that divides the microbatches; 0: none. */
static int most_ranks(const Climb *c, int up_to) {
  int64_t microbatches = turns_of(c->r, &c->at);
  int n = up_to < microbatches ? up_to : (int)microbatches;
  while (n > 0 && microbatches % n != 0)
    n--;
  return c->r->free_replicas || n < 1 ? n : 1;
}

/* Takes a form cut at `start`, or cut at its best partition. */
static bool reforms(Climb *c, const Candidate *other, const int *start) {
  Partition best;
  if (climbs(c, other, start))
    return true;
  double most = c->at.plan->batch_seconds / (double)turns_of(c->r, other);
  return best_partition(c->r, other, c->r->memory.arena / other->form->chunks, most, &best) &&
         climbs(c, other, best.start);
}

static bool change_ranks(Climb *c, int stages, const int *replicas, const int *start) {
  const Planner *r = c->r;
  Pipeline *form = alloc(sizeof *form);
  if (stages > r->form.n_stages || (!r->free_stages && stages != r->form.n_stages) || c->left <= 0)
    return false;
  *form = form_make(r, stages, replicas);
  if (pipeline_ranks(form) > r->ranks || !schedule_allows(form, turns_of(r, &c->at)))
    return false;
  Candidate other = candidate_of(r, form, &(Placement){.backward = c->at.placement.backward}, c->at.microbatch,
                                 c->at.spans, c->at.recompute, NULL, 0);
  return reforms(c, &other, start);
}

static int spare_ranks(const Climb *c) { return c->r->ranks - pipeline_ranks(c->at.form); }

/* Moves ranks from stage `from` to stage `to`; from -1: idle ranks. */
static bool pass_ranks(Climb *c, int from, int to) {
  int n = c->at.form->n_stages, spare = spare_ranks(c);
  int *replicas = alloc_copy(c->at.form->replicas, (size_t)n * sizeof *replicas);
  if (from >= 0) {
    int fewer = most_ranks(c, replicas[from] - 1);
    spare += replicas[from] - fewer;
    replicas[from] = fewer;
    if (!fewer)
      return false;
  }
  int more = most_ranks(c, replicas[to] + spare);
  if (more <= replicas[to])
    return false;
  replicas[to] = more;
  return change_ranks(c, n, replicas, c->start);
}

/* Moves the ranks of stage `from` to stage `to` and shifts those between by one stage; then cuts again. */
static bool rotate_ranks(Climb *c, int from, int to) {
  int n = c->at.form->n_stages, way = from < to ? 1 : -1;
  int *replicas = alloc_copy(c->at.form->replicas, (size_t)n * sizeof *replicas);
  for (int i = from; i != to; i += way)
    replicas[i] = c->at.form->replicas[i + way];
  replicas[to] = c->at.form->replicas[from];
  if (!memcmp(replicas, c->at.form->replicas, (size_t)n * sizeof *replicas))
    return false;
  return change_ranks(c, n, replicas, c->start);
}

static bool merge(Climb *c, int stage) {
  int n = c->at.form->n_stages - 1;
  int *replicas = alloc((size_t)n * sizeof *replicas), *start = alloc((size_t)n * sizeof *start);
  for (int i = 0; i < n; i++) {
    replicas[i] = c->at.form->replicas[i < stage ? i : i + 1];
    start[i] = c->start[i <= stage ? i : i + 1];
  }
  replicas[stage] = most_ranks(c, c->at.form->replicas[stage] + c->at.form->replicas[stage + 1] + spare_ranks(c));
  return change_ranks(c, n, replicas, start);
}

/* The cut that divides a stage's work in the ratio of its ranks. */
static int division(const Climb *c, int stage, int ranks, int of) {
  int n = c->at.form->n_stages, first = c->start[stage];
  int end = stage + 1 < n ? c->start[stage + 1] : c->r->subject.n, at = first + 1;
  double all = span_compute(c->at.spans, first, end);
  while (at + 1 < end && span_compute(c->at.spans, first, at + 1) * of <= all * ranks)
    at++;
  return at;
}

/* Splits a stage into one with `ranks` ranks and one with the remaining ranks. */
static bool split(Climb *c, int stage, int ranks) {
  int n = c->at.form->n_stages + 1, all = c->at.form->replicas[stage] + spare_ranks(c);
  int *replicas = alloc((size_t)n * sizeof *replicas), *start = alloc((size_t)n * sizeof *start);
  int end = stage + 1 < n - 1 ? c->start[stage + 1] : c->r->subject.n;
  int rest = most_ranks(c, all - ranks);
  if (!rest || most_ranks(c, ranks) != ranks || end - c->start[stage] < 2)
    return false;
  for (int i = 0; i < n; i++) {
    replicas[i] = i == stage ? ranks : i == stage + 1 ? rest : c->at.form->replicas[i < stage ? i : i - 1];
    start[i] = i == stage + 1 ? division(c, stage, ranks, ranks + rest) : c->start[i <= stage ? i : i - 1];
  }
  return change_ranks(c, n, replicas, start);
}

/* Equal stages at their best partition: a start far from the current optimum. */
static bool even_ranks(Climb *c, int stages) {
  const Planner *r = c->r;
  int ranks = most_ranks(c, r->ranks / stages);
  int *replicas = alloc((size_t)stages * sizeof *replicas);
  Partition best;
  for (int i = 0; i < stages; i++)
    replicas[i] = ranks;
  Pipeline form = form_make(r, stages, replicas);
  if (!ranks || !schedule_allows(&form, turns_of(r, &c->at)))
    return false;
  const Candidate other =
      candidate_of(r, &form, &(Placement){0}, c->at.microbatch, c->at.spans, c->at.recompute, NULL, 0);
  double most = c->at.plan->batch_seconds / (double)turns_of(r, &c->at);
  return best_partition(r, &other, r->memory.arena, most, &best) && change_ranks(c, stages, replicas, best.start);
}

static bool move_ranks(Climb *c) {
  enum { MOST_EVEN = 8 };
  const Pipeline *form = c->at.form;
  if ((!c->r->free_replicas && !c->r->free_depth) || c->r->form.chunks > 1)
    return false;
  for (int to = 0; to < form->n_stages; to++)
    for (int from = -1; from < form->n_stages; from++)
      if (from != to && pass_ranks(c, from, to))
        return true;
  for (int to = 0; to < form->n_stages; to++)
    for (int from = 0; from < form->n_stages; from++)
      if (from != to && rotate_ranks(c, from, to))
        return true;
  for (int i = 0; i + 1 < form->n_stages; i++)
    if (merge(c, i))
      return true;
  for (int i = 0; i < form->n_stages; i++)
    for (int ranks = 1; ranks < form->replicas[i] + spare_ranks(c); ranks++)
      if (split(c, i, ranks))
        return true;
  for (int stages = 1; stages <= c->r->form.n_stages && stages <= MOST_EVEN; stages++)
    if (even_ranks(c, stages))
      return true;
  return false;
}

/* ---- microbatches ------------------------------------------------------------------------------------ */

static bool change_microbatch(Climb *c) {
  const Planner *r = c->r;
  for (int i = 0; i < r->microbatches.n && c->left > 0; i++) {
    int64_t b = r->microbatches.at[i];
    if (b == c->at.microbatch || !schedule_allows(c->at.form, r->subject.batch / b))
      continue;
    Candidate other = candidate_of(r, c->at.form, &c->at.placement, b, spans_at(r, b), c->at.recompute, NULL, 0);
    if (reforms(c, &other, c->start))
      return true;
  }
  return false;
}

/* ---- all together ------------------------------------------------------------------------------------- */

static bool step(Climb *c) {
  enum { MOST_TOGETHER = 8 };
  if (move_cuts(c, MOST_TOGETHER, c->r->subject.n - 1) || stretch(c))
    return true;
  return !c->moves_cuts_only && (move_ranks(c) || change_microbatch(c));
}

static Climb climb_from(const Planner *r, const Candidate *candidate, Effort effort) {
  int parts = pipeline_parts(candidate->form);
  Climb c = {.r = r,
             .at = *candidate,
             .start = alloc((size_t)parts * sizeof(int)),
             .left = simulations(candidate->plan, effort),
             .layouts = layouts(r, candidate->plan, effort),
             .laid = no_ranks(),
             .below = INFINITY};
  for (int i = 0; i < parts; i++)
    c.start[i] = candidate->plan->stage[i].first_piece;
  return c;
}

/* Takes the result of the climb as the candidate's plan. False: its exact peaks do not fit; estimates are
 * corrected. */
static bool take_climb(const Planner *r, Candidate *candidate, Climb *c) {
  if (c->at.plan == candidate->plan)
    return true;
  if (!fits_exactly(r, &c->at))
    return false;
  c->at.settled = true;
  c->at.pinned = NULL;
  c->at.bound = 0;
  c->at.refined = candidate->refined;
  *candidate = c->at;
  return true;
}

static bool climb(const Planner *r, Candidate *candidate, Effort effort, bool moves_cuts_only, int64_t *turns) {
  Climb c = climb_from(r, candidate, effort);
  c.moves_cuts_only = moves_cuts_only;
  while (step(&c)) {
  }
  *turns += c.turns;
  return take_climb(r, candidate, &c);
}

static void climb_until_it_fits(const Planner *r, Candidate *candidate, Effort effort, int64_t *turns) {
  enum { ROUNDS = 4 };
  for (int round = 0; round < ROUNDS && !climb(r, candidate, effort, round == ROUNDS - 1, turns); round++) {
  }
}

/* Whether corrections remain from settle(). They belong to other cuts and keep the search away from the limit. */
static bool is_corrected(const Candidate *c, const Copies *fresh) {
  bool corrected = false;
  for (int i = 0; i < pipeline_parts(c->form); i++)
    corrected |= c->copies[i].extra != fresh[i].extra;
  return corrected;
}

int64_t refine(const Planner *r, Candidate *candidate, Effort effort) {
  int64_t turns = 0;
  if (r->pinned || candidate->pinned)
    return 0;
  climb_until_it_fits(r, candidate, effort, &turns);
  Copies *fresh = copies(r, candidate->form, &candidate->placement, candidate->microbatch, candidate->recompute);
  if (is_corrected(candidate, fresh)) {
    candidate->copies = fresh;
    climb_until_it_fits(r, candidate, effort, &turns);
  }
  return turns;
}

/* ---- other cuts of chunks ------------------------------------------------------------------------------- */

/* Deterministic pseudo-random numbers below n. */
static int any_below(uint64_t *state, int n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (int)((*state >> 33) % (uint64_t)n);
}

/* Moves some adjacent cuts by a few pieces and pushes other cuts out of the way. */
static void shake_cuts(const Climb *c, uint64_t *state, int *start) {
  enum { MOST_TOGETHER = 4, FARTHEST = 12 };
  const int parts = pipeline_parts(c->at.form), n = c->r->subject.n;
  const int first = 1 + any_below(state, parts - 1), together = 1 + any_below(state, MOST_TOGETHER);
  const int by = (1 + any_below(state, FARTHEST)) * (any_below(state, 2) ? 1 : -1);
  for (int i = first; i < first + together && i < parts; i++)
    start[i] += by;
  for (int i = 1; i < parts; i++)
    start[i] = start[i] > start[i - 1] ? start[i] : start[i - 1] + 1;
  for (int i = parts - 1; i > 0; i--) {
    const int end = i + 1 < parts ? start[i + 1] : n;
    start[i] = start[i] < end ? start[i] : end - 1;
  }
}

/* Climbs from cuts near the best; keeps the result if it is better. */
static void climb_again(Climb *best, uint64_t *state) {
  enum { MOST_CHANGES = 3, TOGETHER = 2, FARTHEST = 4 };
  Climb c = *best;
  if (any_below(state, 2)) /* no layouts on the way: reaches more plans */
    c.below = best->at.plan->batch_seconds;
  c.start = alloc_copy(best->start, (size_t)pipeline_parts(best->at.form) * sizeof *best->start);
  for (int changes = 1 + any_below(state, MOST_CHANGES); changes > 0; changes--)
    shake_cuts(best, state, c.start);
  c.at.pinned = c.start;
  if (chunks_repair(&c.at, c.r->memory.arena, c.start) &&
      is_shorter(&c, &c.at, NO_MORE_THAN * best->at.plan->batch_seconds))
    while (move_cuts(&c, TOGETHER, FARTHEST)) {
    }
  else
    c.at.plan = best->at.plan;
  best->left = c.left;
  best->layouts = c.layouts;
  best->turns = c.turns;
  if (c.at.plan->batch_seconds < (1 - WORTH_AGAIN) * best->at.plan->batch_seconds && may_fit(best, &c.at)) {
    best->at = c.at;
    best->start = c.start;
  }
}

/* Allows recomputation on the path between plans that fit without it. */
static void may_recompute(const Planner *r, Candidate *c) {
  const int parts = pipeline_parts(c->form);
  const Copies *asked = copies(r, c->form, &c->placement, c->microbatch, r->request->recompute);
  c->recompute = r->request->recompute;
  c->copies = alloc_copy(c->copies, (size_t)parts * sizeof *c->copies);
  for (int i = 0; i < parts; i++)
    c->copies[i].recompute_on = asked[i].recompute_on, c->copies[i].layers = asked[i].layers;
}

void refine_again(const Planner *r, Candidate *candidate, int64_t turns) {
  if (pipeline_parts(candidate->form) == 1)
    return;
  Climb c = climb_from(r, candidate, EFFORT_USUAL);
  uint64_t state = 1;
  may_recompute(r, &c.at);
  c.left = (int)(turns / turns_simulated(candidate->plan));
  for (int64_t tries = 0; c.left > 0 && tries < turns; tries += turns_simulated(candidate->plan))
    climb_again(&c, &state);
  take_climb(r, candidate, &c);
}
