/* Programs that are right: their results are the same for every seed. */
#include "check.h"

/* ---- kernels ------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(128)
    add(PD_READS(float, 1000) x, PD_READS(float, 1000) y, PD_WRITES(float, 1000) sum, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) sum[i] = x[i] + y[i];
}

static void pointwise(cudaStream_t s) {
  float *x = device_floats(1000, s), *y = device_floats(1000, s), *sum = device_room<float>(1000);
  PD_LAUNCH(add, 8, 128, 0, s, x, y, sum, 1000);
  std::vector<float> out = fetch(sum, 1000, s);
  for (int i = 0; i < 1000; i++) expect(out[(size_t)i] == 2 * value(i), "a sum");
  for (float *p : {x, y, sum}) cudaFree(p);
}

/* Vectors of 16 bytes in and 8 bytes out, through cursors. */
static __global__ void to_bf16(PD_READS(float, 1024) x, PD_WRITES(pd_bf16, 1024) y) {
  int i = 4 * (int)threadIdx.x;
  float4 v = *(const float4 *)(x + i);
  __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
  auto to = y + i;
  *(__nv_bfloat162 *)to = low;
  to += 2;
  *(__nv_bfloat162 *)to = high;
}

static __global__ void from_bf16(PD_READS(pd_bf16, 1024) x, PD_WRITES(float, 1024) y) {
  y[threadIdx.x] = __bfloat162float(x[threadIdx.x]);
}

static void vectors(cudaStream_t s) {
  float *x = device_floats(1024, s), *z = device_room<float>(1024);
  pd_bf16 *y = device_room<pd_bf16>(1024);
  PD_LAUNCH(to_bf16, 1, 256, 0, s, x, y);
  PD_LAUNCH(from_bf16, 1, 1024, 0, s, y, z);
  std::vector<float> out = fetch(z, 1024, s);
  for (int i = 0; i < 1024; i++) expect(out[(size_t)i] == value(i), "small integers in bfloat16");
  cudaFree(x);
  cudaFree(y);
  cudaFree(z);
}

/* Row sums: shuffles within warps, static shared memory between them. */
template <int THREADS>
static __global__ void __launch_bounds__(THREADS) row_sums(const float *x, float *sums, int columns) {
  __shared__ float parts[THREADS / 32];
  float sum = 0;
  for (int c = (int)threadIdx.x; c < columns; c += THREADS) sum += x[blockIdx.x * (unsigned)columns + (unsigned)c];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, (unsigned)d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += parts[i];
    sums[blockIdx.x] = sum;
  }
}

static void sums(cudaStream_t s) {
  float *x = device_floats(64 * 100, s), *out = device_room<float>(64);
  PD_LAUNCH(row_sums<256>, 64, 256, 0, s, x, out, 100);
  std::vector<float> got = fetch(out, 64, s);
  for (int r = 0; r < 64; r++) {
    double sum = 0;
    for (int c = 0; c < 100; c++) sum += value(r * 100 + c);
    expect(fabs(got[(size_t)r] - sum) < 1e-4, "a row's sum");
  }
  cudaFree(x);
  cudaFree(out);
}

/* Every shuffle and vote, in whole warps, in halves and in parts of 8. */
static __global__ void warps(int *wrong) {
  int lane = (int)(threadIdx.x % 32), bad = 0;
  bad |= __shfl_sync(0xffffffffu, lane, 5) != 5;
  bad |= __shfl_sync(0xffffffffu, lane, lane + 1, 8) != (lane & -8) + (lane + 1) % 8;
  bad |= __shfl_up_sync(0xffffffffu, lane, 3) != (lane < 3 ? lane : lane - 3);
  bad |= __shfl_down_sync(0xffffffffu, lane, 3, 16) != (lane % 16 > 12 ? lane : lane + 3);
  bad |= __shfl_xor_sync(0xffffffffu, (double)lane, 6) != (lane ^ 6);
  bad |= __ballot_sync(0xffffffffu, lane % 2) != 0xaaaaaaaau;
  bad |= !__any_sync(0xffffffffu, lane == 7) || __all_sync(0xffffffffu, lane == 7);
  if (lane < 16) {
    for (int i = 0; i < 3; i++) bad |= __shfl_xor_sync(0xffffu, lane, 1) != (lane ^ 1);
  } else {
    bad |= __shfl_xor_sync(0xffff0000u, lane, 1) != (lane ^ 1);
  }
  __syncwarp();
  bad |= __syncthreads_count(lane < 4) != 4 * (int)(blockDim.x / 32);
  bad |= !__syncthreads_or(threadIdx.x == 3) || __syncthreads_and(threadIdx.x == 3);
  wrong[blockIdx.x * blockDim.x + threadIdx.x] = bad;
}

static void warp_operations(cudaStream_t s) {
  int *wrong = device_room<int>(3 * 96);
  PD_LAUNCH(warps, 3, 96, 0, s, wrong);
  for (int bad : fetch(wrong, 3 * 96, s)) expect(!bad, "shuffles and votes");
  cudaFree(wrong);
}

