/* Text into words, before pairs are merged within each: by the regular expressions that byte-pair tokenizers use,
 * written out by hand. Characters are Unicode's; a byte that belongs to none is neither letter, number nor
 * space. */
#ifndef PD_SPLIT_H
#define PD_SPLIT_H

#include <stddef.h>

struct pd_splitter;
/* The bytes of the word that n > 0 bytes of text start with: at least 1. */
typedef size_t pd_split_word(const struct pd_splitter *s, const char *text, size_t n);

struct pd_splitter {
  pd_split_word *word;
  int most_digits; /* in a word of numbers */
};

/* The splitter that equals this regular expression of a tokenizer.json, or NULL. */
const struct pd_splitter *pd_splitter_of(const char *expression);
extern const struct pd_splitter pd_gpt2_splitter;
/* The pre-tokenizer Digits: words of numbers (all of them, or each alone) and what is between. */
extern const struct pd_splitter pd_digits_splitter, pd_digit_splitter;

#endif
