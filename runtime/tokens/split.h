/* Splits text into words before merging: hand-written versions of the regular expressions of byte-pair tokenizers.
 * Characters are Unicode; invalid bytes are neither letters, numbers nor spaces. */
#ifndef PD_SPLIT_H
#define PD_SPLIT_H

#include <stddef.h>

struct pd_splitter;
/* The length in bytes, at least 1, of the word at the start of n > 0 bytes of text. */
typedef size_t pd_split_word(const struct pd_splitter *s, const char *text, size_t n);

struct pd_splitter {
  pd_split_word *word;
  int most_digits; /* per word */
};

/* The splitter for this regular expression of a tokenizer.json, or NULL. */
const struct pd_splitter *pd_splitter_of(const char *expression);
extern const struct pd_splitter pd_gpt2_splitter;
/* The pre-tokenizer Digits: words of digits, all together or individually, and the text between. */
extern const struct pd_splitter pd_digits_splitter, pd_digit_splitter;
extern const struct pd_splitter pd_bert_splitter; /* BertPreTokenizer (bert.c), with blanks as words */

#endif
