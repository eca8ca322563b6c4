/* Places of ranks in a cluster, and the links between them. */
#ifndef PDC_TOPOLOGY_H
#define PDC_TOPOLOGY_H

#include "cluster/cluster.h"
#include "cluster/placement.h"
#include "schedule/pipeline.h"

/* One level of links between ranks: seconds per message, and seconds per byte. device_byte: lower bound of the
 * seconds per byte of one device; 0: no bound. */
typedef struct Link {
  double latency, byte, device_byte;
} Link;
/* Seconds per byte of a message if `sharing` messages share the link. */
static inline double link_byte(const Link *link, double sharing) {
  double shared = link->byte * sharing;
  return shared > link->device_byte ? shared : link->device_byte;
}

/* The links of a stage's ranks in a Topology. */
typedef struct Wiring {
  const Link *in, *out;           /* links to the stages before and behind; NULL: no such stage */
  double in_sharing, out_sharing; /* number of messages that share the link; at least 1 */
  double reduce, reduce_latency;  /* gradient exchange of the replicas: seconds per byte, and seconds per batch */
} Wiring;

typedef struct Topology {
  int n;                        /* levels, at least 1, innermost first */
  Link link[MOST_LEVELS];       /* between the members of a group */
  int devices[MOST_LEVELS + 1]; /* devices per member at each level, 1 at [0]; all devices at [n] */
  int ranks;                    /* usable devices */
  const uint8_t *kind_of;       /* by device; NULL: all are alike */
} Topology;

/* The ranks of one stage: `adjacent` of them from place `first` on, again after each `stride` places. */
typedef struct Stand {
  int first, replicas, adjacent, stride;
} Stand;

/* One level of `ranks` equal devices. */
Topology topology_flat(Link link, int ranks);
Topology topology_of(const Cluster *c, int ranks, double bandwidth,
                     double latency); /* bandwidth and latency, if above 0, override all levels */
Stand stand_of(const Pipeline *p, const Placement *at, int stage);
/* before, behind: NULL at the ends. stages: number of stages that exchange at the same time. */
Wiring wiring_of(const Topology *t, const Stand *stage, const Stand *before, const Stand *behind, int stages);
/* The innermost level that contains the ranks of both stages: an index of link. */
int level_between(const Topology *t, const Stand *a, const Stand *b);
int level_of_places(const Topology *t, int a, int b); /* the innermost level with a group that holds both places */
int level_spanned(const Topology *t, const Stand *stage); /* the same for the ranks of one stage; 0 for one rank */
/* Members of a group of this level that reduce the stage's gradients; below 2: no reduction. */
int members_that_reduce(const Topology *t, const Stand *stage, int level);
int place_of_replica(const Stand *stage,
                     int replica); /* places count from the last device on, or from the first: device_of() */
/* The device of a stage's rank; used: number of used ranks. */
int device_of(const Topology *t, const Placement *at, const Stand *stage, int replica, int used);
/* Bit mask of the kinds of devices of a stage. */
unsigned kinds_of(const Topology *t, const Placement *at, const Stand *stage, int used);

#endif
