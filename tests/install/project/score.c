/* Calls the model's library. */
#include "scorer.h"

#include <stdio.h>

int main(void) {
  char why[SCORER_WHY];
  scorer *m = scorer_new(NULL, 0, 0, why);
  const int failed = !m || scorer_load(m, "absent.safetensors", why);
  printf("%s\n", why);
  scorer_free(m);
  return !failed;
}
