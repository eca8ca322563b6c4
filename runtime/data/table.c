/* Reads the columns of tables that inputs take (columns.c) into memory. */
#include "data/parts.h"

#include <stdlib.h>
#include <string.h>

static char *taken_names(const struct pd_table *t, const int64_t *column, int64_t n) {
  size_t room = 1;
  for (int64_t i = 0; i < n; i++) room += t->names[column[i]].n + 2;
  char *text = pd_allocate(room);
  pd_table_names(t, column, n, text, room);
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
  struct pd_table t;
  const struct pd_csv *csv = &t.csv;
  const struct pd_takers takers = {d->inputs, d->n_inputs, d->named};
  const int index = (int)(in - d->inputs);
  if (!pd_table_open(a, &t, why)) return false;
  int64_t *column = pd_allocate(sizeof *column * (size_t)in->elements);
  if (!pd_table_choose(&takers, index, a, &t, column, why)) return false;
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
  pd_table_close(&t);
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
