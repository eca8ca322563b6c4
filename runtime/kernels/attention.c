/* Scaled dot-product attention in blocks, after Dao et al., "FlashAttention" (NeurIPS 2022): forward
 * with the softmax computed online, backward from the saved logarithms of the sums. Row i sees the keys
 * j <= i when causal (as in PyTorch, also where the lengths differ); blocks beyond are never computed. A mask
 * is added to the scores of a block of rows; it is -inf where a row sees no key.
 * One thread does a whole (sample, key head), query heads of a group in order, so that bits do not
 * depend on the number of threads. All products run in one register tile of ROWS x COLUMNS, whose
 * operands are packed, padded by zeros, into the thread's part of scratch. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"
#include "pd_runtime.h"

#include <omp.h>

#if PD_VECTORS == 32
enum { ROWS = 8, VECTORS = 2 }; /* of the register tile */
#else
enum { ROWS = 6, VECTORS = 1 };
#endif
enum {
  COLUMNS = VECTORS * PD_LANES,
  UNIT = 32,         /* what keys and sizes are padded to, whatever the tile */
  BLOCK = 48,        /* query rows at a time */
  KEYS = 128,        /* keys at a time, forward */
  KEYS_BACKWARD = 96 /* like BLOCK a multiple of any ROWS, and of UNIT */
};

/* c[ROWS][COLUMNS] = (add: +=) a[ROWS][k] b[k][COLUMNS] */
static inline __attribute__((always_inline)) void tile(bool add, float *c, int64_t c_row, const float *a,
                                                       int64_t a_row, int64_t a_k, const float *b, int64_t b_k,
                                                       int64_t k) {
  vector sum[ROWS * VECTORS] = {{0}};
  for (int r = 0; add && r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) sum[r * VECTORS + v] = *(vector *)(c + r * c_row + v * PD_LANES);
  multiply_tile(sum, ROWS, VECTORS, a, a_row, a_k, b, b_k, k);
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) *(vector *)(c + r * c_row + v * PD_LANES) = sum[r * VECTORS + v];
}

static void tile_set(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k, const float *b,
                     int64_t b_k, int64_t k) {
  tile(false, c, c_row, a, a_row, a_k, b, b_k, k);
}

static void tile_add(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k, const float *b,
                     int64_t b_k, int64_t k) {
  tile(true, c, c_row, a, a_row, a_k, b, b_k, k);
}

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* to[rows][padded] = from[n][size], zeros around. */
static void pack(float *to, int64_t rows, int64_t padded, pd_in from, int64_t row, int64_t n, int64_t size) {
  for (int64_t i = 0; i < n; i++) {
    pd_read(to + i * padded, from, i * row, size);
    for (int64_t j = size; j < padded; j++) to[i * padded + j] = 0.0f;
  }
  memset(to + n * padded, 0, (size_t)((rows - n) * padded) * sizeof *to);
}

/* to[keys / COLUMNS][size][COLUMNS] = the transpose of from[n][size], zeros for keys from n on. */
static inline __attribute__((always_inline)) void pack_transposed_of(enum pd_type type, float *to, int64_t keys,
                                                                     const void *from, int64_t row, int64_t n,
                                                                     int64_t size) {
  pd_in x_in = {from, type};
  for (int64_t key = 0; key < keys; key += PD_LANES) {
    float *panel = to + key / COLUMNS * COLUMNS * size + key % COLUMNS;
    int64_t i = 0;
    for (; key + PD_LANES <= n && i + PD_LANES <= size; i += PD_LANES) {
      vector x[PD_LANES];
      for (int j = 0; j < PD_LANES; j++) pd_read((float *)&x[j], x_in, (key + j) * row + i, PD_LANES);
      transpose(x);
      for (int j = 0; j < PD_LANES; j++) *(vector *)(panel + (i + j) * COLUMNS) = x[j];
    }
    for (; i < size; i++)
      for (int64_t j = 0; j < PD_LANES; j++)
        if (key + j < n)
          pd_read(panel + i * COLUMNS + j, x_in, (key + j) * row + i, 1);
        else
          panel[i * COLUMNS + j] = 0.0f;
  }
}

static void pack_transposed(float *to, int64_t keys, pd_in from, int64_t row, int64_t n, int64_t size) {
  if (from.type == PD_F32)
    pack_transposed_of(PD_F32, to, keys, from.at, row, n, size);
  else
    pack_transposed_of(PD_BF16, to, keys, from.at, row, n, size);
}

