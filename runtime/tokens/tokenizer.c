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
    return pd_refuse(why, "its added token '%.100s' has number %d, which contradicts the vocabulary", a.content,
                     a.id);
  return true;
}

const struct pd_added *pd_added_of(const struct pd_tokenizer *t, int32_t id) {
  return t->added_of[id] ? &t->added[t->added_of[id] - 1] : NULL;
}

static int by_text(const void *a, const void *b) {
  const struct pd_sought *x = a, *y = b;
  int order = strcmp(x->text, y->text);
  return order ? order : (x->added > y->added) - (x->added < y->added);
}

/* A token that matches normalized texts does not match raw texts. */
static void look_for(struct pd_tokenizer *t, bool normalized) {
  struct pd_looked_for *l = &t->looked_for[normalized];
  l->at = pd_grown(NULL, sizeof *l->at * (size_t)t->n_added);
  for (int i = 0; i < t->n_added; i++) {
    const struct pd_added *a = &t->added[i];
    const char *text = normalized ? a->normalized : a->normalized ? NULL : a->content;
    if (text && *text) l->at[l->n++] = (struct pd_sought){text, strlen(text), i};
  }
  qsort(l->at, (size_t)l->n, sizeof *l->at, by_text);
}

/* The first text in [first, end) whose byte `at` is at least this one; earlier bytes are equal. */
static int first_from(const struct pd_looked_for *l, int first, int end, size_t at, int byte) {
  while (first < end) {
    int middle = first + (end - first) / 2;
    if ((unsigned char)l->at[middle].text[at] < byte)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

const struct pd_added *pd_added_at(const struct pd_tokenizer *t, const char *text, size_t bytes, bool normalized) {
  const struct pd_looked_for *l = &t->looked_for[normalized];
  const struct pd_added *found = NULL;
  int first = 0, end = l->n; /* those that begin with the `at` bytes so far */
  for (size_t at = 0; first < end; at++) {
    if (l->at[first].bytes == at && at > 0) found = &t->added[l->at[first].added];
    if (at == bytes) break;
    if (end - first == 1) { /* the rest at once */
      const struct pd_sought *s = &l->at[first];
      if (s->bytes > at && s->bytes <= bytes && !memcmp(s->text + at, text + at, s->bytes - at))
        found = &t->added[s->added];
      break;
    }
    const int byte = (unsigned char)text[at];
    if (!byte) break; /* no token holds it */
    first = first_from(l, first, end, at, byte);
    end = first_from(l, first, end, at, byte + 1);
  }
  return found;
}

/* Names of end-of-text tokens, those of whole texts first: neither tokenizer.json nor GPT-2's files mark them. */
static const char *const ends[] = {
    "<|endoftext|>", "</s>",       "<|end_of_text|>", /* GPT-2, Llama 1 and 2, Llama 3 */
    "<eos>",         "[EOS]",                         /* Gemma */
    "<|eot_id|>",    "<|im_end|>", "<end_of_turn>",   /* the end of a turn: Llama 3, Qwen, Gemma */
    "<|end|>",
};
enum { N_ENDS = sizeof ends / sizeof *ends };

static bool names_an_end(const char *name) {
  for (size_t i = 0; i < N_ENDS; i++)
    if (!strcmp(name, ends[i])) return true;
  return false;
}

void pd_tokenizer_complete(struct pd_tokenizer *t) {
  t->newlines_end_words = pd_ends_words_at_newlines(t);
  t->kind = memset(pd_grown(NULL, (size_t)t->bpe.n), 0, (size_t)t->bpe.n);
  const size_t room = sizeof *t->added_of * (size_t)t->bpe.n;
  t->added_of = memset(pd_grown(NULL, room), 0, room);
  look_for(t, false);
  look_for(t, true);
  for (int i = 0; i < t->n_added; i++) {
    const struct pd_added *a = &t->added[i];
    if (!t->added_of[a->id]) t->added_of[a->id] = i + 1;
    if (a->special) t->kind[a->id] |= PD_SPECIAL;
    if (names_an_end(a->content)) t->kind[a->id] |= PD_ENDS;
  }
}

bool pd_tokenizer_ends(const struct pd_tokenizer *t, int32_t token) {
  return t->kind && token >= 0 && token < t->bpe.n && (t->kind[token] & PD_ENDS);
}

const char *pd_tokenizer_added(const struct pd_tokenizer *t, int32_t token) {
  const struct pd_added *a = !t->bytes && token >= 0 && token < t->bpe.n ? pd_added_of(t, token) : NULL;
  return a ? a->content : NULL;
}

int64_t pd_tokenizer_size(const struct pd_tokenizer *t) {
  int64_t size = t->bytes ? 256 : 0;
  for (int64_t i = 0; i < t->bpe.n; i++)
    if (t->bpe.text[i]) size = i + 1;
  for (int i = 0; i < t->n_added; i++)
    if (t->added[i].id >= size) size = t->added[i].id + 1;
  return size;
}

int32_t pd_tokenizer_token(const struct pd_tokenizer *t, const char *text) {
  for (int i = 0; i < t->n_added; i++)
    if (!strcmp(t->added[i].content, text)) return t->added[i].id;
  return t->bytes ? -1 : pd_bpe_find(&t->bpe, text, strlen(text));
}

int32_t pd_tokenizer_end(const struct pd_tokenizer *t) {
  int32_t end = -1;
  for (size_t i = 0; i < N_ENDS && end < 0; i++) end = pd_tokenizer_token(t, ends[i]);
  return end;
}

int pd_tokenizer_suffix(const struct pd_tokenizer *t, const int32_t **tokens) {
  *tokens = t->suffix;
  return t->n_suffix;
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
  t->splitter[t->n_splitters++].pattern = pd_pattern_compile(pd_gpt2_expression, why);
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
  free(t->looked_for[0].at);
  free(t->looked_for[1].at);
  free(t->added_of);
  free_replacements(t->normalizer, t->n_normalizer);
  free_replacements(t->decoder, t->n_decoder);
  for (int i = 0; i < t->n_splitters; i++) pd_pattern_free(t->splitter[i].pattern);
  free(t->separator);
  free(t->decode_separator);
  free(t->decode_continuing);
  free(t->wordpiece.continuing);
  free(t->unigram.score);
  free(t->unigram.pieces);
  free(t->charsmap.unit);
  free(t->charsmap.blob);
  free(t->kind);
  free(t);
}
