/* Devices of ranks, for planning: processors (processors.c), GPUs (gpus.c). */
#ifndef PDC_DEVICE_H
#define PDC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/cluster.h"

/* Products of matrices on a GPU: tiles of the result, in waves over the multiprocessors. Rates are those of all
 * multiprocessors together. */
typedef struct TileRates {
  double large;         /* operations/s within tiles of 128 x 256, without their start and end */
  double medium, small; /* shares of it in tiles of 128 x 128, and of 128 x 64 or less */
  double epilogue;      /* bytes/s of results between a tile's last product and the next tile */
  double start;         /* seconds of a product besides */
  double
      odd; /* slowdown of products with rows that are not multiples of 16 bytes; 0: such factors are copied first */
} TileRates;

/* Attention of a sequence takes the time of its operations, and of `longer` further positions. OpCost.matmul_flops
 * counts the operations: two products forward, four backward, half of them with a causal mask. */
typedef struct AttentionRate {
  double rate; /* operations/s in long sequences; 0: unknown */
  double longer;
} AttentionRate;

/* Rates of a rank's device, in operations/s and bytes/s; call and loop: overhead in seconds. */
typedef struct Rates {
  double product;   /* matrix products: multiplies and adds */
  double pointwise; /* operations in fused loops */
  double inside;    /* operations in calls, without their products */
  double copy;      /* bytes of calls that copy rows */
  double stream;    /* bytes of long streams: optimizer, weights */
  double call, loop;
  double bandwidth, latency; /* message to another rank: bytes/s, seconds */
  bool beside;               /* messages overlap with work at both ends */
  bool spares;               /* unneeded products are skipped (OpCost.spared) */
  double host;               /* bytes/s in each direction to pinned host memory; 0: the device uses host memory */
  int threads;               /* per rank */
  int multiprocessors;       /* of a GPU, whose kernels are priced by their sizes; 0: another device */
  TileRates tiles;
  AttentionRate attention[2][2][2]; /* by backward, causal, and heads wider than 64 */
} Rates;

/* Sizes of `times` products of [m, k] and [k, n]: bytes of an element of the factors, and of what is read and
 * written beside the factors. */
typedef struct ProductSize {
  double times, m, n, k;
  double factor, beside; /* bytes of a factor's element; all bytes besides the factors */
  bool odd;              /* rows of a factor or of the result are not multiples of 16 bytes */
} ProductSize;
double product_seconds(const Rates *rates, const ProductSize *size); /* of a GPU */

typedef struct Device {
  bool has_threads;    /* several threads share a rank's work (--threads); else one thread */
  bool has_arch;       /* --arch selects the device; else the machine's own */
  unsigned precisions; /* bit mask of 1u << Precision */
  /* The device to plan for without a cluster. arch: "sm_90"; NULL: this machine's. *assumed: the device is
   * unknown, and the newest known kind is used. */
  const DeviceKind *(*kind)(const char *arch, bool *assumed);
  Rates (*rates)(const DeviceKind *kind, const Target *t); /* of a kind of this target */
  int64_t (*memory)(int ranks); /* default memory limit of a rank's process, in bytes; NULL: DeviceKind has it */
  int64_t process;              /* bytes of the limit outside the arena */
  int64_t page;                 /* offload: bytes of the unit of allocation */
  /* Names of the machine and the library in profiles; a profile is valid for these only. */
  Name (*machine)(void);
  Name (*library)(void);
  /* The kind of device of a machine's name; NULL: unknown. */
  const DeviceKind *(*kind_of_machine)(Name machine);
  char *(*rank_text)(const Target *t); /* for messages: "2 threads a rank" */
} Device;

/* `product` is 0 if the device has no rate for the precision. Messages: within a server. */
static inline Rates device_rates(const DeviceKind *kind, const Target *t) {
  return backend_of(t)->device->rates(kind, t);
}

/* The value of the line "key: value" of a file; NULL: no such line. */
Name line_of(const char *path, const char *key);

#endif
