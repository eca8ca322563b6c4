/* Models from bytes: every byte string gives a valid model, and similar strings give similar models. */
#ifndef PDC_FUZZ_MAKER_H
#define PDC_FUZZ_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of a .pdm file, in the arena; *smooth: its loss is differentiable everywhere. */
const char *make_model_text(const uint8_t *data, size_t size, bool *smooth);

#endif