/* A transposition through dynamic shared memory, blocks and threads in three dimensions. */
static __global__ void transpose(const float *x, float *y, int n) {
  PD_SHARED(float, tile);
  int z = (int)blockIdx.z * n * n, row = (int)threadIdx.y, column = (int)threadIdx.x;
  tile[row * n + column] = x[z + row * n + column];
  __syncthreads();
  y[z + row * n + column] = tile[column * n + row];
}

static void transposition(cudaStream_t s) {
  const int n = 13;
  float *x = device_floats(5 * n * n, s), *y = device_room<float>(5 * n * n);
  PD_LAUNCH(transpose, dim3(1, 1, 5), dim3(n, n), n * n * sizeof(float), s, x, y, n);
  std::vector<float> out = fetch(y, 5 * n * n, s);
  for (int i = 0; i < 5 * n * n; i++)
    expect(out[(size_t)i] == value(i / (n * n) * n * n + i % n * n + i / n % n), "an element transposed");
  expect(cudaFuncSetAttribute(transpose, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) == cudaSuccess,
         "100 KiB of dynamic shared memory");
  PD_LAUNCH(transpose, dim3(1, 1, 5), dim3(n, n), 100 << 10, s, x, y, n);
  cudaStreamSynchronize(s);
  cudaFree(x);
  cudaFree(y);
}

/* ---- streams ------------------------------------------------------------------------------------- */

static __global__ void scale(float *x, int n, float by, float plus) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] = x[i] * by + plus;
}

/* Two streams in turns on one buffer, held in order by events that are recorded again and again. */
static void turns(cudaStream_t s) {
  cudaStream_t t;
  cudaEvent_t there, back;
  cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&there, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&back, cudaEventDisableTiming);
  float *x = device_floats(100, s);
  for (int i = 0; i < 5; i++) {
    PD_LAUNCH(scale, 1, 128, 0, s, x, 100, 2.0f, 0.0f);
    cudaEventRecord(there, s);
    cudaStreamWaitEvent(t, there);
    PD_LAUNCH(scale, 1, 128, 0, t, x, 100, 1.0f, 1.0f);
    cudaEventRecord(back, t);
    cudaStreamWaitEvent(s, back);
  }
  std::vector<float> out = fetch(x, 100, s);
  for (int i = 0; i < 100; i++) expect(out[(size_t)i] == value(i) * 32 + 31, "two streams in turns");
  cudaFree(x);
  cudaEventDestroy(there);
  cudaEventDestroy(back);
  cudaStreamDestroy(t);
}

/* A ring of two pinned buffers in each direction, filled again once an event says that they have been read. */
static void ring(cudaStream_t s) {
  enum { N = 64, ROUNDS = 9 };
  float *in[2], *out[2], *x = device_room<float>(N);
  cudaEvent_t through[2];
  for (int i = 0; i < 2; i++) {
    cudaMallocHost(&in[i], N * sizeof(float));
    cudaHostAlloc(&out[i], N * sizeof(float), cudaHostAllocDefault);
    cudaEventCreate(&through[i]);
  }
  auto check = [&](int k) {
    for (int i = 0; i < N; i++) expect(out[k % 2][i] == 2 * (float)(i + k) + 1, "what came through the ring");
  };
  for (int k = 0; k < ROUNDS; k++) {
    cudaEventSynchronize(through[k % 2]);
    if (k >= 2) check(k - 2);
    for (int i = 0; i < N; i++) in[k % 2][i] = (float)(i + k);
    cudaMemcpyAsync(x, in[k % 2], N * sizeof(float), cudaMemcpyHostToDevice, s);
    PD_LAUNCH(scale, 2, 32, 0, s, x, N, 2.0f, 1.0f);
    cudaMemcpyAsync(out[k % 2], x, N * sizeof(float), cudaMemcpyDeviceToHost, s);
    cudaEventRecord(through[k % 2], s);
  }
  while (cudaEventQuery(through[(ROUNDS - 1) % 2]) == cudaErrorNotReady)
    ;
  check(ROUNDS - 2);
  check(ROUNDS - 1);
  float ms;
  expect(cudaEventElapsedTime(&ms, through[(ROUNDS - 2) % 2], through[(ROUNDS - 1) % 2]) == cudaSuccess && ms >= 0,
         "time between events");
  for (int i = 0; i < 2; i++) {
    cudaFreeHost(in[i]);
    cudaFreeHost(out[i]);
    cudaEventDestroy(through[i]);
  }
  cudaFree(x);
}

/* cudaMemcpy and cudaMemset on the one hand, a stream that meets them on the other. */
static void legacy() {
  cudaStream_t s;
  cudaStreamCreate(&s);
  std::vector<float> host(50);
  float *x = device_room<float>(50);
  cudaMemset(x, 0, 50 * sizeof(float));
  PD_LAUNCH(scale, 1, 64, 0, s, x, 50, 1.0f, 3.0f);
  cudaMemcpy(host.data(), x, 50 * sizeof(float), cudaMemcpyDeviceToHost);
  expect(host[49] == 3.0f, "cudaMemset, a kernel, cudaMemcpy");
  cudaMemcpy(x, std::vector<float>(50, 5.0f).data(), 50 * sizeof(float), cudaMemcpyDefault);
  PD_LAUNCH(scale, 1, 64, 0, s, x, 50, 2.0f, 0.0f);
  expect(fetch(x, 50, s)[0] == 10.0f, "cudaMemcpy, then a kernel on a blocking stream");
  cudaFree(x);
  cudaStreamDestroy(s);
}

