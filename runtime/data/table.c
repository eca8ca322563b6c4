/* Columns of tables for inputs. Of a file with names, an input of one element takes the column of its name, and one other
 * input all columns that are left. Of a file without names, inputs take columns in the order of their declarations. */
#include "data/parts.h"

#include <stdlib.h>
#include <string.h>

/* Whether the input takes the column of its name. */
static bool takes_own(const struct pd_files *d, int i, const struct pd_array *a, const struct pd_csv *csv) {
  return pd_has_files(d, i) && d->inputs[i].elements == 1 && pd_csv_column(a, csv, d->inputs[i].name) >= 0;
}

static bool refuse_columns(const struct pd_array *a, const struct pd_input *in, int64_t n, const char *which,
                           char *why) {
  return pd_refuse(why, "'%s' has %lld column%s%s, but '%s' takes %lld number%s", a->path, (long long)n,
                   n == 1 ? "" : "s", which, in->name, (long long)in->elements, in->elements == 1 ? "" : "s");
}

/* Columns that are left by the inputs of one element, for the input `index`. */
static bool choose_rest(const struct pd_files *d, int index, const struct pd_array *a, const struct pd_csv *csv,
                        int64_t *column, char *why) {
  const struct pd_input *in = &d->inputs[index];
  char *taken = pd_allocate((size_t)csv->columns);
  int64_t n = 0;
  for (int i = 0; i < d->n_inputs; i++) {
    if (takes_own(d, i, a, csv))
      taken[pd_csv_column(a, csv, d->inputs[i].name)] = 1;
    else if (pd_has_files(d, i) && i != index)
      return pd_refuse(why,
                       "'%s' has no columns '%s' and '%s'. help: only one input may take the columns without an "
                       "input's name",
                       a->path, d->inputs[i < index ? i : index].name, d->inputs[i < index ? index : i].name);
  }
  for (int64_t i = 0; i < csv->columns; i++)
    if (!taken[i] && n++ < in->elements) column[n - 1] = i;
  free(taken);
  return n == in->elements || refuse_columns(a, in, n, " without the name of another input", why);
}

static bool choose_in_order(const struct pd_files *d, int index, const struct pd_array *a,
                            const struct pd_csv *csv, int64_t *column, char *why) {
  int64_t first = 0, all = 0;
  for (int i = 0; i < d->n_inputs; i++) {
    if (i == index) first = all;
    if (pd_has_files(d, i)) all += d->inputs[i].elements;
  }
  for (int64_t i = 0; i < d->inputs[index].elements; i++) column[i] = first + i;
  return all == csv->columns ||
         pd_refuse(why,
                   "'%s' has %lld columns, but the inputs and targets take %lld numbers. help: add a first line "
                   "with the names of inputs",
                   a->path, (long long)csv->columns, (long long)all);
}

static bool choose(const struct pd_files *d, int index, const struct pd_array *a, const struct pd_csv *csv,
                   int64_t *column, char *why) {
  const struct pd_input *in = &d->inputs[index];
  if (d->named) {
    for (int64_t i = 0; i < in->elements; i++) column[i] = i;
    return csv->columns == in->elements || refuse_columns(a, in, csv->columns, "", why);
  }
  if (!csv->named) return choose_in_order(d, index, a, csv, column, why);
  if (!takes_own(d, index, a, csv)) return choose_rest(d, index, a, csv, column, why);
  *column = pd_csv_column(a, csv, in->name);
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
  struct pd_csv csv;
  const int index = (int)(in - d->inputs);
  if (!pd_parse_csv(a, &csv, why)) return false;
  int64_t *column = pd_allocate(sizeof *column * (size_t)in->elements);
  if (!choose(d, index, a, &csv, column, why)) return false;
  note_unused(d, index, a, &csv);
  const double gib = (double)csv.rows * (double)in->elements * 4 / (1 << 30),
               room = (double)pd_memory_room() / (1 << 30);
  if (gib > room)
    return pd_refuse(why,
                     "'%s' takes %.1f GiB in every rank's memory for '%s', but this rank has %.1f GiB left. help: "
                     "write its columns with numpy.save",
                     a->path, gib, in->name, room);
  const size_t bytes = sizeof(float) * (size_t)(csv.rows * in->elements);
  void *numbers = pd_allocate(bytes);
  if (!pd_read_csv(a, &csv, column, in->elements, in->token, numbers, why)) return false;
  free(column);
  a->map = numbers;
  a->size = bytes;
  a->first = 0;
  a->type = in->token ? PD_TYPE_I32 : PD_TYPE_F32;
  a->rows = csv.rows;
  a->row = in->elements;
  a->stride = (int64_t)sizeof(float) * in->elements;
  a->rank = in->rank;
  memcpy(a->dim, in->dim, sizeof a->dim);
  return true;
}
