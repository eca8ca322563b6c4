/* The parts of a tokenizer: Hugging Face's steps, as in tokenizer.json. */
#ifndef PD_TOKENIZER_PARTS_H
#define PD_TOKENIZER_PARTS_H

#include "bert.h"
#include "bpe.h"
#include "split.h"
#include "tokenizer.h"
#include "unigram.h"

enum { PD_MAX_STEPS = 8, PD_MAX_PREFIX = 4 };

/* A replacement of text. */
struct pd_replacement {
  char *from, *to; /* from is not empty. NULL: prepend `to`; both NULL: normalize by normal.h, or strip */
  bool runs;       /* replace all of two and more adjacent `from` by one `to` */
  bool strip_left, strip_right; /* remove spaces from the ends of the text */
};

/* A token that is matched in the text before splitting. */
struct pd_added {
  char *content;    /* text of the token */
  char *normalized; /* normalized text, to match in normalized texts; otherwise NULL */
  int32_t id;
  bool left, right; /* the token includes spaces before, after it */
  bool special;     /* decodes to no text */
};

/* Added tokens sorted by the bytes of their texts, stably. */
struct pd_looked_for {
  struct pd_sought {
    const char *text;
    size_t bytes;
    int added; /* index of the added token */
  } * at;
  int n;
};

/* When to prepend the word separator to a text that does not begin with it. */
enum pd_prepend { PD_NEVER, PD_ONCE, PD_ALWAYS }; /* once: at the start of the whole text */

struct pd_tokenizer {
  bool bytes; /* tokens are bytes; all other members are ignored */
  struct pd_bpe bpe;
  struct pd_added *added;
  int n_added;
  struct pd_looked_for looked_for[2]; /* in raw texts, and in normalized texts */
  int32_t *added_of;                  /* by id: index of the first added token + 1; 0: none */
  struct pd_replacement normalizer[PD_MAX_STEPS];
  int n_normalizer;
  struct pd_bert bert;           /* instead of these steps */
  struct pd_wordpiece wordpiece; /* instead of merges */
  struct pd_unigram unigram;     /* instead of merges */
  struct pd_charsmap charsmap;   /* before these steps */

  /* Before merges: splitters, each within the words of the previous one. */
  struct pd_splitter splitter[PD_MAX_STEPS];
  int n_splitters;
  char *separator; /* Metaspace: text for a space, which begins a word; NULL: none */
  enum pd_prepend prepend;
  bool separates;    /* words are split before the separator */
  bool drops_spaces; /* Metaspace works on each text between spaces */
  bool byte_level;   /* bytes are characters of GPT-2's alphabet of 256 */
  bool space_first;  /* prepend a space to a text that does not begin with one */

  /* Decoding. */
  bool decode_byte_level, decode_fallback; /* tokens use that alphabet; "<0x0A>" is a byte */
  struct pd_replacement decoder[PD_MAX_STEPS];
  int n_decoder;
  bool fused;             /* the next members apply to the whole text */
  bool drop_space;        /* drop the first space */
  char *decode_separator; /* Metaspace: decodes to a space, or to nothing in the first token with drop_separator */
  bool drop_separator;
  char *decode_continuing; /* WordPiece: tokens without this prefix follow a space; NULL: no such decoder */
  bool tidies;             /* WordPiece: no spaces before punctuation marks */

  bool newlines_end_words; /* no word and no added token goes beyond a newline that a letter follows */

  int32_t prefix[PD_MAX_PREFIX]; /* tokens before every text */
  int n_prefix;
  int32_t suffix[PD_MAX_PREFIX]; /* tokens behind every whole text */
  int n_suffix;                  /* -1: they are not known */
  unsigned char *kind;           /* by id, of enum pd_kind */
};
enum pd_kind { PD_SPECIAL = 1, PD_ENDS = 2 };

struct pd_tokenizer *pd_tokenizer_new(void); /* {0}; close it also after failures */
/* Fill a tokenizer; merges need the vocabulary first. False after filling `why`, without the path. */
bool pd_tokenizer_parse_json(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes, char *why);
bool pd_tokenizer_parse_vocabulary(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes,
                                   char *why);
bool pd_tokenizer_parse_merges(struct pd_tokenizer *t, const char *text, size_t bytes, char *why);
/* Adds a token and takes ownership of its texts; `added` must have room. */
bool pd_tokenizer_add(struct pd_tokenizer *t, struct pd_added a, char *why);
bool pd_ends_words_at_newlines(const struct pd_tokenizer *t);
const struct pd_added *pd_added_of(const struct pd_tokenizer *t, int32_t id); /* or NULL */
/* Sets GPT-2's fixed parts, after its two files. */
bool pd_tokenizer_complete_gpt2(struct pd_tokenizer *t, char *why);
/* After parsing: finds special tokens and end-of-text tokens, and indexes added tokens. */
void pd_tokenizer_complete(struct pd_tokenizer *t);

/* The longest added token that the text starts with, the first of equal texts, or NULL. */
const struct pd_added *pd_added_at(const struct pd_tokenizer *t, const char *text, size_t bytes, bool normalized);

/* The character of a byte in GPT-2's alphabet, below 0x200; and the byte of a character, or -1. */
int32_t pd_byte_character(unsigned char byte);
int pd_character_byte(int32_t point);

/* The normalized text, malloc'd, of *bytes bytes and a terminating zero. */
char *pd_normalize(const struct pd_tokenizer *t, const char *text, size_t *bytes);
/* The text with every `from` replaced, in the same form. */
char *pd_replaced(const struct pd_replacement *r, const char *text, size_t *bytes);

#endif
