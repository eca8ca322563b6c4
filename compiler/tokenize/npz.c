/* NumPy's archives: zip files of stored .npy arrays (PKWARE's APPNOTE.TXT), with 64-bit sizes. The number of rows is known
 * at the end: all arrays but the first wait in temporary files, and headers are written again over their room. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shared/crc32.h"
#include "tokenize/internal.h"

enum { LOCAL = 30, LOCAL_EXTRA = 20, ENTRY = 46, ENTRY_EXTRA = 28, NPY = 128, VERSION = 45 };

struct Archive {
  const char *path;
  struct pd_output output, later[MOST_ARRAYS]; /* later: rows of all arrays but the first, removed at the end */
  int64_t rows;
  int n; /* arrays */
  const Column *column;
  struct {
    uint64_t offset, bytes; /* of the local header; of the array with its header */
    uint32_t checksum;
  } array[MOST_ARRAYS];
};

static bool refuse(const Archive *a, char *why) {
  return pd_refuse(why, "cannot write '%s': %s", a->path, strerror(errno));
}

/* Writes little-endian numbers; each pair is a number and its bytes. */
static bool put(FILE *f, const uint64_t (*fields)[2], int n) {
  bool good = true;
  for (int i = 0; i < n; i++)
    for (uint64_t byte = 0; byte < fields[i][1]; byte++)
      good &= putc((int)(fields[i][0] >> (8 * byte) & 0xff), f) != EOF;
  return good;
}
#define PUT(f, ...) \
  put(f, (const uint64_t[][2]){__VA_ARGS__}, (int)(sizeof(uint64_t[][2]){__VA_ARGS__} / sizeof(uint64_t[2])))

/* ---- headers ------------------------------------------------------------------------------------- */

enum { DATE = 33 }; /* 1980-01-01: the same rows give the same bytes */

static bool write_local(const Archive *a, int i) {
  const uint64_t name = strlen(a->column[i].name), none = 0xffffffff;
  return PUT(a->output.file, {0x04034b50, 4}, {VERSION, 2}, {0, 2}, {0, 2}, {0, 2}, {DATE, 2},
             {a->array[i].checksum, 4}, {none, 4}, {none, 4}, {name, 2}, {LOCAL_EXTRA, 2}) &&
         fwrite(a->column[i].name, name, 1, a->output.file) == 1 &&
         PUT(a->output.file, {1, 2}, {16, 2}, {a->array[i].bytes, 8}, {a->array[i].bytes, 8});
}

static bool write_npy_header(const Archive *a, int i) {
  static const unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, NPY - 10, 0};
  char text[NPY - sizeof magic + 1];
  const int n = snprintf(text, sizeof text, "{'descr': '<i4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                         (long long)a->rows, (long long)a->column[i].length);
  memset(text + n, ' ', sizeof text - 1 - (size_t)n);
  text[sizeof text - 2] = '\n';
  return fwrite(magic, sizeof magic, 1, a->output.file) == 1 &&
         fwrite(text, sizeof text - 1, 1, a->output.file) == 1;
}

static bool begin_array(Archive *a, int i) {
  a->array[i].offset = (uint64_t)ftello(a->output.file);
  return write_local(a, i) && write_npy_header(a, i);
}

/* The checksum of an array that is written, from its .npy header on. */
static bool sum_array(Archive *a, int i) {
  char block[1 << 16];
  uint64_t left = a->array[i].bytes;
  const uint64_t from = a->array[i].offset + LOCAL + strlen(a->column[i].name) + LOCAL_EXTRA;
  FILE *f = fflush(a->output.file) ? NULL : fopen(a->output.beside, "rbe");
  bool good = f && fseeko(f, (off_t)from, SEEK_SET) == 0;
  for (size_t n; good && left > 0; left -= n) {
    n = left < sizeof block ? (size_t)left : sizeof block;
    good = fread(block, n, 1, f) == 1;
    if (good)
      a->array[i].checksum = pd_crc32(a->array[i].checksum, block, n);
  }
  if (f)
    fclose(f);
  return good;
}

