/* Processors: what a core does in a second, for counting costs where nothing was measured. Only the ratios within
 * the row matter for where cuts fall; the whole for what is predicted. */
#include <oneapi/dnnl/dnnl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "plan/device.h"

static const DeviceKind *kind(const char *arch, bool *assumed) {
  (void)arch;
  *assumed = false;
  return kind_find("core");
}

/* Fused loops do about a quarter of the operations that products do; calls that move rows get two fifths of a stream:
 * measured on the core that is known by name (docs/performance.md). */
static Rates rates(const DeviceKind *kind, const Target *t) {
  double product = kind->product[PRECISION_F32];
  return (Rates){.product = product,
                 .pointwise = product * 60 / 230,
                 .inside = product * 60 / 230,
                 .copy = kind->stream * 0.4,
                 .stream = kind->stream,
                 .call = 2e-6,
                 .loop = 0.3e-6,
                 .bandwidth = kind->link,
                 .latency = 10e-6,
                 .threads = t->threads};
}

/* Its share of the machine's. */
static int64_t memory(int ranks) { return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / ranks; }

static Name machine(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  Name model = line_of("/proc/cpuinfo", "model name");
  struct utsname u;
  return internf("%s, %ld processors", model ? model : uname(&u) == 0 ? u.machine : "unknown", n);
}

static Name library(void) {
  const dnnl_version_t *v = dnnl_version();
  return internf("oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

static char *rank_text(const Target *t) {
  return format("%d thread%s a rank", t->threads, t->threads == 1 ? "" : "s");
}

const Device processors = {.has_threads = true,
                           .precisions = 1u << PRECISION_F32,
                           .kind = kind,
                           .rates = rates,
                           .memory = memory,
                           .machine = machine,
                           .library = library,
                           .rank_text = rank_text};
