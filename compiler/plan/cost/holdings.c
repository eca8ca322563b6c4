/* Sums over pieces count a parameter once per piece that uses it. The excess is the sum over pairs of adjacent
 * users within the stage. A table holds these sums by the start and end of pairs, which are few. */
#include "plan/cost/holdings.h"

#include "base/base.h"

typedef struct Pair {
  int first, last; /* pieces */
  Held held;
} Pair;
typedef Vec(Pair) PairList;

static Held plus(Held a, Held b, int sign) {
  return (Held){a.weights + sign * b.weights, a.frozen + sign * b.frozen, a.masters + sign * b.masters,
                a.moments + sign * b.moments, a.update + sign * b.update};
}

static Pairs pairs_make(int n, const PairList *list) {
  Pairs p = {.row = alloc((size_t)(n + 1) * sizeof(int)), .column = alloc((size_t)(n + 1) * sizeof(int))};
  bool *starts = alloc((size_t)n + 1), *ends = alloc((size_t)n + 1);
  for (int i = 0; i < list->n; i++)
    starts[list->at[i].first] = ends[list->at[i].last] = true;
  for (int i = 0; i < n; i++) {
    p.row[i + 1] = p.row[i] + starts[i];
    p.column[i + 1] = p.column[i] + ends[i];
  }
  int rows = p.row[n] + 1;
  p.columns = p.column[n] + 1;
  p.sum = alloc((size_t)rows * (size_t)p.columns * sizeof *p.sum);
  for (int i = 0; i < list->n; i++) {
    Held *at = &p.sum[p.row[list->at[i].first] * p.columns + p.column[list->at[i].last] + 1];
    *at = plus(*at, list->at[i].held, 1);
  }
  for (int r = rows - 1; r >= 0; r--)
    for (int c = 1; c < p.columns; c++) {
      Held *at = &p.sum[r * p.columns + c];
      *at = plus(*at, at[-1], 1);
      if (r + 1 < rows) {
        *at = plus(*at, at[p.columns], 1);
        *at = plus(*at, at[p.columns - 1], -1);
      }
    }
  return p;
}

const Holdings *holdings_make(int pieces, const Holding *holding, int n) {
  Holdings *h = alloc(sizeof *h);
  PairList repeats = {0}, whole = {0};
  h->sum = alloc((size_t)(pieces + 1) * sizeof *h->sum);
  h->own = alloc((size_t)(pieces + 1) * sizeof *h->own);
  for (int q = 0; q < n; q++) {
    const Holding *of = &holding[q];
    for (int k = 0; k < of->n; k++)
      h->sum[of->users[k] + 1] = plus(h->sum[of->users[k] + 1], of->held, 1);
    for (int k = 1; k < of->n; k++)
      push(&repeats, (Pair){of->users[k - 1], of->users[k], of->held});
    if (of->n == 1)
      h->own[of->users[0] + 1] += of->held.masters;
    if (of->n > 1)
      push(&whole, (Pair){of->users[0], of->users[of->n - 1], of->held});
  }
  for (int i = 0; i < pieces; i++) {
    h->sum[i + 1] = plus(h->sum[i + 1], h->sum[i], 1);
    h->own[i + 1] += h->own[i];
  }
  h->repeats = pairs_make(pieces, &repeats);
  h->whole = pairs_make(pieces, &whole);
  return h;
}
