/* Frames, augmentation and normalisation of images. An image file becomes an input's size by a central or a random
 * frame. A training image is then padded with zeros and cropped, mirrored or not, and changed in color. Philox,
 * keyed by the run's seed and counted by the sample's global index, makes the choices, independent of the plan; all
 * images of a sample get the same. Then each channel is normalised. */
#include "data/data.h"
#include "kernels/pd_math.h"

#include <math.h>

bool pd_is_image(const struct pd_input *in) { return !in->target && !in->token && in->rank == 3; }

bool pd_augments(const struct pd_augment *a) { return a->flip || a->crop || a->resized_crop > 0 || a->color > 0; }

bool pd_augment_fits(const struct pd_augment *a, const struct pd_input *inputs, int n, bool folders, char *why) {
  bool any = false;
  for (const struct pd_input *in = inputs; in < inputs + n; in++) {
    if (!pd_is_image(in) || pd_is_random(in)) continue;
    any = true;
    if (a->crop >= in->dim[1] || a->crop >= in->dim[2])
      return pd_refuse(why, "--augment crop=%lld: '%s' has images of %lld x %lld", (long long)a->crop, in->name,
                       (long long)in->dim[1], (long long)in->dim[2]);
    if (a->color > 0 && in->dim[0] != 1 && in->dim[0] != 3)
      return pd_refuse(why, "--augment color=%g: '%s' has %lld channels. help: color needs 1 or 3 channels",
                       a->color, in->name, (long long)in->dim[0]);
  }
  if (!any) return pd_refuse(why, "--augment: the model has no input of shape [channels, height, width]");
  return folders || a->resized_crop == 0 ||
         pd_refuse(why, "--augment resized_crop: --data has no image files. help: use crop=PIXELS, or give a "
                        "folder of images");
}

/* ---- random choices -------------------------------------------------------------------------- */

/* Blocks of random numbers of a sample. */
enum { BLOCK_MOVE, BLOCK_COLOR, BLOCK_FRAMES /* one for each try */ };

static pd_random draw(uint32_t block, uint64_t seed, int64_t sample) {
  enum { AUGMENT = 0x696d6167 }; /* separates the key from keys of names and instances */
  return pd_philox(block, 0, (uint32_t)sample, (uint32_t)(sample >> 32), pd_mix(seed, AUGMENT));
}

/* A whole number in [0, n), n below 2^32. */
static int64_t choose(uint32_t word, int64_t n) { return (int64_t)((uint64_t)word * (uint64_t)n >> 32); }

static double between(uint32_t word, double low, double high) { return low + (high - low) * pd_uniform(word); }

/* ---- frames ---------------------------------------------------------------------------------- */

int64_t pd_resized_height(const struct pd_input *in, int64_t resize) {
  return resize ? resize : (in->dim[1] * 16 + 7) / 14; /* height * 8 / 7, rounded */
}

/* (whole - part) / 2, halves to even, as Python rounds. */
static int64_t middle(int64_t whole, int64_t part) {
  const int64_t gap = whole - part, half = gap / 2;
  return half + (gap & half & 1);
}

struct pd_frame pd_central_frame(const struct pd_input *in, int64_t resize, int64_t width, int64_t height) {
  const int64_t high = pd_resized_height(in, resize), tall = in->dim[1], wide = in->dim[2];
  const int64_t broad = (high * wide * 2 + tall) / (2 * tall); /* of the same shape as the input, rounded */
  const bool narrow = width * high <= height * broad;          /* the width decides */
  struct pd_frame f = {.box = {0, 0, width, height},
                       .width = narrow ? broad : high * width / height,
                       .height = narrow ? broad * height / width : high};
  f.part = (struct pd_box){middle(f.width, wide), middle(f.height, tall), wide, tall};
  return f;
}

/* The largest box in the middle whose shape is between the ratios. */
static struct pd_box central_box(int64_t width, int64_t height, double least, double most) {
  const double ratio = (double)width / (double)height;
  struct pd_box b = {.width = width, .height = height};
  if (ratio < least) b.height = llrint((double)width / least);
  if (ratio > most) b.width = llrint((double)height * most);
  b.left = (width - b.width) / 2;
  b.top = (height - b.height) / 2;
  return b;
}

