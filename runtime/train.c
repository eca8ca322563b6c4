/* A batch's figures and gradients between its last backward and its update. For update t this rank
 *   exchange  sends its accumulators of tied parameters to their other holders and posts their receives;
 *   combine   once those are through, adds every parameter's uses from last to first;
 *   figures   adds up squares of the gradients it owns and posts one sum over all ranks of these squares
 *             and of the loss statements' sums. Each slot has one contributor, the others add zero, so
 *             the sum is exact and its order does not matter.
 * Steps two and three happen whenever messages are progressed. */
#include "internal.h"

#include <math.h>
#include <stdio.h>

/* Updates under way at once: one whose figures are out, one whose backward runs, and the losses of up
 * to two batches whose forward runs ahead. */
enum { UNDER_WAY = 4 };

enum state { IDLE, TIED, SUMMING, KNOWN };

static struct update {
  enum state state;
  double *mine, *sum; /* [model parameter] squares, then [loss statement] sums */
  MPI_Request request;
  double seconds; /* duration of the update on this rank; negative: not over */
} updates[UNDER_WAY];

static int n_figures;
static int64_t exchanged; /* updates whose exchange was called */
static int64_t updated;   /* updates done */
static int64_t logged;    /* updates logged */
static MPI_Request *tied; /* of update exchanged - 1: receives and sends */
static int n_tied, room_tied;
static bool *has_remote; /* by parameter held here: it has a gradient, and another stage holds it, too */
static double *chunk_squares;
static double clock_start;
static bool in_progress;

static struct update *update_of(int64_t t) { return &updates[t % UNDER_WAY]; }
static bool tied_here(const struct pd_parameter *p, int use) { return p->uses[use].stage == pd.stage->stage; }

/* The stages that hold p: those of its uses, then its readers. Each other holder gets one message a use. */
static int holder(const struct pd_parameter *p, int i) {
  return i < p->n_uses ? p->uses[i].stage : p->readers[i - p->n_uses];
}

static bool named_before(const struct pd_parameter *p, int i) {
  for (int j = 0; j < i; j++)
    if (holder(p, j) == holder(p, i)) return true;
  return false;
}

void pd_train_start(void) {
  const struct pd_stage *s = pd.stage;
  n_figures = s->n_model_parameters + s->n_losses;
  for (int i = 0; i < UNDER_WAY; i++) {
    updates[i].mine = pd_allocate(sizeof(double) * (size_t)n_figures);
    updates[i].sum = pd_allocate(sizeof(double) * (size_t)n_figures);
  }
  has_remote = pd_allocate(sizeof *has_remote * (size_t)s->n_parameters);
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    for (int j = 0; j < p->n_uses + p->n_readers; j++)
      if (holder(p, j) != s->stage) has_remote[i] = p->n_uses > 0;
    room_tied += p->n_uses * (p->n_uses + p->n_readers);
  }
  tied = pd_allocate(sizeof *tied * (size_t)room_tied);
  chunk_squares = pd_allocate(sizeof *chunk_squares * (size_t)pd_n_chunks);
  exchanged = updated = logged = pd.first_step;
  clock_start = pd_seconds();
}

void pd_clock_pause(double seconds) { clock_start += seconds; }

/* ---- losses ---------------------------------------------------------------------------------- */

static bool all_finite(const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i])) return false;
  return true;
}

const char *pd_first_non_finite(int64_t k) {
  static char text[512];
  const struct pd_stage *s = pd.stage;
  for (int v = 0; v < s->versions; v++)
    for (int i = 0; i < s->n_parameters; i++) {
      const struct pd_parameter *p = &s->parameters[i];
      const char *weights = pd.arena + s->weights + (size_t)v * s->weights_stride;
      if (all_finite((const float *)(weights + p->offset), p->elements)) continue;
      snprintf(text, sizeof text, "parameter '%s'", p->name);
      return text;
    }
  for (int i = 0; i < s->n_tensors; i++) {
    const struct pd_tensor *x = &s->tensors[i];
    const char *at = pd.arena + x->offset + (size_t)(k % (x->slots ? x->slots : 1)) * x->stride;
    if (all_finite((const float *)at, x->elements)) continue;
    snprintf(text, sizeof text, "'%s'", x->name);
    return text;
  }
  return "the loss itself";
}

