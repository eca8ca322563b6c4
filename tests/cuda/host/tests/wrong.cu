/* Programs that are wrong, by name. fails.sh says with which words each must fail, and whether for every seed. */
#include "check.h"

#include <host.h>

static cudaStream_t s;

static __global__ void idle() {}

/* ---- bounds and alignment ------------------------------------------------------------------------ */

static __global__ void reach(PD_READS(float, 1000) x, PD_WRITES(float, 1000) y, int far) {
  int i = (int)threadIdx.x + far;
  y[threadIdx.x] = x[i];
}
static void reach_far(int threads, int there, int far) {
  PD_LAUNCH(reach, 1, threads, 0, s, device_floats(there, s), device_room<float>(1000), far);
}
static void out_of_bounds() { reach_far(1000, 1000, 1); }
static void below() { reach_far(1, 1000, -1); }
static void too_small() { reach_far(1, 999, 0); }
static void host_memory() {
  static float x[1000];
  PD_LAUNCH(reach, 1, 1, 0, s, x, device_room<float>(1000), 0);
}
static void in_place() {
  float *x = device_floats(1001, s);
  PD_LAUNCH(reach, 1, 1, 0, s, x, x + 1, 0);
}

static __global__ void cursor_out(PD_WRITES(float, 1000) x) {
  auto at = x + 990;
  for (int i = 0; i <= 10; i++) *at++ = 0;
}
static void cursor() { PD_LAUNCH(cursor_out, 1, 1, 0, s, device_room<float>(1000)); }

static __global__ void vector_out(PD_READS(float, 1000) x, PD_WRITES(float, 4) y, int i) {
  *(float4 *)(y + 0) = *(const float4 *)(x + i);
}
static void vector_at(int i) {
  PD_LAUNCH(vector_out, 1, 1, 0, s, device_floats(1000, s), device_room<float>(4), i);
}
static void vector_beyond() { vector_at(998); }
static void misaligned() { vector_at(6); }

static __global__ void plain_vector(const float *x, float4 *y) { *y = *(const float4 *)(x + 2); }
static void misaligned_plain() {
  PD_LAUNCH(plain_vector, 1, 1, 0, s, device_floats(100, s), (float4 *)device_room<float>(4));
}

static __global__ void half_vector(float2 *x, int i) { ((float2 *)((float *)x + i))->y = 0; }
static void misaligned_half() { PD_LAUNCH(half_vector, 1, 1, 0, s, (float2 *)device_room<float>(4), 1); }

static __global__ void plain(float *x, int i) { x[i] = 1; }
static void guard() { PD_LAUNCH(plain, 1, 1, 0, s, device_room<float>(1024), 1024); }
static void shared_part() {
  cudaIpcMemHandle_t handle;
  cudaIpcGetMemHandle(&handle, device_room<float>(1000));
}
static void slack() {
  float *x = device_room<float>(1000);
  PD_LAUNCH(plain, 1, 1, 0, s, x, 1000);
  cudaFree(x);
}
static void null() { PD_LAUNCH(plain, 1, 1, 0, s, nullptr, 0); }

static __global__ void shared_array(float *x, int i) {
  __shared__ float part[64];
  part[threadIdx.x] = 1;
  *x = part[i];
}
static void shared_index() { PD_LAUNCH(shared_array, 1, 64, 0, s, device_room<float>(1), 64); }

static __global__ void dynamic_array(int i) {
  PD_SHARED(float, part);
  part[i] = 1;
}
static void dynamic_beyond() { PD_LAUNCH(dynamic_array, 1, 1, 256, s, 64); }

static __global__ void deep(int *x, int n) {
  int large[100000];
  for (int i = 0; i < n; i++) large[i] = x[0] ^ i;
  x[1] = large[x[0]];
}
static void stack() { PD_LAUNCH(deep, 1, 1, 0, s, device_room<int>(2), 100000); }

/* ---- what nobody has written --------------------------------------------------------------------- */

