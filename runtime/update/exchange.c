/* Figures and gradients of a batch between its last backward pass and its update. For update t this rank:
 *   reduces   adds up the accumulators of all replicas (reduce.c), in two rounds of messages: all of them or, with
 *             optimizer state sharding, the part that it updates. The last backward pass starts this for each
 *             complete bucket;
 *   exchanges sends its gradients of tied parameters to the other stages that hold them, and posts receives;
 *   combines  after these messages, adds the uses of each parameter from last to first;
 *   figures   adds up squares of its stage's own gradients and posts one sum over all ranks of these squares and of
 *             the sums of losses and metrics, with a slot for each replica that may have computed one. Each slot has
 *             one contributor and all other ranks add zero, so the sum is exact in any order.
 * All steps advance whenever messages are advanced. Several updates may be in flight; their figures are posted in
 * the order of updates, as collective operations require. On a device the first three steps are enqueued at
 * once, and the host does not wait for them. */
#include "update/clip.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "update/update.h"
#include "transfer.h"

#include <math.h>
#include <stdlib.h>

enum state { IDLE, REDUCING, SPREADING, TIED, SQUARING, SUMMING, KNOWN };

struct update {
  enum state state;
  int complete, posted, gathered, spread; /* buckets not yet reduced, not yet spread */
  double *bucket_posted;                  /* time of the messages' post */
  MPI_Request sum_request;
  double *mine, *all; /* squares (pd_square_at), then [figure][replica] sums: of this rank, of all ranks */
  double posted_at;   /* time of the post of the state's messages */
};

/* By exchange set, TRANSFERS each: bucket b uses b % TRANSFERS, and waits until it is free. */
enum { TRANSFERS = 4 };
static struct {
  struct update *updates;
  struct pd_line *replicas_line, *ties_line; /* NULL: no such messages, as with shared memory */
  struct pd_transfer **transfers;
  struct pd_message *messages; /* messages being posted */
  int n_updates;               /* size of `updates`; t uses t % n_updates */
  int under_way; /* largest number of updates exchanged but not logged, so that figures of later batches have room */
  int n_sums, most_replicas;
  struct squares {
    int first, parts, tiles;
  } * squares_of;     /* by model parameter, followed by their total: see count_squares() */
  double *parts_sums; /* one parameter's */
  bool *has_remote;   /* by parameter of this stage: has a gradient, and another stage also holds it */
  bool in_progress;
} exchange;

static struct update *update_of(int64_t t) { return &exchange.updates[t % exchange.n_updates]; }
static bool tied_here(const struct pd_parameter *p, int use) { return p->uses[use].stage == pd.stage->stage; }
static bool has_replicas(void) { return exchange.replicas_line || pd_replicas_shared(); }
static int transfers_a_set(void) { return pd_buckets() < TRANSFERS ? pd_buckets() : TRANSFERS; }
int pd_exchange_sets(void) { return pd.stage->exchange_sets > 0 ? pd.stage->exchange_sets : 1; }

/* The stages that hold p: stages of its uses, then its readers. Each of their ranks gets one message per use. */
static int holder(const struct pd_parameter *p, int i) {
  return i < p->n_uses ? p->uses[i].stage : p->readers[i - p->n_uses];
}

static bool named_before(const struct pd_parameter *p, int i) {
  for (int j = 0; j < i; j++)
    if (holder(p, j) == holder(p, i)) return true;
  return false;
}

/* Two ranks are at most as far apart as the microbatches in flight of a stage: 3 max(w) over all replicas
 * (docs/guide/schedules.md: h is at most 2), or a batch. */
static int batches_apart(void) {
  const struct pd_stage *s = pd.stage;
  int64_t in_flight = 3 * (int64_t)s->n_stages * exchange.most_replicas;
  return (int)((in_flight + s->microbatches - 1) / s->microbatches) + 1;
}

/* Fills has_remote; returns the largest number of messages of an exchange, and the bytes of the largest
 * message. */
static int find_remote(size_t *bytes) {
  const struct pd_stage *s = pd.stage;
  int n = 0;
  exchange.has_remote = pd_allocate(sizeof *exchange.has_remote * (size_t)s->n_parameters);
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    size_t size = (size_t)p->elements * sizeof(float);
    for (int j = 0; j < p->n_uses + p->n_readers; j++)
      if (holder(p, j) != s->stage) exchange.has_remote[i] = p->n_uses > 0;
    if (!exchange.has_remote[i]) continue;
    if (s->spilled && !s->spilled->parameters[i].gradients_stay)
      pd_fail("internal: '%s' is exchanged, but its gradients are offloaded", p->name);
    n += p->n_uses * pd.ranks;
    if (size > *bytes) *bytes = size;
  }
  return n;
}

