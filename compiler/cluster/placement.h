/* How ranks are laid out on the devices of a cluster. */
#ifndef PDC_PLACEMENT_H
#define PDC_PLACEMENT_H

#include <stdbool.h>

/* Places are counted from the last rank on, so that it does not matter to a stage how many ranks there are before it:
 * servers are full but for the first rank's. */
typedef struct Placement {
  int adjacent; /* 0: the ranks of a stage are neighbours; else stages, all with equally many ranks, are laid out once
                    for each so many of their ranks */
  bool backward; /* on the devices from the last to the first */
} Placement;

#endif
