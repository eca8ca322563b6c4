/* Places of memory with known lifetimes. */
#ifndef PDC_PACK_H
#define PDC_PACK_H

#include "base/base.h"

enum { ALIGNMENT = 64 }; /* of buffers, bytes */
static inline int64_t aligned(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Bytes with their live range. */
typedef struct LiveRange {
  int64_t bytes;   /* a multiple of ALIGNMENT */
  int first, last; /* live in [first, last], in any unit of time */
  int64_t offset;  /* to fill */
} LiveRange;

/* Gives every range an offset such that no two live at the same time overlap; returns the bytes needed.
 * Largest first, each into the smallest gap that holds it (best fit). Deterministic. */
int64_t pack(LiveRange *ranges, int n);

#endif
