/* Convolutions of 3x3 kernels in 4/9 of the multiplications, as Lavin and Gray describe ("Fast Algorithms for
 * Convolutional Neural Networks", 2016), F(2x2, 3x3): of each tile of 2x2 results, with A, B and G as there,
 *     y = A' [(G g G') * (B' x B)] A
 * where * multiplies 4x4 points; summed over channels, each of the sixteen points is a matrix product, tiles by
 * channels of x by channels of y. The transforms have only additions and halves, so that errors are close to plain
 * convolution's, unlike with larger tiles. Errors are relative to a tile: values much smaller than their
 * neighbours have fewer digits. The library therefore does small images, where some elements of the weights'
 * gradient are sums of few products. The gradients are the same products:
 *     dx: the convolution of dy with kernels that are turned by half
 *     dg = G' [(A dy A') * (B' x B)] G, summed over tiles
 * Tiles are taken some at a time, by shape alone, and products are pd_matmul's, so bits do not depend on
 * threads. */
#define PD_KERNELS
#include "kernels/objects.h"
#include "kernels/winograd.h"
#include "kernels/pd_vector.h"

#include <stdlib.h>
#include <string.h>

enum {
  SIDE = 4, /* of a tile of x; of y it is TILE */
  TILE = 2,
  POINTS = SIDE * SIDE,
  KERNEL = 9,
  LEAST_CHANNELS = 32,
  LEAST_SIDE = 6,      /* of an image of results */
  MANY_CHANNELS = 768, /* of x and y: twice as many tiles at once */
  TILES = 128,
  ALIGNMENT = 64
};

struct images { /* [batch][height][width][channels] */
  int64_t batch, height, width, channels;
};

struct pd_winograd {
  enum pd_convolution_kind kind;
  bool add;                       /* to the gradient of the weights */
  int64_t in, out;                /* channels, as weights have them: [out][in][3][3] */
  struct images x, y;             /* input of kernels; images that tiles cover */
  int64_t padding[2];             /* in front of x */
  int64_t rows, columns;          /* of tiles, of an image */
  int64_t tiles, at_once;         /* of all images; in one product */
  struct pd_matmul *first, *more; /* further products, which accumulate */
  size_t product_bytes;
};

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

bool pd_winograd_suits(const struct pd_convolution_shape *s) {
  bool floats =
      s->x_type == PD_F32 && s->w_type == PD_F32 && s->y_type == PD_F32 && (!s->bias || s->bias_type == PD_F32);
  for (int i = 0; i < 2; i++)
    if (s->kernel[i] != 3 || s->stride[i] != 1 || s->dilation[i] != 1 || s->padding[i] > 2) return false;
  bool large = s->height + 2 * s->padding[0] - 2 >= LEAST_SIDE && s->width + 2 * s->padding[1] - 2 >= LEAST_SIDE;
  return large && floats && s->groups == 1 && s->in_channels % PD_LANES == 0 && s->out_channels % PD_LANES == 0 &&
         s->in_channels >= LEAST_CHANNELS && s->out_channels >= LEAST_CHANNELS;
}

/* Products of points: of tiles by weights, or of gradients by tiles. */
static struct pd_matmul *product_new(const struct pd_winograd *w, bool add) {
  int64_t in = w->in, out = w->out, tiles = w->at_once;
  struct pd_matmul_shape m = {.batch = POINTS, PD_MATMUL_F32, .accumulate = add};
  if (w->kind == PD_CONVOLUTION_WEIGHTS) {
    m.m = out, m.k = tiles, m.n = in;
    m.a_row = 1, m.a_column = out, m.b_row = in, m.b_column = 1;
  } else {
    m.m = tiles, m.k = w->x.channels, m.n = w->y.channels;
    m.a_row = m.k, m.a_column = 1;
    m.b_row = w->kind == PD_CONVOLUTION ? 1 : in, m.b_column = w->kind == PD_CONVOLUTION ? in : 1;
  }
  m.c_row = m.n;
  m.a_batch = m.m * m.k, m.b_batch = m.k * m.n, m.c_batch = m.m * m.n;
  return pd_matmul_new(m);
}

