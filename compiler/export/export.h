/* `pdc export`: the weights of a Hugging Face folder as a file of another program. */
#ifndef PDC_EXPORT_H
#define PDC_EXPORT_H

#include "base/base.h"

/* Writes the folder as a GGUF file, which llama.cpp reads. type: "f32", "f16" or "q8_0", of matrices. False after
 * diagnostics. */
bool export_gguf(const char *folder, const char *output, const char *type);

#endif
