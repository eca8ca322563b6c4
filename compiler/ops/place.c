/* Strides of a reshape. */
#include "ops/op.h"

/* The same elements in row-major order under other dims; false: no strides express them. Runs of old axes are
 * matched with runs of new axes of the same size; within a run the old axes must merge into one. */
bool place_reshape(const Place *from, int n, const int64_t *dim, Place *to) {
  Place r = {.buffer = from->buffer, .offset = from->offset, .rank = n};
  int64_t old_dim[MAX_DIM], old_stride[MAX_DIM];
  int m = 0;
  for (int i = 0; i < from->rank; i++)
    if (from->dim[i] != 1) {
      old_dim[m] = from->dim[i];
      old_stride[m++] = from->stride[i];
    }
  for (int i = 0, j = 0; i < m;) {
    int64_t size = old_dim[i], wanted = 1;
    int i_end = i + 1, j_end = j;
    while (j_end < n && (wanted < size || dim[j_end] == 1)) {
      wanted *= dim[j_end++];
      while (wanted > size && i_end < m)
        size *= old_dim[i_end++];
    }
    if (wanted != size)
      return false;
    for (int k = i; k + 1 < i_end; k++)
      if (old_stride[k] != old_stride[k + 1] * old_dim[k + 1])
        return false;
    int64_t stride = old_stride[i_end - 1];
    for (int k = j_end - 1; k >= j; k--) {
      r.stride[k] = stride;
      stride *= dim[k];
    }
    i = i_end;
    j = j_end;
  }
  for (int k = 0; k < n; k++) {
    r.dim[k] = dim[k];
    if (dim[k] == 1)
      r.stride[k] = 0;
  }
  *to = r;
  return true;
}

Place place_slice(const Place *from, int axis, int64_t offset, int64_t size) {
  Place p = *from;
  p.offset += offset * p.stride[axis];
  p.dim[axis] = size;
  return p;
}
