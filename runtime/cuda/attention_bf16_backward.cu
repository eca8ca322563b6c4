/* Attention on tensor cores, backward. No atomics, so that bits are always the same: one kernel whose blocks own
 * query rows makes dq, one whose blocks own keys makes dk and dv. Both make the scores again, 7 products of
 * length x kv_length x size instead of the 5 of a kernel that adds dq up across blocks: 40 percent more work for
 * the tensor cores, where partial sums of dq in memory, added in order, would take length x kv_length x size /
 * 128 floats written and read (for 1024 keys as long as those 40 percent, then growing), and scratch memory to
 * match.
 *
 * The kernels are one template. A block owns rows of a pair of tensors, `first` and `second`, and streams tiles
 * of the other pair through two stages of shared memory, a stage arriving while the other is computed with:
 *
 *                own           streams     s = own first (streamed first)^T, d = own second (streamed second)^T
 *   OWNS_KEYS    k, v          q, d_o      p = exp(s - lse), ds = p (d - delta): dk += ds q, dv += p d_o
 *   otherwise    q, d_o        k, v        the same transposed: dq += ds k
 *
 * Either way p and ds are the left operand of the next product where they stand in registers.
 *
 * Estimate, in clocks of an SM, for 32 x 32 scores, D = 64, each of the kernels by what takes it longest; mma and
 * ldmatrix counted as in attention_bf16.cu. Owning keys: 128 mma, 256 clocks on sm_80, 200 on sm_90; ldmatrix
 * 192. Owning rows: 96 mma, 192 and 150; ldmatrix 128. Together 448 and 350, where 5 products alone would be 320
 * and 250. D = 128: a warp owns 16 keys, whose sums fill its registers, and ldmatrix binds, 640 clocks; owning
 * rows, 384 and 320. Together 1024 and 960 to the 5 products' 640 and 500. FlashAttention-2 is at 50 to 65
 * percent of those. */
#include "attention_bf16.h"

/* The configuration of a kernel. */
template <bool OWNS_KEYS_, int D_, int TILES_, int STREAM_, int PARTS_ = 1> struct Backward {
  static constexpr bool OWNS_KEYS = OWNS_KEYS_;
  static constexpr int D = D_;           /* size, padded */
  static constexpr int TILES = TILES_;   /* of 16 owned rows, a warp */
  static constexpr int STREAM = STREAM_; /* rows of a streamed tile */
  static constexpr int PARTS = PARTS_;   /* blocks that share the columns of the result */
  static constexpr int OWN = 16 * TILES * WARPS, COLUMNS = D / PARTS, STAGES = 2;
  static constexpr size_t STAGE = tile_bytes(2 * STREAM, D) / sizeof(pd_bf16); /* elements */
  static constexpr int ROWS = OWNS_KEYS ? STAGES * STREAM : OWN;               /* query rows loaded at a time */
  static constexpr size_t SHARED = tile_bytes(2 * OWN + STAGES * 2 * STREAM, D) + ROWS * sizeof(attention_row);
};

/* Of N query rows from `at` on; zeros behind the last. */
template <int N>
static __device__ void load_rows(attention_row *rows, const attention &a, int sample, int head, int at) {
  const attention_row *from = a.rows + ((int64_t)sample * a.heads + head) * a.length;
  for (int i = (int)threadIdx.x; i < N; i += THREADS) pd_copy_async<8>(rows + i, from + at + i, at + i < a.length);
}

/* Rows after the last are zeros and add zeros to dk and dv. */
template <class B>
static __device__ void load_stage(const attention &a, const attention_work &w, attention_tile t, int stage,
                                  pd_bf16 *stages, attention_row *rows) {
  constexpr int STREAM = B::STREAM, D = B::D;
  pd_bf16 *first = stages + stage * B::STAGE, *second = first + STREAM * pitch(D);
  if (B::OWNS_KEYS) {
    load_tile<STREAM, D>(first, row_of<pd_bf16>(a.q, w.sample, t.head, 0), a.q.row, t.row, a.length, a.size);
    load_tile<STREAM, D>(second, row_of<pd_bf16>(a.d_o, w.sample, t.head, 0), a.d_o.row, t.row, a.length,
                         a.value_size);
    load_rows<STREAM>(rows + stage * STREAM, a, w.sample, t.head, t.row);
  } else {
    load_tile<STREAM, D>(first, row_of<pd_bf16>(a.k, w.sample, w.kv, 0), a.k.row, t.row, a.kv_length, a.size);
    load_tile<STREAM, D>(second, row_of<pd_bf16>(a.v, w.sample, w.kv, 0), a.v.row, t.row, a.kv_length,
                         a.value_size);
  }
}

