/* Copies the files of the base folder, and replaces the bytes of adapted weights on the way. */
#include "merge/merge.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "merge/internal.h"
#include "shared/beside.h"
#include "shared/hugging_face.h"

/* ---- weights ------------------------------------------------------------------------------------- */

/* Elements of a row: of the last axis of a matrix, else all. */
static int64_t row_of(const struct pd_entry *w) { return w->rank == 2 ? w->dim[1] : w->elements; }

/* Row i of W + scale B A, as the file stores it: of the transposed matrix with fan_in_fan_out. `a` and `b` are
 * the adapter's tensors as floats; b NULL: row i of a. */
static void merge_row(const Adapter *x, const Pair *p, const float *a, const float *b, int64_t i, float *row) {
  const int64_t r = p->a->dim[0], n = row_of(p->weight);
  if (!b) {
    memcpy(row, a + i * n, (size_t)n * sizeof *row);
    return;
  }
  for (int64_t j = 0; j < n; j++) {
    double sum = 0;
    for (int64_t k = 0; k < r; k++) {
      const int64_t out = x->fan_in_fan_out ? j : i, in = x->fan_in_fan_out ? i : j;
      sum += (double)b[out * r + k] * (double)a[k * p->a->dim[1] + in];
    }
    row[j] = (float)((double)pd_entry_float(p->weight, i * n + j) + x->scale * sum);
  }
}

static bool all_finite(const float *x, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; i++)
    finite &= isfinite(x[i]) != 0;
  return finite;
}

static const float *floats(const struct pd_entry *e) {
  float *all = alloc((size_t)e->elements * sizeof *all + 1);
  for (int64_t i = 0; i < e->elements; i++)
    all[i] = pd_entry_float(e, i);
  return all;
}

/* Writes a merged weight, rounded to its type; false with errno, or after a diagnostic with errno 0. */
static bool write_merged(const Adapter *x, const Pair *p, FILE *out) {
  const struct pd_entry *w = p->weight;
  const float *a = floats(p->a), *b = p->b ? floats(p->b) : NULL;
  const int64_t columns = row_of(w), all = columns ? w->elements / columns : 0;
  const size_t bytes = (size_t)(pd_dtype_bytes(w->dtype) * columns);
  enum { AT_ONCE = 64 };
  float *rows = alloc(AT_ONCE * (size_t)columns * sizeof *rows + 1);
  char *rounded = alloc(bytes + 1);
  for (int64_t first = 0; first < all; first += AT_ONCE) {
    const int64_t n = all - first < AT_ONCE ? all - first : AT_ONCE;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
      merge_row(x, p, a, b, first + i, rows + i * columns);
    for (int64_t i = 0; i < n; i++) {
      if (!all_finite(rows + i * columns, columns)) {
        error_at(NO_SPAN, "PD0655", "the merged '%s' has an infinity or NaN", w->name);
        errno = 0;
        return false;
      }
      const int64_t beyond = pd_dtype_round(w->dtype, rows + i * columns, columns, rounded);
      if (beyond >= 0) {
        error_at(NO_SPAN, "PD0655", "the merged '%s' has the number %g, beyond the range of %s", w->name,
                 (double)rows[i * columns + beyond], pd_dtype_name(w->dtype));
        errno = 0;
        return false;
      }
      if (fwrite(rounded, 1, bytes, out) != bytes)
        return false;
    }
  }
  return true;
}

/* The adapter of the tensor at these bytes, or NULL. */
static const Pair *pair_of(const Adapter *x, const struct pd_entry *e) {
  for (int i = 0; i < x->pairs.n; i++)
    if (x->pairs.at[i].weight == e)
      return &x->pairs.at[i];
  return NULL;
}

static int by_place(const void *a, const void *b) {
  const unsigned char *x = (*(const struct pd_entry *const *)a)->data,
                      *y = (*(const struct pd_entry *const *)b)->data;
  return x < y ? -1 : x > y;
}

/* Copies a weight file; tensors are in the order of their bytes, without gaps. */
static bool write_weights(const Adapter *x, const File *file, FILE *out) {
  const struct pd_safetensors *s = &file->content;
  const struct pd_entry **sorted = alloc((size_t)(s->n + 1) * sizeof(const struct pd_entry *));
  for (int i = 0; i < s->n; i++)
    sorted[i] = &s->at[i];
  qsort(sorted, (size_t)s->n, sizeof *sorted, by_place);
  const unsigned char *at = file->at, *end = at + file->bytes;
  for (int i = 0; i <= s->n; i++) {
    const unsigned char *next = i < s->n ? sorted[i]->data : end;
    if (fwrite(at, 1, (size_t)(next - at), out) != (size_t)(next - at))
      return false;
    const Pair *p = i < s->n ? pair_of(x, sorted[i]) : NULL;
    if (p && !write_merged(x, p, out))
      return false;
    at = p ? sorted[i]->end : next;
  }
  return true;
}

