/* Algorithms of cuBLASLt products, the fastest by `pdc profile` (runtime/cuda/algorithms.cu): measured with their
 * kernels, stored in profiles and plans, printed into programs. */
#ifndef PDC_ALGORITHMS_H
#define PDC_ALGORITHMS_H

#include "base/json.h"

/* The members of struct pd_algorithm, in order. */
enum { ALGORITHM_NUMBERS = 9 };
extern const char *const algorithm_members[ALGORITHM_NUMBERS];

typedef struct Algorithm {
  Name product; /* sizes and types, in the runtime's notation */
  int64_t number[ALGORITHM_NUMBERS];
  double seconds, first_seconds; /* of one product: by this algorithm, by the library's first choice; 0: unknown */
} Algorithm;
typedef Vec(Algorithm) AlgorithmList;

/* The measured device and library. */
typedef struct ProductLibrary {
  Name device; /* CUDA's name; NULL: not measured */
  int64_t version;
} ProductLibrary;

/* Of a plan: all products at its microbatch, each once. */
typedef struct Algorithms {
  ProductLibrary library;
  AlgorithmList of;
} Algorithms;

/* Lines of n characters in the output of `pdc profile`'s program: "algorithm NUMBERS... SECONDS FIRST_SECONDS
 * PRODUCT", and "library VERSION DEVICE" (or another word). False: another format. */
bool algorithm_parse(const char *line, size_t n, Algorithm *out);
bool product_library_parse(const char *line, size_t n, const char *word, ProductLibrary *out);

/* Writes and reads the list "algorithms"; times are in profiles only. False after a diagnostic. */
void algorithms_write(const AlgorithmList *list, bool times, int indent, Text *t);
bool algorithms_read(const JsonPlace *at, bool times, AlgorithmList *out);
/* Writes and reads the member "cublaslt" or "cudnn". */
void product_library_write(const char *member, const ProductLibrary *library, Text *t);
bool product_library_read(const JsonPlace *at, const char *member, ProductLibrary *out);

#endif