bool pd_has_remote(const struct pd_parameter *p) { return exchange.has_remote[p - pd.stage->parameters]; }

/* Collective: counts squares. A parameter has one square; with tensor parallelism one per rank of the shard group;
 * with optimizer state sharding one per tile. */
static void count_squares(void) {
  const struct pd_stage *s = pd.stage;
  int n = s->n_model_parameters;
  int *mine = pd_allocate(2 * sizeof *mine * (size_t)n), *most = pd_allocate(2 * sizeof *most * (size_t)n);
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    if (p->owner != s->stage) continue;
    if (p->runs) mine[2 * p->order] = pd_tensor_degree();
    if (pd_is_split(p)) mine[2 * p->order + 1] = (int)((p->elements + PD_TILE - 1) / PD_TILE);
  }
  MPI_Request request;
  MPI_Iallreduce(mine, most, 2 * n, MPI_INT, MPI_MAX, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to exchange their replicas' shares", -1, NULL, -1);
  exchange.squares_of = pd_allocate(sizeof *exchange.squares_of * (size_t)(n + 1));
  for (int i = 0, first = 0; i <= n; i++) {
    struct squares *x = &exchange.squares_of[i];
    *x = (struct squares){first, i < n && most[2 * i] ? most[2 * i] : 1,
                          i < n && most[2 * i + 1] ? most[2 * i + 1] : 1};
    first += x->parts * x->tiles;
  }
  exchange.parts_sums = pd_allocate(sizeof *exchange.parts_sums * (size_t)pd_tensor_degree());
  free(mine);
  free(most);
}

static int n_squares(void) { return exchange.squares_of[pd.stage->n_model_parameters].first; }

int pd_square_at(const struct pd_parameter *p, int64_t first) {
  const struct squares *x = &exchange.squares_of[p->order];
  return x->first + (p->runs ? pd.tensor_rank * x->tiles : 0) + (x->tiles > 1 ? (int)(first / PD_TILE) : 0);
}

static struct pd_line *open_replicas_line(void) {
  int *ranks = pd_allocate(sizeof *ranks * (size_t)pd_replicas());
  for (int r = 0; r < pd_replicas(); r++) ranks[r] = pd_rank_of(pd.stage->stage, r);
  struct pd_line *line = pd_line_open(pd_comm_replicas, pd_replicas(), ranks, PD_EXCHANGING);
  free(ranks);
  return line;
}

/* One line among all ranks of all stages with shared parameters. */
static struct pd_line *open_ties_line(bool tied) {
  int mine = tied, n = 0;
  int *all = pd_allocate(sizeof *all * (size_t)pd.ranks), *ranks = pd_allocate(sizeof *ranks * (size_t)pd.ranks);
  MPI_Request request;
  MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to exchange their shared parameters", -1, NULL, -1);
  for (int r = 0; r < pd.ranks; r++)
    if (all[r]) ranks[n++] = r;
  struct pd_line *line = tied ? pd_line_open(pd_comm_ties, n, ranks, PD_EXCHANGING) : NULL;
  free(all);
  free(ranks);
  return line;
}

static void open_lines(void) {
  size_t bytes = 0;
  int ties = find_remote(&bytes);
  pd_reduce_start();
  int room = pd_replicas_shared() ? 0 : pd_reduce_messages();
  if (room) exchange.replicas_line = open_replicas_line();
  pd_optimizer_shards_start();
  exchange.ties_line = open_ties_line(ties > 0);
  if (room && pd_reduce_bytes() > bytes) bytes = pd_reduce_bytes();
  if (ties > room) room = ties;
  exchange.messages = pd_allocate(sizeof *exchange.messages * (size_t)room);
  int n = pd_exchange_sets() * transfers_a_set();
  exchange.transfers = pd_allocate(sizeof *exchange.transfers * (size_t)n);
  for (int i = 0; i < n; i++) exchange.transfers[i] = pd_transfer_new(room, bytes);
}

