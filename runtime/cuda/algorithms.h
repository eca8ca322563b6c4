/* The choice of cuBLASLt algorithms (algorithms.cu). */
#ifndef PD_ALGORITHMS_H
#define PD_ALGORITHMS_H

#include "pd_cuda.h"

#include <cublasLt.h>
#include <functional>
#include <string>

/* A product c^T = b^T a^T, as passed to the library. */
struct pd_lt_product {
  std::string name; /* all properties that the choice depends on; the key in plans */
  cublasLtHandle_t library;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t b, a, c; /* cuBLASLt's A, B, and C and D */
  cublasComputeType_t compute;
  cudaDataType_t factors, result;
  uint64_t workspace;   /* bytes */
  uint32_t alignment;   /* of all operands, in bytes */
  bool on_tensor_cores; /* expected */
};

/* Enqueues the product once on pd_stream by this algorithm, which the library supports. */
typedef std::function<void(const cublasLtMatmulAlgo_t &algorithm)> pd_lt_run;

/* False: no algorithm. Calls `run` only to time algorithms. */
bool pd_choose_algorithm(const pd_lt_product &p, const pd_lt_run &run, cublasLtMatmulAlgo_t *algorithm);

#endif