void pd_loss(int loss, int64_t k, const float *elements, int64_t n) {
  int64_t batch_of = (k - 1) / pd.stage->microbatches;
  double *sum = &update_of(batch_of)->mine[pd.stage->n_model_parameters + loss], here = 0;
  for (int64_t i = 0; i < n; i++) here += (double)elements[i];
  if (!isfinite(here)) {
    pd_train_catch_up(); /* a gradient that was not finite before is the cause to report */
    pd_fail("step %lld: the loss of microbatch %lld is not finite; first tensor that is not: %s",
            (long long)(batch_of + 1), (long long)k, pd_first_non_finite(k));
  }
  if ((k - 1) % pd.stage->microbatches == 0) *sum = 0;
  *sum += here;
}

/* The mean over update t's batch, all loss statements together. */
static double mean_loss(const struct update *u) {
  const struct pd_stage *s = pd.stage;
  double loss = 0;
  for (int i = 0; i < s->n_losses; i++)
    loss += u->sum[s->n_model_parameters + i] / ((double)s->batch * (double)s->loss_elements[i]);
  return loss;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void *accumulators(int64_t t) {
  const struct pd_stage *s = pd.stage;
  return pd.arena + s->accumulators + (size_t)(t % s->accumulator_sets) * s->accumulators_stride;
}

static void post_tied(const struct pd_parameter *p, char *set) {
  enum { USES = 1024 }; /* tags a parameter */
  for (int i = 0; i < p->n_uses; i++) {
    int tag = p->order * USES + i, n = (int)p->elements;
    if (!tied_here(p, i)) {
      MPI_Irecv(pd.arena + p->uses[i].offset, n, MPI_FLOAT, p->uses[i].stage, tag, pd_comm_ties,
                &tied[n_tied++]);
      continue;
    }
    for (int j = 0; j < p->n_uses + p->n_readers; j++)
      if (holder(p, j) != pd.stage->stage && !named_before(p, j))
        MPI_Isend(set + p->uses[i].offset, n, MPI_FLOAT, holder(p, j), tag, pd_comm_ties, &tied[n_tied++]);
  }
}

/* Adds a chunk of p's uses into the last one's place. */
static void combine(const struct pd_parameter *p, const struct pd_chunk *c, char *set) {
  float *sum = pd_gradient_at(p, set) + c->first;
  for (int i = p->n_uses - 2; i >= 0; i--) {
    const float *more = (const float *)((tied_here(p, i) ? set : pd.arena) + p->uses[i].offset) + c->first;
#pragma omp simd
    for (int64_t j = 0; j < c->n; j++) sum[j] += more[j];
  }
}

static void combine_and_square(char *set, double *to) {
  const struct pd_stage *s = pd.stage;
#pragma omp parallel for schedule(static)
  for (int i = 0; i < pd_n_chunks; i++) {
    const struct pd_chunk *c = &pd_chunks[i];
    const struct pd_parameter *p = &s->parameters[c->parameter];
    chunk_squares[i] = 0;
    if (!p->n_uses) continue;
    combine(p, c, set);
    if (p->owner == s->stage) chunk_squares[i] = pd_sum_of_squares(c->n, pd_gradient_at(p, set) + c->first);
  }
  for (int i = 0; i < s->n_model_parameters; i++) to[i] = 0;
  for (int i = 0; i < pd_n_chunks; i++) to[s->parameters[pd_chunks[i].parameter].order] += chunk_squares[i];
}

/* ---- from exchange to figures ---------------------------------------------------------------- */

static double norm_of(const struct update *u) {
  const struct pd_stage *s = pd.stage;
  double sum = 0;
  for (int i = 0; i < s->n_model_parameters; i++) sum += u->sum[i];
  return sqrt(sum) / ((double)s->batch * (double)s->loss_elements[0]);
}

/* All ranks see the same figures; the stage that owns the first bad gradient reports it. */
static void check_finite(int64_t t, const struct update *u) {
  const struct pd_stage *s = pd.stage;
  int bad = 0;
  while (bad < s->n_model_parameters && isfinite(u->sum[bad])) bad++;
  if (bad == s->n_model_parameters) return;
  for (int i = 0; i < s->n_parameters; i++)
    if (s->parameters[i].order == bad && s->parameters[i].owner == s->stage)
      pd_fail("step %lld: the gradient of '%s' is not finite", (long long)(t + 1), s->parameters[i].name);
  pd_leave_to_others();
}

static void log_known(void) {
  for (; logged < exchanged; logged++) {
    struct update *u = update_of(logged);
    if (u->state != KNOWN || u->seconds < 0) return;
    pd_log_update(logged, mean_loss(u), norm_of(u), pd_learning_rate(pd.stage, logged), u->seconds);
    u->state = IDLE;
  }
}

/* Moves update t on; true when its state changed. */
static bool advance(int64_t t) {
  struct update *u = update_of(t);
  int done = 0;
  if (u->state == TIED) {
    MPI_Testall(n_tied, tied, &done, MPI_STATUSES_IGNORE);
    if (!done) return false;
    combine_and_square(accumulators(t), u->mine);
    MPI_Iallreduce(u->mine, u->sum, n_figures, MPI_DOUBLE, MPI_SUM, pd_comm_figures, &u->request);
    u->state = SUMMING;
    return true;
  }
  if (u->state == SUMMING) {
    MPI_Test(&u->request, &done, MPI_STATUS_IGNORE);
    if (!done) return false;
    u->state = KNOWN;
    check_finite(t, u);
    return true;
  }
  return false;
}

void pd_train_progress(void) {
  if (in_progress) return; /* reporting a bad gradient progresses messages, too */
  in_progress = true;
  for (int64_t t = logged; t < exchanged; t++)
    while (advance(t)) continue;
  in_progress = false;
}

/* Waits until update t's state is at least `state`. */
static void await(int64_t t, enum state state) {
  struct update *u = update_of(t);
  pd_train_progress();
  if (u->state == TIED) {
    pd_wait(n_tied, tied, "gradients of tied parameters for step", t + 1, NULL, -1);
    pd_train_progress();
  }
  if (state == KNOWN && u->state == SUMMING) {
    pd_wait(1, &u->request, "all ranks' figures of step", t + 1, NULL, -1);
    pd_train_progress();
  }
}

/* Where no update lags behind its batch the update itself may come first and posts the exchange. */
void pd_exchange(int64_t t) {
  if (t < exchanged) return;
  if (t > exchanged)
    pd_fail("internal: exchange of update %lld, expected %lld", (long long)t, (long long)exchanged);
  if (t > pd.first_step) await(t - 1, SUMMING); /* its tied gradients' buffers are free */
  if (t - 2 >= logged) await(t - 2, KNOWN);
  log_known();
  struct update *u = update_of(t);
  u->state = TIED;
  u->seconds = -1;
  n_tied = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    if (has_remote[i]) post_tied(&pd.stage->parameters[i], accumulators(t));
  exchanged = t + 1;
  pd_train_progress();
}

float pd_gradient_scale(int64_t t) {
  const struct pd_stage *s = pd.stage;
  pd_exchange(t);
  await(t, s->clip_norm > 0 ? KNOWN : SUMMING);
  double scale = 1 / ((double)s->batch * (double)s->loss_elements[0]);
  if (s->clip_norm > 0) { /* torch.nn.utils.clip_grad_norm_ */
    double factor = s->clip_norm / (norm_of(update_of(t)) + 1e-6);
    if (factor < 1) scale *= factor;
  }
  return (float)scale;
}

/* After every `every` updates, and after the last; every 0: after the last alone. */
static bool is_due(int64_t t, int64_t every) { return t + 1 == pd.steps || (every && (t + 1) % every == 0); }

bool pd_updated(int64_t t) {
  double now = pd_seconds();
  update_of(t)->seconds = now - clock_start;
  clock_start = now;
  updated = t + 1;
  pd_memory_sample();
  pd_train_progress();
  log_known();
  if (pd_options.checkpoint && is_due(t, pd_options.checkpoint_every)) {
    pd_train_catch_up(); /* no checkpoint of a step whose gradient was not finite */
    pd_checkpoint_write(t + 1);
    pd_clock_pause(pd_seconds() - now);
  }
  return pd_validation_data && is_due(t, pd_options.validate_every);
}

int64_t pd_updates_done(void) { return updated; }

void pd_train_catch_up(void) {
  for (int64_t t = logged; t < exchanged; t++) await(t, KNOWN);
  log_known();
}
