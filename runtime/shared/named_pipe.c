#include "shared/named_pipe.h"

#include <stdlib.h>
#include <sys/stat.h>

bool pd_is_named_pipe(const char *path) {
  struct stat st;
  if (stat(path, &st) || !S_ISFIFO(st.st_mode)) return false;
  char *real = realpath(path, NULL); /* a link to an open pipe, "pipe:[5]", is not a file name */
  free(real);
  return real != NULL;
}
