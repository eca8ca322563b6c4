/* Shared memory of the ranks on a machine (segment.h). A rank's segment replaces the pages of its arena that hold
 * receive slots, which the sending ranks also map, and accumulators, which its replicas also map. Before the slots
 * the segment has a box for each sender, by direction and the sender's replica:
 *   posted    counts the receives that the receiver posted on the line, `sent` the complete transfers; each has
 *             one writer, and orders earlier writes (release, acquire)
 *   value     describes the posted receive: the places of its values, and their checksums
 * A segment also has the counters for replicas (replicas.c).
 * If the receive is posted when a pass begins and the slots have the same layout, the pass writes its results
 * directly into the segment; otherwise the sender copies them once the receive is posted. */
#ifndef PD_SHARED_H
#define PD_SHARED_H

#include "run/run.h"

#include <stdalign.h>
#include <stdatomic.h>

struct pd_placed {
  uint64_t at, bytes, sum; /* from the segment's start */
};

struct pd_box {
  _Atomic int64_t attached; /* true once the sender has mapped the segment */
  alignas(64) _Atomic int64_t posted;
  alignas(64) _Atomic int64_t sent;
  alignas(64) int64_t slots[PD_MAX_CHUNKS]; /* slots of the receiver, by cut */
  struct pd_placed value[];
};
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counts work between processes");

/* A rank's counters for the other replicas of its stage: buckets of batches. Each counter has one writer. */
struct pd_reduction {
  alignas(64) _Atomic int64_t ready;  /* buckets whose gradients are complete on the rank */
  alignas(64) _Atomic int64_t summed; /* buckets whose sum of the rank's shard is in all accumulators */
  /* --check-messages, by exchange set and bucket: checksum of each replica's shard of the complete gradients; in
   * this rank's place, of its sum. */
  alignas(64) uint64_t checksum[];
};

struct pd_share { /* a box, in this process */
  struct pd_box *box;
  char *segment; /* the receiver's segment, mapped in this process */
};

/* Collective, after the arena is mapped and before it is written. False after filling `why`: --comm asks for
 * sharing that is not possible. */
bool pd_shared_start(char *why);
/* The box of messages from or to a rank of a neighbouring stage; false: messages go by MPI. */
bool pd_shared_with(int peer, bool sends, bool gradients, struct pd_share *share);
/* The offset in the segment of a receive slot's address in the arena. */
uint64_t pd_shared_offset(const char *at);
int64_t pd_shared_bytes(void); /* bytes of the arena in shared memory */
/* With pd_replicas_shared(): the counters of a replica of this stage, including this rank, and the address of `at`
 * in its arena. */
struct pd_reduction *pd_reduction_of(int replica);
char *pd_shared_at(int replica, char *at);

#endif
