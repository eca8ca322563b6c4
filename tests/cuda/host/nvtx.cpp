/* NVTX's ranges. CUDA_HOST_PROFILE=PATH: a profiler looks on, and writes them to PATH.RANK as they end, DOMAIN and NAME a
 * line. Without one nothing may be asked for. */
#include "host.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct nvtxDomainRegistration {
  std::string name;
  FILE *file;
  std::vector<std::string> open = {};
  ~nvtxDomainRegistration() {
    if (!open.empty()) fprintf(file, "%s never ends: %s\n", name.c_str(), open.back().c_str());
    fclose(file);
  }
};

nvtxDomainHandle_t nvtxDomainCreateA(const char *name) {
  const char *path = getenv("CUDA_HOST_PROFILE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!path) return nullptr;
  FILE *file = fopen((path + std::string(".") + (rank ? rank : "0")).c_str(), "w");
  if (!file) cuda_host_die("cannot write CUDA_HOST_PROFILE's '%s'", path);
  static nvtxDomainRegistration domain{name, file};
  return &domain;
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
  if (!domain) cuda_host_die("a range without a profiler: its name has been made for nobody");
  if (a->version != NVTX_VERSION || a->size != sizeof *a || a->messageType != NVTX_MESSAGE_TYPE_ASCII)
    cuda_host_die("a range whose attributes are not set");
  domain->open.push_back(a->message.ascii);
  return (int)domain->open.size() - 1;
}

int nvtxDomainRangePop(nvtxDomainHandle_t domain) {
  if (!domain || domain->open.empty()) cuda_host_die("the end of a range that has not begun");
  fprintf(domain->file, "%s %s\n", domain->name.c_str(), domain->open.back().c_str());
  domain->open.pop_back();
  return (int)domain->open.size();
}
