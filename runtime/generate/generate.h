/* Text generation; tokenizer.h and sampling.h are independent of ranks. */
#ifndef PD_GENERATE_H
#define PD_GENERATE_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Completes the options; false after filling `why`. */
bool pd_generation_check(struct pd_options *o, char *why);
/* Rank 0 reads the prompts; false after filling `why`. */
bool pd_generation_read(char *why);
void pd_generation_share(void);    /* collective: sends the prompts to all ranks */
int64_t pd_generation_steps(void); /* upper bound */

#ifdef __cplusplus
}
#endif

#endif
