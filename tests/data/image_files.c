/* Writes MNIST's files as a folder of images:  image_files IMAGES LABELS DIR png|jpg
 * makes DIR/LABEL/NUMBER.png or .jpg, which are grey. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>
#include <png.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, IMAGES_HEADER = 16, LABELS_HEADER = 8 };

static FILE *open_file(const char *path, const char *mode) {
  FILE *f = fopen(path, mode);
  if (!f) {
    perror(path);
    exit(1);
  }
  return f;
}

static void write_png(FILE *out, unsigned char *pixels) {
  png_image image = {.version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_GRAY};
  if (!png_image_write_to_stdio(&image, out, 0, pixels, SIDE, NULL)) abort();
}

static void write_jpeg(FILE *out, unsigned char *pixels) {
  struct jpeg_compress_struct c;
  struct jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  jpeg_stdio_dest(&c, out);
  c.image_width = c.image_height = SIDE;
  c.input_components = 1;
  c.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, 90, TRUE);
  jpeg_start_compress(&c, TRUE);
  for (int y = 0; y < SIDE; y++) {
    JSAMPROW row = pixels + y * SIDE;
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fputs("usage: image_files IMAGES LABELS DIR png|jpg\n", stderr);
    return 2;
  }
  FILE *images = open_file(argv[1], "rb"), *labels = open_file(argv[2], "rb");
  unsigned char pixels[PIXELS], header[IMAGES_HEADER];
  if (fread(header, 1, IMAGES_HEADER, images) != IMAGES_HEADER ||
      fread(header, 1, LABELS_HEADER, labels) != LABELS_HEADER)
    return 1;
  mkdir(argv[3], 0777);
  for (int i = 0, label; fread(pixels, 1, PIXELS, images) == PIXELS && (label = getc(labels)) >= 0; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", argv[3], label);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%d/%05d.%s", argv[3], label, i, argv[4]);
    FILE *out = open_file(path, "wb");
    (strcmp(argv[4], "png") ? write_jpeg : write_png)(out, pixels);
    if (fclose(out)) return 1;
  }
  return 0;
}
