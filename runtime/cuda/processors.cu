/* The processors of a rank: those near its GPU, as Linux lists them (local_cpulist of a PCI device; sysfs-bus-pci
 * in the kernel's Documentation/ABI/testing). The polling thread, workers (workers.cu) and threads of CUDA and
 * NCCL are started by the calling thread or its threads and inherit its processors. Memory that they touch first
 * is on the same node. */
#include "processors.h"

#include "run/run.h"
#include "pd_cuda.h"

#include <sched.h>
#include <stdlib.h>

#ifndef PD_SYSFS
#define PD_SYSFS "/sys"
#endif

static struct {
  cpu_set_t given, bound; /* of this process at start, and now */
  char list[512];
  pd_binding binding;
} processors;

/* "0-27,56-83" */
static bool read_list(const char *path, cpu_set_t *set) {
  char text[4096] = "", *at = text;
  CPU_ZERO(set);
  FILE *f = fopen(path, "r");
  if (!f) return false;
  const bool read = fgets(text, sizeof text, f) != NULL;
  fclose(f);
  while (read && *at >= '0' && *at <= '9') {
    const long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
    for (long i = first; i <= last && i < CPU_SETSIZE; i++) CPU_SET(i, set);
    if (*at == ',') at++;
  }
  return CPU_COUNT(set) > 0;
}

static void write_list(const cpu_set_t *set, char *to, size_t room) {
  size_t n = 0;
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, set)) continue;
    int last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
    if (n < room) n += (size_t)snprintf(to + n, room - n, last > i ? "%s%d-%d" : "%s%d", n ? "," : "", i, last);
    i = last;
  }
}

static cpu_set_t of_both(const cpu_set_t &a, const cpu_set_t &b) {
  cpu_set_t both;
  CPU_ZERO(&both);
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &a) && CPU_ISSET(i, &b)) CPU_SET(i, &both);
  return both;
}

/* The name of a PCI device in sysfs has small letters and a domain of four digits. */
static bool read_beside(int device, cpu_set_t *set) {
  char id[32] = "", path[256];
  unsigned domain, bus, slot, function;
  const bool has_id = cudaDeviceGetPCIBusId(id, sizeof id, device) == cudaSuccess;
  cudaGetLastError();
  if (!has_id || sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return false;
  snprintf(path, sizeof path, "%s/bus/pci/devices/%04x:%02x:%02x.%x/local_cpulist", PD_SYSFS, domain, bus, slot,
           function);
  return read_list(path, set);
}

/* Before anything is bound. */
static bool look() {
  if (sched_getaffinity(0, sizeof processors.given, &processors.given)) return false;
  processors.bound = processors.given;
  return true;
}

static bool known() {
  static const bool seen = look();
  return seen;
}

/* Keeps a mask with fewer processors than are online, which the launcher, a container or the user has set. */
void pd_processors_bind(int device) {
  cpu_set_t online, beside;
  char path[256];
  snprintf(path, sizeof path, "%s/devices/system/cpu/online", PD_SYSFS);
  if (!known() || !read_list(path, &online)) return;
  const cpu_set_t both = of_both(online, processors.given);
  const bool launched_so = !CPU_EQUAL(&both, &online);
  if (!launched_so) {
    if (!read_beside(device, &beside)) return;
    beside = of_both(beside, online);
    if (!CPU_COUNT(&beside) || CPU_EQUAL(&beside, &online)) return;
    if (sched_setaffinity(0, sizeof beside, &beside)) return;
    processors.bound = beside;
  }
  write_list(&processors.bound, processors.list, sizeof processors.list);
  processors.binding = {processors.list, launched_so ? "launcher" : "pd"};
}

int pd_processors_given(void) { return known() ? CPU_COUNT(&processors.given) : 0; }
int pd_processors(void) { return known() ? CPU_COUNT(&processors.bound) : 0; }
const pd_binding *pd_device_binding(void) { return processors.binding.processors ? &processors.binding : NULL; }
