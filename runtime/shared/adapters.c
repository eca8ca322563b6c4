#include "shared/adapters.h"

#include <string.h>

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n > m && !strcmp(name + n - m, end);
}

bool pd_is_adapter(const char *name) { return ends_in(name, PD_ADAPTER_A) || ends_in(name, PD_ADAPTER_B); }
