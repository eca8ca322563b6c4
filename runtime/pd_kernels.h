/* The library calls: functions for operations that are not loops, which stage programs call on both targets. The caller
 * owns all memory, scratch memory too. Sizes and strides are in elements, scratch memory in bytes. Results are bit-identical
 * for any number of threads. A failure ends the launch. */
#ifndef PD_KERNELS_H
#define PD_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pd_operand.h"

/* ---- library calls (kernels/matmul.c) ------------------------------------------------------------ */
/* c[m, n] = a @ b (+ bias[n]) for each of `batch` matrices, by oneDNN, with sums in f32 and scratch memory of the
 * caller. Strides are in elements. accumulate: adds to c. An object is created once at start, for fixed operand
 * types, and run many times. few_rows: kernels/few_rows.c computes the product and reads b once, for up to
 * PD_FEW_ROWS rows; batch, a_column and one of b_row and b_column are 1, and accumulate is false. by_sample: while
 * pd_rows_used is 1 to PD_FEW_ROWS, only these first rows are computed, as if marked few_rows; the same conditions hold,
 * but m may be larger. GPUs ignore both, and use the operands' types. */
extern __thread int64_t pd_rows_used; /* of the microbatch; 0: all. Set by pd_device_use_rows() */
enum { PD_FEW_ROWS = 8 };
/* Limits oneDNN's instruction set; must precede its first use. pd_scratch_planned: scratch memory of kernels in
 * bytes (0: no limit); a kernel that needs more ends the program (kernels/limit.c). */
enum pd_instructions { PD_SSE41, PD_AVX, PD_AVX2, PD_AVX512, PD_AVX512_BF16, PD_ALL_INSTRUCTIONS };
void pd_limit_library(enum pd_instructions most);
const char *pd_library_name(void); /* "oneDNN 3.7.2" */
extern __thread size_t pd_scratch_planned;
void pd_check_scratch(size_t bytes);
/* Epilogue of a product, on GPUs only. GELU, in its tanh approximation, or its gradient: batch is 1, accumulate is
 * false, and c and `before` are bf16 with equal strides. Sums over k, of the m rows of a or the n columns of b:
 * batch is 1, there is no bias, and the sums are contiguous f32. */
enum pd_epilogue { PD_PLAIN, PD_GELU, PD_GELU_GRADIENT, PD_SUMS_OF_A, PD_SUMS_OF_B };
struct pd_matmul_shape {
  int64_t batch, m, n, k;
  int64_t a_batch, a_row, a_column, b_batch, b_row, b_column, c_batch, c_row; /* c's column stride is 1 */
  enum pd_type a_type, b_type, bias_type, c_type;
  enum pd_epilogue epilogue;
  bool bias, accumulate, few_rows, by_sample;
};
/* In a shape's initializer: all types are f32, without an epilogue. */
#define PD_MATMUL_F32 \
  .a_type = PD_F32, .b_type = PD_F32, .bias_type = PD_F32, .c_type = PD_F32, .epilogue = PD_PLAIN
struct pd_matmul;
struct pd_matmul *pd_matmul_new(struct pd_matmul_shape shape);
size_t pd_matmul_scratch(const struct pd_matmul *m); /* bytes, aligned to 64 */
void pd_matmul(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, void *scratch);
/* PD_GELU: c = gelu(before), before = a @ b + bias. PD_GELU_GRADIENT: c = (a @ b) gelu'(before). */
void pd_matmul_gelu(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, pd_out before,
                    void *scratch);
void pd_matmul_gelu_gradient(const struct pd_matmul *m, pd_in a, pd_in b, pd_in before, pd_out c, void *scratch);
/* PD_SUMS_OF_A, PD_SUMS_OF_B: c = a @ b, and sums; accumulate adds to both. */
void pd_matmul_sums(const struct pd_matmul *m, pd_in a, pd_in b, pd_out c, float *sums, void *scratch);

/* ---- rates (kernels/rates.c) ------------------------------------------------------------------- */
/* CPU, with the threads of loops: operations per second of 1024 x 1024 matrix products of this type, and bytes per
 * second of memory reads. Best of several rounds; about half a second each. */
double pd_product_rate(enum pd_type type);
double pd_memory_rate(void);

