/* For the test of `check`: a value that is never used. */
__global__ void warns(float *x) {
  int unused = 1;
  x[threadIdx.x] = 0;
}
