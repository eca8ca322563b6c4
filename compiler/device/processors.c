/* CPUs: rates of a core for counted costs. Cuts depend only on the ratios of these rates; predictions also on
 * their values. */
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device/container.h"
#include "device/device.h"
#include "pd_kernels.h"

static const DeviceKind *kind(const char *arch, bool *assumed) {
  (void)arch;
  *assumed = false;
  return kind_find("core");
}

/* Fused loops reach about a quarter of the operations of products; calls that copy rows two fifths of a stream.
 * Measured on the known kind of core (docs/results/cpu.md). */
static Rates rates(const DeviceKind *kind, const Target *t) {
  double pointwise = kind->product[PRECISION_F32] * 60 / 230;
  return (Rates){.product = kind->product[t->precision],
                 .pointwise = pointwise,
                 .inside = pointwise,
                 .copy = kind->stream * 0.4,
                 .stream = kind->stream,
                 .call = 2e-6,
                 .loop = 0.3e-6,
                 .bandwidth = kind->link,
                 .latency = 10e-6,
                 .spares = t->precision == PRECISION_F32,
                 .threads = t->threads};
}

/* Memory of a process outside its arena: 6.2 to 6.8 MiB of MPI, oneDNN and OpenMP, and up to 0.4 MiB of send
 * buffers. Measured as RssAnon of 1, 2, 4 and 8 ranks with one and two threads (transformers, convolutions, Open
 * MPI 4.1). Excludes 19 MiB of library pages, which ranks share and the kernel can drop. */
enum { PROCESS_BYTES = 8 << 20 };

/* A rank's share of seven eighths of the machine's memory; the system, the launcher and data files use one eighth.
 * Ignores free memory, so that plans do not depend on the current load. */
static int64_t memory(int ranks) {
  int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
          most = container_bytes("/sys/fs/cgroup", "/proc/self/cgroup");
  return (all < most ? all : most) / 8 * 7 / ranks;
}

static Name machine(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  Name model = line_of("/proc/cpuinfo", "model name");
  struct utsname u;
  return internf("%s, %ld processors", model ? model : uname(&u) == 0 ? u.machine : "unknown", n);
}

static Name library(void) { return intern(pd_library_name()); }

static const DeviceKind *kind_of_machine(Name machine) {
  (void)machine;
  return kind_find("core");
}

static char *rank_text(const Target *t) {
  return format("%d thread%s a rank", t->threads, t->threads == 1 ? "" : "s");
}

const Device processors = {.has_threads = true,
                           .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16,
                           .kind = kind,
                           .rates = rates,
                           .memory = memory,
                           .process = PROCESS_BYTES,
                           .page = 4096,
                           .machine = machine,
                           .library = library,
                           .kind_of_machine = kind_of_machine,
                           .rank_text = rank_text};
