/* Attention by plain loops in double, a row at a time, for tests of its kernels in C and in CUDA. */
#ifndef KERNELS_ATTENTION_EXACT_H
#define KERNELS_ATTENTION_EXACT_H

#include "pd_kernels.h"

#include <math.h>

typedef struct pd_attention Attention;

/* Whether position i sees key j, apart from a mask. */
static inline bool sees_exact(const Attention *a, const int32_t *documents, int64_t b, int64_t i, int64_t j) {
  const int32_t *number = a->parted ? documents + b * a->documents.batch : NULL;
  if ((a->causal && j > i) || (a->window > 0 && (i - j >= a->window || j - i >= a->window))) return false;
  for (int64_t x = i < j ? i : j; number && x < (i < j ? j : i); x++)
    if (number[x] != number[x + 1]) return false;
  return true;
}

/* A bias and sinks by a's strides, and their gradients; NULL: none. */
typedef struct {
  const float *bias, *sinks;
  double *d_bias, *d_sinks;
} Biases;

/* The index of a score's number in a bias, or in its gradient, with these strides. */
static inline int64_t bias_exact(const Attention *a, int64_t batch, int64_t head, int64_t row, int64_t b,
                                 int64_t h, int64_t i, int64_t j) {
  return b * batch + h * head + (a->by_distance ? j - i + a->length - 1 : i * row + j);
}

/* Row i of o, by a's strides, and p [2][kv_length]: the probabilities of its keys, and the derivatives of their scores
 * by q . k scale; returns the log of the sum of exponentials. */
static inline double forward_exact(const Attention *a, const double *q, const double *k, const double *v,
                                   const float *mask, const int32_t *documents, const Biases *x, double *p,
                                   double *o, int64_t b, int64_t h, int64_t i) {
  int64_t kv = h / (a->heads / a->kv_heads), value_size = pd_attention_value_size(a);
  const float *sink = x->sinks ? x->sinks + b * a->sinks.batch + h : NULL;
  double max = sink ? *sink : -INFINITY, sum = 0;
  o += b * a->o.batch + h * a->o.head + i * a->o.row;
  for (int64_t j = 0; j < a->kv_length; j++) {
    p[j] = -INFINITY;
    float added = a->masked ? mask[b * a->mask.batch + i * a->mask.row + j] : 0;
    p[a->kv_length + j] = 1;
    if (!sees_exact(a, documents, b, i, j) || added <= PD_ATTENTION_HIDDEN) continue;
    double s = 0;
    for (int64_t c = 0; c < a->size; c++)
      s += q[b * a->q.batch + h * a->q.head + i * a->q.row + c] *
           k[b * a->k.batch + kv * a->k.head + j * a->k.row + c];
    s *= a->scale;
    if (a->softcap > 0) {
      double t = tanh(s / a->softcap);
      s = a->softcap * t;
      p[a->kv_length + j] = 1 - t * t;
    }
    if (x->bias) s += x->bias[bias_exact(a, a->bias.batch, a->bias.head, a->bias.row, b, h, i, j)];
    p[j] = s + added;
    if (p[j] > max) max = p[j];
  }
  for (int64_t j = 0; j < a->kv_length; j++) sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - max);
  sum += sink ? exp(*sink - max) : 0;
  for (int64_t c = 0; c < value_size; c++) o[c] = 0;
  for (int64_t j = 0; j < a->kv_length; j++) {
    if (sum > 0) p[j] /= sum;
    for (int64_t c = 0; c < value_size; c++) o[c] += p[j] * v[b * a->v.batch + kv * a->v.head + j * a->v.row + c];
  }
  return sum > 0 ? max + log(sum) : INFINITY;
}

/* Adds row i's part of the gradients, by a's strides, from what forward_exact has made of the row; lse is its result. */
static inline void backward_exact(const Attention *a, const double *q, const double *k, const double *v,
                                  const double *d_o, const Biases *x, double lse, const double *p, const double *o,
                                  double *dq, double *dk, double *dv, int64_t b, int64_t h, int64_t i) {
  int64_t value_size = pd_attention_value_size(a);
  int64_t kv = h / (a->heads / a->kv_heads), at_q = b * a->q.batch + h * a->q.head + i * a->q.row;
  double delta = 0;
  d_o += b * a->d_o.batch + h * a->d_o.head + i * a->d_o.row;
  o += b * a->o.batch + h * a->o.head + i * a->o.row;
  dq += b * a->dq.batch + h * a->dq.head + i * a->dq.row;
  for (int64_t c = 0; c < value_size; c++) delta += o[c] * d_o[c];
  if (x->d_sinks) x->d_sinks[b * a->d_sinks.batch + h] -= exp(x->sinks[b * a->sinks.batch + h] - lse) * delta;
  for (int64_t j = 0; j < a->kv_length; j++) {
    int64_t at_k = b * a->k.batch + kv * a->k.head + j * a->k.row,
            at_v = b * a->v.batch + kv * a->v.head + j * a->v.row;
    double *dk_row = dk + b * a->dk.batch + kv * a->dk.head + j * a->dk.row;
    double *dv_row = dv + b * a->dv.batch + kv * a->dv.head + j * a->dv.row, dp = 0;
    for (int64_t c = 0; c < value_size; c++) dp += d_o[c] * v[at_v + c], dv_row[c] += p[j] * d_o[c];
    if (x->d_bias)
      x->d_bias[bias_exact(a, a->d_bias.batch, a->d_bias.head, a->d_bias.row, b, h, i, j)] += p[j] * (dp - delta);
    double ds = p[j] * (dp - delta) * a->scale * p[a->kv_length + j];
    for (int64_t c = 0; c < a->size; c++) dq[c] += ds * k[at_k + c], dk_row[c] += ds * q[at_q + c];
  }
}

#endif