static void choose_tiles(struct pd_winograd *w) {
  w->rows = (w->y.height + TILE - 1) / TILE;
  w->columns = (w->y.width + TILE - 1) / TILE;
  w->tiles = w->y.batch * w->rows * w->columns;
  int64_t most = w->in + w->out >= MANY_CHANNELS ? 2 * TILES : TILES, blocks = (w->tiles + most - 1) / most;
  w->at_once = (w->tiles + blocks - 1) / blocks;
}

struct pd_winograd *pd_winograd_new(const struct pd_convolution_shape *s) {
  struct pd_winograd *w = pd_object_allocate(sizeof *w);
  struct images x = {s->batch, s->height, s->width, s->in_channels}, y = x;
  y.height += 2 * s->padding[0] - 2;
  y.width += 2 * s->padding[1] - 2;
  y.channels = s->out_channels;
  bool back = s->kind == PD_CONVOLUTION_BACKWARD;
  w->kind = s->kind;
  w->add = s->accumulate;
  w->in = s->in_channels, w->out = s->out_channels;
  w->x = back ? y : x;
  w->y = back ? x : y;
  for (int i = 0; i < 2; i++) w->padding[i] = back ? 2 - s->padding[i] : s->padding[i];
  choose_tiles(w);
  w->first = product_new(w, false);
  w->product_bytes = pd_matmul_scratch(w->first);
  if (s->kind == PD_CONVOLUTION_WEIGHTS) {
    w->more = product_new(w, true);
    size_t bytes = pd_matmul_scratch(w->more);
    if (bytes > w->product_bytes) w->product_bytes = bytes;
  }
  return w;
}

/* Floats of all points of the weights, and of some tiles of x and of y. */
static int64_t weight_floats(const struct pd_winograd *w) { return POINTS * w->in * w->out; }
static int64_t tile_floats(const struct pd_winograd *w, const struct images *image) {
  return POINTS * w->at_once * image->channels;
}

size_t pd_winograd_scratch(const struct pd_winograd *w) {
  int64_t floats = weight_floats(w) + tile_floats(w, &w->x) + tile_floats(w, &w->y);
  return (size_t)floats * sizeof(float) + aligned(w->product_bytes);
}

/* ---- weights ------------------------------------------------------------------------------------------ */

/* G of the paper, of three numbers that are `step` apart. Macros, since passing vectors to functions depends on
 * the ABI's vector width. */
#define POINTS_OF_KERNEL(to, to_step, g, step)                                  \
  do {                                                                          \
    vector outer = ((g)[0] + (g)[2 * (step)]) * 0.5f, inner = (g)[step] * 0.5f; \
    (to)[0] = (g)[0];                                                           \
    (to)[to_step] = outer + inner;                                              \
    (to)[2 * (to_step)] = outer - inner;                                        \
    (to)[3 * (to_step)] = (g)[2 * (step)];                                      \
  } while (0)

/* G', of four. */
#define KERNEL_OF_POINTS(to, to_step, u, step)            \
  do {                                                    \
    vector sum = ((u)[step] + (u)[2 * (step)]) * 0.5f;    \
    (to)[0] = (u)[0] + sum;                               \
    (to)[to_step] = ((u)[step] - (u)[2 * (step)]) * 0.5f; \
    (to)[2 * (to_step)] = sum + (u)[3 * (step)];          \
  } while (0)

/* to[point][out][in]; turned: by half, for dx. */
static void transform_weights(const struct pd_winograd *w, const float *weights, float *to) {
  bool turned = w->kind == PD_CONVOLUTION_BACKWARD;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < w->in * w->out; i += PD_LANES) {
    vector g[KERNEL], half[SIDE * 3], u[POINTS];
    for (int k = 0; k < KERNEL; k++)
      for (int l = 0; l < PD_LANES; l++) g[turned ? KERNEL - 1 - k : k][l] = weights[(i + l) * KERNEL + k];
    for (int k = 0; k < 3; k++) POINTS_OF_KERNEL(half + k, 3, g + k, 3);
    for (int k = 0; k < SIDE; k++) POINTS_OF_KERNEL(u + k * SIDE, 1, half + k * 3, 1);
    for (int k = 0; k < POINTS; k++) *(vector *)(to + k * w->in * w->out + i) = u[k];
  }
}