/* Rows of 3 of 5 floats into rows of 7, and a function of the host between operations. */
static void rows(cudaStream_t s) {
  float *x = device_floats(20, s), *y = device_room<float>(28);
  static bool called;
  cudaMemsetAsync(y, 0, 28 * sizeof(float), s);
  cudaMemcpy2DAsync(y, 28, x, 20, 12, 4, cudaMemcpyDeviceToDevice, s);
  cudaLaunchHostFunc(
      s, [](void *p) { *(bool *)p = true; }, &called);
  std::vector<float> out = fetch(y, 28, s);
  for (int i = 0; i < 28; i++) expect(out[(size_t)i] == (i % 7 < 3 ? value(i / 7 * 5 + i % 7) : 0), "rows copied");
  expect(called, "cudaLaunchHostFunc");
  cudaFree(x);
  cudaFree(y);
}

/* ---- graphs -------------------------------------------------------------------------------------- */

/* x = 2 x in one stream, y = 3 y in another, then x = x + y; launched three times. */
static void graph(cudaStream_t s) {
  cudaStream_t t;
  cudaEvent_t fork, join;
  cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  float *x = device_floats(1000, s), *y = device_floats(1000, s), *z = device_room<float>(1000);
  expect(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed) == cudaSuccess, "capture");
  cudaEventRecord(fork, s);
  cudaStreamWaitEvent(t, fork);
  PD_LAUNCH(scale, 8, 128, 0, s, x, 1000, 2.0f, 0.0f);
  PD_LAUNCH(scale, 8, 128, 0, t, y, 1000, 3.0f, 0.0f);
  cudaEventRecord(join, t);
  cudaStreamWaitEvent(s, join);
  PD_LAUNCH(add, 8, 128, 0, s, x, y, z, 1000);
  expect(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported, "waiting while capturing");
  expect(cudaGetLastError() == cudaErrorStreamCaptureUnsupported, "last error");
  expect(cudaGetLastError() == cudaSuccess, "no error any more");
  cudaGraph_t g;
  cudaGraphExec_t exec;
  expect(cudaStreamEndCapture(s, &g) == cudaSuccess, "end of capture");
  expect(cudaGraphInstantiate(&exec, g, 0) == cudaSuccess, "instantiation");
  size_t nodes;
  cudaGraphGetNodes(g, nullptr, &nodes);
  expect(nodes == 3, "three nodes");
  for (int i = 0; i < 3; i++) cudaGraphLaunch(exec, s);
  std::vector<float> out = fetch(z, 1000, s);
  for (int i = 0; i < 1000; i++) expect(out[(size_t)i] == value(i) * (8 + 27), "a graph launched three times");
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(g);
  for (float *p : {x, y, z}) cudaFree(p);

  cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(fork, s);
  cudaStreamWaitEvent(t, fork);
  cudaLaunchHostFunc(
      t, [](void *) {}, nullptr);
  expect(cudaStreamEndCapture(s, &g) == cudaErrorStreamCaptureUnjoined && !g, "work that is not joined");
  cudaGetLastError();
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
  cudaStreamDestroy(t);
}

/* ---- devices ------------------------------------------------------------------------------------- */

static void devices() {
  int n, device, blocks;
  char bus[2][32];
  cudaDeviceProp p;
  size_t unused = 0, total = 0;
  expect(cudaGetDeviceCount(&n) == cudaSuccess && n == 8, "eight devices");
  expect(cudaSetDevice(3) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess && device == 3, "device 3");
  expect(cudaSetDevice(8) == cudaErrorInvalidDevice, "no device 8");
  cudaGetLastError();
  cudaDeviceGetPCIBusId(bus[0], sizeof bus[0], 0);
  cudaDeviceGetPCIBusId(bus[1], sizeof bus[1], 1);
  expect(strcmp(bus[0], bus[1]) != 0, "bus ids differ");
  expect(cudaGetDeviceProperties(&p, 3) == cudaSuccess && p.major >= 8 && p.multiProcessorCount > 0, "properties");
  void *room;
  expect(cudaMalloc(&room, 1 << 20) == cudaSuccess && cudaMemGetInfo(&unused, &total) == cudaSuccess &&
             unused == total - (1 << 20),
         "memory in use");
  expect(cudaFree(room) == cudaSuccess, "cudaFree");
  expect(cudaMalloc(&room, total + 1) == cudaErrorMemoryAllocation && !room, "too much memory");
  cudaGetLastError();
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0);
  expect(blocks == 8, "occupancy");
}

int main() {
  devices();
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  pointwise(s);
  vectors(s);
  sums(s);
  warp_operations(s);
  transposition(s);
  turns(s);
  ring(s);
  legacy();
  rows(s);
  graph(s);
  cudaStreamDestroy(s);
}
