/* Collectives of a shard group, by shared memory if the group has it, else by messages over one line. Collectives
 * run one at a time. A collective in two calls communicates between begin and end, on a device concurrently with
 * computation. */
#define PD_KERNELS
#include "messages/messages.h"
#include "run/upward.h"
#include "kernels/pd_bf16.h"
#include "transfer.h"

#include <stdlib.h>

/* REDUCE: summands to a whole value; SCATTER: to parts; GATHER: parts to a whole value. */
enum kind { REDUCE, SCATTER, GATHER };

/* By messages: received values are in `room`; the device adds them up or copies them to their places (group.c,
 * group.cu). */
struct collective {
  enum kind kind;
  enum pd_group_operation how; /* REDUCE */
  pd_in x;
  int64_t n;          /* elements of the whole value (REDUCE), of a part */
  int64_t runs, part; /* SCATTER, GATHER */
  pd_out y;
  char *room;
  enum pd_side side;
  int rounds; /* rounds of messages posted */
  bool done;  /* all work on received values is enqueued */
  double start;
};

static struct {
  struct pd_line *line[PD_SIDES];
  struct pd_transfer *transfer;
  struct pd_message *messages;
  const struct pd_meeting *meeting; /* instead of messages; NULL: none */
  int n_messages;
  struct collective begun; /* the collective between begin and end; y.at NULL: none */
} collective;

void pd_collectives_start(MPI_Comm group) {
  enum { MOST_BYTES = 1 << 30 }; /* larger than any buffer between host and device */
  int n = pd_tensor_degree();
  collective.meeting = pd_meeting_start(group);
  int *ranks = pd_allocate(sizeof *ranks * (size_t)n);
  for (int i = 0; i < n; i++) ranks[i] = i;
  collective.line[PD_COMPUTING] = pd_line_open(group, n, ranks, PD_COMPUTING);
  if (pd.stage->meeting_bytes) collective.line[PD_MEETING] = pd_line_open(group, n, ranks, PD_MEETING);
  free(ranks);
  collective.transfer = pd_transfer_new(2 * (n - 1), MOST_BYTES);
  collective.messages = pd_allocate(sizeof *collective.messages * 2 * (size_t)(n - 1));
}

/* ---- messages ------------------------------------------------------------------------------------ */

static void add_message(int peer, bool sent, const void *at, int64_t bytes) {
  if (bytes > 0)
    collective.messages[collective.n_messages++] = (struct pd_message){peer, sent, 1, (void *)at, (size_t)bytes};
}

static void post(struct collective *c) {
  pd_transfer_post(collective.transfer, collective.line[c->side], collective.n_messages, collective.messages);
  collective.n_messages = 0;
  c->rounds++;
}

static bool has_passed(void *of) { return pd_transfer_passed(of); }

/* Peers in an order that starts after this rank, so that ranks do not all send to the same peer first. */
static int peer(int i) { return (pd.tensor_rank + i) % pd_tensor_degree(); }

/* Parts in scratch memory are aligned to cache lines for every type. */
static int64_t lines(int64_t n) { return (n + 15) / 16 * 16; }

/* Elements of rank r's part of a sum. */
static int64_t length_of(const struct collective *c, int r) {
  int64_t part = (c->n + pd_tensor_degree() - 1) / pd_tensor_degree(), left = c->n - r * part;
  return left < 0 ? 0 : left < part ? left : part;
}

/* Short sums: every rank sends everything to every rank. Long sums: each rank receives its part from all ranks,
 * ... */
static void send_summands(struct collective *c) {
  bool is_short = c->n <= PD_SHORT_SUM;
  int64_t part = (c->n + pd_tensor_degree() - 1) / pd_tensor_degree(), size = pd_bytes_of(c->x.type);
  int64_t own = is_short ? c->n : length_of(c, pd.tensor_rank), stride = lines(is_short ? c->n : part) * size;
  for (int i = 1; i < pd_tensor_degree(); i++) {
    int r = peer(i);
    add_message(r, false, c->room + r * stride, own * size);
    add_message(r, true, (const char *)c->x.at + (is_short ? 0 : r * part * size),
                (is_short ? c->n : length_of(c, r)) * size);
  }
  post(c);
}

