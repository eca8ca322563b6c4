/* Elements of mapped arrays; rows may be unaligned. */
#include "data/data.h"

#include <stdio.h>
#include <string.h>

int pd_element_bytes(enum pd_element type) {
  static const int bytes[] = {1, 2, 4, 4, 8, 4, 8, 2};
  return bytes[type];
}

bool pd_is_float(enum pd_element type) {
  return type == PD_TYPE_F16 || type == PD_TYPE_F32 || type == PD_TYPE_F64;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void print_shape(char *to, size_t room, int rank, const int64_t *dim) {
  int at = snprintf(to, room, "[%s", rank ? "" : "1");
  for (int i = 0; i < rank && at < (int)room; i++)
    at += snprintf(to + at, room - (size_t)at, "%s%lld", i ? ", " : "", (long long)dim[i]);
  if (at < (int)room) snprintf(to + at, room - (size_t)at, "]");
}

/* Copies the axes that are not of size 1. */
static int squeeze(int rank, const int64_t *dim, int64_t *to) {
  int n = 0;
  for (int i = 0; i < rank; i++)
    if (dim[i] != 1) to[n++] = dim[i];
  return n;
}

static bool same_shape(const struct pd_array *a, const struct pd_input *in) {
  int64_t d[PD_MAX_RANK], e[PD_MAX_RANK];
  int n = squeeze(a->rank, a->dim, d), m = squeeze(in->rank, in->dim, e);
  if (a->row != in->elements) return false;
  return n <= 1 || m <= 1 || (n == m && !memcmp(d, e, sizeof *d * (size_t)n));
}

bool pd_array_fits(const struct pd_array *a, const struct pd_input *in, char *why) {
  char has[160], takes[160];
  if (!same_shape(a, in)) {
    print_shape(has, sizeof has, a->rank, a->dim);
    print_shape(takes, sizeof takes, in->rank, in->dim);
    return pd_refuse(why, "'%s' holds samples of shape %s, but '%s' takes shape %s", a->path, has, in->name,
                     takes);
  }
  if (in->token && pd_is_float(a->type))
    return pd_refuse(why, "'%s' holds floating-point numbers, but '%s' takes tokens", a->path, in->name);
  return true;
}

/* ---- elements -------------------------------------------------------------------------------- */

static int64_t integer_at(const char *p, enum pd_element type) {
  union {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    int32_t i32;
    int64_t i64;
  } x;
  memcpy(&x, p, (size_t)pd_element_bytes(type));
  switch (type) {
  case PD_TYPE_U8: return x.u8;
  case PD_TYPE_U16: return x.u16;
  case PD_TYPE_U32: return x.u32;
  case PD_TYPE_I32: return x.i32;
  default: return x.i64;
  }
}

int64_t pd_whole_number(const struct pd_array *a, int64_t row, int64_t i) {
  return integer_at(a->map + a->first + row * a->stride + i * pd_element_bytes(a->type), a->type);
}

/* IEEE 754's binary16, exact, including denormals, infinities and NaN. */
static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, bits = (uint32_t)(h & 0x7fff) << 13;
  float f;
  if ((h & 0x7c00) == 0x7c00)
    bits += (255u - 31) << 23;
  else if (h & 0x7c00)
    bits += (127u - 15) << 23;
  else {
    f = (float)(h & 0x3ff) * 0x1p-24f;
    memcpy(&bits, &f, sizeof bits);
  }
  bits |= sign;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static float number_at(const char *p, enum pd_element type) {
  float f;
  double d;
  uint16_t h;
  switch (type) {
  case PD_TYPE_F16: memcpy(&h, p, sizeof h); return half_to_float(h);
  case PD_TYPE_F32: memcpy(&f, p, sizeof f); return f;
  case PD_TYPE_F64: memcpy(&d, p, sizeof d); return (float)d;
  default: return (float)integer_at(p, type);
  }
}

static bool refuse_token(const struct pd_array *a, int64_t token, const char *p, int64_t classes, char *why) {
  char counted[96] = "";
  if (token < 0)
    snprintf(counted, sizeof counted, ". help: mask it with weights of 'counted(TARGET, ignore = %lld)'",
             (long long)token);
  return pd_refuse(why, "'%s': token %lld at offset %lld is outside the model's %lld classes%s", a->path,
                   (long long)token, (long long)(p - a->map), (long long)classes, counted);
}

bool pd_read_tokens(const struct pd_array *a, int64_t first, int64_t n, struct pd_token_range range, int32_t *to,
                    char *why) {
  int bytes = pd_element_bytes(a->type);
  for (int64_t r = first; r < first + n; r++) {
    const char *p = a->map + a->first + r * a->stride;
    for (int64_t i = 0; i < a->row; i++, p += bytes) {
      int64_t token = integer_at(p, a->type);
      bool ignored = token < 0 && token == range.ignored;
      if ((uint64_t)token >= (uint64_t)range.classes && !ignored)
        return refuse_token(a, token, p, range.classes, why);
      if (to) *to++ = (int32_t)token;
    }
  }
  return true;
}

/* Converts n adjacent elements. Vector instructions convert bytes, the type of images. */
static void read_row(const char *p, enum pd_element type, int64_t n, float *restrict to) {
  const uint8_t *restrict byte = (const uint8_t *)p;
  int bytes = pd_element_bytes(type);
  switch (type) {
  case PD_TYPE_U8:
    for (int64_t i = 0; i < n; i++) to[i] = (float)byte[i];
    break;
  case PD_TYPE_F32: memcpy(to, p, sizeof *to * (size_t)n); break;
  default:
    for (int64_t i = 0; i < n; i++) to[i] = number_at(p + i * bytes, type);
  }
}

static void scale_pixels(int64_t n, float *pixels) {
  for (int64_t i = 0; i < n; i++) pixels[i] /= 255.0f;
}

void pd_read_numbers(const struct pd_array *a, int64_t first, int64_t n, float *to) {
  for (int64_t r = first; r < first + n; r++, to += a->row) {
    read_row(a->map + a->first + r * a->stride, a->type, a->row, to);
    if (a->pixels) scale_pixels(a->row, to);
  }
}
