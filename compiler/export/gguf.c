/* The GGUF format, version 3: fields, names of tensors, and their bytes, each tensor at a multiple of 32. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "export/internal.h"
#include "shared/beside.h"

enum { ALIGNMENT = 32, BLOCK = 32 /* of Q8_0 */, VERSION = 3 };
enum { VALUE_UINT = 4, VALUE_INT = 5, VALUE_FLOAT = 6, VALUE_BOOL = 7, VALUE_TEXT = 8, VALUE_ARRAY = 9 };

/* ---- fields ------------------------------------------------------------------------------------------- */

static void add(Bytes *b, const void *at, size_t n) {
  if (b->n + n > b->room) {
    const size_t room = 2 * (b->n + n) + 256;
    char *larger = alloc(room);
    if (b->n)
      memcpy(larger, b->at, b->n);
    b->at = larger, b->room = room;
  }
  if (n)
    memcpy(b->at + b->n, at, n);
  b->n += n;
}

static void add_32(Bytes *b, uint32_t x) { add(b, &x, sizeof x); }
static void add_64(Bytes *b, uint64_t x) { add(b, &x, sizeof x); }

static void add_text(Bytes *b, const char *text) {
  add_64(b, strlen(text));
  add(b, text, strlen(text));
}

static Bytes *begin(Gguf *g, const char *key, uint32_t type) {
  add_text(&g->fields, key);
  add_32(&g->fields, type);
  g->n_fields++;
  return &g->fields;
}

static Bytes *begin_array(Gguf *g, const char *key, uint32_t type, int64_t n) {
  Bytes *b = begin(g, key, VALUE_ARRAY);
  add_32(b, type);
  add_64(b, (uint64_t)n);
  return b;
}

void gguf_text(Gguf *g, const char *key, const char *text) { add_text(begin(g, key, VALUE_TEXT), text); }
void gguf_uint(Gguf *g, const char *key, uint64_t x) { add_32(begin(g, key, VALUE_UINT), (uint32_t)x); }

void gguf_float(Gguf *g, const char *key, double x) {
  const float f = (float)x;
  add(begin(g, key, VALUE_FLOAT), &f, sizeof f);
}

void gguf_bool(Gguf *g, const char *key, bool x) {
  const char byte = x;
  add(begin(g, key, VALUE_BOOL), &byte, 1);
}

void gguf_texts(Gguf *g, const char *key, const char *const *texts, int64_t n) {
  Bytes *b = begin_array(g, key, VALUE_TEXT, n);
  for (int64_t i = 0; i < n; i++)
    add_text(b, texts[i]);
}

void gguf_ints(Gguf *g, const char *key, const int32_t *x, int64_t n) {
  add(begin_array(g, key, VALUE_INT, n), x, (size_t)n * sizeof *x);
}

void gguf_floats(Gguf *g, const char *key, const float *x, int64_t n) {
  add(begin_array(g, key, VALUE_FLOAT, n), x, (size_t)n * sizeof *x);
}

/* ---- numbers --------------------------------------------------------------------------------------------- */

static int64_t row_bytes(const Exported *e) {
  return e->type == GGML_F32   ? 4 * e->columns
         : e->type == GGML_F16 ? 2 * e->columns
                               : e->columns / BLOCK * (2 + BLOCK);
}

/* The row, or of a vector the element, of the folder's tensor that is row or element i of the file's. */
static int64_t source_of(const Exported *e, int64_t i, int64_t n) {
  if (e->order == ORDER_ROTARY_PAIRS) {
    const int64_t size = n / e->heads, head = i / size, at = i % size;
    return head * size + at % 2 * (size / 2) + at / 2;
  }
  if (e->order == ORDER_BY_PART) {
    const int64_t part = n / 3, size = part / e->heads, head = i % part / size;
    return (3 * head + i / part) * size + i % size;
  }
  return i;
}

static void read_row(const Exported *e, int64_t row, float *to) {
  if (e->experts) {
    const int64_t each = e->rows / e->n_experts;
    const Exported one = {.from = e->experts[row / each], .rows = each, .columns = e->columns};
    read_row(&one, row % each, to);
    return;
  }
  const struct pd_entry from = e->from
                                   ? (struct pd_entry){.dtype = e->from->dtype, .data = e->from->data}
                                   : (struct pd_entry){.dtype = PD_DTYPE_F32, .data = (const void *)e->numbers};
  const int64_t source = e->vector ? 0 : source_of(e, row, e->rows);
  for (int64_t j = 0; j < e->columns; j++) {
    const int64_t at = e->vector                      ? source_of(e, j, e->columns)
                       : e->order == ORDER_TRANSPOSED ? j * e->rows + row
                                                      : source * e->columns + j;
    to[j] = pd_entry_float(&from, at) + e->plus;
  }
}

