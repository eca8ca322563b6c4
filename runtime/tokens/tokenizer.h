/* Text to a model's tokens and back. No MPI and no model here: files, bytes and numbers. Three kinds are known:
 * bytes as tokens; GPT-2's vocab.json with merges.txt (Radford et al. 2019); and Hugging Face's tokenizer.json of
 * byte-pair type (Sennrich et al. 2016). The latter two give the tokens that Hugging Face's library gives. */
#ifndef PD_TOKENIZER_H
#define PD_TOKENIZER_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pd_tokenizer;

/* The tokenizer in these n files: 0, tokens are bytes; 1, a tokenizer.json; 2, GPT-2's vocab.json and merges.txt
 * in either order. `classes`: how many tokens the model has; files with more are refused, fewer are fine (the
 * rest has no text), and without files there must be at least 256. NULL after filling `why`, with the file's
 * name. */
struct pd_tokenizer *pd_tokenizer_open(char *const *paths, int n, int64_t classes, char *why);
void pd_tokenizer_close(struct pd_tokenizer *t); /* NULL is fine */

/* The tokens of `bytes` bytes of text in *tokens, which the caller frees. Text need not be UTF-8: a byte that
 * belongs to no character is one of its own, neither letter, number nor space. Names of special tokens in the text
 * ("<|endoftext|>") are these tokens. How many; -1 after filling `why` when the vocabulary has no token for a part
 * of the text. */
int64_t pd_tokenizer_encode(const struct pd_tokenizer *t, const char *text, size_t bytes, int32_t **tokens,
                            char *why);

/* What the tokenizer puts before every text, as Llama's "<s>": how many tokens (mostly 0 or 1), and which. They
 * are not among those that pd_tokenizer_encode gives. */
int pd_tokenizer_prefix(const struct pd_tokenizer *t, const int32_t **tokens);

/* One more than its largest token. */
int64_t pd_tokenizer_size(const struct pd_tokenizer *t);
/* The token whose text this is, as "<|endoftext|>"; -1: there is none. */
int32_t pd_tokenizer_token(const struct pd_tokenizer *t, const char *text);
/* The token that ends a text: the first known name among its special tokens, names of whole texts before those of turns; -1: none. */
int32_t pd_tokenizer_end(const struct pd_tokenizer *t);
/* Whether text[at] begins a part whose tokens do not depend on the text before it, and the text before does not depend on it.
 * Only places behind a newline between other characters are found. */
bool pd_tokenizer_parts(const struct pd_tokenizer *t, const char *text, size_t bytes, size_t at);

/* Whether generating ends at this token: "<|endoftext|>", "</s>" and others known by name (tokenizer.c). */
bool pd_tokenizer_ends(const struct pd_tokenizer *t, int32_t token);

/* A text that grows token by token; {0} before the first one. Who shows what continues a text decodes the tokens
 * of that text first: some tokenizers drop the space before a text's first word, and a character may begin
 * there. */
struct pd_decoding {
  unsigned char held[4]; /* the beginning of a character whose other bytes are to come */
  int n_held;
  bool started; /* something was decoded: the space that stands for the text's beginning was dropped */
  char *text;   /* what the last call gave */
  size_t room;
};

/* The text that this token adds, in *text until the next call: only whole characters of UTF-8, what is missing
 * comes with later tokens; bytes that cannot become one are U+FFFD. Special tokens, and those that have no text,
 * add nothing. How many bytes. */
size_t pd_tokenizer_decode(const struct pd_tokenizer *t, struct pd_decoding *d, int32_t token, const char **text);
/* The end of the text: U+FFFD for a character that was begun, else nothing. Frees what `d` holds; it is {0} again,
 * and *text is a constant. */
size_t pd_tokenizer_decode_end(struct pd_decoding *d, const char **text);

#ifdef __cplusplus
}
#endif

#endif
