/* Sharded-LRTF: the choice of a rank's next model. */
#include "sharp/sharp.h"

enum { NOBODY = -1 };

void pd_sharp_start(struct pd_sharp *s, int models, int ranks, double slice) {
  s->models = models;
  s->ranks = ranks;
  s->slice = slice;
  s->n_spans = 0;
  for (int i = 0; i < models; i++) s->model[i] = (struct pd_sharp_model){.state = PD_SHARP_STARTS, .rank = NOBODY};
  for (int r = 0; r < ranks; r++) s->rank[r] = (struct pd_sharp_rank){NOBODY, NOBODY, 0};
}

bool pd_sharp_all_ended(const struct pd_sharp *s) {
  for (int i = 0; i < s->models; i++)
    if (s->model[i].state != PD_SHARP_ENDED) return false;
  return true;
}

static bool one_starts(const struct pd_sharp *s) {
  for (int i = 0; i < s->models; i++)
    if (s->model[i].state == PD_SHARP_STARTS) return true;
  return false;
}

/* The mean over models with measurements. */
static double slowness(const struct pd_sharp *s) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < s->models; i++) {
    sum += s->model[i].slowness;
    n += s->model[i].slowness > 0;
  }
  return n ? sum / n : 1;
}

/* In measured seconds, if any. */
static double remaining(const struct pd_sharp *s, int model) {
  const struct pd_sharp_model *m = &s->model[model];
  return m->slowness > 0 ? m->remaining : m->remaining * slowness(s);
}

/* The waiting model with the longest remaining time, `expected` by a rank or not; the first of equals. */
static int longest(const struct pd_sharp *s, bool expected) {
  int best = NOBODY;
  for (int i = 0; i < s->models; i++) {
    const struct pd_sharp_model *m = &s->model[i];
    if (m->state != PD_SHARP_WAITS || (m->rank != NOBODY) != expected) continue;
    if (best == NOBODY || remaining(s, i) > remaining(s, best)) best = i;
  }
  return best;
}

bool pd_sharp_is_expected(const struct pd_sharp *s, int model) {
  return s->model[model].state == PD_SHARP_WAITS && s->model[model].rank != NOBODY;
}

/* ---- ranks change hands ------------------------------------------------------------------------ */

/* Clears the rank's expected model. */
static void forget_next(struct pd_sharp *s, int rank) {
  int next = s->rank[rank].next;
  s->rank[rank].next = NOBODY;
  if (next != NOBODY && s->model[next].state == PD_SHARP_WAITS) s->model[next].rank = NOBODY;
}

static void expect(struct pd_sharp *s, int rank, int model) {
  s->rank[rank].next = model;
  if (s->model[model].state != PD_SHARP_WAITS) return; /* the running model continues */
  s->model[model].rank = rank;
  s->model[model].changes++;
}

static void give(struct pd_sharp *s, int rank, int model, double now) {
  struct pd_sharp_model *m = &s->model[model];
  if (m->rank != NOBODY) forget_next(s, m->rank);
  m->state = PD_SHARP_RUNS;
  m->rank = rank;
  m->since = now;
  m->changes++;
  s->rank[rank].runs = model;
}

/* Removes the running model from its rank. */
static void take_away(struct pd_sharp *s, int rank, double now) {
  struct pd_sharp_rank *r = &s->rank[rank];
  struct pd_sharp_model *m = &s->model[r->runs];
  if (s->n_spans < PD_SHARP_SPANS) s->span[s->n_spans] = (struct pd_sharp_span){m->since, now, r->runs, rank};
  s->n_spans++;
  m->busy += now - m->since;
  r->busy += now - m->since;
  m->rank = NOBODY;
  r->runs = NOBODY;
}

/* No rank is idle while a model waits: a model that is expected on another rank is taken if there is no other. */
static void fill_ranks(struct pd_sharp *s, double now) {
  for (int r = 0; r < s->ranks && !one_starts(s); r++) {
    if (s->rank[r].runs != NOBODY) continue;
    int model = s->rank[r].next;
    if (model == NOBODY) model = longest(s, false);
    if (model == NOBODY) model = longest(s, true);
    if (model != NOBODY) give(s, r, model, now);
  }
}

/* ---- what models say --------------------------------------------------------------------------- */

void pd_sharp_join(struct pd_sharp *s, int model, double seconds, double now) {
  s->model[model].state = PD_SHARP_WAITS;
  s->model[model].remaining = seconds;
  fill_ranks(s, now);
}

void pd_sharp_measure(struct pd_sharp *s, int model, double slowness) { s->model[model].slowness = slowness; }

/* The model to follow the running one; of equals the running one stays. */
static int follower(const struct pd_sharp *s, int model, double now) {
  const struct pd_sharp_model *m = &s->model[model];
  int other = longest(s, false);
  bool goes_on = other == NOBODY || now - m->since < s->slice || remaining(s, other) <= remaining(s, model);
  return goes_on ? model : other;
}

bool pd_sharp_look_ahead(struct pd_sharp *s, int model, double seconds, double now) {
  int rank = s->model[model].rank;
  s->model[model].remaining = seconds;
  expect(s, rank, follower(s, model, now));
  return s->rank[rank].next == model;
}

bool pd_sharp_end_unit(struct pd_sharp *s, int model, double seconds, double now) {
  struct pd_sharp_model *m = &s->model[model];
  int rank = m->rank, next = s->rank[rank].next;
  m->remaining = seconds;
  if (next == NOBODY) next = follower(s, model, now);
  s->rank[rank].next = NOBODY;
  if (next == model) return true;
  take_away(s, rank, now);
  m->state = PD_SHARP_WAITS;
  give(s, rank, next, now);
  fill_ranks(s, now);
  return m->state == PD_SHARP_RUNS;
}

void pd_sharp_end(struct pd_sharp *s, int model, double now) {
  struct pd_sharp_model *m = &s->model[model];
  int rank = m->rank;
  if (m->state == PD_SHARP_RUNS) {
    take_away(s, rank, now);
    if (s->rank[rank].next == model) s->rank[rank].next = NOBODY;
  } else if (rank != NOBODY) {
    forget_next(s, rank);
  }
  m->state = PD_SHARP_ENDED;
  m->remaining = 0;
  fill_ranks(s, now);
}
