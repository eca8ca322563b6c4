/* Training data, memory-mapped. Token files (text, llm.c shards) are one run of tokens, cut into windows
 * of context + 1 at a stride of context; .npy arrays hold one input each, a sample a row. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pd_dataset *pd_training_data, *pd_validation_data;

enum element { U8, U16, U32, I32, I64, F32, F64 };
static const int element_bytes[] = {1, 2, 4, 4, 8, 4, 8};

struct file {
  const char *path;
  const char *map, *elements; /* the whole file; its first element */
  size_t size;
  enum element type;
  int64_t first, n; /* tokens in the files before; elements here */
  int64_t row;      /* .npy: elements a sample */
};

struct pd_dataset {
  const struct pd_input *inputs;
  int n_inputs, n_files;
  struct file *files;
  bool arrays;
  int64_t context, tokens, samples;
};

/* ---- files ----------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

/* llm.c's shards: 256 int32 of header (magic, version, count), then the tokens. GPT-2's are uint16,
 * version 1; Llama 3's have a magic of their own, version 7 and uint32. */
static bool open_shard(struct file *f, char *why) {
  enum { HEADER = 256 * 4, GPT2 = 20240520, LLAMA3 = 20240801 };
  int32_t head[3] = {0};
  if (f->size >= HEADER) memcpy(head, f->map, sizeof head);
  if (head[0] != GPT2 && head[0] != LLAMA3)
    return pd_refuse(why, "'%s' is not an llm.c token file: it does not start with %d", f->path, GPT2);
  int version = head[0] == GPT2 ? 1 : 7;
  if (head[1] != version)
    return pd_refuse(why, "'%s' is an llm.c token file of version %d; version %d is known", f->path, head[1],
                     version);
  f->type = head[0] == GPT2 ? U16 : U32;
  f->elements = f->map + HEADER;
  f->n = (int64_t)(f->size - HEADER) / element_bytes[f->type];
  if (head[2] != f->n || (f->size - HEADER) % (size_t)element_bytes[f->type])
    return pd_refuse(why, "'%s' is cut short or damaged: its header says %d tokens, its size %lld", f->path,
                     head[2], (long long)f->n);
  return true;
}

static bool open_tokens(struct pd_dataset *d, char *why) {
  for (int i = 0; i < d->n_files; i++) {
    struct file *f = &d->files[i];
    if (!(f->map = pd_map_file(f->path, &f->size, why))) return false;
    if (ends_with(f->path, ".npy"))
      return pd_refuse(why, "'%s': .npy arrays and token files cannot be mixed", f->path);
    if (ends_with(f->path, ".bin")) {
      if (!open_shard(f, why)) return false;
    } else {
      f->type = U8;
      f->elements = f->map;
      f->n = (int64_t)f->size;
    }
    f->first = d->tokens;
    d->tokens += f->n;
  }
  for (int i = 0; i < d->n_inputs; i++) {
    const struct pd_input *in = &d->inputs[i];
    if (!in->token)
      return pd_refuse(
        why,
        "'%s' holds tokens, but '%s' takes numbers: give one .npy array for each of the %d inputs "
        "and targets",
        d->files[0].path, in->name, d->n_inputs);
    if (!in->target && in->elements > d->context) d->context = in->elements;
  }
  for (int i = 0; i < d->n_inputs; i++) /* a model may have targets alone */
    if (d->inputs[i].elements > d->context) d->context = d->inputs[i].elements;
  d->samples = d->context ? (d->tokens - 1) / d->context : 0;
  if (d->samples < 1)
    return pd_refuse(why, "'%s'%s hold%s %lld tokens; one window of context %lld needs %lld",
                     d->files[0].path, d->n_files > 1 ? " and the others" : "", d->n_files > 1 ? "" : "s",
                     (long long)d->tokens, (long long)d->context, (long long)d->context + 1);
  return true;
}

/* ---- .npy (numpy.lib.format, versions 1 to 3) ------------------------------------------------ */

/* The text behind 'key': in the header's dictionary, or NULL. */
static const char *npy_field(const char *header, const char *key) {
  const char *p = strstr(header, key);
  if (!p) return NULL;
  p = strchr(p, ':');
  if (!p) return NULL;
  do p++;
  while (*p == ' ');
  return p;
}

