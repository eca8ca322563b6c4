/* Two runs of the same work (--audit) in this process's memory. */
#include "run/run.h"

#include <string.h>

char *pd_copy_room(size_t bytes) { return pd_allocate(bytes); }

void pd_copy_bytes(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

void pd_exchange_bytes(void *a, void *b, size_t bytes) {
  char block[1 << 12];
  for (size_t done = 0, n; done < bytes; done += n) {
    n = bytes - done < sizeof block ? bytes - done : sizeof block;
    memcpy(block, (char *)a + done, n);
    memcpy((char *)a + done, (char *)b + done, n);
    memcpy((char *)b + done, block, n);
  }
}

bool pd_same_bytes(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

void pd_read_bytes(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
