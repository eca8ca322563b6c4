/* Ranges of NVTX: the host's work by name, for Nsight Systems and other profilers (docs/guide/gpus.md, "Profiling"). NVTX 3 is a
 * header alone; without a profiler it has no domain. */
#include "device.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("pdc");
  return made;
}

bool pd_device_profiled(void) { return domain() != NULL; }

void pd_device_range_begin(const char *name) {
  nvtxEventAttributes_t a = {};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &a);
}

void pd_device_range_end(void) { nvtxDomainRangePop(domain()); }

#else

bool pd_device_profiled(void) { return false; }
void pd_device_range_begin(const char *name) { (void)name; }
void pd_device_range_end(void) {}

#endif
