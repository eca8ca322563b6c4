/* Scaled dot-product attention in blocks, after Dao et al., "FlashAttention" (NeurIPS 2022): forward with the
 * softmax computed online, backward from the saved logarithms of the sums. Row i sees the keys j <= i when causal
 * (as in PyTorch, also where the lengths differ); blocks beyond are never computed. A mask is added to the scores
 * of a block of rows; it is -inf where a row sees no key. One thread does a whole (sample, key head), query heads
 * of a group in order, so that bits do not depend on the number of threads. All products run in one register tile
 * of ROWS x COLUMNS, whose operands are packed, padded by zeros, into the thread's part of scratch. Where the
 * processor multiplies bf16, operands in bf16 are packed as words of two numbers that are neighbours in the sum
 * (`pairs`); probabilities and the gradients of scores are rounded for that, as in PyTorch's kernels, and sums are
 * floats. */
#define PD_KERNELS
#include "kernels/pd_words.h"
#include "pd_runtime.h"

#include <omp.h>

#if PD_VECTORS == 32
enum { ROWS = 8, VECTORS = 2 }; /* of the register tile */
#else
enum { ROWS = 6, VECTORS = 1 };
#endif
enum {
  COLUMNS = VECTORS * PD_LANES,
  UNIT = 32,         /* padding of keys and sizes, for every tile */
  BLOCK = 48,        /* query rows at a time */
  KEYS = 128,        /* keys at a time, forward */
  KEYS_BACKWARD = 96 /* like BLOCK a multiple of any ROWS, and of UNIT */
};

/* c[ROWS][COLUMNS] = (add: +=) a[ROWS][k] b[k][COLUMNS], of words k of them */
INLINE void tile(bool pairs, bool add, float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k,
                 const float *b, int64_t b_k, int64_t k) {
  vector sum[ROWS * VECTORS] = {{0}};
  for (int r = 0; add && r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) sum[r * VECTORS + v] = *(vector *)(c + r * c_row + v * PD_LANES);
  if (pairs)
    multiply_pairs(sum, ROWS, VECTORS, a, a_row, a_k, b, b_k, k);
  else
    multiply_tile(sum, ROWS, VECTORS, a, a_row, a_k, b, b_k, k);
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) *(vector *)(c + r * c_row + v * PD_LANES) = sum[r * VECTORS + v];
}

#define DEFINE_TILE(name, pairs, add)                                                                   \
  static void name(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k, const float *b, \
                   int64_t b_k, int64_t k) {                                                            \
    tile(pairs, add, c, c_row, a, a_row, a_k, b, b_k, k);                                               \
  }
DEFINE_TILE(floats_set, false, false)
DEFINE_TILE(floats_add, false, true)
DEFINE_TILE(pairs_set, true, false)
DEFINE_TILE(pairs_add, true, true)

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
/* ---- packing ------------------------------------------------------------------------------------------- */

/* to[rows][padded] = from[n][size], zeros around; in words. */
INLINE void pack(bool pairs, float *to, int64_t rows, int64_t padded, pd_in from, int64_t row, int64_t n,
                 int64_t size) {
  const int64_t width = words(pairs, padded);
  for (int64_t i = 0; i < n; i++) {
    float *at = to + i * width;
    if (pairs) {
      memcpy(at, (const pd_bf16 *)from.at + i * row, (size_t)size * sizeof(pd_bf16));
      memset((pd_bf16 *)at + size, 0, (size_t)(padded - size) * sizeof(pd_bf16));
      continue;
    }
    pd_read(at, from, i * row, size);
    for (int64_t j = size; j < padded; j++) at[j] = 0.0f;
  }
  memset(to + n * width, 0, (size_t)((rows - n) * width) * sizeof *to);
}

/* to[keys / COLUMNS][words of size][COLUMNS] = the transpose of from[n][size], zeros for keys from n on. */
static void pack_transposed(bool pairs, float *to, int64_t keys, pd_in from, int64_t row, int64_t n,
                            int64_t size) {
  for (int64_t key = 0; key < keys; key += PD_LANES)
    transpose_rows(pairs, to + key / COLUMNS * COLUMNS * words(pairs, size) + key % COLUMNS, COLUMNS,
                   pd_in_from(from, key * row), row, n - key, size);
}

