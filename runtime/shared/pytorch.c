/* torch.save's archive: ARCHIVE/data.pkl, the pickle; ARCHIVE/data/KEY, the bytes of storage KEY, not compressed; and
 * ARCHIVE/byteorder. */
#include "shared/pytorch.h"

#include "shared/pickle.h"
#include "shared/zip.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PICKLE = 8 << 20 }; /* bytes; a tensor takes about 200 */

struct record {
  const char *name; /* behind the archive's name and its slash */
  size_t length;
  const unsigned char *data;
  uint64_t bytes;
};

struct archive {
  struct record *at; /* sorted by name */
  size_t n;
};

/* ---- the archive -------------------------------------------------------------------------------------------- */

static int compare_names(const char *a, size_t n, const char *b, size_t m) {
  int order = memcmp(a, b, n < m ? n : m);
  return order ? order : (n > m) - (n < m);
}

static int by_name(const void *a, const void *b) {
  const struct record *x = a, *y = b;
  return compare_names(x->name, x->length, y->name, y->length);
}

static const struct record *find_record(const struct archive *a, const char *name, size_t n) {
  struct record key = {.name = name, .length = n};
  return a->n ? bsearch(&key, a->at, a->n, sizeof *a->at, by_name) : NULL;
}

static bool add_record(struct archive *a, const struct pd_zip *z, const struct pd_zip_entry *e, char *why) {
  char cause[PD_WHY];
  const char *data = pd_zip_data(z, e, cause), *slash = memchr(e->name, '/', (size_t)e->name_length);
  if (!data) return pd_refuse(why, "it %.900s", cause);
  if (e->encrypted || e->method != PD_ZIP_STORED || e->size != e->packed)
    return pd_refuse(why, "it holds '%.*s' in a packed form, which torch.save does not write",
                     e->name_length > 100 ? 100 : e->name_length, e->name);
  if (!slash) return true;
  if (!(a->n & (a->n - 1))) { /* doubles the room */
    struct record *larger = realloc(a->at, (2 * a->n + 1) * sizeof *larger);
    if (!larger) return pd_refuse(why, "it is too large: out of memory");
    a->at = larger;
  }
  a->at[a->n++] = (struct record){slash + 1, (size_t)(e->name + e->name_length - slash - 1),
                                  (const unsigned char *)data, e->size};
  return true;
}

static bool open_archive(struct archive *a, const void *bytes, size_t size, char *why) {
  struct pd_zip z;
  char cause[PD_WHY];
  if (!pd_zip_open(&z, bytes, size, "PyTorch", cause)) return pd_refuse(why, "it %.900s", cause);
  for (struct pd_zip_entry e; z.at < z.end;) {
    if (!pd_zip_next(&z, &e, cause)) return pd_refuse(why, "it %.900s", cause);
    if (!add_record(a, &z, &e, why)) return false;
  }
  if (a->n) qsort(a->at, a->n, sizeof *a->at, by_name);
  for (size_t i = 1; i < a->n; i++)
    if (!by_name(&a->at[i - 1], &a->at[i]))
      return pd_refuse(why, "it has two entries '%.*s'", (int)(a->at[i].length > 100 ? 100 : a->at[i].length),
                       a->at[i].name);
  const struct record *order = find_record(a, "byteorder", strlen("byteorder"));
  if (order && (order->bytes < 6 || memcmp(order->data, "little", 6)))
    return pd_refuse(why, "it was saved on a machine of another byte order");
  return true;
}

/* ---- tensors -------------------------------------------------------------------------------------------------- */

