/* Input: a format byte and a data file. Reads every sample, then reads again while the file changes, as if another
 * process wrote to it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

enum { CLASSES = 64, LENGTH = 24 };

static char why[PD_WHY];

static void refused(void) {
  if (!*why) abort();
}

/* Every kind of input computed from a sample; tokens must remain tokens. */
static void derive_all(const int32_t *x, int64_t sample) {
  static const double numbers[] = {1, 0.5, 2, 3};
  struct pd_input in[2] = {
      {.elements = LENGTH, .classes = CLASSES, .origin = PD_MASKED, .numbers = numbers, .n_numbers = 4}};
  int32_t got[LENGTH];
  for (int origin = PD_LENGTHS; origin <= PD_CHOSEN; origin++) {
    in[1] = in[0];
    in[1].origin = (enum pd_origin)origin;
    pd_derive(in, 1, x, 1, sample, got);
    for (int i = 0; i < LENGTH && (origin == PD_SHIFTED || origin == PD_SEGMENTS || origin == PD_MASKED); i++)
      if (got[i] < 0 || got[i] >= CLASSES) abort();
  }
}

/* Replaces a file's bytes by its own, rotated by half. Values read afterwards are arbitrary, but all reads must
 * stay in bounds. */
static void change(const struct pd_array *a) {
  char *file = (char *)a->map, first;
  size_t half = a->size / 2;
  for (size_t i = 0; i < half; i++) {
    first = file[i];
    file[i] = file[half + i];
    file[half + i] = first == '\n' ? 'x' : first;
  }
}

static void read_lines(struct pd_array *text, bool numbers) {
  struct pd_lines lines = {.n = pd_count_lines(text), .numbers = numbers};
  struct pd_input in = {.name = "x", .token = true, .classes = CLASSES, .elements = LENGTH};
  int32_t tokens[LENGTH];
  lines.marks = malloc(sizeof *lines.marks * (size_t)(lines.n / PD_MARK + 1));
  bool marked = pd_mark_lines(text, &in, &lines, why);
  if (!marked) refused();
  for (int64_t i = 0; marked && i < lines.n; i++) {
    if (pd_read_line(text, &lines, i, &in, 0, tokens, why))
      derive_all(tokens, i);
    else if (numbers) /* the scan for tokens has already read all */
      abort();
    else
      refused();
  }
  change(text);
  for (int64_t i = 0; marked && i < lines.n; i++) pd_read_line(text, &lines, i, &in, 0, tokens, why);
  pd_mark_lines(text, &in, &lines, why);
  free(lines.marks);
}

static void read_rows(const struct pd_array *a) {
  struct pd_input in = {.name = "x", .token = true, .classes = CLASSES, .rank = a->rank, .elements = a->row};
  memcpy(in.dim, a->dim, sizeof in.dim);
  if (a->row < 1 || a->rows < 1) return;
  const struct pd_token_range range = {CLASSES, -100};
  int32_t *tokens = malloc(sizeof *tokens * (size_t)a->row);
  float *numbers = malloc(sizeof *numbers * (size_t)a->row);
  bool integers = pd_array_fits(a, &in, why);
  if (!integers) refused();
  for (int64_t i = 0; i < a->rows; i++) {
    if (integers && !pd_read_tokens(a, i, 1, range, tokens, why)) refused();
    pd_read_numbers(a, i, 1, numbers);
  }
  change(a);
  for (int64_t i = 0; i < a->rows; i++) {
    pd_read_tokens(a, i, 1, range, tokens, why);
    pd_read_numbers(a, i, 1, numbers);
  }
  free(tokens);
  free(numbers);
}

/* Windows must lie within the array, also after the file has changed. */
static void read_documents(const struct pd_array *a) {
  struct pd_documents d = {.context = 5, .end = 3};
  if (a->row != 1 || a->rank || pd_is_float(a->type) || a->stride != pd_element_bytes(a->type)) return;
  if (!pd_find_documents(a, &d, why)) abort();
  for (int round = 0; round < 2; round++, change(a))
    for (int64_t i = 0; i < d.n; i++) {
      const int64_t n = pd_document_tokens(a, &d, d.starts[i]);
      if (n < 1 || n > d.context + 1 || n > a->rows - d.starts[i]) abort();
    }
  free(d.starts);
}

/* Chosen columns must be columns of the table, also after the file has changed. */
static void choose_columns(const struct pd_array *a) {
  const struct pd_input inputs[] = {
      {.name = "x", .rank = 1, .elements = 2, .dim = {2}},
      {.name = "y", .rank = 1, .elements = 1, .dim = {1}, .token = true, .classes = 3}};
  for (int named = 0; named < 2; named++) {
    const struct pd_takers takers = {inputs, 2, named};
    struct pd_table t;
    int64_t column[2];
    char names[20];
    if (!pd_table_open(a, &t, why)) continue;
    change(a);
    for (int i = 0; i < 2; i++)
      if (pd_table_choose(&takers, i, a, &t, column, why))
        for (int64_t k = 0; k < inputs[i].elements; k++)
          if (column[k] < 0 || column[k] >= t.csv.columns) abort();
    if (t.names) pd_table_names(&t, NULL, t.csv.columns, names, sizeof names);
    pd_table_close(&t);
  }
}

