/* What a rank of a target runs on, for planning: processors (processors.c), GPUs (gpus.c). */
#ifndef PDC_DEVICE_H
#define PDC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/cluster.h"

/* What a rank's device does in a second: operations, bytes; and seconds before a call or a loop does anything. */
typedef struct Rates {
  double product;   /* operations of products: multiplies and adds */
  double pointwise; /* operations in fused loops */
  double inside;    /* operations in calls beside their products */
  double copy;      /* bytes of calls that move rows */
  double stream;    /* bytes of long streams: optimizer, weights */
  double call, loop;
  double bandwidth, latency; /* of a message to another rank: bytes a second, seconds */
  bool beside;               /* messages travel while both ends work */
  bool spares;               /* products that need not be done are not (OpCost.spared) */
  double host; /* bytes a second, each way, to pinned memory of its host; 0: its memory is the host's */
  int threads; /* that share a rank's work */
} Rates;

typedef struct Device {
  bool has_threads;    /* a rank's work is shared by several threads, --threads says how many; else by one */
  bool has_arch;       /* --arch says which device; else the machine's own */
  unsigned precisions; /* 1u << Precision each */
  /* What is planned for where no cluster says it. arch: "sm_80", "sm_90"; NULL: this machine's. *assumed: nothing says
   * which it is, so it is the newest known. */
  const DeviceKind *(*kind)(const char *arch, bool *assumed);
  Rates (*rates)(const DeviceKind *kind, const Target *t); /* of a kind of this target */
  int64_t (*memory)(int ranks); /* bytes a rank's process may take when nobody says; NULL: every kind does */
  int64_t process;              /* of those, what it needs beside its arena */
  int64_t page;                 /* bytes of its memory that come and go at once, where a model spills */
  /* The machine and the library as profiles name them, whose measurements hold for no other. */
  Name (*machine)(void);
  Name (*library)(void);
  /* The kind of device of a machine that is named so; NULL: its figures are not known. */
  const DeviceKind *(*kind_of_machine)(Name machine);
  char *(*rank_text)(const Target *t); /* what a rank runs on, for people: "2 threads a rank" */
} Device;

/* Where the target's products have no rate on the kind its `product` is 0. Messages are those within a server. */
static inline Rates device_rates(const DeviceKind *kind, const Target *t) {
  return backend_of(t)->device->rates(kind, t);
}

/* What follows a key and its colon in a file of such lines; NULL: nothing. */
Name line_of(const char *path, const char *key);

#endif
