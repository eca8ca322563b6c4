/* Augmentation and normalisation of images. A training image is padded with zeros and cropped, then mirrored or
 * not. Philox, keyed by the run's seed and counted by the sample's global index, makes the choices, independent of
 * the plan; all images of a sample get the same. Then each channel is normalised. */
#include "data/data.h"
#include "kernels/pd_math.h"

bool pd_is_image(const struct pd_input *in) { return !in->target && !in->token && in->rank == 3; }

bool pd_augment_fits(const struct pd_augment *a, const struct pd_input *inputs, int n, char *why) {
  bool any = false;
  for (const struct pd_input *in = inputs; in < inputs + n; in++) {
    if (!pd_is_image(in)) continue;
    any = true;
    if (a->crop >= in->dim[1] || a->crop >= in->dim[2])
      return pd_refuse(why, "--augment crop=%lld: '%s' has images of %lld x %lld", (long long)a->crop, in->name,
                       (long long)in->dim[1], (long long)in->dim[2]);
  }
  return any || pd_refuse(why, "--augment: the model has no input of shape [channels, height, width]");
}

/* A whole number in [0, n), n below 2^32. */
static int64_t choose(uint32_t word, int64_t n) { return (int64_t)((uint64_t)word * (uint64_t)n >> 32); }

void pd_augment_image(const struct pd_augment *a, const struct pd_input *in, uint64_t seed, int64_t sample,
                      const float *from, float *to) {
  enum { AUGMENT = 0x696d6167 }; /* separates the key from keys of names and instances */
  pd_random r = pd_philox(0, 0, (uint32_t)sample, (uint32_t)(sample >> 32), pd_mix(seed, AUGMENT));
  int64_t height = in->dim[1], width = in->dim[2];
  int64_t down = choose(r.word[0], 2 * a->crop + 1) - a->crop;
  int64_t right = choose(r.word[1], 2 * a->crop + 1) - a->crop;
  bool mirrored = a->flip && r.word[2] >> 31;
  for (int64_t c = 0; c < in->dim[0]; c++, from += height * width)
    for (int64_t y = 0; y < height; y++)
      for (int64_t x = 0; x < width; x++) {
        int64_t row = y + down, column = (mirrored ? width - 1 - x : x) + right;
        bool inside = row >= 0 && row < height && column >= 0 && column < width;
        *to++ = inside ? from[row * width + column] : 0;
      }
}

void pd_normalise(const struct pd_input *in, float *pixels) {
  int64_t channels = in->dim[0], plane = in->elements / channels;
  for (int64_t c = 0; c < channels; c++) {
    float mean = (float)in->numbers[c], deviation = (float)in->numbers[channels + c];
    for (int64_t i = 0; i < plane; i++, pixels++) *pixels = (*pixels - mean) / deviation;
  }
}
