/* Collectives of a shard group on one machine, by shared memory. Each rank exposes one piece of its value at a
 * time and continues once all ranks have: it reads the pieces of all ranks and stores the result in its own
 * memory, sums in the order of ranks. Pieces alternate between two places: a rank that exposes the next piece has
 * read the previous ones. Between a collective's begin and end the whole value is exposed, in a place of the
 * planned size in the shared part of the arena; the next value waits until all ranks have read the last one. */
#define _GNU_SOURCE /* mremap */
#define PD_KERNELS
#include "messages/messages.h"
#include "kernels/pd_bf16.h"
#include "segment.h"
#include "transfer.h"

#include <errno.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 1 << 18, PAGE = PD_SHOWN_PAGE }; /* bytes of a piece, which stays in the cache */

struct count {                       /* written by one rank only */
  alignas(64) _Atomic int64_t shown; /* exposed pieces, and exposed whole values */
  _Atomic int64_t read;              /* whole values read */
};

static struct {
  struct count *count; /* by rank, followed by the places of pieces, for two turns */
  int64_t turn;        /* pieces exposed by this rank */
  int64_t whole;       /* whole values exposed by this rank */
  int64_t own_bytes;   /* bytes of the arena in shared memory */
} exposed;

/* The segment has counts, pieces by turn and rank, then each rank's place for a whole value. */
static size_t counts_and_pieces(void) {
  size_t bytes = (size_t)pd_tensor_degree() * (sizeof(struct count) + 2 * (size_t)PIECE);
  return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t place_bytes(void) {
  return pd.stage->meeting_bytes ? (pd.stage->meeting_bytes - PAGE) / PAGE * PAGE : 0;
}

static size_t segment_bytes(void) { return counts_and_pieces() + (size_t)pd_tensor_degree() * place_bytes(); }

static char *shown_by(int rank) {
  return (char *)(exposed.count + pd_tensor_degree()) + (exposed.turn % 2 * pd_tensor_degree() + rank) * PIECE;
}

static char *all_shown_by(int rank) {
  return (char *)exposed.count + counts_and_pieces() + (size_t)rank * place_bytes();
}

/* This rank's pages are in its arena. */
static char *own_place(void) {
  size_t at = pd.stage->meeting;
  return pd.arena + (at + PAGE - 1) / PAGE * PAGE;
}

static bool all_have_shown(void *unused) {
  (void)unused;
  for (int r = 0; r < pd_tensor_degree(); r++)
    if (atomic_load_explicit(&exposed.count[r].shown, memory_order_acquire) < exposed.turn) return false;
  return true;
}

static void copy(char *place, pd_in x, int64_t n) {
  enum { BLOCK = 1 << 14 };
  int64_t bytes = n * pd_bytes_of(x.type);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < bytes; i += BLOCK)
    memcpy(place + i, (const char *)x.at + i, (size_t)(bytes - i < BLOCK ? bytes - i : BLOCK));
}

/* Exposes this rank's piece and waits for all ranks'; pieces are readable until the turn after this one. */
static void tell_all(void) {
  atomic_store_explicit(&exposed.count[pd.tensor_rank].shown, exposed.turn, memory_order_release);
}

static void wait_for_all(void) {
  pd_wait_until(all_have_shown, NULL, "the other ranks of its shard group", -1, NULL, -1);
}

/* Reduces x over all ranks. */
static void show(pd_in x, int64_t n) {
  exposed.turn++;
  copy(shown_by(pd.tensor_rank), x, n);
  tell_all();
  wait_for_all();
}

static void reduce(enum pd_group_operation how, pd_in x, int64_t n, pd_out y) {
  int64_t most = PIECE / pd_bytes_of(x.type);
  for (int64_t i = 0; i < n; i += most) {
    int64_t m = n - i < most ? n - i : most;
    show(pd_in_from(x, i), m);
    pd_reduce_group(PD_COMPUTING, how, pd_in_from(x, i), (pd_in){shown_by(0), x.type}, most, m, pd_out_from(y, i));
  }
}

/* Several whole runs at a time, or pieces of one run. */
static void gather(pd_in x, int64_t runs, int64_t part, pd_out y) {
  int64_t most = PIECE / pd_bytes_of(x.type), together = part < most ? most / part : 1, ranks = pd_tensor_degree();
  for (int64_t run = 0; run < runs; run += together)
    for (int64_t i = 0; i < part; i += most) {
      int64_t k = runs - run < together ? runs - run : together, m = part - i < most ? part - i : most;
      show(pd_in_from(x, run * part + i), k * m);
      for (int r = 0; r < ranks; r++)
        pd_spread_part(PD_COMPUTING, (pd_in){shown_by(r), x.type}, k, m, 0,
                       pd_out_from(y, (run * ranks + r) * part + i));
    }
}

/* Packs m elements of each rank's part from x, over the runs, by run and rank. */
static void show_parts(pd_in x, int64_t runs, int64_t part, int64_t m) {
  int64_t all = runs * pd_tensor_degree();
  exposed.turn++;
  if (m == part)
    copy(shown_by(pd.tensor_rank), x, all * m);
  else
    for (int64_t i = 0; i < all; i++)
      copy(shown_by(pd.tensor_rank) + i * m * pd_bytes_of(x.type), pd_in_from(x, i * part), m);
  tell_all();
  wait_for_all();
}

