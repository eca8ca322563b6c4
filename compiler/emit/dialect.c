/* What the dialects (dialect_c.c, dialect_cuda.c) share. */
#include "emit/print.h"

Names dialect_names(const Dialect *d) {
  Names taken = {0};
  for (const char *const *name = d->functions; name && *name; name++)
    push(&taken, intern(*name));
  return taken;
}

const Dialect *dialect_of(const StageKernels *k) { return backend_of(&k->target)->dialect; }
