/* The microbatch and chunk of a rank's turn: one rule for schedules and runs. Emitted programs contain it as text
 * (compiler/emit/emit.c: turn_functions). */
#ifndef PD_SHARED_TURNS_H
#define PD_SHARED_TURNS_H

#include <stdbool.h>
#include <stdint.h>

struct pd_turn {
  int chunk;
  int64_t k; /* microbatch of the rank, from 1 */
};

/* turn: from 1. together: microbatches that run through a chunk before the next chunk's turn. Interleaved: the
 * number of stages, so that a group's first microbatch returns from the last stage just after this rank has sent
 * the group's last (Narayanan et al. 2021, SC). Offload: a batch, so that each part is read once. */
static inline struct pd_turn pd_turn_of(int64_t turn, int chunks, int64_t together, bool backward) {
  if (chunks == 1) return (struct pd_turn){0, turn};
  const int64_t group = (turn - 1) / (together * chunks), within = (turn - 1) % (together * chunks),
                chunk = within / together;
  return (struct pd_turn){(int)(backward ? chunks - 1 - chunk : chunk), group * together + within % together + 1};
}

#endif
