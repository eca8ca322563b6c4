/* Measured memory: anonymous resident memory (resident minus shared in /proc/self/statm, RssAnon), without mapped
 * files and other ranks' shared memory, plus the receive slots of the arena, although senders also map them.
 * Sampled after every update, when the whole arena and the libraries' buffers are in use. */
#include "run/run.h"
#include "shared.h"
#include "transfer.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int64_t peak;

void pd_memory_sample(void) {
  static int statm = -1;
  if (statm < 0) statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[128];
  ssize_t n = statm < 0 ? -1 : pread(statm, text, sizeof text - 1, 0);
  if (n <= 0) return;
  text[n] = 0;
  long long size, resident, shared;
  if (sscanf(text, "%lld %lld %lld", &size, &resident, &shared) != 3) return;
  int64_t bytes = (resident - shared) * sysconf(_SC_PAGESIZE) + pd_shared_bytes() + pd_meeting_shared();
  if (bytes > peak) peak = bytes;
}

int64_t pd_memory_peak(void) { return peak; }
