/* Stands in for NVTX's header of this name (3's): ranges of a domain, which ../../nvtx.cpp writes down. */
#ifndef CUDA_HOST_NVTX_H
#define CUDA_HOST_NVTX_H

#include <cstdint>

typedef struct nvtxDomainRegistration *nvtxDomainHandle_t;

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))
enum { NVTX_MESSAGE_TYPE_ASCII = 1 };
typedef struct {
  uint16_t version, size;
  int32_t messageType;
  union {
    const char *ascii;
  } message;
} nvtxEventAttributes_t;

nvtxDomainHandle_t nvtxDomainCreateA(const char *name);
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);

#endif
