/* The recurrence of an LSTM layer (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with forget gates):
 * the contribution of the input to the gates is computed for all steps before. A step multiplies the state of all
 * samples by w, in register tiles, and computes the cells from the tile's sums. w is packed once a call, a panel
 * for each block of units; threads share the blocks, and every sum runs over k in order, so that bits do not
 * depend on the number of threads. Samples that end early keep their state, as a copy, and contribute zero to
 * gradients. Where the processor multiplies bf16, the state, the gradients of gates and w are packed as words of
 * two numbers (`pairs`): the state that a step reads is then rounded, like the layer's result and as in PyTorch;
 * cells and sums are floats. */
#define PD_KERNELS
#include "kernels/pd_words.h"
#include "pd_kernels.h"

#if PD_VECTORS == 32
enum { ROWS = 7, GATES_AT_ONCE = 4, ROWS_BACKWARD = 12, VECTORS_BACKWARD = 2 }; /* 28 and 24 vectors of sums */
#else
enum { ROWS = 6, GATES_AT_ONCE = 1, ROWS_BACKWARD = 6, VECTORS_BACKWARD = 1 };
#endif
enum {
  UNITS = 16,
  GATES = 4,
  PANEL = GATES * UNITS,        /* forward: the four gates of 16 units ... */
  PART = GATES_AT_ONCE * UNITS, /* ... in parts of one tile */
  TILE_BACKWARD = VECTORS_BACKWARD * UNITS,
  UNITS_BACKWARD = 32,
  PAD = 16 /* rows a power of two apart would share sets of the cache */
};

typedef struct pd_lstm Lstm;

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t length_of(const Lstm *l, const int32_t *lengths, int64_t b) {
  return lengths ? lengths[b] : l->length;
}
static bool starts(const Lstm *l, const int32_t *lengths, int64_t b, int64_t t) {
  return t == (l->reverse ? length_of(l, lengths, b) - 1 : 0);
}

static const void *address(pd_in x, int64_t i) { return pd_in_from(x, i).at; }

/* Elements from one that is `at` on; lanes beyond n are zero. */
static inline void load(float *to, pd_in from, int64_t at, int64_t n) {
  if (n >= UNITS) {
    pd_read(to, from, at, UNITS);
    return;
  }
  for (int j = 0; j < UNITS; j++) to[j] = 0.0f;
  pd_read(to, from, at, n);
}

static inline void store(pd_out to, int64_t at, const float *from, int64_t n) {
  pd_write(to, at, from, n >= UNITS ? UNITS : n);
}

/* n numbers, as floats in between; to may begin at one that is `at` on. */
static void copy(pd_out to, int64_t at, pd_in from, int64_t n) {
  for (int64_t i = 0; i < n; i += UNITS) {
    float x[UNITS];
    load(x, from, i, n - i);
    store(to, at + i, x, n - i);
  }
}

static void zero(pd_out to, int64_t at, int64_t n) {
  pd_out x = pd_out_from(to, at);
  memset(x.at, 0, (n >= UNITS ? UNITS : (size_t)n) * (x.type == PD_BF16 ? sizeof(pd_bf16) : sizeof(float)));
}

/* ---- forward ---------------------------------------------------------------------------------- */

/* One block's panel: to[part][words of k][gate of the part][unit] = w[gate][first + unit][k], zeros for units from
 * `hidden` on. */
static void pack_forward(bool pairs, const Lstm *l, float *to, pd_in w, int64_t first) {
  int64_t hidden = l->hidden;
  for (int64_t gate = 0; gate < GATES; gate++) {
    float *panel =
        to + (gate / GATES_AT_ONCE * words(pairs, hidden) * GATES_AT_ONCE + gate % GATES_AT_ONCE) * UNITS;
    transpose_rows(pairs, panel, PART, pd_in_from(w, (gate * hidden + first) * hidden), hidden, hidden - first,
                   hidden);
  }
}

