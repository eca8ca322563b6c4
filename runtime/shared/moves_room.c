#include "shared/moves_room.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

void pd_fill_start(struct pd_fill *f, int64_t steps, void *(*take)(size_t bytes)) {
  *f = (struct pd_fill){.steps = steps, .leaves = 1};
  while (f->leaves < steps) f->leaves *= 2;
  f->added = take((size_t)(2 * f->leaves) * sizeof *f->added);
  f->most = take((size_t)(2 * f->leaves) * sizeof *f->most);
}

/* ---- a range within a batch; node `at` stands for leaves [low, high] ----------------------------- */

static void add(struct pd_fill *f, int64_t at, int64_t low, int64_t high, int64_t from, int64_t to,
                int64_t bytes) {
  if (to < low || high < from) return;
  if (from <= low && high <= to) {
    f->added[at] += bytes;
    f->most[at] += bytes;
    return;
  }
  int64_t middle = (low + high) / 2;
  add(f, 2 * at, low, middle, from, to, bytes);
  add(f, 2 * at + 1, middle + 1, high, from, to, bytes);
  f->most[at] = f->added[at] + larger(f->most[2 * at], f->most[2 * at + 1]);
}

static int64_t most(const struct pd_fill *f, int64_t at, int64_t low, int64_t high, int64_t from, int64_t to) {
  if (to < low || high < from) return 0;
  if (from <= low && high <= to) return f->most[at];
  int64_t middle = (low + high) / 2;
  return f->added[at] +
         larger(most(f, 2 * at, low, middle, from, to), most(f, 2 * at + 1, middle + 1, high, from, to));
}

/* The last or first step of the range with more than `bytes`; -1: none. */
static int64_t fuller(const struct pd_fill *f, int64_t at, int64_t low, int64_t high, int64_t from, int64_t to,
                      int64_t bytes, bool last) {
  if (to < low || high < from || f->most[at] <= bytes) return -1;
  if (low == high) return low;
  int64_t middle = (low + high) / 2, rest = bytes - f->added[at], found;
  if (last) {
    found = fuller(f, 2 * at + 1, middle + 1, high, from, to, rest, last);
    return found >= 0 ? found : fuller(f, 2 * at, low, middle, from, to, rest, last);
  }
  found = fuller(f, 2 * at, low, middle, from, to, rest, last);
  return found >= 0 ? found : fuller(f, 2 * at + 1, middle + 1, high, from, to, rest, last);
}

/* ---- the ring ------------------------------------------------------------------------------------ */

/* Splits the range at batch ends, each piece shifted by `by` into the batch; returns the number of pieces. */
struct within {
  int64_t from, to, by;
};

static int split(const struct pd_fill *f, int64_t from, int64_t to, struct within *w) {
  int n = 0;
  for (int64_t by = -1; by <= 1; by++) {
    int64_t begins = by * f->steps, ends = begins + f->steps - 1;
    int64_t low = larger(from, begins), high = to < ends ? to : ends;
    if (low <= high) w[n++] = (struct within){low - begins, high - begins, begins};
  }
  return n;
}

void pd_fill_add(struct pd_fill *f, int64_t from, int64_t to, int64_t bytes) {
  struct within w[3];
  for (int i = split(f, from, to, w) - 1; i >= 0; i--) add(f, 1, 0, f->leaves - 1, w[i].from, w[i].to, bytes);
}

int64_t pd_fill_most(const struct pd_fill *f, int64_t from, int64_t to) {
  struct within w[3];
  int64_t found = 0;
  for (int i = split(f, from, to, w) - 1; i >= 0; i--)
    found = larger(found, most(f, 1, 0, f->leaves - 1, w[i].from, w[i].to));
  return found;
}

int64_t pd_fill_since(const struct pd_fill *f, int64_t from, int64_t to, int64_t bytes) {
  struct within w[3];
  for (int i = split(f, from, to, w) - 1; i >= 0; i--) {
    int64_t found = fuller(f, 1, 0, f->leaves - 1, w[i].from, w[i].to, bytes, true);
    if (found >= 0) return found + w[i].by + 1;
  }
  return from;
}

int64_t pd_fill_until(const struct pd_fill *f, int64_t from, int64_t to, int64_t bytes) {
  struct within w[3];
  int n = split(f, from, to, w);
  for (int i = 0; i < n; i++) {
    int64_t found = fuller(f, 1, 0, f->leaves - 1, w[i].from, w[i].to, bytes, false);
    if (found >= 0) return found + w[i].by;
  }
  return to + 1;
}
