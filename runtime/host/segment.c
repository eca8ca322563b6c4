#define _GNU_SOURCE /* memfd_create */
#include "segment.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Allocates all pages now, so that a shortage of memory fails here and not at a later access. */
struct pd_offer pd_offer_made(size_t bytes, bool with) {
  struct pd_offer o = {.fd = -1, .pid = (int32_t)getpid(), .bytes = (int64_t)bytes};
  uint64_t token;
  gethostname(o.host, sizeof o.host - 1);
  if (!with || getrandom(&token, sizeof token, 0) != sizeof token) return o;
  snprintf(o.name, sizeof o.name, "pd.%016llx", (unsigned long long)token);
  int fd = memfd_create(o.name, MFD_CLOEXEC);
  if (fd >= 0 && !ftruncate(fd, (off_t)bytes) && !posix_fallocate(fd, 0, (off_t)bytes))
    o.fd = fd;
  else if (fd >= 0)
    close(fd);
  return o;
}

/* Compares the host name first: on another host the number may belong to any process. */
char *pd_offer_map(const struct pd_offer *o) {
  char host[sizeof o->host] = "", path[64], link[64] = "", wanted[64];
  gethostname(host, sizeof host - 1);
  if (o->fd < 0 || strcmp(o->host, host)) return NULL;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)o->pid, (int)o->fd);
  snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", o->name);
  if (readlink(path, link, sizeof link - 1) < 0 || strcmp(link, wanted)) return NULL;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return NULL;
  char *at = mmap(NULL, (size_t)o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? NULL : at;
}
