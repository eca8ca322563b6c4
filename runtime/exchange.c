/* A batch's figures and gradients between its last backward and its update. For update t this rank
 *   reduces   adds up its accumulators and the other replicas' (reduce.c), in two rounds of messages;
 *   exchanges sends its uses of tied parameters to their other holders and posts their receives;
 *   combines  once those are through, adds every parameter's uses from last to first;
 *   figures   adds up squares of the gradients that its stage owns and posts one sum over all ranks of these
 *             squares and of the losses' and metrics' sums, a slot for each replica that may have computed one.
 *             Each slot has one contributor, the others add zero, so the sum is exact and its order does not
 *             matter.
 * All of it moves on whenever messages are progressed. Several updates may be under way; their figures are
 * posted in the order of the updates, as collective operations must be. */
#include "internal.h"

#include <math.h>

struct pd_updates pd_updates;

enum state { IDLE, REDUCING, SPREADING, TIED, SUMMING, KNOWN };

static struct update {
  enum state state;
  int n; /* requests of the state, up to TIED */
  MPI_Request *request, sum_request;
  double *mine, *all; /* [model parameter] squares, then [figure][replica] sums: this rank's, all ranks' */
  double posted;      /* when the state's messages were */
} *updates;

static int n_updates;     /* in `updates`: t's is at t % n_updates */
static int under_way;     /* exchanged, not logged: so many at most, so that figures of batches ahead have room */
static int n_sums, most_replicas;
static bool *has_remote;  /* by parameter held here: it has a gradient, and another stage holds it, too */
static double *chunk_squares;
static bool in_progress;

static struct update *update_of(int64_t t) { return &updates[t % n_updates]; }
static bool tied_here(const struct pd_parameter *p, int use) { return p->uses[use].stage == pd.stage->stage; }
static int exchange_sets(void) { return pd.stage->exchange_sets > 0 ? pd.stage->exchange_sets : 1; }

/* The stages that hold p: those of its uses, then its readers. Each of their ranks gets one message a use. */
static int holder(const struct pd_parameter *p, int i) {
  return i < p->n_uses ? p->uses[i].stage : p->readers[i - p->n_uses];
}

static bool named_before(const struct pd_parameter *p, int i) {
  for (int j = 0; j < i; j++)
    if (holder(p, j) == holder(p, i)) return true;
  return false;
}

/* A stage has at most 3 max(w) microbatches in flight, all replicas together (docs/schedules.md: h is at most
 * 2), or a batch: so far may two ranks be apart. */
static int batches_apart(void) {
  const struct pd_stage *s = pd.stage;
  int64_t in_flight = 3 * (int64_t)s->n_stages * most_replicas;
  return (int)((in_flight + s->microbatches - 1) / s->microbatches) + 1;
}

/* Finds what has_remote says; returns the most messages of an exchange. */
static int find_remote(void) {
  const struct pd_stage *s = pd.stage;
  int messages = 0;
  has_remote = pd_allocate(sizeof *has_remote * (size_t)s->n_parameters);
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    for (int j = 0; j < p->n_uses + p->n_readers; j++)
      if (holder(p, j) != s->stage) has_remote[i] = p->n_uses > 0;
    if (has_remote[i]) messages += p->n_uses * pd.ranks;
  }
  return messages;
}

int pd_exchange_start(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_stages; i++)
    if (s->replicas[i] > most_replicas) most_replicas = s->replicas[i];
  n_sums = s->n_model_parameters + s->n_figures * most_replicas;
  under_way = exchange_sets() + 1 + batches_apart();
  n_updates = under_way + 1 + batches_apart();
  updates = pd_allocate(sizeof *updates * (size_t)n_updates);
  int messages = find_remote(), room = pd_reduce_room();
  if (messages > room) room = messages;
  for (int i = 0; i < n_updates; i++) {
    updates[i].mine = pd_allocate(sizeof(double) * (size_t)n_sums);
    updates[i].all = pd_allocate(sizeof(double) * (size_t)n_sums);
    updates[i].request = pd_allocate(sizeof(MPI_Request) * (size_t)room);
    for (int j = 0; j < room; j++) updates[i].request[j] = MPI_REQUEST_NULL;
  }
  chunk_squares = pd_allocate(sizeof *chunk_squares * (size_t)pd_n_chunks);
  pd_updates = (struct pd_updates){pd.first_step, pd.first_step, pd.first_step};
  return under_way;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double *replicas_sums(double *sums, int figure) {
  return sums + pd.stage->n_model_parameters + figure * most_replicas;
}