/* Writes both headers again, now with rows, sizes and checksum. */
static bool end_array(Archive *a, int i) {
  const off_t at = (off_t)a->array[i].offset;
  a->array[i].bytes = NPY + (uint64_t)a->rows * (uint64_t)a->column[i].length * sizeof(int32_t);
  return fseeko(a->output.file, at, SEEK_SET) == 0 && write_local(a, i) && write_npy_header(a, i) &&
         sum_array(a, i) && fseeko(a->output.file, at, SEEK_SET) == 0 && write_local(a, i);
}

static bool write_directory(const Archive *a) {
  FILE *f = a->output.file;
  const uint64_t none = 0xffffffff, at = (uint64_t)ftello(f);
  for (int i = 0; i < a->n; i++) {
    const uint64_t name = strlen(a->column[i].name), bytes = a->array[i].bytes;
    if (!PUT(f, {0x02014b50, 4}, {VERSION, 2}, {VERSION, 2}, {0, 2}, {0, 2}, {0, 2}, {DATE, 2},
             {a->array[i].checksum, 4}, {none, 4}, {none, 4}, {name, 2}, {ENTRY_EXTRA, 2}, {0, 2}, {0, 2}, {0, 2},
             {0, 4}, {none, 4}) ||
        fwrite(a->column[i].name, name, 1, f) != 1 ||
        !PUT(f, {1, 2}, {24, 2}, {bytes, 8}, {bytes, 8}, {a->array[i].offset, 8}))
      return false;
  }
  const uint64_t end = (uint64_t)ftello(f), size = end - at, n = (uint64_t)a->n;
  return PUT(f, {0x06064b50, 4}, {44, 8}, {VERSION, 2}, {VERSION, 2}, {0, 4}, {0, 4}, {n, 8}, {n, 8}, {size, 8},
             {at, 8}) &&
         PUT(f, {0x07064b50, 4}, {0, 4}, {end, 8}, {1, 4}) &&
         PUT(f, {0x06054b50, 4}, {0, 2}, {0, 2}, {n, 2}, {n, 2}, {none, 4}, {none, 4}, {0, 2});
}

/* ---- rows ---------------------------------------------------------------------------------------- */

static void close_later(Archive *a) {
  for (int i = 1; i < a->n; i++)
    close_beside(&a->later[i], false);
}

Archive *archive_open(const char *path, const Column *columns, int n, char *why) {
  Archive *a = alloc(sizeof *a);
  a->path = path;
  a->column = columns;
  a->n = n;
  bool good = open_beside(&a->output, path);
  for (int i = 1; good && i < n; i++)
    good = open_beside(&a->later[i], format("%s.%d", path, i));
  if (good && begin_array(a, 0))
    return a;
  refuse(a, why);
  close_later(a);
  close_beside(&a->output, false);
  return NULL;
}

bool archive_add(Archive *a, const int32_t *const *rows, char *why) {
  bool good = true;
  a->rows++;
  for (int i = 0; good && i < a->n; i++) {
    const size_t n = (size_t)a->column[i].length;
    good = fwrite(rows[i], sizeof *rows[i], n, i ? a->later[i].file : a->output.file) == n;
  }
  return good || refuse(a, why);
}

static bool append_later(Archive *a, int i) {
  char block[1 << 16];
  FILE *f = fflush(a->later[i].file) ? NULL : fopen(a->later[i].beside, "rbe");
  bool good = f && fseeko(a->output.file, 0, SEEK_END) == 0 && begin_array(a, i);
  for (size_t n; good && (n = fread(block, 1, sizeof block, f)) > 0;)
    good = fwrite(block, 1, n, a->output.file) == n;
  good = good && !ferror(f);
  if (f)
    fclose(f);
  return good && end_array(a, i);
}

bool archive_close(Archive *a, bool good, char *why) {
  bool written = good && end_array(a, 0);
  for (int i = 1; written && i < a->n; i++)
    written = append_later(a, i);
  written = written && fseeko(a->output.file, 0, SEEK_END) == 0 && write_directory(a);
  if (good && !written)
    refuse(a, why);
  close_later(a);
  const bool closed = close_beside(&a->output, written);
  return written && (closed || refuse(a, why));
}
