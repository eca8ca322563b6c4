/* Samples in rows of the same length. Position i of a row holds token i, and its target is token i + 1, or -100 if that
 * has no loss; so a row of n positions holds n + 1 tokens. Packed rows number their samples, the documents, and the
 * positions in each; the padding is a document of its own. */
#include <stdlib.h>
#include <string.h>

#include "tokenize/internal.h"

/* A packed sample goes to the open row that it fills best. With this many rows open, the fullest is written. */
enum { MOST_OPEN = 64, MOST_LENGTH = 1 << 22, IGNORED = -100 };

typedef struct Row {
  int32_t *tokens, *document; /* document: by token */
  char *loss;
  int64_t n;
  int32_t documents;
} Row;

struct Rows {
  const TokenizeRequest *request;
  Archive *archive;
  Column columns[MOST_ARRAYS];
  int32_t pad, end;
  Row row[MOST_OPEN]; /* in the order of opening */
  int open;
  int32_t *written[MOST_ARRAYS]; /* the row that is written */
  RowCounts counts;
  const char *longest; /* the place of the longest sample */
};

Rows *rows_open(const TokenizeRequest *request, int32_t pad, int32_t end, char *why) {
  if (request->length > MOST_LENGTH) {
    pd_refuse(why, "--length %lld: at most %d positions are supported", (long long)request->length, MOST_LENGTH);
    return NULL;
  }
  Rows *r = alloc(sizeof *r);
  const size_t n = (size_t)request->length + 1;
  *r = (Rows){.request = request, .pad = pad, .end = end};
  for (int i = 0; i < (request->pack ? MOST_OPEN : 1); i++) {
    r->row[i].tokens = alloc(n * sizeof(int32_t));
    r->row[i].document = alloc(n * sizeof(int32_t));
    r->row[i].loss = alloc(n);
  }
  static const char *const names[MOST_ARRAYS] = {"tokens.npy", "next.npy", "documents.npy", "positions.npy"};
  for (int i = 0; i < MOST_ARRAYS; i++) {
    r->written[i] = alloc(n * sizeof(int32_t));
    r->columns[i] = (Column){names[i], request->length};
  }
  r->archive = archive_open(request->output, r->columns, request->pack ? MOST_ARRAYS : DOCUMENTS, why);
  return r->archive ? r : NULL;
}

/* Writes row i and closes it. */
static bool write_row(Rows *r, int i, char *why) {
  const Row row = r->row[i];
  for (int64_t k = 0; k < r->request->length; k++) {
    const bool counts = k + 1 < row.n && row.loss[k + 1];
    const int32_t document = k < row.n ? row.document[k] : row.documents;
    const bool same = k > 0 && r->written[DOCUMENTS][k - 1] == document;
    r->written[TOKENS][k] = k < row.n ? row.tokens[k] : r->pad;
    r->written[NEXT][k] = counts ? row.tokens[k + 1] : IGNORED;
    r->written[DOCUMENTS][k] = document;
    r->written[POSITIONS][k] = same ? r->written[POSITIONS][k - 1] + 1 : 0;
    r->counts.tokens += k < row.n;
    r->counts.counted += counts;
  }
  r->counts.rows++;
  memmove(&r->row[i], &r->row[i + 1], sizeof row * (size_t)(r->open - i - 1));
  r->row[--r->open] = (Row){row.tokens, row.document, row.loss, 0, 0};
  return archive_add(r->archive, (const int32_t *const *)r->written, why);
}

/* The open row with the least room for n tokens, or a new one. */
static bool find_row(Rows *r, int64_t n, int *to, char *why) {
  const int64_t room = r->request->length + 1;
  int fullest = 0;
  *to = -1;
  for (int i = 0; i < r->open; i++) {
    if (r->row[i].n + n <= room && (*to < 0 || r->row[i].n > r->row[*to].n))
      *to = i;
    if (r->row[i].n > r->row[fullest].n)
      fullest = i;
  }
  if (*to < 0 && r->open == MOST_OPEN && !write_row(r, fullest, why))
    return false;
  if (*to < 0)
    *to = r->open++;
  return true;
}

