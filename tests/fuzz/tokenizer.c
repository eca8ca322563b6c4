/* Input: a tokenizer.json, or GPT-2's vocab.json and merges.txt with a zero byte between them. Encodes a text and
 * the file itself, and decodes the tokens. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokens/parts.h"

enum { CLASSES = 1000, MOST = 2000 };

static bool parse(struct pd_tokenizer *t, const char *text, size_t size, char *why) {
  const char *zero = memchr(text, 0, size);
  if (!zero) return pd_tokenizer_parse_json(t, text, size, CLASSES, why);
  size_t n = (size_t)(zero - text);
  return pd_tokenizer_parse_vocabulary(t, text, n, CLASSES, why) &&
         pd_tokenizer_parse_merges(t, zero + 1, size - n - 1, why) && pd_tokenizer_complete_gpt2(t, why);
}

static void there_and_back(const struct pd_tokenizer *t, const char *text, size_t size) {
  char why[PD_WHY] = "";
  int32_t *tokens;
  int64_t n = pd_tokenizer_encode(t, text, size, &tokens, why);
  if (n < 0 && !*why) abort();
  struct pd_decoding d = {0};
  const char *part;
  for (int64_t i = 0; i < n; i++) {
    if (tokens[i] < 0 || tokens[i] >= CLASSES) abort();
    pd_tokenizer_decode(t, &d, tokens[i], &part);
  }
  pd_tokenizer_decode_end(&d, &part);
  free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] = "It's \xE2\x96\x81 a b ab 12345 \n\n <s> <|endoftext|> \xC3\xA9\xFF  ";
  char why[PD_WHY] = "", *copy = malloc(size + 1); /* a separate allocation detects reads past its end */
  memcpy(copy, data, size);
  struct pd_tokenizer *t = pd_tokenizer_new();
  if (parse(t, copy, size, why)) {
    pd_tokenizer_complete(t);
    there_and_back(t, text, sizeof text - 1);
    there_and_back(t, copy, size < MOST ? size : MOST);
  } else if (!*why)
    abort();
  pd_tokenizer_close(t);
  free(copy);
  return 0;
}
