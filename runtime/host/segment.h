/* Memory that a process makes and others of its machine map, too: a memfd, which has no name but in /proc where the process
 * is, no limit but the machine's memory, and goes with the last process that maps it, however that ends. */
#ifndef PD_SEGMENT_H
#define PD_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the others are told of it, by a message. */
struct pd_offer {
  char host[64], name[32];
  int32_t pid, fd; /* -1: there is none */
  int64_t bytes;
};

/* Of so many bytes, with memory behind all of them; without: no more than says who this process is. Who made it may close
 * fd once the others have mapped it. */
struct pd_offer pd_offer_made(size_t bytes, bool with);
/* All of what another process offers, or this one; NULL where there is no such process, or it is not ours to look at. */
char *pd_offer_map(const struct pd_offer *o);

#endif
