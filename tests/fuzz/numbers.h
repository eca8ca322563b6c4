/* Numeric checks of models: the interpreter runs them with inputs and parameters determined by their indices. */
#ifndef PDC_FUZZ_NUMBERS_H
#define PDC_FUZZ_NUMBERS_H

#include "graph/graph.h"

/* Whether the forward pass is cheap enough for thousands of models a second, and has no dropout: its mask depends
 * on the order of axes chosen by the layout pass. */
bool numbers_can_be_compared(const Graph *g);
/* Compares two graphs of one model, with their derivatives: losses and gradients must agree up to rounding. A
 * mismatch prints the model's `text` and ends the process. With `smooth`, also compares gradients with the loss's
 * change along a parameter direction. Models with non-finite or huge losses are skipped. */
void numbers_compare(const Graph *before, const Graph *after, bool smooth, const char *text);

#endif
