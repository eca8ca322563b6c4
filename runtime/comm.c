/* Messages between neighbouring stages. A lane is one direction over one cut, seen from one end: at the
 * receiving end one microbatch's receives are posted at a time, at the sending end one request a value
 * and slot. Nothing here relies on MPI buffering a message: sends are awaited only when their slot is
 * needed again, receives are posted before anything waits for them. */
#include "internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

MPI_Comm pd_comm_control, pd_comm_ties, pd_comm_figures;
static MPI_Comm comm_channels, comm_validation;

struct lane {
  const struct pd_channel *channel;
  const char *what;
  int peer, tag;        /* tag of the first value; the others follow */
  int64_t posted;       /* receiving: the microbatch whose receives are posted; 0: none */
  MPI_Request *request; /* receiving: [value]; sending: [slot][value] */
};

static struct lane activations_in, activations_out, gradients_in, gradients_out;
static MPI_Request *requests; /* of all lanes */
static int n_requests;

void pd_comm_open(void) {
  MPI_Comm *all[] = {&pd_comm_control, &pd_comm_ties, &pd_comm_figures, &comm_channels, &comm_validation};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) MPI_Comm_dup(MPI_COMM_WORLD, all[i]);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void give_up(double seconds, const char *what, int64_t number, const char *direction, int peer) {
  char text[256];
  if (peer < 0 && pd.ranks == 2) { /* all ranks are one other */
    direction = "from";
    peer = 1 - pd.rank;
  }
  int n = snprintf(text, sizeof text, "%s", what);
  if (number >= 0) n += snprintf(text + n, sizeof text - (size_t)n, " %lld", (long long)number);
  if (peer >= 0) snprintf(text + n, sizeof text - (size_t)n, " %s rank %d", direction, peer);
  /* Ranks that wait for the same silent peer give up together: the lowest speaks. */
  nanosleep(&(struct timespec){pd.rank / 5, pd.rank % 5 * 200000000L}, NULL);
  pd_fail("nothing came for %.0f s (--timeout): waited for %s", seconds, text);
}

void pd_wait(int n, MPI_Request *request, const char *what, int64_t number, const char *direction, int peer) {
  int done;
  MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
  if (done) return;
  for (double start = pd_seconds();;) {
    pd_train_progress();
    MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
    if (done) return;
    double waited = pd_seconds() - start;
    if (waited > pd_options.timeout) give_up(waited, what, number, direction, peer);
    if (waited > 2e-3)
      nanosleep(&(struct timespec){0, 20000}, NULL);
    else if (waited > 50e-6)
      sched_yield();
  }
}

void pd_progress(void) {
  int done;
  if (n_requests) MPI_Testall(n_requests, requests, &done, MPI_STATUSES_IGNORE);
  pd_train_progress();
}

