/* Resizing of 8-bit images: bilinear, with the filter widened when an image becomes smaller (antialias), in two
 * passes over columns and rows with 22 bits of fraction, each rounded to 8 bits. The results are Pillow's. Only the
 * requested part of the resized image is computed. */
#include "data/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRACTION = 22, COLOUR = 4 };

typedef int32_t quad __attribute__((vector_size(16))); /* a pixel's bytes with colour */
typedef uint8_t quad_bytes __attribute__((vector_size(4)));

/* Weights of one axis: output i is the sum over taps t of input first[i] + t. */
struct axis {
  int32_t *first, *taps, *weights; /* `most` weights each */
  int64_t n, most;
};

static bool make_room(struct pd_resize_room *r, size_t bytes, char *why) {
  if (bytes <= r->bytes) return true;
  free(r->at);
  r->bytes = 0;
  r->at = malloc(bytes);
  if (!r->at) return pd_refuse(why, "out of memory for resizing: %zu bytes", bytes);
  r->bytes = bytes;
  return true;
}

/* The center of output i of `to` in `from` inputs, and the inputs within the filter's reach. */
struct reach {
  double center, support;
  int64_t first, end;
};

static struct reach reach_of(int64_t i, int64_t from, int64_t to) {
  const double scale = (double)from / (double)to;
  struct reach r = {.center = ((double)i + 0.5) * scale, .support = scale < 1 ? 1 : scale};
  r.first = (int64_t)(r.center - r.support + 0.5);
  r.end = (int64_t)(r.center + r.support + 0.5);
  if (r.first < 0) r.first = 0;
  if (r.end > from) r.end = from;
  return r;
}

/* A triangle about the center. */
static double weight(const struct reach *r, int64_t input) {
  const double far = fabs(((double)input - r->center + 0.5) * (1.0 / r->support));
  return far < 1 ? 1 - far : 0;
}

/* Outputs from `start` on, of an axis of `from` inputs and `to` outputs. */
static void set_axis(struct axis *a, int64_t from, int64_t to, int64_t start) {
  int32_t *w = a->weights;
  for (int64_t i = 0; i < a->n; i++, w += a->most) {
    const struct reach r = reach_of(start + i, from, to);
    double sum = 0;
    for (int64_t x = r.first; x < r.end; x++) sum += weight(&r, x);
    for (int64_t x = r.first; x < r.end; x++)
      w[x - r.first] = (int32_t)(0.5 + (sum != 0 ? weight(&r, x) / sum : 0) * (1 << FRACTION));
    a->first[i] = (int32_t)r.first;
    a->taps[i] = (int32_t)(r.end - r.first);
  }
}

static int64_t most_taps(int64_t from, int64_t to) {
  const double scale = (double)from / (double)to;
  return (int64_t)ceil(scale < 1 ? 1 : scale) * 2 + 1;
}

static uint8_t rounded(int32_t sum) {
  const int32_t x = sum >> FRACTION;
  return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* ---- columns --------------------------------------------------------------------------------- */

static void row_of_grey(const struct axis *a, const uint8_t *from, uint8_t *to) {
  for (int64_t i = 0; i < a->n; i++) {
    const int32_t *w = a->weights + i * a->most;
    int32_t sum = 1 << (FRACTION - 1);
    for (int32_t t = 0; t < a->taps[i]; t++) sum += from[a->first[i] + t] * w[t];
    to[i] = rounded(sum);
  }
}

static void row_of_colour(const struct axis *a, const uint8_t *from, uint8_t *to) {
  for (int64_t i = 0; i < a->n; i++) {
    const int32_t *w = a->weights + i * a->most;
    const uint8_t *at = from + (ptrdiff_t)COLOUR * a->first[i];
    quad sum = {1 << (FRACTION - 1), 1 << (FRACTION - 1), 1 << (FRACTION - 1), 1 << (FRACTION - 1)};
    for (int32_t t = 0; t < a->taps[i]; t++, at += COLOUR) {
      quad_bytes bytes;
      memcpy(&bytes, at, sizeof bytes);
      sum += __builtin_convertvector(bytes, quad) * w[t];
    }
    const quad x = sum >> FRACTION, large = x > 255; /* weights are positive and add up to about 1 */
    const quad_bytes whole = __builtin_convertvector((x & ~large) | (255 & large), quad_bytes);
    memcpy(to + COLOUR * i, &whole, sizeof whole);
  }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Adds up `taps` rows of n bytes. */
static void column_sums(const uint8_t *from, int64_t n, const int32_t *w, int32_t taps, int32_t *sum) {
  for (int64_t i = 0; i < n; i++) sum[i] = 1 << (FRACTION - 1);
  for (int32_t t = 0; t < taps; t++, from += n)
    for (int64_t i = 0; i < n; i++) sum[i] += from[i] * w[t];
}

/* A row of sums as planes of numbers in [0, 1]. */
static void put_row(const int32_t *sum, int64_t width, int channels, float *to, int64_t plane) {
  const int planes = channels == 1 ? 1 : 3;
  for (int c = 0; c < planes; c++)
    for (int64_t x = 0; x < width; x++) to[c * plane + x] = (float)rounded(sum[x * channels + c]) / 255;
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Gives an axis its arrays at `at`, and returns their end. */
static int32_t *place(struct axis *a, int32_t *at) {
  a->first = at;
  a->taps = a->first + a->n;
  a->weights = a->taps + a->n;
  return a->weights + a->n * a->most;
}

static size_t numbers_of(const struct axis *a) { return (size_t)(a->n * (a->most + 2)); }

bool pd_resize(const struct pd_pixels *from, const struct pd_frame *f, struct pd_resize_room *room, float *to,
               char *why) {
  struct axis across = {.n = f->part.width, .most = most_taps(f->box.width, f->width)};
  struct axis down = {.n = f->part.height, .most = most_taps(f->box.height, f->height)};
  const int64_t row = f->part.width * from->channels, plane = f->part.width * f->part.height;
  /* The rows of the box that the part needs. */
  const int64_t top = reach_of(f->part.top, f->box.height, f->height).first;
  const int64_t end = reach_of(f->part.top + f->part.height - 1, f->box.height, f->height).end;
  const size_t numbers = numbers_of(&across) + numbers_of(&down) + (size_t)row;
  if (!make_room(room, sizeof(int32_t) * numbers + (size_t)(row * (end - top)), why)) return false;
  int32_t *sums = place(&down, place(&across, room->at));
  uint8_t *middle = (uint8_t *)(sums + row);
  set_axis(&across, f->box.width, f->width, f->part.left);
  set_axis(&down, f->box.height, f->height, f->part.top);
  for (int64_t y = top; y < end; y++) {
    const uint8_t *at = from->at + ((f->box.top + y) * from->width + f->box.left) * from->channels;
    (from->channels == 1 ? row_of_grey : row_of_colour)(&across, at, middle + row * (y - top));
  }
  for (int64_t y = 0; y < f->part.height; y++) {
    column_sums(middle + row * (down.first[y] - top), row, down.weights + y * down.most, down.taps[y], sums);
    put_row(sums, f->part.width, from->channels, to + y * f->part.width, plane);
  }
  return true;
}