/* Reasons for hidden keys. Kernels of windows, documents, biases and caps hold more in registers and have smaller tiles. */
enum Form {
  PLAIN,  /* causal, or nothing */
  MASKED, /* and a mask */
  GENERAL /* windows, documents, biases and caps, with a mask or without */
};

template <Form FORM> static __device__ bool sees(const attention &a, int sample, int row, int key) {
  if (FORM != GENERAL) return key < a.kv_length && row < a.length && !(a.causal && key > row);
  attention_range seen = range_of(a, sample, row);
  return row < a.length && key >= seen.begin && key < seen.end;
}

/* Replaces products by probabilities. The lane's first element is (own, streamed); of_row: its row's values. EDGE:
 * elements of the warp may be hidden; without, none is checked. GENERAL multiplies d by the slopes of capped scores. */
template <class B, Form FORM, bool EDGE>
static __device__ void probabilities(const attention &a, Sums<B::TILES, B::STREAM> &s,
                                     Sums<B::TILES, B::STREAM> &d, int sample, int head, int own, int streamed,
                                     const attention_row *of_row) {
#pragma unroll
  for (int r = 0; r < 2 * B::TILES; r++)
#pragma unroll
    for (int e = 0; e < B::STREAM / 4; e++) {
      float &x = element(s, r, e);
      int column = e / 2 * 8 + e % 2;
      int row = B::OWNS_KEYS ? streamed + column : own + 8 * r;
      int key = B::OWNS_KEYS ? own + 8 * r : streamed + column;
      float lse = of_row[B::OWNS_KEYS ? column : 8 * r].lse;
      bool seen = !EDGE || sees<FORM>(a, sample, row, key);
      if (FORM == GENERAL && a.softcap > 0) {
        float cap = capped(a, x * a.scale);
        element(d, r, e) *= slope_of(a, cap);
        x = cap / a.scale;
      }
      if (FORM == GENERAL && a.bias && seen) x = fmaf(bias_of(a, sample, head, row, key), 1.0f / a.scale, x);
      if (FORM == MASKED || (FORM == GENERAL && a.mask))
        x = seen ? fmaf(x, a.scale * LOG2E, hiding(mask_of(a, sample, row)[key])) - lse : -INFINITY;
      else
        x = fmaf(x, a.scale * LOG2E, -lse);
      x = pd_exp2_fast(x);
      if (FORM != MASKED && !seen) x = 0.0f;
    }
}

/* The block's columns of the result. */
template <class B> static __device__ int first_column() {
  return B::PARTS == 1 ? 0 : (int)blockIdx.z * B::COLUMNS;
}

/* d = own second (streamed second)^T - delta. */
template <class B>
static __device__ void differences(Sums<B::TILES, B::STREAM> &d, const pd_bf16 *own_second,
                                   const pd_bf16 *stage_second, const attention_row *of_row) {
  multiply<B::TILES, B::STREAM, B::D, 2>(d, own_second, stage_second);
#pragma unroll
  for (int r = 0; r < 2 * B::TILES; r++)
#pragma unroll
    for (int e = 0; e < B::STREAM / 4; e++)
      element(d, r, e) -= of_row[B::OWNS_KEYS ? e / 2 * 8 + e % 2 : 8 * r].delta;
}

