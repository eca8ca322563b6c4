/* Weights from safetensors files, as --init reads them. Files are read, not mapped: one that another process shortens is
 * an error, not a signal. */
#include "checkpoint/sources.h"
#include "kernels/pd_bf16.h"
#include "library/library.h"
#include "shared/hugging_face.h"
#include "shared/read_file.h"
#include "shared/stacked.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file {
  char *path;
  int descriptor;
  unsigned char *header;         /* addresses of entries count from here, beyond its end */
  struct pd_safetensors content; /* without the tensors' bytes */
};

struct files {
  struct file *at;
  int n;
};

/* ---- files ------------------------------------------------------------------------------------------------ */

static bool read_at(const struct file *f, void *to, size_t bytes, int64_t at, char *why) {
  for (char *c = to; bytes;) {
    const ssize_t n = pread(f->descriptor, c, bytes, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return pd_refuse(why, "cannot read '%s': %s", f->path, strerror(errno));
    if (!n) return pd_refuse(why, "cannot read '%s': it became shorter while it was read", f->path);
    c += n, at += n, bytes -= (size_t)n;
  }
  return true;
}

/* Eight bytes with the length of the header, then the header. */
static bool read_header(struct file *f, size_t size, char *why) {
  unsigned char start[8];
  uint64_t length = 0;
  char cause[PD_WHY];
  if (size < sizeof start)
    return pd_refuse(why, "cannot read '%s': it is not a safetensors file, or it is cut short", f->path);
  if (!read_at(f, start, sizeof start, 0, why)) return false;
  for (int i = 0; i < 8; i++) length |= (uint64_t)start[i] << 8 * i;
  if (length > size - sizeof start)
    return pd_refuse(why, "cannot read '%s': it is not a safetensors file, or it is cut short", f->path);
  f->header = malloc((size_t)length + sizeof start);
  if (!f->header) return pd_refuse(why, "'%s': out of memory", f->path);
  return read_at(f, f->header, (size_t)length + sizeof start, 0, why) &&
         (pd_safetensors_parse(f->header, size, &f->content, cause) ||
          pd_refuse(why, "cannot read '%s': %.900s", f->path, cause));
}

static bool add_file(struct files *to, const char *path, char *why) {
  struct file *grown = realloc(to->at, sizeof *grown * (size_t)(to->n + 1));
  size_t size = 0;
  if (!grown) return pd_refuse(why, "'%s': out of memory", path);
  to->at = grown;
  struct file *f = &to->at[to->n++];
  *f = (struct file){.path = strdup(path), .descriptor = -1};
  if (!f->path) return pd_refuse(why, "'%s': out of memory", path);
  f->descriptor = pd_open_regular(path, &size, why);
  if (f->descriptor < 0 || !read_header(f, size, why)) return false;
  const bool shard =
      *pd_safetensors_metadata(&f->content, "step") && *pd_safetensors_metadata(&f->content, "samples");
  return !shard || pd_refuse(why, "'%s' is part of a checkpoint. help: write the weights with train --save", path);
}

static void close_files(struct files *x) {
  for (int i = 0; i < x->n; i++) {
    pd_safetensors_free(&x->at[i].content);
    if (x->at[i].descriptor >= 0) close(x->at[i].descriptor);
    free(x->at[i].header);
    free(x->at[i].path);
  }
  free(x->at);
}

static bool join(char *to, const char *folder, size_t n, const char *name, char *why) {
  return snprintf(to, PATH_MAX, "%.*s%s", (int)n, folder, name) < PATH_MAX ||
         pd_refuse(why, "the path '%.100s...' is too long", folder);
}

static bool add_indexed(struct files *to, const char *path, char *why) {
  char cause[PD_WHY], beside[PATH_MAX];
  struct pd_index index;
  size_t bytes;
  char *text = pd_read_file(path, &bytes, why);
  if (!text) return false;
  bool ok = pd_index_parse(text, bytes, &index, cause) || pd_refuse(why, "cannot read '%s': %.900s", path, cause);
  free(text);
  if (!ok) return false;
  const char *slash = strrchr(path, '/');
  for (int i = 0; i < index.n_files && ok; i++)
    ok = join(beside, path, slash ? (size_t)(slash + 1 - path) : 0, index.files[i], why) &&
         add_file(to, beside, why);
  pd_index_free(&index);
  return ok;
}

static bool ends_in(const char *path, const char *end) {
  const size_t n = strlen(path), m = strlen(end);
  return n > m && !strcmp(path + n - m, end);
}

static bool add_folder(struct files *to, const char *folder, char *why) {
  char path[PATH_MAX];
  struct stat st;
  if (!join(path, folder, strlen(folder), "/model.safetensors", why)) return false;
  if (!stat(path, &st)) return add_file(to, path, why);
  if (!join(path, folder, strlen(folder), "/model.safetensors.index.json", why)) return false;
  if (!stat(path, &st)) return add_indexed(to, path, why);
  return pd_refuse(why, "the folder '%s' has no model.safetensors and no index of its parts", folder);
}

static bool add_path(struct files *to, const char *path, char *why) {
  struct stat st;
  if (stat(path, &st)) return pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  if (S_ISDIR(st.st_mode)) return add_folder(to, path, why);
  return ends_in(path, ".json") ? add_indexed(to, path, why) : add_file(to, path, why);
}

/* ---- names ------------------------------------------------------------------------------------------------- */

/* With or without the prefix "transformer." of Hugging Face's models with heads. */
static bool is_called(const char *in_file, const char *name) {
  static const char prefix[] = "transformer.";
  enum { PREFIX = sizeof prefix - 1 };
  if (!strcmp(in_file, name)) return true;
  if (!strncmp(in_file, prefix, PREFIX) && !strcmp(in_file + PREFIX, name)) return true;
  return !strncmp(name, prefix, PREFIX) && !strcmp(name + PREFIX, in_file);
}

/* A tensor of a file. */
struct found {
  const struct file *file;
  const struct pd_entry *entry; /* NULL: no file has it */
};

static struct found find_called(const struct files *x, const char *name) {
  for (int i = 0; i < x->n; i++)
    for (int k = 0; k < x->at[i].content.n; k++)
      if (is_called(x->at[i].content.at[k].name, name)) return (struct found){&x->at[i], &x->at[i].content.at[k]};
  return (struct found){0};
}

/* By its name, or by the name of older versions. */
static struct found find(const struct files *x, const char *name) {
  struct found found = find_called(x, name);
  char *former = found.entry ? NULL : pd_former_name(name);
  if (former) found = find_called(x, former);
  free(former);
  return found;
}

static void print_shape(char *to, size_t room, int rank, const int64_t *dim) {
  size_t n = (size_t)snprintf(to, room, "[");
  for (int i = 0; i < rank && n < room; i++)
    n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  if (n < room) snprintf(to + n, room - n, "]");
}

static bool has_shape(const struct pd_entry *e, int rank, const int64_t *dim) {
  bool same = e->rank == rank;
  for (int i = 0; same && i < rank; i++) same = e->dim[i] == dim[i];
  return same;
}

/* ---- one parameter ----------------------------------------------------------------------------------------- */

/* Reads a tensor in parts; `part` and `numbers` have room for PART elements of eight bytes. */
enum { PART = 1 << 16 };
struct parts {
  unsigned char bytes[PART * 8];
  float numbers[PART];
};

/* Element i of the file's tensor is element place(i) of the parameter. */
static int64_t place(const struct pd_parameter *p, bool swapped, int64_t i) {
  return swapped ? i % p->dim[0] * p->dim[1] + i / p->dim[0] : i;
}

static bool is_swapped(const struct pd_parameter *p) { return p->stored_in_out && p->rank == 2; }

/* Copies a tensor to the elements of the parameter from `at` on. */
static bool copy_in(struct found x, const struct pd_parameter *p, int64_t at, char *weights, struct parts *parts,
                    char *why) {
  const struct pd_entry *e = x.entry;
  const pd_out to = {weights + p->offset, p->bf16 ? PD_BF16 : PD_F32};
  const int64_t width = e->dtype == PD_DTYPE_F64 ? 8 : pd_dtype_bytes(e->dtype), start = e->data - x.file->header;
  for (int64_t first = 0, n; first < e->elements; first += n) {
    n = e->elements - first < PART ? e->elements - first : PART;
    struct pd_entry part = *e;
    part.data = parts->bytes;
    if (!read_at(x.file, parts->bytes, (size_t)(n * width), start + first * width, why)) return false;
    for (int64_t i = 0; i < n; i++) parts->numbers[i] = pd_entry_float(&part, i);
    if (!is_swapped(p)) pd_write(to, at + first, parts->numbers, n);
    for (int64_t i = 0; is_swapped(p) && i < n; i++)
      pd_write(to, place(p, true, first + i), &parts->numbers[i], 1);
  }
  return true;
}

static bool check(struct found x, int rank, const int64_t *dim, char *why) {
  const char *path = x.file->path, *name = x.entry->name;
  if (!has_shape(x.entry, rank, dim)) {
    char found[160], needed[160];
    print_shape(found, sizeof found, x.entry->rank, x.entry->dim);
    print_shape(needed, sizeof needed, rank, dim);
    return pd_refuse(why, "'%s': tensor '%s' has shape %s, but the model needs %s", path, name, found, needed);
  }
  return x.entry->dtype != PD_DTYPE_OTHER ||
         pd_refuse(why, "'%s': tensor '%s' is not of type F32, F16, BF16 or F64", path, name);
}

/* ---- a parameter of all experts ----------------------------------------------------------------------------- */

struct stack {
  const struct files *in;
  struct found *part;
};

static bool take_part(void *to, int64_t i, const char *name) {
  const struct stack *s = to;
  s->part[i] = find(s->in, name);
  return s->part[i].entry;
}

/* Reads one from a tensor for each expert. Returns false with *found false if the files lack such tensors. */
static bool load_stack(const struct files *x, const struct pd_parameter *p, char *weights, struct parts *parts,
                       bool *found, char *why) {
  struct stack s = {x, p->rank == 3 ? malloc(sizeof *s.part * 2 * (size_t)p->dim[0]) : NULL};
  const int64_t n = s.part ? pd_stacked_find(p->name, p->dim[0], take_part, &s) : p->rank == 3 ? -1 : 0;
  bool ok = n > 0;
  int64_t dim[2], at = 0;
  *found = n != 0;
  if (n < 0) pd_refuse(why, "'%s': out of memory", p->name);
  if (ok) pd_stacked_shape(p->dim, n, dim);
  for (int64_t i = 0; i < n && ok; at += s.part[i++].entry->elements)
    ok = check(s.part[i], 2, dim, why) && copy_in(s.part[i], p, at, weights, parts, why);
  free(s.part);
  return ok;
}

/* Whether the files also hold this parameter as one tensor for each expert. */
static bool is_also_divided(const struct files *x, const struct pd_parameter *p) {
  bool divided = false;
  for (int form = 0; form < PD_STACKED_FORMS && p->rank == 3 && !divided; form++) {
    char *name = pd_stacked_parts(p->name, form) ? pd_stacked_name(p->name, form, 0, 0) : NULL;
    divided = name && find(x, name).entry;
    free(name);
  }
  return divided;
}

static bool load_one(const struct files *x, const struct pd_parameter *p, char *weights, struct parts *parts,
                     char *why) {
  const struct found whole = find(x, p->name);
  int64_t dim[PD_MAX_RANK];
  bool stacked;
  if (!whole.entry) {
    const bool ok = load_stack(x, p, weights, parts, &stacked, why);
    return ok || (stacked ? false
                          : pd_refuse(why, "'%s'%s no tensor '%s'", x->at[0].path,
                                      x->n > 1 ? " and its other parts hold" : " holds", p->name));
  }
  if (is_also_divided(x, p))
    return pd_refuse(why, "'%s': tensor '%s' is also there as one tensor for each expert", whole.file->path,
                     p->name);
  for (int i = 0; i < p->rank; i++) dim[i] = p->dim[is_swapped(p) ? 1 - i : i];
  return check(whole, p->rank, dim, why) && copy_in(whole, p, 0, weights, parts, why);
}

/* ---- all of them ------------------------------------------------------------------------------------------- */

int pd_instance_load(struct pd_instance *x, const char *path, char *why) {
  char unseen[PD_WHY];
  why = PD_WHY_OR(why, unseen);
  if (!pd_instance_given(x, path, why)) return -1;
  const struct pd_model *m = x->model;
  if (x->busy) {
    pd_refuse(why, "%s: this instance is generating", m->name);
    return -1;
  }
  struct files files = {0};
  struct parts *parts = malloc(sizeof *parts);
  x->loaded = false;
  x->alike = 0;
  bool ok = parts || pd_refuse(why, "'%s': out of memory", path);
  ok = ok && add_path(&files, path, why);
  for (int i = 0; i < m->n_parameters && ok; i++)
    ok = load_one(&files, &m->parameters[i], x->arena + m->weights_at, parts, why);
  close_files(&files);
  free(parts);
  x->loaded = ok;
  return ok ? 0 : -1;
}
