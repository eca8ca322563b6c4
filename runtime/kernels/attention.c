/* Scaled dot-product attention in blocks, after Dao et al., "FlashAttention" (NeurIPS 2022): forward with the
 * softmax computed online, backward from the saved logarithms of the sums. Row i sees a range of keys: those j <= i
 * when causal (as in PyTorch, also where the lengths differ), those nearer than the window, those of its document. The
 * bounds of ranges never fall from row to row, so a block of rows sees a range, too; tiles outside are never computed.
 * A mask is added to the scores of a block of rows; it is -inf where a row sees no key. A row's scores are capped before
 * the mask and the bias. Row i of a bias by distance begins i numbers before that of row 0. A head's sink takes part of
 * each row's sum when all keys are done. One thread does a whole (sample, key head), query heads
 * of a group in order, so that bits do not depend on the number of threads. Gradients of a bias that all samples share are
 * added sample by sample: in place by one thread for each key head, or those by distance from one sum for each sample. All products run in one register tile
 * of ROWS x COLUMNS, whose operands are packed, padded by zeros, into the thread's part of scratch. Where the
 * processor multiplies bf16, operands in bf16 are packed as words of two numbers that are neighbours in the sum
 * (`pairs`); probabilities and the gradients of scores are rounded for that, as in PyTorch's kernels, and sums are
 * floats. */
#define PD_KERNELS
#include "kernels/attention_tiles.h"
#include "pd_kernels.h"

#include <omp.h>

/* ---- a thread's memory ----------------------------------------------------------------------------------- */

/* Scratch memory of one thread; every part is a multiple of 64 bytes. */
struct space {
  int64_t keys, size, value;                            /* padded; value: the size of values */
  int64_t limit;                                        /* first key that no row of the block sees */
  float *k_transposed, *v_transposed, *k, *v, *dk, *dv; /* of the whole key head */
  float *q, *o, *d_o, *dq;                              /* [BLOCK][size] */
  float *p, *ds;                                        /* scores, then probabilities; gradients of scores */
  /* Of pairs, in the room that words leave: words of two rows of q and d_o, as p and ds have them, and of two keys
   * of ds. */
  float *q_rows, *d_o_rows, *ds_keys;
  float *max, *sum, *delta, *lse; /* [BLOCK] */
  float *mask;                    /* of a block: [BLOCK][keys], or [keys] for all rows; NULL: none */
  int64_t mask_row;               /* keys or 0 */
  int32_t *begin, *end;           /* [rows, padded to BLOCK]: the keys of a row's document; NULL: no documents */
  /* Of the head: row i of the bias begins i * bias_row floats behind `bias`, of its gradient i * d_bias_row behind
   * d_bias; NULL: none. */
  const float *bias;
  float *d_bias;
  int64_t bias_row, d_bias_row;
  float *distances; /* [length + keys - 1]: gradients by distance of the head; NULL: not wanted */
  float *numbers;   /* of a bias in bf16: [length + keys - 1] by distance, else [BLOCK][keys] */
};

static float *take(float *base, int64_t *used, int64_t n) {
  int64_t here = *used;
  *used += round_up(n, 16);
  return base ? base + here : NULL;
}

/* Whether rows see different keys, apart from the mask. */
static bool is_ranged(const struct pd_attention *a) { return a->causal || a->window > 0 || a->parted; }

/* Returns the floats taken; base NULL only counts. */
static int64_t lay_out(struct space *s, const struct pd_attention *a, bool backward, float *base) {
  int64_t used = 0;
  const int64_t value_size = pd_attention_value_size(a);
  s->limit = a->kv_length;
  s->keys = round_up(round_up(a->kv_length, 6), UNIT); /* rows of dk and dv in tiles of 6 or 8, columns in UNITs */
  s->size = round_up(a->size, UNIT);
  s->value = round_up(value_size, UNIT);
  s->bias = s->d_bias = s->distances = NULL;
  const int64_t numbers = a->by_distance ? pd_attention_distances(a) : BLOCK * a->kv_length;
  s->numbers = a->biased ? take(base, &used, numbers) : NULL;
  s->k_transposed = take(base, &used, s->keys * a->size);
  s->q = take(base, &used, BLOCK * s->size);
  s->lse = take(base, &used, BLOCK);
  s->mask_row = a->mask.row > 0 || is_ranged(a) ? s->keys : 0;
  s->mask = a->masked ? take(base, &used, s->mask_row ? BLOCK * s->keys : s->keys) : NULL;
  s->begin = a->parted ? (int32_t *)take(base, &used, round_up(a->length, BLOCK)) : NULL;
  s->end = a->parted ? (int32_t *)take(base, &used, round_up(a->length, BLOCK)) : NULL;
  if (backward) {
    s->v_transposed = take(base, &used, s->keys * value_size);
    s->k = take(base, &used, s->keys * s->size);
    s->dk = take(base, &used, s->keys * s->size);
    s->dv = take(base, &used, s->keys * s->value);
    s->d_o = take(base, &used, BLOCK * s->value);
    s->dq = take(base, &used, BLOCK * s->size);
    s->p = take(base, &used, BLOCK * KEYS_BACKWARD);
    s->ds = take(base, &used, BLOCK * KEYS_BACKWARD);
    s->delta = take(base, &used, BLOCK);
    if (a->by_distance && a->bias_gradient) s->distances = take(base, &used, pd_attention_distances(a));
  } else {
    s->v = take(base, &used, s->keys * s->value);
    s->o = take(base, &used, BLOCK * s->value);
    s->p = take(base, &used, BLOCK * KEYS);
    s->max = take(base, &used, BLOCK);
    s->sum = take(base, &used, BLOCK);
  }
  if (base && backward) {
    s->q_rows = s->q + BLOCK * s->size / 2;
    s->d_o_rows = s->d_o + BLOCK * s->value / 2;
    s->ds_keys = s->ds + BLOCK * KEYS_BACKWARD / 2;
  }
  return used;
}