static void gradient_of_weights(const struct pd_winograd *w, const float *from, float *dw) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < w->in * w->out; i += PD_LANES) {
    vector u[POINTS], half[3 * SIDE], g[KERNEL];
    for (int k = 0; k < POINTS; k++) u[k] = *(const vector *)(from + k * w->in * w->out + i);
    for (int k = 0; k < SIDE; k++) KERNEL_OF_POINTS(half + k, SIDE, u + k, SIDE);
    for (int k = 0; k < 3; k++) KERNEL_OF_POINTS(g + k * 3, 1, half + k * SIDE, 1);
    for (int l = 0; l < PD_LANES; l++)
      for (int k = 0; k < KERNEL; k++) {
        float *at = dw + (i + l) * KERNEL + k;
        *at = w->add ? *at + g[k][l] : g[k][l];
      }
  }
}

/* ---- tiles -------------------------------------------------------------------------------------------- */

/* B' of the paper, and A and A'. */
#define POINTS_OF_IMAGE(to, to_step, x, step)          \
  do {                                                 \
    (to)[0] = (x)[0] - (x)[2 * (step)];                \
    (to)[to_step] = (x)[step] + (x)[2 * (step)];       \
    (to)[2 * (to_step)] = (x)[2 * (step)] - (x)[step]; \
    (to)[3 * (to_step)] = (x)[step] - (x)[3 * (step)]; \
  } while (0)
#define POINTS_OF_RESULT(to, to_step, y, step) \
  do {                                         \
    (to)[0] = (y)[0];                          \
    (to)[to_step] = (y)[0] + (y)[step];        \
    (to)[2 * (to_step)] = (y)[0] - (y)[step];  \
    (to)[3 * (to_step)] = -(y)[step];          \
  } while (0)
#define RESULT_OF_POINTS(to, to_step, m, step)                       \
  do {                                                               \
    (to)[0] = ((m)[0] + (m)[step]) + (m)[2 * (step)];                \
    (to)[to_step] = ((m)[step] - (m)[2 * (step)]) - (m)[3 * (step)]; \
  } while (0)

/* Where the pixels of a tile with `side` rows and columns stand: NULL outside of the image, or behind the last
 * tile. `padding` rows and columns are in front of the first tile, the next begins TILE further. Whether all are
 * inside. */
static bool find_pixels(const struct pd_winograd *w, const struct images *image, const int64_t padding[2],
                        int64_t tile, int64_t side, const float *from, const float **at) {
  int64_t row = tile / w->columns % w->rows * TILE - padding[0], column = tile % w->columns * TILE - padding[1];
  const float *sample = from + tile / (w->columns * w->rows) * image->height * image->width * image->channels;
  bool all = tile < w->tiles;
  for (int64_t i = 0; i < side; i++)
    for (int64_t j = 0; j < side; j++) {
      int64_t y = row + i, x = column + j;
      bool inside = tile < w->tiles && y >= 0 && y < image->height && x >= 0 && x < image->width;
      at[i * side + j] = inside ? sample + (y * image->width + x) * image->channels : NULL;
      all &= inside;
    }
  return all;
}

#define LOAD_PIXELS(x, at, n, c, all)                                                                        \
  for (int k = 0; k < (n); k++) (x)[k] = (all) || (at)[k] ? *(const unaligned *)((at)[k] + (c)) : (vector) { \
      0                                                                                                      \
    }

static inline __attribute__((always_inline)) void store_points(const vector *points, float *to, int64_t step) {
  for (int k = 0; k < POINTS; k++) *(vector *)(to + k * step) = points[k];
}

/* to[point][channel], `step` from point to point. */
static inline __attribute__((always_inline)) void image_tile(const float **at, int64_t channels, bool all,
                                                             float *to, int64_t step) {
  for (int64_t c = 0; c < channels; c += PD_LANES) {
    vector x[POINTS], half[POINTS], v[POINTS];
    LOAD_PIXELS(x, at, POINTS, c, all);
    for (int k = 0; k < SIDE; k++) POINTS_OF_IMAGE(half + k, SIDE, x + k, SIDE);
    for (int k = 0; k < SIDE; k++) POINTS_OF_IMAGE(v + k * SIDE, 1, half + k * SIDE, 1);
    store_points(v, to + c, step);
  }
}

