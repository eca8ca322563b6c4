/* pd_pooling: plain loops over channels-last images, vectorised along the channels. One thread computes an
 * element, over its window's positions in order, so results are bit-identical for any number of threads. The
 * backward pass of the maximum recomputes its position instead of saving it. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"
#include "pd_kernels.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64, LANES = 16 }; /* channels a thread takes at a time; a vector's */

/* Positions of x in one window along an axis, [first, end), and how many count for an average. */
struct extent {
  int64_t first, end, count;
};

static struct extent extent_of(const struct pd_pooling *p, int axis, int64_t out) {
  int64_t size = axis ? p->width : p->height, n = p->out[axis];
  if (p->adaptive) {
    int64_t from = out * size / n, to = ((out + 1) * size + n - 1) / n;
    return (struct extent){from, to, to - from};
  }
  int64_t first = out * p->stride[axis] - p->padding[axis], end = first + p->kernel[axis];
  int64_t padded = size + p->padding[axis];
  struct extent e = {first > 0 ? first : 0, end < size ? end : size, 0};
  e.count = p->count_padding ? (end < padded ? end : padded) - first : e.end - e.first;
  return e;
}

/* One window, for a block of channels: x and dx at the sample's first such channel, y and dy at the result's. */
struct window {
  struct extent row, column;
  int64_t channels, stride, line; /* n, of a pixel, of a row of x */
};

typedef int32_t bits __attribute__((vector_size(64))); /* a vector; the result of a comparison: all bits or none */

/* Of n channels, at most LANES. */
static inline __attribute__((always_inline)) void max_forward_lanes(const struct window *w, int n, const float *x,
                                                                    float *restrict y) {
  vector top, pixel;
  LOAD_PART(top, x + w->row.first * w->line + w->column.first * w->stride, n);
  for (int64_t i = w->row.first; i < w->row.end; i++)
    for (int64_t j = w->column.first; j < w->column.end; j++) {
      LOAD_PART(pixel, x + i * w->line + j * w->stride, n);
      const vector itself = pixel;
      bits larger = (pixel > top) | (pixel != itself); /* a NaN stays */
      top = (vector)(((bits)pixel & larger) | ((bits)top & ~larger));
    }
  STORE_PART(y, top, n);
}

static void max_forward(const struct window *w, const float *x, float *restrict y) {
  int64_t c = 0;
  for (; c + LANES <= w->channels; c += LANES) max_forward_lanes(w, LANES, x + c, y + c);
  if (c < w->channels) max_forward_lanes(w, (int)(w->channels - c), x + c, y + c);
}

/* Of n channels, at most LANES. */
static inline __attribute__((always_inline)) void max_backward_lanes(const struct window *w, int n, const float *x,
                                                                     const float *y, const float *dy,
                                                                     float *restrict dx) {
  vector left, top, pixel, sum; /* left: gradient without a position yet */
  LOAD_PART(left, dy, n);
  LOAD_PART(top, y, n);
  for (int64_t i = w->row.first; i < w->row.end; i++)
    for (int64_t j = w->column.first; j < w->column.end; j++) {
      int64_t at = i * w->line + j * w->stride;
      LOAD_PART(pixel, x + at, n);
      LOAD_PART(sum, dx + at, n);
      bits hit = pixel == top;
      sum += (vector)((bits)left & hit);
      left = (vector)((bits)left & ~hit);
      STORE_PART(dx + at, sum, n);
    }
}

static void max_backward(const struct window *w, const float *x, const float *y, const float *dy, float *dx) {
  int64_t c = 0;
  for (; c + LANES <= w->channels; c += LANES) max_backward_lanes(w, LANES, x + c, y + c, dy + c, dx + c);
  if (c < w->channels) max_backward_lanes(w, (int)(w->channels - c), x + c, y + c, dy + c, dx + c);
}

