/* Placement of ranks on the devices of a cluster. */
#ifndef PDC_PLACEMENT_H
#define PDC_PLACEMENT_H

#include <stdbool.h>

/* Places count from the last rank, so a stage's places do not depend on earlier stages. All servers are full,
 * except possibly the first rank's. */
typedef struct Placement {
  int adjacent;  /* 0: the ranks of a stage are neighbours; else all stages in turn place this number of ranks */
  bool backward; /* ranks fill the devices in reverse order */
} Placement;

#endif
