/* The text of drawn tokens, and texts of --stop in it. */
#define _GNU_SOURCE /* memmem */
#include "generate/internal.h"

#include <string.h>

static void append(struct pd_request *r, const char *text, size_t bytes) {
  if (r->bytes + bytes > r->room) {
    r->room = 2 * (r->bytes + bytes) + 64;
    r->text = pd_own(r->text, r->room);
  }
  if (bytes) memcpy(r->text + r->bytes, text, bytes);
  r->bytes += bytes;
}

/* The earliest text of --stop that ends after `before` bytes; NULL: none. */
static const char *find_stop(const struct pd_request *r, size_t before) {
  const char *first = NULL;
  for (int i = 0; i < pd_options.n_stop_texts; i++) {
    const char *stop = pd_options.stop_texts[i];
    size_t n = strlen(stop), from = before >= n ? before - n + 1 : 0;
    const char *found = from < r->bytes ? memmem(r->text + from, r->bytes - from, stop, n) : NULL;
    if (found && (!first || found < first)) first = found;
  }
  return first;
}

static bool add(struct pd_request *r, const char *text, size_t bytes) {
  size_t before = r->bytes;
  append(r, text, bytes);
  const char *stop = bytes ? find_stop(r, before) : NULL;
  if (stop) r->bytes = (size_t)(stop - r->text);
  return r->cut = stop != NULL;
}

bool pd_text_add(struct pd_request *r) {
  const char *text;
  if (!pd_tokenizer) return false;
  if (r->n_known == r->n_prompt + 1 && !r->source) /* the text of a token may depend on earlier tokens */
    for (int64_t i = 0; i < r->n_prompt; i++) pd_tokenizer_decode(pd_tokenizer, &r->decoding, r->tokens[i], &text);
  size_t bytes = pd_tokenizer_decode(pd_tokenizer, &r->decoding, r->tokens[r->n_known - 1], &text);
  return add(r, text, bytes);
}

void pd_text_end(struct pd_request *r) {
  const char *text;
  if (!pd_tokenizer) return;
  size_t bytes = pd_tokenizer_decode_end(&r->decoding, &text);
  if (!r->cut) append(r, text, bytes);
}

size_t pd_text_sure(const struct pd_request *r) {
  size_t most = 0;
  if (r->end != PD_OPEN) return r->bytes;
  for (int i = 0; i < pd_options.n_stop_texts; i++) {
    const char *stop = pd_options.stop_texts[i];
    size_t n = strlen(stop) - 1;
    for (n = n < r->bytes ? n : r->bytes; n > most; n--)
      if (!memcmp(r->text + r->bytes - n, stop, n)) most = n;
  }
  return r->bytes - most;
}