/* c[rows][vectors] = a[rows][k] b[k][vectors], of words k of them */
INLINE void product(bool pairs, float *c, int64_t c_row, int rows, int vectors, const float *a, int64_t a_row,
                    const float *b, int64_t k) {
  vector sum[PD_VECTORS] = {{0}};
  if (pairs)
    multiply_pairs(sum, rows, vectors, a, a_row, 1, b, vectors * PD_LANES, k);
  else
    multiply_tile(sum, rows, vectors, a, a_row, 1, b, vectors * PD_LANES, k);
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) *(vector *)(c + r * c_row + v * PD_LANES) = sum[r * vectors + v];
}

/* multiply for a number of rows known at run time, at most `most` of a tile. */
INLINE void product_of_rows(bool pairs, float *c, int64_t c_row, int64_t rows, int most, int vectors,
                            const float *a, int64_t a_row, const float *b, int64_t k) {
  CALL_BY_ROWS(n, rows, most, product(pairs, c, c_row, n, vectors, a, a_row, b, k))
}

/* Rows of the state, numbers of its type; rows of a product read them as words. */
static pd_out state_at(pd_out state, int64_t b, int64_t row, int64_t i) { return pd_out_from(state, b * row + i); }

/* z[rows][PANEL] = h[rows][k] times the panel, some of the gates at once; in words. */
INLINE void rows_forward_of(bool pairs, float *z, int64_t rows, const float *h, int64_t row, const float *panel,
                            int64_t k, int64_t depth) {
  for (int64_t at = 0; at < PANEL; at += PART)
    product_of_rows(pairs, z + at, PANEL, rows, ROWS, GATES_AT_ONCE, h, row, panel + at * depth, k);
}

/* h of hidden numbers a row, rows `row` apart, or `none`: zeros. */
static void rows_forward(float *z, int64_t rows, pd_out h, int64_t row, const float *panel, int64_t hidden,
                         bool none) {
  bool pairs = h.type == PD_BF16;
  int64_t depth = words(pairs, hidden), k = none ? 0 : depth;
  if (PD_PAIRS && pairs)
    rows_forward_of(true, z, rows, h.at, words(true, row), panel, k, depth);
  else
    rows_forward_of(false, z, rows, h.at, row, panel, k, depth);
}

/* The cell of 16 units: z becomes the gates after their functions, c the new state. */
static void cell_forward(float z[PANEL], const float x[PANEL], float c[UNITS], float h[UNITS]) {
  for (int j = 0; j < PANEL; j++) z[j] += x[j];
  for (int j = 0; j < 2 * UNITS; j++) z[j] = pd_sigmoid(z[j]);
  for (int j = 2 * UNITS; j < 3 * UNITS; j++) z[j] = pd_tanh(z[j]);
  for (int j = 3 * UNITS; j < PANEL; j++) z[j] = pd_sigmoid(z[j]);
  for (int j = 0; j < UNITS; j++) c[j] = fmaf(z[UNITS + j], c[j], z[j] * z[2 * UNITS + j]);
  for (int j = 0; j < UNITS; j++) h[j] = z[3 * UNITS + j] * pd_tanh(c[j]);
}

struct pd_lstm_step { /* where one step reads and writes; h states are [batch][row], in bf16 for pairs */
  const Lstm *l;
  const int32_t *lengths;
  pd_in x, h0, c0;
  pd_out h, c, gates, state, next;
  int64_t row, t, before; /* before: the step before t in the direction of time, outside for the first */
};

static void row_forward(const struct pd_lstm_step *s, int64_t b, int64_t first, float z[PANEL]) {
  const Lstm *l = s->l;
  int64_t n = l->hidden - first;
  float x[PANEL], c[UNITS] = {0}, h[UNITS];
  int64_t at = (b * l->length + s->t) * l->hidden, before = (b * l->length + s->before) * l->hidden;
  if (s->before >= 0 && s->before < l->length)
    load(c, pd_made(s->c), before + first, n);
  else if (s->c0.at)
    load(c, s->c0, b * l->hidden + first, n);
  if (s->t >= length_of(l, s->lengths, b)) {
    for (int gate = 0; gate < GATES; gate++) zero(s->gates, GATES * at + first + gate * l->hidden, n);
    zero(s->h, at + first, n);
    store(s->c, at + first, c, n);
    memcpy(state_at(s->next, b, s->row, first).at, state_at(s->state, b, s->row, first).at,
           (size_t)(UNITS * pd_bytes_of(s->state.type)));
    return;
  }
  for (int gate = 0; gate < GATES; gate++) load(x + gate * UNITS, s->x, GATES * at + first + gate * l->hidden, n);
  cell_forward(z, x, c, h);
  for (int gate = 0; gate < GATES; gate++)
    store(s->gates, GATES * at + first + gate * l->hidden, z + gate * UNITS, n);
  store(s->c, at + first, c, n);
  store(s->h, at + first, h, n);
  pd_write(s->next, b * s->row + first, h, UNITS);
}

