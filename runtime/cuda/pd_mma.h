/* Tensor-core instructions (sm_80 and later) as functions, with the layout of fragments as in the PTX ISA,
 * "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix". Without nvcc, under
 * tests/cuda/host, each function does what the manual says of each lane. All 32 lanes of a warp call mma and
 * ldmatrix together.
 *
 * A lane's place: group = lane / 4, pair = 2 * (lane % 4). A register holds two bf16, the lower column first.
 *   a[0] (group, pair)  a[1] (group + 8, pair)  a[2] (group, pair + 8)  a[3] (group + 8, pair + 8)  of A, 16 x 16
 *   b[0] (pair, group)  b[1] (pair + 8, group)  two rows of one column                              of B, 16 x 8
 *   d[0], d[1] (group, pair and pair + 1)  d[2], d[3] (group + 8, pair and pair + 1)         of D, 16 x 8
 * floats */
#ifndef PD_MMA_H
#define PD_MMA_H

#include "pd_cuda.h"
#include "pd_fast.h"

/* d += a b: products exact, sums in f32. */
inline __device__ void pd_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);

/* Four 8 x 8 matrices of bf16, x[i] from the i-th: lane 8 i + r gives the address of its row r (16 bytes, aligned
 * so); each lane receives row `group`, columns pair and pair + 1; transposed: rows pair and pair + 1 of column
 * `group`. */
inline __device__ void pd_ldmatrix(uint32_t x[4], const pd_bf16 *row);
inline __device__ void pd_ldmatrix_transposed(uint32_t x[4], const pd_bf16 *row);

/* BYTES (4, 8 or 16, both addresses aligned so) from global to shared memory, zeros where not `valid`; they have
 * arrived for this thread after pd_copy_wait, for others after a barrier behind it. */
template <int BYTES> inline __device__ void pd_copy_async(void *shared, const void *global, bool valid);
/* The copies begun since the last commit become a group. */
inline __device__ void pd_copy_commit();
/* Until at most the `PENDING` latest groups are on their way. */
template <int PENDING> inline __device__ void pd_copy_wait();

/* 16 bytes at once; two bf16 at once. */
inline __device__ void pd_copy16(void *to, const void *from);
inline __device__ void pd_store_pair(pd_bf16 *to, uint32_t both);

/* Two floats rounded to bf16, `low` in the low half. */
inline __device__ uint32_t pd_pack_bf16(float low, float high);

#ifdef __CUDACC__

inline __device__ void pd_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

inline __device__ uint32_t pd_shared_address(const void *shared) {
  return (uint32_t)__cvta_generic_to_shared(shared);
}

inline __device__ void pd_ldmatrix(uint32_t x[4], const pd_bf16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(pd_shared_address(row))
               : "memory");
}

inline __device__ void pd_ldmatrix_transposed(uint32_t x[4], const pd_bf16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(pd_shared_address(row))
               : "memory");
}

template <int BYTES> inline __device__ void pd_copy_async(void *shared, const void *global, bool valid) {
  int bytes = valid ? BYTES : 0; /* remaining bytes are zeros */
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(pd_shared_address(shared)), "l"(global),
                 "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(pd_shared_address(shared)), "l"(global),
                 "r"(bytes), "n"(BYTES)
                 : "memory");
}

inline __device__ void pd_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING> inline __device__ void pd_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

inline __device__ void pd_copy16(void *to, const void *from) { *(uint4 *)to = *(const uint4 *)from; }
inline __device__ void pd_store_pair(pd_bf16 *to, uint32_t both) { *(uint32_t *)to = both; }

inline __device__ uint32_t pd_pack_bf16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

#else /* tests/cuda/host */

#include <math.h>
#include <string.h>

#include <vector>

inline int pd_thread() { return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)); }

inline float pd_half_of(uint32_t both, int high) {
  uint32_t bits = high ? both & 0xffff0000u : both << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* A lane's operands of an instruction that the warp executes together. */
struct pd_mma_operands {
  float *d;
  const uint32_t *a, *b;
};

/* d += a b of a warp: 16 x 16 by 16 x 8, each element's products in the order of k. */
inline void pd_mma_warp(const pd_mma_operands *const *warp) {
  typedef float eight __attribute__((vector_size(32)));
  float a[16][16];
  eight b[16], d[16];
  for (int lane = 0; lane < 32; lane++) {
    int group = lane / 4, pair = 2 * (lane % 4);
    for (int i = 0; i < 4; i++) d[group + 8 * (i / 2)][pair + i % 2] = warp[lane]->d[i];
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < 4; i++)
        a[group + 8 * (i % 2)][8 * (i / 2) + pair + half] = pd_half_of(warp[lane]->a[i], half);
      for (int i = 0; i < 2; i++) b[8 * i + pair + half][group] = pd_half_of(warp[lane]->b[i], half);
    }
  }
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++) d[row] += a[row][k] * b[k];
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) warp[lane]->d[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}