/* ---- convolution (kernels/convolution.c) ----------------------------------------------------------- */
/* Images are [batch][height][width][channels], dense, f32; weights [out][in / groups][kernel 0][kernel 1], as
 * files hold them; output channel o sees the input channels of group o / (out / groups). A result has (size + 2
 * padding - dilation (kernel - 1) - 1) / stride + 1 pixels along an axis; pairs are height and width. `bias` is
 * for PD_CONVOLUTION, `accumulate` (adds to dw) for PD_CONVOLUTION_WEIGHTS. Results are bit-identical for any
 * number of threads. */
enum pd_convolution_kind { PD_CONVOLUTION, PD_CONVOLUTION_BACKWARD, PD_CONVOLUTION_WEIGHTS };
struct pd_convolution_shape {
  enum pd_convolution_kind kind;
  int64_t batch, in_channels, out_channels, groups, height, width; /* of x */
  enum pd_type x_type, w_type, bias_type,
      y_type; /* of x or dx, of w or dw, of bias, of y or dy; GPUs ignore them */
  bool bias, accumulate;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
};
struct pd_convolution;
struct pd_convolution *pd_convolution_new(struct pd_convolution_shape shape);
size_t pd_convolution_scratch(const struct pd_convolution *c); /* bytes */
void pd_convolution(const struct pd_convolution *c, pd_in x, pd_in w, pd_in bias, pd_out y, void *scratch);
void pd_convolution_backward(const struct pd_convolution *c, pd_in dy, pd_in w, pd_out dx, void *scratch);
void pd_convolution_weights(const struct pd_convolution *c, pd_in x, pd_in dy, pd_out dw, void *scratch);

/* ---- pooling (kernels/pooling.c) ------------------------------------------------------------------- */
/* Pooling of images as above. Every window holds a pixel of x. `out` is (size + 2 padding - kernel) / stride + 1,
 * rounded by the caller. count_padding: averages count the zeros of the padding. adaptive: window i along an axis
 * is [floor(i size / out), ceil((i + 1) size / out)); kernel, stride and padding are ignored. The first of several
 * equal maxima gets the gradient. Only the backward pass of maximum pooling reads x and y. */
struct pd_pooling {
  int64_t batch, channels, height, width; /* of x */
  bool maximum, count_padding, adaptive;
  int64_t out[2], kernel[2], stride[2], padding[2];
};
void pd_pooling(const struct pd_pooling *p, pd_in x, pd_out y);
void pd_pooling_backward(const struct pd_pooling *p, pd_in x, pd_in y, pd_in dy, pd_out dx);

/* ---- attention (kernels/attention.c) ---------------------------------------------------------------- */
/* Scaled dot-product attention over [batch][heads][length][size] with strides, size contiguous; kv_heads
 * divides heads (grouped heads). Blocked, online softmax: scores are never stored. */
struct pd_attention {
  int64_t batch, heads, kv_heads, length, kv_length, size;
  int64_t value_size; /* of v and o; 0: size */
  bool causal;
  bool masked, parted; /* by a mask, by documents */
  bool biased;         /* by a bias */
  bool by_distance;    /* the bias: a number for each distance of a key from a query */
  bool bias_gradient;  /* the backward pass computes d_bias */
  bool has_sinks;
  int64_t window; /* a position sees keys less than `window` positions away; 0: at any distance */
  float scale;
  float softcap; /* scores s become softcap * tanh(s / softcap); 0: they stay */
  struct {
    int64_t batch, head, row;
  } q, k, v, o, dq, dk, dv, d_o; /* strides in elements */
  struct {
    int64_t batch, row;
  } mask; /* 0: the same for all samples, for all rows */
  struct {
    int64_t batch;
  } documents; /* 0: the same for all samples */
  struct {
    int64_t batch, head, row;
  } bias, d_bias; /* batch 0: the same for all samples, whose gradients are summed in order */
  struct {
    int64_t batch;
  } sinks, d_sinks; /* likewise */
};
static inline int64_t pd_attention_value_size(const struct pd_attention *a) {
  return a->value_size ? a->value_size : a->size;
}
/* Distances of a key from a query: 1 - length to kv_length - 1. */
static inline int64_t pd_attention_distances(const struct pd_attention *a) { return a->length + a->kv_length - 1; }
size_t pd_attention_scratch(const struct pd_attention *a, int threads);
/* lse: [batch][heads][length], log of the sum of exponentials, for the backward pass. */
void pd_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_out o, pd_out lse,
                          void *scratch);
