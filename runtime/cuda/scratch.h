/* Bytes of scratch memory of library calls on a GPU, from their shapes alone. The compiler plans and the calls use
 * them by these functions. Parts are aligned to PD_SCRATCH_UNIT, as cuBLASLt requires of its workspace; one more
 * unit is planned to align the first part. */
#ifndef PD_SCRATCH_H
#define PD_SCRATCH_H

#include "pd_kernels.h"

#include <stdio.h>

#define PD_PLANNED static inline __attribute__((unused)) /* no file calls all */

enum { PD_SCRATCH_UNIT = 256, PD_MIB = 1 << 20 };

PD_PLANNED int64_t pd_scratch_part(int64_t bytes) {
  return (bytes + PD_SCRATCH_UNIT - 1) / PD_SCRATCH_UNIT * PD_SCRATCH_UNIT;
}
PD_PLANNED int64_t pd_scratch_larger(int64_t a, int64_t b) { return a > b ? a : b; }
PD_PLANNED int64_t pd_scratch_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

PD_PLANNED char *pd_scratch_begin(void *scratch) {
  return (char *)scratch + (PD_SCRATCH_UNIT - (uintptr_t)scratch % PD_SCRATCH_UNIT) % PD_SCRATCH_UNIT;
}

/* ---- matmul ------------------------------------------------------------------------------------- */

/* cuBLASLt's workspace: partial sums where it splits k, up to 16 times the result in float, and at most the 32 MiB
 * that NVIDIA recommends for Hopper. */
PD_PLANNED int64_t pd_matmul_workspace(const struct pd_matmul_shape *s) {
  return pd_scratch_part(pd_scratch_smaller(32 * PD_MIB, PD_MIB + 64 * s->batch * s->m * s->n));
}

/* Rows of bfloat16 that are not aligned to 16 bytes, such as those of a vocabulary of 50257, prevent the library's
 * fast kernels. In a large product one such operand is copied to or from rows that do, some lines at a time: lines
 * are rows of c or of a, which are done one after another, or steps of k, which are added up. Tests make copies of
 * smaller products with less room. */
#ifndef PD_LINES_BYTES
#define PD_LINES_BYTES (256 * (int64_t)PD_MIB)
#define PD_LINES_PRODUCTS ((int64_t)1 << 32)
#endif
enum pd_operand { PD_NO_OPERAND, PD_OPERAND_A, PD_OPERAND_B, PD_OPERAND_C };
struct pd_lines {
  enum pd_operand operand;
  bool of_k;
  int64_t n, length, apart; /* lines, their elements, the elements from one to the next */
  int64_t pitch, at_once;   /* of the copy */
};

PD_PLANNED struct pd_lines pd_matmul_lines(const struct pd_matmul_shape *s) {
  struct pd_lines c = {.operand = PD_OPERAND_C,
                       .of_k = false,
                       .n = s->m,
                       .length = s->n,
                       .apart = s->c_row,
                       .pitch = 0,
                       .at_once = 0};
  struct pd_lines a = {.operand = PD_OPERAND_A,
                       .of_k = false,
                       .n = s->m,
                       .length = s->k,
                       .apart = s->a_row,
                       .pitch = 0,
                       .at_once = 0};
  struct pd_lines across = {.operand = PD_OPERAND_A,
                            .of_k = true,
                            .n = s->k,
                            .length = s->m,
                            .apart = s->a_column,
                            .pitch = 0,
                            .at_once = 0};
  struct pd_lines b = {.operand = PD_OPERAND_B,
                       .of_k = true,
                       .n = s->k,
                       .length = s->n,
                       .apart = s->b_row,
                       .pitch = 0,
                       .at_once = 0};
  struct pd_lines l = {
      .operand = PD_NO_OPERAND, .of_k = false, .n = 0, .length = 0, .apart = 0, .pitch = 0, .at_once = 0};
  bool large =
      s->batch == 1 && s->m >= 256 && s->n >= 256 && s->k >= 256 && s->m * s->n * s->k >= PD_LINES_PRODUCTS;
  if (large && s->a_column == 1 && s->a_row % 8 != 0)
    l = a;
  else if (large && s->a_row == 1 && s->a_column % 8 != 0 && !s->bias)
    l = across;
  else if (large && s->b_column == 1 && s->b_row % 8 != 0 && !s->bias)
    l = b;
  else if (large && s->c_row % 8 != 0 && !s->accumulate)
    l = c;
  l.pitch = (l.length + 63) / 64 * 64;
  if (l.operand != PD_NO_OPERAND) l.at_once = PD_LINES_BYTES / 2 / l.pitch / 64 * 64;
  if (l.at_once < 64) l.operand = PD_NO_OPERAND;
  return l;
}
PD_PLANNED int64_t pd_lines_bytes(const struct pd_lines *l) {
  return l->operand == PD_NO_OPERAND ? 0 : pd_scratch_part(pd_scratch_smaller(l->at_once, l->n) * l->pitch * 2);
}

