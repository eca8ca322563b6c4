/* Unigram language models (Kudo, 2018) and the character maps of SentencePiece, as T5 has them. */
#ifndef PD_UNIGRAM_H
#define PD_UNIGRAM_H

#include "bpe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_unigram {
  double *score;           /* by id; NULL: the model is another one */
  double least;            /* of the scores */
  struct pd_piece *pieces; /* of the vocabulary, by their bytes */
  int n;
};
/* After the vocabulary and its scores. */
void pd_unigram_complete(struct pd_unigram *u, const struct pd_bpe *vocabulary);
/* Adds the tokens of the best path through a text. False with *missing at the first unknown character if the
 * vocabulary has no unknown token. */
bool pd_unigram_encode(const struct pd_unigram *u, const struct pd_bpe *vocabulary, const char *text, size_t bytes,
                       struct pd_tokens *to, const char **missing);

/* A double array (Aoe, 1989) from texts to offsets of texts in `blob`, which ends with a zero. */
struct pd_charsmap {
  uint32_t *unit; /* NULL: none */
  size_t units;
  char *blob;
  size_t bytes;
};
/* Parses Base64. False: damaged. Frees nothing. */
bool pd_charsmap_parse(struct pd_charsmap *m, const char *base64);
/* The text with grapheme clusters of less than six bytes, and other characters, replaced by the map: malloc'd, of *bytes
 * bytes and a terminating zero. */
char *pd_charsmap_normalized(const struct pd_charsmap *m, const char *text, size_t *bytes);

#endif
