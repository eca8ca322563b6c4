/* Draws digits as MNIST's files, for tests and results that need no download:  digits DIR TRAIN VALIDATION [SEED [neat]]
 * writes {train,t10k}-{images-idx3,labels-idx1}-ubyte. Each is drawn with strokes of a hand's: moved, scaled,
 * turned, slanted, bent, thick or thin, on noise and beside scraps of other strokes; `neat`: less of it, and on black. Random numbers are counted by
 * sample, so that a set is a longer one's beginning. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/pd_math.h"

enum { SIDE = 28, PIXELS = SIDE * SIDE, MOST = 96 };

typedef struct Point {
  float x, y;
} Point;

/* ---- random numbers ------------------------------------------------------------------------------ */

typedef struct Draw {
  uint64_t key;
  uint32_t sample, n;
} Draw; /* n: numbers drawn so far */

static float uniform(Draw *d, float low, float high) {
  pd_random r = pd_philox(d->n++, 0, d->sample, 0, d->key);
  return low + (high - low) * pd_uniform(r.word[0]);
}

/* Near normal: the sum of the words of one block, of deviation 1. */
static float normal(Draw *d) {
  pd_random r = pd_philox(d->n++, 1, d->sample, 0, d->key);
  float sum = 0;
  for (int i = 0; i < 4; i++) sum += pd_uniform(r.word[i]);
  return (sum - 2) * 1.7320508f;
}

/* ---- what digits are made of --------------------------------------------------------------------- */

/* A part of an ellipse about (x, y) with radii rx, ry, from one angle in degrees to another, clockwise from the
 * right; or, with `line`, from (x, y) to (rx, ry). Digits fill a square of side 1, y downwards. */
typedef struct Stroke {
  bool line;
  float x, y, rx, ry, from, to;
} Stroke;
#define ARC(...) \
  { false, __VA_ARGS__ }
#define LINE(...) \
  { true, __VA_ARGS__, 0, 0 }

enum { KINDS = 13, STROKES = 4 };
static const struct {
  int digit;
  Stroke stroke[STROKES];
} shapes[KINDS] = {
    {0, {ARC(.5f, .5f, .32f, .45f, 0, 360)}},
    {1, {LINE(.55f, .05f, .55f, .95f), LINE(.32f, .25f, .55f, .05f)}},
    {2, {ARC(.5f, .3f, .3f, .25f, 190, 390), LINE(.76f, .42f, .2f, .93f), LINE(.2f, .93f, .82f, .93f)}},
    {3, {ARC(.46f, .28f, .28f, .22f, 200, 450), ARC(.46f, .72f, .33f, .23f, 270, 520)}},
    {4, {LINE(.62f, .05f, .15f, .65f), LINE(.15f, .65f, .88f, .65f), LINE(.66f, .35f, .66f, .97f)}},
    {5, {LINE(.78f, .06f, .3f, .06f), LINE(.3f, .06f, .26f, .46f), ARC(.47f, .67f, .33f, .27f, 230, 510)}},
    {6, {ARC(.5f, .7f, .3f, .25f, 0, 360), ARC(.75f, .68f, .55f, .63f, 180, 255)}},
    {7, {LINE(.17f, .07f, .83f, .07f), LINE(.83f, .07f, .4f, .95f)}},
    {8, {ARC(.5f, .27f, .24f, .21f, 0, 360), ARC(.5f, .72f, .31f, .24f, 0, 360)}},
    {9, {ARC(.5f, .3f, .29f, .25f, 0, 360), LINE(.79f, .3f, .68f, .95f)}},
    {1, {LINE(.5f, .05f, .5f, .95f)}},
    {4, {LINE(.2f, .08f, .17f, .55f), LINE(.17f, .55f, .85f, .55f), LINE(.78f, .05f, .7f, .96f)}},
    {7, {LINE(.17f, .07f, .83f, .07f), LINE(.83f, .07f, .4f, .95f), LINE(.36f, .52f, .78f, .5f)}}};

/* What an image's points go through: bent, then turned, slanted, scaled and moved into pixels. */
typedef struct Hand {
  float bend_x, bend_y, phase, xx, xy, yx, yy, x, y;
} Hand;

/* odd: scale of turn, slant and offset, from 0 to 1. */
static Hand new_hand(Draw *d, float odd) {
  Hand h = {uniform(d, -.06f, .06f), uniform(d, -.06f, .06f), uniform(d, 0, 6.28f), 0, 0, 0, 0, 0, 0};
  float turn = odd * uniform(d, -.3f, .3f), slant = odd * uniform(d, -.35f, .35f);
  float wide = uniform(d, 10, 18), high = uniform(d, 13, 21);
  h.xx = wide * cosf(turn);
  h.xy = high * (slant * cosf(turn) - sinf(turn));
  h.yx = wide * sinf(turn);
  h.yy = high * (slant * sinf(turn) + cosf(turn));
  h.x = SIDE / 2.0f + odd * uniform(d, -4, 4);
  h.y = SIDE / 2.0f + odd * uniform(d, -3, 3);
  return h;
}

static Point place(const Hand *h, float x, float y) {
  float u = x - .5f + h->bend_x * sinf(5 * y + h->phase), v = y - .5f + h->bend_y * sinf(5 * x + h->phase);
  return (Point){h->x + h->xx * u + h->xy * v, h->y + h->yx * u + h->yy * v};
}

/* ---- ink ----------------------------------------------------------------------------------------- */