/* Sums over k of a factor by pdc's kernel: first over tiles of k, with about a thousand blocks of some columns
 * each, then over tiles. */
enum { PD_SUM_COLUMNS = 256, PD_SUM_BLOCKS = 1024, PD_SUM_FEWEST = 64 };
PD_PLANNED bool pd_matmul_sums_factor(const struct pd_matmul_shape *s) {
  return s->epilogue == PD_SUMS_OF_A || s->epilogue == PD_SUMS_OF_B;
}
PD_PLANNED int64_t pd_matmul_n_sums(const struct pd_matmul_shape *s) {
  return s->epilogue == PD_SUMS_OF_A ? s->m : s->n;
}
PD_PLANNED int64_t pd_sum_tiles(const struct pd_matmul_shape *s) {
  int64_t across = (pd_matmul_n_sums(s) + PD_SUM_COLUMNS - 1) / PD_SUM_COLUMNS;
  return pd_scratch_smaller((PD_SUM_BLOCKS + across - 1) / across, (s->k + PD_SUM_FEWEST - 1) / PD_SUM_FEWEST);
}

/* The workspace, or our sums of tiles; the bias in c's type, or sums that are to be added; copied lines. */
PD_PLANNED int64_t pd_cuda_matmul_scratch(const struct pd_matmul_shape *s) {
  struct pd_lines lines = pd_matmul_lines(s);
  int64_t workspace = pd_matmul_workspace(s), vector = 0;
  if (s->bias) vector = pd_scratch_part(s->n * (int64_t)sizeof(float));
  if (pd_matmul_sums_factor(s)) {
    vector = pd_scratch_part(pd_matmul_n_sums(s) * (int64_t)sizeof(float));
    workspace = pd_scratch_larger(workspace, pd_scratch_part(pd_sum_tiles(s) * vector));
  }
  return PD_SCRATCH_UNIT + vector + workspace + pd_lines_bytes(&lines);
}

/* ---- convolution -------------------------------------------------------------------------------- */

/* Results along an axis. */
PD_PLANNED int64_t pd_convolution_out(const struct pd_convolution_shape *s, int axis) {
  int64_t size = axis ? s->width : s->height, reach = s->dilation[axis] * (s->kernel[axis] - 1) + 1;
  return (size + 2 * s->padding[axis] - reach) / s->stride[axis] + 1;
}

/* Inputs of one output channel at one position. */
PD_PLANNED int64_t pd_convolution_column(const struct pd_convolution_shape *s) {
  return s->in_channels / s->groups * s->kernel[0] * s->kernel[1];
}

/* A 1x1 kernel of stride 1 without padding is a matrix product of the pixels. */
PD_PLANNED bool pd_convolution_is_product(const struct pd_convolution_shape *s) {
  bool plain = s->groups == 1;
  for (int i = 0; i < 2; i++) plain = plain && s->kernel[i] == 1 && s->stride[i] == 1 && s->padding[i] == 0;
  return plain;
}

PD_PLANNED struct pd_matmul_shape pd_convolution_product(const struct pd_convolution_shape *s) {
  int64_t pixels = s->batch * s->height * s->width, in = s->in_channels, out = s->out_channels;
  if (s->kind == PD_CONVOLUTION) {
    struct pd_matmul_shape y = {.batch = 1,
                                .m = pixels,
                                .n = out,
                                .k = in,
                                .a_batch = 0,
                                .a_row = in,
                                .a_column = 1,
                                .b_batch = 0,
                                .b_row = 1,
                                .b_column = in,
                                .c_batch = 0,
                                .c_row = out,
                                PD_MATMUL_F32,
                                .bias = s->bias,
                                .accumulate = false,
                                .few_rows = false,
                                .by_sample = false};
    return y;
  }
  if (s->kind == PD_CONVOLUTION_BACKWARD) {
    struct pd_matmul_shape dx = {.batch = 1,
                                 .m = pixels,
                                 .n = in,
                                 .k = out,
                                 .a_batch = 0,
                                 .a_row = out,
                                 .a_column = 1,
                                 .b_batch = 0,
                                 .b_row = in,
                                 .b_column = 1,
                                 .c_batch = 0,
                                 .c_row = in,
                                 PD_MATMUL_F32,
                                 .bias = false,
                                 .accumulate = false,
                                 .few_rows = false,
                                 .by_sample = false};
    return dx;
  }
  struct pd_matmul_shape dw = {.batch = 1,
                               .m = out,
                               .n = in,
                               .k = pixels,
                               .a_batch = 0,
                               .a_row = 1,
                               .a_column = out,
                               .b_batch = 0,
                               .b_row = in,
                               .b_column = 1,
                               .c_batch = 0,
                               .c_row = in,
                               PD_MATMUL_F32,
                               .bias = false,
                               .accumulate = s->accumulate,
                               .few_rows = false,
                               .by_sample = false};
  return dw;
}

