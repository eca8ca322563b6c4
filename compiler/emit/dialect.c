/* Functions common to both dialects (dialect_c.c, dialect_cuda.c). */
#include "emit/print.h"

const Dialect *dialect_of(const StageKernels *k) { return backend_of(&k->target)->dialect; }

const char *text_of_precision(const Dialect *d, Precision precision) {
  return precision == PRECISION_BF16 && d->in_bf16 ? d->in_bf16 : "";
}
