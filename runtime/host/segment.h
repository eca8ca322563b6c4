/* Shared memory of processes on a machine: a memfd, which has no name except in the process's /proc, is limited
 * only by the machine's memory, and disappears with the last process that maps it. */
#ifndef PD_SEGMENT_H
#define PD_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The description of a segment, sent to other processes. */
struct pd_offer {
  char host[64], name[32];
  int32_t pid, fd; /* -1: none */
  int64_t bytes;
};

/* Creates a segment of `bytes`, with allocated memory, or without `with` only the identity of this process. The
 * creator may close fd once all other processes have mapped the segment. */
struct pd_offer pd_offer_made(size_t bytes, bool with);
/* Maps a whole segment of another process or this one; NULL if the process does not exist or access is denied. */
char *pd_offer_map(const struct pd_offer *o);

#endif