/* Prefetches a block's parts of rows, which are far apart. */
static void fetch_forward(const struct pd_lstm_step *s, int64_t b, int64_t first) {
  const Lstm *l = s->l;
  int64_t at = (b * l->length + s->t) * l->hidden;
  for (int gate = 0; gate < GATES; gate++) {
    __builtin_prefetch(address(s->x, GATES * at + gate * l->hidden + first), 0);
    __builtin_prefetch(address(pd_made(s->gates), GATES * at + gate * l->hidden + first), 1);
  }
  __builtin_prefetch(address(pd_made(s->h), at + first), 1);
  __builtin_prefetch(address(pd_made(s->c), at + first), 1);
}

static void block_forward(const struct pd_lstm_step *s, int64_t first, const float *panel) {
  const Lstm *l = s->l;
  bool none = !s->h0.at && (s->before < 0 || s->before >= l->length); /* the state is zero */
  int64_t tiles = (l->batch + ROWS - 1) / ROWS;
  for (int64_t i = 0; i < tiles; i++) {
    _Alignas(64) float z[ROWS * PANEL];
    int64_t begin = l->batch * i / tiles, end = l->batch * (i + 1) / tiles;
    for (int64_t b = begin; b < end; b++) fetch_forward(s, b, first);
    rows_forward(z, end - begin, state_at(s->state, begin, s->row, 0), s->row, panel, l->hidden, none);
    for (int64_t b = begin; b < end; b++) row_forward(s, b, first, z + (b - begin) * PANEL);
  }
}

/* True if the processor multiplies bf16. Scratch memory is sized for floats, because pdc, which plans it, is
 * compiled for any processor. */
static bool multiplies_pairs(pd_in w, enum pd_type state) {
  return PD_PAIRS && w.type == PD_BF16 && state == PD_BF16;
}

static int64_t state_row(const Lstm *l) { return round_up(l->hidden, UNITS) + PAD; }
static int64_t panel_floats(const Lstm *l) { return l->hidden * PANEL; }
static int64_t forward_blocks(const Lstm *l) { return (l->hidden + UNITS - 1) / UNITS; }

size_t pd_lstm_scratch(const Lstm *l) {
  int64_t floats = forward_blocks(l) * panel_floats(l) + 2 * l->batch * state_row(l);
  return (size_t)floats * sizeof(float);
}

/* to[row] = n numbers from one that is `at` on, zeros behind them; all are, where there is nothing to read. */
static void fill_state(pd_out to, int64_t row, pd_in from, int64_t at, int64_t n) {
  memset(to.at, 0, (size_t)(row * pd_bytes_of(to.type)));
  if (from.at) copy(to, 0, pd_in_from(from, at), n);
}

void pd_lstm_forward(const Lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths, pd_out h,
                     pd_out h_n, pd_out c_n, pd_out c, pd_out gates, void *scratch) {
  int64_t blocks = forward_blocks(l), row = state_row(l), hidden = l->hidden;
  const bool pairs = multiplies_pairs(w, h.type);
  float *panels = scratch;
  const pd_out state = {panels + blocks * panel_floats(l), pairs ? PD_BF16 : PD_F32};
  for (int64_t b = 0; b < l->batch; b++) fill_state(state_at(state, b, row, 0), row, h0, b * hidden, hidden);
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; i++) pack_forward(pairs, l, panels + i * panel_floats(l), w, i * UNITS);
    for (int64_t step = 0; step < l->length; step++) {
      int64_t t = l->reverse ? l->length - 1 - step : step;
      struct pd_lstm_step s = {.l = l,
                               .lengths = lengths,
                               .x = x,
                               .h0 = h0,
                               .c0 = c0,
                               .h = h,
                               .c = c,
                               .gates = gates,
                               .row = row,
                               .t = t,
                               .before = l->reverse ? t + 1 : t - 1};
      s.state = state_at(state, step % 2 * l->batch, row, 0);
      s.next = state_at(state, (step + 1) % 2 * l->batch, row, 0);
#pragma omp for schedule(static)
      for (int64_t i = 0; i < blocks; i++) block_forward(&s, i * UNITS, panels + i * panel_floats(l));
    }
  }
  int64_t last = l->reverse ? 0 : l->length - 1;
  for (int64_t b = 0; b < l->batch; b++) {
    copy(h_n, b * hidden, pd_made(state_at(state, l->length % 2 * l->batch + b, row, 0)), hidden);
    pd_write(c_n, b * hidden, (const float *)c.at + (b * l->length + last) * hidden, hidden); /* both are floats */
  }
}

