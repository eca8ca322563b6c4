/* Macros for C programs, which pass plain pointers to the library calls of pd_kernels.h: the pointer's type gives
 * the element type. Implementations of the calls define PD_KERNELS and see only the functions. */
#ifndef PD_CALLS_H
#define PD_CALLS_H

#define PD_TYPE(x) _Generic((x), const pd_bf16 * : PD_BF16, pd_bf16 * : PD_BF16, default : PD_F32)
#define PD_POINTER(x) \
  _Generic((x), const float * : (x), float * : (x), const pd_bf16 * : (x), pd_bf16 * : (x), void * : (x))
#define PD_IN(x) ((pd_in){PD_POINTER(x), PD_TYPE(x)})
#define PD_OUT(x) ((pd_out){PD_POINTER(x), PD_TYPE(x)})

#define pd_matmul(m, a, b, bias, c, scratch) pd_matmul(m, PD_IN(a), PD_IN(b), PD_IN(bias), PD_OUT(c), scratch)
#define pd_convolution(c, x, w, bias, y, scratch) \
  pd_convolution(c, PD_IN(x), PD_IN(w), PD_IN(bias), PD_OUT(y), scratch)
#define pd_convolution_backward(c, dy, w, dx, scratch) \
  pd_convolution_backward(c, PD_IN(dy), PD_IN(w), PD_OUT(dx), scratch)
#define pd_convolution_weights(c, x, dy, dw, scratch) \
  pd_convolution_weights(c, PD_IN(x), PD_IN(dy), PD_OUT(dw), scratch)
#define pd_pooling(p, x, y) pd_pooling(p, PD_IN(x), PD_OUT(y))
#define pd_pooling_backward(p, x, y, dy, dx) pd_pooling_backward(p, PD_IN(x), PD_IN(y), PD_IN(dy), PD_OUT(dx))
#define pd_attention_forward(a, q, k, v, o, lse, scratch) \
  pd_attention_forward(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_OUT(o), PD_OUT(lse), scratch)
#define pd_attention_backward(a, q, k, v, o, lse, d_o, dq, dk, dv, scratch)                            \
  pd_attention_backward(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_IN(o), PD_IN(lse), PD_IN(d_o), PD_OUT(dq), \
                        PD_OUT(dk), PD_OUT(dv), scratch)
#define pd_masked_attention_forward(a, q, k, v, mask, documents, o, lse, scratch)                              \
  pd_masked_attention_forward(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_IN(mask), documents, PD_OUT(o), PD_OUT(lse), \
                              scratch)
#define pd_masked_attention_backward(a, q, k, v, o, lse, d_o, mask, documents, dq, dk, dv, scratch)            \
  pd_masked_attention_backward(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_IN(o), PD_IN(lse), PD_IN(d_o), PD_IN(mask), \
                               documents, PD_OUT(dq), PD_OUT(dk), PD_OUT(dv), scratch)
#define pd_biased_attention_forward(a, q, k, v, mask, documents, bias, sinks, o, lse, scratch)                    \
  pd_biased_attention_forward(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_IN(mask), documents, PD_IN(bias), PD_IN(sinks), \
                              PD_OUT(o), PD_OUT(lse), scratch)
#define pd_biased_attention_backward(a, q, k, v, o, lse, d_o, mask, documents, bias, sinks, dq, dk, dv, d_bias,  \
                                     d_sinks, scratch)                                                           \
  pd_biased_attention_backward(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_IN(o), PD_IN(lse), PD_IN(d_o), PD_IN(mask),   \
                               documents, PD_IN(bias), PD_IN(sinks), PD_OUT(dq), PD_OUT(dk), PD_OUT(dv), d_bias, \
                               d_sinks, scratch)
#define pd_cached_attention(a, q, k, v, position, sequence, o, keys, values) \
  pd_cached_attention(a, PD_IN(q), PD_IN(k), PD_IN(v), position, sequence, PD_OUT(o), PD_OUT(keys), PD_OUT(values))
#define pd_keep(x, n, y) pd_keep(PD_IN(x), n, PD_OUT(y))
#define pd_cached_rows(r, x, position, y) pd_cached_rows(r, PD_IN(x), position, PD_OUT(y))
#define pd_cached_lstm(l, x, w, h0, c0, position, sequence, h, kept_h, kept_c)                               \
  pd_cached_lstm(l, PD_IN(x), PD_IN(w), PD_IN(h0), PD_IN(c0), position, sequence, PD_OUT(h), PD_OUT(kept_h), \
                 PD_OUT(kept_c))
