/* The recurrence of an LSTM, forward and backward, against plain loops in double: sizes that are no multiple of
 * a block, reversed or not, samples of several lengths, with and without a state before, in floats and in bf16; the same
 * bytes for 1, 2 and 4 threads. */
#include "test.h"

typedef struct pd_lstm Lstm;

typedef struct Case {
  Lstm l;
  bool initial, lengths;
  enum pd_type type; /* of all but cells and gates, which stay floats */
} Case;

typedef struct Arrays {
  float *x, *w, *h0, *c0, *dh, *dh_n, *dc_n;
  int32_t *lengths;
} Arrays;

typedef struct Exact {
  double *h, *c, *a, *h_n, *c_n, *d, *previous, *dh0, *dc0; /* dense */
} Exact;

static double *zeros(int64_t n) {
  double *x = calloc((size_t)n, sizeof *x);
  if (!x) pd_fail("out of memory");
  return x;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static int64_t step_at(const Lstm *l, int64_t length, int64_t k) { return l->reverse ? length - 1 - k : k; }

static void forward_exact(const Case *p, const Arrays *a, Exact *e, int64_t b) {
  const Lstm *l = &p->l;
  int64_t n = l->hidden, length = a->lengths ? a->lengths[b] : l->length;
  double *h = e->h_n + b * n, *c = e->c_n + b * n, *z = zeros(4 * n);
  for (int64_t j = 0; j < n && p->initial; j++) h[j] = a->h0[b * n + j], c[j] = a->c0[b * n + j];
  for (int64_t k = 0; k < length; k++) {
    int64_t at = b * l->length + step_at(l, length, k);
    const float *x = a->x + at * 4 * n;
    for (int64_t r = 0; r < 4 * n; r++) {
      z[r] = x[r];
      for (int64_t j = 0; j < n; j++) z[r] += a->w[r * n + j] * h[j];
      e->a[at * 4 * n + r] = r / n == 2 ? tanh(z[r]) : sigmoid(z[r]);
    }
    const double *gate = e->a + at * 4 * n;
    for (int64_t j = 0; j < n; j++) {
      e->previous[at * n + j] = h[j];
      c[j] = gate[n + j] * c[j] + gate[j] * gate[2 * n + j];
      h[j] = gate[3 * n + j] * tanh(c[j]);
      e->c[at * n + j] = c[j];
      e->h[at * n + j] = h[j];
    }
  }
  free(z);
}

static void backward_exact(const Case *p, const Arrays *a, Exact *e, int64_t b) {
  const Lstm *l = &p->l;
  int64_t n = l->hidden, length = a->lengths ? a->lengths[b] : l->length;
  double *dh = e->dh0 + b * n, *dc = e->dc0 + b * n;
  for (int64_t j = 0; j < n; j++) {
    dh[j] = a->dh_n ? a->dh_n[b * n + j] : 0;
    dc[j] = a->dc_n ? a->dc_n[b * n + j] : 0;
  }
  for (int64_t k = length - 1; k >= 0; k--) {
    int64_t at = b * l->length + step_at(l, length, k);
    const double *gate = e->a + at * 4 * n, *i = gate, *f = gate + n, *g = gate + 2 * n, *o = gate + 3 * n;
    double *d = e->d + at * 4 * n;
    for (int64_t j = 0; j < n; j++) {
      double before = p->initial ? a->c0[b * n + j] : 0, t = tanh(e->c[at * n + j]);
      if (k > 0) before = e->c[(b * l->length + step_at(l, length, k - 1)) * n + j];
      dh[j] += a->dh ? a->dh[at * n + j] : 0;
      dc[j] += dh[j] * o[j] * (1 - t * t);
      d[j] = dc[j] * g[j] * i[j] * (1 - i[j]);
      d[n + j] = dc[j] * before * f[j] * (1 - f[j]);
      d[2 * n + j] = dc[j] * i[j] * (1 - g[j] * g[j]);
      d[3 * n + j] = dh[j] * t * o[j] * (1 - o[j]);
      dc[j] *= f[j];
    }
    for (int64_t j = 0; j < n; j++) {
      dh[j] = 0;
      for (int64_t r = 0; r < 4 * n; r++) dh[j] += a->w[r * n + j] * d[r];
    }
  }
}

/* Largest difference over the largest magnitude. */
static double error(const float *got, const double *exact, int64_t n) {
  double worst = 0, size = 1e-30;
  for (int64_t i = 0; i < n; i++) {
    double off = fabs(got[i] - exact[i]);
    if (!(off <= worst)) worst = off;
    if (fabs(exact[i]) > size) size = fabs(exact[i]);
  }
  return worst / size;
}

static void expect(bool ok, const Case *p, const char *what, double value) {
  if (ok) return;
  printf("FAIL batch %ld length %ld hidden %ld reverse %d initial %d lengths %d type %d: %s %g\n",
         (long)p->l.batch, (long)p->l.length, (long)p->l.hidden, p->l.reverse, p->initial, p->lengths, p->type,
         what, value);
  failures++;
}

typedef struct Out {
  float *h, *c, *gates, *d_gates, *previous, *h_n, *c_n, *dh0, *dc0, *all;
  int64_t n;
} Out;

static Out out_new(const Lstm *l) {
  int64_t rows = l->batch * l->length, state = l->batch * l->hidden;
  Out o = {.n = 11 * rows * l->hidden + 4 * state};
  float *at = o.all = floats(o.n);
  o.h = at, at += rows * l->hidden;
  o.c = at, at += rows * l->hidden;
  o.gates = at, at += rows * 4 * l->hidden;
  o.d_gates = at, at += rows * 4 * l->hidden;
  o.previous = at, at += rows * l->hidden;
  o.h_n = at, at += state;
  o.c_n = at, at += state;
  o.dh0 = at, at += state;
  o.dc0 = at;
  return o;
}

static float *space_new(size_t bytes) {
  char *space = (char *)floats((int64_t)bytes / 4 + 16);
  memset(space, 0xff, bytes + 64); /* NaN */
  return (float *)space;
}

static void space_free(float *space, const Case *p, size_t bytes) {
  for (int i = 0; i < 64; i++)
    expect((((char *)space)[bytes + (size_t)i] & 0xff) == 0xff, p, "writes past its scratch at", i);
  free(space);
}

/* Numbers of the case as the kernel is given them, which the caller frees; none where there are none. */
static pd_in given(const Case *p, float *x, int64_t n) {
  return x ? operand(x, n, p->type) : (pd_in){NULL, PD_F32};
}

static pd_in as_floats(const float *x) { return (pd_in){x, PD_F32}; }

/* Room for a result of the case's type, filled with NaN; and what the kernel made there, as floats. */
static pd_out room(const Case *p, int64_t n) {
  pd_out r = {floats(n), p->type};
  memset(r.at, 0xff, (size_t)n * sizeof(float));
  return r;
}

static void take(float *to, pd_out made, int64_t n) {
  pd_read(to, pd_made(made), 0, n);
  free(made.at);
}

static void run_kernel(const Case *p, const Arrays *a, Out *o) {
  const Lstm *l = &p->l;
  const int64_t state = l->batch * l->hidden, n = state * l->length;
  memset(o->all, 0xff, (size_t)o->n * sizeof(float));
  pd_in x = given(p, a->x, 4 * n), w = given(p, a->w, 4 * l->hidden * l->hidden), h0 = given(p, a->h0, state);
  pd_in dh = given(p, a->dh, n), dh_n = given(p, a->dh_n, state);
  pd_out h = room(p, n), h_n = room(p, state), d_gates = room(p, 4 * n), previous = room(p, n);
  pd_out dh0 = p->initial ? room(p, state) : (pd_out){NULL, PD_F32}, dc0 = {p->initial ? o->dc0 : NULL, PD_F32};
  float *space = space_new(pd_lstm_scratch(l));
  (pd_lstm_forward)(l, x, w, h0, as_floats(a->c0), a->lengths, h, h_n, (pd_out){o->c_n, PD_F32},
                    (pd_out){o->c, PD_F32}, (pd_out){o->gates, PD_F32}, space);
  space_free(space, p, pd_lstm_scratch(l));
  space = space_new(pd_lstm_backward_scratch(l));
  (pd_lstm_backward)(l, w, h0, as_floats(a->c0), a->lengths, pd_made(h), as_floats(o->c), as_floats(o->gates), dh,
                     dh_n, as_floats(a->dc_n), d_gates, previous, dh0, dc0, space);
  space_free(space, p, pd_lstm_backward_scratch(l));
  take(o->h, h, n), take(o->h_n, h_n, state), take(o->d_gates, d_gates, 4 * n), take(o->previous, previous, n);
  if (p->initial) take(o->dh0, dh0, state);
  free((void *)x.at), free((void *)w.at), free((void *)h0.at), free((void *)dh.at), free((void *)dh_n.at);
}

static void compare(const Case *p, const Out *o, const Exact *e) {
  int64_t rows = p->l.batch * p->l.length * p->l.hidden, state = p->l.batch * p->l.hidden;
  const struct {
    const char *what;
    double error;
  } found[] = {
      {"error of h", error(o->h, e->h, rows)},
      {"error of d_gates", error(o->d_gates, e->d, 4 * rows)},
      {"error of previous", error(o->previous, e->previous, rows)},
      {"error of h_n", error(o->h_n, e->h_n, state)},
      {"error of c_n", error(o->c_n, e->c_n, state)},
      {"error of dh0", p->initial ? error(o->dh0, e->dh0, state) : 0},
      {"error of dc0", p->initial ? error(o->dc0, e->dc0, state) : 0},
  };
  for (size_t i = 0; i < sizeof found / sizeof *found; i++)
    expect(found[i].error < (p->type == PD_F32 ? 3e-6 : 0x1p-7), p, found[i].what, found[i].error);
}

/* They become what the kernel is given. */
static void round_numbers(const Case *p, float *x, int64_t n) { free((void *)given(p, x, n).at); }

static void test(Case p, bool gradients) {
  Lstm *l = &p.l;
  int64_t n = l->hidden, state = l->batch * n, rows = l->batch * l->length;
  Arrays a = {.x = random_floats(rows * 4 * n), .w = random_floats(4 * n * n)};
  for (int64_t i = 0; i < 4 * n * n; i++) a.w[i] *= 1.0f / sqrtf((float)n);
  if (p.initial) a.h0 = random_floats(state), a.c0 = random_floats(state);
  if (gradients) a.dh = random_floats(rows * n);
  if (gradients || !p.initial) a.dh_n = random_floats(state);
  if (gradients) a.dc_n = random_floats(state);
  round_numbers(&p, a.x, rows * 4 * n), round_numbers(&p, a.w, 4 * n * n), round_numbers(&p, a.h0, state);
  round_numbers(&p, a.dh, rows * n), round_numbers(&p, a.dh_n, state);
  if (p.lengths) a.lengths = (int32_t *)floats(l->batch);
  for (int64_t b = 0; b < l->batch && p.lengths; b++)
    a.lengths[b] = (int32_t)((b * 5 + l->length) % (l->length + 1));

  Exact e = {zeros(rows * n),     zeros(rows * n), zeros(rows * 4 * n), zeros(state), zeros(state),
             zeros(rows * 4 * n), zeros(rows * n), zeros(state),        zeros(state)};
  for (int64_t b = 0; b < l->batch; b++) forward_exact(&p, &a, &e, b), backward_exact(&p, &a, &e, b);

  Out o = out_new(l);
  float *first = floats(o.n);
  for (int threads = 1; threads <= 4; threads *= 2) {
    omp_set_num_threads(threads);
    run_kernel(&p, &a, &o);
    if (threads == 1) {
      compare(&p, &o, &e);
      memcpy(first, o.all, (size_t)o.n * sizeof *first);
      add_to_digest(first, (size_t)o.n * sizeof *first);
      add_to_digest((size_t[]){pd_lstm_scratch(l), pd_lstm_backward_scratch(l)}, 2 * sizeof(size_t));
    } else {
      expect(!memcmp(first, o.all, (size_t)o.n * sizeof *first), &p, "other bytes for threads", threads);
    }
  }
  free(a.x), free(a.w), free(a.h0), free(a.c0), free(a.dh), free(a.dh_n), free(a.dc_n), free(a.lengths);
  free(e.h), free(e.c), free(e.a), free(e.h_n), free(e.c_n), free(e.d), free(e.previous), free(e.dh0), free(e.dc0);
  free(o.all), free(first);
}

/* Gates of one step without a state before: what a gate gives is as exact in its tail as in its middle. */
static void tails(void) {
  enum { UNITS_OF_TAILS = 37, GATES_OF_TAILS = 4 * UNITS_OF_TAILS };
  Case p = {.l = {.batch = 1, .length = 1, .hidden = UNITS_OF_TAILS}};
  float *x = floats(GATES_OF_TAILS), *w = floats(GATES_OF_TAILS * UNITS_OF_TAILS);
  float *space = space_new(pd_lstm_scratch(&p.l));
  memset(w, 0, GATES_OF_TAILS * UNITS_OF_TAILS * sizeof *w);
  for (int i = 0; i < GATES_OF_TAILS; i++) x[i] = -85 + 170.0f / UNITS_OF_TAILS * (float)(i % UNITS_OF_TAILS);
  Out o = out_new(&p.l);
  pd_lstm_forward(&p.l, x, w, NULL, NULL, NULL, o.h, o.h_n, o.c_n, o.c, o.gates, space);
  for (int i = 0; i < GATES_OF_TAILS; i++) {
    double exact = i / UNITS_OF_TAILS == 2 ? tanh(x[i]) : sigmoid(x[i]), off = fabs(o.gates[i] / exact - 1);
    expect(off < 4e-7, &p, "relative error of a gate", off);
  }
  free(x), free(w), free(space), free(o.all);
}

int main(void) {
  tails();
  static const int64_t sizes[][3] = {{1, 1, 1},  {1, 5, 16},  {3, 4, 17},  {7, 3, 32},
                                     {8, 6, 40}, {13, 9, 65}, {25, 2, 100}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int form = 0; form < 32; form++) {
      Case p = {.l = {.batch = sizes[i][0], .length = sizes[i][1], .hidden = sizes[i][2], .reverse = form & 1},
                .initial = form & 2,
                .lengths = form & 4,
                .type = form & 16 ? PD_BF16 : PD_F32};
      test(p, form & 8);
    }
  printf("%016lx\n", (unsigned long)digest);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
