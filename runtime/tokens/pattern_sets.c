/* Sets of code points. Most pages are empty or full, and patterns share pages. */
#include "bpe.h"
#include "pattern_parts.h"

#include <stdlib.h>

enum { MOST_SETS = 128, MOST_PAGES = 8192, SLOTS = 2 * MOST_PAGES };

void pd_bits_add(uint64_t *bits, int32_t first, int32_t last) {
  for (int32_t p = first; p <= last;)
    if (!(p & 63) && p + 63 <= last) {
      bits[p >> 6] = ~(uint64_t)0;
      p += 64;
    } else {
      bits[p >> 6] |= (uint64_t)1 << (p & 63);
      p++;
    }
}

void pd_bits_add_categories(uint64_t *bits, uint32_t mask) {
  const struct pd_run_of_category *run;
  const size_t n = pd_runs_of_categories(&run);
  for (size_t i = 0; i < n; i++)
    if (mask >> run[i].category & 1)
      pd_bits_add(bits, run[i].first, (i + 1 < n ? run[i + 1].first : PD_POINTS) - 1);
}

void pd_bits_add_spaces(uint64_t *bits) {
  for (int32_t p = 0; p < 0x80; p++)
    if (pd_is_space(p)) pd_bits_add(bits, p, p);
  pd_bits_add_categories(bits, 1u << PD_ZS | 1u << PD_ZL | 1u << PD_ZP);
  pd_bits_add(bits, 0x85, 0x85);
}

/* The index of the page of these bits, which is added if it is new; -1: there are too many. */
static int page_of(struct pd_sets *s, const uint64_t *bits) {
  uint64_t hash = 0;
  for (int i = 0; i < 4; i++) hash = (hash ^ bits[i] ^ bits[i] >> 29) * 0x9E3779B97F4A7C15u;
  size_t at = (size_t)(hash >> 40) % SLOTS;
  for (; s->slot[at]; at = (at + 1) % SLOTS)
    if (!memcmp(s->page[s->slot[at] - 1].bits, bits, sizeof s->page->bits)) return s->slot[at] - 1;
  if (s->n_pages == MOST_PAGES) return -1;
  s->page = pd_grown(s->page, sizeof *s->page * (size_t)(s->n_pages + 1));
  memcpy(s->page[s->n_pages].bits, bits, sizeof s->page->bits);
  s->slot[at] = (uint16_t)(s->n_pages + 1);
  return s->n_pages++;
}

int pd_sets_add(struct pd_sets *s, const uint64_t *bits) {
  static const uint64_t none[4], all[4] = {~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0};
  if (!s->slot) {
    s->slot = memset(pd_grown(NULL, SLOTS * sizeof *s->slot), 0, SLOTS * sizeof *s->slot);
    page_of(s, none);
    page_of(s, all);
  }
  if (s->n == MOST_SETS) return -1;
  s->set = pd_grown(s->set, sizeof *s->set * (size_t)(s->n + 1));
  struct pd_set *set = &s->set[s->n];
  memcpy(set->ascii, bits, sizeof set->ascii);
  for (int i = 0; i < PD_POINTS / 256; i++) {
    const int page = page_of(s, bits + 4 * (ptrdiff_t)i);
    if (page < 0) return -1;
    set->page[i] = (uint16_t)page;
  }
  for (int i = 0; i < s->n; i++)
    if (!memcmp(&s->set[i], set, sizeof *set)) return i;
  return s->n++;
}

void pd_sets_free(struct pd_sets *s) {
  free(s->set);
  free(s->page);
  free(s->slot);
  *s = (struct pd_sets){0};
}
