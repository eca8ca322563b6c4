/* Private to compiler/cluster: data sheets of devices. */
#ifndef PDC_CLUSTER_INTERNAL_H
#define PDC_CLUSTER_INTERNAL_H

#include "cluster/cluster.h"

/* Figures of a data sheet, and the share of them that large kernels reach. */
typedef struct DataSheet {
  Name name;
  const Backend *backend;
  int arch;                   /* 80: sm_80; 0: unknown */
  double memory;              /* bytes; 0: unknown */
  double peak[N_PRECISIONS];  /* operations/s of dense products; 0: unsupported or unknown */
  double share[N_PRECISIONS]; /* share of the peak that products reach */
  double memory_bandwidth;    /* bytes/s */
  double stream_share;        /* share of memory_bandwidth that streams reach */
  double inside, link, host;  /* as in DeviceKind; inside 0: proportional to memory_bandwidth */
  int multiprocessors;        /* of a GPU; 0: unknown */
  double price, watts;        /* as in DeviceKind */
} DataSheet;

DeviceKind kind_of_sheet(const DataSheet *sheet);
const DataSheet *sheet_find(const char *word); /* of a known kind; NULL: unknown */
DataSheet sheet_of_gpu(Name name);             /* defaults for a GPU without a known kind */

#endif
