/* What the dialects (dialect_c.c, dialect_cuda.c) share. */
#include "emit/print.h"

Names dialect_names(const Dialect *d) {
  Names taken = {0};
  for (const char *const *name = d->functions; name && *name; name++)
    push(&taken, intern(*name));
  return taken;
}

const Dialect *dialect_of(const StageKernels *k) { return backend_of(&k->target)->dialect; }

const char *text_of_precision(const Dialect *d, Precision precision) {
  return precision == PRECISION_BF16 && d->in_bf16 ? d->in_bf16 : "";
}
