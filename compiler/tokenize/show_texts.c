/* `pdc data --show` of texts: documents, tokens, lengths. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "tokenize/internal.h"

enum { SHOWN = 3, SHOWN_TOKENS = 300 };

typedef struct Documents {
  DataView *v;
  const struct pd_tokenizer *tokenizer;
  int64_t *length;       /* tokens of each document, malloc'd */
  int64_t n, room, open; /* documents; tokens of the one that goes on */
} Documents;

static bool add_document(Documents *d, int64_t tokens, char *why) {
  if (d->n == d->room) {
    d->room = d->room ? 2 * d->room : 1024;
    int64_t *more = realloc(d->length, sizeof *more * (size_t)d->room);
    if (!more)
      return pd_refuse(why, "no memory for the lengths of %lld documents", (long long)d->room);
    d->length = more;
  }
  d->length[d->n++] = tokens;
  return true;
}

static bool add_part(Documents *d, const Part *p, char *why) {
  DataView *v = d->v;
  if (p->n < 0)
    return pd_refuse(why, "%s", p->why);
  if (p->first && p->n > 0 && d->n < SHOWN) {
    const int64_t shown = p->n < SHOWN_TOKENS ? p->n : SHOWN_TOKENS;
    DataSample sample = {.row = d->n, .second = -1, .cut = shown < p->n || !p->last};
    decode_tokens(d->tokenizer, p->tokens, NULL, shown, &sample);
    push(&v->samples, sample);
  }
  v->text_tokens += p->n;
  v->bytes += (int64_t)p->bytes;
  d->open = (p->first ? 0 : d->open) + p->n;
  return !p->last || !d->open || add_document(d, d->open, why);
}

static void count_lengths(Documents *d) {
  DataView *v = d->v;
  v->rows = d->n;
  for (int64_t i = 0; i < d->n; i++)
    v->length = d->length[i] > v->length ? d->length[i] : v->length;
  v->least = v->length;
  v->most = v->length;
  for (int64_t i = 0; i < d->n; i++) {
    v->least = d->length[i] < v->least ? d->length[i] : v->least;
    v->bins[(d->length[i] - 1) * DATA_BINS / v->length]++;
  }
}

bool view_text(DataView *v, const char *path, const struct pd_tokenizer *t, char *why) {
  const TokenizeRequest request = {.files = &path, .n_files = 1};
  Documents d = {.v = v, .tokenizer = t};
  Batch *b = alloc(sizeof *b);
  Texts texts;
  bool good = texts_open(&texts, &request, t, why);
  v->kind = DATA_TEXT;
  do {
    good = good && texts_next(&texts, b, why);
#pragma omp parallel for schedule(dynamic) num_threads(omp_get_num_procs())
    for (int i = 0; i < b->n; i++)
      encode_document(t, NULL, &b->part[i]);
    for (int i = 0; i < b->n && good; i++)
      good = add_part(&d, &b->part[i], why);
    if (b->n == 0)
      break;
    batch_free(b);
  } while (good);
  batch_free(b);
  texts_close(&texts);
  if (good)
    count_lengths(&d);
  free(d.length);
  return good && (v->rows || pd_refuse(why, "'%s' holds no text", path));
}
