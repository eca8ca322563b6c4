/* Segments of shared memory: creation, mapping by senders, and placement at the receive slots of the arena. */
#include "shared.h"
#include "messages/messages.h"
#include "update/update.h"
#include "segment.h"
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, N_RANGES = 3 };

/* Pages of the arena that belong to the segment: received activations, received gradients, accumulators; adjacent
 * ranges are joined. */
struct range {
  size_t first, end; /* in the arena */
  size_t at;         /* in the segment */
};

static struct {
  struct range range[N_RANGES];
  int n_ranges;
  char *segment; /* this rank's segment; NULL: none */
  size_t segment_bytes, box_bytes;
  char **others; /* by rank: address of its segment in this process */
  struct pd_offer *offers;
  const char *how; /* transport between stages and replicas; NULL: no messages */
  bool replicas_shared;
} segments;

const char *pd_messages_travel(void) { return segments.how; }

/* ---- layout ---------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static const struct pd_channel *incoming(bool gradients) {
  return gradients ? pd.stage->gradients_in : pd.stage->activations_in;
}

static int most_replicas(void) {
  int most = 1;
  for (int i = 0; i < pd.stage->n_stages; i++)
    if (pd.stage->replicas[i] > most) most = pd.stage->replicas[i];
  return most;
}

/* Boxes have equal layout in all segments: pd_placed for the largest number of values of any rank's message. */
static struct pd_box *box_of(char *at, bool gradients, int replica) {
  return (struct pd_box *)(at + segments.box_bytes * (size_t)((gradients ? most_replicas() : 0) + replica));
}

/* Behind the boxes. */
static struct pd_reduction *reduction_of(char *at) {
  return (struct pd_reduction *)(at + segments.box_bytes * 2 * (size_t)most_replicas());
}

static size_t boxes_bytes(void) {
  size_t checksums = (size_t)pd_exchange_sets() * (size_t)pd_buckets() * (size_t)pd_replicas();
  size_t reduction = sizeof(struct pd_reduction) + sizeof(uint64_t) * checksums;
  return round_up(segments.box_bytes * 2 * (size_t)most_replicas() + reduction, PAGE);
}

/* The pages of the slots of one direction, over all chunks, whose sections are adjacent. */
static struct range pages_of(bool gradients) {
  struct range r = {SIZE_MAX, 0, 0};
  for (int c = 0; c < pd.stage->chunks; c++) {
    const struct pd_channel *in = &incoming(gradients)[c];
    if (!in->n_values) continue;
    size_t start = pd_channel_start(in), end = start + (size_t)in->slots * in->stride;
    if (start < r.first) r.first = start;
    if (end > r.end) r.end = end;
  }
  r.first = r.first / PAGE * PAGE;
  r.end = round_up(r.end, PAGE);
  return r;
}

static struct range pages_of_accumulators(void) {
  const struct pd_stage *s = pd.stage;
  size_t bytes = pd_replicas() > 1 ? (size_t)s->accumulator_sets * s->accumulators_stride : 0;
  if (!bytes) return (struct range){SIZE_MAX, 0, 0};
  return (struct range){s->accumulators / PAGE * PAGE, round_up(s->accumulators + bytes, PAGE), 0};
}

/* Joins ranges that overlap or are adjacent. */
static void add_range(struct range r) {
  if (!r.end) return;
  for (int i = 0; i < segments.n_ranges;) {
    const struct range other = segments.range[i];
    if (r.first > other.end || other.first > r.end) {
      i++;
      continue;
    }
    if (other.first < r.first) r.first = other.first;
    if (other.end > r.end) r.end = other.end;
    segments.range[i] = segments.range[--segments.n_ranges];
    i = 0;
  }
  segments.range[segments.n_ranges++] = r;
}

static void find_ranges(void) {
  add_range(pages_of(false));
  add_range(pages_of(true));
  add_range(pages_of_accumulators());
  segments.segment_bytes = boxes_bytes();
  for (int i = 0; i < segments.n_ranges; i++) {
    segments.range[i].at = segments.segment_bytes;
    segments.segment_bytes += segments.range[i].end - segments.range[i].first;
  }
}

