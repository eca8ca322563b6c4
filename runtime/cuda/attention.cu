/* Scaled dot-product attention on a GPU: the choice of kernels. bf16 tensors with rows of multiples of 16 bytes
 * use tensor cores; all other tensors, mainly floats, use fused multiply-adds. Visibility, masks and rows without
 * keys are as in kernels/attention.c. */
#include "attention_cudnn.h"
#include "pd_elements.h"
#include "scratch.h"

#include <climits>
#include <initializer_list>

typedef decltype(pd_attention::q) Strides;

static attention_tensor tensor(const void *at, pd_type type, const Strides &stride, int64_t rows, int64_t size) {
  bool vectors = pd_aligned(at, 16) && rows * stride.row <= UINT_MAX;
  for (int64_t n : {size, stride.batch, stride.head, stride.row}) vectors = vectors && n * pd_size(type) % 16 == 0;
  return {const_cast<void *>(at), type == PD_BF16, vectors, stride.batch, stride.head, stride.row};
}

static const float *floats(const pd_in &x, const char *what) {
  if (x.type != PD_F32) pd_fail("attention: %s must be floats", what);
  return static_cast<const float *>(x.at);
}

static attention describe(const struct pd_attention *p, const pd_in &q, const pd_in &k, const pd_in &v,
                          const pd_in &lse, const pd_in &mask) {
  int64_t heads = p->batch * p->heads;
  const int64_t value_size = pd_attention_value_size(p), size = p->size > value_size ? p->size : value_size;
  if (heads > INT_MAX || p->length > INT_MAX / 2 || p->kv_length > INT_MAX / 2 || size > 256)
    pd_fail("attention of %lld heads, length %lld and %lld, size %lld exceeds the limits of the GPU kernels",
            (long long)heads, (long long)p->length, (long long)p->kv_length, (long long)size);
  attention a = {};
  a.batch = (int)p->batch, a.heads = (int)p->heads, a.kv_heads = (int)p->kv_heads;
  a.length = (int)p->length, a.kv_length = (int)p->kv_length, a.size = (int)p->size,
  a.value_size = (int)value_size;
  a.causal = p->causal, a.window = (int)p->window, a.scale = p->scale, a.softcap = p->softcap;
  a.q = tensor(q.at, q.type, p->q, p->length, p->size);
  a.k = tensor(k.at, k.type, p->k, p->kv_length, p->size);
  a.v = tensor(v.at, v.type, p->v, p->kv_length, value_size);
  a.mask = floats(mask, "the mask"), a.mask_batch = p->mask.batch, a.mask_row = p->mask.row;
  a.lse = const_cast<float *>(floats(lse, "the logarithms of sums"));
  return a;
}

static bool fits_tensor_cores(const attention &a, std::initializer_list<const attention_tensor *> tensors) {
  bool fits = a.scale > 0;
  for (const attention_tensor *t : tensors) fits = fits && t->bf16 && t->vectors;
  return fits;
}

enum { SEGMENTS = 256 };

/* Documents of a sample, a block's: each thread has a segment of positions, and finds its first and last document's
 * beginning. */
static __global__ __launch_bounds__(SEGMENTS) void find_ranges(const int *documents, int64_t stride, int length,
                                                               attention_range *ranges) {
  PD_SHARED(int, last); /* [SEGMENTS], -1: none; first: length: none */
  int *first = last + SEGMENTS, own = (int)threadIdx.x, size = tiles_of(length, SEGMENTS);
  int from = smaller(own * size, length), to = smaller(from + size, length);
  documents += blockIdx.x * stride, ranges += (int64_t)blockIdx.x * length;
  auto begins = [&](int i) { return i == 0 || documents[i] != documents[i - 1]; };
  last[own] = -1, first[own] = length;
  for (int i = from; i < to; i++)
    if (begins(i)) last[own] = i, first[own] = smaller(first[own], i);
  __syncthreads();
  int begin = -1, end = length;
  for (int i = 0; i < own; i++) begin = larger(begin, last[i]);
  for (int i = SEGMENTS - 1; i > own; i--) end = smaller(end, first[i]);
  for (int i = from; i < to; i++) ranges[i].begin = begin = begins(i) ? i : begin;
  for (int i = to - 1; i >= from; i--) {
    ranges[i].end = end;
    if (begins(i)) end = i;
  }
}

/* Optional operands beside the mask and documents. */
struct Biases {
  pd_in bias = nullptr, sinks = nullptr;
  float *d_bias = nullptr, *d_sinks = nullptr;
};

static void add_biases(attention *a, const struct pd_attention *p, const Biases &x) {
  a->bias = x.bias.at && p->by_distance ? pd_moved(x.bias, p->length - 1).at : x.bias.at;
  a->bias_bf16 = x.bias.type == PD_BF16, a->sinks_bf16 = x.sinks.type == PD_BF16;
  a->bias_batch = p->bias.batch, a->bias_head = p->bias.head, a->bias_row = p->by_distance ? -1 : p->bias.row;
  a->sinks = x.sinks.at, a->sinks_batch = p->sinks.batch;
}

static void divide(attention *a, const struct pd_attention *p, bool backward, const int32_t *documents,
                   void *scratch) {
  if (!p->parted) return;
  char *at = static_cast<char *>(pd_scratch_begin(scratch)) + pd_attention_rows_bytes(p, backward);
  attention_range *ranges = static_cast<attention_range *>(static_cast<void *>(at));
  PD_LAUNCH(find_ranges, (unsigned)a->batch, SEGMENTS, 2 * SEGMENTS * sizeof(int), pd_stream, documents,
            p->documents.batch, a->length, ranges);
  a->ranges = ranges;
}

