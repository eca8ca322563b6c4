/* Tokenizers, independent of MPI and models. There are these kinds: bytes as tokens; GPT-2's vocab.json with
 * merges.txt (Radford et al. 2019); Hugging Face's tokenizer.json of byte-pair type (Sennrich et al. 2016) of WordPiece
 * (Wu et al. 2016) or of Unigram (Kudo 2018). The kinds with files give the same tokens as Hugging Face's library. */
#ifndef PD_TOKENIZER_H
#define PD_TOKENIZER_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pd_tokenizer;

/* Opens the tokenizer in n files: 0, bytes as tokens; 1, a tokenizer.json; 2, GPT-2's vocab.json and merges.txt in
 * either order. `classes`: number of tokens of the model. Files may have fewer, whose missing tokens have no text,
 * but not more; without files there must be at least 256. NULL after filling `why`, with the path. */
struct pd_tokenizer *pd_tokenizer_open(char *const *paths, int n, int64_t classes, char *why);
void pd_tokenizer_close(struct pd_tokenizer *t); /* accepts NULL */

/* Encodes `bytes` bytes of text to *tokens, which the caller frees, and returns their number. Bytes that are not
 * UTF-8 are separate characters, neither letters, numbers nor spaces. Names of special tokens in the text, such as
 * "<|endoftext|>", become these tokens. -1 after filling `why` if the vocabulary has no token for a part of the
 * text. */
int64_t pd_tokenizer_encode(const struct pd_tokenizer *t, const char *text, size_t bytes, int32_t **tokens,
                            char *why);

/* A place between two characters of a text. */
struct pd_mark {
  size_t at;            /* offset */
  int64_t ended, begun; /* number of tokens that end at or before it, and that begin before it */
};
/* As pd_tokenizer_encode, and sets `ended` and `begun` of n marks in ascending order. A token whose text is on both
 * sides of a mark has begun and has not ended. */
int64_t pd_tokenizer_encode_marked(const struct pd_tokenizer *t, const char *text, size_t bytes,
                                   struct pd_mark *marks, int n, int32_t **tokens, char *why);
/* The text of an added token, a name that is found in texts, such as "<|im_end|>"; NULL: another token. */
const char *pd_tokenizer_added(const struct pd_tokenizer *t, int32_t token);

/* The tokens before every text, such as Llama's "<s>"; returns their number, mostly 0 or 1. pd_tokenizer_encode
 * does not include them. */
int pd_tokenizer_prefix(const struct pd_tokenizer *t, const int32_t **tokens);
/* The tokens behind every whole text, such as T5's "</s>"; -1: the file's rule is not understood. A text to continue has
 * none. */
int pd_tokenizer_suffix(const struct pd_tokenizer *t, const int32_t **tokens);

/* One more than its largest token. */
int64_t pd_tokenizer_size(const struct pd_tokenizer *t);
/* The token whose text this is, as "<|endoftext|>"; -1: there is none. */
int32_t pd_tokenizer_token(const struct pd_tokenizer *t, const char *text);
/* The token that ends a text: the first known name among its special tokens, names of whole texts before those of turns; -1: none. */
int32_t pd_tokenizer_end(const struct pd_tokenizer *t);
/* Whether text[at] begins a part whose tokens do not depend on the text before it, and the text before does not depend on it.
 * Only places behind a newline between other characters are found. */
bool pd_tokenizer_parts(const struct pd_tokenizer *t, const char *text, size_t bytes, size_t at);

/* True for end-of-text tokens: "<|endoftext|>", "</s>" and further names (tokenizer.c). */
bool pd_tokenizer_ends(const struct pd_tokenizer *t, int32_t token);

/* State of incremental decoding; {0} before the first token. To show the continuation of a text, decode the tokens
 * of the text first: some tokenizers drop the space before the first word, and a character may cross the
 * boundary. */
struct pd_decoding {
  unsigned char held[4]; /* first bytes of an incomplete character */
  int n_held;
  bool started; /* after the first token, whose leading space may be dropped */
  char *text;   /* result of the last call */
  size_t room;
};

/* Decodes a token: its text is in *text until the next call; returns the number of bytes. The text has whole UTF-8
 * characters; the bytes of an incomplete character are kept for later tokens; invalid bytes become U+FFFD. Special
 * tokens and tokens without text add nothing. */
size_t pd_tokenizer_decode(const struct pd_tokenizer *t, struct pd_decoding *d, int32_t token, const char **text);
/* Ends the text: U+FFFD for an incomplete character, else nothing. Frees the memory of `d` and resets it to {0};
 * *text is a constant. */
size_t pd_tokenizer_decode_end(struct pd_decoding *d, const char **text);

#ifdef __cplusplus
}
#endif

#endif