/* ---- backward --------------------------------------------------------------------------------- */

/* to[part][words of k][unit] = w[k][first + unit of the part] for the rows k of all gates. */
static void pack_backward(bool pairs, const Lstm *l, float *to, pd_in w, int64_t first) {
  const int64_t rows = GATES * l->hidden;
  for (int64_t part = 0; part < UNITS_BACKWARD; part += TILE_BACKWARD, to += words(pairs, rows) * TILE_BACKWARD) {
    int64_t units = smaller(l->hidden - first - part, TILE_BACKWARD);
    if (units <= 0) continue;
    if (pairs) {
      pack_row_pairs(to, rows, TILE_BACKWARD, pd_in_from(w, first + part), l->hidden, rows, units);
      continue;
    }
    for (int64_t k = 0; k < rows; k++) {
      pd_read(to + k * TILE_BACKWARD, w, k * l->hidden + first + part, units);
      for (int64_t j = units; j < TILE_BACKWARD; j++) to[k * TILE_BACKWARD + j] = 0.0f;
    }
  }
}

/* dh[rows][units] = d_gates[rows][k] times the panel, for the parts that there are of UNITS_BACKWARD; in words. */
INLINE void rows_backward_of(bool pairs, float *dh, int64_t rows, const float *d_gates, int64_t row,
                             const float *panel, int64_t k, int64_t units) {
  for (int64_t at = 0; at < units; at += TILE_BACKWARD)
    product_of_rows(pairs, dh + at, UNITS_BACKWARD, rows, ROWS_BACKWARD, VECTORS_BACKWARD, d_gates, row,
                    panel + at * k, k);
}

/* d_gates of k numbers a row, rows `row` apart. */
static void rows_backward(float *dh, int64_t rows, pd_out d_gates, int64_t row, const float *panel, int64_t k,
                          int64_t units) {
  if (PD_PAIRS && d_gates.type == PD_BF16)
    rows_backward_of(true, dh, rows, d_gates.at, words(true, row), panel, words(true, k), units);
  else
    rows_backward_of(false, dh, rows, d_gates.at, row, panel, k, units);
}

/* From dh, the gradient of h, and dc, the gradient of c from later steps, computes d, the gradient of the gates
 * before their functions, and dc, the gradient of the previous state. */
static void cell_backward(const float a[PANEL], const float c[UNITS], const float before[UNITS],
                          const float dh[UNITS], float dc[UNITS], float d[PANEL]) {
  const float *in = a, *forget = a + UNITS, *cell = a + 2 * UNITS, *out = a + 3 * UNITS;
  for (int j = 0; j < UNITS; j++) {
    float t = pd_tanh(c[j]), dc_all = fmaf(dh[j] * out[j], fmaf(-t, t, 1.0f), dc[j]);
    d[j] = dc_all * cell[j] * in[j] * (1.0f - in[j]);
    d[UNITS + j] = dc_all * before[j] * forget[j] * (1.0f - forget[j]);
    d[2 * UNITS + j] = dc_all * in[j] * fmaf(-cell[j], cell[j], 1.0f);
    d[3 * UNITS + j] = dh[j] * t * out[j] * (1.0f - out[j]);
    dc[j] = dc_all * forget[j];
  }
}

