/* `pdc export`: the weights of a Hugging Face folder as a file of another program. */
#ifndef PDC_EXPORT_H
#define PDC_EXPORT_H

#include "base/base.h"

typedef enum { EXPORT_F16, EXPORT_Q8_0, EXPORT_F32 } ExportType; /* of matrices */

/* Writes the folder as a GGUF file, which llama.cpp reads. False after diagnostics. */
bool export_gguf(const char *folder, const char *output, ExportType type);

#endif