/* What one thread works in; every part a multiple of 64 bytes. */
struct space {
  int64_t keys, size;                                   /* padded */
  int64_t limit;                                        /* no row of the block sees a key from here on */
  float *k_transposed, *v_transposed, *k, *v, *dk, *dv; /* of the whole key head */
  float *q, *o, *d_o, *dq;                              /* [BLOCK][size] */
  float *p, *ds;                                        /* scores, then probabilities; gradients of scores */
  float *max, *sum, *delta, *lse;                       /* [BLOCK] */
  float *mask;      /* of a block: its rows' [BLOCK][keys], or [keys] for all; NULL: none */
  int64_t mask_row; /* keys or 0 */
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

/* How many keys, from the first, row i sees of those that the mask leaves. */
static int64_t visible(const struct pd_attention *a, const struct space *s, int64_t i) {
  return a->causal ? smaller(i + 1, s->limit) : s->limit;
}

/* The mask of query rows first .. first + BLOCK, those behind the last repeating it; limits keys to those some row
 * sees. */
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

/* Sixteen products of a row with keys, of which `seen` count, become scores, -inf for keys that it does not see. */
static inline void score(float *p, int64_t seen, float scale, const float *mask) {
  int count = (int)smaller(seen, PD_LANES);
  if (mask)
    for (int l = 0; l < PD_LANES; l++) p[l] = fmaf(p[l], scale, mask[l]);
  else
    for (int l = 0; l < PD_LANES; l++) p[l] = l < count ? p[l] * scale : -INFINITY;
}

/* One row's products with n keys (a multiple of PD_LANES): turns p into exp(score - max), raises the row's maximum;
 * returns the factor for what was summed before. Loops over lanes have a constant length, so that none is left over. */
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
static void forward_block(const struct pd_attention *a, struct space *s, int64_t first, int64_t rows) {
  int64_t limit = visible(a, s, first + rows - 1);
  memset(s->o, 0, (size_t)(BLOCK * s->size) * sizeof *s->o);
  for (int r = 0; r < BLOCK; r++) s->max[r] = -INFINITY, s->sum[r] = 0;
  for (int64_t key = 0; key < limit; key += KEYS) {
    for (int64_t c = 0; c < KEYS && key + c < limit; c += COLUMNS)
      for (int64_t r = 0; r < rows; r += ROWS)
        if (visible(a, s, first + r + ROWS - 1) > key + c)
          tile_set(s->p + r * KEYS + c, KEYS, s->q + r * s->size, s->size, 1,
                   s->k_transposed + (key + c) * a->size, COLUMNS, a->size);
    for (int64_t r = 0; r < rows; r += ROWS) {
      int64_t last = smaller(visible(a, s, first + r + ROWS - 1) - key, KEYS);
      if (last <= 0) continue;
      for (int64_t i = r; i < r + ROWS; i++) {
        int64_t n = round_up(last, PD_LANES), seen = visible(a, s, first + i) - key;
        const float *mask = s->mask ? s->mask + i * s->mask_row + key : NULL;
        float factor = soften(s->p + i * KEYS, n, seen, a->scale, mask, s->max + i, s->sum + i);
        for (int64_t j = 0; j < s->size && key > 0; j++) s->o[i * s->size + j] *= factor;
      }
      for (int64_t c = 0; c < a->size; c += COLUMNS)
        tile_add(s->o + r * s->size + c, s->size, s->p + r * KEYS, KEYS, 1, s->v + key * s->size + c, s->size,
                 last);
    }
  }
}

static void forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask, pd_out o, pd_out lse,
                    void *scratch) {
  int64_t group = a->heads / a->kv_heads, space_floats = thread_floats(a);
#pragma omp parallel for
  for (int64_t item = 0; item < a->batch * a->kv_heads; item++) {
    int64_t b = item / a->kv_heads, kv = item % a->kv_heads;
    struct space s;
    lay_out(&s, a, false, (float *)scratch + omp_get_thread_num() * space_floats);
    pack_transposed(s.k_transposed, s.keys, pd_in_from(k, b * a->k.batch + kv * a->k.head), a->k.row, a->kv_length,
                    a->size);
    pack(s.v, s.keys, s.size, pd_in_from(v, b * a->v.batch + kv * a->v.head), a->v.row, a->kv_length, a->size);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
      for (int64_t first = 0; first < a->length; first += BLOCK) {
        int64_t rows = smaller(a->length - first, BLOCK);
        int64_t at = b * a->q.batch + h * a->q.head + first * a->q.row;
        pack(s.q, BLOCK, s.size, pd_in_from(q, at), a->q.row, rows, a->size);
        if (a->masked) pack_mask(a, &s, pd_in_from(mask, b * a->mask.batch), first);
        forward_block(a, &s, first, rows);
        /* A row that sees no key has the sum 0: zeros, and probabilities of 0 in the backward pass. */
        for (int64_t r = 0; r < BLOCK; r++) s.lse[r] = s.sum[r] == 0 ? INFINITY : s.max[r] + pd_log(s.sum[r]);
        pd_write(lse, (b * a->heads + h) * a->length + first, s.lse, rows);
        for (int64_t r = 0; r < rows; r++) {
          float *row = s.o + r * s.size, inverse = s.sum[r] == 0 ? 0.0f : 1.0f / s.sum[r];
          for (int64_t j = 0; j < a->size; j++) row[j] *= inverse;
          pd_write(o, b * a->o.batch + h * a->o.head + (first + r) * a->o.row, row, a->size);
        }
      }
  }
}

