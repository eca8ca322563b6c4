/* The windows of documents: each ends with its document, behind the token that ends it, or with the file. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

#define FIND(type)                                                    \
  do {                                                                \
    type block[BLOCK];                                                \
    int equal = 0;                                                    \
    memcpy(block, at, sizeof(type) * (size_t)n);                      \
    for (int64_t i = 0; i < n; i++) equal += block[i] == (type)token; \
    for (int64_t i = 0; equal && i < n; i++)                          \
      if (block[i] == (type)token) return i;                          \
  } while (0)

/* The first of n adjacent tokens, at most BLOCK, that is `token`; n: none. Counting first uses vector instructions. */
static int64_t find_in_block(const char *at, enum pd_element type, int64_t n, int64_t token) {
  switch (type) {
  case PD_TYPE_U8: FIND(uint8_t); break;
  case PD_TYPE_U16: FIND(uint16_t); break;
  case PD_TYPE_I64: FIND(int64_t); break;
  default: FIND(uint32_t);
  }
  return n;
}

/* The first row of [first, end) that is the token, or `end`. */
static int64_t find_token(const struct pd_array *a, int64_t first, int64_t end, int64_t token) {
  const int bytes = pd_element_bytes(a->type);
  if (bytes < 4 && token >> 8 * bytes) return end;
  while (first < end) {
    const int64_t n = end - first < BLOCK ? end - first : BLOCK;
    const int64_t i = find_in_block(a->map + a->first + first * a->stride, a->type, n, token);
    first += i;
    if (i < n) return first;
  }
  return end;
}

static bool add_windows(struct pd_documents *d, int64_t *room, int64_t first, int64_t end) {
  for (; first + 1 < end; first += d->context) {
    if (d->n == *room) {
      *room = *room ? 2 * *room : BLOCK;
      int64_t *more = realloc(d->starts, sizeof *d->starts * (size_t)*room);
      if (!more) return false;
      d->starts = more;
    }
    d->starts[d->n++] = first;
  }
  return true;
}

bool pd_find_documents(const struct pd_array *a, struct pd_documents *d, char *why) {
  int64_t room = 0;
  for (int64_t first = 0, end; first < a->rows; first = end) {
    end = find_token(a, first, a->rows, d->end);
    end += end < a->rows;
    d->documents++;
    if (end - first > 1) d->positions += end - first - 1;
    if (!add_windows(d, &room, first, end))
      return pd_refuse(why, "'%s': no memory for the %lld windows up to token %lld", a->path, (long long)d->n,
                       (long long)first);
  }
  return true;
}

int64_t pd_document_tokens(const struct pd_array *a, const struct pd_documents *d, int64_t start) {
  const int64_t most = a->rows - start < d->context + 1 ? a->rows - start : d->context + 1;
  const int64_t end = find_token(a, start, start + most, d->end) - start;
  return end < most ? end + 1 : most;
}