struct pd_lstm_back { /* one step of the backward pass; states of d_gates are [batch][row], in bf16 for pairs */
  const Lstm *l;
  const int32_t *lengths;
  pd_in gates, c, h, h0, c0, dh;
  pd_out d_gates, previous, state, next;
  float *carried_h, *carried_c; /* [batch][state_row]: gradients of the state after step t */
  int64_t row, t, before, after;
};

/* h before step t, for the gradient of w. */
static void store_previous(const struct pd_lstm_back *s, int64_t b, int64_t first) {
  const Lstm *l = s->l;
  int64_t n = l->hidden - first, row = b * l->length, hidden = l->hidden, to = (row + s->t) * hidden + first;
  bool over = s->t >= length_of(l, s->lengths, b), from_start = starts(l, s->lengths, b, s->t);
  float h[UNITS];
  if (over || (from_start && !s->h0.at)) {
    zero(s->previous, to, n);
    return;
  }
  if (from_start)
    load(h, s->h0, b * hidden + first, n);
  else
    load(h, s->h, (row + s->before) * hidden + first, n);
  store(s->previous, to, h, n);
}

/* The state's gradient through step `after`, if the sample has this step. */
static void carry(const struct pd_lstm_back *s, int64_t b, int64_t first, const float *through) {
  if (s->after >= 0 && s->after < length_of(s->l, s->lengths, b))
    memcpy(s->carried_h + b * state_row(s->l) + first, through, UNITS * sizeof *through);
}

static void row_backward(const struct pd_lstm_back *s, int64_t b, int64_t first) {
  const Lstm *l = s->l;
  int64_t n = l->hidden - first, hidden = l->hidden;
  int64_t at = (b * l->length + s->t) * hidden + first, gates_at = (b * l->length + s->t) * GATES * hidden + first;
  float a[PANEL], c[UNITS], before[UNITS] = {0}, dh[UNITS], d[PANEL];
  float *dc = s->carried_c + b * state_row(l) + first;
  const pd_out next = state_at(s->next, b, s->row, first);
  store_previous(s, b, first);
  if (s->t >= length_of(l, s->lengths, b)) {
    for (int gate = 0; gate < GATES; gate++) {
      zero(s->d_gates, gates_at + gate * hidden, n);
      zero(next, gate * hidden, n);
    }
    return;
  }
  for (int gate = 0; gate < GATES; gate++) load(a + gate * UNITS, s->gates, gates_at + gate * hidden, n);
  load(c, s->c, at, n);
  if (!starts(l, s->lengths, b, s->t))
    load(before, s->c, (b * l->length + s->before) * hidden + first, n);
  else if (s->c0.at)
    load(before, s->c0, b * hidden + first, n);
  memcpy(dh, s->carried_h + b * state_row(l) + first, sizeof dh);
  if (s->dh.at) {
    float own[UNITS];
    load(own, s->dh, at, n);
    for (int j = 0; j < UNITS; j++) dh[j] += own[j];
  }
  cell_backward(a, c, before, dh, dc, d);
  for (int gate = 0; gate < GATES; gate++) {
    store(s->d_gates, gates_at + gate * hidden, d + gate * UNITS, n);
    store(next, gate * hidden, d + gate * UNITS, n);
  }
}

static void fetch_backward(const struct pd_lstm_back *s, int64_t b, int64_t first) {
  const Lstm *l = s->l;
  int64_t at = (b * l->length + s->t) * l->hidden;
  for (int64_t unit = first; unit < first + UNITS_BACKWARD; unit += UNITS) {
    for (int gate = 0; gate < GATES; gate++) {
      __builtin_prefetch(address(s->gates, GATES * at + gate * l->hidden + unit), 0);
      __builtin_prefetch(address(pd_made(s->d_gates), GATES * at + gate * l->hidden + unit), 1);
    }
    if (s->dh.at) __builtin_prefetch(address(s->dh, at + unit), 0);
    __builtin_prefetch(address(s->c, at + unit), 0);
    __builtin_prefetch(address(pd_made(s->previous), at + unit), 1);
  }
}

