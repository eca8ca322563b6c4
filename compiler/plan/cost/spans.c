/* Prefix sums over pieces, so that searches price a stage in constant time. */
#include "plan/cost/spans.h"

#include <math.h>

#include "base/base.h"
#include "schedule/program.h"

static int levels(int n) { return 32 - __builtin_clz((unsigned)n); }

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t *largest_work(const Costs *c) {
  int n = c->n, k = levels(n);
  int64_t *work = alloc((size_t)k * (size_t)n * sizeof *work);
  for (int i = 0; i < n; i++)
    work[i] = c->work[i];
  for (int level = 1; level < k; level++) {
    const int64_t *below = work + (size_t)(level - 1) * (size_t)n;
    for (int i = 0; i + (1 << level) <= n; i++)
      work[(size_t)level * (size_t)n + (size_t)i] = larger(below[i], below[i + (1 << (level - 1))]);
  }
  return work;
}

int64_t span_work(const Spans *s, int first, int end) {
  int level = levels(end - first) - 1;
  const int64_t *row = s->work + (size_t)level * (size_t)s->c->n;
  return larger(row[first], row[end - (1 << level)]);
}

Spans spans_make(const Costs *c) {
  int n = c->n, side = n + 1;
  Spans s = {.c = c,
             .compute = alloc((size_t)side * sizeof *s.compute),
             .forward = alloc((size_t)side * sizeof *s.forward),
             .products = alloc((size_t)side * sizeof *s.products),
             .saved = alloc((size_t)side * sizeof *s.saved),
             .gradients = alloc((size_t)side * sizeof *s.gradients),
             .inputs = alloc((size_t)side * sizeof *s.inputs),
             .deferred = alloc((size_t)side * sizeof *s.deferred),
             .missed = alloc((size_t)side * sizeof *s.missed),
             .missed_before = alloc((size_t)side * sizeof *s.missed_before),
             .missed_behind = alloc((size_t)side * sizeof *s.missed_behind),
             .work = largest_work(c)};
  s.lasting = c->lasting ? alloc((size_t)side * sizeof *s.lasting) : NULL;
  for (int i = 0; i < n && s.lasting; i++)
    s.lasting[i + 1] = s.lasting[i] + c->lasting[i];
  for (int i = 0; i < n; i++) {
    s.compute[i + 1] = s.compute[i] + c->forward[i] + c->backward[i];
    s.forward[i + 1] = s.forward[i] + c->forward[i];
    s.products[i + 1] = s.products[i] + c->products[i];
    s.saved[i + 1] = s.saved[i] + c->saved[i];
    s.gradients[i + 1] = s.gradients[i] + c->gradients[i];
    s.inputs[i + 1] = s.inputs[i] + c->inputs[i];
    s.deferred[i + 1] = s.deferred[i] + c->deferred[i];
  }
  return s;
}

/* ---- seconds ------------------------------------------------------------------------------------- */

double message_seconds(const Costs *c, int cut, const Link *link, double sharing) {
  int64_t most = larger(c->activations[cut], c->activation_gradients[cut]);
  return most > 0 ? link->latency + (double)most * link_byte(link, sharing) : 0;
}

/* Work of the receiving rank, unless messages overlap with work. Nothing crosses the ends of a model. */
static double copying(const Costs *c, const Link *link, double sharing, int64_t bytes) {
  return c->beside || !link ? 0 : link->latency + (double)bytes * link_byte(link, sharing);
}

double receive_seconds(const Costs *c, const Wiring *at, int first) {
  return c->receive[first] + (first > 0 ? copying(c, at->in, at->in_sharing, c->activations[first]) : 0);
}

double receive_gradient_seconds(const Costs *c, const Wiring *at, int end) {
  return c->receive_gradient[end] +
         (end < c->n ? copying(c, at->out, at->out_sharing, c->activation_gradients[end]) : 0);
}

double span_passage(const Spans *all, const Wiring *at, int first, int end, int recompute) {
  const Spans *s = spans_of(all, recompute);
  double t =
      span_compute(s, first, end) + receive_seconds(s->c, at, first) + receive_gradient_seconds(s->c, at, end);
  return repeats_all(recompute) ? t + s->forward[end] - s->forward[first] : t;
}

double span_update(const Spans *s, int first, int end) {
  const Costs *c = s->c;
  return holdings_update(c->holdings, first, end) + (double)holdings_shared(c->holdings, first, end) * c->exchange;
}

/* A link carries one overlapping message at a time. */
static double pace_of_links(const Costs *c, const Wiring *at, int first, int end) {
  double in = first > 0 && at->in ? message_seconds(c, first, at->in, at->in_sharing) - at->in->latency : 0;
  double out = end < c->n && at->out ? message_seconds(c, end, at->out, at->out_sharing) - at->out->latency : 0;
  return fmax(in, out);
}

static double reduce_seconds(const Spans *s, const Wiring *w, int first, int end) {
  return w->reduce_latency + (double)(s->gradients[end] - s->gradients[first]) * w->reduce;
}

