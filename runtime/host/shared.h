/* Memory that ranks of one machine share: where a rank's receive slots stand in its arena, pages lie that the ranks
 * which send to it have mapped, too, and where it has replicas, its accumulators, which these have. It is a memfd: it has no name, no limit but the machine's memory, and goes
 * with the last process that maps it, however that ends. In front of the slots the segment has a box for each rank
 * that may send, by direction and that rank's replica:
 *   posted    counts receives that the receiver has posted on the line, `sent` transfers whose bytes are there;
 *             each has one writer, and what was written before is seen by who reads the count (release, acquire)
 *   value     of the one receive that is posted: where its values go, and the checksums of what was sent
 * and what it tells its replicas (replicas.c).
 * A pass that begins when the receive is posted writes into the segment what it sends, if its slots are laid out like
 * the receiver's; otherwise the sender copies, once the receive is posted. */
#ifndef PD_SHARED_H
#define PD_SHARED_H

#include "run/run.h"

#include <stdalign.h>
#include <stdatomic.h>

struct pd_placed {
  uint64_t at, bytes, sum; /* from the segment's start */
};

struct pd_box {
  _Atomic int64_t attached; /* the sender has mapped the segment */
  alignas(64) _Atomic int64_t posted;
  alignas(64) _Atomic int64_t sent;
  alignas(64) int64_t slots[PD_MAX_CHUNKS]; /* the receiver's, by cut */
  struct pd_placed value[];
};
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counts work between processes");

/* What a rank tells the other replicas of its stage: counts of batches' buckets, of which each has one writer. */
struct pd_reduction {
  alignas(64) _Atomic int64_t ready;  /* its gradients are complete ... */
  alignas(64) _Atomic int64_t summed; /* ... and its shard is the sum, in all replicas' accumulators */
  /* --check-messages, by exchange set and bucket: checksums of each replica's shard as the gradients were complete; in this rank's
   * place that of its sum. */
  alignas(64) uint64_t checksum[];
};

struct pd_share { /* a box, as one end sees it */
  struct pd_box *box;
  char *segment; /* where this process has the receiver's segment */
};

/* Collective, once the arena is there and before anything is written to it. False after filling `why`: --comm
 * wants what there is not. */
bool pd_shared_start(char *why);
/* The box of messages that come to this rank from a neighbouring stage's, or go there; false: MPI carries them. */
bool pd_shared_with(int peer, bool sends, bool gradients, struct pd_share *share);
/* An address in the arena, of a receive slot, from the segment's start. */
uint64_t pd_shared_offset(const char *at);
int64_t pd_shared_bytes(void); /* of the arena that are shared memory */
/* With pd_replicas_shared(), of a replica of this stage, also of this rank itself: what it tells the others; where its
 * arena's `at` is. */
struct pd_reduction *pd_reduction_of(int replica);
char *pd_shared_at(int replica, char *at);

#endif