/* Several whole runs at a time, or pieces of all ranks' parts of one run, so that ranks have equal work. */
static void scatter(pd_in x, int64_t runs, int64_t part, pd_out y) {
  int64_t ranks = pd_tensor_degree(), place = PIECE / pd_bytes_of(x.type), most = place / ranks;
  int64_t together = part < most ? most / part : 1;
  for (int64_t run = 0; run < runs; run += together)
    for (int64_t i = 0; i < part; i += most) {
      int64_t k = runs - run < together ? runs - run : together, m = part - i < most ? part - i : most;
      show_parts(pd_in_from(x, run * ranks * part + i), k, part, m);
      for (int64_t j = 0; j < k; j++) {
        int64_t own = (j * ranks + pd.tensor_rank) * m;
        pd_in shown = pd_in_from((pd_in){shown_by(0), x.type}, own);
        pd_in mine = pd_in_from(x, ((run + j) * ranks + pd.tensor_rank) * part + i);
        pd_reduce_group(PD_COMPUTING, PD_GROUP_SUM, mine, shown, place, m, pd_out_from(y, (run + j) * part + i));
      }
    }
}

/* ---- in two ---------------------------------------------------------------------------------------- */

static bool all_have_read(void *unused) {
  (void)unused;
  for (int r = 0; r < pd_tensor_degree(); r++)
    if (atomic_load_explicit(&exposed.count[r].read, memory_order_acquire) < exposed.whole) return false;
  return true;
}

static void show_all(pd_in x, int64_t n) {
  pd_wait_until(all_have_read, NULL, "the other ranks of its shard group to read", -1, NULL, -1);
  exposed.turn++;
  exposed.whole++;
  copy(own_place(), x, n);
  tell_all();
}

static void has_read(void) {
  atomic_store_explicit(&exposed.count[pd.tensor_rank].read, exposed.whole, memory_order_release);
}

static void reduce_shown(enum pd_group_operation how, pd_in x, int64_t n, pd_out y) {
  int64_t stride = (int64_t)place_bytes() / pd_bytes_of(x.type);
  wait_for_all();
  pd_reduce_group(PD_MEETING, how, x, (pd_in){all_shown_by(0), x.type}, stride, n, y);
  has_read();
}

static void gather_shown(pd_in x, int64_t runs, int64_t part, pd_out y) {
  wait_for_all();
  for (int r = 0; r < pd_tensor_degree(); r++)
    pd_spread_part(PD_MEETING, r == pd.tensor_rank ? x : (pd_in){all_shown_by(r), x.type}, runs, part, r, y);
  has_read();
}

static void scatter_shown(pd_in x, int64_t runs, int64_t part, pd_out y) {
  int64_t stride = (int64_t)place_bytes() / pd_bytes_of(x.type);
  wait_for_all();
  for (int64_t run = 0; run < runs; run++) {
    int64_t own = (run * pd_tensor_degree() + pd.tensor_rank) * part;
    pd_in shown = pd_in_from((pd_in){all_shown_by(0), x.type}, own);
    pd_reduce_group(PD_MEETING, PD_GROUP_SUM, pd_in_from(x, own), shown, stride, part, pd_out_from(y, run * part));
  }
  has_read();
}

/* ---- the memory ------------------------------------------------------------------------------------ */

/* All ranks of the group take the same decision. */
static bool all_have(MPI_Comm group, bool mine) {
  int one = mine, all;
  MPI_Request request;
  MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_MIN, group, &request);
  pd_wait(1, &request, "the ranks of its shard group to map memory", -1, NULL, -1);
  return all;
}

/* Moves the mapping of this rank's place into the arena. */
static void map_own_place(void) {
  size_t bytes = place_bytes();
  char *from = (char *)exposed.count + counts_and_pieces() + (size_t)pd.tensor_rank * bytes;
  if (bytes && mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, own_place()) == MAP_FAILED)
    pd_fail("out of memory: cannot map the shard group's shared arena: %s", strerror(errno));
  exposed.own_bytes = (int64_t)bytes;
}

int64_t pd_meeting_shared(void) { return exposed.own_bytes; }

const struct pd_meeting *pd_meeting_start(MPI_Comm group) {
  static const struct pd_meeting meeting = {reduce,       gather,       scatter,      show_all,
                                            reduce_shown, gather_shown, scatter_shown};
  bool mpi = pd_options.comm && !strcmp(pd_options.comm, "mpi");
  if (mpi || pd_options.check_messages) return NULL;
  struct pd_offer offer = pd_offer_made(segment_bytes(), pd.tensor_rank == 0);
  MPI_Request request;
  MPI_Ibcast(&offer, sizeof offer, MPI_BYTE, 0, group, &request);
  pd_wait(1, &request, "its shard group's memory", -1, NULL, -1);
  exposed.count = (struct count *)pd_offer_map(&offer);
  bool shared = all_have(group, exposed.count != NULL);
  if (pd.tensor_rank == 0 && offer.fd >= 0) close(offer.fd);
  if (!shared && exposed.count) munmap(exposed.count, segment_bytes());
  if (!shared && pd_options.comm)
    pd_fail(
        "--comm shared: the ranks of a shard group are on several machines, or cannot map each other's memory. "
        "help: use --comm mpi");
  if (shared && pd.arena) map_own_place();
  return shared ? &meeting : NULL;
}
