/* The system's header of this name, but that the library of cuDNN, which runtime/cuda looks for when it runs, is the
 * one that stands in for it (../cudnn_backend.cpp), whatever is installed. */
#ifndef CUDA_HOST_DLFCN_H
#define CUDA_HOST_DLFCN_H

#include_next <dlfcn.h>

void *cuda_host_dlopen(const char *name, int flags);
void *cuda_host_dlsym(void *library, const char *name);
char *cuda_host_dlerror();
#define dlopen cuda_host_dlopen
#define dlsym cuda_host_dlsym
#define dlerror cuda_host_dlerror

#endif
