#include "shared/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  enum pd_dtype dtype;
  int bytes;
} dtypes[] = {{"F32", PD_DTYPE_F32, 4},   {"F16", PD_DTYPE_F16, 2},   {"BF16", PD_DTYPE_BF16, 2},
              {"F64", PD_DTYPE_F64, 8},   {"I64", PD_DTYPE_OTHER, 8}, {"U64", PD_DTYPE_OTHER, 8},
              {"I32", PD_DTYPE_OTHER, 4}, {"U32", PD_DTYPE_OTHER, 4}, {"I16", PD_DTYPE_OTHER, 2},
              {"U16", PD_DTYPE_OTHER, 2}, {"I8", PD_DTYPE_OTHER, 1},  {"U8", PD_DTYPE_OTHER, 1},
              {"BOOL", PD_DTYPE_OTHER, 1}};

/* A whole number in [0, 2^53], which JSON's doubles hold exactly. */
static bool whole(const cJSON *item, int64_t *to) {
  double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
  if (!(x >= 0 && x <= 0x1p53) || x != floor(x)) return false;
  *to = (int64_t)x;
  return true;
}

static bool parse_shape(const cJSON *shape, struct pd_entry *e) {
  const cJSON *item;
  if (!cJSON_IsArray(shape)) return false;
  e->elements = 1;
  cJSON_ArrayForEach(item, shape) {
    if (e->rank == PD_TENSOR_RANK || !whole(item, &e->dim[e->rank])) return false;
    if (__builtin_mul_overflow(e->elements, e->dim[e->rank], &e->elements)) return false;
    e->rank++;
  }
  return true;
}

static bool parse_entry(const cJSON *item, const unsigned char *data, int64_t bytes, struct pd_entry *e,
                        char *why) {
  const char *name = item->string ? item->string : "";
  const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype"),
              *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
  int64_t first, end, size = 0;
  if (!cJSON_IsString(dtype) || !parse_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), e))
    return pd_refuse(why, "its header has an invalid entry for tensor '%.200s'", name);
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
      !whole(cJSON_GetArrayItem(offsets, 0), &first) || !whole(cJSON_GetArrayItem(offsets, 1), &end) ||
      first > end || end > bytes)
    return pd_refuse(why, "tensor '%.200s' lies outside the file: the file is cut short or damaged", name);
  e->dtype = PD_DTYPE_OTHER;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(dtype->valuestring, dtypes[i].name)) {
      e->dtype = dtypes[i].dtype;
      size = dtypes[i].bytes;
    }
  if (size && (__builtin_mul_overflow(e->elements, size, &size) || size != end - first))
    return pd_refuse(why, "tensor '%.200s' has %lld bytes, which do not match its shape and type", name,
                     (long long)(end - first));
  e->data = data + first;
  e->end = data + end;
  e->name = strdup(name);
  return true;
}

static bool parse_metadata(const cJSON *map, struct pd_safetensors *to, char *why) {
  const cJSON *item;
  to->metadata = calloc((size_t)cJSON_GetArraySize(map) + 1, sizeof *to->metadata);
  if (!to->metadata) return pd_refuse(why, "out of memory");
  cJSON_ArrayForEach(item, map) {
    if (!item->string || !cJSON_IsString(item)) return pd_refuse(why, "its __metadata__ is not a map of strings");
    to->metadata[to->n_metadata][0] = strdup(item->string);
    to->metadata[to->n_metadata++][1] = strdup(item->valuestring);
  }
  return true;
}

static bool parse_header(const cJSON *root, const unsigned char *data, int64_t bytes, struct pd_safetensors *to,
                         char *why) {
  if (!cJSON_IsObject(root)) return pd_refuse(why, "its header is not a JSON object");
  to->at = calloc((size_t)cJSON_GetArraySize(root) + 1, sizeof *to->at);
  if (!to->at) return pd_refuse(why, "out of memory");
  const cJSON *item;
  cJSON_ArrayForEach(item, root) {
    if (item->string && !strcmp(item->string, "__metadata__")) {
      if (to->metadata) return pd_refuse(why, "its header has __metadata__ twice");
      if (!parse_metadata(item, to, why)) return false;
      continue;
    }
    if (!parse_entry(item, data, bytes, &to->at[to->n], why)) return false;
    to->n++;
  }
  return true;
}

/* ---- what the format asks of all tensors together ------------------------------------------------ */

static int by_place(const void *a, const void *b) {
  const struct pd_entry *x = *(const struct pd_entry *const *)a, *y = *(const struct pd_entry *const *)b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const struct pd_entry *const *)a)->name, (*(const struct pd_entry *const *)b)->name);
}