void pd_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse, pd_in d_o,
                           pd_out dq, pd_out dk, pd_out dv, void *scratch);
/* Attention with a mask (`masked` is true), documents (`parted` is true), or both; NULL: none.
 * mask: kv_length contiguous floats per row, added to the scores of all heads. An element of at most
 * PD_ATTENTION_HIDDEN hides its key; a row without visible keys gives zeros and zero gradients.
 * documents: a number per position. A document is a run of equal numbers; its positions see each other only. */
#define PD_ATTENTION_HIDDEN (-10000.0f)
void pd_masked_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask,
                                 const int32_t *documents, pd_out o, pd_out lse, void *scratch);
void pd_masked_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, const int32_t *documents, pd_out dq, pd_out dk, pd_out dv,
                                  void *scratch);

/* Attention with a bias, sinks, or both, and a mask and documents as above; NULL: none.
 * bias: numbers added to the scores of each head, kv_length contiguous ones for each row; by distance one row of `head`'s
 * numbers for the distances 1 - length to kv_length - 1 of a key from a query.
 * sinks: a number for each head, contiguous: the score of a key without a value, which every row of the head sees.
 * d_bias, d_sinks: gradients, NULL: not wanted. */
void pd_biased_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask,
                                 const int32_t *documents, pd_in bias, pd_in sinks, pd_out o, pd_out lse,
                                 void *scratch);
void pd_biased_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, const int32_t *documents, pd_in bias, pd_in sinks,
                                  pd_out dq, pd_out dk, pd_out dv, float *d_bias, float *d_sinks, void *scratch);

/* ---- attention from a cache (kernels/cached_attention.c) --------------------------------------------- */
/* Row r of the batch is position[r] of sequence[r]: k and v, [batch][kv_heads][size], are stored as row
 * position[r] % context of the caches, dense [sequences][kv_heads][context][size]. Then q, [batch][heads][size], attends
 * to its own position and to those before it, with a window to the last `window` of these. Where positions of one
 * sequence pass the context, a call may have context - window + 1 of them. A row with another number than those of the
 * `sequences` is unused: nothing is stored or written. */
struct pd_cached_attention {
  int64_t batch, sequences, heads, kv_heads, context, size;
  int64_t value_size; /* of v, o and their cache; 0: size */
  int64_t distances;  /* of the bias, an odd number: the middle one is distance 0 */
  int64_t window;     /* 0: none, and positions are below the context */
  float scale;
  float softcap; /* as in pd_attention */
  struct {
    int64_t batch, head;
  } q, k, v, o;      /* strides in elements; size contiguous */
  int64_t bias_head; /* stride of the bias's heads */
};
void pd_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, const int32_t *position,
                         const int32_t *sequence, pd_out o, pd_out keys, pd_out values);
/* With a bias by distance and sinks, as in pd_attention; NULL: none. */
void pd_biased_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, pd_in bias,
                                pd_in sinks, const int32_t *position, const int32_t *sequence, pd_out o,
                                pd_out keys, pd_out values);

/* ---- values that generating programs keep between steps (kernels/kept.c) ------------------------------ */
void pd_keep(pd_in x, int64_t n, pd_out y); /* y = x, n elements */
/* Element position[b] of the axis `context` of y, [batch][outer][context][inner], becomes x, [batch][outer][inner]. */
struct pd_cached_rows {
  int64_t batch, outer, context, inner;
};
void pd_cached_rows(const struct pd_cached_rows *r, pd_in x, const int32_t *position, pd_out y);

/* The state of `elements` floats before a row of a sequence: the kept one, or at position 0 `initial`, NULL for zeros;
 * and the state after the row, which is kept. kept: [sequences][elements]. A row with another number than those of the
 * `sequences` is unused: its state is left, and not kept. position and sequence point to the row's. */
void pd_take_state(int64_t elements, int64_t sequences, const int32_t *position, const int32_t *sequence,
                   const float *initial, const float *kept, float *state);
void pd_put_state(int64_t elements, int64_t sequences, const int32_t *sequence, const float *state, float *kept);

