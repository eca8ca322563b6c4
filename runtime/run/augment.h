/* The value of --augment. */
#ifndef PD_RUN_AUGMENT_H
#define PD_RUN_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

struct pd_augment {
  bool flip;
  int64_t crop; /* pixels on each side; 0: none */
};

#endif
