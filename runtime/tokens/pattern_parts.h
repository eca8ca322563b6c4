/* A compiled pattern: items in the order of the expression, with jumps ahead only. */
#ifndef PD_PATTERN_PARTS_H
#define PD_PATTERN_PARTS_H

#include "pattern.h"
#include "unicode.h"

#include <string.h>

/* A set of code points: a bit for each of ASCII, and a page of 256 bits for all others. */
struct pd_set {
  uint64_t ascii[2];
  uint16_t page[PD_POINTS / 256];
};
struct pd_page {
  uint64_t bits[4];
};
enum { PD_PAGE_NONE, PD_PAGE_ALL }; /* the first two pages */

struct pd_sets {
  struct pd_set *set;
  struct pd_page *page;
  uint16_t *slot; /* open addressing: number of a page + 1; 0: empty */
  int n, n_pages;
};

/* Sets while they are read: a bit for each code point. */
enum { PD_BITS = PD_POINTS / 64 };
void pd_bits_add(uint64_t *bits, int32_t first, int32_t last);
void pd_bits_add_categories(uint64_t *bits, uint32_t mask); /* 1 << enum pd_category */
void pd_bits_add_spaces(uint64_t *bits);
/* The index of the set; -1: there are too many. */
int pd_sets_add(struct pd_sets *s, const uint64_t *bits);
void pd_sets_free(struct pd_sets *s);

enum pd_item_kind {
  PD_RUN,    /* min to max characters of a set */
  PD_EITHER, /* the next item; if that fails, the one at `to` */
  PD_JUMP,   /* to `to` */
  PD_LOOK,   /* succeeds if the next character is in the set; negated: if it is not, or there is none */
  PD_DONE
};
enum { PD_UNLIMITED = 1 << 30 };

struct pd_item {
  enum pd_item_kind kind;
  int set, min, max, to; /* to: relative to the item */
  bool possessive, negated;
  bool sure;         /* matches every text from here on */
  uint64_t first[2]; /* ASCII characters with which a match from here on can begin */
};

struct pd_pattern {
  struct pd_sets sets;
  struct pd_item *item;
  int n;
  int16_t start[128]; /* the item from which on a match of a text can begin, by the text's first byte */
};

/* The code point of a byte that is not UTF-8: of no category but unassigned ones. */
enum { PD_NO_CHARACTER = PD_POINTS - 1 };

static inline bool pd_set_has(const struct pd_sets *s, int set, int32_t point) {
  const struct pd_page *page = &s->page[s->set[set].page[point >> 8]];
  return page->bits[(point >> 6) & 3] >> (point & 63) & 1;
}
static inline bool pd_can_begin(const struct pd_item *item, int byte) {
  return item->first[byte >> 6] >> (byte & 63) & 1;
}
static inline bool pd_set_has_ascii(const struct pd_set *set, unsigned char byte) {
  return set->ascii[byte >> 6] >> (byte & 63) & 1;
}

#endif
