/* Preloaded before MPI: reports every second complete set of requests up to MOST calls late, as MPI may. Sets that
 * complete in one order are then reported in any order. LATE_SEED chooses among the cases. */
#include <mpi.h>

#include <stdbool.h>
#include <stdlib.h>

enum { SETS = 64, MOST = 3000 };

static struct held {
  const MPI_Request *first;
  int n, calls; /* requests; calls until the set may be complete */
} held[SETS];

/* A linear congruential generator (Knuth), the upper bits of 32. */
static unsigned random_bits(void) {
  static unsigned state;
  static bool seeded;
  if (!seeded) {
    const char *seed = getenv("LATE_SEED");
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    state = (unsigned)(seed ? atoi(seed) : 1) * 7919u + (unsigned)rank * 104729u;
    seeded = true;
  }
  state = state * 1664525u + 1013904223u;
  return state >> 16;
}

/* The set's place, or a free one; NULL when there is none. */
static struct held *place_of(int n, const MPI_Request *first) {
  for (struct held *h = held; h < held + SETS; h++) {
    if (!h->first) *h = (struct held){first, n, 0};
    if (h->first == first && h->n == n) return h;
  }
  return NULL;
}

int MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
  struct held *h = place_of(n, requests);
  bool any = false;
  for (int i = 0; i < n; i++) any |= requests[i] != MPI_REQUEST_NULL;
  if (h && h->calls > 0) {
    int message; /* the others' go on */
    h->calls--;
    *flag = 0;
    return PMPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE);
  }
  int error = PMPI_Testall(n, requests, flag, statuses);
  if (h && *flag && any && random_bits() % 2) {
    h->calls = (int)(random_bits() % MOST);
    *flag = 0;
  }
  return error;
}
