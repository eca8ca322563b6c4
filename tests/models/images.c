/* Images of random squares and labels in turn, the same everywhere (vision.py):  images SIDE CLASSES SAMPLES
 * Writes image.npy, u1 [samples, 3, side, side], and label.npy, i4 [samples, 1]. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *array(const char *path, const char *type, const char *shape) {
  char header[118] = {0};
  int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
  memset(header + n, ' ', sizeof header - 1 - (size_t)n);
  FILE *out = fopen(path, "wb");
  if (!out) exit(1);
  fwrite("\x93NUMPY\1\0\x76\0", 1, 10, out); /* a header of 118 bytes: elements start at 128 */
  header[sizeof header - 1] = '\n';
  fwrite(header, 1, sizeof header, out);
  return out;
}

static uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

/* Squares of 8 x 8 pixels, for of finer noise deep layers see nothing but its mean, and noise on them, for equal
 * pixels make equal maxima. */
static void put_images(int64_t planes, int64_t side, FILE *out) {
  int64_t squares = (side + 7) / 8;
  for (int64_t plane = 0; plane < planes; plane++)
    for (int64_t y = 0; y < side; y++)
      for (int64_t x = 0; x < side; x++)
        putc((int)((scrambled((uint32_t)((plane * squares + y / 8) * squares + x / 8)) >> 25) +
                   (scrambled((uint32_t)(~((plane * side + y) * side + x))) >> 25)),
             out);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  int64_t side = atoi(argv[1]), classes = atoi(argv[2]), samples = atoi(argv[3]);
  char shape[64];
  snprintf(shape, sizeof shape, "%lld, 3, %lld, %lld", (long long)samples, (long long)side, (long long)side);
  FILE *image = array("image.npy", "|u1", shape);
  put_images(3 * samples, side, image);
  snprintf(shape, sizeof shape, "%lld, 1", (long long)samples);
  FILE *label = array("label.npy", "<i4", shape);
  for (int64_t i = 0; i < samples; i++) {
    int32_t of_i = (int32_t)(i % classes);
    fwrite(&of_i, sizeof of_i, 1, label);
  }
  return fclose(image) || fclose(label);
}