static int64_t thread_floats(const struct pd_attention *a) {
  struct space s;
  int64_t forward = lay_out(&s, a, false, NULL), backward = lay_out(&s, a, true, NULL);
  return forward > backward ? forward : backward;
}

/* Floats before those of threads: gradients of what all samples share, of each sample. */
static int64_t sample_floats(const struct pd_attention *a) {
  const int64_t distances = a->by_distance && a->bias_gradient ? pd_attention_distances(a) : 0;
  return round_up(a->batch * a->heads * (distances + (a->has_sinks ? 1 : 0)), 16);
}

size_t pd_attention_scratch(const struct pd_attention *a, int threads) {
  return ((size_t)thread_floats(a) * (size_t)threads + (size_t)sample_floats(a)) * sizeof(float);
}

/* ---- keys that rows see -------------------------------------------------------------------------------- */

/* A document is a run of equal numbers. Rows after the last repeat it. */
static void find_documents(const struct pd_attention *a, struct space *s, const int32_t *number) {
  const int64_t n = a->length, rows = round_up(n, BLOCK);
  for (int64_t i = 0; i < n; i++) s->begin[i] = i && number[i] == number[i - 1] ? s->begin[i - 1] : (int32_t)i;
  for (int64_t i = n - 1; i >= 0; i--)
    s->end[i] = i + 1 < n && number[i] == number[i + 1] ? s->end[i + 1] : (int32_t)(i + 1);
  for (int64_t i = n; i < rows; i++) s->begin[i] = s->begin[n - 1], s->end[i] = s->end[n - 1];
}

/* The first key that row i sees, and the key after the last, among those that the mask leaves. */
static inline int64_t first_key(const struct pd_attention *a, const struct space *s, int64_t i) {
  const int64_t first = a->window > 0 ? larger(i - a->window + 1, 0) : 0;
  return s->begin ? larger(first, s->begin[i]) : first;
}
static inline int64_t end_key(const struct pd_attention *a, const struct space *s, int64_t i) {
  const int64_t end = a->causal       ? smaller(i + 1, s->limit)
                      : a->window > 0 ? smaller(i + a->window, s->limit)
                                      : s->limit;
  return s->end ? smaller(end, s->end[i]) : end;
}

/* Whether some of ROWS rows from i on see some of the keys from `key` to before `end`. */
static inline bool sees(const struct pd_attention *a, const struct space *s, int64_t i, int64_t key, int64_t end) {
  return end_key(a, s, i + ROWS - 1) > key && first_key(a, s, i) < end;
}

static void hide(float *p, int64_t n) {
  for (int64_t j = 0; j < n; j++) p[j] = -INFINITY;
}

/* The mask of query rows first .. first + BLOCK, repeating the last row, of the keys whose tiles they read; limits keys to
 * those that a row sees. */
static void pack_mask(const struct pd_attention *a, struct space *s, pd_in mask, int64_t first) {
  int64_t limit = 0;
  s->limit = a->kv_length;
  const int64_t low = larger(first_key(a, s, first) - ROWS, 0) / COLUMNS * COLUMNS;
  const int64_t high = smaller(round_up(end_key(a, s, first + BLOCK - 1) + ROWS, COLUMNS), s->keys);
  for (int64_t r = 0; r < (s->mask_row ? BLOCK : 1); r++) {
    int64_t i = smaller(first + r, a->length - 1), from = first_key(a, s, i), end = end_key(a, s, i);
    float *to = s->mask + r * s->mask_row;
    pd_read(to + from, mask, i * a->mask.row + from, end - from);
    for (int64_t j = from; j < end; j++) to[j] = to[j] <= PD_ATTENTION_HIDDEN ? -INFINITY : to[j];
    hide(to + low, from - low);
    hide(to + end, high - end);
    while (end > larger(limit, from) && to[end - 1] == -INFINITY) end--;
    limit = end > from ? larger(limit, end) : limit;
  }
  s->limit = limit;
}

/* ---- forward ------------------------------------------------------------------------------------------- */

/* The rule of a row's scores, for keys from `hidden` to before `seen`. */
struct rule {
  int64_t hidden, seen;
  const float *mask; /* NULL: none */
  const float *bias; /* NULL: none; not read for other keys */
  float *d_bias;     /* NULL: not wanted */
  float scale, softcap;
};