static void average_forward(const struct window *w, const float *x, float *restrict y) {
  float count = (float)(w->row.count * w->column.count);
  memset(y, 0, (size_t)w->channels * sizeof *y);
  for (int64_t i = w->row.first; i < w->row.end; i++)
    for (int64_t j = w->column.first; j < w->column.end; j++) {
      const float *from = x + i * w->line + j * w->stride;
      for (int64_t c = 0; c < w->channels; c++) y[c] += from[c];
    }
  for (int64_t c = 0; c < w->channels; c++) y[c] /= count;
}

static void average_backward(const struct window *w, const float *dy, float *restrict dx) {
  float count = (float)(w->row.count * w->column.count), share[BLOCK];
  for (int64_t c = 0; c < w->channels; c++) share[c] = dy[c] / count;
  for (int64_t i = w->row.first; i < w->row.end; i++)
    for (int64_t j = w->column.first; j < w->column.end; j++) {
      float *to = dx + i * w->line + j * w->stride;
      for (int64_t c = 0; c < w->channels; c++) to[c] += share[c];
    }
}

/* All windows of one sample's block of channels; dx is NULL in the forward pass, x in the average's backward. */
static void pool(const struct pd_pooling *p, const float *x, float *y, const float *dy, float *dx,
                 int64_t channels) {
  struct window w = {.channels = channels, .stride = p->channels, .line = p->width * p->channels};
  int64_t pixels = p->height * p->width, whole = channels == p->channels ? pixels : 1; /* they are adjacent */
  for (int64_t i = 0; dx && i < pixels; i += whole)
    memset(dx + i * p->channels, 0, (size_t)(channels * whole) * sizeof *dx);
  for (int64_t i = 0; i < p->out[0]; i++)
    for (int64_t j = 0; j < p->out[1]; j++) {
      int64_t at = (i * p->out[1] + j) * p->channels;
      w.row = extent_of(p, 0, i);
      w.column = extent_of(p, 1, j);
      if (!dx && p->maximum) max_forward(&w, x, y + at);
      if (!dx && !p->maximum) average_forward(&w, x, y + at);
      if (dx && p->maximum) max_backward(&w, x, y + at, dy + at, dx);
      if (dx && !p->maximum) average_backward(&w, dy + at, dx);
    }
}

static void pool_all(const struct pd_pooling *p, const float *x, float *y, const float *dy, float *dx) {
  int64_t blocks = (p->channels + BLOCK - 1) / BLOCK;
  int64_t size = p->height * p->width * p->channels, out_size = p->out[0] * p->out[1] * p->channels;
#pragma omp parallel for
  for (int64_t i = 0; i < p->batch * blocks; i++) {
    int64_t sample = i / blocks, first = i % blocks * BLOCK, rest = p->channels - first;
    int64_t at = sample * size + first, out = sample * out_size + first;
    pool(p, x ? x + at : NULL, y ? y + out : NULL, dy ? dy + out : NULL, dx ? dx + at : NULL,
         rest < BLOCK ? rest : BLOCK);
  }
}

/* ---- bf16: sums in floats ---------------------------------------------------------------------------- */

/* The gradient that one window adds to row r of x, for n channels: line is [width][LANES]. Recomputes the part for
 * earlier rows. */
static void give_to_row(const struct pd_pooling *p, const struct window *w, int64_t r, int64_t n, pd_in x, pd_in y,
                        pd_in dy, float *line) {
  float left[LANES], top[LANES], pixel[LANES], count = (float)(w->row.count * w->column.count);
  pd_read(left, dy, 0, n);
  if (p->maximum) pd_read(top, y, 0, n);
  for (int64_t i = p->maximum ? w->row.first : r; i <= r; i++)
    for (int64_t j = w->column.first; j < w->column.end; j++) {
      if (p->maximum) pd_read(pixel, x, i * w->line + j * w->stride, n);
      for (int64_t c = 0; c < n; c++) {
        bool hit = !p->maximum || pixel[c] == top[c];
        if (i == r && hit) line[j * LANES + c] += p->maximum ? left[c] : left[c] / count;
        if (p->maximum && hit) left[c] = 0;
      }
    }
}