static void block_backward(const struct pd_lstm_back *s, int64_t first, const float *panel) {
  const Lstm *l = s->l;
  int64_t tiles = (l->batch + ROWS_BACKWARD - 1) / ROWS_BACKWARD;
  int64_t end_unit = smaller(first + UNITS_BACKWARD, l->hidden);
  for (int64_t i = 0; i < tiles; i++) {
    _Alignas(64) float dh[ROWS_BACKWARD * UNITS_BACKWARD];
    int64_t begin = l->batch * i / tiles, end = l->batch * (i + 1) / tiles;
    for (int64_t b = begin; b < end && s->t >= 0 && s->t < l->length; b++) fetch_backward(s, b, first);
    if (s->after >= 0 && s->after < l->length)
      rows_backward(dh, end - begin, state_at(s->state, begin, s->row, 0), s->row, panel, GATES * l->hidden,
                    end_unit - first);
    for (int64_t b = begin; b < end; b++)
      for (int64_t unit = first; unit < end_unit; unit += UNITS) {
        carry(s, b, unit, dh + (b - begin) * UNITS_BACKWARD + unit - first);
        if (s->t >= 0 && s->t < l->length) row_backward(s, b, unit);
      }
  }
}

static int64_t back_row(const Lstm *l) { return round_up(GATES * l->hidden, UNITS) + PAD; }
static int64_t back_panel_floats(const Lstm *l) { return GATES * l->hidden * UNITS_BACKWARD; }
static int64_t back_blocks(const Lstm *l) { return (l->hidden + UNITS_BACKWARD - 1) / UNITS_BACKWARD; }

size_t pd_lstm_backward_scratch(const Lstm *l) {
  int64_t floats = back_blocks(l) * back_panel_floats(l) + 2 * l->batch * (back_row(l) + state_row(l));
  return (size_t)floats * sizeof(float);
}

static void fill_states(const Lstm *l, float *to, pd_in from) {
  const int64_t row = state_row(l);
  for (int64_t b = 0; b < l->batch; b++)
    fill_state((pd_out){to + b * row, PD_F32}, row, from, b * l->hidden, l->hidden);
}

void pd_lstm_backward(const Lstm *l, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths, pd_in h, pd_in c,
                      pd_in gates, pd_in dh, pd_in dh_n, pd_in dc_n, pd_out d_gates, pd_out previous, pd_out dh0,
                      pd_out dc0, void *scratch) {
  int64_t blocks = back_blocks(l), row = back_row(l), hidden = l->hidden;
  const bool pairs = multiplies_pairs(w, d_gates.type);
  float *panels = scratch, *states = panels + blocks * back_panel_floats(l);
  const pd_out state = {states, pairs ? PD_BF16 : PD_F32};
  float *carried_h = states + 2 * l->batch * row, *carried_c = carried_h + l->batch * state_row(l);
  fill_states(l, carried_h, dh_n);
  fill_states(l, carried_c, dc_n);
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; i++)
      pack_backward(pairs, l, panels + i * back_panel_floats(l), w, i * UNITS_BACKWARD);
    for (int64_t step = 0; step < l->length + (dh0.at != NULL);
         step++) { /* the last call computes only the gradient of h0 */
      int64_t t = l->reverse ? step : l->length - 1 - step, earlier = l->reverse ? 1 : -1;
      struct pd_lstm_back s = {.l = l,
                               .lengths = lengths,
                               .gates = gates,
                               .c = c,
                               .h = h,
                               .h0 = h0,
                               .c0 = c0,
                               .dh = dh,
                               .d_gates = d_gates,
                               .previous = previous,
                               .carried_h = carried_h,
                               .carried_c = carried_c,
                               .row = row,
                               .t = t,
                               .before = t + earlier,
                               .after = t - earlier};
      s.state = state_at(state, step % 2 * l->batch, row, 0);
      s.next = state_at(state, (step + 1) % 2 * l->batch, row, 0);
#pragma omp for schedule(static)
      for (int64_t i = 0; i < blocks; i++)
        block_backward(&s, i * UNITS_BACKWARD, panels + i * back_panel_floats(l));
    }
  }
  for (int64_t b = 0; b < l->batch && dh0.at; b++) {
    pd_write(dh0, b * hidden, carried_h + b * state_row(l), hidden);
    pd_write(dc0, b * hidden, carried_c + b * state_row(l), hidden);
  }
}
