/* idx files, as MNIST's (LeCun, Cortes, Burges): two zero bytes, the elements' type, the number of axes, each
 * axis as a big-endian uint32, then the elements; samples along the first axis. */
#include "data/data.h"

enum { UNSIGNED_BYTES = 0x08 };

static int64_t axis(const unsigned char *u, int i) {
  u += 4 + 4 * i;
  return (int64_t)u[0] << 24 | (int64_t)u[1] << 16 | (int64_t)u[2] << 8 | u[3];
}

bool pd_parse_idx(struct pd_array *a, char *why) {
  const unsigned char *u = (const unsigned char *)a->map;
  if (a->size < 4) return pd_refuse(why, "'%s' is cut short at offset %lld", a->path, (long long)a->size);
  if (u[0] || u[1])
    return pd_refuse(why, "'%s' is not an idx file: at offset 0 it has %02x %02x instead of 00 00", a->path, u[0],
                     u[1]);
  if (u[2] != UNSIGNED_BYTES)
    return pd_refuse(why, "'%s': elements of type %02x at offset 2 are not supported: only unsigned bytes (08)",
                     a->path, u[2]);
  const int axes = u[3]; /* read once: the file may change */
  if (axes < 1 || axes > PD_MAX_RANK + 1)
    return pd_refuse(why, "'%s': %d axes at offset 3 are not supported: 1 to %d", a->path, axes, PD_MAX_RANK + 1);
  size_t header = 4 + 4 * (size_t)axes;
  if (a->size < header)
    return pd_refuse(why, "'%s' is cut short at offset %lld: its header has %lld bytes", a->path,
                     (long long)a->size, (long long)header);
  a->type = PD_TYPE_U8;
  a->pixels = true;
  a->first = header;
  a->rows = axis(u, 0);
  a->rank = axes - 1;
  a->row = 1;
  int64_t left = (int64_t)(a->size - header), elements;
  for (int i = 0; i < a->rank; i++) {
    a->dim[i] = axis(u, i + 1);
    if (__builtin_mul_overflow(a->row, a->dim[i], &a->row)) a->row = INT64_MAX;
  }
  if (__builtin_mul_overflow(a->rows, a->row, &elements)) elements = INT64_MAX;
  if (elements > left)
    return pd_refuse(why, "'%s' is cut short at offset %lld: its header says %lld samples of %lld bytes", a->path,
                     (long long)a->size, (long long)a->rows, (long long)a->row);
  if (elements < left)
    return pd_refuse(why,
                     "'%s' is damaged: its header says %lld samples of %lld bytes, but more follow at offset "
                     "%lld",
                     a->path, (long long)a->rows, (long long)a->row, (long long)(header + (size_t)elements));
  a->stride = a->rows ? a->row : 0;
  return true;
}
