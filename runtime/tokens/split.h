/* Splits text into words before merging, by the regular expressions of byte-pair tokenizers. */
#ifndef PD_SPLIT_H
#define PD_SPLIT_H

#include "pattern.h"

struct pd_splitter {
  struct pd_pattern *pattern; /* owned; NULL: BertPreTokenizer, with blanks as words */
  enum pd_behavior behavior;
};

/* The expressions of ByteLevel and of Digits, with words of all adjacent digits or of single ones. */
extern const char pd_gpt2_expression[], pd_digits_expression[], pd_digit_expression[];
/* The length in bytes, at least 1, of the word at the start of n > 0 bytes of text. */
size_t pd_split_word(const struct pd_splitter *s, const char *text, size_t n);
/* Whether the words of a text that ends with a printed ASCII character and a newline, and those of a text that begins
 * with an ASCII letter, are those of both texts together. Several splitters work within each other's words. */
bool pd_splits_at_newlines(const struct pd_splitter *s, int n);

#endif
