/* Decoding of JPEG (libjpeg-turbo) and PNG (libpng) to 8 bits, as Pillow's convert("RGB") and convert("L"). Alpha is
 * dropped, 16-bit PNG keeps its high bytes, CMYK JPEG is inverted as Adobe writes it, and orientation in EXIF is
 * not applied. Unlike parsers, decoders allocate: the caller keeps the room and reuses it. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

enum { COLOUR = 4 }; /* bytes of a pixel with colour: red, green, blue, and one without meaning */

#ifdef PD_WITH_IMAGES
#include <setjmp.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h> /* needs jpeglib.h */
#include <png.h>

bool pd_images_supported(void) { return true; }

const char *pd_image_libraries(void) {
  static char text[64];
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
  snprintf(text, sizeof text, "libjpeg-turbo %s, libpng %s", TEXT(LIBJPEG_TURBO_VERSION),
           png_get_libpng_ver(NULL));
  return text;
}

/* An image under way. Longjmp leaves local variables undefined, so everything that outlives a failure is here. */
struct source {
  jmp_buf failed;
  const char *path;
  char *why;
  const uint8_t *at;
  size_t size, read; /* read: bytes that libpng has consumed */
  struct pd_pixels *to;
};

static bool make_room(struct pd_pixels *p, int64_t width, int64_t height, const struct source *s, int64_t most) {
  if (width < 1 || height < 1)
    return pd_refuse(s->why, "'%s': the image has no pixels: %lld x %lld", s->path, (long long)width,
                     (long long)height);
  if (width > most / height)
    return pd_refuse(s->why, "'%s': the image has %lld x %lld pixels, which is more than %lld", s->path,
                     (long long)width, (long long)height, (long long)most);
  const size_t bytes = (size_t)(width * height) * COLOUR;
  if (bytes > p->room) {
    free(p->at);
    p->room = 0;
    p->at = malloc(bytes);
    if (!p->at)
      return pd_refuse(s->why, "'%s': out of memory for %lld x %lld pixels", s->path, (long long)width,
                       (long long)height);
    p->room = bytes;
  }
  p->width = width;
  p->height = height;
  return true;
}

/* ITU-R 601's luma in Pillow's fixed point. */
static void colour_to_grey(struct pd_pixels *p) {
  const size_t n = (size_t)p->width * (size_t)p->height;
  for (size_t i = 0; i < n; i++) {
    const uint8_t *c = p->at + COLOUR * i;
    p->at[i] = (uint8_t)((c[0] * 19595u + c[1] * 38470u + c[2] * 7471u + 0x8000u) >> 16);
  }
}

static uint8_t product(unsigned a, unsigned b) { /* a * b / 255, rounded */
  const unsigned x = a * b + 128;
  return (uint8_t)(((x >> 8) + x) >> 8);
}

/* Adobe stores 255 - ink, so that a stored value is the share of light. */
static void inks_to_colour(struct pd_pixels *p) {
  const size_t n = (size_t)p->width * (size_t)p->height;
  for (size_t i = 0; i < n; i++) {
    uint8_t *c = p->at + COLOUR * i;
    for (int j = 0; j < 3; j++) {
      const int light = c[3] - product(255u - c[j], c[3]);
      c[j] = (uint8_t)(light < 0 ? 0 : light);
    }
  }
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

struct jpeg {
  struct jpeg_decompress_struct d;
  struct jpeg_error_mgr errors;
  struct jpeg_progress_mgr progress;
  struct source *source;
};

static void jpeg_fails(j_common_ptr c) {
  char message[JMSG_LENGTH_MAX];
  struct source *s = ((struct jpeg *)c->client_data)->source;
  c->err->format_message(c, message);
  pd_refuse(s->why, "'%s' is a damaged JPEG image: %s", s->path, message);
  longjmp(s->failed, 1);
}

/* Warnings of missing or invalid pixels are errors; others, as of extra bytes, are not. */
static void jpeg_says(j_common_ptr c, int level) {
  const int code = c->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                    code == JWRN_ARITH_BAD_CODE || code == JWRN_NOT_SEQUENTIAL))
    jpeg_fails(c);
}

/* A small file can ask for any number of passes over a large image. */
static void jpeg_goes_on(j_common_ptr c) {
  enum { MOST_SCANS = 500 };
  struct source *s = ((struct jpeg *)c->client_data)->source;
  if (!c->is_decompressor || ((j_decompress_ptr)c)->input_scan_number <= MOST_SCANS) return;
  pd_refuse(s->why, "'%s' is a JPEG image of more than %d scans", s->path, MOST_SCANS);
  longjmp(s->failed, 1);
}