/* One stage's part of the block's results. */
template <class B, Form FORM>
static __device__ void step_through(const attention &a, const pd_bf16 *own, const pd_bf16 *stage, int sample,
                                    int head, int own_row, int streamed, bool edge, const attention_row *of_row,
                                    Sums<B::TILES, B::COLUMNS> &first, Sums<B::TILES, B::COLUMNS> &second) {
  constexpr int D = B::D, TILES = B::TILES, STREAM = B::STREAM, COLUMNS = B::COLUMNS;
  const pd_bf16 *stage_second = stage + STREAM * pitch(D), *own_second = own + B::OWN * pitch(D);
  int column = first_column<B>();
  Sums<TILES, STREAM> s = {}, d = {};
  Operand<TILES, STREAM> operand;
  multiply<TILES, STREAM, D, 2>(s, own, stage);
  if (FORM == GENERAL)
    differences<B>(d, own_second, stage_second, of_row); /* now: caps take slopes from products */
  if (FORM == MASKED || edge)                            /* the same for all of a warp */
    probabilities<B, FORM, true>(a, s, d, sample, head, own_row, streamed, of_row);
  else
    probabilities<B, FORM, false>(a, s, d, sample, head, own_row, streamed, of_row);
  if (B::OWNS_KEYS) {
    pack<TILES, STREAM>(operand, s);
    accumulate<TILES, STREAM, COLUMNS, D>(second, operand, stage_second + column);
  }
  if (FORM != GENERAL) differences<B>(d, own_second, stage_second, of_row);
#pragma unroll
  for (int r = 0; r < 2 * TILES; r++)
#pragma unroll
    for (int e = 0; e < STREAM / 4; e++) element(d, r, e) *= element(s, r, e);
  pack<TILES, STREAM>(operand, d);
  accumulate<TILES, STREAM, COLUMNS, D>(first, operand, stage + column);
}

/* True if the query rows see no key, or not all keys, of a warp with rows from `own` and a tile with rows from
 * `streamed`. */
template <class B, Form FORM>
static __device__ bool none_seen(const attention &a, int sample, int own, int streamed) {
  constexpr int OWN = 16 * B::TILES, STREAM = B::STREAM;
  if (FORM != GENERAL) return a.causal && (B::OWNS_KEYS ? streamed + STREAM <= own : own + OWN <= streamed);
  return B::OWNS_KEYS ? none_seen(a, sample, streamed, streamed + STREAM, own, own + OWN)
                      : none_seen(a, sample, own, own + OWN, streamed, streamed + STREAM);
}
template <class B, Form FORM>
static __device__ bool some_hidden(const attention &a, int sample, int own, int streamed) {
  constexpr int OWN = 16 * B::TILES, STREAM = B::STREAM;
  if (!B::OWNS_KEYS && streamed + STREAM > a.kv_length) return true;
  if (FORM != GENERAL) return a.causal && (B::OWNS_KEYS ? streamed + 1 < own + OWN : own + 1 < streamed + STREAM);
  if (a.mask || a.bias) return true;
  return B::OWNS_KEYS ? some_hidden(a, sample, streamed, streamed + STREAM, own, own + OWN)
                      : some_hidden(a, sample, own, own + OWN, streamed, streamed + STREAM);
}

