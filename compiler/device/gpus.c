/* NVIDIA's GPUs: the kind of this machine, and rates for counted costs. */
#include <glob.h>
#include <limits.h>
#include <stdlib.h>

#include "device/device.h"

static Name model_of_machine(size_t *n) {
  glob_t found;
  Name model = NULL;
  *n = 0;
  if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0) {
    *n = found.gl_pathc;
    model = line_of(found.gl_pathv[0], "Model");
    globfree(&found);
  }
  return model;
}

static const DeviceKind *kind(const char *arch, bool *assumed) {
  size_t n;
  Name model = arch ? NULL : model_of_machine(&n);
  const DeviceKind *own = model ? kind_of_model(model) : NULL;
  *assumed = !arch && !own;
  return own ? own : kind_of_arch(arch ? (int)strtol(arch + 3, NULL, 10) : INT_MAX);
}

/* A fused loop performs about one operation per byte. Between queued kernels a launch takes 2 us; NCCL's kernel
 * starts in 10 us. */
static Rates rates(const DeviceKind *kind, const Target *t) {
  return (Rates){.product = kind->product[t->precision],
                 .pointwise = kind->stream,
                 .inside = kind->inside,
                 .copy = kind->stream,
                 .stream = kind->stream,
                 .call = 4e-6,
                 .loop = 2e-6,
                 .bandwidth = kind->link,
                 .latency = 10e-6,
                 .host = kind->host,
                 .beside = true,
                 .threads = 1};
}

/* The driver's name; "": no GPU. */
static Name machine(void) {
  size_t n;
  Name model = model_of_machine(&n);
  return n == 0 ? intern("") : internf("%s, %zu GPU%s", model ? model : "unknown", n, n == 1 ? "" : "s");
}

static Name library(void) { return intern(""); } /* the compiler's line has the versions of driver and toolkit */

static char *rank_text(const Target *t) { return format("a GPU a rank, %s", precision_name(t->precision)); }

const Device gpus = {.has_arch = true,
                     .precisions = (1u << N_PRECISIONS) - 1,
                     .kind = kind,
                     .rates = rates,
                     .page = 2 << 20, /* cuMemGetAllocationGranularity on all of them */
                     .machine = machine,
                     .library = library,
                     .kind_of_machine = kind_of_model,
                     .rank_text = rank_text};
