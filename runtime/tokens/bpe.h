/* A vocabulary and its merges: words to tokens by byte-pair encoding (Sennrich et al. 2016). The symbols of a word
 * start as its characters. The neighbours whose merge has the lowest rank, the first of equals, are merged until
 * no neighbours have a merge. */
#ifndef PD_BPE_H
#define PD_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_bpe {
  int64_t n;     /* upper bound of ids */
  char **text;   /* by id; NULL: no such token */
  size_t *bytes; /* of text */
  struct pd_hashed *token;
  size_t token_room;
  struct pd_merge *merge;
  size_t merge_room, n_merges;
  int32_t unknown;    /* token for characters outside the vocabulary; -1: none */
  bool fuse_unknown;  /* adjacent unknown characters become one token */
  bool byte_fallback; /* unknown characters become tokens of their bytes, "<0x0A>", if present */
  bool whole_words;   /* a word that is a token is not split */
};

void pd_bpe_start(struct pd_bpe *b, int64_t n);      /* for ids below n; without merges */
void pd_bpe_expect(struct pd_bpe *b, size_t merges); /* before the first merge: the largest number of merges */
void pd_bpe_free(struct pd_bpe *b);
/* False when another token has this text or this id, 0 <= id < n. */
bool pd_bpe_add_token(struct pd_bpe *b, const char *text, size_t bytes, int32_t id);
/* The token of this text, or -1. */
int32_t pd_bpe_find(const struct pd_bpe *b, const char *text, size_t bytes);
/* Adds the merge of the next rank; false if a part or the result is not a token. */
bool pd_bpe_add_merge(struct pd_bpe *b, const char *left, size_t left_bytes, const char *right,
                      size_t right_bytes);

/* A growing array of tokens. */
struct pd_tokens {
  int32_t *at;
  int64_t n, room;
};
void pd_tokens_add(struct pd_tokens *t, int32_t token);
void *pd_grown(void *at, size_t bytes); /* realloc; ends the launch without memory */
/* A text that grows, with a zero byte behind it; {0}: empty. */
struct pd_growing {
  char *at;
  size_t n, room;
};
void pd_growing_add(struct pd_growing *t, const char *text, size_t bytes);

/* Adds the tokens of a word; false with *missing at the first character without a token. */
bool pd_bpe_encode(const struct pd_bpe *b, const char *word, size_t bytes, struct pd_tokens *to,
                   const char **missing);

#endif