int pd_exchange_start(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_stages; i++)
    if (s->replicas[i] > exchange.most_replicas) exchange.most_replicas = s->replicas[i];
  count_squares();
  exchange.n_sums = n_squares() + s->n_figures * exchange.most_replicas;
  exchange.under_way = pd_exchange_sets() + 1 + batches_apart();
  exchange.n_updates = exchange.under_way + 1 + batches_apart();
  exchange.updates = pd_allocate(sizeof *exchange.updates * (size_t)exchange.n_updates);
  for (int i = 0; i < exchange.n_updates; i++) {
    exchange.updates[i].mine = pd_allocate(sizeof(double) * (size_t)exchange.n_sums);
    exchange.updates[i].all = pd_allocate(sizeof(double) * (size_t)exchange.n_sums);
    exchange.updates[i].bucket_posted = pd_allocate(sizeof(double) * (size_t)pd_buckets());
  }
  open_lines();
  pd_sums_start(exchange.under_way);
  pd_updates = (struct pd_updates){pd.first_step, pd.first_step, pd.first_step};
  return exchange.under_way;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double *replicas_sums(double *sums, int figure) {
  return sums + n_squares() + figure * exchange.most_replicas;
}

void pd_add_figure(int figure, int64_t t, bool first, double sum) {
  if (t - pd_updates.logged >= exchange.n_updates)
    pd_fail("internal: room for the figures of %d batches is not enough", exchange.n_updates);
  double *mine = replicas_sums(update_of(t)->mine, figure) + pd.replica;
  *mine = pd.tensor_rank ? 0 : (first ? 0 : *mine) + sum;
}

double pd_figure_sum(int figure, int64_t t) {
  double sum = 0;
  for (int r = 0; r < exchange.most_replicas; r++) sum += replicas_sums(update_of(t)->all, figure)[r];
  return sum;
}

/* ---- gradients ------------------------------------------------------------------------------- */

char *pd_accumulators(int64_t t) {
  const struct pd_stage *s = pd.stage;
  return pd.arena + s->accumulators + (size_t)(t % s->accumulator_sets) * s->accumulators_stride;
}

size_t pd_exchange_set(int64_t t) { return (size_t)(t % pd_exchange_sets()) * pd.stage->exchanged_stride; }

static struct pd_message tied(const struct pd_parameter *p, int use, int64_t t, bool sent, int peer) {
  enum { USES = 1024 }; /* tags a parameter */
  float *gradient = pd_use_at(p, use, t, pd_accumulators(t));
  return (struct pd_message){peer, sent, p->order * USES + use, gradient, (size_t)p->elements * sizeof *gradient};
}

/* Sends use `use` of p, summed over this stage's replicas, to the ranks of another stage that receive it from this
 * rank: replica q receives it from replica q % w of the use's stage. */
static int send_use(const struct pd_parameter *p, int use, int64_t t, int stage, struct pd_message *to) {
  int n = 0;
  for (int q = pd.replica; q < pd.stage->replicas[stage]; q += pd_replicas())
    to[n++] = tied(p, use, t, true, pd_rank_of(stage, q));
  return n;
}

/* The messages of parameter p; all holders use the same order of uses. */
static int exchange_uses(const struct pd_parameter *p, int64_t t, struct pd_message *to) {
  int n = 0;
  for (int i = 0; i < p->n_uses; i++) {
    if (!tied_here(p, i)) {
      int from = p->uses[i].stage, replica = pd.replica % pd.stage->replicas[from];
      to[n++] = tied(p, i, t, false, pd_rank_of(from, replica));
      continue;
    }
    for (int j = 0; j < p->n_uses + p->n_readers; j++)
      if (holder(p, j) != pd.stage->stage && !named_before(p, j)) n += send_use(p, i, t, holder(p, j), to + n);
  }
  return n;
}

/* ---- from exchange to figures ---------------------------------------------------------------- */

/* In the order of a single rank's sums, for any distribution of tiles. */
static double parameter_square(const double *all, const struct squares *x) {
  for (int i = 0; i < x->parts; i++)
    exchange.parts_sums[i] = pd_add_squares(all + x->first + i * x->tiles, x->tiles);
  return pd_add_squares(exchange.parts_sums, x->parts);
}

double pd_gradient_norm(int64_t t) {
  double sum = 0;
  for (int i = 0; i < pd.stage->n_model_parameters; i++)
    sum += parameter_square(update_of(t)->all, &exchange.squares_of[i]);
  return pd_mean_norm(sum, pd_loss_elements());
}

/* All ranks have the same figures; the contributor of the first non-finite one reports it. */
static void check_finite(int64_t t, const struct update *u) {
  const struct pd_stage *s = pd.stage;
  int bad = 0;
  while (bad < n_squares() && isfinite(u->all[bad])) bad++;
  if (bad == n_squares()) return;
  int order = 0;
  while (exchange.squares_of[order + 1].first <= bad) order++;
  for (int i = 0; i < s->n_parameters; i++)
    if (s->parameters[i].order == order && s->parameters[i].owner == s->stage && !pd.replica &&
        pd.tensor_rank == (s->parameters[i].runs
                               ? (bad - exchange.squares_of[order].first) / exchange.squares_of[order].tiles
                               : 0))
      pd_fail("step %lld: the gradient of '%s' is non-finite. help: lower the learning rate, or clip gradients",
              (long long)(t + 1), s->parameters[i].name);
  pd_leave_to_others();
}