/* Whether scores are more than scaled products of the first keys. */
static inline bool is_general(const struct rule *r, int64_t first) {
  return r->mask || r->bias || r->softcap > 0 || r->hidden > first;
}

/* Products with keys first .. n become scores, -inf for keys that the row does not see. */
static void general_scores(float *p, int64_t first, int64_t n, const struct rule *r) {
  const float inside = r->scale / r->softcap, softcap = r->softcap, scale = softcap > 0 ? 1.0f : r->scale;
  for (int64_t j = first; j < n && softcap > 0; j++) p[j] = softcap * pd_tanh(p[j] * inside);
  if (r->mask)
    for (int64_t j = first; j < n; j++) p[j] = fmaf(p[j], scale, r->mask[j]);
  else
    for (int64_t j = first; j < n; j++) p[j] = j < r->seen ? p[j] * scale : -INFINITY;
  hide(p + first, smaller(r->hidden, n) - first);
  const int64_t end = smaller(r->seen, n);
  if (r->bias)
    for (int64_t j = larger(r->hidden, first); j < end; j++) p[j] += r->bias[j];
}

/* The same of scaled products of the first keys; returns the largest score in lanes. */
static inline void scores(float *p, int64_t first, int64_t n, int64_t seen, float scale, float *lane) {
  for (int64_t j = first; j < n; j += PD_LANES) {
    const int count = (int)smaller(seen - j, PD_LANES);
    for (int l = 0; l < PD_LANES; l++) {
      const float x = l < count ? p[j + l] * scale : -INFINITY;
      p[j + l] = x;
      lane[l] = pd_max(lane[l], x);
    }
  }
}

/* One row's products with keys first .. n (multiples of PD_LANES): replaces p by exp(score - max), raises the row's
 * maximum, and returns the factor for earlier sums. Loops over lanes have a constant length, without remainders. */
static float soften(float *p, int64_t first, int64_t n, const struct rule *r, float *row_max, float *row_sum) {
  float lane[PD_LANES];
  for (int l = 0; l < PD_LANES; l++) lane[l] = -INFINITY;
  if (is_general(r, first)) {
    general_scores(p, first, n, r);
    for (int64_t j = first; j < n; j += PD_LANES)
      for (int l = 0; l < PD_LANES; l++) lane[l] = pd_max(lane[l], p[j + l]);
  } else {
    scores(p, first, n, r->seen, r->scale, lane);
  }
  float max = pd_max(*row_max, pd_lanes_max(lane));
  float factor = *row_max == -INFINITY ? 0.0f : pd_exp(*row_max - max);
  float top = max == -INFINITY ? 0.0f : max; /* a mask may hide all keys so far */
  for (int64_t j = first; j < n; j += PD_LANES)
    for (int l = 0; l < PD_LANES; l++) p[j + l] = pd_exp(p[j + l] - top);
  vector sum = {0};
  for (int64_t j = first; j < n; j += PD_LANES) sum += *(const vector *)(p + j);
  memcpy(lane, &sum, sizeof lane);
  *row_max = max;
  *row_sum = fmaf(*row_sum, factor, pd_lanes_sum(lane));
  return factor;
}

static void multiply_row(float *x, float factor, int64_t n) {
  for (int64_t j = 0; j < n; j++) x[j] *= factor;
}

/* Row i of the block from `first` on; keys count from `key`. */
static inline struct rule rule_of(const struct pd_attention *a, const struct space *s, int64_t first, int64_t i,
                                  int64_t key) {
  const int64_t row = smaller(first + i, a->length - 1);
  return (struct rule){.hidden = first_key(a, s, first + i) - key,
                       .seen = end_key(a, s, first + i) - key,
                       .mask = s->mask ? s->mask + i * s->mask_row + key : NULL,
                       .bias = s->bias ? s->bias + row * s->bias_row + key : NULL,
                       .d_bias = s->d_bias && row == first + i ? s->d_bias + row * s->d_bias_row + key : NULL,
                       .scale = a->scale,
                       .softcap = a->softcap};
}

