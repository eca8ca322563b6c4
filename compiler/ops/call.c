/* Builds the description of a call. */
#include "ops/call.h"

#include <string.h>

Axes merge_axes(const Place *const *place, int places, int dims, const int64_t *dim) {
  Axes a = {0};
  for (int i = 0; i < dims; i++) {
    int64_t stride[MAX_PLACES] = {0};
    if (dim[i] == 1)
      continue;
    bool merges = a.n > 0;
    for (int j = 0; j < places; j++) {
      stride[j] = place[j] ? place[j]->stride[i] : 0;
      merges = merges && a.stride[a.n - 1][j] == stride[j] * dim[i];
    }
    if (merges) {
      a.count[a.n - 1] *= dim[i];
    } else {
      a.count[a.n] = dim[i];
      a.n++;
    }
    memcpy(a.stride[a.n - 1], stride, sizeof stride);
  }
  return a;
}

void move_axis_last(Axes *a, int axis) {
  int64_t count = a->count[axis], stride[MAX_PLACES];
  memcpy(stride, a->stride[axis], sizeof stride);
  for (int i = axis; i + 1 < a->n; i++) {
    a->count[i] = a->count[i + 1];
    memcpy(a->stride[i], a->stride[i + 1], sizeof stride);
  }
  a->count[a->n - 1] = count;
  memcpy(a->stride[a->n - 1], stride, sizeof stride);
}

int64_t take_axis(Axes *a, int64_t stride[MAX_PLACES]) {
  memset(stride, 0, MAX_PLACES * sizeof *stride);
  if (a->n == 0)
    return 1;
  a->n--;
  memcpy(stride, a->stride[a->n], MAX_PLACES * sizeof *stride);
  return a->count[a->n];
}

void field_int(Call *c, const char *name, int64_t value) {
  push(&c->fields, (Field){.kind = FIELD_INT, .name = name, .value = value});
}

void field_bool(Call *c, const char *name, bool value) {
  push(&c->fields, (Field){.kind = FIELD_BOOL, .name = name, .value = value});
}

void field_float(Call *c, const char *name, double value) {
  push(&c->fields, (Field){.kind = FIELD_FLOAT, .name = name, .number = value});
}

void field_list(Call *c, const char *name, int n, const int64_t *list) { field_struct(c, name, n, NULL, list); }

void field_struct(Call *c, const char *name, int n, const char *const *member, const int64_t *list) {
  Field f = {.kind = FIELD_LIST, .name = name, .n = n, .member = member};
  ensure(n <= MAX_DIM);
  memcpy(f.list, list, (size_t)n * sizeof *list);
  push(&c->fields, f);
}

void field_name(Call *c, const char *name, const char *text) {
  push(&c->fields, (Field){.kind = FIELD_NAME, .name = name, .text = text});
}

void field_type(Call *c, const char *name, bool bf16) {
  if (bf16)
    field_name(c, name, "PD_BF16");
}

void pass_object(Call *c) { push(&c->arguments, (Argument){.kind = ARGUMENT_OBJECT}); }

void pass_place(Call *c, const Place *place) { pass_moving(c, place, -1); }

void pass_moving(Call *c, const Place *place, int moves) {
  push(&c->arguments, (Argument){.kind = ARGUMENT_PLACE, .place = place, .moves = moves});
}

void pass_null(Call *c) { push(&c->arguments, (Argument){.kind = ARGUMENT_NULL}); }

void pass_int(Call *c, int64_t value) { push(&c->arguments, (Argument){.kind = ARGUMENT_INT, .value = value}); }

void pass_shard(Call *c, int64_t value) {
  push(&c->arguments, (Argument){.kind = ARGUMENT_SHARD, .value = value});
}

void pass_first(Call *c) { push(&c->arguments, (Argument){.kind = ARGUMENT_FIRST}); }

void pass_scratch(Call *c) { push(&c->arguments, (Argument){.kind = ARGUMENT_SCRATCH}); }
