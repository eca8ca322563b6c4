/* PipeDream's dynamic program. A(j, m) is the least time of the slowest stage when m machines run state j. It is
 * the time of one stage on all m, or the least over states k in j and m' < m of
 * max(A(k, m - m'), last stage), where the last stage has the layers of j beyond k on m' machines.
 * At the next level, the time of a group of machines between two states replaces compute.
 * Trying all (k, m') would take N^2 M^2 steps. For fixed m', the last stage's time falls as k approaches j, while
 * the best A(k, m - m') of this and later k grows. So only states between two bounds can improve the result, and
 * the bounds move little from one j to the next. */
#include "pipedream/pipedream.h"

#include <math.h>

/* The last stage of the best way to run a state on m machines. */
typedef struct Choice {
  int before; /* the state before the last stage; -1: single stage */
  int machines;
} Choice;

/* A(j, m) for the layers after state `from`. */
typedef struct Row {
  int from;
  double **best;   /* by m - 1 and state: seconds; INFINITY: the state does not contain `from` */
  double **later;  /* minimum of best[m - 1] over this and later states, so it never decreases */
  Choice **choice; /* by m - 1 and state */
  int *last;       /* by m - 1 and machines of the last stage: the last cut found to be fast enough */
} Row;

/* Costs at a level, by number of machines. */
typedef struct Rates {
  double *part;     /* share of a second of compute */
  double *exchange; /* seconds per parameter byte: gradients to all other machines and back, in both directions */
  double *send;     /* seconds per byte across a cut: activation and gradient */
} Rates;

typedef struct Search {
  const States *s;
  const Cluster *c;
  bool transfers;
  Rates rates[MOST_LEVELS];
  /* Time of a group of machines between two states, in place of compute: by level, by state before + 1, then by
   * later state. NULL: not computed yet. */
  double **seconds[MOST_LEVELS];
  double share[MOST_LEVELS]; /* bound of times at a level, as a share of compute; reduced for rounding */
  Row row[MOST_LEVELS];      /* reused scratch */
} Search;

/* ---- costs of a stage ------------------------------------------------------------------------------ */

static double compute_between(const States *s, int from, int to) {
  return s->compute[to] - (from < 0 ? 0 : s->compute[from]);
}

static double bytes_between(const States *s, int from, int to) {
  return (double)(s->parameters[to] - (from < 0 ? 0 : s->parameters[from]));
}

static const double *group_seconds(Search *x, int level, int from);

static double base_seconds(Search *x, int level, int from, int to) {
  return level ? group_seconds(x, level, from)[to - from - 1] : compute_between(x->s, from, to);
}

static double send_seconds(const Search *x, int level, int state, int machines) {
  return (double)x->s->output[state] * x->rates[level].send[machines];
}

/* Within each group, machines share the exchange of a level's only stage. */
static double exchange_seconds(const Search *x, int level, int from, int to, int machines, bool only) {
  double t = bytes_between(x->s, from, to) * x->rates[level].exchange[machines];
  return only && level ? t / x->c->level[level - 1].count : t;
}

static double stage_seconds(Search *x, int level, int from, int to, int machines, bool only) {
  return base_seconds(x, level, from, to) * x->rates[level].part[machines] +
         exchange_seconds(x, level, from, to, machines, only);
}

static Rates rates_of(const ClusterLevel *l) {
  size_t n = (size_t)l->count + 1;
  Rates r = {alloc(n * sizeof(double)), alloc(n * sizeof(double)), alloc(n * sizeof(double))};
  for (int m = 1; m <= l->count; m++) {
    r.part[m] = 1.0 / m;
    r.exchange[m] = m > 1 ? 4.0 * (m - 1) / ((double)m * m * l->bandwidth) : 0;
    r.send[m] = l->count > 1 ? 2.0 / (l->bandwidth * m) : 0;
  }
  return r;
}

/* ---- a row ----------------------------------------------------------------------------------------- */

/* A search for the last stage of the best way to run state j on m machines. */
typedef struct Trial {
  Search *x;
  const Row *row;
  int level, j, m;
  double best;
  Choice choice;
} Trial;

