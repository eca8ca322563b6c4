/* Seconds of a GPU's matrix products by shape. A library divides the result into tiles, and possibly the sum over k
 * into parts, and runs them in waves on all multiprocessors. The model takes the fastest of a few tiles and parts;
 * tests/gpu/fit.py fits its rates to measurements. */
#include <math.h>

#include "device/device.h"

/* Rows and columns of a tile, as libraries have them. */
static const struct {
  double rows, columns;
} tiles[] = {{128, 256}, {256, 128}, {128, 128}, {64, 128}, {128, 64}, {64, 64}};
enum { N_TILES = sizeof tiles / sizeof *tiles };

static const double parts[] = {1, 2, 3, 4, 6, 8, 12, 16};
enum { N_PARTS = sizeof parts / sizeof *parts };

static const double LEAST_DEPTH = 128, /* of a part of the sum over k */
    STEP = 64,                         /* of a tile's loop over k */
    SUM = 1e-6;                        /* seconds of starting the kernel that adds the parts */

static double share(const TileRates *t, int tile) {
  double elements = tiles[tile].rows * tiles[tile].columns;
  return elements > 128 * 128 ? 1 : elements == 128 * 128 ? t->medium : t->small;
}

/* Seconds of one wave, in which each multiprocessor computes a tile over `depth` of k. */
static double wave_seconds(const Rates *r, int tile, double depth, double result) {
  double elements = tiles[tile].rows * tiles[tile].columns;
  double computing = 2 * elements * depth / (r->tiles.large * share(&r->tiles, tile));
  return r->multiprocessors * (computing + elements * result / r->tiles.epilogue);
}

/* result: bytes besides the factors, an element of the result. */
static double tiled_seconds(const Rates *r, const ProductSize *s, int tile, double part, double result) {
  double depth = ceil(ceil(s->k / part) / STEP) * STEP;
  double n = s->times * ceil(s->m / tiles[tile].rows) * ceil(s->n / tiles[tile].columns) * part;
  double waves = ceil(n / r->multiprocessors);
  if (part == 1)
    return waves * wave_seconds(r, tile, depth, result);
  double sum = s->times * s->m * s->n * (4 * part + result) / r->tiles.epilogue; /* parts are floats */
  return waves * wave_seconds(r, tile, depth, 4) + sum + SUM;
}

/* The fastest tile and number of parts. */
static double fastest(const Rates *r, const ProductSize *s) {
  double least = INFINITY, result = s->beside / (s->times * s->m * s->n);
  for (int tile = 0; tile < N_TILES; tile++)
    for (int i = 0; i < N_PARTS && (i == 0 || s->k >= parts[i] * LEAST_DEPTH); i++)
      least = fmin(least, tiled_seconds(r, s, tile, parts[i], result));
  return least;
}

double product_seconds(const Rates *r, const ProductSize *s) {
  double factors = s->factor * s->times * (s->m + s->n) * s->k;
  double seconds = fmax(fastest(r, s), (factors + s->beside) / r->stream);
  if (!s->odd)
    return r->tiles.start + seconds;
  return r->tiles.start + (r->tiles.odd > 0 ? r->tiles.odd * seconds : seconds + 2 * factors / r->stream);
}
