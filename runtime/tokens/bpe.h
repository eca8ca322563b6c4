/* A vocabulary and its merges: words to tokens by byte-pair encoding (Sennrich et al. 2016). A word's symbols are
 * its characters at first; of all neighbours that have a merge those of the lowest rank, of equals the first
 * ones, become one symbol, until none have. */
#ifndef PD_BPE_H
#define PD_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_bpe {
  int64_t n;     /* ids are below it */
  char **text;   /* by id; NULL: no token has this id */
  size_t *bytes; /* of text */
  struct pd_hashed *token;
  size_t token_room;
  struct pd_merge *merge;
  size_t merge_room, n_merges;
  int32_t unknown;    /* what stands for characters that the vocabulary does not have; -1: nothing does */
  bool fuse_unknown;  /* neighbours among them are one */
  bool byte_fallback; /* they are tokens of their bytes, "<0x0A>", if there are such */
  bool whole_words;   /* a word that is a token is not made of merges */
};

void pd_bpe_start(struct pd_bpe *b, int64_t n);      /* for ids below n; without merges */
void pd_bpe_expect(struct pd_bpe *b, size_t merges); /* before the first of at most so many */
void pd_bpe_free(struct pd_bpe *b);
/* False when another token has this text or this id, 0 <= id < n. */
bool pd_bpe_add_token(struct pd_bpe *b, const char *text, size_t bytes, int32_t id);
/* The token of this text, or -1. */
int32_t pd_bpe_find(const struct pd_bpe *b, const char *text, size_t bytes);
/* Adds the merge of the next rank; false when a token or what they make together is no token. */
bool pd_bpe_add_merge(struct pd_bpe *b, const char *left, size_t left_bytes, const char *right,
                      size_t right_bytes);

/* Numbers that grow. */
struct pd_tokens {
  int32_t *at;
  int64_t n, room;
};
void pd_tokens_add(struct pd_tokens *t, int32_t token);
void *pd_grown(void *at, size_t bytes); /* realloc, or the end of the launch */

/* Adds a word's tokens; false with *missing at the character that has none. */
bool pd_bpe_encode(const struct pd_bpe *b, const char *word, size_t bytes, struct pd_tokens *to,
                   const char **missing);

#endif