static double more(double a, double b) { return a > b ? a : b; }

/* Tries a last stage on `machines` machines with the layers of j beyond state k. send: seconds of sending its
 * output. */
static void try_cut(Trial *t, int k, int machines, double send) {
  Search *x = t->x;
  double slowest = more(t->row->best[t->m - machines - 1][k], send);
  if (x->transfers && slowest < t->best)
    slowest = more(slowest, send_seconds(x, t->level, k, machines));
  if (slowest >= t->best)
    return;
  slowest = more(slowest, stage_seconds(x, t->level, k, t->j, machines, false));
  if (slowest >= t->best || !state_contains(x->s, t->j, k))
    return;
  t->best = slowest;
  t->choice = (Choice){k, machines};
}

/* Tries all cuts that can improve the result, backward from the last one that is fast enough. */
static void try_all(Trial *t, int machines, double send) {
  const double *compute = t->x->s->compute, *later = t->row->later[t->m - machines - 1];
  double share = t->x->share[t->level] / machines;
  int first = t->row->from + 1, *last = &t->row->last[(t->m - 1) * t->x->c->level[t->level].count + machines];
  int k = *last < first ? first : *last;
  while (k + 1 < t->j && later[k + 1] < t->best)
    k++;
  while (k >= first && (k >= t->j || later[k] >= t->best))
    k--;
  *last = k;
  for (; k >= first; k--) {
    if ((compute[t->j] - compute[k]) * share >= t->best)
      break; /* the time grows with every layer */
    try_cut(t, k, machines, send);
  }
}

static Trial solve(const Row *row, Search *x, int level, int j, int m) {
  Trial t = {x, row, level, j, m, stage_seconds(x, level, row->from, j, m, true), {-1, m}};
  bool sends = x->transfers && j < x->s->n - 1;
  Choice c = j - 1 > row->from ? row->choice[m - 1][j - 1] : t.choice; /* best choice of the previous state */
  if (c.before > row->from) {
    double send = sends ? send_seconds(x, level, j, c.machines) : 0;
    try_cut(&t, c.before, c.machines, send);
  }
  for (int last = 1; last < m; last++) {
    double send = sends ? send_seconds(x, level, j, last) : 0;
    if (send < t.best)
      try_all(&t, last, send);
  }
  return t;
}

static void make_room(const Search *x, int level, Row *r) {
  size_t machines = (size_t)x->c->level[level].count, n = (size_t)x->s->n;
  r->best = alloc(machines * sizeof *r->best);
  r->later = alloc(machines * sizeof *r->later);
  r->choice = alloc(machines * sizeof *r->choice);
  r->last = alloc(machines * machines * sizeof *r->last);
  for (size_t m = 0; m < machines; m++) {
    r->best[m] = alloc(n * sizeof **r->best);
    r->later[m] = alloc(n * sizeof **r->later);
    r->choice[m] = alloc(n * sizeof **r->choice);
  }
}

/* Fills a level's row: the layers after state `from`, up to state `to`. ends: skips earlier states for all
 * machines, because nothing reads them. */
static const Row *fill_row(Search *x, int level, int from, int to, bool ends) {
  Row *row = &x->row[level];
  int machines = x->c->level[level].count;
  row->from = from;
  for (int j = from + 1; j <= to; j++) {
    bool reached = from < 0 || state_contains(x->s, j, from);
    for (int m = 1; m <= machines; m++) {
      Trial t = {.best = INFINITY, .choice = {-1, m}};
      if (reached && !(ends && j < to && m == machines))
        t = solve(row, x, level, j, m);
      double *later = row->later[m - 1];
      row->best[m - 1][j] = later[j] = t.best;
      row->choice[m - 1][j] = t.choice;
      for (int k = j - 1; k > from && later[k] > t.best; k--)
        later[k] = t.best;
    }
  }
  return row;
}

/* ---- levels ----------------------------------------------------------------------------------------- */

