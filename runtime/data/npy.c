/* .npy arrays (numpy.lib.format, versions 1 to 3): samples along the first axis. */
#include "data/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The text after 'key': in the header's dictionary; NULL if the key is missing or duplicate. */
static const char *field(const char *header, const char *key) {
  const char *p = strstr(header, key);
  if (!p || strstr(p + 1, key)) return NULL;
  p = strchr(p, ':');
  if (!p) return NULL;
  do p++;
  while (*p == ' ');
  return p;
}

static bool parse_shape(const char *text, int *rank, int64_t *dim) {
  *rank = 0;
  if (*text++ != '(') return false;
  while (*text != ')') {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || n < 0 || errno || *rank == PD_MAX_RANK + 1) return false;
    dim[(*rank)++] = n;
    for (text = end; *text == ',' || *text == ' ';) text++;
  }
  return true;
}

/* Length of a type description for messages: a quoted type, or the start of a list. */
static int type_length(const char *text) {
  enum { MOST = 16 };
  int n = (int)strnlen(text, MOST);
  const char *end = *text == '\'' ? memchr(text + 1, '\'', (size_t)(n > 0 ? n - 1 : 0)) : NULL;
  return end ? (int)(end + 1 - text) : n;
}

static bool parse_type(const char *text, enum pd_element *type) {
  static const struct {
    const char *code;
    enum pd_element type;
  } types[] = {{"|u1", PD_TYPE_U8},  {"<u2", PD_TYPE_U16}, {"<u4", PD_TYPE_U32}, {"<i4", PD_TYPE_I32},
               {"<i8", PD_TYPE_I64}, {"<f2", PD_TYPE_F16}, {"<f4", PD_TYPE_F32}, {"<f8", PD_TYPE_F64}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (*text == '\'' && !strncmp(text + 1, types[i].code, 3) && text[4] == '\'') {
      *type = types[i].type;
      return true;
    }
  return false;
}

/* Copies the header's dictionary to `header`; returns the offset of the elements; 0: no header. */
static size_t read_header(const struct pd_array *a, char *header, size_t room) {
  const unsigned char *u = (const unsigned char *)a->map;
  if (a->size < 12 || memcmp(u, "\x93NUMPY", 6)) return 0;
  size_t start = u[6] == 1 ? 10 : 12, length = (size_t)u[8] | (size_t)u[9] << 8;
  if (u[6] > 1) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
  if (!length || length >= room || start + length > a->size) return 0;
  memcpy(header, a->map + start, length);
  header[length] = 0;
  return start + length;
}

bool pd_is_npy(const struct pd_array *a) { return a->size >= 8 && !memcmp(a->map, "\x93NUMPY", 6); }

bool pd_parse_npy(struct pd_array *a, char *why) {
  char header[1024];
  if (pd_is_npy(a) && (a->map[6] < 1 || a->map[6] > 3))
    return pd_refuse(why, "'%s' is a .npy array of version %d: only versions 1 to 3 are supported", a->path,
                     (unsigned char)a->map[6]);
  a->first = read_header(a, header, sizeof header);
  if (!a->first) return pd_refuse(why, "'%s' is not a .npy array", a->path);
  const char *descr = field(header, "'descr'"), *order = field(header, "'fortran_order'"),
             *shape = field(header, "'shape'");
  int rank = 0;
  int64_t dim[PD_MAX_RANK + 1], elements;
  if (!descr || !order || !shape || !parse_shape(shape, &rank, dim))
    return pd_refuse(why, "'%s' has an unsupported .npy header: %.200s", a->path, header);
  if (!parse_type(descr, &a->type))
    return pd_refuse(why, "'%s' holds elements of type %.*s: only f2, f4, f8, i4, i8, u1, u2 and u4 are supported",
                     a->path, type_length(descr), descr);
  if (rank < 1 || strncmp(order, "False", 5) != 0)
    return pd_refuse(why, "'%s' must hold samples along its first axis, in C order", a->path);
  a->rows = dim[0];
  a->rank = rank - 1;
  memcpy(a->dim, dim + 1, sizeof *dim * (size_t)a->rank);
  a->row = 1;
  for (int i = 0; i < a->rank; i++)
    if (__builtin_mul_overflow(a->row, a->dim[i], &a->row)) a->row = INT64_MAX;
  int64_t bytes = pd_element_bytes(a->type), room = (int64_t)(a->size - a->first) / bytes;
  if (__builtin_mul_overflow(a->row, a->rows, &elements) || elements > room)
    return pd_refuse(why, "'%s' is cut short at offset %lld: it holds %lld elements of shape %.*s", a->path,
                     (long long)a->size, (long long)room, (int)(strchr(shape, ')') + 1 - shape), shape);
  a->stride = a->rows ? a->row * bytes : 0;
  return true;
}