static void poison() { PD_LAUNCH(reach, 1, 1, 0, s, device_room<float>(1000), device_room<float>(1000), 0); }
static void shared_poison() {
  float *x = device_room<float>(1);
  for (int i = 0; i < 2; i++) {
    PD_LAUNCH(shared_array, 1, 32, 0, s, x, 40);
    expect(!std::isnan(fetch(x, 1, s)[0]), "shared memory that nobody has written is no number");
  }
}

/* ---- barriers and warps -------------------------------------------------------------------------- */

static __global__ void missing_barrier(int *x) {
  __shared__ int turn[64];
  turn[threadIdx.x] = (int)threadIdx.x;
  x[threadIdx.x] = turn[63 - threadIdx.x];
  __syncthreads();
}
static void race() {
  int *x = device_room<int>(64);
  PD_LAUNCH(missing_barrier, 1, 64, 0, s, x);
  std::vector<int> out = fetch(x, 64, s);
  for (int i = 0; i < 64; i++) expect(out[(size_t)i] == 63 - i, "a barrier is missing");
  cudaFree(x);
}

static __global__ void missed_by_one() {
  if (threadIdx.x == 7) return;
  __syncthreads();
}
static void missed_barrier() { PD_LAUNCH(missed_by_one, 1, 64, 0, s); }

static __global__ void diverge(int *x) {
  if (threadIdx.x < 32) {
    x[threadIdx.x] = 1;
    __syncthreads();
  } else {
    __syncthreads();
    x[threadIdx.x] = 2;
  }
}
static void diverged() { PD_LAUNCH(diverge, 1, 64, 0, s, device_room<int>(64)); }

static __global__ void lane_ends() {
  if (threadIdx.x % 32 != 9) __shfl_xor_sync(0xffffffffu, 1, 1);
}
static void lane_missing() { PD_LAUNCH(lane_ends, 1, 64, 0, s); }
static __global__ void short_warp() { __syncwarp(); }
static void lanes_of_no_thread() { PD_LAUNCH(short_warp, 1, 40, 0, s); }
static __global__ void not_named() { __shfl_sync(0xffffu, 1, 1); }
static void mask() { PD_LAUNCH(not_named, 1, 32, 0, s); }
static __global__ void source_outside() {
  if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
}
static void source() { PD_LAUNCH(source_outside, 1, 32, 0, s); }
static __global__ void two_operations() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __shfl_sync(0xffffffffu, 1, 1);
}
static void warp_diverged() { PD_LAUNCH(two_operations, 1, 32, 0, s); }

/* ---- launches ------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(64) bounded() {}
static void launch_bounds() { PD_LAUNCH(bounded, 1, 96, 0, s); }
static void block() { PD_LAUNCH(idle, 1, dim3(64, 32), 0, s); }
static void grid() { PD_LAUNCH(idle, 0, 32, 0, s); }
static void dynamic_size() { PD_LAUNCH(idle, 1, 32, 64 << 10, s); }
static void default_stream() { PD_LAUNCH(idle, 1, 32, 0, nullptr); }
static void default_copy() { cudaMemsetAsync(device_room<float>(4), 0, 16, nullptr); }
static void destroyed() {
  cudaStream_t t;
  cudaStreamCreate(&t);
  cudaStreamDestroy(t);
  PD_LAUNCH(idle, 1, 32, 0, t);
}

/* ---- the order of operations --------------------------------------------------------------------- */

static __global__ void fill(int *x, int with) { x[threadIdx.x] = with; }

static void two_streams() {
  cudaStream_t t;
  cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
  int *x = device_room<int>(32);
  PD_LAUNCH(fill, 1, 32, 0, s, x, 1);
  PD_LAUNCH(fill, 1, 32, 0, t, x, 2);
  cudaStreamSynchronize(t);
  expect(fetch(x, 32, s)[0] == 2, "an event between two streams is missing");
  cudaFree(x);
  cudaStreamDestroy(t);
}