/* Converts sixteen floats to eight words, possibly in place. */
static inline void make_words(float *to, const float *from) {
  pd_bf16 x[PD_LANES];
  for (int l = 0; l < PD_LANES; l++) x[l] = pd_to_bf16(from[l]);
  memcpy(to, x, sizeof x);
}

/* Sixteen words of two rows. */
static inline void make_row_words(float *to, const float *low, const float *high) {
  uint32_t x[PD_LANES];
  for (int l = 0; l < PD_LANES; l++) x[l] = pd_to_bf16(low[l]).bits | (uint32_t)pd_to_bf16(high[l]).bits << 16;
  memcpy(to, x, sizeof x);
}

/* ---- a thread's memory ----------------------------------------------------------------------------------- */

/* Scratch memory of one thread; every part is a multiple of 64 bytes. */
struct space {
  int64_t keys, size;                                   /* padded */
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
};

static float *take(float *base, int64_t *used, int64_t n) {
  int64_t here = *used;
  *used += round_up(n, 16);
  return base ? base + here : NULL;
}

/* Returns the floats taken; base NULL only counts. */
static int64_t lay_out(struct space *s, const struct pd_attention *a, bool backward, float *base) {
  int64_t used = 0;
  s->limit = a->kv_length;
  s->keys = round_up(round_up(a->kv_length, 6), UNIT); /* rows of dk and dv in tiles of 6 or 8, columns in UNITs */
  s->size = round_up(a->size, UNIT);
  s->k_transposed = take(base, &used, s->keys * a->size);
  s->q = take(base, &used, BLOCK * s->size);
  s->lse = take(base, &used, BLOCK);
  s->mask_row = a->mask.row > 0 || a->causal ? s->keys : 0;
  s->mask = a->masked ? take(base, &used, s->mask_row ? BLOCK * s->keys : s->keys) : NULL;
  if (backward) {
    s->v_transposed = take(base, &used, s->keys * a->size);
    s->k = take(base, &used, s->keys * s->size);
    s->dk = take(base, &used, s->keys * s->size);
    s->dv = take(base, &used, s->keys * s->size);
    s->d_o = take(base, &used, BLOCK * s->size);
    s->dq = take(base, &used, BLOCK * s->size);
    s->p = take(base, &used, BLOCK * KEYS_BACKWARD);
    s->ds = take(base, &used, BLOCK * KEYS_BACKWARD);
    s->delta = take(base, &used, BLOCK);
  } else {
    s->v = take(base, &used, s->keys * s->size);
    s->o = take(base, &used, BLOCK * s->size);
    s->p = take(base, &used, BLOCK * KEYS);
    s->max = take(base, &used, BLOCK);
    s->sum = take(base, &used, BLOCK);
  }
  if (base && backward) {
    s->q_rows = s->q + BLOCK * s->size / 2;
    s->d_o_rows = s->d_o + BLOCK * s->size / 2;
    s->ds_keys = s->ds + BLOCK * KEYS_BACKWARD / 2;
  }
  return used;
}

static int64_t thread_floats(const struct pd_attention *a) {
  struct space s;
  int64_t forward = lay_out(&s, a, false, NULL), backward = lay_out(&s, a, true, NULL);
  return forward > backward ? forward : backward;
}

size_t pd_attention_scratch(const struct pd_attention *a, int threads) {
  return (size_t)thread_floats(a) * sizeof(float) * (size_t)threads;
}

/* The number of keys, from the first, that row i sees among those that the mask leaves. */
static int64_t visible(const struct pd_attention *a, const struct space *s, int64_t i) {
  return a->causal ? smaller(i + 1, s->limit) : s->limit;
}