static inline __attribute__((always_inline)) void result_tile(const float **at, int64_t channels, bool all,
                                                              float *to, int64_t step) {
  for (int64_t c = 0; c < channels; c += PD_LANES) {
    vector y[TILE * TILE], half[SIDE * TILE], v[POINTS];
    LOAD_PIXELS(y, at, TILE * TILE, c, all);
    for (int k = 0; k < TILE; k++) POINTS_OF_RESULT(half + k, TILE, y + k, TILE);
    for (int k = 0; k < SIDE; k++) POINTS_OF_RESULT(v + k * SIDE, 1, half + k * TILE, 1);
    store_points(v, to + c, step);
  }
}

/* to[point][tile][channel] of the tiles from `first` on. */
static void transform_images(const struct pd_winograd *w, const float *x, int64_t first, float *to) {
  int64_t channels = w->x.channels, step = w->at_once * channels;
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < w->at_once; t++) {
    const float *at[POINTS];
    if (find_pixels(w, &w->x, w->padding, first + t, SIDE, x, at))
      image_tile(at, channels, true, to + t * channels, step);
    else
      image_tile(at, channels, false, to + t * channels, step);
  }
}

static void transform_results(const struct pd_winograd *w, const float *dy, int64_t first, float *to) {
  static const int64_t none[2] = {0};
  int64_t channels = w->y.channels, step = w->at_once * channels;
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < w->at_once; t++) {
    const float *at[TILE * TILE];
    if (find_pixels(w, &w->y, none, first + t, TILE, dy, at))
      result_tile(at, channels, true, to + t * channels, step);
    else
      result_tile(at, channels, false, to + t * channels, step);
  }
}

/* The pixels of y of the tiles from `first` on. */
static void store_results(const struct pd_winograd *w, const float *from, int64_t first, const float *bias,
                          float *y) {
  static const int64_t none[2] = {0};
  int64_t channels = w->y.channels, step = w->at_once * channels;
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < w->at_once; t++) {
    const float *at[TILE * TILE];
    find_pixels(w, &w->y, none, first + t, TILE, y, at);
    for (int64_t c = 0; c < channels; c += PD_LANES) {
      vector m[POINTS], half[TILE * SIDE], made[TILE * TILE], more = {0};
      for (int k = 0; k < POINTS; k++) m[k] = *(const vector *)(from + k * step + t * channels + c);
      for (int k = 0; k < SIDE; k++) RESULT_OF_POINTS(half + k, SIDE, m + k, SIDE);
      for (int k = 0; k < TILE; k++) RESULT_OF_POINTS(made + k * TILE, 1, half + k * SIDE, 1);
      if (bias) more = *(const unaligned *)(bias + c);
      for (int k = 0; k < TILE * TILE; k++)
        if (at[k]) *(unaligned *)(y + (at[k] - y) + c) = made[k] + more;
    }
  }
}

static void multiply(const struct pd_matmul *m, const float *a, const float *b, float *c, void *scratch) {
  pd_matmul(m, (pd_in){a, PD_F32}, (pd_in){b, PD_F32}, (pd_in){NULL, PD_F32}, (pd_out){c, PD_F32}, scratch);
}

void pd_winograd_images(const struct pd_winograd *w, const float *x, const float *weights, const float *bias,
                        float *y, void *scratch) {
  float *kernels = scratch, *points = kernels + weight_floats(w), *results = points + tile_floats(w, &w->x);
  void *product = results + tile_floats(w, &w->y);
  transform_weights(w, weights, kernels);
  for (int64_t first = 0; first < w->tiles; first += w->at_once) {
    transform_images(w, x, first, points);
    multiply(w->first, points, kernels, results, product);
    store_results(w, results, first, bias, y);
  }
}

void pd_winograd_weights(const struct pd_winograd *w, const float *x, const float *dy, float *dw, void *scratch) {
  float *kernels = scratch, *points = kernels + weight_floats(w), *results = points + tile_floats(w, &w->x);
  void *product = results + tile_floats(w, &w->y);
  for (int64_t first = 0; first < w->tiles; first += w->at_once) {
    transform_images(w, x, first, points);
    transform_results(w, dy, first, results);
    multiply(first == 0 ? w->first : w->more, results, points, kernels, product);
  }
  gradient_of_weights(w, kernels, dw);
}