/* dx of n channels of one sample, row by row. */
static void backward_rows(const struct pd_pooling *p, int64_t n, pd_in x, pd_in y, pd_in dy, pd_out dx) {
  struct window w = {.channels = n, .stride = p->channels, .line = p->width * p->channels};
  float line[p->width * LANES];
  for (int64_t r = 0; r < p->height; r++) {
    memset(line, 0, sizeof line);
    for (int64_t i = 0; i < p->out[0]; i++) {
      w.row = extent_of(p, 0, i);
      for (int64_t j = 0; j < p->out[1] && w.row.first <= r && r < w.row.end; j++) {
        int64_t at = (i * p->out[1] + j) * p->channels;
        w.column = extent_of(p, 1, j);
        give_to_row(p, &w, r, n, x, pd_in_from(y, at), pd_in_from(dy, at), line);
      }
    }
    for (int64_t j = 0; j < p->width; j++) pd_write(dx, r * w.line + j * w.stride, line + j * LANES, n);
  }
}

/* y of n channels of one sample. */
static void forward_windows(const struct pd_pooling *p, int64_t n, pd_in x, pd_out y) {
  float sum[LANES], pixel[LANES];
  for (int64_t at = 0; at < p->out[0] * p->out[1]; at++) {
    struct extent row = extent_of(p, 0, at / p->out[1]), column = extent_of(p, 1, at % p->out[1]);
    for (int64_t c = 0; c < n; c++) sum[c] = p->maximum ? -INFINITY : 0;
    for (int64_t i = row.first; i < row.end; i++)
      for (int64_t j = column.first; j < column.end; j++) {
        pd_read(pixel, x, (i * p->width + j) * p->channels, n);
        for (int64_t c = 0; c < n; c++) {
          float larger = pixel[c] > sum[c] || pixel[c] != pixel[c] ? pixel[c] : sum[c]; /* a NaN stays */
          sum[c] = p->maximum ? larger : sum[c] + pixel[c];
        }
      }
    for (int64_t c = 0; c < n && !p->maximum; c++) sum[c] /= (float)(row.count * column.count);
    pd_write(y, at * p->channels, sum, n);
  }
}

/* pool_all, with NULL for missing or unused operands. */
static void pool_typed(const struct pd_pooling *p, pd_in x, pd_in y, pd_in dy, pd_out to, bool back) {
  int64_t blocks = (p->channels + LANES - 1) / LANES;
  int64_t size = p->height * p->width * p->channels, out_size = p->out[0] * p->out[1] * p->channels;
#pragma omp parallel for
  for (int64_t i = 0; i < p->batch * blocks; i++) {
    int64_t sample = i / blocks, first = i % blocks * LANES, rest = p->channels - first;
    int64_t at = sample * size + first, out = sample * out_size + first, n = rest < LANES ? rest : LANES;
    if (back)
      backward_rows(p, n, pd_in_from(x, at), pd_in_from(y, out), pd_in_from(dy, out), pd_out_from(to, at));
    else
      forward_windows(p, n, pd_in_from(x, at), pd_out_from(to, out));
  }
}

void pd_pooling(const struct pd_pooling *p, pd_in x, pd_out y) {
  if (x.type == PD_F32 && y.type == PD_F32)
    pool_all(p, x.at, y.at, NULL, NULL);
  else
    pool_typed(p, x, (pd_in){0}, (pd_in){0}, y, false);
}

void pd_pooling_backward(const struct pd_pooling *p, pd_in x, pd_in y, pd_in dy, pd_out dx) {
  if (x.type == PD_F32 && y.type == PD_F32 && dy.type == PD_F32 && dx.type == PD_F32)
    pool_all(p, x.at, (float *)y.at, dy.at, dx.at);
  else
    pool_typed(p, x, y, dy, dx, true);
}
