/* Decodes and resizes the given image files to 3 x 224 x 224 floats, again and again:  images central|random ROUNDS FILE...
 * Prints images per second of processor time, of the thread that does it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/data.h"
#include "shared/read_file.h"

enum { SIDE = 224 };

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  static float sample[3 * SIDE * SIDE];
  static struct pd_pixels pixels;
  static struct pd_resize_room room;
  const struct pd_augment a = {.resized_crop = 0.08};
  const struct pd_input in = {.rank = 3, .dim = {3, SIDE, SIDE}, .elements = 3 * SIDE * SIDE};
  const int rounds = argc > 3 ? atoi(argv[2]) : 0, files = argc - 3;
  char why[PD_WHY];
  double started = 0;
  for (int i = -files; i < rounds * files; i++) { /* the first round warms up */
    if (!i) started = seconds();
    size_t size;
    const char *path = argv[3 + (i + files) % files];
    char *bytes = pd_read_file(path, &size, why);
    if (!bytes || !pd_decode_image(path, bytes, size, 3, PD_MOST_PIXELS, &pixels, why)) {
      fprintf(stderr, "%s\n", why);
      return 1;
    }
    free(bytes);
    const struct pd_frame f = strcmp(argv[1], "random")
                                  ? pd_central_frame(&in, 0, pixels.width, pixels.height)
                                  : pd_random_frame(&a, &in, 1, i, pixels.width, pixels.height);
    if (!pd_resize(&pixels, &f, &room, sample, why)) return 1;
  }
  printf("%.1f\n", rounds * files / (seconds() - started));
  return 0;
}
