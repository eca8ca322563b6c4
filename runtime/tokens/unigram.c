#include "unigram.h"

#include "unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pd_piece {
  const char *text;
  size_t bytes;
  int32_t id;
};

static int by_bytes(const void *a, const void *b) {
  const struct pd_piece *x = a, *y = b;
  return strcmp(x->text, y->text);
}

void pd_unigram_complete(struct pd_unigram *u, const struct pd_bpe *vocabulary) {
  u->pieces = pd_grown(NULL, sizeof *u->pieces * (size_t)(vocabulary->n + 1));
  for (int64_t i = 0; i < vocabulary->n; i++) {
    if (!vocabulary->text[i] || !vocabulary->bytes[i]) continue;
    u->pieces[u->n++] = (struct pd_piece){vocabulary->text[i], vocabulary->bytes[i], (int32_t)i};
    if (u->n == 1 || u->score[i] < u->least) u->least = u->score[i];
  }
  qsort(u->pieces, (size_t)u->n, sizeof *u->pieces, by_bytes);
}

/* The first piece in [first, end) whose byte `at` is at least this one; earlier bytes are equal. */
static int first_from(const struct pd_unigram *u, int first, int end, size_t at, int byte) {
  while (first < end) {
    const int middle = first + (end - first) / 2;
    if ((unsigned char)u->pieces[middle].text[at] < byte)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

/* The best path to a place of the text. */
struct node {
  double score;
  size_t start; /* of its last piece */
  int32_t id;   /* -1: no path yet */
};

static void reach(struct node *to, double score, size_t start, int32_t id) {
  if (to->id >= 0 && score <= to->score) return;
  *to = (struct node){score, start, id};
}

/* Extends the best path to `at` by all pieces there. Returns whether one is a single character. */
static bool extend(const struct pd_unigram *u, struct node *node, const char *text, size_t bytes, size_t at,
                   size_t character) {
  int first = 0, end = u->n;
  bool single = false;
  for (size_t n = 0; first < end; n++) {
    const struct pd_piece *p = &u->pieces[first];
    if (n && p->bytes == n) {
      reach(&node[at + n], u->score[p->id] + node[at].score, at, p->id);
      single |= n == character;
    }
    if (at + n == bytes || !text[at + n]) break; /* no piece has a zero byte */
    const int byte = (unsigned char)text[at + n];
    first = first_from(u, first, end, n, byte);
    end = first_from(u, first, end, n, byte + 1);
  }
  return single;
}

/* The tokens of a text that the model has no piece for. */
static void add_unknown(const struct pd_bpe *v, const char *text, size_t bytes, struct pd_tokens *to) {
  const int64_t first = to->n;
  const int32_t whole = pd_bpe_find(v, text, bytes);
  bool all = whole < 0 && v->byte_fallback;
  for (size_t i = 0; i < bytes && all; i++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned char)text[i]);
    const int32_t token = pd_bpe_find(v, name, 6);
    all = token >= 0;
    if (all) pd_tokens_add(to, token);
  }
  if (all) return;
  to->n = first;
  pd_tokens_add(to, whole >= 0 ? whole : v->unknown);
}

/* Adds the pieces of the path, neighbours without a piece as one. */
static void add_path(const struct pd_bpe *v, const struct node *node, const char *text, size_t bytes,
                     struct pd_tokens *to) {
  size_t *ends = pd_grown(NULL, sizeof *ends * (bytes + 1)), n = 0;
  for (size_t at = bytes; at; at = node[at].start) ends[n++] = at;
  while (n) {
    const size_t start = node[ends[n - 1]].start;
    size_t end = ends[--n];
    if (node[end].id != v->unknown) {
      pd_tokens_add(to, node[end].id);
      continue;
    }
    while (n && node[ends[n - 1]].id == v->unknown) end = ends[--n];
    add_unknown(v, text + start, end - start, to);
  }
  free(ends);
}

bool pd_unigram_encode(const struct pd_unigram *u, const struct pd_bpe *vocabulary, const char *text, size_t bytes,
                       struct pd_tokens *to, const char **missing) {
  const double PENALTY = 10;
  struct node *node = pd_grown(NULL, sizeof *node * (bytes + 1));
  for (size_t i = 0; i <= bytes; i++) node[i] = (struct node){.id = -1};
  bool ok = true;
  for (size_t at = 0, n; at < bytes && ok; at += n) {
    n = (size_t)pd_character_at(text + at, bytes - at).bytes;
    if (extend(u, node, text, bytes, at, n)) continue;
    ok = vocabulary->unknown >= 0;
    *missing = text + at;
    if (ok) reach(&node[at + n], u->least - PENALTY + node[at].score, at, vocabulary->unknown);
  }
  if (ok) add_path(vocabulary, node, text, bytes, to);
  free(node);
  return ok;
}
