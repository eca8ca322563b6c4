#include "tokenizer.h"

#include "parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- added tokens ---------------------------------------------------------------------------- */

bool pd_tokenizer_add(struct pd_tokenizer *t, struct pd_added a, char *why) {
  t->added[t->n_added++] = a;
  if (a.id >= t->bpe.n)
    return pd_refuse(why, "its token '%.100s' has the number %d, but the model has %lld tokens", a.content, a.id,
                     (long long)t->bpe.n);
  int32_t known = pd_bpe_find(&t->bpe, a.content, strlen(a.content));
  const char *text = t->bpe.text[a.id];
  if ((known >= 0 && known != a.id) || (text && strcmp(text, a.content)))
    return pd_refuse(why, "its added token '%.100s' has the number %d, but the vocabulary says otherwise",
                     a.content, a.id);
  return true;
}

const struct pd_added *pd_added_of(const struct pd_tokenizer *t, int32_t id) {
  for (int i = 0; i < t->n_added; i++)
    if (t->added[i].id == id) return &t->added[i];
  return NULL;
}

/* Neither tokenizer.json nor GPT-2's files say which token ends a text: these names are known. */
static bool names_an_end(const char *name) {
  static const char *const names[] = {
      "<|endoftext|>", "</s>",       "<|end_of_text|>", /* GPT-2, Llama 1 and 2, Llama 3 */
      "<|eot_id|>",    "<|im_end|>", "<end_of_turn>",   /* the end of a turn: Llama 3, Qwen, Gemma */
      "<eos>",         "<|end|>",    "[EOS]",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

void pd_tokenizer_complete(struct pd_tokenizer *t) {
  t->kind = memset(pd_grown(NULL, (size_t)t->bpe.n), 0, (size_t)t->bpe.n);
  for (int i = 0; i < t->n_added; i++) {
    const struct pd_added *a = &t->added[i];
    if (a->special) t->kind[a->id] |= PD_SPECIAL;
    if (names_an_end(a->content)) t->kind[a->id] |= PD_ENDS;
  }
}

bool pd_tokenizer_ends(const struct pd_tokenizer *t, int32_t token) {
  return t->kind && token >= 0 && token < t->bpe.n && (t->kind[token] & PD_ENDS);
}

int pd_tokenizer_prefix(const struct pd_tokenizer *t, const int32_t **tokens) {
  *tokens = t->prefix;
  return t->n_prefix;
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct pd_tokenizer *pd_tokenizer_new(void) {
  struct pd_tokenizer *t = pd_grown(NULL, sizeof *t);
  *t = (struct pd_tokenizer){.bpe.unknown = -1};
  return t;
}

bool pd_tokenizer_complete_gpt2(struct pd_tokenizer *t, char *why) {
  static const char end[] = "<|endoftext|>";
  t->byte_level = t->decode_byte_level = true;
  t->splitter[t->n_splitters++] = pd_gpt2_splitter;
  int32_t id = pd_bpe_find(&t->bpe, end, sizeof end - 1);
  t->added = pd_grown(NULL, sizeof *t->added);
  return id < 0 || pd_tokenizer_add(t, (struct pd_added){.content = strdup(end), .id = id, .special = true}, why);
}

static void free_replacements(struct pd_replacement *r, int n) {
  for (int i = 0; i < n; i++) {
    free(r[i].from);
    free(r[i].to);
  }
}

void pd_tokenizer_close(struct pd_tokenizer *t) {
  if (!t) return;
  pd_bpe_free(&t->bpe);
  for (int i = 0; i < t->n_added; i++) {
    free(t->added[i].content);
    free(t->added[i].normalized);
  }
  free(t->added);
  free_replacements(t->normalizer, t->n_normalizer);
  free_replacements(t->decoder, t->n_decoder);
  free(t->separator);
  free(t->decode_separator);
  free(t->kind);
  free(t);
}
