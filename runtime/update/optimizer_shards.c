/* Optimizer state sharding over a stage's replicas (ZeRO-1): each replica keeps ranges of moments, masters and
 * averages (pd_stage.shards) and updates the weights of these ranges. At the end of an update each replica sends
 * its ranges to all others; messages are awaited before a pass reads these weights. This file has the
 * distribution, and joins parts to whole tensors for files and validations. */
#include "shared/checksum.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "update/update.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHTS_TAG = 2048, STATE_TAG = 4096 }; /* above those of reduce.c, on the replicas' communicator */

static struct {
  struct pd_line *line;
  struct pd_transfer *transfer;
  struct pd_message *messages;
  int64_t under_way; /* the version being gathered; -1: none */
  double posted;
} gathering = {.under_way = -1};

/* ---- who has what ----------------------------------------------------------------------------- */

static size_t state_of(const struct pd_parameter *p) { return pd.stage->has_masters ? p->state : p->offset; }

static int64_t elements_before(size_t bytes, const struct pd_parameter *p) {
  int64_t n = bytes > state_of(p) ? (int64_t)((bytes - state_of(p)) / sizeof(float)) : 0;
  return n < p->elements ? n : p->elements;
}

static int n_cells(void) { return pd.stage->shard_cells > 1 ? pd.stage->shard_cells : 1; }
static const size_t *cell_at(int cell) { return pd.stage->shards + (size_t)cell * (size_t)(pd_replicas() + 1); }

/* The cell of a parameter, which is in one cell only. */
static int cell_of(const struct pd_parameter *p) {
  int cell = 0;
  while (cell + 1 < n_cells() && cell_at(cell + 1)[0] <= state_of(p)) cell++;
  return cell;
}

struct pd_slice pd_part_of(const struct pd_parameter *p, int replica) {
  if (!pd.stage->shards || p->frozen) return (struct pd_slice){0, p->elements};
  const size_t *cell = cell_at(cell_of(p));
  int64_t first = elements_before(cell[replica], p), end = elements_before(cell[replica + 1], p);
  return (struct pd_slice){first, end - first};
}

struct pd_slice pd_own_part(const struct pd_parameter *p) {
  return pd_part_of(p, pd.replica);
}

bool pd_is_split(const struct pd_parameter *p) {
  bool split = false;
  for (int r = 0; r < pd_replicas() && pd.stage->shards; r++) {
    int64_t n = pd_part_of(p, r).n;
    split |= n > 0 && n < p->elements;
  }
  return split;
}

int64_t pd_state_offset(const struct pd_parameter *p) {
  if (!pd.stage->shards) return (int64_t)state_of(p);
  const int cell = cell_of(p);
  int64_t before = 0; /* its parts of other cells */
  for (int c = 0; c < cell; c++) before += (int64_t)(cell_at(c)[pd.replica + 1] - cell_at(c)[pd.replica]);
  return before + (int64_t)state_of(p) - (int64_t)cell_at(cell)[pd.replica];
}

char *pd_state_at(size_t section, const struct pd_parameter *p) {
  return pd.arena + (int64_t)section + pd_state_offset(p);
}

/* A tensor of the parameter's shape is divided like the parameter; a tensor of another shape belongs to whole
 * parameters. */
struct pd_slice pd_part_of_tensor(const struct pd_parameter *p, int64_t elements, int replica) {
  struct pd_slice part = pd_part_of(p, replica);
  if (elements == p->elements) return part;
  return (struct pd_slice){0, part.n == p->elements ? elements : 0};
}

/* ---- updated weights --------------------------------------------------------------------------- */

/* The offset in a weights struct for an offset in the state's struct. */
static size_t weights_offset(size_t state) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    size_t at = state_of(p);
    if (p->frozen || state < at || state >= at + (size_t)(p->elements + p->padding) * sizeof(float)) continue;
    return p->offset + (state - at) / (p->bf16 ? 2 : 1);
  }
  return s->weights_stride; /* the end */
}

/* Bytes [from, end) of a weights struct. */
static void part_of_weights(int cell, int replica, size_t *from, size_t *end) {
  *from = weights_offset(cell_at(cell)[replica]);
  *end = cell_at(cell)[replica + 1] > cell_at(cell)[replica] ? weights_offset(cell_at(cell)[replica + 1]) : *from;
}

void pd_optimizer_shards_start(void) {
  int n = pd_replicas();
  size_t most = 0, from, end;
  if (!pd.stage->shards) return;
  int *ranks = pd_allocate(sizeof *ranks * (size_t)n);
  for (int r = 0; r < n; r++) ranks[r] = pd_rank_of(pd.stage->stage, r);
  for (int i = 0; i < n * n_cells(); i++) {
    part_of_weights(i / n, i % n, &from, &end);
    most = end - from > most ? end - from : most;
  }
  gathering.line = pd_line_open(pd_comm_replicas, n, ranks, PD_COMPUTING);
  int most_messages = 2 * (n - 1) * n_cells();
  gathering.transfer = pd_transfer_new(most_messages, most);
  gathering.messages = pd_allocate(sizeof *gathering.messages * (size_t)most_messages);
  free(ranks);
}