static const struct type {
  const char *name;
  enum pd_dtype dtype;
  uint64_t bytes;
} types[] = {{"torch.FloatStorage", PD_DTYPE_F32, 4},     {"torch.HalfStorage", PD_DTYPE_F16, 2},
             {"torch.BFloat16Storage", PD_DTYPE_BF16, 2}, {"torch.DoubleStorage", PD_DTYPE_F64, 8},
             {"torch.LongStorage", PD_DTYPE_OTHER, 8},    {"torch.IntStorage", PD_DTYPE_OTHER, 4},
             {"torch.ShortStorage", PD_DTYPE_OTHER, 2},   {"torch.CharStorage", PD_DTYPE_OTHER, 1},
             {"torch.ByteStorage", PD_DTYPE_OTHER, 1},    {"torch.BoolStorage", PD_DTYPE_OTHER, 1}};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct type *type_of(const struct pd_pickle_value *storage) {
  for (int i = 0; i < N_TYPES; i++)
    if (storage->bytes == strlen(types[i].name) && !memcmp(storage->text, types[i].name, storage->bytes))
      return &types[i];
  return NULL;
}

static bool refuse_tensor(const struct pd_entry *e, const char *what, char *why) {
  return pd_refuse(why, "tensor '%.200s' %s", e->name, what);
}

/* Sizes to the entry; strides must be those of rows one after another. */
static bool take_sizes(const struct pd_pickle_value *t, struct pd_entry *e, char *why) {
  const struct pd_pickle_item *size = t->size->items, *stride = t->stride->items;
  if (t->size->n_items > PD_TENSOR_RANK) return refuse_tensor(e, "has more than 8 axes", why);
  e->rank = (int)t->size->n_items;
  e->elements = 1;
  for (int i = e->rank - 1; i >= 0; i--, size = size->next, stride = stride->next) {
    int64_t n = size->value->kind == PD_PICKLED_INT ? size->value->whole : -1;
    int64_t step = stride->value->kind == PD_PICKLED_INT ? stride->value->whole : -1;
    if (n < 0 || (n > 0 && e->elements > INT64_MAX / 16 / n))
      return refuse_tensor(e, "has an impossible size", why);
    if (n > 1 && step != e->elements)
      return refuse_tensor(e, "is a view, not one block. help: save it by .contiguous()", why);
    e->dim[i] = n;
    e->elements *= n;
  }
  return true;
}

static bool take_tensor(const struct archive *a, const struct pd_pickle_value *t, struct pd_entry *e, char *why) {
  char name[128];
  const struct pd_pickle_value *key = t->storage->size;
  const struct type *type = type_of(t->storage);
  if (!type) return refuse_tensor(e, "has an unknown type", why);
  if (key->bytes > 100) return refuse_tensor(e, "has a storage with an impossible name", why);
  memcpy(name, "data/", 5);
  memcpy(name + 5, key->text, key->bytes);
  const struct record *r = find_record(a, name, 5 + key->bytes);
  if (!r) return refuse_tensor(e, "has a storage that is not in the file", why);
  if (!take_sizes(t, e, why)) return false;
  uint64_t held = r->bytes / type->bytes;
  if (t->whole < 0 || (uint64_t)t->whole > held || (uint64_t)e->elements > held - (uint64_t)t->whole)
    return refuse_tensor(e, "is larger than its storage", why);
  e->dtype = type->dtype;
  e->data = r->data + (uint64_t)t->whole * type->bytes;
  e->end = e->data + (uint64_t)e->elements * type->bytes;
  return true;
}

/* ---- the saved dict ------------------------------------------------------------------------------------------------ */

static bool has_tensors(const struct pd_pickle_value *dict) {
  for (const struct pd_pickle_item *i = dict && dict->kind == PD_PICKLED_DICT ? dict->items : NULL; i; i = i->next)
    if (i->value->kind == PD_PICKLED_TENSOR) return true;
  return false;
}

/* The dict of the model's tensors. */
static const struct pd_pickle_value *find_model(const struct pd_pickle_value *root, char *why) {
  static const char *const members[] = {"model", "state_dict", "model_state_dict", "module"};
  if (has_tensors(root)) {
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
      const struct pd_pickle_value *v = pd_pickled_member(root, members[i]);
      if (has_tensors(v)) return v; /* beside single tensors, such as a training's best loss */
    }
    return root;
  }
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const struct pd_pickle_value *v = pd_pickled_member(root, members[i]);
    if (has_tensors(v)) return v;
  }
  pd_refuse(
      why,
      "it has no dict of tensors, alone or as its member 'model', 'state_dict', 'model_state_dict' or 'module'");
  return NULL;
}