static void read_table(const struct pd_array *a) {
  enum { MOST = 4 };
  struct pd_csv csv;
  int64_t column[MOST];
  if (!pd_parse_csv(a, &csv, why)) {
    refused();
    return;
  }
  if (csv.columns < 1 || csv.rows < 1 || csv.rows > (int64_t)a->size) abort();
  struct pd_csv_name *names = calloc((size_t)csv.columns, sizeof *names);
  if (csv.named && pd_csv_names(a, &csv, names, why))
    for (int64_t i = 0; i < csv.columns; i++)
      if (names[i].at < a->map || names[i].n > (size_t)(a->map + a->size - names[i].at)) abort();
  free(names);
  int64_t n = csv.columns < MOST ? csv.columns : MOST;
  for (int64_t i = 0; i < n; i++) column[i] = i;
  int32_t *to = malloc(sizeof *to * (size_t)(csv.rows * n));
  for (int round = 0; round < 4; round++) {
    if (round == 2) change(a);
    *why = 0;
    if (!pd_read_csv(a, &csv, column, n, round % 2, to, why)) refused();
  }
  free(to);
}

/* Samples must lie within the file, and be the same again. */
static void read_tar(const struct pd_array *a) {
  enum { ROOM = 64 };
  struct pd_tar_sample s[ROOM];
  struct pd_tar_ignored ignored;
  int64_t n = pd_tar_samples(a, NULL, 0, &ignored, why);
  if (n < 0) refused();
  if (pd_tar_samples(a, s, ROOM, &ignored, why) != n) abort();
  for (int64_t i = 0; i < n && i < ROOM; i++)
    if (!s[i].name || s[i].at > a->size || s[i].bytes > a->size - s[i].at || s[i].label < -1) abort();
  change(a);
  pd_tar_samples(a, s, ROOM, &ignored, why);
}

/* Images are in order, without doubles, and their classes in range. */
static void read_zip(const struct pd_array *a) {
  struct pd_zip_images z;
  for (int round = 0; round < 2; round++, change(a)) {
    const bool ok = pd_zip_images(a, &z, why);
    if (!ok) refused();
    for (int64_t i = 0; i < z.n && ok; i++) {
      const struct pd_zip_image *m = &z.image[i];
      const char *bytes;
      char *owned;
      if (m->label < (z.n_classes ? 0 : -1) || (z.n_classes && m->label >= z.n_classes)) abort();
      if (i && z.n_classes && m->label < m[-1].label) abort();
      if (strlen(m->name) < z.root) abort();
      if (m->entry.size > 1 << 20) continue;
      const bool whole = pd_zip_unpack(a, &m->entry, m->name, &bytes, &owned, why);
      if (!whole && owned) abort();                                                           /* callers free it */
      if (whole && m->entry.size && bytes[0] == 1 && bytes[m->entry.size - 1] == 2) *why = 1; /* reads both ends */
      free(owned);
    }
    pd_zip_images_free(&z);
  }
}

/* An array of an archive, unpacked if it is small; the caller frees *unpacked. */
static bool open_member(struct pd_array *a, char **unpacked) {
  struct pd_zip_entry e;
  if (!pd_npz_find(a, "x", true, &e, why) || !pd_npz_open(a, &e, why)) return false;
  if (e.method == PD_ZIP_DEFLATED) {
    if (e.size > 1 << 20) return pd_refuse(why, "large");
    *unpacked = malloc(e.size ? e.size : 1);
    if (!pd_npz_unpack(a, &e, *unpacked, why)) return false;
  }
  return pd_parse_npy(a, why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  char *file = malloc(size - 1); /* a separate allocation, so that the sanitizer detects reads past its end */
  memcpy(file, data + 1, size - 1);
  char *unpacked = NULL;
  struct pd_array a = {.path = "fuzz", .map = file, .size = size - 1};
  bool ok = true;
  *why = 0;
  if (!pd_refuse_foreign(&a, why)) refused();
  *why = 0;
  switch (data[0]) {
  case 'n': ok = pd_parse_npy(&a, why); break;
  case 'i': ok = pd_parse_idx(&a, why); break;
  case 'c': ok = pd_parse_cifar(&a, false, why); break;
  case 'l': ok = pd_parse_cifar(&a, true, why); break;
  case 's': ok = pd_parse_shard(&a, why); break;
  case 'w': ok = pd_parse_tokens(&a, 2, why); break;
  case 'a':
    read_tar(&a);
    ok = pd_refuse(why, "no array");
    break;
  case 'p':
    read_zip(&a);
    ok = pd_refuse(why, "no array");
    break;
  case 'v':
    read_table(&a);
    choose_columns(&a);
    ok = pd_refuse(why, "no array");
    break;
  case 'z':
    pd_npz_arrays(&a, NULL, 0, why);
    ok = open_member(&a, &unpacked);
    break;
  default: pd_parse_bytes(&a); read_lines(&a, data[0] == 't');
  }
  if (ok) {
    read_documents(&a);
    read_rows(&a);
  }
  if (!ok) refused();
  free(unpacked);
  free(file);
  return 0;
}
