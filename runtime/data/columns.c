/* Columns of tables for inputs. Of a file with names, an input of one element takes the column of its name, and one other
 * input all columns that are left. Of a file without names, inputs take columns in the order of their declarations. */
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
  const struct pd_csv_name *x = a, *y = b;
  const int order = memcmp(x->at, y->at, x->n < y->n ? x->n : y->n);
  return order ? order : (x->n > y->n) - (x->n < y->n);
}

static bool read_names(const struct pd_array *a, struct pd_table *t, char *why) {
  const size_t n = (size_t)t->csv.columns;
  struct pd_csv_name *sorted = calloc(n, sizeof *sorted);
  t->names = calloc(n, sizeof *t->names);
  bool good = (sorted && t->names) || pd_refuse(why, "no memory for the names of '%s'", a->path);
  good = good && pd_csv_names(a, &t->csv, t->names, why);
  if (good) {
    memcpy(sorted, t->names, sizeof *sorted * n);
    qsort(sorted, n, sizeof *sorted, compare_names);
  }
  for (size_t i = 1; i < n && good; i++)
    if (!compare_names(&sorted[i - 1], &sorted[i]))
      good = pd_refuse(why, "'%s' has two columns with the name '%.*s'. help: give each column its own name",
                       a->path, sorted[i].n < 100 ? (int)sorted[i].n : 100, sorted[i].at);
  free(sorted);
  return good;
}

bool pd_table_open(const struct pd_array *a, struct pd_table *t, char *why) {
  *t = (struct pd_table){0};
  if (pd_parse_csv(a, &t->csv, why) && (!t->csv.named || read_names(a, t, why))) return true;
  pd_table_close(t);
  return false;
}

void pd_table_close(struct pd_table *t) {
  free(t->names);
  t->names = NULL;
}

/* The column of the input's name; -1: none. */
static int64_t own_column(const struct pd_table *t, const struct pd_input *in) {
  const struct pd_csv_name name = {in->name, strlen(in->name)};
  for (int64_t i = 0; t->names && i < t->csv.columns; i++)
    if (!compare_names(&t->names[i], &name)) return i;
  return -1;
}

void pd_table_names(const struct pd_table *t, const int64_t *column, int64_t n, char *to, size_t room) {
  size_t used = 0;
  *to = 0;
  for (int64_t i = 0; i < n && used + 1 < room; i++) {
    const struct pd_csv_name *name = &t->names[column ? column[i] : i];
    used += (size_t)snprintf(to + used, room - used, "%s%.*s", i ? ", " : "", (int)name->n, name->at);
  }
  if (used >= room && room > 4) strcpy(to + room - 4, "...");
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* Derived inputs take no columns. */
static bool takes(const struct pd_takers *d, int i) { return !pd_is_derived(&d->inputs[i]); }

/* Whether the input takes the column of its name. */
static bool takes_own(const struct pd_takers *d, int i, const struct pd_table *t) {
  return takes(d, i) && d->inputs[i].elements == 1 && own_column(t, &d->inputs[i]) >= 0;
}

static bool refuse_columns(const struct pd_array *a, const struct pd_table *t, const struct pd_input *in,
                           int64_t n, const char *which, char *why) {
  char names[256] = "";
  if (t->names) pd_table_names(t, NULL, t->csv.columns, names, sizeof names);
  return pd_refuse(why, "'%s' has %lld column%s%s, but '%s' takes %lld number%s%s%s", a->path, (long long)n,
                   n == 1 ? "" : "s", which, in->name, (long long)in->elements, in->elements == 1 ? "" : "s",
                   t->names ? ". Its columns are " : "", names);
}

/* Whether this is the name of an input other than `index`. */
static bool is_of_another(const struct pd_takers *d, int index, const struct pd_csv_name *name) {
  for (int i = 0; i < d->n; i++) {
    const struct pd_csv_name own = {d->inputs[i].name, strlen(d->inputs[i].name)};
    if (i != index && !compare_names(&own, name)) return true;
  }
  return false;
}

/* Columns without the name of an input, for the input `index`. A target that is not read keeps its column. */
static bool choose_rest(const struct pd_takers *d, int index, const struct pd_array *a, const struct pd_table *t,
                        int64_t *column, char *why) {
  const struct pd_input *in = &d->inputs[index];
  char names[256];
  int64_t n = 0;
  for (int i = 0; i < d->n; i++) {
    if (i == index || !takes(d, i) || takes_own(d, i, t)) continue;
    pd_table_names(t, NULL, t->csv.columns, names, sizeof names);
    return pd_refuse(
        why,
        "'%s' has no columns '%s' and '%s'. Its columns are %s. help: only one input may take the columns "
        "without an input's name",
        a->path, d->inputs[i < index ? i : index].name, d->inputs[i < index ? index : i].name, names);
  }
  for (int64_t i = 0; i < t->csv.columns; i++)
    if (!is_of_another(d, index, &t->names[i]) && n++ < in->elements) column[n - 1] = i;
  return n == in->elements || refuse_columns(a, t, in, n, " without the name of another input", why);
}

/* All columns of the file of NAME=PATH. */
static bool choose_all(const struct pd_takers *d, int index, const struct pd_array *a, const struct pd_table *t,
                       int64_t *column, char *why) {
  const struct pd_input *in = &d->inputs[index];
  for (int64_t i = 0; i < in->elements; i++) column[i] = i;
  if (t->csv.columns != in->elements) return refuse_columns(a, t, in, t->csv.columns, "", why);
  for (int i = 0; i < d->n; i++)
    if (i != index && own_column(t, &d->inputs[i]) >= 0)
      return pd_refuse(why, "'%s' for '%s' has a column with the name of '%s'. help: remove or rename the column",
                       a->path, in->name, d->inputs[i].name);
  return true;
}

static bool choose_in_order(const struct pd_takers *d, int index, const struct pd_array *a,
                            const struct pd_table *t, int64_t *column, char *why) {
  int64_t first = 0, all = 0;
  for (int i = 0; i < d->n; i++) {
    if (i == index) first = all;
    if (takes(d, i)) all += d->inputs[i].elements;
  }
  for (int64_t i = 0; i < d->inputs[index].elements; i++) column[i] = first + i;
  return all == t->csv.columns ||
         pd_refuse(why,
                   "'%s' has %lld columns, but the inputs and targets take %lld numbers. help: add a first line "
                   "with the names of inputs",
                   a->path, (long long)t->csv.columns, (long long)all);
}

bool pd_table_choose(const struct pd_takers *d, int index, const struct pd_array *a, const struct pd_table *t,
                     int64_t *column, char *why) {
  if (d->named) return choose_all(d, index, a, t, column, why);
  if (!t->names) return choose_in_order(d, index, a, t, column, why);
  if (!takes_own(d, index, t)) return choose_rest(d, index, a, t, column, why);
  *column = own_column(t, &d->inputs[index]);
  return true;
}