/* A depthwise convolution. */
PD_PLANNED bool pd_convolution_is_depthwise(const struct pd_convolution_shape *s) {
  return s->groups > 1 && s->groups == s->in_channels;
}

/* Parts of a depthwise weight gradient's sum over pixels, added up in order. */
PD_PLANNED int64_t pd_depthwise_parts(const struct pd_convolution_shape *s) {
  int64_t pixels = s->batch * pd_convolution_out(s, 0) * pd_convolution_out(s, 1);
  return pd_scratch_smaller(64, (pixels + 1023) / 1024);
}

/* Convolutions by columns (columns.cu): samples at a time, those whose columns take 64 MiB, at least one. */
PD_PLANNED int64_t pd_column_bytes(const struct pd_convolution_shape *s) { /* of a sample */
  return pd_convolution_out(s, 0) * pd_convolution_out(s, 1) * s->groups * pd_convolution_column(s) *
         (int64_t)sizeof(float);
}
PD_PLANNED int64_t pd_column_samples(const struct pd_convolution_shape *s) {
  int64_t n = 64 * PD_MIB / pd_column_bytes(s);
  return n < 1 ? 1 : pd_scratch_smaller(n, s->batch);
}

/* The product of `samples` samples' columns; a group each is a batch. */
PD_PLANNED struct pd_matmul_shape pd_column_product(const struct pd_convolution_shape *s, int64_t samples,
                                                    bool accumulate) {
  int64_t rows = samples * pd_convolution_out(s, 0) * pd_convolution_out(s, 1), groups = s->groups;
  int64_t column = pd_convolution_column(s), all = groups * column, out = s->out_channels, own = out / groups;
  if (s->kind == PD_CONVOLUTION) {
    struct pd_matmul_shape y = {.batch = groups,
                                .m = rows,
                                .n = own,
                                .k = column,
                                .a_batch = column,
                                .a_row = all,
                                .a_column = 1,
                                .b_batch = own * column,
                                .b_row = 1,
                                .b_column = column,
                                .c_batch = own,
                                .c_row = out,
                                PD_MATMUL_F32,
                                .bias = false,
                                .accumulate = false,
                                .few_rows = false,
                                .by_sample = false};
    return y;
  }
  if (s->kind == PD_CONVOLUTION_BACKWARD) {
    struct pd_matmul_shape columns = {.batch = groups,
                                      .m = rows,
                                      .n = column,
                                      .k = own,
                                      .a_batch = own,
                                      .a_row = out,
                                      .a_column = 1,
                                      .b_batch = own * column,
                                      .b_row = column,
                                      .b_column = 1,
                                      .c_batch = column,
                                      .c_row = all,
                                      PD_MATMUL_F32,
                                      .bias = false,
                                      .accumulate = false,
                                      .few_rows = false,
                                      .by_sample = false};
    return columns;
  }
  struct pd_matmul_shape dw = {.batch = groups,
                               .m = own,
                               .n = column,
                               .k = rows,
                               .a_batch = own,
                               .a_row = 1,
                               .a_column = out,
                               .b_batch = column,
                               .b_row = all,
                               .b_column = 1,
                               .c_batch = own * column,
                               .c_row = column,
                               PD_MATMUL_F32,
                               .bias = false,
                               .accumulate = accumulate,
                               .few_rows = false,
                               .by_sample = false};
  return dw;
}

