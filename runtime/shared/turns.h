/* Which microbatch a rank's turn works on, and with which of its chunks: one rule for schedules and for what a run counts. Emitted
 * programs have it in text (compiler/emit/emit.c: turn_functions). */
#ifndef PD_SHARED_TURNS_H
#define PD_SHARED_TURNS_H

#include <stdbool.h>
#include <stdint.h>

struct pd_turn {
  int chunk;
  int64_t k; /* of the rank's microbatches, from 1 */
};

/* turn: from 1. together: microbatches that go through a chunk before the next chunk's turn: as many as stages, so that when a
 * group's first comes back from the last stage this rank has just sent the group's last (Narayanan et al. 2021, SC);
 * where parts come and go, a batch, so that each comes once. */
static inline struct pd_turn pd_turn_of(int64_t turn, int chunks, int64_t together, bool backward) {
  if (chunks == 1) return (struct pd_turn){0, turn};
  const int64_t group = (turn - 1) / (together * chunks), within = (turn - 1) % (together * chunks),
                chunk = within / together;
  return (struct pd_turn){(int)(backward ? chunks - 1 - chunk : chunk), group * together + within % together + 1};
}

#endif
