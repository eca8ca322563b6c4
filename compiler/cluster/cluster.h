/* The machines that a plan is for: kinds of devices, and levels of links between them. */
#ifndef PDC_CLUSTER_H
#define PDC_CLUSTER_H

#include "base/base.h"
#include "target/target.h"

/* A kind of device: what one does in a second, and holds. */
typedef struct DeviceKind {
  Name name;                    /* "A100 80 GB"; of a cluster's own: as it is called there */
  const Backend *backend;       /* whose programs run on it */
  int arch;                     /* of GPUs: 80 of sm_80; 0: not known */
  int64_t memory;               /* bytes that a rank may take: less than it has; 0: not said */
  double product[N_PRECISIONS]; /* operations a second of large products, multiplies and adds; 0: it has no such */
  double stream;                /* bytes a second from its memory and to it */
  double inside;                /* operations a second in calls, beside their products */
  double link; /* bytes a second, each way, to the others of its server where no level says it; 0: not known */
  double host; /* and to its host's memory, where it has its own */
} DeviceKind;

/* Those that are known by name (kinds.c): "a100_80gb". NULL: there is none. */
const DeviceKind *kind_find(const char *word);
const char *const *kind_words(int *n);
const DeviceKind *kind_of_arch(int arch); /* of GPUs: 80 of sm_80; the newest that is no newer, from sm_80 on */
/* Of a GPU as its driver names it: "NVIDIA A100-SXM4-80GB"; NULL: not known. */
const DeviceKind *kind_of_model(const char *model);

/* Members that are connected alike: at the first level devices, above it groups of the level below. */
typedef struct ClusterLevel {
  Name name;        /* "server"; NULL: none was given */
  int count;        /* members of one group */
  double bandwidth; /* bytes a second, each way, of a member's link to the others; its devices share it */
  double latency;   /* seconds of a message */
  double
      device_bandwidth; /* of that, what one device of a member reaches, as with a network card for each; 0: all */
} ClusterLevel;

enum { MOST_LEVELS = 4, MOST_KINDS = 8, MOST_DEVICES = 4096, MOST_MACHINES = 1024 };

typedef struct Cluster {
  Name name; /* NULL: not read from a file */
  int n_kinds;
  DeviceKind kind[MOST_KINDS];     /* at least one, where there is a name */
  int n;                           /* levels */
  ClusterLevel level[MOST_LEVELS]; /* innermost first */
  const uint8_t *kind_of;          /* by device, in the order of ranks; NULL: all are of the first kind */
} Cluster;

static inline int cluster_devices(const Cluster *c) {
  int devices = 1;
  for (int i = 0; i < c->n; i++)
    devices *= c->level[i].count;
  return devices;
}

/* What --cluster says: the name of a cluster of the standard library (stdlib_layers/clusters.pdm), or FILE, or
 * FILE:NAME, where a file that has one need not name it. NULL after diagnostics. */
const Cluster *cluster_read(const char *text);
/* Of a `cluster` block, an AST_CLUSTER; NULL after diagnostics. */
struct Ast;
const Cluster *cluster_make(const struct Ast *block);
void cluster_verify(const Cluster *c); /* a BUG() where it is not as said above */

/* The cluster as shard groups of n neighbours at its innermost level see it, each of which counts as one device: above that
 * level n pipelines send at once. NULL: a level's devices are no such groups, or a group has several kinds. */
const Cluster *cluster_grouped(const Cluster *c, int n);

/* The kind of the device of this rank, from 0. */
static inline const DeviceKind *cluster_kind(const Cluster *c, int device) {
  return &c->kind[c->kind_of ? c->kind_of[device] : 0];
}
/* What each of the first `devices` of them does and holds at least: of one kind, that kind. */
DeviceKind cluster_least(const Cluster *c, int devices);

#endif
