/* Where everything of a stage lives: static offsets in one arena, 64-byte aligned; the peak is known
 * to the byte before the run.
 * Weights, accumulators, moments and saved values are structs whose members are grouped by region, so
 * that the emitted C can declare them as structs: a member starts at the next multiple of 64 bytes and
 * a struct's size is a multiple of 64. Temporaries are packed by liveness: within a region into the
 * region's frame (equal regions have equal frames), frames and values that pass between regions into
 * the stage's workspace. When saved_slots is 1 the saved structs take part in that packing too: forward
 * and backward are then one timeline. */
#ifndef PDC_LAYOUT_H
#define PDC_LAYOUT_H

#include "fuse/kernel.h"
#include "schedule/program.h"

typedef struct Spot {
  int64_t offset;  /* bytes from the arena's start of copy 0 (of a region's temporary: from its frame) */
  int64_t stride;  /* bytes between copies */
  int copies;
} Spot;

typedef struct Section { const char *name; int64_t offset, bytes; int copies; } Section;

typedef struct Layout {
  Spot *buffer;    /* by buffer index */
  int64_t *frame;  /* by region: its frame's offset in the arena in forward ... */
  int64_t *frame_backward; /* ... and in backward; -1 when the region has none */
  int64_t weights_bytes, accumulators_bytes, saved_bytes; /* one copy */
  int64_t moments_bytes; /* one copy; as many copies as the optimizer has moments */
  int n_moments;
  int64_t scratch_offset, scratch_bytes; /* the largest kernel's */
  Vec(Section) sections;
  int64_t bytes;   /* the arena */
} Layout;

Layout *allocate(const StageKernels *k, const Program *p, const Train *train);
void layout_dump(const StageKernels *k, const Layout *l, FILE *out);
void layout_verify(const StageKernels *k, const Program *p, const Layout *l); /* no overlap of what is alive together */

#endif
