/* Normalization form C (Unicode 16, section 3.11): characters are decomposed, those of a combining class put in
 * the order of their classes, and composed again. */
#include "normal.h"

#include "bpe.h"
#include "unicode.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct pd_decomposition {
  int32_t point, first, second; /* second 0: none */
};
struct pd_combining {
  int32_t first, last, class;
};
#include "unicode_normal.h"

enum { N_DECOMPOSITIONS = sizeof decompositions / sizeof *decompositions };

/* Section 3.12: syllables of Hangul, each of a leading consonant, a vowel and perhaps a trailing consonant. */
enum { SYLLABLE = 0xAC00, LEAD = 0x1100, VOWEL = 0x1161, TRAIL = 0x11A7 };
enum { N_LEADS = 19, N_VOWELS = 21, N_TRAILS = 28, N_SYLLABLES = N_LEADS * N_VOWELS * N_TRAILS };

static bool is_below(int32_t x, int32_t first, int32_t n) { return x >= first && x < first + n; }

/* ---- tables ---------------------------------------------------------------------------------- */

static int by_point(const void *a, const void *b) {
  const struct pd_decomposition *x = a, *y = b;
  return (x->point > y->point) - (x->point < y->point);
}

static const struct pd_decomposition *decomposition_of(int32_t point) {
  struct pd_decomposition key = {.point = point};
  return bsearch(&key, decompositions, N_DECOMPOSITIONS, sizeof key, by_point);
}

static int by_parts(const void *a, const void *b) {
  const struct pd_decomposition *x = a, *y = b;
  return x->second != y->second ? (x->second > y->second) - (x->second < y->second)
                                : (x->first > y->first) - (x->first < y->first);
}

static bool is_excluded(int32_t point) {
  for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++)
    if (excluded[i] == point) return true;
  return false;
}

/* Decompositions by their parts, filled once: threads of several libraries' instances encode at the same time. */
static struct {
  pthread_once_t once;
  struct pd_decomposition pair[N_DECOMPOSITIONS];
  size_t n;
} compositions = {.once = PTHREAD_ONCE_INIT};

static void fill_compositions(void) {
  for (int i = 0; i < N_DECOMPOSITIONS; i++)
    if (decompositions[i].second && !is_excluded(decompositions[i].point))
      compositions.pair[compositions.n++] = decompositions[i];
  qsort(compositions.pair, compositions.n, sizeof *compositions.pair, by_parts);
}

/* The composition of two characters; -1: none. */
static int32_t composed_of(int32_t first, int32_t second) {
  if (is_below(first, LEAD, N_LEADS) && is_below(second, VOWEL, N_VOWELS))
    return SYLLABLE + ((first - LEAD) * N_VOWELS + second - VOWEL) * N_TRAILS;
  if (is_below(first, SYLLABLE, N_SYLLABLES) && (first - SYLLABLE) % N_TRAILS == 0 &&
      is_below(second, TRAIL + 1, N_TRAILS - 1))
    return first + second - TRAIL;
  pthread_once(&compositions.once, fill_compositions);
  struct pd_decomposition key = {.first = first, .second = second};
  const struct pd_decomposition *found = bsearch(&key, compositions.pair, compositions.n, sizeof key, by_parts);
  return found ? found->point : -1;
}

