/* For the test of `check`: nothing to say. */
__global__ void clean(float *x) { x[threadIdx.x] = 0; }
