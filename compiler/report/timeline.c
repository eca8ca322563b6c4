/* Actual or predicted work of ranks over time: waiting shares, and the JSON for the page. */
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[N_WORK] = {
    [WORK_FORWARD] = "forward",
    [WORK_BACKWARD] = "backward",
    [WORK_RECOMPUTE] = "recompute",
    [WORK_WEIGHTS] = "weights",
    [WORK_UPDATE] = "update",
    [WORK_VALIDATION] = "validation",
    [WORK_CHECKPOINT] = "checkpoint",
    [WORK_SEND] = "send",
    [WORK_RECEIVE] = "receive",
    [WORK_WAIT] = "wait",
    [WORK_DATA] = "data",
    [WORK_REDUCE] = "reduce",
    [WORK_EXCHANGE] = "exchange",
    [WORK_GATHER] = "gather",
};

const char *work_name(Work w) { return names[w]; }

int work_named(const char *name) {
  for (int i = 0; i < N_WORK; i++)
    if (!strcmp(names[i], name))
      return i;
  return -1;
}

/* ---- shares of a rank's time -------------------------------------------------------------------- */

typedef struct Share {
  double from, to;        /* seconds */
  double seconds[N_WORK]; /* computing time within from..to, by work */
  int64_t updates;
} Share;

static bool computes(Work w) { return w <= WORK_CHECKPOINT; }

/* The time between two update ends. With enough updates, excludes the first and last quarter of the run, in which
 * the pipeline fills and drains. */
static Share window(const Timeline *t, int rank) {
  Vec(double) ends = {0};
  Share s = {.from = INFINITY, .to = -INFINITY};
  for (int i = 0; i < t->bars.n; i++) {
    const Bar *b = &t->bars.at[i];
    if (b->rank != rank || !computes(b->work))
      continue;
    s.from = fmin(s.from, b->start);
    s.to = fmax(s.to, b->end);
    if (b->work == WORK_UPDATE)
      push(&ends, b->end);
  }
  int skip = ends.n / 4;
  if (ends.n > 1) {
    s.from = ends.at[skip];
    s.to = ends.at[ends.n - 1 - skip];
    s.updates = ends.n - 1 - 2 * skip;
  } else
    s.updates = ends.n;
  return s;
}

static Share share_of(const Timeline *t, int rank) {
  Share s = window(t, rank);
  for (int i = 0; i < t->bars.n; i++) {
    const Bar *b = &t->bars.at[i];
    double inside = fmin(b->end, s.to) - fmax(b->start, s.from);
    if (b->rank == rank && computes(b->work) && inside > 0)
      s.seconds[b->work] += inside;
  }
  return s;
}

static void add_share(const Share *s, Text *out) {
  double whole = s->to - s->from - s->seconds[WORK_VALIDATION] - s->seconds[WORK_CHECKPOINT], busy = 0;
  if (!(whole > 0)) {
    text_add(out, "null");
    return;
  }
  text_add(out, "{\"seconds\":%.9g,\"updates\":%lld", whole, (long long)s->updates);
  for (int w = 0; w <= WORK_UPDATE; w++) {
    text_add(out, ",\"%s\":%.6f", names[w], s->seconds[w] / whole);
    busy += s->seconds[w];
  }
  double bubble = 1 - busy / whole;
  text_add(out, ",\"bubble\":%.6f}", bubble > 0 ? bubble : 0);
}

/* ---- for the page --------------------------------------------------------------------------------- */

/* More bars slow a browser down; the shares above include all bars. */
enum { MOST_BARS = 150000 };

static void add_microseconds(Text *out, double seconds) { text_add(out, ",%.10g", round(seconds * 1e9) / 1e3); }

static int by_start(const void *a, const void *b) {
  const Bar *x = a, *y = b;
  return (x->start > y->start) - (x->start < y->start);
}

static void add_bars(const Timeline *t, int n, Text *out) {
  text_add(out,
           ",\"total\":%d,\"fields\":[\"rank\",\"work\",\"start\",\"length\",\"number\",\"version\","
           "\"chunk\",\"peer\",\"bytes\"],\"bars\":[",
           t->bars.n);
  for (int i = 0; i < n; i++) {
    const Bar *b = &t->bars.at[i];
    text_add(out, "%s%d,%d", i ? "," : "", b->rank, b->work);
    add_microseconds(out, b->start);
    add_microseconds(out, b->end - b->start);
    text_add(out, ",%lld,%lld,%d,%d,%.0f", (long long)b->number, (long long)b->version, b->chunk, b->peer,
             b->bytes);
  }
  text_add(out, "]");
}

static void add_arrows(const Timeline *t, double until, Text *out) {
  const char *between = "";
  text_add(out, ",\"arrows\":[");
  for (int i = 0; i < t->arrows.n; i++) {
    const Arrow *a = &t->arrows.at[i];
    if (a->to < 0 || a->sent > until)
      continue;
    text_add(out, "%s%d", between, a->from);
    add_microseconds(out, a->sent);
    text_add(out, ",%d", a->to);
    add_microseconds(out, a->received);
    between = ",";
  }
  text_add(out, "]");
}

/* A copy with only the bars in the time range to draw. */
static Timeline within(const Timeline *t) {
  Timeline part = *t;
  part.bars.at = alloc((size_t)(t->bars.n + 1) * sizeof *t->bars.at);
  part.bars.n = 0;
  for (int i = 0; i < t->bars.n; i++) {
    const Bar *b = &t->bars.at[i];
    if (t->from >= t->to || (b->end > t->from && b->start < t->to))
      part.bars.at[part.bars.n++] = *b;
  }
  return part;
}

void timeline_json(const Timeline *t, Text *out) {
  text_add(out, "{\"ranks\":[");
  for (int i = 0; i < t->ranks; i++) {
    text_add(out, i ? "," : "");
    json_string(out, t->name[i]);
  }
  text_add(out, "],\"works\":[");
  for (int w = 0; w < N_WORK; w++)
    text_add(out, "%s\"%s\"", w ? "," : "", names[w]);
  text_add(out, "],\"dropped\":%lld,\"shares\":[", (long long)t->dropped);
  for (int i = 0; i < t->ranks; i++) {
    Share s = share_of(t, i);
    text_add(out, i ? "," : "");
    add_share(&s, out);
  }
  text_add(out, "]");
  Timeline sorted = within(t); /* the earliest bars of all ranks are shown */
  qsort(sorted.bars.at, (size_t)sorted.bars.n, sizeof *t->bars.at, by_start);
  int n = sorted.bars.n < MOST_BARS ? sorted.bars.n : MOST_BARS;
  add_bars(&sorted, n, out);
  add_arrows(t, n < sorted.bars.n ? sorted.bars.at[n].start : INFINITY, out);
  text_add(out, "}");
}
