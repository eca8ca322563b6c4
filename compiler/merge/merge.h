/* `pdc merge`: adds adapters to the weights of a Hugging Face folder. */
#ifndef PDC_MERGE_H
#define PDC_MERGE_H

#include "base/base.h"

/* Writes the folder `output`: the files of `base`, with the weights W + lora_alpha / r B A for each adapter of
 * `adapter`, a folder of PEFT's format. False after diagnostics. */
bool merge_folders(const char *base, const char *adapter, const char *output);

#endif
