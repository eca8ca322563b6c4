/* `pdc data --show` of numbers: .npy and idx files, archives without samples of tokens, tables. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenize/internal.h"

typedef struct Range {
  double least, most, sum;
  int64_t n, not_finite;
} Range;

static void add_number(Range *r, double x) {
  if (!isfinite(x)) {
    r->not_finite++;
    return;
  }
  r->least = r->n && r->least < x ? r->least : x;
  r->most = r->n && r->most > x ? r->most : x;
  r->sum += x;
  r->n++;
}

static void add_array(DataView *v, const char *name, const char *type, const Range *r) {
  push(&v->arrays, ((DataArray){name, type, r->least, r->most, r->n ? r->sum / (double)r->n : 0, r->not_finite}));
}

/* ---- arrays -------------------------------------------------------------------------------------- */

static const char *type_of(const struct pd_array *a) {
  static const char *const names[] = {
      [PD_TYPE_U8] = "u1",  [PD_TYPE_U16] = "u2", [PD_TYPE_U32] = "u4", [PD_TYPE_I32] = "i4",
      [PD_TYPE_I64] = "i8", [PD_TYPE_F32] = "f4", [PD_TYPE_F64] = "f8", [PD_TYPE_F16] = "f2"};
  const char *text = format("%s", names[a->type]);
  for (int i = 0; i < a->rank; i++)
    text = format("%s%s%" PRId64 "%s", text, i ? ", " : "[", a->dim[i], i + 1 == a->rank ? "]" : "");
  return text;
}

static bool add_numbers(DataView *v, const char *name, const struct pd_array *a, char *why) {
  Range r = {0};
  float *row = pd_is_float(a->type) ? malloc(sizeof *row * (size_t)(a->row + 1)) : NULL;
  struct pd_array plain = *a;
  plain.pixels = false;
  if (pd_is_float(a->type) && !row)
    return pd_refuse(why, "'%s': no memory for a row of %" PRId64 " numbers", a->path, a->row);
  for (int64_t k = 0; k < a->rows; k++) {
    if (row)
      pd_read_numbers(&plain, k, 1, row);
    for (int64_t i = 0; i < a->row; i++)
      add_number(&r, row ? (double)row[i] : (double)pd_whole_number(a, k, i));
  }
  free(row);
  add_array(v, name, type_of(a), &r);
  return true;
}

bool view_array(DataView *v, const struct pd_array *a, char *why) {
  v->kind = DATA_ARRAYS;
  v->rows = a->rows;
  return add_numbers(v, NULL, a, why);
}

bool view_archive(DataView *v, const struct pd_array *archive, char *why) {
  enum { MOST = 64 };
  struct pd_zip_entry e[MOST];
  const int n = pd_npz_arrays(archive, e, MOST, why);
  bool good = n >= 0;
  v->kind = DATA_ARRAYS;
  for (int i = 0; i < n && i < MOST && good; i++) {
    const char *name = format("%.*s", e[i].name_length, e[i].name);
    struct pd_array a = *archive;
    void *unpacked = NULL;
    good = open_npz_array(&a, name, &unpacked, why) && add_numbers(v, name, &a, why);
    free(unpacked);
    if (good && i && a.rows != v->rows)
      good = pd_refuse(why, "'%s': '%s' has %" PRId64 " rows, and '%s' %" PRId64, a.path, v->arrays.at[0].name,
                       v->rows, name, a.rows);
    v->rows = a.rows;
  }
  return good;
}

/* ---- tables -------------------------------------------------------------------------------------- */

static bool view_column(DataView *v, const struct pd_array *a, const struct pd_csv *csv, int64_t column,
                        const char *name, float *to) {
  char cause[PD_WHY];
  Range r = {0};
  const bool numbers = pd_read_csv(a, csv, &column, 1, false, to, cause);
  for (int64_t i = 0; i < csv->rows && numbers; i++)
    add_number(&r, (double)to[i]);
  add_array(v, name, numbers ? "number" : NULL, &r);
  return numbers;
}

bool view_table(DataView *v, const struct pd_array *a, char *why) {
  struct pd_csv csv;
  if (!pd_parse_csv(a, &csv, why))
    return false;
  struct pd_csv_name *names = calloc((size_t)csv.columns + 1, sizeof *names);
  float *column = malloc(sizeof *column * (size_t)(csv.rows + 1));
  bool good = (names && column) || pd_refuse(why, "no memory for the table '%s'", a->path);
  good = good && (!csv.named || pd_csv_names(a, &csv, names, why));
  v->kind = DATA_ARRAYS;
  v->rows = csv.rows;
  for (int64_t i = 0; i < csv.columns && good; i++)
    view_column(v, a, &csv, i,
                csv.named ? format("%.*s", (int)names[i].n, names[i].at) : format("column %" PRId64, i + 1),
                column);
  free(names);
  free(column);
  return good;
}