/* The mask of query rows first .. first + BLOCK, repeating the last row; limits keys to those that a row sees. */
static void pack_mask(const struct pd_attention *a, struct space *s, pd_in mask, int64_t first) {
  s->limit = 0;
  for (int64_t r = 0; r < (s->mask_row ? BLOCK : 1); r++) {
    int64_t i = smaller(first + r, a->length - 1), seen = a->causal ? smaller(i + 1, a->kv_length) : a->kv_length;
    float *to = s->mask + r * s->mask_row;
    pd_read(to, mask, i * a->mask.row, seen);
    for (int64_t j = 0; j < seen; j++) to[j] = to[j] <= PD_ATTENTION_HIDDEN ? -INFINITY : to[j];
    for (int64_t j = seen; j < s->keys; j++) to[j] = -INFINITY;
    while (seen > s->limit && to[seen - 1] == -INFINITY) seen--;
    if (seen > s->limit) s->limit = seen;
  }
}

/* Sixteen products of a row with keys, of which `seen` count, become scores, -inf for keys that it does not
 * see. */
static inline void score(float *p, int64_t seen, float scale, const float *mask) {
  int count = (int)smaller(seen, PD_LANES);
  if (mask)
    for (int l = 0; l < PD_LANES; l++) p[l] = fmaf(p[l], scale, mask[l]);
  else
    for (int l = 0; l < PD_LANES; l++) p[l] = l < count ? p[l] * scale : -INFINITY;
}

/* One row's products with n keys (a multiple of PD_LANES): replaces p by exp(score - max), raises the row's
 * maximum, and returns the factor for earlier sums. Loops over lanes have a constant length, without
 * remainders. */
static float soften(float *p, int64_t n, int64_t seen, float scale, const float *mask, float *row_max,
                    float *row_sum) {
  float lane[PD_LANES];
  for (int l = 0; l < PD_LANES; l++) lane[l] = -INFINITY;
  for (int64_t j = 0; j < n; j += PD_LANES) {
    score(p + j, seen - j, scale, mask ? mask + j : NULL);
    for (int l = 0; l < PD_LANES; l++) lane[l] = pd_max(lane[l], p[j + l]);
  }
  float max = pd_max(*row_max, pd_lanes_max(lane));
  float factor = *row_max == -INFINITY ? 0.0f : pd_exp(*row_max - max);
  float top = max == -INFINITY ? 0.0f : max; /* a mask may hide all keys so far */
  for (int l = 0; l < PD_LANES; l++) lane[l] = 0.0f;
  for (int64_t j = 0; j < n; j += PD_LANES) {
    for (int l = 0; l < PD_LANES; l++) p[j + l] = pd_exp(p[j + l] - top);
    for (int l = 0; l < PD_LANES; l++) lane[l] += p[j + l];
  }
  *row_max = max;
  *row_sum = fmaf(*row_sum, factor, pd_lanes_sum(lane));
  return factor;
}

/* Query rows first .. first + rows against all the keys they see: o, max and sum of the block. */
INLINE void forward_block(bool pairs, const struct pd_attention *a, struct space *s, int64_t first, int64_t rows) {
  int64_t limit = visible(a, s, first + rows - 1), depth = words(pairs, a->size), width = words(pairs, s->size);
  memset(s->o, 0, (size_t)(BLOCK * s->size) * sizeof *s->o);
  for (int r = 0; r < BLOCK; r++) s->max[r] = -INFINITY, s->sum[r] = 0;
  for (int64_t key = 0; key < limit; key += KEYS) {
    for (int64_t c = 0; c < KEYS && key + c < limit; c += COLUMNS)
      for (int64_t r = 0; r < rows; r += ROWS)
        if (visible(a, s, first + r + ROWS - 1) > key + c)
          (pairs ? pairs_set : floats_set)(s->p + r * KEYS + c, KEYS, s->q + r * width, width, 1,
                                           s->k_transposed + (key + c) * depth, COLUMNS, depth);
    for (int64_t r = 0; r < rows; r += ROWS) {
      int64_t last = smaller(visible(a, s, first + r + ROWS - 1) - key, KEYS);
      if (last <= 0) continue;
      for (int64_t i = r; i < r + ROWS; i++) {
        int64_t n = round_up(last, PD_LANES), seen = visible(a, s, first + i) - key;
        const float *mask = s->mask ? s->mask + i * s->mask_row + key : NULL;
        float factor = soften(s->p + i * KEYS, n, seen, a->scale, mask, s->max + i, s->sum + i);
        for (int64_t j = 0; j < s->size && key > 0; j++) s->o[i * s->size + j] *= factor;
        for (int64_t j = 0; j < n && pairs; j += PD_LANES)
          make_words(s->p + i * KEYS + j / 2, s->p + i * KEYS + j);
      }
      for (int64_t c = 0; c < a->size; c += COLUMNS)
        (pairs ? pairs_add : floats_add)(s->o + r * s->size + c, s->size, s->p + r * KEYS, KEYS, 1,
                                         s->v + words(pairs, key) * s->size + c, s->size, words(pairs, last));
    }
  }
}

