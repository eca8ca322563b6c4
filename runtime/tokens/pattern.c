/* Matching of patterns: items in order, with a step back where a later item fails. Where nothing later can fail, there
 * is none. */
#include "pattern_parts.h"

enum { NO_MATCH = -1 };

/* The character at a place, as a member of sets. */
static struct pd_character character_at(const char *text, size_t n, size_t at) {
  struct pd_character c = pd_character_at(text + at, n - at);
  if (c.point < 0) c.point = PD_NO_CHARACTER;
  return c;
}

static bool is_in(const struct pd_pattern *p, int set, const char *text, size_t n, size_t at) {
  const unsigned char byte = (unsigned char)text[at];
  return byte < 0x80 ? pd_set_has_ascii(&p->sets.set[set], byte)
                     : pd_set_has(&p->sets, set, character_at(text, n, at).point);
}

/* The end of a run of up to `most` characters of a set, and their number. */
static size_t run_end(const struct pd_pattern *p, int set, int most, const char *text, size_t n, size_t at,
                      int *count) {
  const struct pd_set *s = &p->sets.set[set];
  int k = 0;
  while (at < n && k < most) {
    const unsigned char byte = (unsigned char)text[at];
    if (byte < 0x80) {
      if (!pd_set_has_ascii(s, byte)) break;
      at++;
    } else {
      const struct pd_character c = character_at(text, n, at);
      if (!pd_set_has(&p->sets, set, c.point)) break;
      at += (size_t)c.bytes;
    }
    k++;
  }
  *count = k;
  return at;
}

/* The start of the character that ends at `at`, in a run from `from` on. */
static size_t step_back(const char *text, size_t from, size_t at) {
  for (int k = 4; k > 1; k--) {
    if (at - from < (size_t)k) continue;
    const struct pd_character c = pd_character_at(text + at - k, (size_t)k);
    if (c.point >= 0 && c.bytes == k) return at - (size_t)k;
  }
  return at - 1;
}

/* The end of the match of the items from `i` on, at text[at]. */
static ptrdiff_t match(const struct pd_pattern *p, int i, const char *text, size_t n, size_t at) {
  for (;;) {
    const struct pd_item *item = &p->item[i];
    switch (item->kind) {
    case PD_RUN: {
      int count;
      const size_t start = at;
      at = run_end(p, item->set, item->max, text, n, at, &count);
      if (count < item->min) return NO_MATCH;
      if (item->possessive || item[1].sure || count == item->min) {
        i++;
        break;
      }
      for (;; count--) {
        const ptrdiff_t end = match(p, i + 1, text, n, at);
        if (end != NO_MATCH || count == item->min) return end;
        at = step_back(text, start, at);
      }
    }
    case PD_EITHER: {
      const unsigned char byte = at < n ? (unsigned char)text[at] : 0x80;
      if (byte >= 0x80 || pd_can_begin(item + 1, byte)) {
        const ptrdiff_t end = match(p, i + 1, text, n, at);
        if (end != NO_MATCH) return end;
      }
      i += item->to;
      break;
    }
    case PD_JUMP: i += item->to; break;
    case PD_LOOK:
      if ((at < n && is_in(p, item->set, text, n, at)) == item->negated) return NO_MATCH;
      i++;
      break;
    case PD_DONE: return (ptrdiff_t)at;
    }
  }
}

/* The start of the next match at or behind `at`, and its end; n: none. A pattern that begins with a long run fails
 * within the run as it fails at its start. */
static size_t next_match(const struct pd_pattern *p, const char *text, size_t n, size_t at, size_t *end) {
  const struct pd_item *first = p->item;
  while (at < n) {
    const unsigned char byte = (unsigned char)text[at];
    const ptrdiff_t to = match(p, byte < 0x80 ? p->start[byte] : 0, text, n, at);
    if (to != NO_MATCH) {
      *end = (size_t)to;
      return at;
    }
    int count = 0;
    size_t behind = at;
    if (first->kind == PD_RUN && first->max == PD_UNLIMITED)
      behind = run_end(p, first->set, first->max, text, n, at, &count);
    at = count ? behind : at + (size_t)pd_character_at(text + at, n - at).bytes;
  }
  *end = n;
  return n;
}