uint64_t pd_shared_offset(const char *at) {
  size_t offset = (size_t)(at - pd.arena);
  for (int i = 0; i < segments.n_ranges; i++)
    if (offset >= segments.range[i].first && offset < segments.range[i].end)
      return segments.range[i].at + offset - segments.range[i].first;
  pd_fail("internal: a message is received outside the shared memory");
}

int64_t pd_shared_bytes(void) {
  int64_t bytes = 0;
  for (int i = 0; i < segments.n_ranges && segments.segment; i++)
    bytes += (int64_t)(segments.range[i].end - segments.range[i].first);
  return bytes;
}

/* ---- this rank's segment ---------------------------------------------------------------------- */

/* A cut has the number of the chunk before it, as in tags (comm.c). */
static void describe_slots(bool gradients, struct pd_box *box) {
  for (int c = 0; c < pd.stage->chunks; c++) {
    const struct pd_channel *in = &incoming(gradients)[c];
    int cut = !gradients && pd.stage->stage == 0 ? c - 1 : c;
    if (!in->n_values || cut < 0) continue;
    box->slots[cut] = in->slots;
  }
}

static bool map_segment(int fd) {
  char *at = mmap(NULL, boxes_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return false;
  for (int i = 0; i < segments.n_ranges; i++)
    if (mmap(pd.arena + segments.range[i].first, segments.range[i].end - segments.range[i].first,
             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)segments.range[i].at) == MAP_FAILED)
      pd_fail("out of memory: cannot map the shared part of the arena: %s", strerror(errno));
  segments.segment = at;
  for (int gradients = 0; gradients < 2; gradients++)
    for (int r = 0; r < most_replicas(); r++) describe_slots(gradients, box_of(segments.segment, gradients, r));
  return true;
}

/* Messages use MPI if memory is short. The segment replaces pages of the arena and takes no additional memory. */
static struct pd_offer offer_segment(void) {
  struct pd_offer o = pd_offer_made(segments.segment_bytes, segments.n_ranges && pd.arena);
  if (o.fd >= 0 && !map_segment(o.fd)) {
    close(o.fd);
    o.fd = -1;
  }
  return o;
}

/* ---- segments of other ranks ------------------------------------------------------------------ */

static bool sends_to(int rank) {
  const struct pd_stage *s = pd.stage;
  int stage = pd_stage_of(rank), last = s->n_stages - 1;
  bool down = false, up = false;
  for (int c = 0; c < s->chunks; c++) {
    down |= s->activations_out[c].n_values > 0;
    up |= s->gradients_out[c].n_values > 0;
  }
  return (down && stage == (s->stage == last ? 0 : s->stage + 1)) ||
         (up && stage == (s->stage == 0 ? last : s->stage - 1));
}

/* Replicas add up gradients; inference has none. */
static bool adds_up_with(int rank) {
  return pd.stage->accumulators_stride > 0 && pd_stage_of(rank) == pd.stage->stage;
}

static void map_others(int64_t *pairs) {
  for (int r = 0; r < pd.ranks; r++) {
    bool sends = sends_to(r);
    if (r == pd.rank || (!sends && !adds_up_with(r))) continue;
    segments.others[r] = pd_offer_map(&segments.offers[r]);
    pairs[segments.others[r] != NULL]++;
    for (int gradients = 0; gradients < 2 && segments.others[r] && sends; gradients++)
      atomic_store(&box_of(segments.others[r], gradients, pd.replica)->attached, pd.rank + 1);
  }
}

bool pd_shared_with(int peer, bool sends, bool gradients, struct pd_share *share) {
  char *at = sends ? segments.others ? segments.others[peer] : NULL : segments.segment;
  int sender = sends ? pd.rank : peer;
  if (!at) return false;
  int replica = sender - pd_rank_of(pd_stage_of(sender), 0);
  *share = (struct pd_share){box_of(at, gradients, replica), at};
  return atomic_load(&share->box->attached) == sender + 1;
}