SpanReduction span_reduction(const Spans *s, const Wiring *w, int first, int end, int64_t bucket) {
  const Costs *c = s->c;
  const double whole = reduce_seconds(s, w, first, end);
  if (!bucket || !c->beside || whole <= 0)
    return (SpanReduction){whole, 0};
  const int64_t least = larger(bucket, (s->gradients[end] - s->gradients[first]) / MOST_BUCKETS);
  double passed = 0, busy = 0, all = 0; /* backward pass and busy link up to here; sum of exchanges */
  int64_t bytes = 0;
  for (int i = end - 1; i >= first; i--) {
    passed += c->backward[i];
    bytes += c->gradients[i];
    if (bytes == 0 || (bytes < least && i > first))
      continue;
    const double seconds = w->reduce_latency + (double)bytes * w->reduce;
    busy = fmax(busy, passed) + seconds;
    all += seconds;
    bytes = 0;
  }
  return (SpanReduction){all, all - fmax(busy - passed, 0)};
}

double span_seconds(const Spans *s, const Copies *at, int first, int end, int recompute) {
  StageShare t = span_share(s, at, first, end, recompute);
  return fmax(t.work + t.finish, t.pace);
}

/* Lower bound of the exchange that the backward pass cannot hide. It does not decrease with more pieces. */
static double least_exposed(const Spans *s, const Copies *at, int first, int end, double reduce) {
  const double backward = span_compute(s, first, end) - (s->forward[end] - s->forward[first]);
  return at->buckets && s->c->beside ? fmax(0, reduce - backward * s->c->share) : reduce;
}

StageShare span_share(const Spans *all, const Copies *at, int first, int end, int recompute) {
  const Spans *s = spans_of(all, recompute);
  const Costs *c = s->c;
  const Wiring *w = &at->wiring;
  double passage = span_passage(all, w, first, end, recompute), update = span_update(s, first, end) * c->share;
  double reduce = reduce_seconds(s, w, first, end) * c->share;
  if (at->sharded) { /* lower bound: half of the messages carry sums, half updated parts */
    update /= at->replicas;
    reduce /= 2;
  }
  double pace = c->beside ? pace_of_links(c, w, first, end) : 0;
  StageShare t = {.work = passage / at->replicas};
  if (c->overlapped) {
    t.work = fmax(fmax(t.work + update, reduce), pace / at->replicas);
  } else {
    t.pace = pace / at->replicas;
    t.message = c->fill * pace;
    t.finish = update + least_exposed(s, at, first, end, reduce);
  }
  if (c->fill > 0) {
    double products = at->deferred > 0 ? s->products[end] - s->products[first] : 0;
    t.aside = products / at->replicas;
    const double repeated = repeats_all(recompute) ? s->forward[end] - s->forward[first] : 0;
    t.way = c->fill * (passage - products - repeated);
    if (c->beside && first > 0 && w->in)
      t.between = 2 * c->fill * message_seconds(c, first, w->in, w->in_sharing);
  }
  return t;
}

/* The least early end (StageEnd) of one second of work, divisible anywhere. Each stage begins when the next ones
 * end: e(n) = min over its share x of max(x / w, fill x + e(n - 1) (1 - x)), at equality. */
static double least_end(double fill, int stages, const int *replicas) {
  double end = 1 / (double)replicas[stages - 1];
  for (int i = stages - 2; i >= 0; i--)
    end /= 1 + replicas[i] * (end - fill);
  return end;
}

/* The same for the longest piece, which cannot be divided. */
static double least_end_of_piece(const Spans *s, int most_replicas) {
  double most = 0;
  for (int i = 0; i < s->c->n; i++) {
    double before = s->compute[i] - s->products[i];
    double own = span_compute(s, i, i + 1) - (s->products[i + 1] - s->products[i]);
    most = fmax(most, s->c->fill * before + own / most_replicas);
  }
  return most;
}

double spans_least_value(const Spans *s, int stages, const int *replicas, int chunks) {
  const int n = s->c->n;
  const double all = span_compute(s, 0, n), on_the_way = all - s->products[n];
  int ranks = 0, most = 0;
  for (int i = 0; i < stages; i++) {
    ranks += replicas[i];
    most = replicas[i] > most ? replicas[i] : most;
  }
  double way = chunks > 1 ? s->c->fill * chunks : least_end(s->c->fill, stages, replicas);
  return fmax(fmax(all / ranks, on_the_way * way), least_end_of_piece(s, most));
}

/* ---- bytes ----------------------------------------------------------------------------------------- */

/* Replicas send gradients from separate buffers, except the part that they reduce themselves. */
static int64_t gradient_bytes(const Copies *at, int64_t one_set) {
  int64_t sent = at->replicas > 1 ? at->exchanges * (one_set * (at->replicas - 1) / at->replicas) : 0;
  return one_set * at->accumulators + sent;
}

static int64_t parameter_bytes(const Costs *c, const Copies *at, int first, int end) {
  Held held = holdings_of(c->holdings, first, end);
  int64_t state = held.moments + (at->masters ? held.masters : 0);
  return held.weights * at->weights + held.frozen + (at->sharded ? state / at->replicas : state);
}