inline void pd_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  pd_mma_operands mine = {d, a, b};
  cuda_host_warp("mma", 0xffffffffu, &mine,
                 [](void *const *lanes) { pd_mma_warp((const pd_mma_operands *const *)lanes); });
}

struct pd_ldmatrix_operands {
  uint32_t *x;
  const pd_bf16 *row;
  bool transposed;
};

inline void pd_ldmatrix_lane(const pd_ldmatrix_operands *const *warp, int lane) {
  int group = lane / 4, pair = 2 * (lane % 4);
  for (int i = 0; i < 8; i++) { /* the i % 2-th element of matrix i / 2 */
    bool transposed = warp[lane]->transposed;
    int row = transposed ? pair + i % 2 : group, column = transposed ? group : pair + i % 2;
    memcpy((char *)warp[lane]->x + 2 * i, warp[8 * (i / 2) + row]->row + column, 2);
  }
}

inline void pd_ldmatrix_of(uint32_t x[4], const pd_bf16 *row, bool transposed) {
  if ((uintptr_t)row % 16) pd_fail("ldmatrix of a row that is not aligned to 16 bytes");
  pd_ldmatrix_operands mine = {x, row, transposed};
  cuda_host_warp("ldmatrix", 0xffffffffu, &mine, [](void *const *lanes) {
    for (int lane = 0; lane < 32; lane++) pd_ldmatrix_lane((const pd_ldmatrix_operands *const *)lanes, lane);
  });
}

inline void pd_ldmatrix(uint32_t x[4], const pd_bf16 *row) { pd_ldmatrix_of(x, row, false); }
inline void pd_ldmatrix_transposed(uint32_t x[4], const pd_bf16 *row) { pd_ldmatrix_of(x, row, true); }

/* A thread's copies on their way. They are done as late as the manual allows, in the wait; until then the shared
 * memory holds NaN. A block that ends must have waited for all of its own. */
struct pd_copy {
  void *to;
  const void *from; /* NULL: zeros */
  int bytes;
};
struct pd_copies {
  std::vector<std::vector<pd_copy>> groups; /* committed, oldest first */
  std::vector<pd_copy> open;
  uint3 block; /* that began the latest */
};
inline thread_local pd_copies pd_copies_of[1024];

template <int BYTES> inline void pd_copy_async(void *shared, const void *global, bool valid) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what cp.async can copy");
  if ((uintptr_t)shared % BYTES || (valid && (uintptr_t)global % BYTES))
    pd_fail("an asynchronous copy of %d bytes between addresses that are not aligned so", BYTES);
  pd_copies &mine = pd_copies_of[pd_thread()];
  bool idle = mine.groups.empty() && mine.open.empty();
  if (!idle && memcmp(&mine.block, &blockIdx, sizeof blockIdx))
    pd_fail("a block ended with asynchronous copies on their way");
  mine.block = blockIdx;
  memset(shared, 0xff, BYTES);
  mine.open.push_back({shared, valid ? global : NULL, BYTES});
}

inline void pd_copy_commit() {
  pd_copies &mine = pd_copies_of[pd_thread()];
  mine.groups.push_back(mine.open);
  mine.open.clear();
}

template <int PENDING> inline void pd_copy_wait() {
  auto &groups = pd_copies_of[pd_thread()].groups;
  for (; groups.size() > PENDING; groups.erase(groups.begin()))
    for (const pd_copy &copy : groups.front()) {
      if (copy.from)
        memcpy(copy.to, copy.from, (size_t)copy.bytes);
      else
        memset(copy.to, 0, (size_t)copy.bytes);
    }
}

inline void pd_copy16(void *to, const void *from) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16) pd_fail("16 bytes at once from or to an address not aligned so");
  memcpy(to, from, 16);
}

inline void pd_store_pair(pd_bf16 *to, uint32_t both) { memcpy(to, &both, sizeof both); }

inline uint32_t pd_pack_bf16(float low, float high) {
  pd_bf16 pair[2] = {__float2bfloat16(low), __float2bfloat16(high)};
  uint32_t both;
  memcpy(&both, pair, sizeof both);
  return both;
}

#endif

#endif
