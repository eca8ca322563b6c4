/* Changes of .pdm files by words and whole statements: most of what comes out parses, and of models many stay models. */
#ifndef PDC_FUZZ_WORDS_H
#define PDC_FUZZ_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Changes the text in place, of `most` bytes at most, by a few changes that the seed chooses; returns its size. Comments are
 * dropped. */
size_t words_mutate(uint8_t *data, size_t size, size_t most, unsigned seed);
/* The first text with a few statements of the second; in `out`, of `most` bytes at most. Returns the size. */
size_t words_cross(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size, uint8_t *out,
                   size_t most, unsigned seed);

#endif
