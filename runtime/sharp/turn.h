/* The calls of a model in a launch of several models (docs/guide/many-models.md); no effect in a launch of one
 * model. */
#ifndef PD_SHARP_TURN_H
#define PD_SHARP_TURN_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sharp_turn.c ---- */

/* At start, once pd.steps is known: waits until the model has a rank. */
void pd_sharp_enter(void);
void pd_sharp_in_parts(void); /* makes units end at pd_sharp_part_ends, not at microbatches */
/* Before the last piece of a unit: true if this model keeps the rank after it. */
bool pd_sharp_goes_on_after(void);
/* Between two units: waits until the model has a rank. Calls read_ahead, unless NULL, when the model will have one
 * soon. */
void pd_sharp_part_ends(void (*read_ahead)(void));
void pd_sharp_microbatch_ends(void);
void pd_sharp_tell(int64_t step, bool validation, double loss); /* for the summary */

#ifdef __cplusplus
}
#endif

#endif
