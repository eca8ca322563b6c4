/* For programs that call a library: files of floats, and failures of the program itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition, ...)                                          \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                   \
      fputc('\n', stderr);                                            \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* The floats of a .npy file with a header of 128 bytes. */
__attribute__((unused)) static float *read_floats(const char *path, int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  FILE *f = fopen(path, "rb");
  NEED(x && f && !fseek(f, 128, SEEK_SET) && fread(x, sizeof *x, (size_t)n, f) == (size_t)n, "cannot read '%s'",
       path);
  fclose(f);
  return x;
}

__attribute__((unused)) static void write_floats(const char *path, const float *x, int64_t n) {
  FILE *f = fopen(path, "wb");
  NEED(f && fwrite(x, sizeof *x, (size_t)n, f) == (size_t)n && !fclose(f), "cannot write '%s'", path);
}