/* ---- steps of an LSTM (kernels/cached_lstm.c) --------------------------------------------------------- */
/* Row r of the batch is position[r] of sequence[r]; rows of one sequence are in ascending order. x: [batch][4 hidden] and w
 * as in pd_lstm; h0 and c0: [batch][hidden], the state before position 0, NULL for zeros. h: [batch][hidden], the state
 * after the row. kept_h and kept_c, floats [sequences][hidden], have the states after earlier rows and get those after
 * these. A row with another number than those of the `sequences` is unused. */
struct pd_cached_lstm {
  int64_t batch, sequences, hidden;
};
void pd_cached_lstm(const struct pd_cached_lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *position,
                    const int32_t *sequence, pd_out h, pd_out kept_h, pd_out kept_c);

/* ---- LSTM (kernels/lstm.c) ------------------------------------------------------------------------- */
/* The recurrence of one layer in one direction; all arrays are dense. x: [batch][length][4 hidden], the input's
 * product plus biases for the gates i, f, g, o; w: [4 hidden][hidden]; h0 and c0: [batch][hidden], the initial
 * state, NULL for zeros; lengths: [batch], the number of steps of each sample, or NULL. After the last step h is
 * zero and the state is kept. */
struct pd_lstm {
  int64_t batch, length, hidden;
  bool reverse; /* from a sample's last step to its first */
};
size_t pd_lstm_scratch(const struct pd_lstm *l); /* bytes */
size_t pd_lstm_backward_scratch(const struct pd_lstm *l);
/* h: [batch][length][hidden]; h_n, c_n: [batch][hidden], the final state. For the backward pass: c, shaped like h,
 * the cell states, and gates, shaped like x, after the activation functions. */
void pd_lstm_forward(const struct pd_lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths,
                     pd_out h, pd_out h_n, pd_out c_n, pd_out c, pd_out gates, void *scratch);
/* In: the gradients dh, dh_n and dc_n (NULL for zeros). Out: d_gates, the gradient of x; dh0 and dc0, both or
 * neither NULL; previous, shaped like h, the state h before each step: the gradient of w is d_gates^T @
 * previous. */
void pd_lstm_backward(const struct pd_lstm *l, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths, pd_in h,
                      pd_in c, pd_in gates, pd_in dh, pd_in dh_n, pd_in dc_n, pd_out d_gates, pd_out previous,
                      pd_out dh0, pd_out dc0, void *scratch);

/* ---- largest elements (kernels/top_k.c) -------------------------------------------------------------- */
/* The k largest of the n floats of each row, in falling order, and their indices; of equal ones the lower index first,
 * NaN before all numbers. */
void pd_top_k(const float *x, int64_t rows, int64_t n, int64_t k, float *values, int32_t *indices);
/* The scores, and their indices, of the k largest sums scores[row][i] + bias[i], in this order of pd_top_k. With kept below
 * `groups`, only of the kept groups of n / groups scores, at least 2, with the largest sums of their two largest. */
enum { PD_MOST_GROUPS = 64 };
void pd_biased_top_k(const float *scores, const float *bias, int64_t rows, int64_t n, int64_t k, int64_t groups,
                     int64_t kept, float *values, int32_t *indices);
/* dx: zeros, and dy at the indices. */
void pd_top_k_gradient(const int32_t *indices, const float *dy, int64_t rows, int64_t n, int64_t k, float *dx);

/* ---- experts (kernels/experts.c) --------------------------------------------------------------------- */
/* y[row][chosen] = weight[expert] x[row][chosen], where `expert`, below `count`, is experts[row][chosen] and weight[expert]
 * is [out][in]. Strides are in elements. Rows are grouped by expert; sums run over `in`, or over the rows of an expert,
 * in a fixed order. With `drops` the expert `count` is none: y is zero. */
struct pd_experts {
  int64_t rows, chosen, count, in, out;
  int64_t x_row, x_chosen, x_column; /* x_chosen 0: all experts of a row read the same x */
  int64_t y_row, y_chosen, y_column;
  int64_t experts_row, experts_chosen;
  int64_t weight_expert, weight_out, weight_in;
  bool drops;
};
size_t pd_expert_linear_scratch(const struct pd_experts *e, int threads); /* bytes */
size_t pd_expert_linear_weights_scratch(const struct pd_experts *e, int threads);
void pd_expert_linear(const struct pd_experts *e, pd_in x, pd_in weight, const int32_t *experts, pd_out y,
                      void *scratch);
/* dw: dense floats [count][out][in]; first: overwrites them, else adds. */
void pd_expert_linear_weights(const struct pd_experts *e, pd_in x, pd_in dy, const int32_t *experts, float *dw,
                              bool first, void *scratch);