/* Checks that tensors, sorted by offset, cover all bytes without overlaps and gaps. */
static bool check_places(const struct pd_entry *const *at, int n, const unsigned char *data,
                         const unsigned char *end, char *why) {
  for (int i = 0; i < n; data = at[i++]->end) {
    if (at[i]->data < data)
      return pd_refuse(why, "tensors '%.200s' and '%.200s' overlap: the file is damaged", at[i - 1]->name,
                       at[i]->name);
    if (at[i]->data > data)
      return pd_refuse(why, "%lld bytes before tensor '%.200s' belong to no tensor: the file is damaged",
                       (long long)(at[i]->data - data), at[i]->name);
  }
  return data == end || pd_refuse(why, "%lld bytes after the last tensor belong to no tensor: the file is damaged",
                                  (long long)(end - data));
}

static bool check_all(const struct pd_safetensors *s, const unsigned char *data, int64_t bytes, char *why) {
  const struct pd_entry **at = malloc(sizeof(const struct pd_entry *) * (size_t)(s->n + 1));
  if (!at) return pd_refuse(why, "out of memory");
  for (int i = 0; i < s->n; i++) at[i] = &s->at[i];
  qsort(at, (size_t)s->n, sizeof *at, by_place);
  bool ok = check_places(at, s->n, data, data + bytes, why);
  qsort(at, (size_t)s->n, sizeof *at, by_name);
  for (int i = 1; i < s->n && ok; i++)
    ok = strcmp(at[i - 1]->name, at[i]->name) ||
         pd_refuse(why, "its header has tensor '%.200s' twice", at[i]->name);
  free(at);
  return ok;
}

/* Parses the header's object, which blanks may follow. */
static cJSON *parse_json(const char *header, size_t length) {
  const char *end = header + length, *rest;
  cJSON *root = *header == '{' ? cJSON_ParseWithLengthOpts(header, length, &rest, false) : NULL;
  while (root && rest < end && *rest == ' ') rest++;
  if (!root || rest == end) return root;
  cJSON_Delete(root);
  return NULL;
}

bool pd_safetensors_parse(const void *bytes, size_t size, struct pd_safetensors *to, char *why) {
  const unsigned char *u = bytes;
  uint64_t length = 0;
  *to = (struct pd_safetensors){0};
  for (int i = 0; size >= 8 && i < 8; i++) length |= (uint64_t)u[i] << 8 * i;
  if (size < 8 || length < 2 || length > size - 8 || length > 100000000)
    return pd_refuse(why, "it is not a safetensors file, or it is cut short");
  char *header = malloc(length); /* a copy, because the parser reads twice and a mapped file may change */
  if (!header) return pd_refuse(why, "out of memory");
  memcpy(header, u + 8, length);
  cJSON *root = parse_json(header, length);
  const unsigned char *data = u + 8 + length;
  int64_t left = (int64_t)(size - 8 - length);
  bool ok = parse_header(root, data, left, to, why) && check_all(to, data, left, why);
  cJSON_Delete(root);
  free(header);
  if (!ok) pd_safetensors_free(to);
  return ok;
}

void pd_safetensors_free(struct pd_safetensors *s) {
  for (int i = 0; i < s->n; i++) free(s->at[i].name);
  for (int i = 0; i < s->n_metadata; i++) {
    free(s->metadata[i][0]);
    free(s->metadata[i][1]);
  }
  free(s->at);
  free(s->metadata);
  *s = (struct pd_safetensors){0};
}

const struct pd_entry *pd_safetensors_find(const struct pd_safetensors *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->at[i].name, name)) return &s->at[i];
  return NULL;
}

const char *pd_safetensors_metadata(const struct pd_safetensors *s, const char *name) {
  for (int i = 0; i < s->n_metadata; i++)
    if (!strcmp(s->metadata[i][0], name)) return s->metadata[i][1];
  return "";
}

/* IEEE 754 binary16. */
static float half_to_float(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  float x = exponent == 31 ? (mantissa ? NAN : INFINITY)
            : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                           : ldexpf((float)mantissa, -24);
  return h & 0x8000 ? -x : x;
}

float pd_entry_float(const struct pd_entry *e, int64_t i) {
  float f;
  double d;
  uint16_t h;
  uint32_t w;
  switch (e->dtype) {
  case PD_DTYPE_F64: memcpy(&d, e->data + 8 * i, 8); return (float)d;
  case PD_DTYPE_F16: memcpy(&h, e->data + 2 * i, 2); return half_to_float(h);
  case PD_DTYPE_BF16:
    memcpy(&h, e->data + 2 * i, 2);
    w = (uint32_t)h << 16;
    memcpy(&f, &w, 4);
    return f;
  default: memcpy(&f, e->data + 4 * i, 4); return f;
  }
}