#define pd_biased_cached_attention(a, q, k, v, bias, sinks, position, sequence, o, keys, values)             \
  pd_biased_cached_attention(a, PD_IN(q), PD_IN(k), PD_IN(v), PD_IN(bias), PD_IN(sinks), position, sequence, \
                             PD_OUT(o), PD_OUT(keys), PD_OUT(values))
#define pd_lstm_forward(l, x, w, h0, c0, lengths, h, h_n, c_n, c, gates, scratch)                            \
  pd_lstm_forward(l, PD_IN(x), PD_IN(w), PD_IN(h0), PD_IN(c0), lengths, PD_OUT(h), PD_OUT(h_n), PD_OUT(c_n), \
                  PD_OUT(c), PD_OUT(gates), scratch)
#define pd_lstm_backward(l, w, h0, c0, lengths, h, c, gates, dh, dh_n, dc_n, d_gates, previous, dh0, dc0,   \
                         scratch)                                                                           \
  pd_lstm_backward(l, PD_IN(w), PD_IN(h0), PD_IN(c0), lengths, PD_IN(h), PD_IN(c), PD_IN(gates), PD_IN(dh), \
                   PD_IN(dh_n), PD_IN(dc_n), PD_OUT(d_gates), PD_OUT(previous), PD_OUT(dh0), PD_OUT(dc0),   \
                   scratch)
#define pd_expert_linear(e, x, w, experts, y, scratch) \
  pd_expert_linear(e, PD_IN(x), PD_IN(w), experts, PD_OUT(y), scratch)
#define pd_expert_linear_weights(e, x, dy, experts, dw, first, scratch) \
  pd_expert_linear_weights(e, PD_IN(x), PD_IN(dy), experts, dw, first, scratch)
#define pd_expert_sum(y, weights, rows, chosen, width, sum) \
  pd_expert_sum(PD_IN(y), weights, rows, chosen, width, PD_OUT(sum))
#define pd_gather(table, index, rows, width, out, stride) \
  pd_gather(PD_IN(table), index, rows, width, PD_OUT(out), stride)
#define pd_gather_gradient(accumulator, index, gradient, rows, width, stride, classes, first) \
  pd_gather_gradient(PD_OUT(accumulator), index, PD_IN(gradient), rows, width, stride, classes, first)
#define pd_gather_part(table, index, rows, width, out, stride, own, first_row) \
  pd_gather_part(PD_IN(table), index, rows, width, PD_OUT(out), stride, own, first_row)
#define pd_gather_gradient_part(accumulator, index, gradient, rows, width, stride, own, first, first_row) \
  pd_gather_gradient_part(PD_OUT(accumulator), index, PD_IN(gradient), rows, width, stride, own, first, first_row)
#define pd_all_reduce(x, n, y, scratch) pd_all_reduce(PD_IN(x), n, PD_OUT(y), scratch)
#define pd_all_reduce_max(x, n, y, scratch) pd_all_reduce_max(PD_IN(x), n, PD_OUT(y), scratch)
#define pd_all_gather(x, runs, part, y, scratch) pd_all_gather(PD_IN(x), runs, part, PD_OUT(y), scratch)
#define pd_reduce_scatter(x, runs, part, y, scratch) pd_reduce_scatter(PD_IN(x), runs, part, PD_OUT(y), scratch)
#define pd_all_reduce_begin(x, n, y) pd_all_reduce_begin(PD_IN(x), n, PD_OUT(y))
#define pd_all_reduce_max_begin(x, n, y) pd_all_reduce_max_begin(PD_IN(x), n, PD_OUT(y))
#define pd_all_gather_begin(x, runs, part, y) pd_all_gather_begin(PD_IN(x), runs, part, PD_OUT(y))
#define pd_reduce_scatter_begin(x, runs, part, y) pd_reduce_scatter_begin(PD_IN(x), runs, part, PD_OUT(y))
#define pd_collective_end(y) pd_collective_end(PD_OUT(y))
#define pd_take_part(x, runs, part, y) pd_take_part(PD_IN(x), runs, part, PD_OUT(y))

#endif
