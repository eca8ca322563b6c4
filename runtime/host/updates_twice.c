/* --audit K, of updates: in every K-th, what is updated at once (a tile, or under a rule over whole tensors a parameter) is
 * updated twice from the same memory, and both must write the same bits. Kept, exchanged and compared as passes are
 * (twice.c), in the same copy. Threads only note what differs; it is told when all have ended. */
#include "internal.h"

#include <string.h>

static struct difference {
  int parameter; /* the first in which anything differs; -1: none */
  const char *what;
  int64_t element;
  int digits;
  uint32_t first, second;
} difference = {.parameter = -1};

/* `other`: what the first update wrote. */
static void note(const struct pd_written *w, const char *other, int parameter, int64_t first_element) {
  size_t at = 0, size = w->bf16 ? 2 : sizeof(float);
  while (!memcmp((const char *)w->at + at, other + at, size)) at += size;
  struct difference d = {.parameter = parameter,
                         .what = w->what,
                         .element = first_element + (int64_t)(at / size),
                         .digits = (int)size * 2};
  memcpy(&d.first, other + at, size);
  memcpy(&d.second, (const char *)w->at + at, size);
#pragma omp critical(pd_difference)
  if (difference.parameter < 0 || parameter < difference.parameter ||
      (parameter == difference.parameter && d.element < difference.element))
    difference = d;
}

void pd_update_twice(void (*update)(const void *of), const void *of, const struct pd_written *w, int n, char *copy,
                     int parameter, int64_t first_element) {
  char *other = copy;
  for (int i = 0; i < n; other += w[i++].bytes) memcpy(other, w[i].at, w[i].bytes);
  update(of);
  other = copy;
  for (int i = 0; i < n; other += w[i++].bytes) pd_exchange_bytes(w[i].at, other, w[i].bytes);
  update(of);
  other = copy;
  for (int i = 0; i < n; other += w[i++].bytes)
    if (memcmp(w[i].at, other, w[i].bytes)) note(&w[i], other, parameter, first_element);
}

bool pd_updates_agree(int64_t t, char *why) {
  const struct difference d = difference;
  difference.parameter = -1;
  return d.parameter < 0 ||
         pd_refuse(
             why,
             "--audit: step %lld: the update, run twice, does not leave the same in the %s of '%s': element %lld "
             "has the bits %0*x, then %0*x: a processor or the memory of this host makes errors",
             (long long)(t + 1), d.what, pd.stage->parameters[d.parameter].name, (long long)d.element, d.digits,
             d.first, d.digits, d.second);
}