/* The first token of a sample is never predicted. */
static void append(Row *row, const int32_t *tokens, const char *loss, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    row->document[row->n + i] = row->documents;
  row->documents++;
  memcpy(row->tokens + row->n, tokens, sizeof *tokens * (size_t)n);
  memcpy(row->loss + row->n, loss, (size_t)n);
  row->loss[row->n] = 0;
  row->n += n;
}

static bool has_loss(const Part *p, int64_t n) { return n > 1 && memchr(p->loss + 1, 1, (size_t)n - 1); }

/* Between samples stands the token that ends texts, unless the first one ends with it. */
static bool add_packed(Rows *r, const Part *p, int64_t n, char *why) {
  const char loss = r->request->loss_on == LOSS_ALL;
  const bool parts = r->end >= 0 && p->tokens[n - 1] != r->end && n < r->request->length + 1;
  int to;
  if (!find_row(r, n + parts, &to, why))
    return false;
  append(&r->row[to], p->tokens, p->loss, n);
  if (parts) {
    r->row[to].tokens[r->row[to].n] = r->end;
    r->row[to].document[r->row[to].n] = r->row[to].documents - 1;
    r->row[to].loss[r->row[to].n++] = loss;
  }
  return r->row[to].n <= r->request->length || write_row(r, to, why);
}

bool rows_add(Rows *r, const Part *p, char *why) {
  const int64_t room = r->request->length + 1;
  int64_t n = p->n;
  if (n == 0)
    return true;
  r->counts.samples++;
  if (p->beyond) {
    r->counts.beyond++;
    return true;
  }
  if (n > room) {
    r->counts.too_long++;
    if (n > r->counts.longest)
      r->longest = format("'%s': line %lld", p->path, (long long)p->line);
    if (n > r->counts.longest)
      r->counts.longest = n;
    if (r->request->too_long != LONG_TRUNCATE)
      return true;
    n = room;
  }
  if (!has_loss(p, n)) {
    r->counts.no_loss++;
    return true;
  }
  if (r->request->pack)
    return add_packed(r, p, n, why);
  append(&r->row[r->open++], p->tokens, p->loss, n);
  return write_row(r, 0, why);
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* Fills `why`: samples were read, and all were left out. */
static bool refuse_all(const Rows *r, char *why) {
  const RowCounts *c = &r->counts;
  const int64_t long_ones = r->request->too_long == LONG_SKIP ? c->too_long : 0;
  const char *beyond =
      c->beyond ? format("%lld of %lld sample%s left out, because the template exceeds a limit",
                         (long long)c->beyond, (long long)c->samples, c->samples == 1 ? " was" : "s were")
                : "";
  if (long_ones)
    return pd_refuse(
        why,
        "%lld of %lld sample%s %s longer than %lld tokens and left out, the longest has %lld tokens (%s)"
        "%s%s%s. help: raise --length %lld, or cut samples with --too-long truncate",
        (long long)long_ones, (long long)c->samples, plural(c->samples), long_ones == 1 ? "is" : "are",
        (long long)r->request->length + 1, (long long)c->longest, r->longest,
        c->no_loss ? "; all shorter samples lack tokens with loss" : "", c->beyond ? "; " : "", beyond,
        (long long)r->request->length);
  return pd_refuse(why, "no sample has a token with loss: %lld sample%s read%s%s", (long long)c->samples,
                   c->samples == 1 ? " was" : "s were", c->beyond ? "; " : "", beyond);
}

static bool check(const Rows *r, char *why) {
  const RowCounts *c = &r->counts;
  if (c->too_long && r->request->too_long == LONG_ERROR)
    return pd_refuse(
        why,
        "%lld of %lld sample%s %s longer than the %lld tokens that --length %lld takes; the longest has "
        "%lld (%s). help: --too-long skip leaves them out, --too-long truncate cuts them",
        (long long)c->too_long, (long long)c->samples, plural(c->samples), c->too_long == 1 ? "is" : "are",
        (long long)r->request->length + 1, (long long)r->request->length, (long long)c->longest, r->longest);
  if (c->rows)
    return true;
  return c->samples ? refuse_all(r, why) : pd_refuse(why, "the files hold no samples");
}

bool rows_close(Rows *r, bool good, RowCounts *counts, char *why) {
  while (good && r->open)
    good = write_row(r, 0, why);
  good = good && check(r, why);
  *counts = r->counts;
  return archive_close(r->archive, good, why) && good;
}