/* ---- replicas --------------------------------------------------------------------------------- */

bool pd_replicas_shared(void) { return segments.replicas_shared; }

static char *segment_of(int replica) {
  int rank = pd_rank_of(pd.stage->stage, replica);
  return rank == pd.rank ? segments.segment : segments.others[rank];
}

struct pd_reduction *pd_reduction_of(int replica) {
  return reduction_of(segment_of(replica));
}

/* Replicas run the same program, so offsets are equal in their segments. Of its own segment this rank maps only
 * the boxes: the other pages are in the arena. */
char *pd_shared_at(int replica, char *at) {
  return replica == pd.replica ? at : segment_of(replica) + pd_shared_offset(at);
}

/* All replicas of a stage take the same decision. */
static void agree_on_replicas(void) {
  int mine = segments.segment != NULL, *all = pd_allocate(sizeof *all * (size_t)pd.ranks);
  for (int r = 0; r < pd.ranks; r++)
    if (r != pd.rank && adds_up_with(r) && !segments.others[r]) mine = 0;
  MPI_Request request;
  MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, pd_comm_control, &request);
  pd_wait(1, &request, "all replicas to exchange their mappings", -1, NULL, -1);
  segments.replicas_shared = pd_replicas() > 1 && pd.stage->accumulators_stride > 0;
  for (int q = 0; q < pd_replicas(); q++) segments.replicas_shared &= all[pd_rank_of(pd.stage->stage, q)];
  free(all);
}

/* ---- all of them ------------------------------------------------------------------------------- */

static int64_t most_values(void) {
  int64_t most = 0, all;
  for (int gradients = 0; gradients < 2; gradients++)
    for (int c = 0; c < pd.stage->chunks; c++)
      if (incoming(gradients)[c].n_values > most) most = incoming(gradients)[c].n_values;
  MPI_Request request;
  MPI_Iallreduce(&most, &all, 1, MPI_INT64_T, MPI_MAX, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to count their values", -1, NULL, -1);
  return all;
}

static void gather_offers(const struct pd_offer *mine) {
  MPI_Request request;
  segments.offers = pd_allocate(sizeof *segments.offers * (size_t)pd.ranks);
  MPI_Iallgather(mine, sizeof *mine, MPI_BYTE, segments.offers, sizeof *mine, MPI_BYTE, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to offer memory", -1, NULL, -1);
}

bool pd_shared_start(char *why) {
  const char *wish = pd_options.comm;
  bool shared = wish && !strcmp(wish, "shared"), mpi = wish && !strcmp(wish, "mpi");
  if (wish && !shared && !mpi)
    return pd_refuse(why, "--comm %s is not a transport between processors. help: use shared or mpi", wish);
  if (pd.ranks < 2) return true;
  segments.how = "mpi";
  if (mpi) return true;
  int64_t pairs[2] = {0, 0}, all[2]; /* pairs of sender and receiver: by MPI, by shared memory */
  segments.box_bytes = round_up(sizeof(struct pd_box) + sizeof(struct pd_placed) * (size_t)most_values(), 64);
  find_ranges();
  struct pd_offer mine = offer_segment();
  gather_offers(&mine);
  segments.others = pd_allocate(sizeof *segments.others * (size_t)pd.ranks);
  map_others(pairs);
  agree_on_replicas();
  MPI_Request request;
  MPI_Iallreduce(pairs, all, 2, MPI_INT64_T, MPI_SUM, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to map memory", -1, NULL, -1);
  if (mine.fd >= 0) close(mine.fd);
  if (all[1]) segments.how = all[0] ? "shared memory, and mpi" : "shared memory";
  if (shared && all[0])
    return pd_refuse(
        why,
        "--comm shared: %lld of %lld pairs of communicating ranks are on different machines, or cannot map each "
        "other's memory. help: use --comm mpi",
        (long long)all[0], (long long)(all[0] + all[1]));
  return true;
}