static struct pd_transfer *transfer_of(int64_t t, int bucket) {
  return exchange.transfers[t % pd_exchange_sets() * transfers_a_set() + bucket % transfers_a_set()];
}

static void enter(struct update *u, enum state state) {
  u->state = state;
  if (state != SPREADING) u->posted_at = pd_seconds();
}

/* ---- buckets --------------------------------------------------------------------------------- */

static void post_bucket(int64_t t, struct update *u) {
  int b = u->posted++;
  u->bucket_posted[b] = pd_seconds();
  if (exchange.replicas_line)
    pd_transfer_post(transfer_of(t, b), exchange.replicas_line, pd_reduce_gather(t, b, exchange.messages),
                     exchange.messages);
  else
    pd_replicas_ready(t, b);
}

static bool is_gathered(int64_t t, int b) {
  return exchange.replicas_line ? pd_transfer_passed(transfer_of(t, b)) : pd_replicas_gathered(t, b);
}

static void spread_bucket(int64_t t, struct update *u) {
  int n, b = u->gathered++;
  if (!exchange.replicas_line)
    pd_replicas_sum(t, b);
  else if ((n = pd_reduce_spread(t, b, exchange.messages)))
    pd_transfer_post(transfer_of(t, b), exchange.replicas_line, n, exchange.messages);
}

static bool is_spread(int64_t t, int b) {
  return exchange.replicas_line ? pd_transfer_passed(transfer_of(t, b)) : pd_replicas_spread(t, b);
}

/* Intervals of a trace must not overlap. */
static void end_bucket(int64_t t, struct update *u) {
  static double last;
  int b = u->spread++;
  double start = u->bucket_posted[b] > last ? u->bucket_posted[b] : last;
  last = pd_seconds();
  pd_trace(PD_REDUCE, t, -1, start, last);
}

/* Waits for the previous update if it is in the same state. */
static bool may_go_on(int64_t t, enum state state) {
  return t == pd_updates.logged || update_of(t - 1)->state > state;
}

/* Posts complete buckets, and adds up and spreads gathered ones, each in order. On a device, where messages pass
 * when posted, all replicas thus post them in the same order. */
static void move_buckets(int64_t t, struct update *u) {
  bool gathers = may_go_on(t, REDUCING), spreads = may_go_on(t, SPREADING);
  for (bool moved = true; moved;) {
    moved = true;
    if (gathers && u->gathered < u->posted && is_gathered(t, u->gathered))
      spread_bucket(t, u);
    else if (spreads && u->spread < u->gathered && is_spread(t, u->spread))
      end_bucket(t, u);
    else if (u->posted < u->complete && u->posted < u->spread + transfers_a_set())
      post_bucket(t, u);
    else
      moved = false;
  }
}

/* Declares the first buckets of batch t complete: their messages start after the work so far. */
static void buckets_complete(int64_t t, int n) {
  struct update *u = update_of(t);
  if (u->state == IDLE) {
    u->complete = u->posted = u->gathered = u->spread = 0;
    enter(u, REDUCING);
  }
  if (n <= u->complete) return;
  pd_sums_begin();
  u->complete = n;
}

static void enter_tied(int64_t t, struct update *u) {
  int n = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    if (exchange.has_remote[i]) n += exchange_uses(&pd.stage->parameters[i], t, exchange.messages + n);
  if (n) pd_transfer_post(transfer_of(t, 0), exchange.ties_line, n, exchange.messages);
  enter(u, TIED);
}

/* ---- from one state to the next ---------------------------------------------------------------- */

/* Advances update t from a complete state to the next. */
static void next_state(int64_t t, struct update *u) {
  switch (u->state) {
  case REDUCING: enter(u, SPREADING); break;
  case SPREADING: enter_tied(t, u); break;
  case TIED:
    for (int i = 0; i < n_squares(); i++) u->mine[i] = 0;
    pd_combine(t);
    u->state = SQUARING;
    break;
  case SQUARING:
    MPI_Iallreduce(u->mine, u->all, exchange.n_sums, MPI_DOUBLE, MPI_SUM, pd_comm_figures, &u->sum_request);
    u->state = SUMMING;
    break;
  default:
    pd_trace(PD_EXCHANGE, t, -1, u->posted_at, pd_seconds());
    u->state = KNOWN;
    check_finite(t, u);
  }
}

