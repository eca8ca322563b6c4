/* Private to compiler/cluster: a device as its data sheet describes it. */
#ifndef PDC_CLUSTER_INTERNAL_H
#define PDC_CLUSTER_INTERNAL_H

#include "cluster/cluster.h"

/* Figures that a person finds in a data sheet, and how much of them large work reaches. */
typedef struct DataSheet {
  Name name;
  const Backend *backend;
  int arch;                   /* 80 of sm_80; 0: not known */
  double memory;              /* bytes; 0: not said */
  double peak[N_PRECISIONS];  /* operations a second of dense products; 0: it has no such */
  double share[N_PRECISIONS]; /* of the peak that products reach */
  double memory_bandwidth;    /* bytes a second */
  double stream_share;        /* of it that streams reach */
  double inside, link, host;  /* as of DeviceKind; inside 0: in proportion to memory_bandwidth */
} DataSheet;

DeviceKind kind_of_sheet(const DataSheet *sheet);
const DataSheet *sheet_find(const char *word); /* of a known kind; NULL: there is none */
DataSheet sheet_of_gpu(Name name);             /* of one that is described from nothing */

#endif
