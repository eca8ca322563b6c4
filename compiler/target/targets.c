/* The list of targets, and what is asked of it. */
#include "target/target.h"

#include <stddef.h>
#include <string.h>

#define ADDRESS(backend) &backend,
const Backend *const all_backends[] = {BACKENDS(ADDRESS) NULL};

const Backend *backend_of(const Target *t) { return t->backend ? t->backend : all_backends[0]; }

const Backend *backend_find(const char *name) {
  for (const Backend *const *b = all_backends; *b; b++)
    if (!strcmp((*b)->name, name))
      return *b;
  return NULL;
}

const char *precision_name(Precision precision) {
  static const char *const names[N_PRECISIONS] = {"f32", "tf32", "bf16"};
  return names[precision];
}

const char *residual_name(Residual residual) {
  static const char *const names[N_RESIDUALS] = {"f32", "bf16"};
  return names[residual];
}

const char *numbers_name(const Target *t) {
  return t->residual == RESIDUAL_BF16 ? "bf16 --residual bf16" : precision_name(t->precision);
}
