/* Devices that cuDNN makes plans for without having one: in words. */
#ifndef CUDNN_DEVICES_H
#define CUDNN_DEVICES_H

#include <cstdio>
#include <string>

/* What cuDNN asks of a device, of data sheets and of CUDA's documentation of compute capabilities. */
struct Described {
  int arch;
  const char *name;
  int multiprocessors, clock, memory_clock, cache, shared;
};
inline const Described devices[] = {
    {80, "NVIDIA A100-SXM4-80GB", 108, 1410000, 1512000, 41943040, 166912},
    {90, "NVIDIA H100 80GB HBM3", 132, 1980000, 2619000, 52428800, 232448},
    {100, "NVIDIA B200", 148, 1965000, 3996000, 132120576, 232448},
};

inline std::string device_in_words(int arch) {
  const Described &d = arch == 80 ? devices[0] : arch == 90 ? devices[1] : devices[2];
  char text[2048];
  snprintf(
      text, sizeof text,
      "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
      "\"multiProcessorCount\": %d, \"smClockRateKHz\": %d, \"memClockRateKHz\": %d, \"l2CacheSize\": %d, "
      "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
      "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, "
      "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
      "\"supportCoopLaunch\": 1, \"deviceVer\": %d, \"driverVer\": 13000, \"cudaDeviceId\": 0, "
      "\"totalGlobalMem\": 80000000000, \"deviceName\": \"%s\", \"name\": \"%s\"}",
      d.multiprocessors, d.clock, d.memory_clock, d.cache, d.shared, d.arch * 10, d.name, d.name);
  return text;
}

#endif