/* Query rows first .. first + rows against all the keys they see: o, max and sum of the block. */
INLINE void forward_block(bool pairs, const struct pd_attention *a, struct space *s, int64_t first, int64_t rows) {
  const int64_t limit = end_key(a, s, first + rows - 1), begin = first_key(a, s, first) / KEYS * KEYS;
  const int64_t depth = words(pairs, a->size), width = words(pairs, s->size);
  const int64_t value_size = pd_attention_value_size(a);
  memset(s->o, 0, (size_t)(BLOCK * s->value) * sizeof *s->o);
  for (int r = 0; r < BLOCK; r++) s->max[r] = -INFINITY, s->sum[r] = 0;
  for (int64_t key = begin; key < limit; key += KEYS) {
    for (int64_t c = 0; c < KEYS && key + c < limit; c += COLUMNS)
      for (int64_t r = 0; r < rows; r += ROWS)
        if (sees(a, s, first + r, key + c, key + c + COLUMNS))
          (pairs ? pairs_set : floats_set)(s->p + r * KEYS + c, KEYS, s->q + r * width, width, 1,
                                           s->k_transposed + (key + c) * depth, COLUMNS, depth);
    for (int64_t r = 0; r < rows; r += ROWS) {
      const int64_t last = smaller(end_key(a, s, first + r + ROWS - 1) - key, KEYS), n = round_up(last, PD_LANES);
      const int64_t low = larger(first_key(a, s, first + r) - key, 0) / PD_LANES * PD_LANES;
      if (last <= low) continue;
      for (int64_t i = r; i < r + ROWS; i++) {
        const struct rule rule = rule_of(a, s, first, i, key);
        float factor = soften(s->p + i * KEYS, low, n, &rule, s->max + i, s->sum + i);
        if (key > begin) multiply_row(s->o + i * s->value, factor, s->value);
        for (int64_t j = low; j < n && pairs; j += PD_LANES)
          make_words(s->p + i * KEYS + j / 2, s->p + i * KEYS + j);
      }
      for (int64_t c = 0; c < value_size; c += COLUMNS)
        (pairs ? pairs_add : floats_add)(s->o + r * s->value + c, s->value, s->p + r * KEYS + words(pairs, low),
                                         KEYS, 1, s->v + words(pairs, key + low) * s->value + c, s->value,
                                         words(pairs, last - low));
    }
  }
}

struct forward { /* what the forward pass reads and writes */
  pd_in q, k, v, mask;
  const int32_t *documents;
  pd_in bias, sinks; /* at NULL: none */
  pd_out o, lse;
};

/* The bias of a block of rows of one sample's head. */
static void find_bias(const struct pd_attention *a, struct space *s, pd_in bias, int64_t b, int64_t h,
                      int64_t first) {
  const int64_t at = b * a->bias.batch + h * a->bias.head, keys = a->kv_length;
  const float *numbers = bias.type == PD_F32 ? (const float *)bias.at + at : s->numbers;
  if (!bias.at) return;
  s->bias = a->by_distance ? numbers + a->length - 1 : numbers;
  s->bias_row = a->by_distance ? -1 : a->bias.row;
  if (bias.type == PD_F32) return;
  if (a->by_distance) {
    pd_read(s->numbers, bias, at, pd_attention_distances(a));
    return;
  }
  s->bias = s->numbers - first * keys;
  s->bias_row = keys;
  for (int64_t i = first; i < smaller(first + BLOCK, a->length); i++)
    pd_read(s->numbers + (i - first) * keys, bias, at + i * a->bias.row, keys);
}

/* A head's sink; returns false if there is none. */
static bool read_sink(const struct pd_attention *a, pd_in sinks, int64_t b, int64_t h, float *sink) {
  if (sinks.at) pd_read(sink, sinks, b * a->sinks.batch + h, 1);
  return sinks.at != NULL;
}

/* Replaces a row's maximum and sum by those with the sink; returns the factor of what was summed. */
static float add_sink(const float *sink, float *max, float *sum) {
  const float top = sink ? pd_max(*max, *sink) : *max;
  if (!sink || top == -INFINITY) return 1.0f;
  const float factor = pd_exp(*max - top);
  *sum = fmaf(*sum, factor, pd_exp(*sink - top));
  *max = top;
  return factor;
}

/* Results of rows first .. first + rows of a head. A row that sees no key has the sum 0 without a sink: zeros, and
 * probabilities of 0 in the backward pass. */
static void finish_rows(const struct pd_attention *a, struct space *s, const struct forward *x, int64_t b,
                        int64_t h, int64_t first, int64_t rows) {
  float own;
  const float *sink = read_sink(a, x->sinks, b, h, &own) ? &own : NULL;
  const int64_t value_size = pd_attention_value_size(a);
  for (int64_t r = 0; r < rows; r++) {
    float *row = s->o + r * s->value, factor = add_sink(sink, s->max + r, s->sum + r);
    const float inverse = s->sum[r] == 0 ? 0.0f : factor / s->sum[r];
    for (int64_t j = 0; j < value_size; j++) row[j] *= inverse;
    pd_write(x->o, b * a->o.batch + h * a->o.head + (first + r) * a->o.row, row, value_size);
  }
  for (int64_t r = 0; r < BLOCK; r++) s->lse[r] = s->sum[r] == 0 ? INFINITY : s->max[r] + pd_log(s->sum[r]);
  pd_write(x->lse, (b * a->heads + h) * a->length + first, s->lse, rows);
}

