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

/* Unicode's general categories. */
enum pd_category {
  PD_LU,
  PD_LL,
  PD_LT,
  PD_LM,
  PD_LO,
  PD_MN,
  PD_MC,
  PD_ME,
  PD_ND,
  PD_NL,
  PD_NO,
  PD_PC,
  PD_PD,
  PD_PS,
  PD_PE,
  PD_PI,
  PD_PF,
  PD_PO,
  PD_SM,
  PD_SC,
  PD_SK,
  PD_SO,
  PD_ZS,
  PD_ZL,
  PD_ZP,
  PD_CC,
  PD_CF,
  PD_CS,
  PD_CO,
  PD_CN
};
enum { PD_POINTS = 0x110000 };

/* A run of code points of one category; it ends before `first` of the next run. */
struct pd_run_of_category {
  int32_t first;
  enum pd_category category;
};
/* All runs, in order; returns their number. */
size_t pd_runs_of_categories(const struct pd_run_of_category **runs);
bool pd_is_space(int32_t point); /* White_Space: \s of regular expressions */

enum pd_class { PD_NEITHER, PD_LETTER, PD_NUMBER, PD_SPACE };
enum pd_class pd_class_of(int32_t point);

#endif
