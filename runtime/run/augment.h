/* The value of --augment. */
#ifndef PD_RUN_AUGMENT_H
#define PD_RUN_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

struct pd_augment {
  bool flip;
  int64_t crop;        /* pixels on each side; 0: none */
  double resized_crop; /* least share of an image file's area; 0: none */
  double color;        /* largest change of brightness, contrast and saturation; 0: none */
};

#endif