/* One key head, kv, of sample b. */
INLINE void forward_head(bool pairs, const struct pd_attention *a, const struct forward *x, int64_t b, int64_t kv,
                         float *scratch) {
  const int64_t group = a->heads / a->kv_heads, value_size = pd_attention_value_size(a);
  const pd_in v = pd_in_from(x->v, b * a->v.batch + kv * a->v.head);
  struct space s;
  lay_out(&s, a, false, scratch);
  if (a->parted) find_documents(a, &s, x->documents + b * a->documents.batch);
  pack_transposed(pairs, s.k_transposed, s.keys, pd_in_from(x->k, b * a->k.batch + kv * a->k.head), a->k.row,
                  a->kv_length, a->size);
  if (pairs)
    pack_row_pairs(s.v, s.keys, s.value, v, a->v.row, a->kv_length, value_size);
  else
    pack(pairs, s.v, s.keys, s.value, v, a->v.row, a->kv_length, value_size);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    for (int64_t first = 0; first < a->length; first += BLOCK) {
      int64_t rows = smaller(a->length - first, BLOCK);
      int64_t at = b * a->q.batch + h * a->q.head + first * a->q.row;
      pack(pairs, s.q, BLOCK, s.size, pd_in_from(x->q, at), a->q.row, rows, a->size);
      if (a->masked) pack_mask(a, &s, pd_in_from(x->mask, b * a->mask.batch), first);
      find_bias(a, &s, x->bias, b, h, first);
      forward_block(pairs, a, &s, first, rows);
      finish_rows(a, &s, x, b, h, first, rows);
    }
  }
}

static bool all_bf16(const pd_in *x, int n) {
  for (int i = 0; i < n; i++)
    if (x[i].type != PD_BF16) return false;
  return true;
}

static void forward(const struct pd_attention *a, const struct forward *x, void *scratch) {
  const int64_t space_floats = thread_floats(a);
  const bool pairs = PD_PAIRS && all_bf16((pd_in[]){x->q, x->k, x->v}, 3);
#pragma omp parallel for
  for (int64_t item = 0; item < a->batch * a->kv_heads; item++) {
    float *own = (float *)scratch + omp_get_thread_num() * space_floats;
    if (PD_PAIRS && pairs)
      forward_head(true, a, x, item / a->kv_heads, item % a->kv_heads, own);
    else
      forward_head(false, a, x, item / a->kv_heads, item % a->kv_heads, own);
  }
}

void pd_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_out o, pd_out lse,
                          void *scratch) {
  forward(a, &(struct forward){.q = q, .k = k, .v = v, .o = o, .lse = lse}, scratch);
}

void pd_masked_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask,
                                 const int32_t *documents, pd_out o, pd_out lse, void *scratch) {
  forward(a, &(struct forward){.q = q, .k = k, .v = v, .mask = mask, .documents = documents, .o = o, .lse = lse},
          scratch);
}