/* ---- folders ------------------------------------------------------------------------------------- */

static const char index_name[] = "model.safetensors.index.json";

static bool has(const char *folder, const char *name) { return access(format("%s/%s", folder, name), F_OK) == 0; }

static bool is_indexed(const char *folder) { return !has(folder, "model.safetensors") && has(folder, index_name); }

static bool open_base(const char *folder, Files *to) {
  File file = {0};
  if (!is_indexed(folder)) {
    const bool good = file_open(folder, "model.safetensors", &file);
    push(to, file);
    return good;
  }
  int source;
  const cJSON *root = json_load(format("%s/%s", folder, index_name), &source);
  const cJSON *map = root ? cJSON_GetObjectItemCaseSensitive(root, "weight_map") : NULL;
  for (const cJSON *item = map ? map->child : NULL; item; item = item->next) {
    const char *name = cJSON_IsString(item) ? item->valuestring : "";
    int i = to->n;
    while (i > 0 && strcmp(to->at[i - 1].name, name))
      i--;
    if (i > 0)
      continue;
    if (!*name || strchr(name, '/')) {
      error_at((Span){.file = source}, "PD0603", "'weight_map' must name files of its folder");
      return false;
    }
    if (!file_open(folder, name, &file))
      return false;
    push(to, file);
  }
  if (root && !to->n)
    error_at((Span){.file = source}, "PD0603", "'weight_map' names no file");
  return to->n > 0;
}

static bool copy_file(const char *folder, const char *name, struct pd_output_folder *to) {
  size_t bytes;
  const char *text = read_file(format("%s/%s", folder, name), &bytes);
  FILE *out = text ? pd_output_folder_file(to, name) : NULL;
  return out && pd_output_folder_file_close(out, fwrite(text, 1, bytes, out) == bytes);
}

static bool write_all(const char *base, const Files *files, const Adapter *x, struct pd_output_folder *to) {
  bool ok = copy_file(base, "config.json", to) && (!is_indexed(base) || copy_file(base, index_name, to));
  for (int i = 0; pd_folder_files[i] && ok; i++)
    ok = !has(base, pd_folder_files[i]) || copy_file(base, pd_folder_files[i], to);
  for (int i = 0; i < files->n && ok; i++) {
    FILE *out = pd_output_folder_file(to, files->at[i].name);
    ok = out && pd_output_folder_file_close(out, write_weights(x, &files->at[i], out));
  }
  return ok;
}

static bool ends_in_name(const char *path, const char *name) {
  const char *plain = without_slashes(path), *slash = strrchr(plain, '/');
  return !strcmp(slash ? slash + 1 : plain, name);
}

/* Names of models are compared by their last parts: "llama" of "models/llama/" and of "meta/llama". */
static void warn_of_base(const Adapter *x, const char *base) {
  char real[PATH_MAX];
  const char *wanted = x->base ? without_slashes(x->base) : "", *slash = strrchr(wanted, '/');
  wanted = slash ? slash + 1 : wanted;
  if (!*wanted || ends_in_name(base, wanted) || (realpath(base, real) && ends_in_name(real, wanted)))
    return;
  Diagnostic *d = warning_at(NO_SPAN, "PD0655", "the adapter was trained on '%s', and '%s' has another name",
                             make_utf8(format("%.300s", x->base)), base);
  help(d, "the first folder is the base model that the adapter was trained on");
}

bool merge_folders(const char *base, const char *adapter, const char *path) {
  Adapter x = {0};
  Files files = {0};
  struct pd_output_folder out;
  const char *output = without_slashes(path);
  if (!open_base(base, &files) || !adapter_read(adapter, &x) || !adapter_find(&x, &files, base))
    return false;
  if (access(output, F_OK) == 0) {
    help(error_at(NO_SPAN, "PD0655", "'%s' exists, and 'pdc merge' writes a new folder", output),
         "remove it, or choose another name with -o");
    return false;
  }
  warn_of_base(&x, base);
  const int errors = error_count();
  bool ok = pd_output_folder_open(&out, output);
  if (ok)
    ok = pd_output_folder_close(&out, write_all(base, &files, &x, &out));
  if (!ok && error_count() == errors)
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", output, strerror(errno));
  return ok;
}
