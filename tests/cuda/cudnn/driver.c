/* Stands in for CUDA's driver, libcuda.so.1, on machines without one, so that cuDNN makes plans there: it compiles kernels
 * for a device that it is told of, gives them to the driver, and asks that for little more. The kernels are kept as files
 * in the folder $KERNELS. Nothing runs: whatever else is called says that there is no device. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100 };

/* Looked for when the library is loaded, and not called here. */
#define ABSENT(X)                                                                                                     \
  X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxGetLimit) X(cuCtxPopCurrent) X(cuCtxPushCurrent) X(cuDeviceGet)         \
  X(cuDeviceGetAttribute) X(cuDeviceGetCount) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset)                 \
  X(cuDevicePrimaryCtxRetain) X(cuFuncGetAttribute) X(cuInit) X(cuKernelGetAttribute) X(cuLaunchCooperativeKernel)    \
  X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLibraryLoadFromFile) X(cuLinkAddData) X(cuLinkAddData_v2)                 \
  X(cuLinkAddFile_v2) X(cuLinkComplete) X(cuLinkCreate) X(cuLinkCreate_v2) X(cuLinkDestroy) X(cuMemcpyDtoH_v2)        \
  X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleLoadFatBinary)   \
  X(cuModuleUnload) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuOccupancyMaxPotentialClusterSize)              \
  X(cuStreamGetCtx) X(cuStreamSynchronize) X(cuTensorMapEncodeTiled)
#define DEFINE(f) \
  int f(void) { return NO_DEVICE; }
ABSENT(DEFINE)

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
  (void)error;
  *text = "no driver, but what stands in for it";
  return SUCCESS;
}
int cuGetErrorName(int error, const char **text) { return cuGetErrorString(error, text); }

/* An ELF file ends with its headers of sections or of segments. */
static size_t bytes_of(const Elf64_Ehdr *e) {
  size_t sections = e->e_shoff + (size_t)e->e_shentsize * e->e_shnum;
  size_t segments = e->e_phoff + (size_t)e->e_phentsize * e->e_phnum;
  return sections > segments ? sections : segments;
}

static void keep(const void *image) {
  static int n;
  const char *folder = getenv("KERNELS");
  char path[4096];
  if (!folder || memcmp(image, ELFMAG, SELFMAG) != 0) return;
  snprintf(path, sizeof path, "%s/%d.cubin", folder, n++);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(image, 1, bytes_of(image), file) != bytes_of(image) || fclose(file)) {
    perror(path);
    exit(1);
  }
}

int cuLibraryLoadData(void **library, const void *image) {
  static int some;
  keep(image);
  *library = &some;
  return SUCCESS;
}
int cuLibraryUnload(void *library) {
  (void)library;
  return SUCCESS;
}
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)name;
  *kernel = library;
  return SUCCESS;
}
int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
  (void)attribute, (void)value, (void)kernel, (void)device;
  return SUCCESS;
}
int cuFuncSetAttribute(void *kernel, int attribute, int value) {
  (void)kernel, (void)attribute, (void)value;
  return SUCCESS;
}