void pd_biased_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask,
                                 const int32_t *documents, pd_in bias, pd_in sinks, pd_out o, pd_out lse,
                                 void *scratch) {
  forward(a, &(struct forward){q, k, v, mask, documents, bias, sinks, o, lse}, scratch);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* The sum of x[j] y[j], in lanes. */
static float dot(pd_in x, pd_in y, int64_t n) {
  float lane[PD_LANES] = {0}, part[PD_LANES], other[PD_LANES];
  for (int64_t j = 0; j < n; j += PD_LANES) {
    int count = (int)smaller(n - j, PD_LANES);
    pd_read(part, x, j, count);
    pd_read(other, y, j, count);
    for (int l = 0; l < count; l++) lane[l] = fmaf(part[l], other[l], lane[l]);
  }
  return pd_lanes_sum(lane);
}

/* A tile's row of products p becomes probabilities, the row of products ds gradients of scores. All tiles of a row take
 * the same way, whose rounding differs from that of general_gradients(). */
static void row_gradients(float *p, float *ds, int hidden, int seen, float scale, float lse, float delta) {
  for (int j = 0; j < COLUMNS; j++) {
    const float e = pd_exp(fmaf(p[j], scale, -lse));
    p[j] = j >= hidden && j < seen ? e : 0.0f;
    ds[j] = p[j] * (ds[j] - delta) * scale;
  }
}

/* The same of scores by any rule; softcap * tanh(x / softcap) has the slope 1 - tanh^2. */
static void general_gradients(float *p, float *ds, const struct rule *r, float lse, float delta) {
  const float inside = r->scale / r->softcap, softcap = r->softcap;
  float slope[COLUMNS];
  for (int j = 0; j < COLUMNS; j++) slope[j] = r->scale;
  for (int j = 0; j < COLUMNS && softcap > 0; j++) {
    const float t = pd_tanh(p[j] * inside);
    slope[j] *= fmaf(-t, t, 1.0f);
  }
  general_scores(p, 0, COLUMNS, r);
  for (int j = 0; j < COLUMNS; j++) {
    p[j] = pd_exp(p[j] - lse);
    ds[j] = p[j] * (ds[j] - delta);
  }
  const int64_t end = smaller(r->seen, COLUMNS);
  for (int64_t j = larger(r->hidden, 0); r->d_bias && j < end; j++) r->d_bias[j] += ds[j];
  for (int j = 0; j < COLUMNS; j++) ds[j] *= slope[j];
}

/* Probabilities and gradients of scores of one tile, rows from r, columns from c of the key block. */
INLINE void backward_scores(bool pairs, const struct pd_attention *a, struct space *s, int64_t first, int64_t key,
                            int64_t r, int64_t c) {
  const int64_t depth = words(pairs, a->size), width = words(pairs, s->size),
                value_depth = words(pairs, pd_attention_value_size(a)), value_width = words(pairs, s->value),
                row = pairs ? COLUMNS : KEYS_BACKWARD;
  _Alignas(64) float own[2][ROWS * COLUMNS];
  float *p = pairs ? own[0] : s->p + r * KEYS_BACKWARD + c, *ds = pairs ? own[1] : s->ds + r * KEYS_BACKWARD + c;
  (pairs ? pairs_set : floats_set)(p, row, s->q + r * width, width, 1, s->k_transposed + (key + c) * depth,
                                   COLUMNS, depth);
  (pairs ? pairs_set : floats_set)(ds, row, s->d_o + r * value_width, value_width, 1,
                                   s->v_transposed + (key + c) * value_depth, COLUMNS, value_depth);
  for (int i = 0; i < ROWS; i++, p += row, ds += row) {
    const struct rule rule = rule_of(a, s, first, r + i, key + c);
    if (rule.mask || rule.bias || rule.softcap > 0)
      general_gradients(p, ds, &rule, s->lse[r + i], s->delta[r + i]);
    else
      row_gradients(p, ds, (int)smaller(larger(rule.hidden, 0), COLUMNS), (int)smaller(rule.seen, COLUMNS),
                    rule.scale, s->lse[r + i], s->delta[r + i]);
  }
  for (int i = 0; pairs && i < ROWS * COLUMNS; i += PD_LANES) {
    const int64_t at = r + i / COLUMNS, column = c + i % COLUMNS;
    make_words(s->ds_keys + (at * KEYS_BACKWARD + column) / 2, own[1] + i);
    if (at % 2) continue;
    make_row_words(s->p + at / 2 * KEYS_BACKWARD + column, own[0] + i, own[0] + i + COLUMNS);
    make_row_words(s->ds + at / 2 * KEYS_BACKWARD + column, own[1] + i, own[1] + i + COLUMNS);
  }
}

/* Adds the contributions of query rows begin .. end for keys key .. key + keys to dk and dv from row j of the key
 * block. */
INLINE void add_to_keys(bool pairs, const struct pd_attention *a, struct space *s, int64_t key, int64_t j,
                        int64_t begin, int64_t end) {
  const int64_t from = words(pairs, begin), k = words(pairs, end - begin);
  const float *q = pairs ? s->q_rows : s->q, *d_o = pairs ? s->d_o_rows : s->d_o;
  for (int64_t c = 0; c < pd_attention_value_size(a); c += COLUMNS)
    (pairs ? pairs_add : floats_add)(s->dv + (key + j) * s->value + c, s->value, s->p + from * KEYS_BACKWARD + j,
                                     1, KEYS_BACKWARD, d_o + from * s->value + c, s->value, k);
  for (int64_t c = 0; c < a->size; c += COLUMNS)
    (pairs ? pairs_add : floats_add)(s->dk + (key + j) * s->size + c, s->size, s->ds + from * KEYS_BACKWARD + j, 1,
                                     KEYS_BACKWARD, q + from * s->size + c, s->size, k);
}

/* Query rows first .. first + rows: computes dq of the block, and adds their contributions to dk and dv. */
INLINE void backward_block(bool pairs, const struct pd_attention *a, struct space *s, int64_t first,
                           int64_t rows) {
  const int64_t limit = end_key(a, s, first + rows - 1), padded = round_up(rows, ROWS);
  const int64_t width = words(pairs, KEYS_BACKWARD);
  const float *by_keys = pairs ? s->ds_keys : s->ds;
  memset(s->dq, 0, (size_t)(BLOCK * s->size) * sizeof *s->dq);
  for (int64_t key = first_key(a, s, first) / KEYS_BACKWARD * KEYS_BACKWARD; key < limit; key += KEYS_BACKWARD) {
    int64_t keys = smaller(limit - key, KEYS_BACKWARD);
    for (int64_t c = 0; c < round_up(keys, ROWS); c += COLUMNS) {
      /* the keys that rows of dk and dv with keys of this tile add up */
      const int64_t from = key + c / ROWS * ROWS, end = key + (c + COLUMNS - 1) / ROWS * ROWS + ROWS;
      for (int64_t r = 0; r < rows; r += ROWS)
        if (sees(a, s, first + r, from, end)) backward_scores(pairs, a, s, first, key, r, c);
    }
    for (int64_t j = 0; j < keys; j += ROWS) {
      int64_t begin = 0, end = padded;
      while (begin < end && end_key(a, s, first + begin + ROWS - 1) <= key + j) begin += ROWS;
      while (begin < end && first_key(a, s, first + end - ROWS) >= key + j + ROWS) end -= ROWS;
      if (begin < end) add_to_keys(pairs, a, s, key, j, begin, end);
    }
    for (int64_t r = 0; r < rows; r += ROWS) {
      const int64_t last = smaller(end_key(a, s, first + r + ROWS - 1) - key, KEYS_BACKWARD);
      const int64_t low = larger(first_key(a, s, first + r) - key, 0) / 2 * 2; /* whole words */
      for (int64_t c = 0; c < a->size && last > low; c += COLUMNS)
        (pairs ? pairs_add : floats_add)(s->dq + r * s->size + c, s->size, by_keys + r * width + words(pairs, low),
                                         width, 1, s->k + words(pairs, key + low) * s->size + c, s->size,
                                         words(pairs, last - low));
    }
  }
}

static void unpack(pd_out to, int64_t row, const float *from, int64_t padded, int64_t n, int64_t size) {
  for (int64_t i = 0; i < n; i++) pd_write(to, i * row, from + i * padded, size);
}

struct backward { /* what the backward pass reads and writes */
  pd_in q, k, v, o, lse, d_o, mask;
  const int32_t *documents;
  pd_in bias, sinks; /* at NULL: none */
  pd_out dq, dk, dv;
  float *d_bias, *d_sinks; /* NULL: not wanted */
  float *by_sample;        /* of sample_floats(): gradients by distance, then of sinks */
};

/* Loads rows first .. first + rows of query head h, and their gradients. */
INLINE void backward_rows(bool pairs, const struct pd_attention *a, struct space *s, const struct backward *x,
                          int64_t b, int64_t h, int64_t first) {
  int64_t rows = smaller(a->length - first, BLOCK), lse = (b * a->heads + h) * a->length + first;
  const int64_t value_size = pd_attention_value_size(a);
  const pd_in q = pd_in_from(x->q, b * a->q.batch + h * a->q.head + first * a->q.row);
  const pd_in o = pd_in_from(x->o, b * a->o.batch + h * a->o.head + first * a->o.row);
  const pd_in d_o = pd_in_from(x->d_o, b * a->d_o.batch + h * a->d_o.head + first * a->d_o.row);
  pack(pairs, s->q, BLOCK, s->size, q, a->q.row, rows, a->size);
  pack(pairs, s->d_o, BLOCK, s->value, d_o, a->d_o.row, rows, value_size);
  if (pairs) {
    pack_row_pairs(s->q_rows, BLOCK, s->size, q, a->q.row, rows, a->size);
    pack_row_pairs(s->d_o_rows, BLOCK, s->value, d_o, a->d_o.row, rows, value_size);
  }
  for (int64_t r = 0; r < BLOCK; r++) {
    s->lse[r] = INFINITY;
    s->delta[r] = r < rows ? dot(pd_in_from(o, r * a->o.row), pd_in_from(d_o, r * a->d_o.row), value_size) : 0.0f;
  }
  pd_read(s->lse, x->lse, lse, rows);
  if (a->masked) pack_mask(a, s, pd_in_from(x->mask, b * a->mask.batch), first);
  backward_block(pairs, a, s, first, rows);
  unpack(pd_out_from(x->dq, b * a->dq.batch + h * a->dq.head + first * a->dq.row), a->dq.row, s->dq, s->size, rows,
         a->size);
}

/* Sets the place of the head's bias gradients, and clears it unless an earlier sample has added to it. */
static void begin_d_bias(const struct pd_attention *a, struct space *s, float *d_bias, int64_t b, int64_t h) {
  float *to = d_bias + b * a->d_bias.batch + h * a->d_bias.head;
  s->d_bias = a->by_distance ? s->distances + a->length - 1 : to;
  s->d_bias_row = a->by_distance ? -1 : a->d_bias.row;
  if (a->by_distance)
    memset(s->distances, 0, (size_t)pd_attention_distances(a) * sizeof *to);
  else if (b == 0 || a->d_bias.batch)
    for (int64_t i = 0; i < a->length; i++) memset(to + i * a->d_bias.row, 0, (size_t)a->kv_length * sizeof *to);
}

/* A block's part of the gradient of the head's sink, whose probability in a row is exp(sink - lse). */
static float sink_gradient(const struct pd_attention *a, const struct space *s, float sink, int64_t first) {
  float sum = 0;
  for (int64_t r = 0; r < smaller(a->length - first, BLOCK); r++)
    sum = fmaf(-pd_exp(sink - s->lse[r]), s->delta[r], sum);
  return sum;
}

/* Stores a head's gradients of its sink and by distance: as results if each sample has its own. */
static void keep_shared(const struct pd_attention *a, const struct space *s, const struct backward *x,
                        float d_sink, int64_t b, int64_t h) {
  const int64_t n = pd_attention_distances(a), head = b * a->heads + h;
  float *sinks = x->by_sample;
  if (x->d_bias && a->by_distance) {
    float *own = x->by_sample + head * n, *to = x->d_bias + b * a->d_bias.batch + h * a->d_bias.head;
    memcpy(a->d_bias.batch ? to : own, s->distances, (size_t)n * sizeof *to);
    sinks += a->batch * a->heads * n;
  }
  if (x->d_sinks) *(a->d_sinks.batch ? x->d_sinks + b * a->d_sinks.batch + h : sinks + head) = d_sink;
}

/* One key head, kv, of sample b. */
INLINE void backward_head(bool pairs, const struct pd_attention *a, const struct backward *x, int64_t b,
                          int64_t kv, float *scratch) {
  const int64_t group = a->heads / a->kv_heads, value_size = pd_attention_value_size(a);
  const pd_in k = pd_in_from(x->k, b * a->k.batch + kv * a->k.head);
  const pd_in v = pd_in_from(x->v, b * a->v.batch + kv * a->v.head);
  struct space s;
  lay_out(&s, a, true, scratch);
  if (a->parted) find_documents(a, &s, x->documents + b * a->documents.batch);
  pack_transposed(pairs, s.k_transposed, s.keys, k, a->k.row, a->kv_length, a->size);
  pack_transposed(pairs, s.v_transposed, s.keys, v, a->v.row, a->kv_length, value_size);
  if (pairs)
    pack_row_pairs(s.k, s.keys, s.size, k, a->k.row, a->kv_length, a->size);
  else
    pack(pairs, s.k, s.keys, s.size, k, a->k.row, a->kv_length, a->size);
  memset(s.dk, 0, (size_t)(s.keys * s.size) * sizeof *s.dk);
  memset(s.dv, 0, (size_t)(s.keys * s.value) * sizeof *s.dv);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    float d_sink = 0, sink = 0;
    read_sink(a, x->sinks, b, h, &sink);
    if (x->d_bias) begin_d_bias(a, &s, x->d_bias, b, h);
    for (int64_t first = 0; first < a->length; first += BLOCK) {
      find_bias(a, &s, x->bias, b, h, first);
      backward_rows(pairs, a, &s, x, b, h, first);
      if (x->d_sinks) d_sink += sink_gradient(a, &s, sink, first);
    }
    keep_shared(a, &s, x, d_sink, b, h);
  }
  unpack(pd_out_from(x->dk, b * a->dk.batch + kv * a->dk.head), a->dk.row, s.dk, s.size, a->kv_length, a->size);
  unpack(pd_out_from(x->dv, b * a->dv.batch + kv * a->dv.head), a->dv.row, s.dv, s.value, a->kv_length,
         value_size);
}