static void forward(const struct pd_attention *p, const pd_in &q, const pd_in &k, const pd_in &v,
                    const pd_in &mask, const int32_t *documents, const Biases &biases, const pd_out &o,
                    const pd_out &lse, void *scratch) {
  attention a = describe(p, q, k, v, pd_written(lse), mask);
  add_biases(&a, p, biases);
  divide(&a, p, false, documents, scratch);
  a.o = tensor(o.at, o.type, p->o, p->length, a.value_size);
  if (fits_tensor_cores(a, {&a.q, &a.k, &a.v, &a.o}))
    pd_attention_run(
        {p, a, false, pd_attention_workspace(p, false, scratch), nullptr, [&] { attention_forward_bf16(a); }});
  else
    attention_forward_f32(a);
}

void pd_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_out o, pd_out lse,
                          void *scratch) {
  forward(a, q, k, v, nullptr, nullptr, {}, o, lse, scratch);
}

void pd_masked_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask,
                                 const int32_t *documents, pd_out o, pd_out lse, void *scratch) {
  forward(a, q, k, v, mask, documents, {}, o, lse, scratch);
}

void pd_biased_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask,
                                 const int32_t *documents, pd_in bias, pd_in sinks, pd_out o, pd_out lse,
                                 void *scratch) {
  forward(a, q, k, v, mask, documents, {bias, sinks, nullptr, nullptr}, o, lse, scratch);
}

enum { ROW_WARPS = 8 };

static __device__ float element(const attention_tensor &t, int64_t i) {
  return t.bf16 ? pd_to_float(((const pd_bf16 *)t.at)[i]) : ((const float *)t.at)[i];
}

/* Values of a row for the backward pass; one warp per row. */
static __global__ __launch_bounds__(32 * ROW_WARPS) void describe_rows(attention a) {
  int64_t i = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32, rows = (int64_t)a.batch * a.heads * a.length;
  int lane = (int)threadIdx.x % 32;
  if (i >= rows) return;
  int64_t row = i % a.length, head = i / a.length % a.heads, sample = i / a.length / a.heads;
  int64_t o = sample * a.o.batch + head * a.o.head + row * a.o.row;
  int64_t d_o = sample * a.d_o.batch + head * a.d_o.head + row * a.d_o.row;
  float delta = 0;
  for (int c = lane; c < a.value_size; c += 32) delta = fmaf(element(a.o, o + c), element(a.d_o, d_o + c), delta);
  for (int lanes = 16; lanes > 0; lanes /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
  if (lane == 0) a.rows[i] = {a.lse[i] * LOG2E, delta};
}

static void backward(const struct pd_attention *p, const pd_in &q, const pd_in &k, const pd_in &v, const pd_in &o,
                     const pd_in &lse, const pd_in &d_o, const pd_in &mask, const int32_t *documents,
                     const Biases &biases, const pd_out &dq, const pd_out &dk, const pd_out &dv, void *scratch) {
  attention a = describe(p, q, k, v, lse, mask);
  add_biases(&a, p, biases);
  divide(&a, p, true, documents, scratch);
  a.o = tensor(o.at, o.type, p->o, p->length, a.value_size);
  a.d_o = tensor(d_o.at, d_o.type, p->d_o, p->length, a.value_size);
  a.dq = tensor(dq.at, dq.type, p->dq, p->length, p->size);
  a.dk = tensor(dk.at, dk.type, p->dk, p->kv_length, p->size);
  a.dv = tensor(dv.at, dv.type, p->dv, p->kv_length, a.value_size);
  a.rows = static_cast<attention_row *>(static_cast<void *>(pd_scratch_begin(scratch)));
  bool on_tensor_cores = fits_tensor_cores(a, {&a.q, &a.k, &a.v, &a.d_o, &a.dq, &a.dk, &a.dv});
  auto own = [&] {
    int64_t rows = (int64_t)a.batch * a.heads * a.length;
    PD_LAUNCH(describe_rows, (unsigned)((rows + ROW_WARPS - 1) / ROW_WARPS), 32 * ROW_WARPS, 0, pd_stream, a);
    if (on_tensor_cores)
      attention_backward_bf16(a);
    else
      attention_backward_f32(a);
  };
  if (on_tensor_cores && a.o.bf16 && a.o.vectors)
    pd_attention_run({p, a, true, pd_attention_workspace(p, true, scratch), a.rows, own});
  else
    own();
  char *sums = static_cast<char *>(pd_scratch_begin(scratch)) + pd_attention_rows_bytes(p, true);
  sums += pd_attention_ranges_bytes(p);
  if (biases.d_bias) attention_bias_gradient(a, p, biases.d_bias, static_cast<float *>(static_cast<void *>(sums)));
  if (biases.d_sinks) attention_sinks_gradient(a, p, biases.d_sinks);
}

void pd_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse, pd_in d_o,
                           pd_out dq, pd_out dk, pd_out dv, void *scratch) {
  backward(a, q, k, v, o, lse, d_o, nullptr, nullptr, {}, dq, dk, dv, scratch);
}

void pd_masked_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, const int32_t *documents, pd_out dq, pd_out dk, pd_out dv,
                                  void *scratch) {
  backward(a, q, k, v, o, lse, d_o, mask, documents, {}, dq, dk, dv, scratch);
}

void pd_biased_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, const int32_t *documents, pd_in bias, pd_in sinks,
                                  pd_out dq, pd_out dk, pd_out dv, float *d_bias, float *d_sinks, void *scratch) {
  backward(a, q, k, v, o, lse, d_o, mask, documents, {bias, sinks, d_bias, d_sinks}, dq, dk, dv, scratch);
}
