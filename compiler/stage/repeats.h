/* Where a model repeats itself: blocks one after the other that differ in names alone. Private to compiler/stage. */
#ifndef PDC_REPEATS_H
#define PDC_REPEATS_H

#include "stage/signature.h"

/* Each of the pieces [first, end) is, with all that it is connected to, like the one `period` pieces on, as far as that
 * is among them. period 0: nothing repeats. */
typedef struct Repeats {
  int first, end, period;
} Repeats;

/* The longest such run of a model. */
Repeats repeats_find(Signer *s, const Graph *g, const Pieces *p, Precision precision);

/* Of a part that holds more than `keep` whole repeats of the run, and has a cut within it: one of the same structure but
 * with only so many of them. How many there were, as *count; false: it holds no more, or all of the run. */
bool repeats_shorten(const Repeats *r, PieceRange part, int keep, PieceRange *shorter, int *count);

#endif
