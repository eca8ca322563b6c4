/* Stands in for CUDA's driver, libcuda.so.1, on machines without one, so that cuDNN makes plans there: it compiles kernels
 * for a device that it is told of, gives them to the driver, and asks that for little more. The kernels are kept as files
 * in the folder $KERNELS. Nothing runs: whatever else is called says that there is no device. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100 };

/* Looked for when the library is loaded, and not called here. */
#define ABSENT(f) \
  int f(void) { return NO_DEVICE; }
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetDevice)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetAttribute)
ABSENT(cuDeviceGetCount)
ABSENT(cuDevicePrimaryCtxRelease)
ABSENT(cuDevicePrimaryCtxReset)
ABSENT(cuDevicePrimaryCtxRetain)
ABSENT(cuFuncGetAttribute)
ABSENT(cuInit)
ABSENT(cuKernelGetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkAddFile_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkDestroy)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuModuleLoadData)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleLoadFatBinary)
ABSENT(cuModuleUnload)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)
ABSENT(cuStreamSynchronize)
ABSENT(cuTensorMapEncodeTiled)

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
