/* Columns of tables for inputs. Of a file with names, an input of one element takes the column of its name, and one other
 * input all columns that are left. Of a file without names, inputs take columns in the order of their declarations. */
#include "data/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
  struct pd_csv csv;
  struct pd_csv_name *names; /* by column; NULL: the file has none */
};

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
  const struct pd_csv_name *x = a, *y = b;
  const int order = memcmp(x->at, y->at, x->n < y->n ? x->n : y->n);
  return order ? order : (x->n > y->n) - (x->n < y->n);
}

static bool read_names(const struct pd_array *a, struct table *t, char *why) {
  const size_t n = (size_t)t->csv.columns;
  t->names = NULL;
  if (!t->csv.named) return true;
  t->names = pd_allocate(sizeof *t->names * n);
  if (!pd_csv_names(a, &t->csv, t->names, why)) return false;
  struct pd_csv_name *sorted = pd_allocate(sizeof *sorted * n);
  memcpy(sorted, t->names, sizeof *sorted * n);
  qsort(sorted, n, sizeof *sorted, compare_names);
  for (size_t i = 1; i < n; i++)
    if (!compare_names(&sorted[i - 1], &sorted[i]))
      return pd_refuse(why, "'%s' has two columns with the name '%.*s'. help: give each column its own name",
                       a->path, sorted[i].n < 100 ? (int)sorted[i].n : 100, sorted[i].at);
  free(sorted);
  return true;
}

/* The column of the input's name; -1: none. */
static int64_t own_column(const struct table *t, const struct pd_input *in) {
  const struct pd_csv_name name = {in->name, strlen(in->name)};
  for (int64_t i = 0; t->names && i < t->csv.columns; i++)
    if (!compare_names(&t->names[i], &name)) return i;
  return -1;
}

/* Writes names of the columns, of all if `column` is NULL, with ", " between; the end may be cut off. */
static void list_names(const struct table *t, const int64_t *column, int64_t n, char *to, size_t room) {
  size_t used = 0;
  *to = 0;
  for (int64_t i = 0; i < n && used + 1 < room; i++) {
    const struct pd_csv_name *name = &t->names[column ? column[i] : i];
    used += (size_t)snprintf(to + used, room - used, "%s%.*s", i ? ", " : "", (int)name->n, name->at);
  }
  if (used >= room && room > 4) strcpy(to + room - 4, "...");
}

static char *taken_names(const struct table *t, const int64_t *column, int64_t n) {
  size_t room = 1;
  for (int64_t i = 0; i < n; i++) room += t->names[column[i]].n + 2;
  char *text = pd_allocate(room);
  list_names(t, column, n, text, room);
  return text;
}

