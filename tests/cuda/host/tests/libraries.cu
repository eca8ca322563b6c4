/* What the stand-ins of cuBLASLt and cuDNN refuse: "statuses" checks what their functions return; every other name
 * makes a mistake that ends the program. */
#include "check.h"

#include <cstring>
#include <cublasLt.h>
#include <cudnn_graphs.h>

static cudaStream_t stream;
static cublasLtHandle_t products;

/* The product of two matrices of 64 x 64, by columns; a test changes what it likes before it asks or runs. */
struct Product {
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  uint64_t workspace = 4096;

  explicit Product(int64_t leading = 64, cudaDataType_t a_type = CUDA_R_32F, uint64_t b_rows = 64) {
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = 16;
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, a_type, 64, 64, leading);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, b_rows, 64, b_rows);
    cublasLtMatrixLayoutCreate(&c, CUDA_R_32F, 64, 64, 64);
    cublasLtMatmulPreferenceCreate(&preference);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    for (auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(which, alignment);
  }
  template <class T> void prefer(cublasLtMatmulPreferenceAttributes_t which, T value) {
    expect(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value) == CUBLAS_STATUS_SUCCESS,
           "a preference");
  }
  cublasStatus_t ask() {
    int n;
    return cublasLtMatmulAlgoGetHeuristic(products, product, a, b, c, c, preference, 1, &found, &n);
  }
  /* GELU, of bfloat16; what it is applied to has columns so far apart. */
  void end_in_gelu(const void *aux, int64_t apart) {
    uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    for (cublasLtMatrixLayout_t *l : {&a, &b, &c}) cublasLtMatrixLayoutCreate(l, CUDA_R_16BF, 64, 64, 64);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &apart, sizeof apart);
  }
  /* Adds up a factor to where that stands. */
  void add_up(cublasLtEpilogue_t which, const void *sums) {
    uint32_t epilogue = which;
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &sums, sizeof sums);
  }
  cublasStatus_t run(const float *x, float *y, char *memory, size_t bytes) {
    float one = 1, zero = 0;
    return cublasLtMatmul(products, product, &one, x, a, x, b, &zero, y, c, y, c, &found.algo, memory, bytes,
                          stream);
  }
};

/* Why a convolution of two images' planes of 8 x 8 is not taken. */
static std::string refusal(int64_t padding, const pd_cudnn_shape &weights, pd_cudnn_type type) {
  pd_cudnn_graph g;
  pd_cudnn_shape images = pd_cudnn_by_channels(1, 2, 8, 8);
  int dy = g.operand(PD_CUDNN_F32, images), w = g.operand(type, weights), dx = g.operand(PD_CUDNN_F32, images);
  g.convolution({PD_CUDNN_IMAGES_GRADIENT, {padding, padding}, {1, 1}, {1, 1}}, dy, w, dx);
  pd_cudnn_engines(&g);
  return g.error;
}
static bool is_in(const char *words, const std::string &text) { return text.find(words) != std::string::npos; }

static void statuses() {
  float *x = device_floats(64 * 64, stream);
  char *memory;
  cudaMalloc(&memory, 4096);
  expect(Product(63).ask() == CUBLAS_STATUS_INVALID_VALUE, "columns that overlap");
  expect(Product(64, CUDA_R_32F, 60).ask() == CUBLAS_STATUS_INVALID_VALUE, "factors that do not fit");
  expect(Product(64, CUDA_R_16BF).ask() == CUBLAS_STATUS_NOT_SUPPORTED, "factors of two types");
  for (int64_t apart : {0, 56, 68, 64, 72}) {
    Product with_gelu;
    with_gelu.end_in_gelu(x, apart);
    cublasStatus_t expected = apart == 64 || apart == 72 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    expect(with_gelu.ask() == expected, "columns of what GELU is applied to");
  }
  Product p;
  expect(p.ask() == CUBLAS_STATUS_SUCCESS, "a product");
  expect(p.run(x, x, memory, 4095) == CUBLAS_STATUS_INVALID_VALUE, "too little workspace");
  cudaFree(memory);

  pd_cudnn_shape weights = pd_cudnn_by_channels(2, 2, 3, 3), planes = pd_cudnn_dense(2, 2, 3, 3);
  expect(refusal(1, weights, PD_CUDNN_F32).empty(), "a convolution");
  expect(is_in("shapes that do not fit", refusal(0, weights, PD_CUDNN_F32)), "a result of another size");
  expect(is_in("not by channels", refusal(1, planes, PD_CUDNN_F32)), "weights by planes");
  expect(is_in("of several types", refusal(1, weights, PD_CUDNN_BF16)), "operands of two types");
  expect(is_in("negative", refusal(-1, weights, PD_CUDNN_F32)), "a padding of -1");
  cudaFree(x);
  puts("as they should be");
}

static void mistake(const char *name) {
  float *x = device_floats(64 * 64 + 64, stream);
  char *memory;
  cudaMalloc(&memory, 8192);
  Product p, other;
  cublasLtMatrixLayoutCreate(&other.c, CUDA_R_32F, 64, 64, 80);
  if (!strcmp(name, "in_place")) p.prefer<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 7);
  if (!strcmp(name, "auxiliary")) p.end_in_gelu((const char *)x + 2, 64);
  if (!strcmp(name, "no_auxiliary")) p.end_in_gelu(nullptr, 64);
  if (!strcmp(name, "no_sums")) p.add_up(CUBLASLT_EPILOGUE_BGRADB, nullptr);
  if (!strcmp(name, "sums")) p.add_up(CUBLASLT_EPILOGUE_BGRADA, x + 1);
  if (!strcmp(name, "sums_beyond")) p.add_up(CUBLASLT_EPILOGUE_BGRADB, x + 64 * 64 + 32);
  p.ask();
  other.ask();
  if (!strcmp(name, "algorithm")) p.found = other.found;
  if (!strcmp(name, "operand")) p.run(x + 1, x, memory, 8192);
  if (!strcmp(name, "workspace")) p.run(x, x, memory + 64, 8000);
  if (!strcmp(name, "beyond")) p.run(x + 128, x, memory, 8192);
  p.run(x, x, memory, 8192);
}

int main(int, char **argv) {
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cublasLtCreate(&products);
  if (!strcmp(argv[1], "statuses"))
    statuses();
  else
    mistake(argv[1]);
  return 0;
}