static bool decode_jpeg(struct source *s, int channels, int64_t most) {
  struct jpeg j = {.source = s};
  j.d.err = jpeg_std_error(&j.errors);
  j.errors.error_exit = jpeg_fails;
  j.errors.emit_message = jpeg_says;
  j.d.client_data = &j;
  if (setjmp(s->failed)) {
    jpeg_destroy_decompress(&j.d);
    return false;
  }
  jpeg_create_decompress(&j.d);
  j.progress.progress_monitor = jpeg_goes_on;
  j.d.progress = &j.progress;
  jpeg_mem_src(&j.d, s->at, s->size);
  jpeg_read_header(&j.d, TRUE);
  const bool inks = j.d.jpeg_color_space == JCS_CMYK || j.d.jpeg_color_space == JCS_YCCK;
  const bool grey = channels == 1 && j.d.jpeg_color_space == JCS_GRAYSCALE;
  bool ok = j.d.jpeg_color_space != JCS_UNKNOWN ||
            pd_refuse(s->why, "'%s' is a JPEG image of %d components, which is neither grey nor colour", s->path,
                      j.d.num_components);
  ok = ok && make_room(s->to, j.d.image_width, j.d.image_height, s, most);
  if (ok) {
    j.d.out_color_space = inks ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_EXT_RGBX;
    jpeg_start_decompress(&j.d);
    const size_t stride = (size_t)s->to->width * (grey ? 1 : COLOUR);
    while (j.d.output_scanline < j.d.output_height) {
      JSAMPROW row = s->to->at + stride * j.d.output_scanline;
      jpeg_read_scanlines(&j.d, &row, 1);
    }
    if (inks) inks_to_colour(s->to);
    if (channels == 1 && !grey) colour_to_grey(s->to);
  }
  jpeg_destroy_decompress(&j.d);
  return ok;
}

/* ---- PNG ------------------------------------------------------------------------------------- */

static PD_NORETURN void png_fails(png_structp png, png_const_charp message) {
  struct source *s = png_get_error_ptr(png);
  pd_refuse(s->why, "'%s' is a damaged PNG image: %.200s", s->path, message);
  longjmp(s->failed, 1);
}

static void png_says(png_structp png, png_const_charp message) { (void)png, (void)message; }

static void png_reads(png_structp png, png_bytep to, size_t n) {
  struct source *s = png_get_io_ptr(png);
  if (n > s->size - s->read) png_error(png, "the file ends too early");
  memcpy(to, s->at + s->read, n);
  s->read += n;
}

/* Sets the transformations to 1 byte of grey or COLOUR bytes; returns whether pixels are grey. */
static bool ask_for_bytes(png_structp png, png_infop info, int channels) {
  const int type = png_get_color_type(png, info);
  const bool grey = channels == 1 && !(type & PNG_COLOR_MASK_COLOR);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (!(type & PNG_COLOR_MASK_COLOR) && png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (!grey) {
    png_set_gray_to_rgb(png);
    png_set_filler(png, 0xff, PNG_FILLER_AFTER);
  }
  return grey;
}

static bool decode_png(struct source *s, int channels, int64_t most) {
  enum { MOST_SIDE = 1 << 28, MOST_CHUNK = 16 << 20, MOST_CHUNKS = 1000 };
  png_infop info = NULL;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, s, png_fails, png_says);
  if (png) info = png_create_info_struct(png);
  if (!info) {
    png_destroy_read_struct(&png, NULL, NULL);
    return pd_refuse(s->why, "'%s': out of memory for libpng", s->path);
  }
  if (setjmp(s->failed)) {
    png_destroy_read_struct(&png, &info, NULL);
    return false;
  }
  png_set_user_limits(png, MOST_SIDE, MOST_SIDE);
  png_set_chunk_malloc_max(png, MOST_CHUNK);
  png_set_chunk_cache_max(png, MOST_CHUNKS);
  png_set_read_fn(png, s, png_reads);
  png_read_info(png, info);
  const bool ok = make_room(s->to, png_get_image_width(png, info), png_get_image_height(png, info), s, most);
  if (ok) {
    const bool grey = ask_for_bytes(png, info, channels);
    const size_t stride = (size_t)s->to->width * (grey ? 1 : COLOUR);
    for (int passes = png_set_interlace_handling(png); passes > 0; passes--)
      for (int64_t y = 0; y < s->to->height; y++) png_read_row(png, s->to->at + stride * (size_t)y, NULL);
    if (channels == 1 && !grey) colour_to_grey(s->to);
  }
  png_destroy_read_struct(&png, &info, NULL);
  return ok;
}

bool pd_decode_image(const char *path, const void *bytes, size_t size, int channels, int64_t most,
                     struct pd_pixels *to, char *why) {
  static const uint8_t jpeg[] = {0xff, 0xd8, 0xff}, png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  struct source s = {.path = path, .why = why, .at = bytes, .size = size, .to = to};
  to->channels = channels == 1 ? 1 : COLOUR;
  if (size >= sizeof jpeg && !memcmp(bytes, jpeg, sizeof jpeg)) return decode_jpeg(&s, channels, most);
  if (size >= sizeof png && !memcmp(bytes, png, sizeof png)) return decode_png(&s, channels, most);
  return pd_refuse(why, "'%s' is neither a JPEG nor a PNG image", path);
}

#else

bool pd_images_supported(void) { return false; }
const char *pd_image_libraries(void) { return "none"; }

bool pd_decode_image(const char *path, const void *bytes, size_t size, int channels, int64_t most,
                     struct pd_pixels *to, char *why) {
  (void)bytes, (void)size, (void)channels, (void)most, (void)to;
  return pd_refuse(why, "'%s' is an image: this program was built without libjpeg-turbo and libpng", path);
}

#endif
