/* The scratch memory that a program planned, which oneDNN's kernels on another processor or of another version may exceed. */
#define PD_KERNELS
#include "pd_runtime.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

__thread size_t pd_scratch_planned;

const char *pd_library_name(void) {
  static char name[64];
  const dnnl_version_t *v = dnnl_version();
  snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return name;
}

void pd_check_scratch(size_t bytes) {
  if (!pd_scratch_planned || bytes <= pd_scratch_planned) return;
  pd_fail("%s needs %zu bytes of scratch memory on this processor, but the program has %zu: it was compiled for "
          "another processor or oneDNN version. help: compile on this machine, or for both processors with pdc "
          "--march",
          pd_library_name(), bytes, pd_scratch_planned);
}
