#include "bpe.h"

#include "../pd_runtime.h"
#include "unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *pd_grown(void *at, size_t bytes) {
  void *grown = realloc(at, bytes ? bytes : 1);
  if (!grown) pd_fail("out of memory: cannot get %zu bytes", bytes);
  return grown;
}

void pd_growing_add(struct pd_growing *t, const char *text, size_t bytes) {
  if (t->n + bytes + 1 > t->room) {
    t->room = 2 * (t->n + bytes) + 16;
    t->at = pd_grown(t->at, t->room);
  }
  if (bytes) memcpy(t->at + t->n, text, bytes);
  t->n += bytes;
  t->at[t->n] = 0;
}

void pd_tokens_add(struct pd_tokens *t, int32_t token) {
  if (t->n == t->room) {
    t->room = t->room ? 2 * t->room : 64;
    t->at = pd_grown(t->at, sizeof *t->at * (size_t)t->room);
  }
  t->at[t->n++] = token;
}

/* ---- tables: open addressing, at most half full ---------------------------------------------- */

struct pd_hashed {
  int32_t id; /* + 1; 0: empty */
};

struct pd_merge {
  int32_t left, right;
  int32_t rank, id; /* rank + 1; 0: empty */
};

static size_t room_for(size_t n) {
  size_t room = 16;
  while (room < 2 * n) room *= 2;
  return room;
}

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *text, size_t bytes) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
  return h ^ h >> 32;
}

static void *cleared(size_t n, size_t size) { return memset(pd_grown(NULL, n * size), 0, n * size); }

void pd_bpe_start(struct pd_bpe *b, int64_t n) {
  *b = (struct pd_bpe){.n = n, .unknown = -1, .token_room = room_for((size_t)n)};
  b->text = cleared((size_t)n, sizeof *b->text);
  b->bytes = cleared((size_t)n, sizeof *b->bytes);
  b->token = cleared(b->token_room, sizeof *b->token);
  pd_bpe_expect(b, 0);
}

void pd_bpe_expect(struct pd_bpe *b, size_t merges) {
  free(b->merge);
  b->merge_room = room_for(merges);
  b->merge = cleared(b->merge_room, sizeof *b->merge);
}

void pd_bpe_free(struct pd_bpe *b) {
  for (int64_t i = 0; i < b->n; i++) free(b->text[i]);
  free(b->text);
  free(b->bytes);
  free(b->token);
  free(b->merge);
  *b = (struct pd_bpe){.unknown = -1};
}

/* The table entry of this text, or its free place. */
static size_t place_of(const struct pd_bpe *b, const char *text, size_t bytes) {
  size_t i = hash(text, bytes) & (b->token_room - 1);
  for (; b->token[i].id; i = (i + 1) & (b->token_room - 1)) {
    int32_t id = b->token[i].id - 1;
    if (b->bytes[id] == bytes && !memcmp(b->text[id], text, bytes)) break;
  }
  return i;
}

bool pd_bpe_add_token(struct pd_bpe *b, const char *text, size_t bytes, int32_t id) {
  size_t i = place_of(b, text, bytes);
  if (b->text[id] || b->token[i].id) return false;
  b->text[id] = pd_grown(NULL, bytes + 1);
  memcpy(b->text[id], text, bytes);
  b->text[id][bytes] = 0;
  b->bytes[id] = bytes;
  b->token[i].id = id + 1;
  return true;
}

int32_t pd_bpe_find(const struct pd_bpe *b, const char *text, size_t bytes) {
  return b->token_room ? b->token[place_of(b, text, bytes)].id - 1 : -1;
}

static struct pd_merge *merge_of(const struct pd_bpe *b, int32_t left, int32_t right) {
  uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
  size_t i = (size_t)(h >> 32) & (b->merge_room - 1);
  while (b->merge[i].rank && (b->merge[i].left != left || b->merge[i].right != right))
    i = (i + 1) & (b->merge_room - 1);
  return &b->merge[i];
}

bool pd_bpe_add_merge(struct pd_bpe *b, const char *left, size_t left_bytes, const char *right,
                      size_t right_bytes) {
  char *both = pd_grown(NULL, left_bytes + right_bytes);
  memcpy(both, left, left_bytes);
  memcpy(both + left_bytes, right, right_bytes);
  int32_t l = pd_bpe_find(b, left, left_bytes), r = pd_bpe_find(b, right, right_bytes);
  int32_t id = pd_bpe_find(b, both, left_bytes + right_bytes);
  free(both);
  if (l < 0 || r < 0 || id < 0) return false;
  *merge_of(b, l, r) = (struct pd_merge){l, r, (int32_t)++b->n_merges, id};
  return true;
}

/* ---- a word ---------------------------------------------------------------------------------- */