void pd_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_out o, pd_out lse,
                          void *scratch) {
  forward(a, q, k, v, (pd_in){0}, o, lse, scratch);
}

void pd_masked_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask, pd_out o,
                                 pd_out lse, void *scratch) {
  forward(a, q, k, v, mask, o, lse, scratch);
}

/* The sum of x[at + j] y[j], in lanes. */
static float dot(pd_in x, int64_t at, const float *y, int64_t n) {
  float lane[PD_LANES] = {0}, part[PD_LANES];
  for (int64_t j = 0; j < n; j += PD_LANES) {
    int count = (int)smaller(n - j, PD_LANES);
    pd_read(part, x, at + j, count);
    for (int l = 0; l < count; l++) lane[l] = fmaf(part[l], y[j + l], lane[l]);
  }
  return pd_lanes_sum(lane);
}

/* Probabilities and gradients of scores of one tile, rows from r, columns from c of the key block. */
static void backward_scores(const struct pd_attention *a, struct space *s, int64_t first, int64_t key, int64_t r,
                            int64_t c) {
  float *p = s->p + r * KEYS_BACKWARD + c, *ds = s->ds + r * KEYS_BACKWARD + c;
  tile_set(p, KEYS_BACKWARD, s->q + r * s->size, s->size, 1, s->k_transposed + (key + c) * a->size, COLUMNS,
           a->size);
  tile_set(ds, KEYS_BACKWARD, s->d_o + r * s->size, s->size, 1, s->v_transposed + (key + c) * a->size, COLUMNS,
           a->size);
  for (int i = 0; i < ROWS; i++, p += KEYS_BACKWARD, ds += KEYS_BACKWARD) {
    int seen = (int)smaller(visible(a, s, first + r + i) - key - c, COLUMNS);
    float lse = s->lse[r + i], delta = s->delta[r + i], scale = a->scale;
    const float *mask = s->mask ? s->mask + (r + i) * s->mask_row + key + c : NULL;
    for (int j = 0; j < COLUMNS; j++) {
      float e = pd_exp(mask ? fmaf(p[j], scale, mask[j]) - lse : fmaf(p[j], scale, -lse));
      p[j] = mask || j < seen ? e : 0.0f;
      ds[j] = p[j] * (ds[j] - delta) * scale;
    }
  }
}

