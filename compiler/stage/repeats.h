/* Private to compiler/stage: repeated blocks of a model, which differ only in names. */
#ifndef PDC_REPEATS_H
#define PDC_REPEATS_H

#include "stage/signature.h"

/* Each of the pieces [first, end) has the same structure and connections as the piece `period` later, if that is
 * in the range. period 0: no repeats. */
typedef struct Repeats {
  int first, end, period;
} Repeats;

/* The longest such run of a model. */
Repeats repeats_find(Signer *s, const Graph *g, const Pieces *p, Precision precision);

/* Shortens a part with more than `keep` whole repeats to `keep`, with the same structure; one of its cuts must be
 * within the run. *count: repeats before. False: too few repeats, or no such cut. */
bool repeats_shorten(const Repeats *r, PieceRange part, int keep, PieceRange *shorter, int *count);

#endif
