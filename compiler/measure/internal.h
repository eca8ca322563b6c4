/* Private to compiler/measure: the output of `pdc profile`'s program, and the table of it. */
#ifndef PDC_MEASURE_INTERNAL_H
#define PDC_MEASURE_INTERNAL_H

#include "emit/emit.h"
#include "measure/measure.h"
#include "plan/search/search.h"

typedef struct Timing {
  Name signature; /* of a kernel, or another measurement: "update" */
  double seconds; /* per call; or a rate per second */
} Timing;
typedef Vec(Timing) Timings;

typedef struct TimedAlgorithm {
  Name signature; /* of the kernel that contains the product */
  Algorithm algorithm;
} TimedAlgorithm;

typedef struct TimedAttention {
  Name signature; /* of the kernel */
  Attention attention;
} TimedAttention;

/* The parsed output. */
typedef struct Measurements {
  Timings timings;
  Vec(TimedAlgorithm) algorithms; /* one entry per product and kernel */
  Vec(TimedAttention) attentions;
  ProductLibrary cublaslt, cudnn; /* their libraries */
} Measurements;

/* False after a diagnostic: not measured. */
bool find_seconds(const Timings *t, const Kernel *kernel, double *seconds);
double timing_named(const Timings *t, const char *name); /* 0: not measured */

/* place.c: transfer rates of a directory for this number of bytes, under the access pattern of offload. Fills the
 * profile's seconds per byte. False after a diagnostic. */
bool measure_place(const char *place, int64_t bytes, Profile *profile);

/* The machine's best rates. */
typedef struct BestRates {
  double products, operations; /* operations/s of products in the target's precision, and of f32 */
  double memory;               /* bytes/s */
} BestRates;

typedef struct ProfileTable {
  const LoweredStage *stage; /* the whole model */
  const Timings *timings;
  BestRates rates;
  bool measured;    /* measured rates; else the planner's */
  const char *rule; /* the optimizer's rule, or NULL */
  int64_t elements; /* updated elements */
  int n_moments;
  Name machine;
} ProfileTable;

/* Prints kinds of kernels, then kernels, sorted by gap: time beyond the bound by bytes and operations. False after
 * a diagnostic. */
bool profile_table(const ProfileTable *t, FILE *out);

#endif