struct pd_frame pd_random_frame(const struct pd_augment *a, const struct pd_input *in, uint64_t seed,
                                int64_t sample, int64_t width, int64_t height) {
  enum { TRIES = 10 };
  const double LEAST = 3.0 / 4, MOST = 4.0 / 3, LOG = 0.28768207245178092; /* of 4 / 3 */
  struct pd_frame f = {.box = central_box(width, height, LEAST, MOST), .width = in->dim[2], .height = in->dim[1]};
  f.part = (struct pd_box){0, 0, in->dim[2], in->dim[1]};
  for (uint32_t i = 0; i < TRIES; i++) {
    const pd_random r = draw(BLOCK_FRAMES + i, seed, sample);
    const double area = (double)width * (double)height * between(r.word[0], a->resized_crop, 1);
    const double ratio = (double)pd_exp((float)between(r.word[1], -LOG, LOG));
    const int64_t w = llrint(sqrt(area * ratio)), h = llrint(sqrt(area / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    f.box = (struct pd_box){choose(r.word[3], width - w + 1), choose(r.word[2], height - h + 1), w, h};
    break;
  }
  return f;
}

/* ---- color ----------------------------------------------------------------------------------- */

static float bounded(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

/* The luma of pixel i, as torchvision's rgb_to_grayscale. */
static float grey_at(const float *pixels, int64_t channels, int64_t plane, int64_t i) {
  if (channels == 1) return pixels[i];
  return 0.2989f * pixels[i] + 0.587f * pixels[plane + i] + 0.114f * pixels[2 * plane + i];
}

void pd_change_color(const struct pd_input *in, struct pd_color change, float *pixels) {
  const int64_t channels = in->dim[0], plane = in->elements / channels;
  const float f = change.factor, rest = 1 - f;
  double mean = 0;
  for (int64_t i = 0; change.kind == PD_CONTRAST && i < plane; i++) mean += grey_at(pixels, channels, plane, i);
  const float grey = (float)(mean / (double)plane);
  for (int64_t i = 0; i < plane; i++) {
    const float to = change.kind == PD_SATURATION ? grey_at(pixels, channels, plane, i) : grey;
    for (int64_t c = 0; c < channels; c++) {
      float *x = &pixels[c * plane + i];
      *x = bounded(f * *x + rest * to);
    }
  }
}

/* All three changes, in a random order. */
static void jitter(double most, const struct pd_input *in, pd_random r, float *pixels) {
  static const enum pd_color_kind orders[][PD_COLORS] = {
      {PD_BRIGHTNESS, PD_CONTRAST, PD_SATURATION}, {PD_BRIGHTNESS, PD_SATURATION, PD_CONTRAST},
      {PD_CONTRAST, PD_BRIGHTNESS, PD_SATURATION}, {PD_CONTRAST, PD_SATURATION, PD_BRIGHTNESS},
      {PD_SATURATION, PD_BRIGHTNESS, PD_CONTRAST}, {PD_SATURATION, PD_CONTRAST, PD_BRIGHTNESS}};
  const enum pd_color_kind *order = orders[choose(r.word[3], 6)];
  const double least = most < 1 ? 1 - most : 0;
  for (int i = 0; i < PD_COLORS; i++)
    pd_change_color(in, (struct pd_color){order[i], (float)between(r.word[i], least, 1 + most)}, pixels);
}

/* ---- samples --------------------------------------------------------------------------------- */

void pd_augment_image(const struct pd_augment *a, const struct pd_input *in, uint64_t seed, int64_t sample,
                      const float *from, float *to) {
  const pd_random r = draw(BLOCK_MOVE, seed, sample);
  int64_t height = in->dim[1], width = in->dim[2];
  int64_t down = choose(r.word[0], 2 * a->crop + 1) - a->crop;
  int64_t right = choose(r.word[1], 2 * a->crop + 1) - a->crop;
  bool mirrored = a->flip && r.word[2] >> 31;
  float *moved = to;
  for (int64_t c = 0; c < in->dim[0]; c++, from += height * width)
    for (int64_t y = 0; y < height; y++)
      for (int64_t x = 0; x < width; x++) {
        int64_t row = y + down, column = (mirrored ? width - 1 - x : x) + right;
        bool inside = row >= 0 && row < height && column >= 0 && column < width;
        *moved++ = inside ? from[row * width + column] : 0;
      }
  if (a->color > 0) jitter(a->color, in, draw(BLOCK_COLOR, seed, sample), to);
}

void pd_normalise(const struct pd_input *in, float *pixels) {
  int64_t channels = in->dim[0], plane = in->elements / channels;
  for (int64_t c = 0; c < channels; c++) {
    float mean = (float)in->numbers[c], deviation = (float)in->numbers[channels + c];
    for (int64_t i = 0; i < plane; i++, pixels++) *pixels = (*pixels - mean) / deviation;
  }
}
