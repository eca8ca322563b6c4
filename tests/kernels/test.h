/* Shared by the kernels' tests. */
#ifndef KERNELS_TEST_H
#define KERNELS_TEST_H

#include "kernels/pd_bf16.h"
#include "pd_runtime.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

/* Of what a test has made, for comparing two builds: FNV-1a. */
static uint64_t digest = 14695981039346656037u;
static inline void add_to_digest(const void *bytes, size_t n) {
  const unsigned char *x = bytes;
  for (size_t i = 0; i < n; i++) digest = (digest ^ x[i]) * 1099511628211u;
}

/* The kernels report a failure of oneDNN through the runtime; here it ends the test. */
_Noreturn void pd_fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  puts("");
  exit(EXIT_FAILURE);
}

/* Buffers are 64-byte aligned and followed by a page that holds a pattern. */
static float *floats(int64_t n) {
  float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64 + 4096);
  if (!x) pd_fail("out of memory");
  return x;
}

static uint32_t random_state = 1;

/* Uniform in [-1, 1), the same on every run. */
static float random_float(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(int32_t)random_state * 0x1p-31f;
}

static float *random_floats(int64_t n) {
  float *x = floats(n);
  for (int64_t i = 0; i < n; i++) x[i] = random_float();
  return x;
}

/* The numbers as an operand of that type, which the caller frees; they become what it holds. */
static inline pd_in operand(float *x, int64_t n, enum pd_type type) {
  pd_out to = {floats(n), type};
  pd_write(to, 0, x, n);
  pd_in made = {to.at, type};
  pd_read(x, made, 0, n);
  return made;
}

/* Valid until the fourth call behind it. */
__attribute__((format(printf, 1, 2))) static inline const char *format(const char *form, ...) {
  static char texts[4][128];
  static int next;
  char *text = texts[next++ % 4];
  va_list list;
  va_start(list, form);
  vsnprintf(text, sizeof texts[0], form, list);
  va_end(list);
  return text;
}

#endif
