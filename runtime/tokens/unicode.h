/* Characters of UTF-8 and their classes. */
#ifndef PD_UNICODE_H
#define PD_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes the character at s has, n > 0 of which are there: 1 to 4; 0: there are more to come; -k: its
 * first k bytes can begin no character. */
int pd_utf8_length(const unsigned char *s, size_t n);

/* Of a character in a text: its bytes, and its code point; a byte that belongs to none is one by itself, -1. */
struct pd_character {
  int32_t point;
  int bytes;
};
struct pd_character pd_character_at(const char *text, size_t n);
/* Writes a code point in UTF-8, and returns its bytes. */
int pd_utf8_write(int32_t point, char *to);

struct pd_code_points {
  int32_t first, last;
};
/* Whether one of n ascending ranges has the code point. */
bool pd_is_in(const struct pd_code_points *table, size_t n, int32_t point);

enum pd_class { PD_NEITHER, PD_LETTER, PD_NUMBER, PD_SPACE };
enum pd_class pd_class_of(int32_t point);

#endif