struct symbol {
  int32_t id; /* -1: merged into the previous symbol */
  int64_t previous, next;
};

/* A candidate merge: the symbol at `at` and the next one. */
struct candidate {
  int32_t rank, id;
  int64_t at;
};

struct word {
  struct symbol *symbol;
  struct candidate *heap; /* top: lowest rank, first place of equals */
  int64_t n, n_heap;
};

static bool comes_before(const struct candidate *a, const struct candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(const struct pd_bpe *b, struct word *w, int64_t at) {
  if (at < 0 || w->symbol[at].next < 0) return;
  const struct pd_merge *m = merge_of(b, w->symbol[at].id, w->symbol[w->symbol[at].next].id);
  if (!m->rank) return;
  struct candidate c = {m->rank, m->id, at};
  int64_t i = w->n_heap++;
  for (; i > 0 && comes_before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = c;
}

static struct candidate pop(struct word *w) {
  struct candidate top = w->heap[0], c = w->heap[--w->n_heap];
  int64_t i = 0;
  for (int64_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
    if (child + 1 < w->n_heap && comes_before(&w->heap[child + 1], &w->heap[child])) child++;
    if (!comes_before(&w->heap[child], &c)) break;
    w->heap[i] = w->heap[child];
  }
  w->heap[i] = c;
  return top;
}

/* Merges symbols. A candidate is stale if the merge of its symbols has changed. */
static void merge_all(const struct pd_bpe *b, struct word *w) {
  for (int64_t i = 0; i + 1 < w->n; i++) push(b, w, i);
  while (w->n_heap) {
    struct candidate c = pop(w);
    struct symbol *s = &w->symbol[c.at];
    if (s->id < 0 || s->next < 0) continue;
    struct symbol *next = &w->symbol[s->next];
    if (merge_of(b, s->id, next->id)->rank != c.rank) continue;
    s->id = c.id;
    next->id = -1;
    s->next = next->next;
    if (s->next >= 0) w->symbol[s->next].previous = c.at;
    push(b, w, s->previous);
    push(b, w, c.at);
  }
}

/* Stores the tokens of a character's bytes in `id`; false if one is missing. */
static bool byte_tokens(const struct pd_bpe *b, const char *text, int bytes, int32_t *id) {
  char name[8];
  for (int i = 0; i < bytes; i++) {
    snprintf(name, sizeof name, "<0x%02X>", (unsigned char)text[i]);
    id[i] = pd_bpe_find(b, name, 6);
    if (id[i] < 0) return false;
  }
  return true;
}

/* Converts the word's characters to tokens, before merges; false with *missing at a character without a token. */
static bool first_symbols(const struct pd_bpe *b, const char *word, size_t bytes, struct pd_tokens *to,
                          const char **missing) {
  bool unknown_before = false;
  struct pd_character c;
  for (size_t at = 0; at < bytes; at += (size_t)c.bytes) {
    c = pd_character_at(word + at, bytes - at);
    int32_t id = pd_bpe_find(b, word + at, (size_t)c.bytes), each[4];
    if (id >= 0) {
      pd_tokens_add(to, id);
      unknown_before = false;
    } else if (b->byte_fallback && byte_tokens(b, word + at, c.bytes, each))
      for (int i = 0; i < c.bytes; i++) pd_tokens_add(to, each[i]);
    else if (b->unknown < 0) {
      *missing = word + at;
      return false;
    } else {
      if (!(unknown_before && b->fuse_unknown)) pd_tokens_add(to, b->unknown);
      unknown_before = true;
    }
  }
  return true;
}

bool pd_bpe_encode(const struct pd_bpe *b, const char *word, size_t bytes, struct pd_tokens *to,
                   const char **missing) {
  int32_t whole = b->whole_words ? pd_bpe_find(b, word, bytes) : -1;
  if (whole >= 0) {
    pd_tokens_add(to, whole);
    return true;
  }
  int64_t first = to->n;
  if (!first_symbols(b, word, bytes, to, missing)) return false;
  struct word w = {.n = to->n - first};
  if (w.n < 2) return true;
  w.symbol = pd_grown(NULL, sizeof *w.symbol * (size_t)w.n);
  w.heap = pd_grown(NULL, sizeof *w.heap * 3 * (size_t)w.n); /* a merge adds two and ends one symbol */
  for (int64_t i = 0; i < w.n; i++)
    w.symbol[i] = (struct symbol){to->at[first + i], i - 1, i + 1 < w.n ? i + 1 : -1};
  merge_all(b, &w);
  to->n = first;
  for (int64_t i = 0; i < w.n; i++)
    if (w.symbol[i].id >= 0) to->at[to->n++] = w.symbol[i].id;
  free(w.symbol);
  free(w.heap);
  return true;
}