/* kept[i] = experts[i], or `count` if `room` rows of the same sample before i have that expert, which is below `count`. */
void pd_within_capacity(const int32_t *experts, int64_t samples, int64_t rows, int64_t count, int64_t room,
                        int32_t *kept);

/* sum[row] = the sum over j, in order, of weights[row][j] y[row][j], of `width` numbers; all are dense. */
void pd_expert_sum(pd_in y, const float *weights, int64_t rows, int64_t chosen, int64_t width, pd_out sum);

/* ---- collectives of a shard group (collectives.c) ---------------------------------------- */
/* All ranks make the same calls in the same order. y[i] is the sum of x[i] in the order of ranks, bit-identical on
 * all ranks. scratch: pd_all_reduce_scratch bytes. */
#ifdef __cplusplus
extern "C" {
#endif
void pd_all_reduce(pd_in x, int64_t n, pd_out y, void *scratch);
/* y[i] is the maximum of x[i] over ranks. */
void pd_all_reduce_max(pd_in x, int64_t n, pd_out y, void *scratch);
enum {
  PD_SHORT_SUM = 4096
}; /* up to this many elements every rank sends all to all; above, each rank sums a part */
static inline int64_t
pd_all_reduce_scratch(int64_t n, int ranks) { /* one part of x per rank, in cache lines; all of a short x */
  int64_t part = n <= PD_SHORT_SUM ? n : (n + ranks - 1) / ranks;
  return (part + 15) / 16 * 16 * ranks * (int64_t)sizeof(float);
}
/* y is the whole value: `runs` runs, each of `part` elements of every rank; x is this rank's part. scratch: the
 * size of y. */
void pd_all_gather(pd_in x, int64_t runs, int64_t part, pd_out y, void *scratch);
/* y is this rank's part of the sum of x over ranks, bit-identical to pd_all_reduce. scratch:
 * pd_reduce_scatter_scratch bytes. */
void pd_reduce_scatter(pd_in x, int64_t runs, int64_t part, pd_out y, void *scratch);
static inline int64_t pd_reduce_scatter_scratch(int64_t n,
                                                int ranks) { /* n: of y; parts sent and received, in cache lines */
  return 2 * ((n + 15) / 16 * 16) * ranks * (int64_t)sizeof(float);
}
/* y is this rank's part of the whole value x; sends no message. */
void pd_take_part(pd_in x, int64_t runs, int64_t part, pd_out y);
/* The collectives in two calls. Between begin and end the caller must not change x or use y, and no other
 * collective of the group may start. */
void pd_all_reduce_begin(pd_in x, int64_t n, pd_out y);
void pd_all_reduce_max_begin(pd_in x, int64_t n, pd_out y);
void pd_all_gather_begin(pd_in x, int64_t runs, int64_t part, pd_out y);
void pd_reduce_scatter_begin(pd_in x, int64_t runs, int64_t part, pd_out y);
void pd_collective_end(pd_out y);
/* Bytes of the arena's `meeting` that a begin needs to expose `bytes`: whole pages, at any alignment. */
enum { PD_SHOWN_PAGE = 4096 };
static inline int64_t pd_shown_bytes(int64_t bytes) {
  return ((bytes + PD_SHOWN_PAGE - 1) / PD_SHOWN_PAGE + 1) * PD_SHOWN_PAGE;
}
#ifdef __cplusplus
}
#endif

/* ---- embedding rows (kernels/gather.c) ----------------------------------------------------------------- */
/* out[r] = table[index[r]]; rows of `width` floats, out rows `stride` apart. */
void pd_gather(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride);
/* accumulator[index[r]] += gradient[r], rows in order; first: zeroes all `classes` rows before. */
void pd_gather_gradient(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                        int64_t stride, int64_t classes, bool first);
/* Rows of a table split over a shard group: this rank holds `own` rows from `first_row`. out[r] is zero if another
 * rank holds the row; the accumulator covers this rank's rows. */
void pd_gather_part(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride,
                    int64_t own, int64_t first_row);
void pd_gather_gradient_part(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                             int64_t stride, int64_t own, bool first, int64_t first_row);

#if !defined __cplusplus && !defined PD_KERNELS
#include "pd_calls.h"
#endif

#endif