/* Query rows first .. first + rows: dq of the block; their share of dk and dv is added. */
static void backward_block(const struct pd_attention *a, struct space *s, int64_t first, int64_t rows) {
  int64_t limit = visible(a, s, first + rows - 1), padded = round_up(rows, ROWS);
  memset(s->dq, 0, (size_t)(BLOCK * s->size) * sizeof *s->dq);
  for (int64_t key = 0; key < limit; key += KEYS_BACKWARD) {
    int64_t keys = smaller(limit - key, KEYS_BACKWARD);
    for (int64_t c = 0; c < round_up(keys, ROWS); c += COLUMNS)
      for (int64_t r = 0; r < rows; r += ROWS) /* what rows of dk and dv from c / ROWS * ROWS on take in */
        if (visible(a, s, first + r + ROWS - 1) > key + c / ROWS * ROWS) backward_scores(a, s, first, key, r, c);
    for (int64_t j = 0; j < keys; j += ROWS) {
      int64_t begin = a->causal && key + j > first ? (key + j - first) / ROWS * ROWS : 0;
      for (int64_t c = 0; c < a->size; c += COLUMNS) {
        tile_add(s->dv + (key + j) * s->size + c, s->size, s->p + begin * KEYS_BACKWARD + j, 1, KEYS_BACKWARD,
                 s->d_o + begin * s->size + c, s->size, padded - begin);
        tile_add(s->dk + (key + j) * s->size + c, s->size, s->ds + begin * KEYS_BACKWARD + j, 1, KEYS_BACKWARD,
                 s->q + begin * s->size + c, s->size, padded - begin);
      }
    }
    for (int64_t r = 0; r < rows; r += ROWS) {
      int64_t last = smaller(visible(a, s, first + r + ROWS - 1) - key, KEYS_BACKWARD);
      for (int64_t c = 0; c < a->size && last > 0; c += COLUMNS)
        tile_add(s->dq + r * s->size + c, s->size, s->ds + r * KEYS_BACKWARD, KEYS_BACKWARD, 1,
                 s->k + key * s->size + c, s->size, last);
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

/* What rows first .. first + rows of query head h bring with them, and their gradients. */
static void backward_rows(const struct pd_attention *a, struct space *s, const struct backward *x, int64_t b,
                          int64_t h, int64_t first) {
  int64_t rows = smaller(a->length - first, BLOCK), lse = (b * a->heads + h) * a->length + first;
  int64_t out = b * a->o.batch + h * a->o.head + first * a->o.row;
  int64_t d_out = b * a->d_o.batch + h * a->d_o.head + first * a->d_o.row;
  pack(s->q, BLOCK, s->size, pd_in_from(x->q, b * a->q.batch + h * a->q.head + first * a->q.row), a->q.row, rows,
       a->size);
  pack(s->d_o, BLOCK, s->size, pd_in_from(x->d_o, d_out), a->d_o.row, rows, a->size);
  for (int64_t r = 0; r < BLOCK; r++) {
    s->lse[r] = INFINITY;
    s->delta[r] = r < rows ? dot(x->o, out + r * a->o.row, s->d_o + r * s->size, a->size) : 0.0f;
  }
  pd_read(s->lse, x->lse, lse, rows);
  if (a->masked) pack_mask(a, s, pd_in_from(x->mask, b * a->mask.batch), first);
  backward_block(a, s, first, rows);
  unpack(pd_out_from(x->dq, b * a->dq.batch + h * a->dq.head + first * a->dq.row), a->dq.row, s->dq, s->size, rows,
         a->size);
}

static void backward(const struct pd_attention *a, const struct backward *x, void *scratch) {
  int64_t group = a->heads / a->kv_heads, space_floats = thread_floats(a);
#pragma omp parallel for
  for (int64_t item = 0; item < a->batch * a->kv_heads; item++) {
    int64_t b = item / a->kv_heads, kv = item % a->kv_heads;
    pd_in k = pd_in_from(x->k, b * a->k.batch + kv * a->k.head);
    pd_in v = pd_in_from(x->v, b * a->v.batch + kv * a->v.head);
    struct space s;
    lay_out(&s, a, true, (float *)scratch + omp_get_thread_num() * space_floats);
    pack_transposed(s.k_transposed, s.keys, k, a->k.row, a->kv_length, a->size);
    pack_transposed(s.v_transposed, s.keys, v, a->v.row, a->kv_length, a->size);
    pack(s.k, s.keys, s.size, k, a->k.row, a->kv_length, a->size);
    memset(s.dk, 0, (size_t)(s.keys * s.size) * sizeof *s.dk);
    memset(s.dv, 0, (size_t)(s.keys * s.size) * sizeof *s.dv);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
      for (int64_t first = 0; first < a->length; first += BLOCK) backward_rows(a, &s, x, b, h, first);
    unpack(pd_out_from(x->dk, b * a->dk.batch + kv * a->dk.head), a->dk.row, s.dk, s.size, a->kv_length, a->size);
    unpack(pd_out_from(x->dv, b * a->dv.batch + kv * a->dv.head), a->dv.row, s.dv, s.size, a->kv_length, a->size);
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