/* Whether the samples of a head follow one another in a thread, and add to one gradient of the bias. */
static bool adds_samples(const struct pd_attention *a, const struct backward *x) {
  return x->d_bias && !a->by_distance && a->d_bias.batch == 0;
}

/* Sums over samples, in their order, of gradients that each has. */
static void add_samples(const struct pd_attention *a, const struct backward *x) {
  const int64_t n = pd_attention_distances(a), heads = a->heads;
  const bool by_distance = x->d_bias && a->by_distance;
  const float *sinks = x->by_sample + (by_distance ? a->batch * heads * n : 0);
  for (int64_t h = 0; h < heads && by_distance && a->d_bias.batch == 0; h++) {
    float *to = x->d_bias + h * a->d_bias.head;
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t b = 0; b < a->batch; b++)
      for (int64_t j = 0; j < n; j++) to[j] += x->by_sample[(b * heads + h) * n + j];
  }
  for (int64_t h = 0; h < heads && x->d_sinks && a->d_sinks.batch == 0; h++) {
    x->d_sinks[h] = 0;
    for (int64_t b = 0; b < a->batch; b++) x->d_sinks[h] += sinks[b * heads + h];
  }
}

static void backward(const struct pd_attention *a, struct backward *x, void *scratch) {
  const int64_t space_floats = thread_floats(a), together = adds_samples(a, x) ? a->batch : 1;
  const bool pairs = PD_PAIRS && all_bf16((pd_in[]){x->q, x->k, x->v, x->d_o}, 4);
  x->by_sample = scratch;
  scratch = x->by_sample + sample_floats(a);
#pragma omp parallel for
  for (int64_t item = 0; item < a->batch / together * a->kv_heads; item++) {
    float *own = (float *)scratch + omp_get_thread_num() * space_floats;
    for (int64_t b = item / a->kv_heads; b < item / a->kv_heads + together; b++)
      if (PD_PAIRS && pairs)
        backward_head(true, a, x, b, item % a->kv_heads, own);
      else
        backward_head(false, a, x, b, item % a->kv_heads, own);
  }
  if (x->d_bias || x->d_sinks) add_samples(a, x);
}

void pd_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse, pd_in d_o,
                           pd_out dq, pd_out dk, pd_out dv, void *scratch) {
  backward(
      a, &(struct backward){.q = q, .k = k, .v = v, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dk = dk, .dv = dv},
      scratch);
}

void pd_masked_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, const int32_t *documents, pd_out dq, pd_out dk, pd_out dv,
                                  void *scratch) {
  backward(a,
           &(struct backward){.q = q,
                              .k = k,
                              .v = v,
                              .o = o,
                              .lse = lse,
                              .d_o = d_o,
                              .mask = mask,
                              .documents = documents,
                              .dq = dq,
                              .dk = dk,
                              .dv = dv},
           scratch);
}

void pd_biased_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, const int32_t *documents, pd_in bias, pd_in sinks,
                                  pd_out dq, pd_out dk, pd_out dv, float *d_bias, float *d_sinks, void *scratch) {
  backward(
      a, &(struct backward){q, k, v, o, lse, d_o, mask, documents, bias, sinks, dq, dk, dv, d_bias, d_sinks, NULL},
      scratch);
}