size_t pd_pattern_word(const struct pd_pattern *p, enum pd_behavior behavior, const char *text, size_t n) {
  size_t end, next_end;
  const size_t start = next_match(p, text, n, 0, &end);
  if (behavior == PD_WITH_PREVIOUS) return end;
  if (start || behavior == PD_ISOLATED) return start ? start : end;
  size_t next = next_match(p, text, n, end, &next_end);
  if (behavior == PD_WITH_NEXT) return next == end ? end : next;
  while (next == end && next < n) {
    end = next_end;
    next = next_match(p, text, n, end, &next_end);
  }
  return end;
}

/* ---- properties ------------------------------------------------------------------------------ */

/* Whether the items from `i` on match every text that begins with this character; `used`: that has been matched. */
static bool surely_matches(const struct pd_pattern *p, int i, int32_t point, bool used) {
  const struct pd_item *item = &p->item[i];
  switch (item->kind) {
  case PD_DONE: return used;
  case PD_LOOK: return false;
  case PD_JUMP: return surely_matches(p, i + item->to, point, used);
  case PD_EITHER: return surely_matches(p, i + 1, point, used) || surely_matches(p, i + item->to, point, used);
  case PD_RUN: break;
  }
  const bool takes_more = item->possessive && !item[1].sure;
  const bool has = !used && pd_set_has(&p->sets, item->set, point);
  if (has && item->min <= 1 && !takes_more && surely_matches(p, i + 1, point, true)) return true;
  return !item->min && !(item->possessive && has) && !(used && takes_more) &&
         surely_matches(p, i + 1, point, used);
}

bool pd_pattern_covers(const struct pd_pattern *p) {
  for (int32_t point = 0; point < PD_POINTS; point++) {
    if (!surely_matches(p, 0, point, false)) return false;
    bool same = !(point & 63); /* of 64 characters */
    for (int s = 0; s < p->sets.n && same; s++) {
      const uint64_t bits = p->sets.page[p->sets.set[s].page[point >> 8]].bits[(point >> 6) & 3];
      same = !bits || !~bits;
    }
    if (same) point += 63;
  }
  return true;
}

bool pd_pattern_covers_newlines(const struct pd_pattern *p) { return surely_matches(p, 0, '\n', false); }

static bool has_letter(const struct pd_pattern *p, int set) {
  return p->sets.set[set].ascii[1] & 0x07FFFFFE07FFFFFEu;
}

/* Whether the first character of a match from `i` on can be a letter. */
static bool begins_with_letter(const struct pd_pattern *p, int i) {
  const struct pd_item *item = &p->item[i];
  switch (item->kind) {
  case PD_DONE: return false;
  case PD_LOOK: return begins_with_letter(p, i + 1);
  case PD_JUMP: return begins_with_letter(p, i + item->to);
  case PD_EITHER: return begins_with_letter(p, i + 1) || begins_with_letter(p, i + item->to);
  case PD_RUN: break;
  }
  return has_letter(p, item->set) || (!item->min && begins_with_letter(p, i + 1));
}

/* Whether a look ahead stands behind the first run of an alternative, which has no printed characters. It sees the
 * letter behind the newline only if the match begins with the newline, and then the match is the newline. */
static bool is_behind_spaces(const struct pd_pattern *p, int look) {
  const struct pd_item *run = &p->item[look - 1];
  int start = 0;
  if (!look || run->kind != PD_RUN) return false;
  const struct pd_set *s = &p->sets.set[run->set];
  for (int c = '!'; c < 127; c++)
    if (pd_set_has_ascii(s, (unsigned char)c)) return false;
  for (; start < look - 1 && p->item[start].kind == PD_EITHER; start += p->item[start].to)
    if (start + 1 == look - 1) return true;
  return start == look - 1;
}

bool pd_pattern_divides_lines(const struct pd_pattern *p) {
  for (int i = 0; i < p->n; i++) {
    const struct pd_item *item = &p->item[i];
    if (item->kind == PD_LOOK && !is_behind_spaces(p, i)) return false;
    if (item->kind != PD_RUN || !pd_set_has_ascii(&p->sets.set[item->set], '\n')) continue;
    if ((item->max > 1 && has_letter(p, item->set)) || begins_with_letter(p, i + 1)) return false;
  }
  return true;
}
