/* What a model calls that is trained beside others (docs/guide/many-models.md); alone it does nothing. */
#ifndef PD_SHARP_TURN_H
#define PD_SHARP_TURN_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sharp_turn.c: a model that is trained beside others (docs/guide/many-models.md); alone it does nothing ---- */

/* At start, once pd.steps is known: returns when the model has a rank. */
void pd_sharp_enter(void);
void pd_sharp_in_parts(void); /* units end at pd_sharp_part_ends; else where a microbatch does */
/* Before the last piece of a unit: whether this model is the one that has the rank after it. */
bool pd_sharp_goes_on_after(void);
/* Between two units: returns when the model has a rank. When it is to have one soon, read_ahead is called (NULL:
 * nothing is). */
void pd_sharp_part_ends(void (*read_ahead)(void));
void pd_sharp_microbatch_ends(void);
void pd_sharp_tell(int64_t step, bool validation, double loss); /* for the launch's last lines */

#ifdef __cplusplus
}
#endif

#endif