/* Blocks of a scale in f16 and 32 whole numbers: the largest becomes 127 or -127, others round half away from 0. */
static void quantise(const float *from, int64_t n, char *to) {
  for (int64_t first = 0; first < n; first += BLOCK, to += 2 + BLOCK) {
    float most = 0;
    for (int i = 0; i < BLOCK; i++)
      most = fmaxf(most, fabsf(from[first + i]));
    const float scale = most / 127, inverse = scale ? 1 / scale : 0;
    pd_dtype_round(PD_DTYPE_F16, &scale, 1, to);
    for (int i = 0; i < BLOCK; i++)
      to[2 + i] = (char)(int)roundf(from[first + i] * inverse);
  }
}

/* False after a diagnostic. */
static bool round_row(const Exported *e, const float *row, char *to) {
  for (int64_t j = 0; j < e->columns; j++)
    if (!isfinite(row[j])) {
      error_at(NO_SPAN, "PD0656", "tensor '%s' has an infinity or NaN", e->name);
      return false;
    }
  const float largest_scale = 65504.0f;
  float most = 0;
  for (int64_t j = 0; j < e->columns; j++)
    most = fmaxf(most, fabsf(row[j]));
  if ((e->type == GGML_F16 && most > largest_scale) || (e->type == GGML_Q8_0 && most / 127 > largest_scale)) {
    Diagnostic *d = error_at(NO_SPAN, "PD0656", "tensor '%s' has the number %g, beyond the range of %s", e->name,
                             (double)most, e->type == GGML_F16 ? "f16" : "q8_0");
    help(d, "--type f32 keeps it");
    return false;
  }
  if (e->type == GGML_Q8_0)
    quantise(row, e->columns, to);
  else
    pd_dtype_round(e->type == GGML_F16 ? PD_DTYPE_F16 : PD_DTYPE_F32, row, e->columns, to);
  return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static void pad(Bytes *b) {
  static const char zeros[ALIGNMENT];
  add(b, zeros, (ALIGNMENT - b->n % ALIGNMENT) % ALIGNMENT);
}

static int64_t padded(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static Bytes header(const Gguf *g) {
  Bytes b = {0};
  uint64_t offset = 0;
  add(&b, "GGUF", 4);
  add_32(&b, VERSION);
  add_64(&b, (uint64_t)g->tensors.n);
  add_64(&b, g->n_fields);
  add(&b, g->fields.at, g->fields.n);
  for (int i = 0; i < g->tensors.n; i++) {
    const Exported *e = &g->tensors.at[i];
    add_text(&b, e->name);
    add_32(&b, e->vector ? 1 : e->experts ? 3 : 2); /* the innermost size first */
    add_64(&b, (uint64_t)e->columns);
    if (!e->vector)
      add_64(&b, (uint64_t)(e->experts ? e->rows / e->n_experts : e->rows));
    if (e->experts)
      add_64(&b, (uint64_t)e->n_experts);
    add_32(&b, (uint32_t)e->type);
    add_64(&b, offset);
    offset += (uint64_t)padded(e->rows * row_bytes(e));
  }
  pad(&b);
  return b;
}

static bool write_tensor(const Exported *e, FILE *out) {
  static const char zeros[ALIGNMENT];
  const size_t bytes = (size_t)row_bytes(e);
  float *row = alloc((size_t)e->columns * sizeof *row + 1);
  char *rounded = alloc(bytes + 1);
  for (int64_t i = 0; i < e->rows; i++) {
    read_row(e, i, row);
    if (!round_row(e, row, rounded) || fwrite(rounded, 1, bytes, out) != bytes)
      return false;
  }
  const size_t rest = (size_t)(padded(e->rows * row_bytes(e)) - e->rows * row_bytes(e));
  return fwrite(zeros, 1, rest, out) == rest;
}

bool gguf_write(const Gguf *g, const char *path) {
  struct pd_output out;
  const int errors = error_count();
  const Bytes b = header(g);
  bool ok = pd_output_open(&out, path);
  if (ok) {
    bool written = fwrite(b.at, 1, b.n, out.file) == b.n;
    for (int i = 0; i < g->tensors.n && written; i++)
      written = write_tensor(&g->tensors.at[i], out.file);
    ok = pd_output_close(&out, written);
  }
  if (!ok && error_count() == errors)
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return ok;
}