bool pd_same_columns(const struct part *a, const struct part *b, const char *input, char *why) {
  return !a->columns || !b->columns || !strcmp(a->columns, b->columns) ||
         pd_refuse(
             why,
             "'%s' takes the columns '%.200s' of '%s', but '%.200s' of '%s'. help: give all files the same names "
             "of columns in the same order",
             input, a->columns, a->array.path, b->columns, b->array.path);
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* Whether the input takes the column of its name. */
static bool takes_own(const struct pd_files *d, int i, const struct table *t) {
  return pd_has_files(d, i) && d->inputs[i].elements == 1 && own_column(t, &d->inputs[i]) >= 0;
}

static bool refuse_columns(const struct pd_array *a, const struct table *t, const struct pd_input *in, int64_t n,
                           const char *which, char *why) {
  char names[256] = "";
  if (t->names) list_names(t, NULL, t->csv.columns, names, sizeof names);
  return pd_refuse(why, "'%s' has %lld column%s%s, but '%s' takes %lld number%s%s%s", a->path, (long long)n,
                   n == 1 ? "" : "s", which, in->name, (long long)in->elements, in->elements == 1 ? "" : "s",
                   t->names ? ". Its columns are " : "", names);
}

/* Columns without the name of an input, for the input `index`. A target that is not read keeps its column. */
static bool choose_rest(const struct pd_files *d, int index, const struct pd_array *a, const struct table *t,
                        int64_t *column, char *why) {
  const struct pd_input *in = &d->inputs[index];
  char *taken = pd_allocate((size_t)t->csv.columns), names[256];
  int64_t n = 0;
  for (int i = 0; i < d->n_inputs; i++) {
    const int64_t own = own_column(t, &d->inputs[i]);
    if (own >= 0 && i != index) taken[own] = 1;
    if (i == index || !pd_has_files(d, i) || takes_own(d, i, t)) continue;
    list_names(t, NULL, t->csv.columns, names, sizeof names);
    return pd_refuse(
        why,
        "'%s' has no columns '%s' and '%s'. Its columns are %s. help: only one input may take the columns "
        "without an input's name",
        a->path, d->inputs[i < index ? i : index].name, d->inputs[i < index ? index : i].name, names);
  }
  for (int64_t i = 0; i < t->csv.columns; i++)
    if (!taken[i] && n++ < in->elements) column[n - 1] = i;
  free(taken);
  return n == in->elements || refuse_columns(a, t, in, n, " without the name of another input", why);
}

/* All columns of the file of NAME=PATH. */
static bool choose_all(const struct pd_files *d, int index, const struct pd_array *a, const struct table *t,
                       int64_t *column, char *why) {
  const struct pd_input *in = &d->inputs[index];
  for (int64_t i = 0; i < in->elements; i++) column[i] = i;
  if (t->csv.columns != in->elements) return refuse_columns(a, t, in, t->csv.columns, "", why);
  for (int i = 0; i < d->n_inputs; i++)
    if (i != index && own_column(t, &d->inputs[i]) >= 0)
      return pd_refuse(why, "'%s' for '%s' has a column with the name of '%s'. help: remove or rename the column",
                       a->path, in->name, d->inputs[i].name);
  return true;
}

static bool choose_in_order(const struct pd_files *d, int index, const struct pd_array *a, const struct table *t,
                            int64_t *column, char *why) {
  int64_t first = 0, all = 0;
  for (int i = 0; i < d->n_inputs; i++) {
    if (i == index) first = all;
    if (pd_has_files(d, i)) all += d->inputs[i].elements;
  }
  for (int64_t i = 0; i < d->inputs[index].elements; i++) column[i] = first + i;
  return all == t->csv.columns ||
         pd_refuse(why,
                   "'%s' has %lld columns, but the inputs and targets take %lld numbers. help: add a first line "
                   "with the names of inputs",
                   a->path, (long long)t->csv.columns, (long long)all);
}

static bool choose(const struct pd_files *d, int index, const struct pd_array *a, const struct table *t,
                   int64_t *column, char *why) {
  if (d->named) return choose_all(d, index, a, t, column, why);
  if (!t->names) return choose_in_order(d, index, a, t, column, why);
  if (!takes_own(d, index, t)) return choose_rest(d, index, a, t, column, why);
  *column = own_column(t, &d->inputs[index]);
  return true;
}

/* Notes, for the first input, columns that no input takes. */
static void note_unused(const struct pd_files *d, int index, const struct pd_array *a, const struct pd_csv *csv) {
  int64_t used = 0;
  int first = -1;
  for (int i = 0; i < d->n_inputs; i++) {
    if (!pd_has_files(d, i)) continue;
    if (first < 0) first = i;
    used += d->inputs[i].elements;
  }
  if (index == first && !d->named && csv->named && used < csv->columns)
    pd_note("'%s': %lld of %lld columns are ignored: no input has their names", a->path,
            (long long)(csv->columns - used), (long long)csv->columns);
}

bool pd_open_table(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  struct pd_array *a = &p->array;
  struct table t;
  const struct pd_csv *csv = &t.csv;
  const int index = (int)(in - d->inputs);
  if (!pd_parse_csv(a, &t.csv, why) || !read_names(a, &t, why)) return false;
  int64_t *column = pd_allocate(sizeof *column * (size_t)in->elements);
  if (!choose(d, index, a, &t, column, why)) return false;
  note_unused(d, index, a, csv);
  const double gib = (double)csv->rows * (double)in->elements * 4 / (1 << 30),
               room = (double)pd_memory_room() / (1 << 30);
  if (gib > room)
    return pd_refuse(why,
                     "'%s' takes %.1f GiB in every rank's memory for '%s', but this rank has %.1f GiB left. help: "
                     "write its columns with numpy.save",
                     a->path, gib, in->name, room);
  const size_t bytes = sizeof(float) * (size_t)(csv->rows * in->elements);
  void *numbers = pd_allocate(bytes);
  if (!pd_read_csv(a, csv, column, in->elements, in->token, numbers, why)) return false;
  if (t.names) p->columns = taken_names(&t, column, in->elements);
  free(t.names);
  free(column);
  a->map = numbers;
  a->size = bytes;
  a->first = 0;
  a->type = in->token ? PD_TYPE_I32 : PD_TYPE_F32;
  a->rows = csv->rows;
  a->row = in->elements;
  a->stride = (int64_t)sizeof(float) * in->elements;
  a->rank = in->rank;
  memcpy(a->dim, in->dim, sizeof a->dim);
  return true;
}
