/* `pdc checkpoint`: what a training's --checkpoint directory holds, and whether it is sound. */
#ifndef PDC_CHECKPOINT_H
#define PDC_CHECKPOINT_H

#include "base/base.h"

/* Prints a line for each step in `directory`, after verifying every shard of it; false after a diagnostic for each one that
 * is damaged, or where there is none that a training could go on from. */
bool checkpoint_list(const char *directory, FILE *out);

#endif
