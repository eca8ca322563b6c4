/* The memory that a rank may still allocate, to check sizes that files claim. */
#include "run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The number after `key` in a file of numbers, the first number for ""; -1: none. */
static int64_t number_in(const char *path, const char *key) {
  char line[256];
  long long number = -1;
  FILE *in = fopen(path, "r");
  while (in && number < 0 && fgets(line, sizeof line, in))
    if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), "%lld", &number) != 1) number = -1;
  if (in) fclose(in);
  return number;
}

/* The minimum of the machine's and the container's free memory. */
static int64_t machine_room(void) {
  int64_t free_kib = number_in("/proc/meminfo", "MemAvailable:");
  int64_t most = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", "");
  int64_t room = free_kib < 0 ? INT64_MAX : free_kib << 10;
  return most < 0 || used < 0 ? room : least(room, most > used ? most - used : 0);
}

/* Of `ulimit -v`. */
static int64_t address_room(void) {
  struct rlimit limit;
  int64_t pages = number_in("/proc/self/statm", "");
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY || pages < 0) return INT64_MAX;
  int64_t most = (int64_t)limit.rlim_cur, used = pages * sysconf(_SC_PAGESIZE);
  return most > used ? most - used : 0;
}

int pd_local_ranks(void) {
  const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!text) text = getenv("MPI_LOCALNRANKS"); /* Hydra's */
  const int ranks = text ? atoi(text) : 1;
  return ranks > 0 ? ranks : 1;
}

int64_t pd_memory_room(void) { return least(machine_room() / pd_local_ranks(), address_room()); }
