/* Incremental decoding. A token's bytes are appended to the bytes of an incomplete character. */
#include "parts.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
enum { REPLACEMENT = sizeof replacement - 1 };

static void put(struct pd_decoding *d, size_t *n, const char *text, size_t bytes) {
  if (*n + bytes > d->room) {
    d->room = 2 * (*n + bytes) + 16;
    d->text = pd_grown(d->text, d->room);
  }
  memcpy(d->text + *n, text, bytes);
  *n += bytes;
}

/* Adds a byte of the text and appends complete characters to d->text, of *n bytes. */
static void add_byte(const struct pd_tokenizer *t, struct pd_decoding *d, size_t *n, unsigned char byte) {
  if (!d->started && t->drop_space) {
    d->started = true;
    if (byte == ' ') return;
  }
  d->held[d->n_held++] = byte;
  for (int length; d->n_held && (length = pd_utf8_length(d->held, (size_t)d->n_held)) != 0;) {
    if (length > 0)
      put(d, n, (const char *)d->held, (size_t)length);
    else
      put(d, n, replacement, REPLACEMENT);
    int used = length > 0 ? length : -length;
    d->n_held -= used;
    memmove(d->held, d->held + used, (size_t)d->n_held);
  }
}

/* "<0x0A>": its byte, otherwise -1. */
static int fallback_byte(const char *text, size_t bytes) {
  if (bytes != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
  int byte = 0;
  for (int i = 3; i < 5; i++) {
    const char *digits = "0123456789ABCDEF", *digit = text[i] ? strchr(digits, text[i]) : NULL;
    if (!digit) return -1;
    byte = byte * 16 + (int)(digit - digits);
  }
  return byte;
}

/* Decodes a token in GPT-2's alphabet; a token with another character is plain text. */
static void add_written(const struct pd_tokenizer *t, struct pd_decoding *d, size_t *n, const char *text,
                        size_t bytes) {
  bool all = true;
  struct pd_character c;
  for (size_t i = 0; i < bytes && all; i += (size_t)c.bytes) {
    c = pd_character_at(text + i, bytes - i);
    all = pd_character_byte(c.point) >= 0;
  }
  for (size_t i = 0; i < bytes; i += all ? (size_t)c.bytes : 1) {
    c = pd_character_at(text + i, bytes - i);
    add_byte(t, d, n, all ? (unsigned char)pd_character_byte(c.point) : (unsigned char)text[i]);
  }
}

/* Decodes a token by the decoder's steps. */
static void add_replaced(const struct pd_tokenizer *t, struct pd_decoding *d, size_t *n, const char *text,
                         size_t bytes) {
  char *now = pd_grown(NULL, bytes);
  memcpy(now, text, bytes);
  for (int i = 0; i <= t->n_decoder; i++) {
    struct pd_replacement separator = {.from = t->decode_separator,
                                       .to = !d->started && t->drop_separator ? "" : " "};
    if (i == t->n_decoder && !t->decode_separator) break;
    char *next = pd_replaced(i < t->n_decoder ? &t->decoder[i] : &separator, now, &bytes);
    free(now);
    now = next;
  }
  int byte = t->decode_fallback ? fallback_byte(now, bytes) : -1;
  if (byte >= 0)
    add_byte(t, d, n, (unsigned char)byte);
  else
    for (size_t i = 0; i < bytes; i++) add_byte(t, d, n, (unsigned char)now[i]);
  if (t->decode_separator) d->started = true;
  free(now);
}

/* Decodes a token of WordPiece: behind a space, unless it continues a word. */
static void add_piece(const struct pd_tokenizer *t, struct pd_decoding *d, size_t *n, const char *text) {
  static const char *const tidy[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  const size_t prefix = strlen(t->decode_continuing);
  const bool continues = d->started && !strncmp(text, t->decode_continuing, prefix);
  size_t bytes = strlen(text) + 1;
  char *now = pd_grown(NULL, bytes + 1);
  strcpy(now, d->started && !continues ? " " : "");
  strcat(now, continues ? text + prefix : text);
  bytes = strlen(now);
  for (size_t i = 0; i < sizeof tidy / sizeof *tidy && t->tidies; i++) {
    char *next =
        pd_replaced(&(struct pd_replacement){.from = (char *)tidy[i][0], .to = (char *)tidy[i][1]}, now, &bytes);
    free(now);
    now = next;
  }
  for (size_t i = 0; i < bytes; i++) add_byte(t, d, n, (unsigned char)now[i]);
  d->started = true;
  free(now);
}

size_t pd_tokenizer_decode(const struct pd_tokenizer *t, struct pd_decoding *d, int32_t token, const char **text) {
  size_t n = 0;
  if (t->bytes) {
    if (token >= 0 && token < 256) add_byte(t, d, &n, (unsigned char)token);
  } else if (token >= 0 && token < t->bpe.n && !(t->kind[token] & PD_SPECIAL)) {
    const struct pd_added *added = t->bpe.text[token] ? NULL : pd_added_of(t, token);
    const char *content = !added ? NULL : added->normalized ? added->normalized : added->content;
    const char *written = added ? content : t->bpe.text[token];
    if (written && t->decode_continuing)
      add_piece(t, d, &n, written);
    else if (written && t->decode_byte_level)
      add_written(t, d, &n, written, strlen(written));
    else if (written)
      add_replaced(t, d, &n, written, strlen(written));
  }
  *text = d->text ? d->text : "";
  return n;
}

size_t pd_tokenizer_decode_end(struct pd_decoding *d, const char **text) {
  size_t n = d->n_held ? REPLACEMENT : 0;
  free(d->text);
  *d = (struct pd_decoding){0};
  *text = replacement;
  return n;
}
