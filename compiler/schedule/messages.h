/* Rules of messages between stages, for all simulators of pipelines: the machine, its tape, and the planner's
 * simulation of offload. */
#ifndef PDC_MESSAGES_H
#define PDC_MESSAGES_H

#include <stdint.h>

enum { GRADIENT_SLOTS = 2, SENT_SLOTS = 2 }; /* one in use, one on its way */

/* A message leaves once it is sent and its receive is posted, and takes `seconds`. */
static inline double message_arrival(double sent, double posted, double seconds) {
  return (sent > posted ? sent : posted) + seconds;
}

/* Slots for gradients to the previous stage, of a stage with one part under offload. It runs backward while its
 * predecessor accepts no gradients yet, if that runs all microbatches of a batch forward first. before, own: turns
 * in flight of the predecessor and of the stage. */
static inline int returned_slots(int64_t before, int64_t own, int64_t microbatches) {
  const int64_t waiting = (before < microbatches ? before : microbatches) - own + 1;
  return waiting > GRADIENT_SLOTS ? (int)waiting : GRADIENT_SLOTS;
}

#endif