static struct pd_message message(bool sent, int cell, int of, int peer, int64_t t) {
  const struct pd_stage *s = pd.stage;
  size_t from, end;
  part_of_weights(cell, of, &from, &end);
  char *weights = pd.arena + s->weights + (size_t)(t % s->versions) * s->weights_stride;
  return (struct pd_message){pd_rank_of(s->stage, peer), sent, WEIGHTS_TAG + (int)(t % 1024), weights + from,
                             end - from};
}

void pd_share_weights(int64_t t) {
  pd_await_weights(t);
  int n = 0;
  for (int i = 1; i < pd_replicas();
       i++) { /* starting after this rank, so that ranks do not all send to the same peer */
    int q = (pd.replica + i) % pd_replicas();
    for (int c = 0; c < n_cells(); c++) {
      gathering.messages[n++] = message(false, c, q, q, t);
      gathering.messages[n++] = message(true, c, pd.replica, q, t);
    }
  }
  pd_transfer_post(gathering.transfer, gathering.line, n, gathering.messages);
  gathering.under_way = t;
  gathering.posted = pd_seconds();
}

static bool have_passed(void *unused) {
  (void)unused;
  return pd_transfer_passed(gathering.transfer);
}

void pd_await_weights(int64_t t) {
  if (gathering.under_way < 0 || gathering.under_way > t) return;
  pd_wait_until(have_passed, NULL, "the other replicas' parts of the weights of step", gathering.under_way, NULL,
                -1);
  pd_trace(PD_GATHER, gathering.under_way - 1, -1, gathering.posted, pd_seconds());
  gathering.under_way = -1;
}

static bool are_through(void *unused) {
  (void)unused;
  return pd_transfer_through(gathering.transfer);
}

void pd_optimizer_shards_finish(void) {
  if (gathering.transfer)
    pd_wait_until(are_through, NULL, "the last parts of the weights to be sent", -1, NULL, -1);
}

/* ---- averages in the place of the newest weights ------------------------------------------------- */

/* Swaps the newest weights with the averages for a validation, in this replica's part. */
void pd_swap_part(float *a, float *b, int64_t n) {
  if (n == 0) return;
  float *kept = pd_allocate(sizeof *kept * (size_t)n);
  memcpy(kept, pd_view(a, n, false), sizeof *kept * (size_t)n);
  pd_round(a, b, n, false);
  memcpy(pd_fill(b, n, false), kept, sizeof *kept * (size_t)n);
  pd_filled(b, n, false);
  free(kept);
}

/* ---- wholes -------------------------------------------------------------------------------------- */

/* Between hosts' memories, with a checksum if --check-messages. */
static void pass(bool sent, int peer, float *at, int64_t n) {
  uint64_t sum = sent && pd_options.check_messages ? pd_checksum(at, (size_t)n * sizeof *at) : 0, theirs = sum;
  int rank = pd_rank_of(pd.stage->stage, peer);
  MPI_Request request[2];
  if (sent) {
    MPI_Isend(at, (int)n, MPI_FLOAT, rank, STATE_TAG, pd_comm_replicas, &request[0]);
    MPI_Isend(&sum, 1, MPI_UINT64_T, rank, STATE_TAG + 1, pd_comm_replicas, &request[1]);
  } else {
    MPI_Irecv(at, (int)n, MPI_FLOAT, rank, STATE_TAG, pd_comm_replicas, &request[0]);
    MPI_Irecv(&theirs, 1, MPI_UINT64_T, rank, STATE_TAG + 1, pd_comm_replicas, &request[1]);
  }
  pd_wait(2, request, "a replica's part of the state", -1, sent ? "to be received by" : "from", rank);
  if (!sent && pd_options.check_messages && theirs != pd_checksum(at, (size_t)n * sizeof *at))
    pd_fail("--check-messages: the optimizer state from rank %d arrived with a different checksum: a link, or the "
            "memory of either host, corrupts data",
            rank);
}

const float *pd_whole(const struct pd_parameter *p, const float *at, int64_t elements) {
  enum { PIECE = 1 << 24 }; /* floats */
  static float *whole;
  static int64_t room;
  if (elements > room) {
    free(whole);
    whole = pd_allocate(sizeof *whole * (size_t)elements);
    room = elements;
  }
  struct pd_slice own = pd_part_of_tensor(p, elements, pd.replica);
  if (own.n) memcpy(whole + own.first, pd_view(at + own.first, own.n, false), sizeof *whole * (size_t)own.n);
  for (int r = pd.replica ? pd.replica : 1; r < (pd.replica ? pd.replica + 1 : pd_replicas()); r++) {
    struct pd_slice part = pd_part_of_tensor(p, elements, r);
    for (int64_t i = 0; i < part.n; i += PIECE)
      pass(pd.replica != 0, pd.replica ? 0 : r, whole + part.first + i, part.n - i < PIECE ? part.n - i : PIECE);
  }
  return pd.replica ? NULL : whole;
}
