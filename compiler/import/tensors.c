/* Names and shapes of a folder's tensors, in safetensors or PyTorch's files. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "import/internal.h"
#include "shared/hugging_face.h"
#include "shared/read_file.h"
#include "shared/pytorch.h"

static int by_name(const void *a, const void *b) {
  return strcmp(((const Tensor *)a)->name, ((const Tensor *)b)->name);
}

static bool refuse_file(const char *path, const char *why) {
  error_at((Span){.file = source_add(path, "")}, "PD0601", "cannot read the file: %s",
           make_utf8(format("%s", why)));
  return false;
}

/* The file stays mapped: Tensor.data points into it. */
static bool add_file(const char *path, Tensors *to) {
  char why[PD_WHY] = "";
  size_t bytes = 0;
  struct pd_safetensors s;
  const void *at = pd_map_regular(path, &bytes, why);
  source_add(path, ""); /* for -MD */
  if (!at) {
    error_at(NO_SPAN, "PD0601", "%s", make_utf8(format("%s", why)));
    return false;
  }
  if (!pd_tensors_parse(at, bytes, &s, why))
    return refuse_file(path, why);
  for (int i = 0; i < s.n; i++) {
    const struct pd_entry *e = &s.at[i];
    if (e->dtype == PD_DTYPE_OTHER && !pd_is_unweighted(e->name)) {
      error_at((Span){.file = source_add(path, "")}, "PD0653",
               "tensor '%s' is not of type F32, F16, BF16 or F64, which '--init' reads",
               make_utf8(format("%.200s", e->name)));
      pd_safetensors_free(&s);
      return false;
    }
    Tensor t = {.name = format("%s", e->name), .dtype = e->dtype, .rank = e->rank, .data = e->data, .end = e->end};
    memcpy(t.dim, e->dim, sizeof t.dim);
    push(to, t);
  }
  pd_safetensors_free(&s);
  return true;
}

/* Adds the files of an index; each must be a name without a folder. */
static bool add_indexed(const char *folder, const char *path, Tensors *to) {
  int file;
  const cJSON *root = json_load(path, &file);
  if (!root)
    return false;
  const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
  if (!cJSON_IsObject(map)) {
    error_at((Span){.file = file}, "PD0603", "'weight_map' must be an object");
    return false;
  }
  Vec(const char *) seen = {0};
  for (const cJSON *item = map->child; item; item = item->next) {
    const char *name = cJSON_IsString(item) ? item->valuestring : "";
    if (!*name || strchr(name, '/')) {
      error_at((Span){.file = file}, "PD0603", "'weight_map' must name files of its folder");
      return false;
    }
    int i = seen.n;
    while (i > 0 && strcmp(seen.at[i - 1], name))
      i--;
    if (i > 0)
      continue;
    push(&seen, name);
    if (!add_file(format("%s/%s", folder, name), to))
      return false;
  }
  return true;
}

void tensors_sort(Tensors *all) {
  if (all->n)
    qsort(all->at, (size_t)all->n, sizeof *all->at, by_name);
}

bool tensors_read(const char *folder, Tensors *to) {
  static const char *const names[] = {"model.safetensors", "pytorch_model.bin"};
  bool found = false;
  for (int i = 0; i < 2 && !found; i++) {
    const char *whole = format("%s/%s", folder, names[i]), *index = format("%s.index.json", whole);
    bool is_whole = access(whole, F_OK) == 0;
    found = is_whole || access(index, F_OK) == 0;
    if (found && !(is_whole ? add_file(whole, to) : add_indexed(folder, index, to)))
      return false;
  }
  tensors_sort(to);
  for (int i = 1; i < to->n; i++)
    if (!strcmp(to->at[i - 1].name, to->at[i].name))
      return refuse_file(folder, format("tensor '%.200s' is in two files", to->at[i].name));
  return true;
}

static const Tensor *find(const Tensors *all, const char *name) {
  const Tensor key = {.name = name};
  return all->n ? bsearch(&key, all->at, (size_t)all->n, sizeof *all->at, by_name) : NULL;
}

const Tensor *tensors_find(const Tensors *all, const char *name) {
  const Tensor *found = find(all, name);
  char *former = found ? NULL : pd_former_name(name);
  if (former)
    found = find(all, former);
  free(former);
  return found;
}
