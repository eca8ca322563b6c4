/* CIFAR-10's binary files (Krizhevsky, 2009): records of a label and 3 planes, red, green, blue, of 32 rows of
 * 32 pixels; no header. */
#include "data/data.h"

enum { CHANNELS = 3, SIDE = 32, IMAGE = CHANNELS * SIDE * SIDE, RECORD = 1 + IMAGE };

bool pd_parse_cifar(struct pd_array *a, bool label, char *why) {
  size_t rest = a->size % RECORD;
  if (rest)
    return pd_refuse(
        why,
        "'%s' is neither an llm.c token file nor a CIFAR-10 file: records have %d bytes, but the record at "
        "offset %lld has %lld",
        a->path, RECORD, (long long)(a->size - rest), (long long)rest);
  a->type = PD_TYPE_U8;
  a->first = label ? 0 : 1;
  a->stride = RECORD;
  a->rows = (int64_t)(a->size / RECORD);
  a->row = label ? 1 : IMAGE;
  a->rank = label ? 0 : 3;
  a->dim[0] = CHANNELS;
  a->dim[1] = a->dim[2] = SIDE;
  a->pixels = !label;
  return true;
}
