/* Tensors of Hugging Face folders without weights. */
#ifndef PD_UNWEIGHTED_H
#define PD_UNWEIGHTED_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* True for masks and rotary frequencies, which older versions of transformers saved; newer versions do not read
 * them. */
bool pd_is_unweighted(const char *name);

#ifdef __cplusplus
}
#endif

#endif