static int64_t message_bytes(const Costs *c, const Copies *at, int first, int end) {
  return c->activations[first] * at->received + c->activations[end] * at->sent +
         (c->activation_gradients[first] + c->activation_gradients[end]) * at->gradients;
}

/* The bytes that do not depend on recomputation, and those that do. */
static int64_t lasting_bytes(const Spans *s, const Copies *at, int first, int end) {
  int64_t b = at->extra + parameter_bytes(s->c, at, first, end) + message_bytes(s->c, at, first, end);
  b += gradient_bytes(at, s->gradients[end] - s->gradients[first]);
  b += (s->inputs[end] - s->inputs[first]) * at->inputs;
  return b + s->missed[end] - s->missed[first];
}

static int64_t passing_bytes(const Spans *all, const Copies *at, int first, int end, int recompute) {
  const Spans *s = spans_of(all, recompute);
  int64_t b = (s->saved[end] - s->saved[first]) * (repeats_all(recompute) ? 1 : at->saved);
  b += (s->deferred[end] - s->deferred[first]) * at->deferred;
  b += s->lasting ? s->lasting[end] - s->lasting[first] : 0;
  return b + span_work(s, first, end);
}

int64_t span_bytes(const Spans *all, const Copies *at, int first, int end, int recompute) {
  return lasting_bytes(all, at, first, end) + passing_bytes(all, at, first, end, recompute);
}

/* A stage and the bytes that recomputation may leave it. */
typedef struct Tight {
  const Spans *s;
  const Copies *at;
  int first, end;
  int64_t left;
} Tight;

static bool fits_left(const Tight *t, int recompute) {
  return passing_bytes(t->s, t->at, t->first, t->end, recompute) <= t->left;
}

/* The first level from `low` on with which the stage fits; false: the last one does not fit, whether or not another
 * does. *recompute: the answer of a stage nearby, where the search begins. */
static bool fit_level(const Tight *t, int low, bool whole, int *recompute) {
  const int most = t->s->n_levels - 1, near = level_of(*recompute);
  int high = near < low ? low : near > most ? most : near;
  if (!fits_left(t, recompute_at(most, whole)))
    return false;
  if (!fits_left(t, recompute_at(high, whole)))
    low = high + 1, high = most;
  else if (high > low && fits_left(t, recompute_at(high - 1, whole)))
    high--;
  else
    low = high;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (fits_left(t, recompute_at(middle, whole)))
      high = middle;
    else
      low = middle + 1;
  }
  *recompute = recompute_at(high, whole);
  return true;
}

bool span_fit_again(const Spans *s, const Copies *at, int first, int end, int64_t limit, int *recompute) {
  const bool layers = at->layers && s->n_levels > 0;
  const int low = layers && at->layers == LAYERS_MUST ? s->n_levels - 1 : 0;
  const Tight t = {s, at, first, end, limit - lasting_bytes(s, at, first, end)};
  if (layers && fit_level(&t, low, false, recompute))
    return true;
  if (!at->recompute_on)
    return false;
  if (layers && !fits_left(&t, REPEAT_ALL))
    return fit_level(&t, low, true, recompute);
  *recompute = REPEAT_ALL;
  return fits_left(&t, REPEAT_ALL);
}

bool span_fit(const Spans *s, const Copies *at, int first, int end, int64_t limit, int *recompute) {
  const bool must = at->layers == LAYERS_MUST && s->n_levels > 0;
  *recompute = SAVE_ALL;
  return (at->recompute_off && !must && span_bytes(s, at, first, end, SAVE_ALL) <= limit) ||
         span_fit_again(s, at, first, end, limit, recompute);
}

int span_smallest(const Spans *s, const Copies *at, int first, int end) {
  const bool layers = at->layers && s->n_levels > 0;
  const int most = s->n_levels - 1;
  const int ways[] = {SAVE_ALL, recompute_at(most, false), REPEAT_ALL, recompute_at(most, true)};
  const bool may[] = {at->recompute_off, layers, at->recompute_on, layers && at->recompute_on};
  int best = -1;
  for (int i = 0; i < 4; i++)
    if (may[i] && (best < 0 || span_bytes(s, at, first, end, ways[i]) < span_bytes(s, at, first, end, best)))
      best = ways[i];
  return best;
}

int64_t span_least_bytes(const Spans *s, const Copies *at, int first, int end, int64_t bytes) {
  int64_t missed = s->missed[end] - s->missed[first], least = s->missed_behind[end] - s->missed_before[first];
  return bytes - message_bytes(s->c, at, first, end) - missed + least;
}

void spans_correct(Spans *s, int first, int end, int64_t missed) {
  int64_t share = missed / (end - first);
  s->corrections++;
  for (int i = first + 1; i <= s->c->n; i++)
    s->missed[i] += i < end ? share * (i - first) : missed;
  for (int i = 1; i <= s->c->n; i++)
    s->missed_before[i] = larger(s->missed_before[i - 1], s->missed[i]);
  s->missed_behind[s->c->n] = s->missed[s->c->n];
  for (int i = s->c->n - 1; i >= 0; i--)
    s->missed_behind[i] = -larger(-s->missed_behind[i + 1], -s->missed[i]);
}