/* ---- writing --------------------------------------------------------------------------------- */

static const struct {
  enum pd_dtype dtype;
  const char *names[3]; /* in headers, of PyTorch, in options */
} written[] = {{PD_DTYPE_F32, {"F32", "float32", "f32"}},
               {PD_DTYPE_F16, {"F16", "float16", "f16"}},
               {PD_DTYPE_BF16, {"BF16", "bfloat16", "bf16"}}};
enum { N_WRITTEN = sizeof written / sizeof *written };

enum pd_dtype pd_dtype_of(const char *name) {
  for (int i = 0; i < N_WRITTEN; i++)
    for (int j = 0; j < 3; j++)
      if (!strcmp(name, written[i].names[j])) return written[i].dtype;
  return PD_DTYPE_OTHER;
}

static const char *written_name(enum pd_dtype dtype, int form) {
  int i = 0;
  while (written[i].dtype != dtype) i++;
  return written[i].names[form];
}

const char *pd_dtype_name(enum pd_dtype dtype) { return written_name(dtype, 1); }

int64_t pd_dtype_bytes(enum pd_dtype dtype) { return dtype == PD_DTYPE_F32 ? 4 : 2; }

static uint16_t to_half(float f) {
  const uint32_t infinity = 0x7f800000, beyond = 0x47800000,
                 least = 0x38800000; /* 2^16; 2^-14, the least normal */
  uint32_t w;
  memcpy(&w, &f, sizeof w);
  const uint32_t sign = w >> 16 & 0x8000;
  w &= 0x7fffffff;
  if (w > infinity) return (uint16_t)(sign | 0x7e00);
  if (w >= beyond) return (uint16_t)(sign | 0x7c00);
  if (w < least) return (uint16_t)(sign | (uint32_t)lrintf(fabsf(f) * 0x1p24f));
  w += 0xfff + (w >> 13 & 1); /* may carry into the exponent */
  return (uint16_t)(sign | (w - ((uint32_t)112 << 23)) >> 13);
}

static uint16_t to_bfloat(float f) {
  uint32_t w;
  memcpy(&w, &f, sizeof w);
  if ((w & 0x7fffffff) > 0x7f800000) return (uint16_t)(w >> 16 | 0x40); /* stays a NaN */
  return (uint16_t)((w + 0x7fff + (w >> 16 & 1)) >> 16);
}

int64_t pd_dtype_round(enum pd_dtype dtype, const float *from, int64_t n, void *to) {
  const unsigned infinity = dtype == PD_DTYPE_F16 ? 0x7c00 : 0x7f80;
  uint16_t *halves = to;
  int64_t first = -1;
  if (dtype == PD_DTYPE_F32) {
    memcpy(to, from, (size_t)n * sizeof *from);
    return first;
  }
  for (int64_t i = 0; i < n; i++) {
    halves[i] = dtype == PD_DTYPE_F16 ? to_half(from[i]) : to_bfloat(from[i]);
    if ((halves[i] & 0x7fff) == infinity && isfinite(from[i]) && first < 0) first = i;
  }
  return first;
}

unsigned char *pd_safetensors_header(const struct pd_entry *entries, int n, const char *const metadata[][2],
                                     int n_metadata, size_t *bytes) {
  cJSON *root = cJSON_CreateObject(), *map = cJSON_AddObjectToObject(root, "__metadata__");
  for (int i = 0; i < n_metadata; i++) cJSON_AddStringToObject(map, metadata[i][0], metadata[i][1]);
  double offset = 0;
  for (int i = 0; i < n; i++) {
    cJSON *item = cJSON_AddObjectToObject(root, entries[i].name);
    cJSON_AddStringToObject(item, "dtype", written_name(entries[i].dtype, 0));
    cJSON *shape = cJSON_AddArrayToObject(item, "shape"), *offsets = cJSON_AddArrayToObject(item, "data_offsets");
    for (int j = 0; j < entries[i].rank; j++)
      cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)entries[i].dim[j]));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber(offset));
    offset += (double)(pd_dtype_bytes(entries[i].dtype) * entries[i].elements);
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber(offset));
  }
  char *text = cJSON_PrintUnformatted(root);
  cJSON_Delete(root);
  size_t length = text ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
  unsigned char *header = text ? malloc(8 + padded) : NULL;
  if (header) {
    memset(header + 8, ' ', padded);
    memcpy(header + 8, text, length);
    for (int i = 0; i < 8; i++) header[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    *bytes = 8 + padded;
  }
  free(text);
  return header;
}