/* cuDNN's workspace: room for images and result in another layout and for several copies of the weights. */
PD_PLANNED int64_t pd_convolution_weights_bytes(const struct pd_convolution_shape *s) {
  return s->out_channels * pd_convolution_column(s) * (int64_t)sizeof(float);
}
PD_PLANNED int64_t pd_convolution_workspace(const struct pd_convolution_shape *s) {
  int64_t x = s->height * s->width * s->in_channels;
  int64_t y = pd_convolution_out(s, 0) * pd_convolution_out(s, 1) * s->out_channels;
  int64_t bytes = PD_MIB + s->batch * (x + y) * (int64_t)sizeof(float) + 8 * pd_convolution_weights_bytes(s);
  return pd_scratch_part(pd_scratch_smaller(256 * PD_MIB, bytes));
}

PD_PLANNED int64_t pd_cuda_convolution_scratch(const struct pd_convolution_shape *s) {
  if (pd_convolution_is_product(s)) {
    struct pd_matmul_shape m = pd_convolution_product(s);
    return pd_cuda_matmul_scratch(&m);
  }
  if (pd_convolution_is_depthwise(s)) {
    bool sums = s->kind == PD_CONVOLUTION_WEIGHTS;
    return sums ? PD_SCRATCH_UNIT + pd_depthwise_parts(s) * pd_convolution_weights_bytes(s) : 0;
  }
  int64_t samples = pd_column_samples(s);
  struct pd_matmul_shape m = pd_column_product(s, samples, false);
  int64_t columns = pd_scratch_part(samples * pd_column_bytes(s)) + pd_cuda_matmul_scratch(&m);
  int64_t library = pd_scratch_part(pd_convolution_weights_bytes(s)) + pd_convolution_workspace(s);
  return PD_SCRATCH_UNIT + (s->groups > 1 ? columns : pd_scratch_larger(columns, library));
}

/* ---- attention ---------------------------------------------------------------------------------- */

/* The backward pass: two floats a row. */
PD_PLANNED int64_t pd_attention_rows_bytes(const struct pd_attention *a, bool backward) {
  return backward ? pd_scratch_part(a->batch * a->heads * a->length * 2 * (int64_t)sizeof(float)) : 0;
}
/* Two numbers a position with documents: the keys of its own. */
PD_PLANNED int64_t pd_attention_ranges_bytes(const struct pd_attention *a) {
  return a->parted ? pd_scratch_part(a->batch * a->length * 2 * (int64_t)sizeof(int)) : 0;
}

/* The gradient of a bias by distance: query rows of a block, numbers of its sums, and the bytes of all blocks. */
PD_PLANNED int64_t pd_attention_bias_rows(const struct pd_attention *a) {
  return a->size > 128 || a->value_size > 128 ? 16 : 32;
}
PD_PLANNED int64_t pd_attention_bias_sums(const struct pd_attention *a) {
  return a->kv_length + pd_attention_bias_rows(a) - 1;
}
PD_PLANNED int64_t pd_attention_bias_bytes(const struct pd_attention *a, bool backward) {
  if (!backward || !a->by_distance || !a->bias_gradient) return 0;
  int64_t rows = pd_attention_bias_rows(a), blocks = a->batch * a->heads * ((a->length + rows - 1) / rows);
  return pd_scratch_part(blocks * pd_attention_bias_sums(a) * (int64_t)sizeof(float));
}

PD_PLANNED int64_t pd_attention_own_bytes(const struct pd_attention *a, bool backward) {
  return pd_attention_rows_bytes(a, backward) + pd_attention_ranges_bytes(a) +
         pd_attention_bias_bytes(a, backward);
}

/* Whether cuDNN may compute the attention: causal or not, nothing else. */
PD_PLANNED bool pd_attention_is_plain(const struct pd_attention *a) {
  return !a->masked && !a->parted && !a->biased && !a->has_sinks && !a->value_size && a->window == 0 &&
         a->softcap == 0;
}

/* Scratch memory followed by cuDNN's workspace, if planned; and the workspace's offset. */
PD_PLANNED int64_t pd_cuda_attention_scratch(const struct pd_attention *a, bool backward, int64_t workspace) {
  int64_t bytes = pd_attention_own_bytes(a, backward) + workspace;
  return bytes ? PD_SCRATCH_UNIT + bytes : 0;
}
PD_PLANNED void *pd_attention_workspace(const struct pd_attention *a, bool backward, void *scratch) {
  return pd_scratch_begin(scratch) + pd_attention_own_bytes(a, backward);
}

/* The limit of cuDNN's workspace, as for convolutions. An attention that needs more is computed in slices of
 * samples. Tests of slices set a smaller limit. */
