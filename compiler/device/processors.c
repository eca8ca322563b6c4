/* Processors: what a core does in a second, for counting costs where nothing was measured. Only the ratios within
 * the row matter for where cuts fall; the whole for what is predicted. */
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device/container.h"
#include "device/device.h"
#include "pd_runtime.h"

static const DeviceKind *kind(const char *arch, bool *assumed) {
  (void)arch;
  *assumed = false;
  return kind_find("core");
}

/* Fused loops do about a quarter of the operations that products do; calls that move rows get two fifths of a stream:
 * measured on the core that is known by name (docs/results/cpu.md). */
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

/* A program's own memory less its arena, which the arena's limit leaves room for: 6.2 to 6.8 MiB of MPI, oneDNN and
 * OpenMP (RssAnon of 1, 2, 4 and 8 ranks with one thread and two; transformers, convolutions, Open MPI 4.1) and up to
 * 0.4 MiB of the memory through which ranks send. Pages of the libraries' files, 19 MiB, are shared by all ranks and
 * can be dropped: they are not counted. */
enum { PROCESS_BYTES = 8 << 20 };

/* Its share of seven eighths of the machine's: the rest is the system's, the launcher's, and data files'. Not of what is
 * free just now, for a plan must not depend on the hour. */
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