static int by_entry(const void *a, const void *b) {
  return strcmp(((const struct pd_entry *)a)->name, ((const struct pd_entry *)b)->name);
}

/* Entries of the dict's tensors; ignores its other members. */
static bool take_dict(const struct archive *a, const struct pd_pickle_value *dict, struct pd_safetensors *to,
                      char *why) {
  to->at = calloc((size_t)dict->n_items + 1, sizeof *to->at);
  if (!to->at) return pd_refuse(why, "it is too large: out of memory");
  for (const struct pd_pickle_item *i = dict->items; i; i = i->next) {
    if (i->value->kind != PD_PICKLED_TENSOR) continue;
    if (i->key->kind != PD_PICKLED_TEXT || memchr(i->key->text, 0, i->key->bytes) || !i->key->bytes)
      return pd_refuse(why, "it has a tensor without a text as its name");
    struct pd_entry *e = &to->at[to->n];
    if (!(e->name = strndup(i->key->text, i->key->bytes))) return pd_refuse(why, "it is too large: out of memory");
    to->n++;
    if (!take_tensor(a, i->value, e, why)) return false;
  }
  qsort(to->at, (size_t)to->n, sizeof *to->at, by_entry);
  for (int i = 1; i < to->n; i++)
    if (!by_entry(&to->at[i - 1], &to->at[i])) return refuse_tensor(&to->at[i], "is twice in the file", why);
  return true;
}

static bool read_archive(const struct archive *a, struct pd_safetensors *to, char *why) {
  static const char name[] = "data.pkl";
  struct pd_pickle pickle;
  const struct record *r = find_record(a, name, sizeof name - 1);
  if (!r) return pd_refuse(why, "it is a zip archive without 'data.pkl': no file of torch.save");
  if (r->bytes > MOST_PICKLE) return pd_refuse(why, "it has a pickle of more than %d MiB", MOST_PICKLE >> 20);
  const struct pd_pickle_value *model = NULL;
  bool ok = pd_pickle_read(&pickle, r->data, r->bytes, why) && (model = find_model(pickle.root, why)) &&
            take_dict(a, model, to, why);
  pd_pickle_close(&pickle);
  return ok;
}

bool pd_pytorch_parse(const void *bytes, size_t size, struct pd_safetensors *to, char *why) {
  struct archive a = {0};
  *to = (struct pd_safetensors){0};
  bool ok = open_archive(&a, bytes, size, why) && read_archive(&a, to, why);
  free(a.at);
  if (!ok) pd_safetensors_free(to);
  return ok;
}

static bool is_zip(const void *bytes, size_t size) { return size >= 4 && !memcmp(bytes, "PK\3\4", 4); }

/* The first bytes of torch.save's files before version 1.6: a pickle of a number. */
static bool is_old(const void *bytes, size_t size) { return size >= 3 && !memcmp(bytes, "\x80\2\x8a", 3); }

bool pd_tensors_parse(const void *bytes, size_t size, struct pd_safetensors *to, char *why) {
  if (is_zip(bytes, size)) return pd_pytorch_parse(bytes, size, to, why);
  if (!is_old(bytes, size)) {
    enum { LEAST = 8 }; /* bytes of a safetensors file: the length of its header */
    if (size >= LEAST) return pd_safetensors_parse(bytes, size, to, why);
    *to = (struct pd_safetensors){0};
    return pd_refuse(why, "it is cut short: it has %zu byte%s", size, size == 1 ? "" : "s");
  }
  *to = (struct pd_safetensors){0};
  return pd_refuse(why,
                   "it has the form of PyTorch before version 1.6. help: load it in PyTorch and save it again");
}