#ifndef PD_ATTENTION_WORKSPACE
#define PD_ATTENTION_WORKSPACE (256 * (int64_t)PD_MIB)
#endif

/* An attention's key in plans: all properties that determine cuDNN's fastest engine. */
enum { PD_ATTENTION_NAME = 160 };
PD_PLANNED void pd_attention_name(char to[PD_ATTENTION_NAME], const struct pd_attention *a, bool backward) {
  snprintf(to, PD_ATTENTION_NAME, "%s bf16 [%lld, %lld, %lld, %lld] of [%lld, %lld]%s",
           backward ? "backward" : "forward", (long long)a->batch, (long long)a->heads, (long long)a->length,
           (long long)a->size, (long long)a->kv_heads, (long long)a->kv_length, a->causal ? " causal" : "");
}

/* ---- LSTM --------------------------------------------------------------------------------------- */

/* The contribution of the previous state to a step's gates: z[batch][4 hidden] = h @ w^T. */
PD_PLANNED struct pd_matmul_shape pd_lstm_product(const struct pd_lstm *l) {
  int64_t h = l->hidden;
  struct pd_matmul_shape z = {.batch = 1,
                              .m = l->batch,
                              .n = 4 * h,
                              .k = h,
                              .a_batch = 0,
                              .a_row = h,
                              .a_column = 1,
                              .b_batch = 0,
                              .b_row = 1,
                              .b_column = h,
                              .c_batch = 0,
                              .c_row = 4 * h,
                              PD_MATMUL_F32,
                              .bias = false,
                              .accumulate = false,
                              .few_rows = false,
                              .by_sample = false};
  return z;
}
/* The gradient of the previous state from a step's gates: dh[batch][hidden] = d_gates @ w. */
PD_PLANNED struct pd_matmul_shape pd_lstm_backward_product(const struct pd_lstm *l) {
  int64_t h = l->hidden;
  struct pd_matmul_shape dh = {.batch = 1,
                               .m = l->batch,
                               .n = h,
                               .k = 4 * h,
                               .a_batch = 0,
                               .a_row = 4 * h,
                               .a_column = 1,
                               .b_batch = 0,
                               .b_row = h,
                               .b_column = 1,
                               .c_batch = 0,
                               .c_row = h,
                               PD_MATMUL_F32,
                               .bias = false,
                               .accumulate = false,
                               .few_rows = false,
                               .by_sample = false};
  return dh;
}
PD_PLANNED int64_t pd_lstm_state_bytes(const struct pd_lstm *l) {
  return pd_scratch_part(l->batch * l->hidden * (int64_t)sizeof(float));
}
PD_PLANNED int64_t pd_lstm_gates_bytes(const struct pd_lstm *l) {
  return pd_scratch_part(4 * l->batch * l->hidden * (int64_t)sizeof(float));
}

/* The gates' sums, the state, the product's. */
PD_PLANNED int64_t pd_cuda_lstm_scratch(const struct pd_lstm *l) {
  struct pd_matmul_shape m = pd_lstm_product(l);
  return PD_SCRATCH_UNIT + pd_lstm_gates_bytes(l) + pd_lstm_state_bytes(l) + pd_cuda_matmul_scratch(&m);
}
/* A step's gates' gradient, what it passes on to h, gradients of the state h and c, the product's. */
PD_PLANNED int64_t pd_cuda_lstm_backward_scratch(const struct pd_lstm *l) {
  struct pd_matmul_shape m = pd_lstm_backward_product(l);
  return PD_SCRATCH_UNIT + pd_lstm_gates_bytes(l) + 3 * pd_lstm_state_bytes(l) + pd_cuda_matmul_scratch(&m);
}

/* ---- experts ------------------------------------------------------------------------------------ */

enum { PD_EXPERT_ROWS = 64, PD_EXPERT_SHARES = 256 }; /* rows of a tile; threads that list the rows */

/* Of the rows of each expert, and of those without one. */
PD_PLANNED int64_t pd_cuda_expert_lists(const struct pd_experts *e) { return e->count + (e->drops ? 1 : 0); }

/* Integers: first rows and first tiles of the lists, each thread's count of each list, the rows. */
PD_PLANNED int64_t pd_cuda_experts_scratch(const struct pd_experts *e) {
  const int64_t lists = pd_cuda_expert_lists(e);
  return PD_SCRATCH_UNIT +
         (2 * (lists + 1) + PD_EXPERT_SHARES * lists + e->rows * e->chosen) * (int64_t)sizeof(int32_t);
}

#endif