void pd_add_figure(int figure, int64_t t, bool first, double sum) {
  if (t - pd_updates.logged >= n_updates) pd_fail("internal: %d batches' figures do not suffice", n_updates);
  double *mine = replicas_sums(update_of(t)->mine, figure) + pd.replica;
  *mine = (first ? 0 : *mine) + sum;
}

double pd_figure_sum(int figure, int64_t t) {
  double sum = 0;
  for (int r = 0; r < most_replicas; r++) sum += replicas_sums(update_of(t)->all, figure)[r];
  return sum;
}

/* ---- gradients ------------------------------------------------------------------------------- */

char *pd_accumulators(int64_t t) {
  const struct pd_stage *s = pd.stage;
  return pd.arena + s->accumulators + (size_t)(t % s->accumulator_sets) * s->accumulators_stride;
}

size_t pd_exchange_set(int64_t t) { return (size_t)(t % exchange_sets()) * pd.stage->exchanged_stride; }

/* Use `use` of p, summed over this stage's replicas, to those ranks of another stage that take it from this one:
 * replica q takes it from replica q % w of the stage where the use stands. */
static int send_use(const struct pd_parameter *p, const float *gradient, int stage, int tag,
                    MPI_Request *request) {
  int n = 0;
  for (int q = pd.replica; q < pd.stage->replicas[stage]; q += pd_replicas())
    MPI_Isend(gradient, (int)p->elements, MPI_FLOAT, pd_rank_of(stage, q), tag, pd_comm_ties, &request[n++]);
  return n;
}

static int post_tied(int64_t t, const struct pd_parameter *p, MPI_Request *request) {
  enum { USES = 1024 }; /* tags a parameter */
  int n = 0;
  for (int i = 0; i < p->n_uses; i++) {
    int tag = p->order * USES + i;
    float *gradient = pd_use_at(p, i, t, pd_accumulators(t));
    if (!tied_here(p, i)) {
      int from = p->uses[i].stage, replica = pd.replica % pd.stage->replicas[from];
      MPI_Irecv(gradient, (int)p->elements, MPI_FLOAT, pd_rank_of(from, replica), tag, pd_comm_ties,
                &request[n++]);
      continue;
    }
    for (int j = 0; j < p->n_uses + p->n_readers; j++)
      if (holder(p, j) != pd.stage->stage && !named_before(p, j))
        n += send_use(p, gradient, holder(p, j), tag, request + n);
  }
  return n;
}

/* Adds a chunk of p's uses into the last one's place. */
static void combine(int64_t t, const struct pd_parameter *p, const struct pd_chunk *c) {
  float *sum = pd_gradient_at(p, t, pd_accumulators(t)) + c->first;
  for (int i = p->n_uses - 2; i >= 0; i--) {
    const float *more = pd_use_at(p, i, t, pd_accumulators(t)) + c->first;
#pragma omp simd
    for (int64_t j = 0; j < c->n; j++) sum[j] += more[j];
  }
}

static void combine_and_square(int64_t t, double *to) {
  const struct pd_stage *s = pd.stage;
#pragma omp parallel for schedule(static)
  for (int i = 0; i < pd_n_chunks; i++) {
    const struct pd_chunk *c = &pd_chunks[i];
    const struct pd_parameter *p = &s->parameters[c->parameter];
    chunk_squares[i] = 0;
    if (!p->n_uses) continue;
    combine(t, p, c);
    if (p->owner == s->stage && !pd.replica && !p->buffer)
      chunk_squares[i] = pd_sum_of_squares(c->n, pd_gradient_at(p, t, pd_accumulators(t)) + c->first);
  }
  for (int i = 0; i < s->n_model_parameters; i++) to[i] = 0;
  for (int i = 0; i < pd_n_chunks; i++) to[s->parameters[pd_chunks[i].parameter].order] += chunk_squares[i];
}

/* ---- from exchange to figures ---------------------------------------------------------------- */

double pd_gradient_norm(int64_t t) {
  const struct pd_stage *s = pd.stage;
  double sum = 0;
  for (int i = 0; i < s->n_model_parameters; i++) sum += update_of(t)->all[i];
  return sqrt(sum) / ((double)s->batch * (double)s->figures[0].elements);
}