/* Time of all machines of the lower level, from one state to each later one. */
static const double *group_seconds(Search *x, int level, int from) {
  double **seconds = &x->seconds[level][from + 1];
  int n = x->s->n;
  if (!*seconds) {
    const Row *row = fill_row(x, level - 1, from, n - 1, false);
    const double *best = row->best[x->c->level[level - 1].count - 1];
    *seconds = alloc_copy(best + from + 1, (size_t)(n - 1 - from) * sizeof(double));
  }
  return *seconds;
}

static const Division *divide(Search *x, int level, int from, int to);

static PipeStage stage_of(Search *x, int level, int from, int to, int machines, bool only) {
  PipeStage p = {.from = from, .to = to, .machines = machines};
  p.compute = base_seconds(x, level, from, to) * x->rates[level].part[machines];
  p.exchange = exchange_seconds(x, level, from, to, machines, only);
  p.seconds = p.compute + p.exchange;
  p.within = level ? divide(x, level - 1, from, to) : NULL;
  return p;
}

/* A stage receives from the previous one and sends to the next. The program ignores the first stage's send, which
 * the second receives. It counts the send of the last stage in a part of the model. */
static void count_transfers(const Search *x, int level, PipeStage *stage, int n) {
  for (int i = 1; i < n && x->transfers; i++) {
    PipeStage *p = &stage[i];
    p->receive = send_seconds(x, level, p->from, p->machines);
    p->send = p->to < x->s->n - 1 ? send_seconds(x, level, p->to, p->machines) : 0;
    p->seconds = more(p->seconds, more(p->receive, p->send));
  }
}

/* The best division between two states. Fills its row again, because rows are not kept. */
static const Division *divide(Search *x, int level, int from, int to) {
  const Row *row = fill_row(x, level, from, to, true);
  Vec(Choice) choices = {0};
  int m = x->c->level[level].count;
  for (int j = to; j >= 0 && m > 0;) {
    Choice c = row->choice[m - 1][j];
    push(&choices, c);
    j = c.before;
    m -= c.machines;
  }
  int n = choices.n;
  PipeStage *stage = alloc((size_t)n * sizeof *stage);
  for (int i = 0, at = from; i < n; i++) {
    int end = i + 1 < n ? choices.at[n - 2 - i].before : to;
    stage[i] = stage_of(x, level, at, end, choices.at[n - 1 - i].machines, i == 0);
    at = end;
  }
  count_transfers(x, level, stage, n);
  Division *d = alloc(sizeof *d);
  *d = (Division){.level = level, .n = n, .stage = stage};
  for (int i = 0; i < n; i++)
    d->seconds = more(d->seconds, stage[i].seconds);
  return d;
}

const Division *pipedream_divide(const States *s, const Cluster *c, bool transfers) {
  Search x = {.s = s, .c = c, .transfers = transfers};
  double share = 1 - 1e-9;
  for (int level = 0; level < c->n; level++) {
    x.rates[level] = rates_of(&c->level[level]);
    x.share[level] = share;
    x.seconds[level] = level ? alloc((size_t)s->n * sizeof *x.seconds[level]) : NULL;
    make_room(&x, level, &x.row[level]);
    share /= c->level[level].count;
  }
  return divide(&x, c->n - 1, -1, s->n - 1);
}

double pipedream_effort(const States *s, const Cluster *c) {
  static const double RATE = 6e8, RATE_OF_LEVELS = 6e7; /* pairs of states per second and machine */
  double pairs = (double)s->n * s->n * cluster_devices(c);
  return pairs / (c->n > 1 ? RATE_OF_LEVELS : RATE);
}

double pipedream_data_parallel(const States *s, const Cluster *c) {
  double t = s->compute[s->n - 1], bytes = (double)s->parameters[s->n - 1];
  for (int i = 0; i < c->n; i++) {
    const ClusterLevel *l = &c->level[i];
    double exchange = l->count > 1 ? 4.0 * (l->count - 1) * bytes / (l->count * l->bandwidth) : 0;
    t = (t + exchange / (i ? c->level[i - 1].count : 1)) / l->count;
  }
  return t;
}
