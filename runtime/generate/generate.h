/* Text generation by ranks; tokenizer.h and sampling.h have what needs none. */
#ifndef PD_GENERATE_H
#define PD_GENERATE_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- generate.c ------------------------------------------------------------------------------- */

/* Rank 0 reads the prompt; false after filling `why`. */
bool pd_generation_read(char *why);
void pd_generation_share(void);    /* collective: all ranks get it */
int64_t pd_generation_steps(void); /* at most */

#ifdef __cplusplus
}
#endif

#endif
