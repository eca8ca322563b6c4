/* Mutates .pdm files by words and whole statements: most results parse, and many mutated models are valid. */
#ifndef PDC_FUZZ_WORDS_H
#define PDC_FUZZ_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Changes the text in place by a few random changes, to at most `most` bytes; returns its size. Drops comments. */
size_t words_mutate(uint8_t *data, size_t size, size_t most, unsigned seed);
/* Writes the first text with a few statements of the second to `out`, at most `most` bytes; returns its size. */
size_t words_cross(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size, uint8_t *out,
                   size_t most, unsigned seed);

#endif
