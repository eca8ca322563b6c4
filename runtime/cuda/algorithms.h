/* Which of cuBLASLt's algorithms does a product (algorithms.cu). */
#ifndef PD_ALGORITHMS_H
#define PD_ALGORITHMS_H

#include "pd_cuda.h"

#include <cublasLt.h>
#include <functional>
#include <string>

/* A product c^T = b^T a^T as the library is told it. */
struct pd_lt_product {
  std::string name; /* says all that an algorithm may depend on: plans keep algorithms by it */
  cublasLtHandle_t library;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t b, a, c; /* cuBLASLt's A, B, and C and D */
  cublasComputeType_t compute;
  cudaDataType_t factors, result;
  uint64_t workspace;   /* bytes that there are for it */
  uint32_t alignment;   /* bytes: of all operands' addresses */
  bool on_tensor_cores; /* where it should be done */
};

/* Enqueues the product once on pd_stream, done by this algorithm, which the library takes. */
typedef std::function<void(const cublasLtMatmulAlgo_t &algorithm)> pd_lt_run;

/* False: the library has none. `run` is called where algorithms are timed alone. */
bool pd_choose_algorithm(const pd_lt_product &p, const pd_lt_run &run, cublasLtMatmulAlgo_t *algorithm);

#endif
