/* How cuBLASLt does products, as `pdc profile` found it to be the fastest (runtime/cuda/algorithms.cu): measured with
 * their kernels, kept in profiles and plans, printed into programs. */
#ifndef PDC_ALGORITHMS_H
#define PDC_ALGORITHMS_H

#include "base/json.h"

/* The members of struct pd_algorithm, in its order. */
enum { ALGORITHM_NUMBERS = 9 };
extern const char *const algorithm_members[ALGORITHM_NUMBERS];

typedef struct Algorithm {
  Name product; /* its sizes and types, as the runtime names it */
  int64_t number[ALGORITHM_NUMBERS];
  double seconds, first_seconds; /* of one product: by it, by what the library lists first; 0: not told */
} Algorithm;
typedef Vec(Algorithm) AlgorithmList;

/* What they were measured on, and with. */
typedef struct ProductLibrary {
  Name device; /* as CUDA names it; NULL: nothing was measured */
  int64_t version;
} ProductLibrary;

/* A plan's: of all products at its microbatch, each once. */
typedef struct Algorithms {
  ProductLibrary library;
  AlgorithmList of;
} Algorithms;

/* "algorithm NUMBERS... SECONDS FIRST_SECONDS PRODUCT" and "library VERSION DEVICE" (or another word), lines of n characters that the program
 * of `pdc profile` prints. False: it is none. */
bool algorithm_parse(const char *line, size_t n, Algorithm *out);
bool product_library_parse(const char *line, size_t n, const char *word, ProductLibrary *out);

/* A member "algorithms", a list with lines indented so, and what it is read from; times stand in profiles. False after a
 * diagnostic. */
void algorithms_write(const AlgorithmList *list, bool times, int indent, Text *t);
bool algorithms_read(const JsonPlace *at, bool times, AlgorithmList *out);
/* A member "cublaslt" or "cudnn", and what it is read from. */
void product_library_write(const char *member, const ProductLibrary *library, Text *t);
bool product_library_read(const JsonPlace *at, const char *member, ProductLibrary *out);

#endif