template <class B, Form FORM> static __global__ __launch_bounds__(THREADS, 1) void backward(attention a) {
  constexpr bool OWNS_KEYS = B::OWNS_KEYS;
  constexpr int D = B::D, TILES = B::TILES, COLUMNS = B::COLUMNS;
  PD_SHARED(pd_bf16, own);
  pd_bf16 *own_second = own + B::OWN * pitch(D), *stages = own_second + B::OWN * pitch(D);
  attention_row *rows = (attention_row *)(void *)(stages + B::STAGES * B::STAGE);
  attention_work w = find_work<OWNS_KEYS>(a, B::OWN, B::STREAM, THREADS, (int *)(void *)own);
  int lane = (int)threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  int warp = (int)threadIdx.x / 32 * 16 * TILES, row = w.own + warp;

  const attention_tensor &x = OWNS_KEYS ? a.k : a.q, &y = OWNS_KEYS ? a.v : a.d_o, &dx = OWNS_KEYS ? a.dk : a.dq;
  int head = OWNS_KEYS ? w.kv : w.head, n = OWNS_KEYS ? a.kv_length : a.length;
  load_tile<B::OWN, D>(own, row_of<pd_bf16>(x, w.sample, head, 0), x.row, w.own, n, a.size);
  load_tile<B::OWN, D>(own_second, row_of<pd_bf16>(y, w.sample, head, 0), y.row, w.own, n, a.value_size);
  if (!OWNS_KEYS) load_rows<B::OWN>(rows, a, w.sample, head, w.own);
  attention_tile at = {w.head, w.begin};
  if (w.steps > 0) load_stage<B>(a, w, at, w.steps % 2, stages, rows);
  pd_copy_commit();

  Sums<TILES, COLUMNS> first = {}, second = {};
  for (int steps = w.steps; steps > 0; steps--) {
    bool seen = !none_seen<B, FORM>(a, w.sample, row, at.row);
    bool edge = FORM == MASKED || some_hidden<B, FORM>(a, w.sample, row, at.row);
    attention_tile next = next_tile<OWNS_KEYS>(w, at, B::STREAM);
    pd_copy_wait<0>();
    __syncthreads(); /* this stage has arrived, the other one is consumed */
    if (steps > 1) load_stage<B>(a, w, next, (steps - 1) % 2, stages, rows);
    pd_copy_commit();
    const attention_row *of_row = rows + (OWNS_KEYS ? steps % 2 * B::STREAM + pair : warp + group);
    if (seen)
      step_through<B, FORM>(a, own + warp * pitch(D), stages + steps % 2 * B::STAGE, w.sample, at.head,
                            row + group, at.row + pair, edge, of_row, first, second);
    at = next;
  }
  pd_copy_wait<0>();
  __syncthreads(); /* without a step, the owned rows arrive here */
#pragma unroll
  for (int r = 0; r < 2 * TILES; r++)
#pragma unroll
    for (int e = 0; e < COLUMNS / 4; e++) element(first, r, e) *= a.scale;
  pd_bf16 *to = row_of<pd_bf16>(dx, w.sample, head, 0), *to_second = row_of<pd_bf16>(a.dv, w.sample, head, 0);
  int column = first_column<B>();
  store<TILES, COLUMNS, D>(first, own + warp * pitch(D), to, dx.row, row, n, column, a.size);
  if (OWNS_KEYS)
    store<TILES, COLUMNS, D>(second, own_second + warp * pitch(D), to_second, a.dv.row, row, n, column,
                             a.value_size);
}

template <class B, Form FORM> static void launch_form(const attention &a) {
  static const bool ready = (allow_shared(backward<B, FORM>, B::SHARED), true);
  (void)ready;
  int heads = B::OWNS_KEYS ? a.kv_heads : a.heads, n = B::OWNS_KEYS ? a.kv_length : a.length;
  dim3 grid((unsigned)(a.batch * heads), pd_grid_all(tiles_of(n, B::OWN), "attention of a sequence so long"),
            B::PARTS);
  PD_LAUNCH((backward<B, FORM>), grid, THREADS, B::SHARED, pd_stream, a);
}

/* BLOCK: the configuration; SMALLER: that of general attention. */
template <class BLOCK, class SMALLER> static void launch(const attention &a) {
  if (a.window || a.ranges || a.bias || a.softcap > 0)
    launch_form<SMALLER, GENERAL>(a);
  else if (a.mask)
    launch_form<BLOCK, MASKED>(a);
  else
    launch_form<BLOCK, PLAIN>(a);
}

void attention_backward_bf16(const attention &a) {
  if (larger(a.size, a.value_size) <= 64) {
    launch<Backward<false, 64, 2, 64>, Backward<false, 64, 2, 32>>(a);
    launch<Backward<true, 64, 2, 32>, Backward<true, 64, 1, 32>>(a);
  } else if (larger(a.size, a.value_size) <= 128) {
    launch<Backward<false, 128, 2, 32>, Backward<false, 128, 1, 32>>(a);
    launch<Backward<true, 128, 1, 32>, Backward<true, 128, 1, 16>>(a);
  } else {
    launch<Backward<false, 256, 1, 32>, Backward<false, 256, 1, 16>>(a);
    launch<Backward<true, 256, 1, 32, 2>, Backward<true, 256, 1, 16, 2>>(a);
  }
}