static float distance(Point p, Point a, Point b) {
  float x = b.x - a.x, y = b.y - a.y, square = x * x + y * y;
  float t = square > 0 ? ((p.x - a.x) * x + (p.y - a.y) * y) / square : 0;
  t = t < 0 ? 0 : t > 1 ? 1 : t;
  return hypotf(p.x - a.x - t * x, p.y - a.y - t * y);
}

static int bounded(float x) { return x < 0 ? 0 : x > SIDE ? SIDE : (int)x; }

/* A line of this half width, its edge a pixel wide, over what is darker. */
static void ink(float *image, Point a, Point b, float half, float strength) {
  float reach = half + 1;
  int top = bounded(fminf(a.y, b.y) - reach), bottom = bounded(fmaxf(a.y, b.y) + reach + 1);
  int left = bounded(fminf(a.x, b.x) - reach), right = bounded(fmaxf(a.x, b.x) + reach + 1);
  for (int y = top; y < bottom; y++)
    for (int x = left; x < right; x++) {
      float cover = half + .5f - distance((Point){(float)x + .5f, (float)y + .5f}, a, b);
      float value = strength * (cover < 0 ? 0 : cover > 1 ? 1 : cover);
      if (value > image[y * SIDE + x]) image[y * SIDE + x] = value;
    }
}

static void draw_stroke(float *image, const Stroke *s, const Hand *h, float half, float strength) {
  enum { PIECES = 24 };
  Point last = {0, 0};
  for (int i = 0; i <= PIECES; i++) {
    float t = (float)i / PIECES, angle = (s->from + t * (s->to - s->from)) * .017453293f;
    Point p = s->line ? place(h, s->x + t * (s->rx - s->x), s->y + t * (s->ry - s->y))
                      : place(h, s->x + s->rx * cosf(angle), s->y + s->ry * sinf(angle));
    if (i) ink(image, last, p, half, strength);
    last = p;
  }
}

/* A scrap of a stroke near the border, as a neighbour's. */
static void draw_scrap(float *image, Draw *d) {
  float angle = uniform(d, 0, 6.28f), away = uniform(d, 11, 15);
  Point a = {SIDE / 2.0f + away * cosf(angle), SIDE / 2.0f + away * sinf(angle)};
  Point b = {a.x + uniform(d, -6, 6), a.y + uniform(d, -6, 6)};
  ink(image, a, b, uniform(d, .4f, 1.2f), uniform(d, .3f, .9f));
}

static int draw_digit(uint64_t key, int64_t sample, bool neat, unsigned char *to) {
  Draw d = {key, (uint32_t)sample, 0};
  float image[PIXELS] = {0};
  int digit = (int)uniform(&d, 0, 10), kind = digit;
  for (int i = 10; i < KINDS; i++)
    if (shapes[i].digit == digit && uniform(&d, 0, 1) < .4f) kind = i;
  Hand h = new_hand(&d, neat ? .4f : 1);
  float half = uniform(&d, .5f, 1.6f), strength = uniform(&d, .6f, 1), noise = uniform(&d, 0, neat ? 0 : .12f);
  for (int scraps = (int)uniform(&d, 0, neat ? 1 : 4); scraps > 0; scraps--) draw_scrap(image, &d);
  for (int i = 0; i < STROKES && (shapes[kind].stroke[i].rx || shapes[kind].stroke[i].ry); i++)
    draw_stroke(image, &shapes[kind].stroke[i], &h, half, strength);
  for (int i = 0; i < PIXELS; i++) {
    float x = image[i] + noise * normal(&d);
    to[i] = (unsigned char)(x < 0 ? 0 : x > 1 ? 255 : x * 255);
  }
  return digit;
}

/* ---- files --------------------------------------------------------------------------------------- */

static FILE *open_idx(const char *directory, const char *name, int axes, const int64_t *dim) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *out = fopen(path, "wb");
  if (!out) {
    perror(path);
    exit(1);
  }
  fwrite((unsigned char[]){0, 0, 8, (unsigned char)axes}, 1, 4, out);
  for (int i = 0; i < axes; i++)
    for (int shift = 24; shift >= 0; shift -= 8) putc((int)(dim[i] >> shift & 255), out);
  return out;
}

static void write_set(const char *directory, const char *name, uint64_t key, int64_t n, bool neat) {
  char images_name[64], labels_name[64];
  snprintf(images_name, sizeof images_name, "%s-images-idx3-ubyte", name);
  snprintf(labels_name, sizeof labels_name, "%s-labels-idx1-ubyte", name);
  FILE *images = open_idx(directory, images_name, 3, (int64_t[]){n, SIDE, SIDE});
  FILE *labels = open_idx(directory, labels_name, 1, &n);
  for (int64_t i = 0; i < n; i++) {
    unsigned char pixels[PIXELS];
    putc(draw_digit(key, i, neat, pixels), labels);
    fwrite(pixels, 1, PIXELS, images);
  }
  if (fclose(images) | fclose(labels)) {
    perror(directory);
    exit(1);
  }
}

int main(int argc, char **argv) {
  const bool neat = argc == 6 && !strcmp(argv[5], "neat");
  if (argc < 4 || argc > 6 || (argc == 6 && !neat)) {
    fputs("usage: digits DIR TRAIN VALIDATION [SEED [neat]]\n", stderr);
    return 2;
  }
  uint64_t seed = argc >= 5 ? strtoull(argv[4], NULL, 10) : 1;
  write_set(argv[1], "train", pd_mix(seed, 0), atoll(argv[2]), neat);
  write_set(argv[1], "t10k", pd_mix(seed, 1), atoll(argv[3]), neat);
  return 0;
}
