/* The machines of a plan: kinds of devices, and levels of links between them. */
#ifndef PDC_CLUSTER_H
#define PDC_CLUSTER_H

#include "base/base.h"
#include "target/target.h"

/* A kind of device: its rates and its memory. */
typedef struct DeviceKind {
  Name name;                    /* "A100 80 GB"; or the name in the cluster's file */
  const Backend *backend;       /* target of its programs */
  int arch;                     /* of GPUs: 80 of sm_80; 0: not known */
  int64_t memory;               /* bytes that a rank may use, less than the device's memory; 0: unknown */
  double product[N_PRECISIONS]; /* operations/s of large matrix products; 0: unsupported or unknown */
  double stream;                /* bytes/s from and to the device's memory */
  double inside;                /* operations/s in calls, without their products */
  double link;                  /* bytes/s in each direction within a server, if no level sets it; 0: unknown */
  double host;                  /* bytes/s to host memory; 0: the device uses host memory */
  int multiprocessors;          /* of a GPU; 0: unknown, or another device */
  double price;                 /* of an hour, in any currency; 0: not given */
  double watts;                 /* most power of a busy device; 0: unknown */
} DeviceKind;

/* A kind by its name (kinds.c), such as "a100_80gb". NULL: unknown. */
const DeviceKind *kind_find(const char *word);
const char *const *kind_words(int *n);
const DeviceKind *kind_of_arch(int arch); /* arch 80: sm_80; the newest known GPU up to arch, at least sm_80 */
/* The kind of a GPU by its driver's name, such as "NVIDIA A100-SXM4-80GB"; NULL: unknown. */
const DeviceKind *kind_of_model(const char *model);

/* Members with equal links: devices at the innermost level, else groups of the level below. */
typedef struct ClusterLevel {
  Name name;               /* "server"; NULL: none was given */
  int count;               /* members of one group */
  double bandwidth;        /* bytes/s in each direction of a member's link, shared by its devices */
  double latency;          /* seconds of a message */
  double device_bandwidth; /* bytes/s that one device can use of the link, such as its network card; 0: all */
} ClusterLevel;

enum { MOST_LEVELS = 4, MOST_KINDS = 8, MOST_DEVICES = 4096, MOST_MACHINES = 1024 };

typedef struct Cluster {
  Name name; /* NULL: not read from a file */
  int n_kinds;
  DeviceKind kind[MOST_KINDS];     /* at least one if the cluster has a name */
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

/* The cluster of --cluster: a name in stdlib_layers/clusters.pdm, FILE:NAME, or FILE if the file has one cluster.
 * NULL after diagnostics. */
const Cluster *cluster_read(const char *text);
/* From a `cluster` block, an AST_CLUSTER; NULL after diagnostics. */
struct Ast;
const Cluster *cluster_make(const struct Ast *block);
void cluster_verify(const Cluster *c); /* BUG() if the cluster is inconsistent */

/* The cluster with each group of n neighbours at the innermost level as one device; links of higher levels carry
 * the messages of n pipelines. NULL: the devices cannot be divided into equal groups of one kind. */
const Cluster *cluster_grouped(const Cluster *c, int n);

/* The kind of the device of this rank, from 0. */
static inline const DeviceKind *cluster_kind(const Cluster *c, int device) {
  return &c->kind[c->kind_of ? c->kind_of[device] : 0];
}
/* The smallest rates and memory among the first `devices` devices. */
DeviceKind cluster_least(const Cluster *c, int devices);

#endif