struct forward { /* what the forward pass reads and writes */
  pd_in q, k, v, mask;
  pd_out o, lse;
};

/* One key head, kv, of sample b. */
INLINE void forward_head(bool pairs, const struct pd_attention *a, const struct forward *x, int64_t b, int64_t kv,
                         float *scratch) {
  const int64_t group = a->heads / a->kv_heads;
  const pd_in v = pd_in_from(x->v, b * a->v.batch + kv * a->v.head);
  struct space s;
  lay_out(&s, a, false, scratch);
  pack_transposed(pairs, s.k_transposed, s.keys, pd_in_from(x->k, b * a->k.batch + kv * a->k.head), a->k.row,
                  a->kv_length, a->size);
  if (pairs)
    pack_row_pairs(s.v, s.keys, s.size, v, a->v.row, a->kv_length, a->size);
  else
    pack(pairs, s.v, s.keys, s.size, v, a->v.row, a->kv_length, a->size);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t first = 0; first < a->length; first += BLOCK) {
      int64_t rows = smaller(a->length - first, BLOCK);
      int64_t at = b * a->q.batch + h * a->q.head + first * a->q.row;
      pack(pairs, s.q, BLOCK, s.size, pd_in_from(x->q, at), a->q.row, rows, a->size);
      if (a->masked) pack_mask(a, &s, pd_in_from(x->mask, b * a->mask.batch), first);
      forward_block(pairs, a, &s, first, rows);
      /* A row that sees no key has the sum 0: zeros, and probabilities of 0 in the backward pass. */
      for (int64_t r = 0; r < BLOCK; r++) s.lse[r] = s.sum[r] == 0 ? INFINITY : s.max[r] + pd_log(s.sum[r]);
      pd_write(x->lse, (b * a->heads + h) * a->length + first, s.lse, rows);
      for (int64_t r = 0; r < rows; r++) {
        float *row = s.o + r * s.size, inverse = s.sum[r] == 0 ? 0.0f : 1.0f / s.sum[r];
        for (int64_t j = 0; j < a->size; j++) row[j] *= inverse;
        pd_write(x->o, b * a->o.batch + h * a->o.head + (first + r) * a->o.row, row, a->size);
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

void pd_masked_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask, pd_out o,
                                 pd_out lse, void *scratch) {
  forward(a, &(struct forward){q, k, v, mask, o, lse}, scratch);
}

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

/* Probabilities and gradients of scores of one tile, rows from r, columns from c of the key block. */
INLINE void backward_scores(bool pairs, const struct pd_attention *a, struct space *s, int64_t first, int64_t key,
                            int64_t r, int64_t c) {
  const int64_t depth = words(pairs, a->size), width = words(pairs, s->size),
                row = pairs ? COLUMNS : KEYS_BACKWARD;
  _Alignas(64) float own[2][ROWS * COLUMNS];
  float *p = pairs ? own[0] : s->p + r * KEYS_BACKWARD + c, *ds = pairs ? own[1] : s->ds + r * KEYS_BACKWARD + c;
  (pairs ? pairs_set : floats_set)(p, row, s->q + r * width, width, 1, s->k_transposed + (key + c) * depth,
                                   COLUMNS, depth);
  (pairs ? pairs_set : floats_set)(ds, row, s->d_o + r * width, width, 1, s->v_transposed + (key + c) * depth,
                                   COLUMNS, depth);
  for (int i = 0; i < ROWS; i++, p += row, ds += row) {
    int seen = (int)smaller(visible(a, s, first + r + i) - key - c, COLUMNS);
    float lse = s->lse[r + i], delta = s->delta[r + i], scale = a->scale;
    const float *mask = s->mask ? s->mask + (r + i) * s->mask_row + key + c : NULL;
    for (int j = 0; j < COLUMNS; j++) {
      float e = pd_exp(mask ? fmaf(p[j], scale, mask[j]) - lse : fmaf(p[j], scale, -lse));
      p[j] = mask || j < seen ? e : 0.0f;
      ds[j] = p[j] * (ds[j] - delta) * scale;
    }
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
  for (int64_t c = 0; c < a->size; c += COLUMNS) {
    (pairs ? pairs_add : floats_add)(s->dv + (key + j) * s->size + c, s->size, s->p + from * KEYS_BACKWARD + j, 1,
                                     KEYS_BACKWARD, d_o + from * s->size + c, s->size, k);
    (pairs ? pairs_add : floats_add)(s->dk + (key + j) * s->size + c, s->size, s->ds + from * KEYS_BACKWARD + j, 1,
                                     KEYS_BACKWARD, q + from * s->size + c, s->size, k);
  }
}

/* Query rows first .. first + rows: computes dq of the block, and adds their contributions to dk and dv. */
INLINE void backward_block(bool pairs, const struct pd_attention *a, struct space *s, int64_t first,
                           int64_t rows) {
  const int64_t limit = visible(a, s, first + rows - 1), padded = round_up(rows, ROWS);
  const int64_t width = words(pairs, KEYS_BACKWARD);
  const float *by_keys = pairs ? s->ds_keys : s->ds;
  memset(s->dq, 0, (size_t)(BLOCK * s->size) * sizeof *s->dq);
  for (int64_t key = 0; key < limit; key += KEYS_BACKWARD) {
    int64_t keys = smaller(limit - key, KEYS_BACKWARD);
    for (int64_t c = 0; c < round_up(keys, ROWS); c += COLUMNS)
      for (int64_t r = 0; r < rows; r += ROWS) /* range that rows of dk and dv from c / ROWS * ROWS add up */
        if (visible(a, s, first + r + ROWS - 1) > key + c / ROWS * ROWS)
          backward_scores(pairs, a, s, first, key, r, c);
    for (int64_t j = 0; j < keys; j += ROWS)
      add_to_keys(pairs, a, s, key, j, a->causal && key + j > first ? (key + j - first) / ROWS * ROWS : 0, padded);
    for (int64_t r = 0; r < rows; r += ROWS) {
      int64_t last = smaller(visible(a, s, first + r + ROWS - 1) - key, KEYS_BACKWARD);
      for (int64_t c = 0; c < a->size && last > 0; c += COLUMNS)
        (pairs ? pairs_add : floats_add)(s->dq + r * s->size + c, s->size, by_keys + r * width, width, 1,
                                         s->k + words(pairs, key) * s->size + c, s->size, words(pairs, last));
    }
  }
}

static void unpack(pd_out to, int64_t row, const float *from, int64_t padded, int64_t n, int64_t size) {
  for (int64_t i = 0; i < n; i++) pd_write(to, i * row, from + i * padded, size);
}

struct backward { /* what the backward pass reads and writes */
  pd_in q, k, v, o, lse, d_o, mask;
  pd_out dq, dk, dv;
};

/* Loads rows first .. first + rows of query head h, and their gradients. */
INLINE void backward_rows(bool pairs, const struct pd_attention *a, struct space *s, const struct backward *x,
                          int64_t b, int64_t h, int64_t first) {
  int64_t rows = smaller(a->length - first, BLOCK), lse = (b * a->heads + h) * a->length + first;
  const pd_in q = pd_in_from(x->q, b * a->q.batch + h * a->q.head + first * a->q.row);
  const pd_in o = pd_in_from(x->o, b * a->o.batch + h * a->o.head + first * a->o.row);
  const pd_in d_o = pd_in_from(x->d_o, b * a->d_o.batch + h * a->d_o.head + first * a->d_o.row);
  pack(pairs, s->q, BLOCK, s->size, q, a->q.row, rows, a->size);
  pack(pairs, s->d_o, BLOCK, s->size, d_o, a->d_o.row, rows, a->size);
  if (pairs) {
    pack_row_pairs(s->q_rows, BLOCK, s->size, q, a->q.row, rows, a->size);
    pack_row_pairs(s->d_o_rows, BLOCK, s->size, d_o, a->d_o.row, rows, a->size);
  }
  for (int64_t r = 0; r < BLOCK; r++) {
    s->lse[r] = INFINITY;
    s->delta[r] = r < rows ? dot(pd_in_from(o, r * a->o.row), pd_in_from(d_o, r * a->d_o.row), a->size) : 0.0f;
  }
  pd_read(s->lse, x->lse, lse, rows);
  if (a->masked) pack_mask(a, s, pd_in_from(x->mask, b * a->mask.batch), first);
  backward_block(pairs, a, s, first, rows);
  unpack(pd_out_from(x->dq, b * a->dq.batch + h * a->dq.head + first * a->dq.row), a->dq.row, s->dq, s->size, rows,
         a->size);
}

/* One key head, kv, of sample b. */
INLINE void backward_head(bool pairs, const struct pd_attention *a, const struct backward *x, int64_t b,
                          int64_t kv, float *scratch) {
  const int64_t group = a->heads / a->kv_heads;
  const pd_in k = pd_in_from(x->k, b * a->k.batch + kv * a->k.head);
  const pd_in v = pd_in_from(x->v, b * a->v.batch + kv * a->v.head);
  struct space s;
  lay_out(&s, a, true, scratch);
  pack_transposed(pairs, s.k_transposed, s.keys, k, a->k.row, a->kv_length, a->size);
  pack_transposed(pairs, s.v_transposed, s.keys, v, a->v.row, a->kv_length, a->size);
  if (pairs)
    pack_row_pairs(s.k, s.keys, s.size, k, a->k.row, a->kv_length, a->size);
  else
    pack(pairs, s.k, s.keys, s.size, k, a->k.row, a->kv_length, a->size);
  memset(s.dk, 0, (size_t)(s.keys * s.size) * sizeof *s.dk);
  memset(s.dv, 0, (size_t)(s.keys * s.size) * sizeof *s.dv);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t first = 0; first < a->length; first += BLOCK) backward_rows(pairs, a, &s, x, b, h, first);
  unpack(pd_out_from(x->dk, b * a->dk.batch + kv * a->dk.head), a->dk.row, s.dk, s.size, a->kv_length, a->size);
  unpack(pd_out_from(x->dv, b * a->dv.batch + kv * a->dv.head), a->dv.row, s.dv, s.size, a->kv_length, a->size);
}

static void backward(const struct pd_attention *a, const struct backward *x, void *scratch) {
  const int64_t space_floats = thread_floats(a);
  const bool pairs = PD_PAIRS && all_bf16((pd_in[]){x->q, x->k, x->v, x->d_o}, 4);
#pragma omp parallel for
  for (int64_t item = 0; item < a->batch * a->kv_heads; item++) {
    float *own = (float *)scratch + omp_get_thread_num() * space_floats;
    if (PD_PAIRS && pairs)
      backward_head(true, a, x, item / a->kv_heads, item % a->kv_heads, own);
    else
      backward_head(false, a, x, item / a->kv_heads, item % a->kv_heads, own);
  }
}

void pd_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse, pd_in d_o,
                           pd_out dq, pd_out dk, pd_out dv, void *scratch) {
  backward(
      a, &(struct backward){.q = q, .k = k, .v = v, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dk = dk, .dv = dv},
      scratch);
}

void pd_masked_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, pd_out dq, pd_out dk, pd_out dv, void *scratch) {
  backward(a, &(struct backward){q, k, v, o, lse, d_o, mask, dq, dk, dv}, scratch);
}