/* A non-finite loss ends the launch, after all earlier causes are known, which also advances exchanges. */
static bool figures_are_known(int64_t t) {
  exchange.in_progress = false;
  bool known = pd_figures_are_known(t);
  exchange.in_progress = true;
  return known;
}

static bool is_over(int64_t t, struct update *u) {
  if (u->state < TIED)
    return t < pd_updates.exchanged && (u->state == REDUCING ? u->gathered : u->spread) == pd_buckets();
  if (u->state < SQUARING) return pd_transfer_passed(transfer_of(t, 0));
  if (u->state == SQUARING) return figures_are_known(t) && pd_squares(t, u->mine);
  int done;
  MPI_Test(&u->sum_request, &done, MPI_STATUS_IGNORE);
  return done;
}

/* Advances update t as far as the arrived messages allow, but never past the previous update: messages of tied
 * parameters are matched by order only. */
static void advance(int64_t t) {
  struct update *u = update_of(t);
  while (u->state != IDLE && u->state != KNOWN) {
    if (u->state < TIED) move_buckets(t, u);
    if (u->state < SUMMING && !may_go_on(t, u->state)) return;
    if (!is_over(t, u)) return;
    next_state(t, u);
  }
}

/* The backward pass of the last update may still complete buckets. */
void pd_exchange_progress(void) {
  if (exchange.in_progress) return; /* reporting a non-finite gradient advances messages */
  exchange.in_progress = true;
  for (int64_t t = pd_updates.logged; t < pd_updates.exchanged; t++) advance(t);
  if (exchange.n_updates && update_of(pd_updates.exchanged)->state == REDUCING) advance(pd_updates.exchanged);
  exchange.in_progress = false;
}

/* Describes the wait of an update in this state, for messages. */
struct leaving {
  struct update *update;
  enum state state;
};

static bool has_left(void *of) {
  const struct leaving *l = of;
  return l->update->state > l->state;
}

/* Waits until update t's state is at least `state`. */
static void await(int64_t t, enum state state) {
  static const char *const what[] = {[REDUCING] = "the other replicas' gradients of step",
                                     [SPREADING] = "the replicas' sums of gradients of step",
                                     [TIED] = "gradients of tied parameters for step",
                                     [SQUARING] = "the device's gradients of step",
                                     [SUMMING] = "all ranks' figures of step"};
  pd_exchange_progress();
  for (int64_t i = pd_updates.logged; i <= t; i++) {
    struct leaving now = {update_of(i), IDLE};
    while ((now.state = now.update->state) < state)
      pd_wait_until(has_left, &now, what[now.state], i + 1, NULL, -1);
  }
}

/* If updates do not lag behind their batch, the update may come first and post the exchange. */
void pd_exchange(int64_t t) {
  if (t < pd_updates.exchanged) return;
  if (t > pd_updates.exchanged || t - pd_updates.done >= pd_exchange_sets())
    pd_fail("internal: exchange of update %lld, expected %lld, with %lld done", (long long)t,
            (long long)pd_updates.exchanged, (long long)pd_updates.done);
  while (t - pd_updates.logged >= exchange.under_way) {
    await(pd_updates.logged, KNOWN);
    pd_log_known();
  }
  pd_updates.exchanged = t + 1;
  if (has_replicas()) {
    buckets_complete(t, pd_buckets());
  } else {
    pd_sums_begin();
    enter_tied(t, update_of(t));
  }
  pd_exchange_progress();
}

/* If other work must come first, pd_exchange starts the bucket. In the first batch a device loads kernels, which
 * may wait for all its work, including messages. */
void pd_bucket_complete(int bucket) {
  int64_t t = pd_batch_ending();
  if (t != pd_updates.exchanged || !has_replicas() || pd_device_recording()) return;
  if (pd_device_name() && t == pd.first_step) return;
  if (t - pd_updates.done >= pd_exchange_sets() || t - pd_updates.logged >= exchange.under_way) return;
  buckets_complete(t, bucket + 1);
  pd_exchange_progress();
}

void pd_exchange_await(int64_t t, bool known) {
  await(t, known ? KNOWN : SQUARING);
  pd_gradients_complete(t);
}

bool pd_exchange_known(int64_t t) { return update_of(t)->state == KNOWN; }

void pd_exchange_forget(int64_t t) {
  update_of(t)->state = IDLE;
  pd_updates.logged = t + 1;
}
