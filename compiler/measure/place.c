/* `pdc profile --spill DIR`: transfer rates of an offload directory, under the programs' access pattern: one
 * thread, blocks with checksums, an unnamed file, reused small pages. The file has the model's size, because small
 * files stay in the page cache. */
#define _GNU_SOURCE /* O_TMPFILE */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/checksum.h"
#include "measure/internal.h"

enum { BLOCK = 8 << 20 };
static const int64_t FEWEST = INT64_C(256) << 20, MOST = INT64_C(8) << 30;
static const double SECONDS = 3; /* minimum of each direction */

typedef struct Disk {
  int file;
  char *memory;
  bool failed;
} Disk;

static void touch_block(Disk *p, int64_t at, bool writes) {
  ssize_t n = writes ? pwrite(p->file, p->memory, BLOCK, at) : pread(p->file, p->memory, BLOCK, at);
  p->failed |= n != BLOCK;
}

/* Seconds of one pass over the file. Writes first compute the block, as programs do. */
static double pass(Disk *p, int64_t bytes, bool writes) {
  double seconds = 0;
  for (int64_t at = 0; at < bytes && !p->failed; at += BLOCK) {
    if (writes)
      memset(p->memory, (int)(at / BLOCK) | 1, BLOCK);
    double start = seconds_now();
    volatile uint64_t sum = writes ? pd_checksum(p->memory, BLOCK) : 0;
    touch_block(p, at, writes);
    sum += writes ? 0 : pd_checksum(p->memory, BLOCK);
    seconds += seconds_now() - start;
    (void)sum;
  }
  return seconds;
}

static bool tell(const char *place, const char *what) {
  error_at(NO_SPAN, "PD0605", "--spill: cannot %s in '%s': %s", what, place, strerror(errno));
  return false;
}

bool measure_place(const char *place, int64_t bytes, Profile *profile) {
  Disk p = {.file = open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  bytes = (bytes < FEWEST ? FEWEST : bytes < MOST ? bytes : MOST) / BLOCK * BLOCK;
  if (p.file < 0)
    return tell(place, "make a file");
  int error = posix_fallocate(p.file, 0, bytes);
  p.memory = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (error || p.memory == MAP_FAILED) {
    errno = error ? error : errno;
    close(p.file);
    return tell(place, "have room for a file");
  }
  madvise(p.memory, BLOCK, MADV_NOHUGEPAGE);
  double write = 0, read = 0;
  int64_t passes = 0;
  pass(&p, bytes, true); /* first writes to a file are slower */
  for (errno = 0; !p.failed && (write < SECONDS || read < SECONDS) && write + read < 10 * SECONDS; passes++) {
    write += pass(&p, bytes, true);
    read += pass(&p, bytes, false);
  }
  munmap(p.memory, BLOCK);
  close(p.file);
  if (p.failed)
    return tell(place, "read and write a file");
  profile->write = write / (double)(bytes * passes);
  profile->read = read / (double)(bytes * passes);
  return true;
}
