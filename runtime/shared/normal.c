/* Normal numbers by +, -, *, / and square roots in double, for equal bits on every machine. */
#include "shared/normal.h"

#include <math.h>

uint64_t pd_hash_name(const char *name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
  return h;
}

/* Natural logarithm of x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh s with
 * s = (m - 1) / (m + 1), |s| < 0.172; the first omitted term of the series is below 1e-18. */
static double log_of(double x) {
  int e;
  double m = frexp(x, &e);
  if (m < 0.70710678118654752) {
    m *= 2;
    e--;
  }
  double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return e * 0.69314718055994531 + 2 * s * sum;
}

/* sin and cos of 2 pi turn, turn in [0, 1): Taylor series about the nearest quarter turn, |x| <= pi / 4. */
static void sin_cos(double turn, double *sine, double *cosine) {
  int quarter = (int)(turn * 4 + 0.5);
  double x = (turn - quarter * 0.25) * 6.2831853071795865, x2 = x * x, s = 0, c = 0;
  for (int k = 17; k >= 1; k -= 2) s = 1 - s * x2 / ((k + 1) * (k + 2));
  for (int k = 16; k >= 0; k -= 2) c = 1 - c * x2 / ((k + 1) * (k + 2));
  s *= x;
  double s4[] = {s, c, -s, -c};
  *sine = s4[quarter & 3];
  *cosine = s4[(quarter + 1) & 3];
}

/* Box and Muller, 1958. The logarithm's argument is never 0. */
void pd_normal_pair(double deviation, uint32_t first, uint32_t second, float *to) {
  double u = ((double)(first >> 8) + 0.5) * 0x1p-24, sine, cosine;
  double radius = deviation * sqrt(-2 * log_of(u));
  sin_cos((double)(second >> 8) * 0x1p-24, &sine, &cosine);
  to[0] = (float)(radius * cosine);
  to[1] = (float)(radius * sine);
}
