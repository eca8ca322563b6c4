/* Processors: what a core does in a second, for counting costs where nothing was measured. Only the ratios within
 * the row matter for where cuts fall; the whole for what is predicted. */
#include <oneapi/dnnl/dnnl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "plan/device.h"

/* One core of a server of the 2020s with 512-bit vectors, measured by hand-written kernels (docs/performance.md),
 * and shared memory between processes. */
static const Rates core = {
    .product = 230e9, /* oneDNN f32 */
    .pointwise = 60e9,
    .inside = 60e9,
    .copy = 10e9,
    .stream = 25e9,
    .call = 2e-6,
    .loop = 0.3e-6,
    .bandwidth = 4e9,
    .latency = 10e-6,
};

static Rates rates(const char *arch, const Target *t) {
  Rates r = core;
  (void)arch;
  r.threads = t->threads;
  return r;
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
                           .rates = rates,
                           .memory = memory,
                           .machine = machine,
                           .library = library,
                           .rank_text = rank_text};
