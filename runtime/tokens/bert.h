/* BERT's normalizer and words (Devlin et al., 2019), and its WordPiece model (Wu et al., 2016). */
#ifndef PD_BERT_H
#define PD_BERT_H

#include "bpe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Steps of BertNormalizer. */
struct pd_bert {
  bool on;      /* the tokenizer has this normalizer */
  bool clean;   /* control characters disappear, blanks become spaces */
  bool chinese; /* ideographs become words */
  bool strip, lower;
};
/* malloc'd, of *bytes bytes and a terminating zero. Invalid bytes are kept. */
char *pd_bert_normalized(const struct pd_bert *b, const char *text, size_t *bytes);

/* The length in bytes of the word at the start of a text: a run of blanks, a punctuation mark, or a run of other
 * characters. */
size_t pd_bert_word(const char *text, size_t n);
/* Whether such a word is blank, which has no tokens. */
bool pd_bert_is_blank(const char *word, size_t bytes);

struct pd_wordpiece {
  char *continuing; /* before the text of tokens that do not begin a word; NULL: the model is another one */
  int64_t most;     /* characters of a word; longer ones are unknown */
};
/* Adds the tokens of a word: from left to right, each the longest that matches; the unknown token if none does. */
void pd_wordpiece_encode(const struct pd_wordpiece *w, const struct pd_bpe *vocabulary, const char *word,
                         size_t bytes, struct pd_tokens *to);

#endif
