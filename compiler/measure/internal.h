/* Private to compiler/measure: what the program of `pdc profile` printed, and the table that is made of it. */
#ifndef PDC_MEASURE_INTERNAL_H
#define PDC_MEASURE_INTERNAL_H

#include "emit/emit.h"
#include "measure/measure.h"
#include "plan/search/search.h"

typedef struct Timing {
  Name signature; /* of a kernel, or what else was measured: "update" */
  double seconds; /* of one call; or a rate, in a second */
} Timing;
typedef Vec(Timing) Timings;

typedef struct TimedAlgorithm {
  Name signature; /* of the kernel that the product is part of */
  Algorithm algorithm;
} TimedAlgorithm;

typedef struct TimedAttention {
  Name signature; /* of the kernel */
  Attention attention;
} TimedAttention;

/* All that was printed. */
typedef struct Measurements {
  Timings timings;
  Vec(TimedAlgorithm) algorithms; /* a product's once for each kernel that has it */
  Vec(TimedAttention) attentions;
  ProductLibrary cublaslt, cudnn; /* what they are of */
} Measurements;

/* False after a diagnostic: it was not measured. */
bool find_seconds(const Timings *t, const Kernel *kernel, double *seconds);
double timing_named(const Timings *t, const char *name); /* 0: it was not measured */

/* place.c: how fast a directory takes and gives so many bytes, as a model that spills does it: fills the profile's seconds of
 * a byte. False after a diagnostic. */
bool measure_place(const char *place, int64_t bytes, Profile *profile);

/* What a machine does at best, in a second. */
typedef struct BestRates {
  double products, operations; /* operations of products, in the target's precision and in f32 */
  double memory;               /* bytes */
} BestRates;

typedef struct ProfileTable {
  const LoweredStage *stage; /* the whole model */
  const Timings *timings;
  BestRates rates;
  bool measured;    /* rates were measured, or else are those that plans count with */
  const char *rule; /* the optimizer's, or NULL */
  int64_t elements; /* that it updates */
  int n_moments;
  Name machine;
} ProfileTable;

/* Prints kinds of kernels, then kernels, each by its gap: what it takes longer than its bytes and operations allow.
 * False after a diagnostic. */
bool profile_table(const ProfileTable *t, FILE *out);

#endif
