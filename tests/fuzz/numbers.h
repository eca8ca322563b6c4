/* Models in numbers: computed by the interpreter with inputs and parameters that follow from their places. */
#ifndef PDC_FUZZ_NUMBERS_H
#define PDC_FUZZ_NUMBERS_H

#include "graph/graph.h"

/* Whether the forward passes are so little work that thousands of models a second can be computed, and drop nothing:
 * which elements are dropped depends on the order in which the layout pass has them. */
bool numbers_can_be_compared(const Graph *g);
/* Compares two graphs of one model, each with its derivatives: losses and gradients are the same, apart from rounding; ends
 * the process where they are not, showing the model's `text`. With `smooth`, gradients are also those that the loss has
 * when all parameters move. Losses that are not finite, or huge, say nothing: nothing is compared. */
void numbers_compare(const Graph *before, const Graph *after, bool smooth, const char *text);

#endif