static bool npy_shape(const char *text, int *rank, int64_t *dim) {
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

static bool npy_type(const char *text, enum element *type) {
  static const struct {
    const char *code;
    enum element type;
  } types[] = {{"|u1", U8},  {"<u2", U16}, {"<u4", U32}, {"<i4", I32},
               {"<i8", I64}, {"<f4", F32}, {"<f8", F64}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (*text == '\'' && !strncmp(text + 1, types[i].code, 3) && text[4] == '\'') {
      *type = types[i].type;
      return true;
    }
  return false;
}

static bool open_npy(struct file *f, int64_t *rows, char *why) {
  size_t length = 0, start = 0;
  if (f->size >= 12 && !memcmp(f->map, "\x93NUMPY", 6)) {
    const unsigned char *u = (const unsigned char *)f->map;
    start = u[6] == 1 ? 10 : 12;
    length = (size_t)u[8] | (size_t)u[9] << 8;
    if (u[6] > 1) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
  }
  char header[1024] = "";
  if (!length || length >= sizeof header || start + length > f->size)
    return pd_refuse(why, "'%s' is not a .npy array", f->path);
  memcpy(header, f->map + start, length);
  const char *descr = npy_field(header, "'descr'"), *order = npy_field(header, "'fortran_order'"),
             *shape = npy_field(header, "'shape'");
  int rank = 0;
  int64_t dim[PD_MAX_RANK + 1];
  if (!descr || !order || !shape || !npy_shape(shape, &rank, dim))
    return pd_refuse(why, "'%s' is not a .npy array that can be read: %.200s", f->path, header);
  if (!npy_type(descr, &f->type))
    return pd_refuse(why, "'%s' holds elements of type %.8s; f4, f8, i4, i8, u1, u2 and u4 are known",
                     f->path, descr);
  if (rank < 1 || (rank > 1 && !strncmp(order, "True", 4)))
    return pd_refuse(why, "'%s' must hold samples along its first axis, in C order", f->path);
  f->elements = f->map + start + length;
  int64_t room = (int64_t)(f->size - start - length) / element_bytes[f->type];
  *rows = dim[0];
  f->row = 1;
  for (int i = 1; i < rank; i++)
    if (__builtin_mul_overflow(f->row, dim[i], &f->row)) f->row = INT64_MAX;
  if (__builtin_mul_overflow(f->row, *rows, &f->n) || f->n > room)
    return pd_refuse(why, "'%s' is cut short: it holds %lld elements of shape %.*s", f->path, (long long)room,
                     (int)(strchr(shape, ')') + 1 - shape), shape);
  return true;
}

static bool open_arrays(struct pd_dataset *d, char *why) {
  d->arrays = true;
  if (d->n_files != d->n_inputs)
    return pd_refuse(
      why, "the model has %d inputs and targets, each needs one .npy array in this order, but %d %s given",
      d->n_inputs, d->n_files, d->n_files == 1 ? "is" : "are");
  for (int i = 0; i < d->n_files; i++) {
    struct file *f = &d->files[i];
    const struct pd_input *in = &d->inputs[i];
    int64_t rows;
    f->map = pd_map_file(f->path, &f->size, why);
    if (!f->map || !open_npy(f, &rows, why)) return false;
    if (f->row != in->elements)
      return pd_refuse(why, "'%s' holds %lld elements a sample, but '%s' takes %lld", f->path,
                       (long long)f->row, in->name, (long long)in->elements);
    if (in->token && (f->type == F32 || f->type == F64))
      return pd_refuse(why, "'%s' holds floating-point numbers, but '%s' takes tokens", f->path, in->name);
    if (i && rows != d->samples)
      return pd_refuse(why, "'%s' holds %lld samples, but '%s' holds %lld", f->path, (long long)rows,
                       d->files[0].path, (long long)d->samples);
    d->samples = rows;
  }
  if (d->samples < 1) return pd_refuse(why, "'%s' holds no sample", d->files[0].path);
  return true;
}

/* ---- elements -------------------------------------------------------------------------------- */

static int64_t integer_at(const struct file *f, int64_t i) {
  const char *p = f->elements + i * element_bytes[f->type]; /* .npy headers may leave it unaligned */
  union {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    int32_t i32;
    int64_t i64;
  } x;
  memcpy(&x, p, (size_t)element_bytes[f->type]);
  switch (f->type) {
  case U8: return x.u8;
  case U16: return x.u16;
  case U32: return x.u32;
  case I32: return x.i32;
  default: return x.i64;
  }
}

static bool out_of_range(const struct file *f, int64_t i, int64_t classes, char *why) {
  int64_t token = integer_at(f, i);
  if (token >= 0 && token < classes) return false;
  pd_refuse(why, "'%s': token %lld at offset %lld is outside the model's %lld classes", f->path,
            (long long)token, (long long)i, (long long)classes);
  return true;
}

/* Reads n elements of f from `first` as tokens below `classes`. */
static void read_tokens(const struct file *f, int64_t first, int64_t n, int64_t classes, int32_t *to) {
  char why[PD_WHY];
  for (int64_t i = 0; i < n; i++) {
    int64_t token = integer_at(f, first + i);
    if ((uint64_t)token >= (uint64_t)classes && out_of_range(f, first + i, classes, why)) pd_fail("%s", why);
    to[i] = (int32_t)token;
  }
}

static void read_numbers(const struct file *f, int64_t first, int64_t n, float *to) {
  const char *p = f->elements + first * element_bytes[f->type];
  for (int64_t i = 0; i < n; i++) {
    double x;
    if (f->type == F32)
      memcpy(&to[i], p + i * 4, 4);
    else if (f->type == F64) {
      memcpy(&x, p + i * 8, 8);
      to[i] = (float)x;
    } else
      to[i] = (float)integer_at(f, first + i);
  }
}

/* Tokens [first, first + n) of all files laid end to end. */
static void read_run(const struct pd_dataset *d, int64_t first, int64_t n, int64_t classes, int32_t *to) {
  for (const struct file *f = d->files; n > 0; f++) {
    if (first >= f->first + f->n) continue;
    int64_t here = f->first + f->n - first;
    if (here > n) here = n;
    read_tokens(f, first - f->first, here, classes, to);
    first += here;
    to += here;
    n -= here;
  }
}

void pd_dataset_read(const struct pd_dataset *d, int input, int64_t sample, void *to) {
  const struct pd_input *in = &d->inputs[input];
  if (d->arrays) {
    const struct file *f = &d->files[input];
    if (in->token)
      read_tokens(f, sample * f->row, f->row, in->classes, to);
    else
      read_numbers(f, sample * f->row, f->row, to);
    return;
  }
  int64_t first = sample * d->context;
  if (in->target) first += d->context + 1 - in->elements; /* the window's last tokens */
  read_run(d, first, in->elements, in->classes, to);
}

int64_t pd_dataset_samples(const struct pd_dataset *d) { return d->samples; }

/* ---- opening --------------------------------------------------------------------------------- */

static bool scan_tokens(const struct pd_dataset *d, char *why) {
  static const int64_t values[] = {1 << 8, 1 << 16}; /* of U8, U16 */
  size_t bytes = 0;
  for (int i = 0; i < d->n_files; i++) bytes += d->files[i].size;
  if (bytes > (size_t)1 << 30) return true;
  int64_t least = INT64_MAX; /* every token of a token file can reach every input */
  for (int i = 0; i < d->n_inputs; i++)
    if (d->inputs[i].token && d->inputs[i].classes < least) least = d->inputs[i].classes;
  for (int i = 0; i < d->n_files; i++) {
    const struct file *f = &d->files[i];
    if (d->arrays && !d->inputs[i].token) continue;
    int64_t classes = d->arrays ? d->inputs[i].classes : least;
    if (f->type <= U16 && values[f->type] <= classes) continue;
    for (int64_t j = 0; j < f->n; j++)
      if ((uint64_t)integer_at(f, j) >= (uint64_t)classes && out_of_range(f, j, classes, why)) return false;
  }
  return true;
}

struct pd_dataset *pd_dataset_open(char **paths, int n, const struct pd_input *inputs, int n_inputs,
                                   bool scan, char *why) {
  struct pd_dataset *d = pd_allocate(sizeof *d);
  *d = (struct pd_dataset){.inputs = inputs, .n_inputs = n_inputs, .n_files = n};
  d->files = pd_allocate(sizeof *d->files * (size_t)n);
  for (int i = 0; i < n; i++) d->files[i].path = paths[i];
  bool ok = ends_with(paths[0], ".npy") ? open_arrays(d, why) : open_tokens(d, why);
  return ok && (!scan || scan_tokens(d, why)) ? d : NULL;
}

bool pd_data_start(char *why) {
  const struct pd_stage *s = pd.stage;
  const struct pd_options *o = &pd_options;
  if (o->n_data && pd.steps) {
    pd_training_data = pd_dataset_open(o->data, o->n_data, s->inputs, s->n_inputs, pd.rank == 0, why);
    if (!pd_training_data) return false;
  }
  if (o->n_validation && pd.steps) {
    pd_validation_data = pd_dataset_open(o->validation, o->n_validation, s->inputs, s->n_inputs, pd.rank == 0,
                                         why);
    if (!pd_validation_data) return false;
  }
  return true;
}

/* ---- what stage programs call ---------------------------------------------------------------- */

int64_t pd_first_sample(int64_t k) { return pd_sample_base + (pd_number(k) - 1) * pd.stage->microbatch; }

void pd_load(int input, int64_t k, void *to) {
  const struct pd_input *in = &pd.stage->inputs[input];
  int64_t b = pd.stage->microbatch;
  if (!pd_training_data) { /* --emulate without data */
    memset(to, 0, (size_t)(b * in->elements) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < b; i++) {
    int64_t sample = pd_sample(pd.seed, pd_training_data->samples, pd_first_sample(k) + i);
    pd_dataset_read(pd_training_data, input, sample, (char *)to + i * in->elements * 4);
  }
}
