/* Scratch memory of whole-tensor update rules, and the order of sums for any number of threads. One function lays
 * out a rule's arrays; the compiler calls it with a NULL base for the number of bytes. */
#ifndef PD_OPTIMIZERS_SCRATCH_H
#define PD_OPTIMIZERS_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* A sum of n numbers: number i goes to tile i / PD_SUM_TILE and there to lane i % PD_SUM_LANES. Lanes are added as
 * a balanced tree, halves first; tiles are summed up likewise. A sum over the rows of a matrix goes by bands of
 * rows. */
enum { PD_SUM_TILE = 16384, PD_SUM_LANES = 256, PD_SUM_BAND = 64 };

struct pd_room {
  char *base; /* NULL: only counted */
  int64_t used;
};

static inline void *pd_room_for(struct pd_room *r, int64_t bytes) {
  char *at = r->base ? r->base + r->used : NULL;
  r->used += (bytes + 63) / 64 * 64;
  return at;
}

static inline double *pd_room_for_doubles(struct pd_room *r, int64_t n) {
  return (double *)pd_room_for(r, n * (int64_t)sizeof(double));
}

static inline float *pd_room_for_floats(struct pd_room *r, int64_t n) {
  return (float *)pd_room_for(r, n * (int64_t)sizeof(float));
}

static inline int64_t pd_tiles_of_sum(int64_t n) { return (n + PD_SUM_TILE - 1) / PD_SUM_TILE; }
static inline int64_t pd_bands_of_sum(int64_t rows) { return (rows + PD_SUM_BAND - 1) / PD_SUM_BAND; }

/* A parameter as `matrices` matrices of rows x columns, its last two axes. Vectors and scalars are one row. */
struct pd_matrices {
  int64_t matrices, rows, columns;
};

static inline struct pd_matrices pd_as_matrices(int rank, const int64_t *dim) {
  struct pd_matrices m = {1, 1, 1};
  for (int i = 0; i + 2 < rank; i++) m.matrices *= dim[i];
  if (rank > 1) m.rows = dim[rank - 2];
  if (rank > 0) m.columns = dim[rank - 1];
  return m;
}

static inline int64_t pd_matrices_elements(struct pd_matrices m) { return m.matrices * m.rows * m.columns; }

#endif
