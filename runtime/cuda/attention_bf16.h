/* Tiles of bf16 in shared memory and products of them on tensor cores. A block is WARPS warps; a warp owns 16
 * TILES rows of the tile that stays and multiplies them with all rows of the tiles that stream past.
 *
 * Rows are padded by 16 bytes: D is a multiple of 16, so 8 rows begin at 8 different multiples of 16 bytes modulo
 * 128, and neither ldmatrix nor the copies meet in a bank. */
#ifndef PD_CUDA_ATTENTION_BF16_H
#define PD_CUDA_ATTENTION_BF16_H

#include "attention.h"
#include "pd_mma.h"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* Elements from row to row of a tile, and bytes of one. */
static __host__ __device__ constexpr int pitch(int d) { return d + 8; }
static __host__ __device__ constexpr size_t tile_bytes(int rows, int d) {
  return (size_t)rows * (size_t)pitch(d) * sizeof(pd_bf16);
}

/* A warp's 16 TILES x N floats, results of mma: a lane's element [i][n][e] is at row 16 i + lane / 4 + e / 2 * 8,
 * column 8 n + lane % 4 * 2 + e % 2. And as the left operand of a product over N. */
template <int TILES, int N> using Sums = float[TILES][N / 8][4];
template <int TILES, int N> using Operand = uint32_t[TILES][N / 16][4];

/* By rows of a lane: row 8 r + lane / 4 is its r-th, whose e-th element is at column e / 2 * 8 + lane % 4 * 2 +
 * e % 2. */
template <int TILES, int N> static __device__ float &element(float (&s)[TILES][N][4], int r, int e) {
  return s[r / 2][e / 2][r % 2 * 2 + e % 2];
}

/* Rows first .. first + ROWS of the n that `from` has become a tile, zeros around them; asynchronously. */
template <int ROWS, int D>
static __device__ void load_tile(pd_bf16 *tile, const pd_bf16 *from, int64_t stride, int first, int n, int size) {
  constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS; /* rows at a time */
  int row = first + (int)threadIdx.x / CHUNKS, column = (int)threadIdx.x % CHUNKS * 8;
  unsigned at = (unsigned)row * (unsigned)stride + (unsigned)column;
  tile += (row - first) * pitch(D) + column;
#pragma unroll
  for (int i = 0; i < ROWS; i += STEP)
    pd_copy_async<16>(tile + i * pitch(D), from + (at + (unsigned)(i * stride)), row + i < n && column < size);
}

/* s[16 TILES x N] += x y^T: the warp's rows of x, beginning at `x`, all N rows of y. UNROLL: steps of 16 columns
 * whose operands may be loaded together, within the available registers. */
template <int TILES, int N, int D, int UNROLL>
static __device__ void multiply(Sums<TILES, N> &s, const pd_bf16 *x, const pd_bf16 *y) {
  int lane = (int)threadIdx.x % 32;
  x += lane % 16 * pitch(D) + lane / 16 * 8;
  y += (lane % 8 + lane / 16 * 8) * pitch(D) + lane / 8 % 2 * 8;
#pragma unroll UNROLL
  for (int k = 0; k < D; k += 16) {
    uint32_t a[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) pd_ldmatrix(a[i], x + 16 * i * pitch(D) + k);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t b[4];
      pd_ldmatrix(b, y + n * pitch(D) + k);
#pragma unroll
      for (int i = 0; i < TILES; i++) {
        pd_mma(s[i][n / 8], a[i], b);
        pd_mma(s[i][n / 8 + 1], a[i], b + 2);
      }
    }
  }
}

/* out[16 TILES x COLUMNS] += s y: s[16 TILES x N] as operand, COLUMNS columns of y's N rows from y on. */
template <int TILES, int N, int COLUMNS, int D>
static __device__ void accumulate(Sums<TILES, COLUMNS> &out, const Operand<TILES, N> &s, const pd_bf16 *y) {
  int lane = (int)threadIdx.x % 32;
  y += lane % 16 * pitch(D) + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < N; k += 16)
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 16) {
      uint32_t b[4];
      pd_ldmatrix_transposed(b, y + k * pitch(D) + c);
#pragma unroll
      for (int i = 0; i < TILES; i++) {
        pd_mma(out[i][c / 8], s[i][k / 16], b);
        pd_mma(out[i][c / 8 + 1], s[i][k / 16], b + 2);
      }
    }
}

/* Rounds sums to bf16: two of mma's results side by side are one of its operands (pd_mma.h). */
template <int TILES, int N> static __device__ void pack(Operand<TILES, N> &operand, const Sums<TILES, N> &s) {
#pragma unroll
  for (int i = 0; i < TILES; i++)
#pragma unroll
    for (int n = 0; n < N / 16; n++)
#pragma unroll
      for (int r = 0; r < 4; r++)
        operand[i][n][r] = pd_pack_bf16(s[i][2 * n + r / 2][r % 2 * 2], s[i][2 * n + r / 2][r % 2 * 2 + 1]);
}

/* The warp's 16 TILES x COLUMNS results become rows first .. of the n that `to` has, columns from `column` on.
 * They go through the warp's own rows of a tile, for stores of 16 bytes. */
template <int TILES, int COLUMNS, int D>
static __device__ void store(const Sums<TILES, COLUMNS> &s, pd_bf16 *tile, pd_bf16 *to, int64_t stride, int first,
                             int n, int column, int size) {
  constexpr int CHUNKS = COLUMNS / 8;
  int lane = (int)threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < TILES; i++)
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      pd_bf16 *at = tile + (16 * i + group) * pitch(D) + 8 * c + pair;
      pd_store_pair(at, pd_pack_bf16(s[i][c][0], s[i][c][1]));
      pd_store_pair(at + 8 * pitch(D), pd_pack_bf16(s[i][c][2], s[i][c][3]));
    }
  __syncwarp();
  for (int i = lane; i < 16 * TILES * CHUNKS; i += 32) {
    int row = i / CHUNKS, c = i % CHUNKS * 8;
    if (first + row < n && column + c < size)
      pd_copy16(to + (first + row) * stride + column + c, tile + row * pitch(D) + c);
  }
}

#endif
