/* What a tokenizer is made of: Hugging Face's steps, of which tokenizer.json has a description each. */
#ifndef PD_TOKENIZER_PARTS_H
#define PD_TOKENIZER_PARTS_H

#include "bpe.h"
#include "split.h"
#include "tokenizer.h"

enum { PD_MAX_STEPS = 8, PD_MAX_PREFIX = 4 };

/* A text in place of another one. */
struct pd_replacement {
  char *from, *to; /* from is not empty; NULL: `to` is put before the text, or there is no `to`: normal.h */
};

/* A token that is found in the text before anything is split. */
struct pd_added {
  char *content;    /* as it is in the text */
  char *normalized; /* the same after normalizing: what is looked for when `normal`; otherwise NULL */
  int32_t id;
  bool left, right; /* spaces before it, behind it belong to it */
  bool special;     /* leaves no text when decoded */
};

/* Added tokens in the order of their texts' bytes, of equal texts in their own. */
struct pd_looked_for {
  struct pd_sought {
    const char *text;
    size_t bytes;
    int added; /* its place */
  } * at;
  int n;
};

/* When the word separator is put before a text that does not begin with it. */
enum pd_prepend { PD_NEVER, PD_ONCE, PD_ALWAYS }; /* once: where the whole text begins */

struct pd_tokenizer {
  bool bytes; /* tokens are bytes, and nothing of what follows counts */
  struct pd_bpe bpe;
  struct pd_added *added;
  int n_added;
  struct pd_looked_for looked_for[2]; /* in texts as they are, and in normalized ones */
  int32_t *added_of;                  /* by id: the first added token's place + 1; 0: there is none */
  struct pd_replacement normalizer[PD_MAX_STEPS];
  int n_normalizer;

  /* Before merges: words, one splitter within the words of the one before it. */
  struct pd_splitter splitter[PD_MAX_STEPS];
  int n_splitters;
  char *separator; /* Metaspace: what stands for a space, and begins a word; NULL: nothing does */
  enum pd_prepend prepend;
  bool separates;   /* words are split before it */
  bool byte_level;  /* each byte is written as a character of GPT-2's alphabet of 256 */
  bool space_first; /* a space is put before a text that does not begin with one */

  /* Back. */
  bool decode_byte_level, decode_fallback; /* tokens are written in that alphabet; "<0x0A>" is a byte */
  struct pd_replacement decoder[PD_MAX_STEPS];
  int n_decoder;
  bool fused;             /* what follows is of the whole text: */
  bool drop_space;        /* its first space */
  char *decode_separator; /* Metaspace: it becomes a space, or nothing in the first token: */
  bool drop_separator;

  bool newlines_end_words; /* no word and no added token goes beyond a newline that a letter follows */

  int32_t prefix[PD_MAX_PREFIX]; /* tokens before every text */
  int n_prefix;
  unsigned char *kind; /* by id, of enum pd_kind */
};
enum pd_kind { PD_SPECIAL = 1, PD_ENDS = 2 };

struct pd_tokenizer *pd_tokenizer_new(void); /* {0}; to be closed whatever becomes of it */
/* Each fills such a tokenizer, the merges' one that has its vocabulary. False after filling `why`, without the
 * file's name. */
bool pd_tokenizer_parse_json(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes, char *why);
bool pd_tokenizer_parse_vocabulary(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes,
                                   char *why);
bool pd_tokenizer_parse_merges(struct pd_tokenizer *t, const char *text, size_t bytes, char *why);
/* Takes an added token, whose texts are then the tokenizer's: there must be room in `added`. */
bool pd_tokenizer_add(struct pd_tokenizer *t, struct pd_added a, char *why);
bool pd_ends_words_at_newlines(const struct pd_tokenizer *t);                 /* found by trying */
const struct pd_added *pd_added_of(const struct pd_tokenizer *t, int32_t id); /* or NULL */
/* After GPT-2's two files: what they do not say, because it is so. */
bool pd_tokenizer_complete_gpt2(struct pd_tokenizer *t, char *why);
/* After parsing, in the end: which tokens are special, which end a text, and where texts of added tokens are found. */
void pd_tokenizer_complete(struct pd_tokenizer *t);

/* The longest added token that the text starts with, of those with equal texts the first, or NULL. */
const struct pd_added *pd_added_at(const struct pd_tokenizer *t, const char *text, size_t bytes, bool normalized);

/* The character of GPT-2's alphabet that stands for a byte: below 0x200; and the byte of such a character, or
 * -1. */
int32_t pd_byte_character(unsigned char byte);
int pd_character_byte(int32_t point);

/* The text after the normalizer: malloc'd, *bytes long without the zero behind it. */
char *pd_normalize(const struct pd_tokenizer *t, const char *text, size_t *bytes);
/* The text with every `from` replaced; the same. */
char *pd_replaced(const struct pd_replacement *r, const char *text, size_t *bytes);

#endif
