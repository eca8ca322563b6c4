/* The algorithms of the stand-in for cuBLASLt (cublasLt_algorithms.cpp). */
#ifndef CUBLASLT_ALGORITHMS_H
#define CUBLASLT_ALGORITHMS_H

#include <cublasLt.h>

#include <compare>
#include <vector>

/* What AlgoInit and ConfigSetAttribute say of an algorithm: nothing about a problem. */
struct Algorithm {
  int32_t id;
  uint32_t tile;
  int32_t split_k;
  uint32_t reduction, swizzle, custom, stages;
  uint16_t inner_shape, cluster_shape;
  auto operator<=>(const Algorithm &) const = default;
};
/* What is in a cublasLtMatmulAlgo_t. The heuristic also knows for which problem it is, and how a, b, c and d are promised to
 * be aligned; of one that AlgoInit made problem is 0, and AlgoCheck must have found it good for what it is used for. */
struct Chosen {
  Algorithm algorithm;
  uint32_t alignment[4];
  uint64_t problem;
};

/* What the heuristic lists, in its order; as the environment says (README.md). */
std::vector<Algorithm> algorithms_offered();
bool algorithm_exists(const Algorithm &a);
uint64_t algorithm_workspace(const Algorithm &a); /* bytes */
/* What a product of this problem takes on the device that is pretended. */
double algorithm_seconds(uint64_t problem, const Algorithm &a);

/* From here on one that AlgoInit made can be used for the problem. Whether it can. */
void algorithm_serves(uint64_t problem, const Algorithm &a);
bool algorithm_is_for(uint64_t problem, const Chosen &a);

#endif
