/* For the test of `check`: a kernel that cannot keep its values in the registers it is allowed. */
__global__ void __launch_bounds__(1024, 2) spills(float *x, int n) {
  float kept[64];
#pragma unroll
  for (int i = 0; i < 64; i++) kept[i] = x[i * 1024 + threadIdx.x];
  for (int k = 0; k < n; k++)
#pragma unroll
    for (int i = 0; i < 64; i++) kept[i] = kept[i] * kept[(i * 7 + 1) % 64] + x[k];
#pragma unroll
  for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = kept[i];
}