static int class_of(int32_t point) {
  size_t first = 0, end = sizeof combining / sizeof *combining;
  while (first < end) {
    size_t middle = (first + end) / 2;
    if (point > combining[middle].last)
      first = middle + 1;
    else if (point < combining[middle].first)
      end = middle;
    else
      return combining[middle].class;
  }
  return 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Code points; -1 - b for an invalid byte b. */
struct points {
  int32_t *at;
  size_t n, room;
};

static void add_point(struct points *p, int32_t point) {
  if (p->n == p->room) {
    p->room = 2 * p->room + 64;
    p->at = pd_grown(p->at, p->room * sizeof *p->at);
  }
  p->at[p->n++] = point;
}

static void add_decomposed(struct points *p, int32_t point) {
  const struct pd_decomposition *d = decomposition_of(point);
  if (is_below(point, SYLLABLE, N_SYLLABLES)) {
    int32_t i = point - SYLLABLE;
    add_point(p, LEAD + i / (N_VOWELS * N_TRAILS));
    add_point(p, VOWEL + i / N_TRAILS % N_VOWELS);
    if (i % N_TRAILS) add_point(p, TRAIL + i % N_TRAILS);
  } else if (d) {
    add_decomposed(p, d->first);
    if (d->second) add_decomposed(p, d->second);
  } else
    add_point(p, point);
}

struct mark {
  int32_t point;
  int class;
};

/* Stable sort by class. `other` has room for half of the characters. */
static void merge_sort(struct mark *mark, struct mark *other, size_t n) {
  const size_t half = n / 2;
  if (n < 2) return;
  merge_sort(mark, other, half);
  merge_sort(mark + half, other, n - half);
  if (mark[half - 1].class <= mark[half].class) return;
  memcpy(other, mark, half * sizeof *mark);
  for (size_t to = 0, first = 0, second = half; first < half; to++)
    mark[to] = second < n && mark[second].class < other[first].class ? mark[second++] : other[first++];
}

/* Sorts each run of classes above 0. */
static void put_in_order(struct points *p) {
  struct mark *mark = NULL;
  size_t room = 0;
  for (size_t first = 0, end; first < p->n; first = end + 1) {
    bool ordered = true;
    int before = 0, class;
    for (end = first; end < p->n && (class = class_of(p->at[end])) != 0; end++) {
      ordered &= before <= class;
      before = class;
    }
    const size_t n = end - first;
    if (ordered) continue;
    if (2 * n > room) mark = pd_grown(mark, (room = 4 * n) * sizeof *mark);
    for (size_t i = 0; i < n; i++) mark[i] = (struct mark){p->at[first + i], class_of(p->at[first + i])};
    merge_sort(mark, mark + n, n);
    for (size_t i = 0; i < n; i++) p->at[first + i] = mark[i].point;
  }
  free(mark);
}

/* Composes each character with the last preceding one of class 0, unless a character between them has class 0, its
 * class or a higher class. */
static void compose(struct points *p) {
  size_t n = 0, starter = p->n; /* none yet */
  int before = 0;               /* class of the last character kept after the starter */
  for (size_t i = 0; i < p->n; i++) {
    int32_t point = p->at[i], one = -1;
    int class = class_of(point);
    bool next = starter < n && n == starter + 1;
    if (starter < n && (next || (before && before < class))) one = composed_of(p->at[starter], point);
    if (one >= 0) {
      p->at[starter] = one;
      continue;
    }
    if (!class) starter = n;
    before = class;
    p->at[n++] = point;
  }
  p->n = n;
}

static char *written(const struct points *p, size_t *bytes) {
  char *to = pd_grown(NULL, 4 * p->n + 1);
  *bytes = 0;
  for (size_t i = 0; i < p->n; i++)
    if (p->at[i] < 0)
      to[(*bytes)++] = (char)(-1 - p->at[i]);
    else
      *bytes += (size_t)pd_utf8_write(p->at[i], to + *bytes);
  to[*bytes] = 0;
  return to;
}

static char *normalized(const char *text, size_t *bytes, bool composes) {
  struct points p = {0};
  for (size_t at = 0; at < *bytes;) {
    struct pd_character c = pd_character_at(text + at, *bytes - at);
    if (c.point < 0)
      add_point(&p, -1 - (unsigned char)text[at]);
    else
      add_decomposed(&p, c.point);
    at += (size_t)c.bytes;
  }
  put_in_order(&p);
  if (composes) compose(&p);
  char *to = written(&p, bytes);
  free(p.at);
  return to;
}

char *pd_composed(const char *text, size_t *bytes) { return normalized(text, bytes, true); }

char *pd_decomposed(const char *text, size_t *bytes) { return normalized(text, bytes, false); }
