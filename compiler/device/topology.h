/* Where ranks stand in a cluster, and what messages between them cross. */
#ifndef PDC_TOPOLOGY_H
#define PDC_TOPOLOGY_H

#include "cluster/cluster.h"
#include "cluster/placement.h"
#include "schedule/pipeline.h"

/* One level of links between ranks: seconds of a message, and of each of its bytes; of these at least device_byte where one
 * device sends it, whatever else the link carries. 0: there is no such bound. */
typedef struct Link {
  double latency, byte, device_byte;
} Link;
/* Seconds of a byte of a message that shares its link with others, so many in all. */
static inline double link_byte(const Link *link, double sharing) {
  double shared = link->byte * sharing;
  return shared > link->device_byte ? shared : link->device_byte;
}

/* Where the ranks of a stage stand among the others: struct Topology. */
typedef struct Wiring {
  const Link *in, *out;           /* what messages from the stage before and the one behind cross; NULL: nothing */
  double in_sharing, out_sharing; /* so many of them at once share a link; at least 1 */
  double reduce,
      reduce_latency; /* seconds of a byte of gradients that replicas exchange, once a batch; of them all */
} Wiring;

typedef struct Topology {
  int n;                        /* levels, at least 1, innermost first */
  Link link[MOST_LEVELS];       /* between the members of a group */
  int devices[MOST_LEVELS + 1]; /* of a member at each level, 1 at first; of all at [n] */
  int ranks;                    /* devices that may be used */
  const uint8_t *kind_of;       /* by device; NULL: all are alike */
  bool beside;                  /* exchanges of different stages pass at once, sharing links */
} Topology;

/* The ranks of one stage: `adjacent` of them from place `first` on, again after each `stride` places. */
typedef struct Stand {
  int first, replicas, adjacent, stride;
} Stand;

/* One level; its devices are alike, and as many as there are ranks. */
Topology topology_flat(Link link, int ranks);
Topology topology_of(const Cluster *c, int ranks, double bandwidth,
                     double latency); /* these, if given, at all levels */
Stand stand_of(const Pipeline *p, const Placement *at, int stage);
/* Before and behind: NULL at the ends. stages: of the whole pipeline, which exchange at once. */
Wiring wiring_of(const Topology *t, const Stand *stage, const Stand *before, const Stand *behind, int stages);
/* The level that ranks of both stages lie within: an index of link. */
int level_between(const Topology *t, const Stand *a, const Stand *b);
int level_of_places(const Topology *t, int a, int b);     /* the innermost whose groups hold both places */
int level_spanned(const Topology *t, const Stand *stage); /* the same of the ranks of one; 0 where it is alone */
/* Members of a group of this level among which gradients of the stage are reduced: below 2, none are. */
int members_that_reduce(const Topology *t, const Stand *stage, int level);
int place_of_replica(const Stand *stage,
                     int replica); /* places count from the last device on, or from the first: device_of() */
/* The device of a stage's rank, of so many ranks that are used. */
int device_of(const Topology *t, const Placement *at, const Stand *stage, int replica, int used);
/* Kinds of devices that a stage has: bits. */
unsigned kinds_of(const Topology *t, const Placement *at, const Stand *stage, int used);

#endif