void pd_emulate(double seconds) {
  for (double until = pd_seconds() + seconds, left; (left = until - pd_seconds()) > 0;) {
    pd_progress();
    nanosleep(&(struct timespec){0, left > 200e-6 ? 200000 : (long)(left * 1e9)}, NULL);
  }
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void *value_at(const struct pd_channel *c, int value, int64_t slot) {
  return pd.arena + c->value[value].offset + (size_t)slot * c->value[value].stride;
}

static int value_floats(const struct pd_channel *c, int value) {
  size_t n = c->value[value].bytes / sizeof(float);
  if (n > INT32_MAX) pd_fail("a message of %zu bytes is larger than MPI can count", c->value[value].bytes);
  return (int)n;
}

static void post_receives(struct lane *l, int64_t k) {
  const struct pd_channel *c = l->channel;
  if (!c->n || k > pd.steps * pd.stage->microbatches) return;
  for (int i = 0; i < c->n; i++)
    MPI_Irecv(value_at(c, i, k % c->slots), value_floats(c, i), MPI_FLOAT, l->peer, l->tag + i, comm_channels,
              &l->request[i]);
  l->posted = k;
}

static void receive(struct lane *l, int64_t k) {
  if (!l->channel->n) return;
  if (l->posted != k)
    pd_fail("internal: receives %s %lld, but %lld was posted", l->what, (long long)k, (long long)l->posted);
  pd_wait(l->channel->n, l->request, l->what, k, "from", l->peer);
  post_receives(l, k + 1);
}

static void await_slot(struct lane *l, int64_t k) {
  const struct pd_channel *c = l->channel;
  if (c->n) pd_wait(c->n, l->request + k % c->slots * c->n, l->what, k - c->slots, "to be taken by", l->peer);
}

static void send(struct lane *l, int64_t k) {
  const struct pd_channel *c = l->channel;
  int64_t slot = c->n ? k % c->slots : 0;
  await_slot(l, k);
  for (int i = 0; i < c->n; i++)
    MPI_Isend(value_at(c, i, slot), value_floats(c, i), MPI_FLOAT, l->peer, l->tag + i, comm_channels,
              &l->request[slot * c->n + i]);
}

void pd_receive_activations(int64_t k) { receive(&activations_in, k); }
void pd_send_activations(int64_t k) { send(&activations_out, k); }
void pd_receive_gradients(int64_t k) { receive(&gradients_in, k); }
void pd_send_gradients(int64_t k) { send(&gradients_out, k); }
void pd_await_activations_slot(int64_t k) { await_slot(&activations_out, k); }
void pd_await_gradients_slot(int64_t k) { await_slot(&gradients_out, k); }

void pd_comm_start(void) {
  const struct pd_stage *s = pd.stage;
  enum { GRADIENT_TAG = 1 << 16 };
  activations_in = (struct lane){&s->activations_in[0], "activations of microbatch", s->stage - 1, 0, 0, NULL};
  activations_out = (struct lane){&s->activations_out[0], "activations of microbatch", s->stage + 1, 0, 0, NULL};
  gradients_in = (struct lane){
    &s->gradients_in[0], "gradients of microbatch", s->stage + 1, GRADIENT_TAG, 0, NULL};
  gradients_out = (struct lane){
    &s->gradients_out[0], "gradients of microbatch", s->stage - 1, GRADIENT_TAG, 0, NULL};
  struct lane *lanes[] = {&activations_in, &gradients_in, &activations_out, &gradients_out};
  for (int i = 0; i < 4; i++) n_requests += lanes[i]->channel->n * (i < 2 ? 1 : lanes[i]->channel->slots);
  requests = pd_allocate(sizeof *requests * (size_t)n_requests);
  for (int i = 0; i < n_requests; i++) requests[i] = MPI_REQUEST_NULL;
  MPI_Request *next = requests;
  for (int i = 0; i < 4; i++) {
    lanes[i]->request = next;
    next += lanes[i]->channel->n * (i < 2 ? 1 : lanes[i]->channel->slots);
  }
  int64_t first = pd.first_step * s->microbatches + 1;
  post_receives(&activations_in, first);
  post_receives(&gradients_in, first);
}

void pd_comm_finish(void) { pd_wait(n_requests, requests, "the last messages to be taken", -1, NULL, -1); }

/* ---- validation: the same buffers, messages apart -------------------------------------------- */

static void validation_transfer(struct lane *l, int64_t v, int64_t slot, bool in) {
  const struct pd_channel *c = l->channel;
  for (int i = 0; i < c->n; i++) { /* values are few, and neighbours agree on their order */
    MPI_Request request;
    if (in)
      MPI_Irecv(value_at(c, i, slot), value_floats(c, i), MPI_FLOAT, l->peer, i, comm_validation, &request);
    else
      MPI_Isend(value_at(c, i, slot), value_floats(c, i), MPI_FLOAT, l->peer, i, comm_validation, &request);
    pd_wait(1, &request, "activations of validation microbatch", v, in ? "from" : "to be taken by", l->peer);
  }
}

void pd_validation_receive(int64_t v, int64_t slot) { validation_transfer(&activations_in, v, slot, true); }
void pd_validation_send(int64_t v, int64_t slot) { validation_transfer(&activations_out, v, slot, false); }
