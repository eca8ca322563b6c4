/* Reading safetensors files in tests; whatever is wrong with one ends the program with status 2. */
#ifndef TENSORS_H
#define TENSORS_H

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "tensors"; /* what messages begin with */

_Noreturn static void fail(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "%s: ", program);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  exit(status);
}

/* The whole file, NUL-terminated. */
static char *read_all(const char *path, size_t *length) {
  FILE *in = fopen(path, "rb");
  if (!in || fseek(in, 0, SEEK_END)) fail(2, "%s cannot be read", path);
  long size = ftell(in);
  rewind(in);
  char *text = size < 0 ? NULL : malloc((size_t)size + 1);
  if (!text || fread(text, 1, (size_t)size, in) != (size_t)size) fail(2, "%s cannot be read", path);
  text[size] = 0;
  fclose(in);
  *length = (size_t)size;
  return text;
}

typedef struct File {
  const char *path;
  cJSON *header;
  const char *data;
  size_t bytes;
} File;

static File open_tensors(const char *path) {
  File f = {.path = path};
  size_t length;
  char *text = read_all(path, &length);
  uint64_t header;
  if (length < sizeof header) fail(2, "%s is no safetensors file", path);
  memcpy(&header, text, sizeof header);
  if (header > length - sizeof header) fail(2, "%s: the header ends past the file", path);
  f.header = cJSON_ParseWithLength(text + sizeof header, header);
  if (!cJSON_IsObject(f.header)) fail(2, "%s: the header is no JSON object", path);
  f.data = text + sizeof header + header;
  f.bytes = length - sizeof header - header;
  return f;
}

static const float *values(const File *f, const cJSON *tensor, size_t *n) {
  const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(tensor, "dtype");
  if (!cJSON_IsString(type) || strcmp(type->valuestring, "F32"))
    fail(2, "%s: %s is not F32", f->path, tensor->string);
  if (cJSON_GetArraySize(offsets) != 2) fail(2, "%s: %s has no offsets", f->path, tensor->string);
  double first = cJSON_GetArrayItem(offsets, 0)->valuedouble;
  double end = cJSON_GetArrayItem(offsets, 1)->valuedouble;
  if (!(0 <= first && first <= end && end <= (double)f->bytes))
    fail(2, "%s: %s lies outside", f->path, tensor->string);
  *n = (size_t)(end - first) / sizeof(float);
  float *copy = malloc(*n * sizeof(float) + 1);
  if (!copy) fail(2, "no memory");
  memcpy(copy, f->data + (size_t)first, *n * sizeof(float));
  return copy;
}

#endif
