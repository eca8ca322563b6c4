/* Measured memory: what the process holds apart from mapped files and memory shared with other ranks
 * (resident less shared, in /proc/self/statm; that is RssAnon), and the receive slots of its arena, although who
 * sends has mapped them, too. Sampled after every update, when the arena, which is never given back, and the
 * libraries' buffers are all in use. */
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