/* All ranks see the same figures; the rank that contributed the first bad one reports it. */
static void check_finite(int64_t t, const struct update *u) {
  const struct pd_stage *s = pd.stage;
  int bad = 0;
  while (bad < s->n_model_parameters && isfinite(u->all[bad])) bad++;
  if (bad == s->n_model_parameters) return;
  for (int i = 0; i < s->n_parameters; i++)
    if (s->parameters[i].order == bad && s->parameters[i].owner == s->stage && !pd.replica)
      pd_fail("step %lld: the gradient of '%s' is not finite", (long long)(t + 1), s->parameters[i].name);
  pd_leave_to_others();
}

static void enter(struct update *u, enum state state, int n) {
  u->state = state;
  u->n = n;
  if (state != SPREADING) u->posted = pd_seconds();
}

static void enter_tied(int64_t t, struct update *u) {
  int n = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    if (has_remote[i]) n += post_tied(t, &pd.stage->parameters[i], u->request + n);
  enter(u, TIED, n);
}

/* Moves update t on, whose messages are through. */
static void next_state(int64_t t, struct update *u) {
  switch (u->state) {
  case REDUCING: enter(u, SPREADING, pd_reduce_spread(t, u->request)); break;
  case SPREADING:
    pd_trace(PD_REDUCE, t, -1, u->posted, pd_seconds());
    enter_tied(t, u);
    break;
  case TIED:
    pd_figures_fold(t);
    combine_and_square(t, u->mine);
    MPI_Iallreduce(u->mine, u->all, n_sums, MPI_DOUBLE, MPI_SUM, pd_comm_figures, &u->sum_request);
    u->state = SUMMING;
    break;
  default:
    pd_trace(PD_EXCHANGE, t, -1, u->posted, pd_seconds());
    u->state = KNOWN;
    check_finite(t, u);
  }
}

/* Moves update t on as far as messages that have arrived allow, never past the one before: messages of tied
 * parameters are told apart by their order alone. */
static void advance(int64_t t) {
  struct update *u = update_of(t);
  while (u->state != IDLE && u->state != KNOWN) {
    int done;
    if (u->state < SUMMING && t > pd_updates.logged && update_of(t - 1)->state <= u->state) return;
    if (u->state == SUMMING)
      MPI_Test(&u->sum_request, &done, MPI_STATUS_IGNORE);
    else
      MPI_Testall(u->n, u->request, &done, MPI_STATUSES_IGNORE);
    if (!done) return;
    next_state(t, u);
  }
}

void pd_exchange_progress(void) {
  if (in_progress) return; /* reporting a bad gradient progresses messages, too */
  in_progress = true;
  for (int64_t t = pd_updates.logged; t < pd_updates.exchanged; t++) advance(t);
  in_progress = false;
}

/* Waits until update t's state is at least `state`, SUMMING or KNOWN. */
static void await(int64_t t, enum state state) {
  static const char *const what[] = {[REDUCING] = "the other replicas' gradients of step",
                                     [SPREADING] = "the replicas' sums of gradients of step",
                                     [TIED] = "gradients of tied parameters for step"};
  pd_exchange_progress();
  for (int64_t i = pd_updates.logged; i <= t; i++) {
    struct update *u = update_of(i);
    while (u->state < (i < t ? SUMMING : state)) {
      if (u->state == SUMMING)
        pd_wait(1, &u->sum_request, "all ranks' figures of step", i + 1, NULL, -1);
      else
        pd_wait(u->n, u->request, what[u->state], i + 1, NULL, -1);
      pd_exchange_progress();
    }
  }
}

/* Where no update lags behind its batch the update itself may come first and posts the exchange. */
void pd_exchange(int64_t t) {
  if (t < pd_updates.exchanged) return;
  if (t > pd_updates.exchanged || t - pd_updates.done >= exchange_sets())
    pd_fail("internal: exchange of update %lld, expected %lld, with %lld done", (long long)t,
            (long long)pd_updates.exchanged, (long long)pd_updates.done);
  while (t - pd_updates.logged >= under_way) {
    await(pd_updates.logged, KNOWN);
    pd_log_known();
  }
  struct update *u = update_of(t);
  pd_updates.exchanged = t + 1;
  if (pd_reduce_room())
    enter(u, REDUCING, pd_reduce_post(t, u->request));
  else
    enter_tied(t, u);
  pd_exchange_progress();
}


void pd_exchange_await(int64_t t, bool known) { await(t, known ? KNOWN : SUMMING); }

bool pd_exchange_known(int64_t t) { return update_of(t)->state == KNOWN; }

void pd_exchange_forget(int64_t t) {
  update_of(t)->state = IDLE;
  pd_updates.logged = t + 1;
}
