#include "stage/repeats.h"

#include "base/table.h"

/* By piece: equal numbers for pieces with equal structure and equal relation to the previous piece. */
static int *number_pieces(Signer *s, const Pieces *p, Precision precision) {
  typedef struct Key {
    Signature alone;
    int64_t goes_on; /* the previous piece is in the same region */
  } Key;
  Table known = {.key_bytes = sizeof(Key)};
  int *number = alloc((size_t)p->n * sizeof *number), n = 0;
  for (int i = 0; i < p->n; i++) {
    PieceRange one = {i, i + 1};
    int first = p->at[i].first;
    Key key = {sign_parts(s, &one, 1, precision), i > 0 && signer_same_region(s, first - 1, first)};
    int *at = table_find(&known, &key);
    if (!at) {
      at = alloc(sizeof *at);
      *at = ++n;
      table_add(&known, &key, at);
    }
    number[i] = *at;
  }
  return number;
}

/* The longest run of pieces that equal the piece `period` later. */
static Repeats run_of(const int *number, int n, int period) {
  Repeats best = {.period = period};
  for (int i = 0, first = 0; i + period <= n; i++) {
    if (i + period < n && number[i] == number[i + period])
      continue;
    if (i > first && i + period - first > best.end - best.first)
      best.first = first, best.end = i + period;
    first = i + 1;
  }
  return best;
}

/* Whether each parameter of these pieces is shared by adjacent repeats at most. */
static bool params_stay(const Graph *g, const Pieces *p, const Repeats *r) {
  int *first = alloc((size_t)(g->params.n + 1) * sizeof *first),
      *last = alloc((size_t)(g->params.n + 1) * sizeof *last);
  for (int k = p->n - 1; k >= 0; k--)
    for (int i = 0; i < p->at[k].params.n; i++) {
      int param = p->at[k].params.at[i];
      last[param] = last[param] ? last[param] : k + 1;
      first[param] = k + 1;
    }
  for (int k = r->first; k < r->end; k++)
    for (int i = 0; i < p->at[k].params.n; i++)
      if (last[p->at[k].params.at[i]] - first[p->at[k].params.at[i]] > r->period)
        return false;
  return true;
}

static bool equal(Signature a, Signature b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }

/* Equal pieces may still share parameters differently; compares pairs of adjacent repeats. */
static bool neighbours_alike(Signer *s, const Repeats *r, Precision precision) {
  Signature first = {{0}};
  for (int at = r->first; at + 2 * r->period <= r->end; at += r->period) {
    PieceRange two = {at, at + 2 * r->period};
    Signature signature = sign_parts(s, &two, 1, precision);
    if (at > r->first && !equal(signature, first))
      return false;
    first = signature;
  }
  return true;
}

Repeats repeats_find(Signer *s, const Graph *g, const Pieces *p, Precision precision) {
  enum { LONGEST = 1024, LEAST = 3 };
  const int *number = number_pieces(s, p, precision);
  Repeats best = {0};
  for (int period = 1; period <= LONGEST && period * LEAST <= p->n; period++) {
    Repeats r = run_of(number, p->n, period);
    bool more = r.end - r.first - r.period > best.end - best.first - best.period;
    if (r.end - r.first >= LEAST * period && (best.period == 0 || more))
      best = r;
  }
  bool good = best.period > 0 && params_stay(g, p, &best) && neighbours_alike(s, &best, precision);
  return good ? best : (Repeats){0};
}

bool repeats_shorten(const Repeats *r, PieceRange part, int keep, PieceRange *shorter, int *count) {
  int first = part.first > r->first ? part.first : r->first, end = part.end < r->end ? part.end : r->end;
  *count = r->period ? (end - first) / r->period : 0;
  int by = (*count - keep) * r->period;
  *shorter = part;
  if (part.end <= r->end)
    shorter->end -= by;
  else if (part.first >= r->first)
    shorter->first += by;
  else
    return false;
  return *count > keep;
}