static void pinned_reused() {
  int *pinned, *x = device_room<int>(1);
  cudaMallocHost(&pinned, sizeof(int));
  *pinned = 1;
  cudaMemcpyAsync(x, pinned, sizeof(int), cudaMemcpyHostToDevice, s);
  *pinned = 2;
  expect(fetch(x, 1, s)[0] == 1, "pinned memory was reused too early");
  cudaFree(x);
  cudaFreeHost(pinned);
}

static void pinned_late() {
  int *pinned, *x = device_room<int>(1);
  cudaMallocHost(&pinned, sizeof(int));
  cudaMemcpyAsync(x, pinned, sizeof(int), cudaMemcpyHostToDevice, s);
  *pinned = 1;
  expect(fetch(x, 1, s)[0] == 1, "pinned memory was written too late");
  cudaFree(x);
  cudaFreeHost(pinned);
}

static void read_early() {
  int *pinned, *x = device_room<int>(32);
  cudaMallocHost(&pinned, sizeof(int));
  PD_LAUNCH(fill, 1, 32, 0, s, x, 5);
  cudaMemcpyAsync(pinned, x, sizeof(int), cudaMemcpyDeviceToHost, s);
  expect(*pinned == 5, "the host reads before the copy is done");
  cudaFree(x);
  cudaFreeHost(pinned);
}

static void copy_and_other_stream() {
  int host = 1, *x = device_room<int>(32);
  cudaMemset(x, 0, 32 * sizeof(int));
  cudaDeviceSynchronize();
  cudaMemcpy(x, &host, sizeof host, cudaMemcpyHostToDevice);
  expect(fetch(x, 1, s)[0] == 1, "a non-blocking stream does not wait for cudaMemcpy");
  cudaFree(x);
}

static void stuck() {
  setenv("CUDA_HOST_TIMEOUT", "0.1", 1);
  cuda_host_enqueue(s, {"a message", [] {}, [] { return false; }});
}

static void unfinished() {
  PD_LAUNCH(idle, 1, 32, 0, s);
  exit(0);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void leak() { device_room<float>(1000); }
static void host_access() { *device_room<volatile float>(10) = 1; }
static void copy_beyond() { cudaMemsetAsync(device_room<float>(10), 0, 41, s); }
static void copy_kind() {
  float x;
  cudaMemcpyAsync(&x, device_room<float>(1), sizeof x, cudaMemcpyHostToDevice, s);
}
static void freed_twice() {
  float *x = device_room<float>(10);
  cudaFree(x);
  cudaFree(x);
}

int main(int, char **argv) {
  static const struct {
    const char *name;
    void (*run)();
  } all[] = {
#define CASE(name) {#name, name}
      /* clang-format off */
      CASE(out_of_bounds), CASE(below), CASE(too_small), CASE(host_memory), CASE(in_place), CASE(cursor),
      CASE(vector_beyond), CASE(misaligned), CASE(misaligned_plain), CASE(misaligned_half), CASE(guard),
      CASE(slack), CASE(shared_part), CASE(null), CASE(shared_index), CASE(dynamic_beyond), CASE(stack), CASE(poison),
      CASE(shared_poison), CASE(race), CASE(missed_barrier), CASE(diverged), CASE(lane_missing),
      CASE(lanes_of_no_thread), CASE(mask), CASE(source), CASE(warp_diverged), CASE(launch_bounds),
      CASE(block), CASE(grid), CASE(dynamic_size), CASE(default_stream), CASE(default_copy), CASE(destroyed),
      CASE(two_streams), CASE(pinned_reused), CASE(pinned_late), CASE(read_early),
      CASE(copy_and_other_stream), CASE(stuck), CASE(unfinished), CASE(leak), CASE(host_access),
      CASE(copy_beyond), CASE(copy_kind), CASE(freed_twice),
      /* clang-format on */
  };
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  for (auto &test : all)
    if (strcmp(test.name, argv[1]) == 0) {
      test.run();
      cudaStreamSynchronize(s);
      return 0;
    }
  return 2;
}
