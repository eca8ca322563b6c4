/* Models out of bytes: every string of bytes is a valid model, and those that differ a little are models that do. */
#ifndef PDC_FUZZ_MAKER_H
#define PDC_FUZZ_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of a .pdm file, in the arena; *smooth: its loss has a derivative everywhere. */
const char *make_model_text(const uint8_t *data, size_t size, bool *smooth);

#endif
