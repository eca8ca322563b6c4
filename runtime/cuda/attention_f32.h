/* Tiles of floats in shared memory and products of them on FMA units (attention_f32.cu). */
#ifndef PD_CUDA_ATTENTION_F32_H
#define PD_CUDA_ATTENTION_F32_H

#include "attention.h"
#include "pd_elements.h"
#include "pd_mma.h"

enum { ROWS = 8, COLUMNS = 16, THREADS = ROWS * COLUMNS };

/* Four floats that are read and written at once. */
struct alignas(16) Quad {
  float x[4];
};

static __host__ __device__ constexpr int pitch(int d) { return d + 4; }

static __device__ int thread_row() { return (int)threadIdx.x / COLUMNS; }
static __device__ int thread_column() { return (int)threadIdx.x % COLUMNS; }

/* Rows first .. first + N of the n of a head become a tile, zeros around them; asynchronously. */
template <int N, int D>
static __device__ void load_tile(float *tile, const attention_tensor &t, int sample, int head, int first, int n,
                                 int size) {
  int step = !t.bf16 && t.vectors ? 4 : 1;
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < N * D / step; i += THREADS) {
    int row = i / (D / step), column = i % (D / step) * step;
    bool valid = first + row < n && column < size;
    float *to = tile + row * pitch(D) + column;
    int64_t at = valid ? sample * t.batch + head * t.head + (int64_t)(first + row) * t.row + column : 0;
    if (t.bf16)
      *to = valid ? pd_to_float(((const pd_bf16 *)t.at)[at]) : 0.0f;
    else if (step == 4)
      pd_copy_async<16>(to, (const float *)t.at + at, valid);
    else
      pd_copy_async<4>(to, (const float *)t.at + at, valid);
  }
}

/* s = x y^T */
template <int I, int J, int D> static __device__ void multiply(float s[I][J], const float *x, const float *y) {
  x += thread_row() * pitch(D), y += thread_column() * pitch(D);
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) s[i][j] = 0;
#pragma unroll 2
  for (int k = 0; k < D; k += 4) {
    Quad right[J];
#pragma unroll
    for (int j = 0; j < J; j++) right[j] = *(const Quad *)(const void *)(y + COLUMNS * j * pitch(D) + k);
#pragma unroll
    for (int i = 0; i < I; i++) {
      Quad left = *(const Quad *)(const void *)(x + ROWS * i * pitch(D) + k);
#pragma unroll
      for (int c = 0; c < 4; c++)
#pragma unroll
        for (int j = 0; j < J; j++) s[i][j] = fmaf(left.x[c], right[j].x[c], s[i][j]);
    }
  }
}

/* A product as score to base 2, -inf where the row does not see the key; *slope, unless NULL: that of the cap. */
static __device__ float score(const attention &a, float product, int sample, int head, int row, int key,
                              float *slope) {
  attention_range seen = range_of(a, sample, row);
  if (row >= a.length || key < seen.begin || key >= seen.end) return -INFINITY;
  float added = a.mask ? hiding(a.mask[sample * a.mask_batch + row * a.mask_row + key]) : 0.0f;
  if (a.bias) added = fmaf(bias_of(a, sample, head, row, key), LOG2E, added);
  if (a.softcap == 0) return fmaf(product, a.scale * LOG2E, added);
  float cap = capped(a, product * a.scale);
  if (slope) *slope = slope_of(a, cap);
  return fmaf(cap, LOG2E, added);
}

/* Floats of rows of D, own + streamed ones, and of the exchange. */
static constexpr size_t shared_bytes(int d, int rows, int own, int streamed) {
  return ((size_t)rows * (size_t)pitch(d) + (size_t)own * (size_t)pitch(streamed)) * sizeof(float);
}

#endif