static void add_short(const struct collective *c) {
  pd_reduce_group(c->side, c->how, c->x, (pd_in){c->room, c->x.type}, lines(c->n), c->n, c->y);
}

/* ... reduces the part, and sends the result to all ranks. */
static void add_parts(struct collective *c) {
  int64_t part = (c->n + pd_tensor_degree() - 1) / pd_tensor_degree(), own = pd.tensor_rank * part,
          out = pd_bytes_of(c->y.type);
  int64_t length = length_of(c, pd.tensor_rank);
  pd_out sum = pd_out_from(c->y, own);
  if (length)
    pd_reduce_group(c->side, c->how, pd_in_from(c->x, own), (pd_in){c->room, c->x.type}, lines(part), length, sum);
  for (int i = 1; i < pd_tensor_degree(); i++) {
    int r = peer(i);
    add_message(r, false, (char *)c->y.at + r * part * out, length_of(c, r) * out);
    add_message(r, true, sum.at, length * out);
  }
  post(c);
}

static void send_part(struct collective *c) {
  int64_t bytes = c->n * pd_bytes_of(c->x.type);
  for (int i = 1; i < pd_tensor_degree(); i++) {
    add_message(peer(i), false, c->room + peer(i) * bytes, bytes);
    add_message(peer(i), true, c->x.at, bytes);
  }
  post(c);
}

static void join_parts(const struct collective *c) {
  int64_t bytes = c->n * pd_bytes_of(c->x.type);
  for (int r = 0; r < pd_tensor_degree(); r++)
    pd_spread_part(c->side, r == pd.tensor_rank ? c->x : (pd_in){c->room + r * bytes, c->x.type}, c->runs, c->part,
                   r, c->y);
}

/* Packs the part of each rank, after the room for received values. */
static void send_packed(struct collective *c) {
  int64_t size = pd_bytes_of(c->x.type), stride = lines(c->n) * size;
  char *packed = c->room + pd_tensor_degree() * stride;
  for (int r = 0; r < pd_tensor_degree(); r++)
    pd_pack_part(c->side, c->x, c->runs, c->part, r, (pd_out){packed + r * stride, c->x.type});
  for (int i = 1; i < pd_tensor_degree(); i++) {
    add_message(peer(i), false, c->room + peer(i) * stride, c->n * size);
    add_message(peer(i), true, packed + peer(i) * stride, c->n * size);
  }
  post(c);
}

static void add_packed(const struct collective *c) {
  int64_t stride = lines(c->n), size = pd_bytes_of(c->x.type);
  const char *packed = c->room + (pd_tensor_degree() + pd.tensor_rank) * stride * size;
  pd_reduce_group(c->side, PD_GROUP_SUM, (pd_in){packed, c->x.type}, (pd_in){c->room, c->x.type}, stride, c->n,
                  c->y);
}

static void send_first(struct collective *c) {
  if (c->kind == REDUCE) send_summands(c);
  if (c->kind == SCATTER) send_packed(c);
  if (c->kind == GATHER) send_part(c);
}

/* Continues after a round of messages; long sums have two rounds. */
static void go_on(struct collective *c) {
  bool first = c->rounds == 1, two = c->kind == REDUCE && c->n > PD_SHORT_SUM;
  if (first && two) add_parts(c);
  if (first && !two && c->kind == REDUCE) add_short(c);
  if (first && c->kind == SCATTER) add_packed(c);
  if (first && c->kind == GATHER) join_parts(c);
  c->done = !(first && two);
}

static void finish(struct collective *c) {
  while (!c->done) {
    pd_wait_until(has_passed, collective.transfer, "the other ranks of its shard group", -1, NULL, -1);
    go_on(c);
  }
}

/* ---- in one call --------------------------------------------------------------------------------- */

