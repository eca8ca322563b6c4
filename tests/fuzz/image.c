/* Input: a JPEG or PNG file. Decodes it to grey and to colour, and makes samples of it by every kind of frame. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "data/data.h"

enum { MOST_PIXELS = 1 << 18, HEIGHT = 7, WIDTH = 5 };

static struct pd_pixels pixels;
static struct pd_resize_room room;

static void make_sample(const struct pd_input *in, const struct pd_frame *f) {
  char why[PD_WHY];
  float sample[3 * HEIGHT * WIDTH];
  const struct pd_box *b = &f->box, *p = &f->part;
  if (b->left < 0 || b->top < 0 || b->width < 1 || b->height < 1) abort();
  if (b->left + b->width > pixels.width || b->top + b->height > pixels.height) abort();
  if (p->left < 0 || p->top < 0 || p->left + p->width > f->width || p->top + p->height > f->height) abort();
  if (!pd_resize(&pixels, f, &room, sample, why)) abort();
  for (int64_t i = 0; i < in->elements; i++)
    if (!(sample[i] >= 0 && sample[i] <= 1)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const struct pd_augment augment = {.resized_crop = 0.08};
  for (int channels = 1; channels <= 3; channels += 2) {
    const struct pd_input in = {.rank = 3,
                                .dim = {channels, HEIGHT, WIDTH},
                                .elements = channels * HEIGHT * WIDTH};
    char why[PD_WHY] = "";
    if (!pd_decode_image("fuzz", data, size, channels, MOST_PIXELS, &pixels, why)) {
      if (!*why) abort();
      continue;
    }
    const struct pd_frame central = pd_central_frame(&in, 0, pixels.width, pixels.height);
    make_sample(&in, &central);
    for (int64_t s = 0; s < 3; s++) {
      const struct pd_frame random = pd_random_frame(&augment, &in, size, s, pixels.width, pixels.height);
      make_sample(&in, &random);
    }
  }
  return 0;
}
