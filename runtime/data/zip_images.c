/* Images in a zip file: folders of classes as on a disk, or samples as in WebDataset's tar files if there is a .cls file. Images
 * have the order that they have in the unpacked folder. */
#define _GNU_SOURCE /* qsort_r */
#include "data/data.h"
#include "shared/crc32.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAME = 65535 }; /* of an entry */

/* ---- the directory --------------------------------------------------------------------------- */

/* Names with a part that starts with a dot, and those that macOS adds. */
static bool is_hidden(const char *name) {
  if (!strncmp(name, "__MACOSX/", 9)) return true;
  for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
    if (*part == '.') return true;
  return false;
}

static bool ends_with(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

static bool add_entry(const struct pd_array *a, struct pd_zip_images *z, const struct pd_zip_entry *e,
                      const char *name, char *why) {
  const struct pd_zip_image file = {.name = name, .entry = *e, .label = -1};
  if (is_hidden(name)) return true;
  if (ends_with(name, "/") || ends_with(name, ".cls")) {
    z->other[z->n_other++] = file;
    return true;
  }
  if (!pd_is_image_name(name)) {
    if (!z->ignored++) z->example = name;
    return true;
  }
  z->image[z->n++] = file;
  if (!e->encrypted && (e->method == PD_ZIP_STORED || e->method == PD_ZIP_DEFLATED)) return true;
  return pd_refuse(why, "'%s': '%s' is packed by method %d%s. help: write the file with stored or deflated images",
                   a->path, name, e->method, e->encrypted ? " and encrypted" : "");
}

static bool read_directory(const struct pd_array *a, struct pd_zip_images *z, char *why) {
  char cause[PD_WHY];
  struct pd_zip zip;
  struct pd_zip_entry e;
  if (!pd_zip_open(&zip, a->map, a->size, "zip", cause)) return pd_refuse(why, "'%s' %.900s", a->path, cause);
  const struct pd_zip start = zip;
  size_t n = 0, bytes = 0;
  for (; zip.at < zip.end; n++) {
    if (!pd_zip_next(&zip, &e, cause)) return pd_refuse(why, "'%s' %.900s", a->path, cause);
    bytes += (size_t)e.name_length + 1;
  }
  z->image = calloc(n + 1, sizeof *z->image);
  z->other = calloc(n + 1, sizeof *z->other);
  char *to = z->texts = calloc(bytes + 1, 1);
  if (!z->image || !z->other || !to) return pd_refuse(why, "out of memory for the names of '%s'", a->path);
  for (zip = start; n--; to += e.name_length + 1) {
    if (!pd_zip_next(&zip, &e, cause) || to + e.name_length >= z->texts + bytes)
      return pd_refuse(why, "'%s' changed while it was read", a->path);
    memcpy(to, e.name, (size_t)e.name_length);
    if (memchr(to, 0, (size_t)e.name_length))
      return pd_refuse(why, "'%s' is damaged: the name '%.100s' has a zero byte", a->path, to);
    if (!add_entry(a, z, &e, to, why)) return false;
  }
  return true;
}

static int by_name(const void *a, const void *b) {
  return pd_compare_paths(((const struct pd_zip_image *)a)->name, ((const struct pd_zip_image *)b)->name);
}

bool pd_zip_unpack(const struct pd_array *a, const struct pd_zip_entry *e, const char *name, const char **bytes,
                   char **owned, char *why) {
  enum { MOST_FACTOR = 1032 }; /* of deflate */
  const struct pd_zip zip = {.map = a->map, .size = a->size};
  char cause[PD_WHY];
  *owned = NULL;
  const char *data = pd_zip_data(&zip, e, cause);
  if (!data) return pd_refuse(why, "'%s' %.900s", a->path, cause);
  bool ok = e->method == PD_ZIP_STORED ? e->size == e->packed : e->size / MOST_FACTOR <= e->packed;
  if (ok && e->method == PD_ZIP_DEFLATED) *owned = malloc(e->size + 1);
  *bytes = *owned ? *owned : data;
  if (ok && e->method == PD_ZIP_DEFLATED) ok = *owned && pd_inflate(data, e->packed, *owned, e->size);
  if (ok && pd_crc32(0, *bytes, e->size) == e->checksum) return true;
  free(*owned);
  *owned = NULL;
  return pd_refuse(why, "'%s' is damaged: '%s' cannot be unpacked", a->path, name);
}

/* ---- samples with .cls files ----------------------------------------------------------------- */

/* Length of the key: the path up to the first dot of its last part. */
static size_t key_of(const char *name) {
  const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
  return (size_t)(last - name) + strcspn(last, ".");
}

static int by_key(const void *key, const void *file) {
  const char *a = key, *b = ((const struct pd_zip_image *)file)->name;
  const size_t n = key_of(a), m = key_of(b);
  const int order = memcmp(a, b, n < m ? n : m);
  return order ? order : (n > m) - (n < m);
}

static int by_keys(const void *a, const void *b) { return by_key(((const struct pd_zip_image *)a)->name, b); }

/* Keeps the images with one dot behind the key's path: KEY.jpg, not KEY.mask.png. */
static void keep_keyed(struct pd_zip_images *z) {
  int64_t n = 0;
  for (int64_t i = 0; i < z->n; i++) {
    const char *name = z->image[i].name, *dot = name + key_of(name);
    if (!strchr(dot + 1, '.'))
      z->image[n++] = z->image[i];
    else if (!z->ignored++)
      z->example = name;
  }
  z->n = n;
}

static bool read_labels(const struct pd_array *a, struct pd_zip_images *z, char *why) {
  qsort(z->other, (size_t)z->n_other, sizeof *z->other, by_keys);
  for (int64_t i = 0; i + 1 < z->n_other; i++)
    if (!by_keys(&z->other[i], &z->other[i + 1]) && !ends_with(z->other[i].name, "/") &&
        !ends_with(z->other[i + 1].name, "/"))
      return pd_refuse(why, "'%s': '%s' is a second class of its key", a->path, z->other[i + 1].name);
  for (int64_t i = 0; i < z->n; i++) {
    if (i && !by_keys(&z->image[i - 1], &z->image[i]))
      return pd_refuse(why, "'%s': '%s' is a second image of its key", a->path, z->image[i].name);
    struct pd_zip_image *f = bsearch(z->image[i].name, z->other, (size_t)z->n_other, sizeof *f, by_key);
    const char *bytes;
    char *owned;
    if (!f || ends_with(f->name, "/"))
      return pd_refuse(why, "'%s': '%s' has no .cls file, unlike others", a->path, z->image[i].name);
    if (!pd_zip_unpack(a, &f->entry, f->name, &bytes, &owned, why)) return false;
    z->image[i].label = pd_class_in(bytes, f->entry.size);
    free(owned);
    if (z->image[i].label < 0) return pd_refuse(why, "'%s': '%s' is not the number of a class", a->path, f->name);
  }
  return true;
}

/* ---- folders of classes ---------------------------------------------------------------------- */

/* Length of the folders that hold everything: such a folder holds one folder and no images. */
static size_t root_of(const struct pd_zip_images *z) {
  size_t root = 0;
  for (;;) {
    const char *name = z->image[0].name, *slash = strchr(name + root, '/');
    const size_t next = slash ? (size_t)(slash - name) + 1 : root;
    for (int64_t i = 0; i < z->n; i++) {
      const char *other = z->image[i].name;
      if (next == root || strncmp(other, name, next) != 0 || !strchr(other + next, '/')) return root;
    }
    root = next;
  }
}

/* Compares the texts up to the first slash. */
static int compare_classes(const char *a, const char *b) {
  const size_t n = strcspn(a, "/"), m = strcspn(b, "/");
  const int order = memcmp(a, b, n < m ? n : m);
  return order ? order : (n > m) - (n < m);
}

static bool has_class(const struct pd_zip_images *z, const char *name) {
  int64_t first = 0, end = z->n;
  while (first < end) {
    const int64_t middle = first + (end - first) / 2;
    const int order = compare_classes(name, z->image[middle].name + z->root);
    if (!order) return true;
    if (order < 0)
      end = middle;
    else
      first = middle + 1;
  }
  return false;
}

/* Gives the classes their numbers; the images are in order. */
static bool number_classes(const struct pd_array *a, struct pd_zip_images *z, char *why) {
  for (int64_t i = 0; i < z->n; i++) {
    const char *name = z->image[i].name + z->root;
    if (!i || compare_classes(z->image[i - 1].name + z->root, name)) {
      char class[MOST_NAME + 1];
      snprintf(class, sizeof class, "%.*s", (int)strcspn(name, "/"), name);
      if (!pd_is_plain_utf8(class))
        return pd_refuse(why, "the name of the class '%s' of '%s' is not UTF-8, or has control characters", class,
                         a->path);
      z->n_classes++;
    }
    z->image[i].label = z->n_classes - 1;
  }
  for (int64_t i = 0; i < z->n_other; i++) { /* of a folder in the root: one slash, at the end */
    const char *name = z->other[i].name;
    const size_t n = strlen(name);
    if (n <= z->root + 1 || strncmp(name, z->image[0].name, z->root) != 0) continue;
    if (strchr(name + z->root, '/') == name + n - 1 && !has_class(z, name + z->root))
      return pd_refuse(
          why, "the class '%.*s' of '%s' has no images. help: remove the folder, or add .jpg or .png files",
          (int)(n - z->root - 1), name + z->root, a->path);
  }
  return true;
}

/* By class, then as in the folder of the class. */
static int by_class(const void *a, const void *b, void *root) {
  const char *s = ((const struct pd_zip_image *)a)->name + *(size_t *)root,
             *t = ((const struct pd_zip_image *)b)->name + *(size_t *)root;
  const int order = compare_classes(s, t);
  return order ? order : pd_compare_paths(s, t);
}

/* ---- the list -------------------------------------------------------------------------------- */

static bool order_classes(const struct pd_array *a, struct pd_zip_images *z, char *why) {
  int64_t direct = 0;
  z->root = root_of(z);
  for (int64_t i = 0; i < z->n; i++) direct += !strchr(z->image[i].name + z->root, '/');
  if (direct == z->n) return true;
  if (direct)
    return pd_refuse(
        why,
        "'%s' has folders of classes, and %lld images beside them. help: move each image into the folder "
        "of its class",
        a->path, (long long)direct);
  qsort_r(z->image, (size_t)z->n, sizeof *z->image, by_class, &z->root);
  return number_classes(a, z, why);
}

bool pd_is_image_zip(const struct pd_array *a) {
  return a->size >= 4 && (!memcmp(a->map, "PK\3\4", 4) || !memcmp(a->map, "PK\5\6", 4)) &&
         !ends_with(a->path, ".npz");
}

bool pd_zip_images(const struct pd_array *a, struct pd_zip_images *z, char *why) {
  bool samples = false;
  *z = (struct pd_zip_images){0};
  if (!read_directory(a, z, why)) return false;
  for (int64_t i = 0; i < z->n_other; i++) samples |= ends_with(z->other[i].name, ".cls");
  if (samples) keep_keyed(z);
  if (!z->n)
    return pd_refuse(
        why,
        "the zip file '%s' has no images. help: it needs a folder of .jpg or .png files for each class, "
        "or KEY.jpg, .jpeg or .png with KEY.cls",
        a->path);
  qsort(z->image, (size_t)z->n, sizeof *z->image, by_name);
  for (int64_t i = 1; i < z->n; i++)
    if (!strcmp(z->image[i - 1].name, z->image[i].name))
      return pd_refuse(why, "'%s' has '%s' twice", a->path, z->image[i].name);
  return samples ? read_labels(a, z, why) : order_classes(a, z, why);
}

void pd_zip_images_free(struct pd_zip_images *z) {
  free(z->image);
  free(z->other);
  free(z->texts);
  *z = (struct pd_zip_images){0};
}