static void do_all(struct collective c) {
  double start = pd_seconds();
  if (collective.meeting) {
    if (c.kind == REDUCE) collective.meeting->reduce(c.how, c.x, c.n, c.y);
    if (c.kind == SCATTER) collective.meeting->scatter(c.x, c.runs, c.part, c.y);
    if (c.kind == GATHER) collective.meeting->gather(c.x, c.runs, c.part, c.y);
  } else {
    send_first(&c);
    finish(&c);
  }
  pd_trace_collective(start);
}

void pd_all_reduce(pd_in x, int64_t n, pd_out y, void *scratch) {
  do_all((struct collective){.kind = REDUCE, .how = PD_GROUP_SUM, .x = x, .n = n, .y = y, .room = scratch});
}

void pd_all_reduce_max(pd_in x, int64_t n, pd_out y, void *scratch) {
  do_all((struct collective){.kind = REDUCE, .how = PD_GROUP_MAX, .x = x, .n = n, .y = y, .room = scratch});
}

static struct collective of_parts(enum kind kind, pd_in x, int64_t runs, int64_t part, pd_out y) {
  return (struct collective){.kind = kind, .x = x, .n = runs * part, .runs = runs, .part = part, .y = y};
}

void pd_all_gather(pd_in x, int64_t runs, int64_t part, pd_out y, void *scratch) {
  struct collective c = of_parts(GATHER, x, runs, part, y);
  c.room = scratch;
  do_all(c);
}

void pd_reduce_scatter(pd_in x, int64_t runs, int64_t part, pd_out y, void *scratch) {
  struct collective c = of_parts(SCATTER, x, runs, part, y);
  c.room = scratch;
  do_all(c);
}

void pd_take_part(pd_in x, int64_t runs, int64_t part, pd_out y) {
  pd_pack_part(PD_COMPUTING, x, runs, part, pd.tensor_rank, y);
}

/* ---- in two ---------------------------------------------------------------------------------------- */

static int64_t elements_of_x(const struct collective *c) {
  return c->n * (c->kind == SCATTER ? pd_tensor_degree() : 1);
}

/* On a device messages pass when posted: all rounds are enqueued now, concurrently with computation. */
static void begin(struct collective c) {
  if (collective.begun.y.at) pd_fail("internal: a collective begins before the last one has ended");
  c.start = pd_seconds();
  if (collective.meeting) {
    collective.meeting->show(c.x, elements_of_x(&c));
  } else {
    c.side = PD_MEETING;
    c.room = pd.arena + pd.stage->meeting;
    pd_group_leaves();
    send_first(&c);
    while (!c.done && pd_transfer_passed(collective.transfer)) go_on(&c);
  }
  collective.begun = c;
}

static void end_by_messages(struct collective *c) {
  finish(c);
  pd_group_returns();
}

void pd_collective_end(pd_out y) {
  struct collective *c = &collective.begun;
  if (c->y.at != y.at) pd_fail("internal: a collective ends that has not begun");
  if (!collective.meeting)
    end_by_messages(c);
  else if (c->kind == REDUCE)
    collective.meeting->reduce_shown(c->how, c->x, c->n, c->y);
  else if (c->kind == SCATTER)
    collective.meeting->scatter_shown(c->x, c->runs, c->part, c->y);
  else
    collective.meeting->gather_shown(c->x, c->runs, c->part, c->y);
  pd_trace_collective(c->start);
  c->y.at = NULL;
}

void pd_all_reduce_begin(pd_in x, int64_t n, pd_out y) {
  begin((struct collective){.kind = REDUCE, .how = PD_GROUP_SUM, .x = x, .n = n, .y = y});
}

void pd_all_reduce_max_begin(pd_in x, int64_t n, pd_out y) {
  begin((struct collective){.kind = REDUCE, .how = PD_GROUP_MAX, .x = x, .n = n, .y = y});
}

void pd_all_gather_begin(pd_in x, int64_t runs, int64_t part, pd_out y) {
  begin(of_parts(GATHER, x, runs, part, y));
}

void pd_reduce_scatter_begin(pd_in x, int64_t runs, int64_t part, pd_out y) {
  begin(of_parts(SCATTER, x, runs, part, y));
}
