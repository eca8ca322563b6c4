#include "shared/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/why.h"

int pd_open_regular(const char *path, size_t *size, char *why) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool ok = (fd >= 0 && !fstat(fd, &st)) || pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  ok = ok && (S_ISREG(st.st_mode) || pd_refuse(why, "cannot read '%s': it is not a regular file", path));
  ok = ok && (st.st_size || pd_refuse(why, "cannot read '%s': it is empty", path));
  if (ok) {
    *size = (size_t)st.st_size;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

const void *pd_map_regular(const char *path, size_t *size, char *why) {
  int fd = pd_open_regular(path, size, why);
  if (fd < 0) return NULL;
  const void *map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) {
    pd_refuse(why, "cannot map '%s': %s", path, strerror(errno));
    map = NULL;
  }
  close(fd);
  return map;
}

char *pd_read_file(const char *path, size_t *size, char *why) {
  int fd = pd_open_regular(path, size, why);
  if (fd < 0) return NULL;
  char *text = malloc(*size);
  if (!text) {
    close(fd);
    pd_refuse(why, "cannot read '%s': out of memory for its %zu bytes", path, *size);
    return NULL;
  }
  ssize_t n = 1;
  for (size_t done = 0; done < *size && n > 0;) {
    n = read(fd, text + done, *size - done);
    if (n > 0)
      done += (size_t)n;
    else if (n < 0 && errno == EINTR)
      n = 1;
  }
  if (n < 0) pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  if (!n) pd_refuse(why, "cannot read '%s': it became shorter while it was read", path);
  close(fd);
  if (n > 0) return text;
  free(text);
  return NULL;
}
