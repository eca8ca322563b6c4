/* `pdc data --show` of images: a folder, a tar or a zip file. Files are shown as they are, not decoded. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/data.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

enum { SHEET = 24, MOST_BYTES = 8 << 20 }; /* images that are shown; bytes of one */

static bool ends_with(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

bool is_of_images(const char *path) {
  struct stat st;
  return ends_with(path, ".tar") || ends_with(path, ".zip") || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

/* ---- sizes --------------------------------------------------------------------------------------- */

static int number(const unsigned char *at, int bytes) {
  int x = 0;
  for (int i = 0; i < bytes; i++)
    x = x << 8 | at[i];
  return x;
}

/* The size in the header of the first frame; none in a damaged file. */
static void read_jpeg_size(DataImage *m) {
  const unsigned char *p = (const unsigned char *)m->bytes;
  for (size_t at = 2; at + 9 <= m->size && p[at] == 0xFF;) {
    const int kind = p[at + 1];
    const bool frame = kind >= 0xC0 && kind <= 0xCF && kind != 0xC4 && kind != 0xC8 && kind != 0xCC;
    if (frame) {
      m->height = number(p + at + 5, 2);
      m->width = number(p + at + 7, 2);
      return;
    }
    at += kind == 0xFF ? 1 : 2 + (size_t)number(p + at + 2, 2);
  }
}

static void read_size(DataImage *m) {
  static const char png[] = "\x89PNG\r\n\x1a\n";
  m->png = m->size >= 24 && !memcmp(m->bytes, png, 8);
  if (m->png) {
    m->width = number((const unsigned char *)m->bytes + 16, 4) & INT32_MAX;
    m->height = number((const unsigned char *)m->bytes + 20, 4) & INT32_MAX;
  } else if (m->size > 3 && !memcmp(m->bytes, "\xff\xd8\xff", 3))
    read_jpeg_size(m);
  if (!m->width || !m->height)
    m->width = m->height = 0;
}

/* ---- images -------------------------------------------------------------------------------------- */

static int class_named(DataView *v, const char *name) {
  for (int c = v->classes.n - 1; c >= 0; c--)
    if (!strcmp(v->classes.at[c].name, name))
      return c;
  push(&v->classes, (DataClass){.name = name});
  return v->classes.n - 1;
}

static int by_number(const void *a, const void *b) {
  const DataClass *x = a, *y = b;
  const long m = strtol(x->name, NULL, 10), n = strtol(y->name, NULL, 10);
  return (m > n) - (m < n);
}

/* Counts an image; class NULL: none. Returns the class's name that stays. */
static const char *count_image(DataView *v, const char *class) {
  v->rows++;
  if (!class)
    return NULL;
  const int c = class_named(v, class);
  v->classes.at[c].samples++;
  return v->classes.at[c].name;
}

static bool is_shown(int64_t i, int64_t n) { return n <= SHEET || i * SHEET / n != (i - 1) * SHEET / n || !i; }

/* Adds an image whose bytes stay; without bytes it is damaged. */
static void add_image(DataView *v, const char *name, const char *class, const char *bytes, size_t size) {
  DataImage m = {.name = name, .class = class, .bytes = bytes, .size = size};
  if (size > MOST_BYTES)
    return;
  read_size(&m);
  push(&v->images, m);
}

static char *kept(const char *bytes, size_t n) {
  char *to = alloc(n + 1);
  if (n)
    memcpy(to, bytes, n);
  to[n] = 0;
  return to;
}

/* ---- files --------------------------------------------------------------------------------------- */

static bool view_tar(DataView *v, const struct pd_array *a, char *why) {
  struct pd_tar_ignored ignored;
  const int64_t n = pd_tar_samples(a, NULL, 0, &ignored, why);
  struct pd_tar_sample *s = n > 0 ? calloc((size_t)n, sizeof *s) : NULL;
  bool good = n >= 0 && (s || !n) && pd_tar_samples(a, s, n, &ignored, why) == n;
  for (int64_t i = 0; i < n && good; i++) {
    const char *class = count_image(v, s[i].label >= 0 ? format("%d", s[i].label) : NULL);
    if (is_shown(i, n))
      add_image(v, kept(s[i].name, s[i].name_length), class, kept(a->map + s[i].at, s[i].bytes), s[i].bytes);
  }
  free(s);
  return good;
}

static bool view_zip(DataView *v, const struct pd_array *a, char *why) {
  struct pd_zip_images z;
  bool good = pd_zip_images(a, &z, why);
  for (int64_t i = 0; i < z.n && good; i++) {
    const struct pd_zip_image *m = &z.image[i];
    const char *folder = m->name + z.root, *bytes;
    char *owned, cause[PD_WHY];
    const char *class = count_image(v, z.n_classes     ? kept(folder, strcspn(folder, "/"))
                                       : m->label >= 0 ? format("%d", m->label)
                                                       : NULL);
    if (!is_shown(i, z.n) || m->entry.size > MOST_BYTES)
      continue;
    const bool whole = pd_zip_unpack(a, &m->entry, m->name, &bytes, &owned, cause);
    const size_t size = whole ? m->entry.size : 0;
    add_image(v, kept(m->name, strlen(m->name)), class, kept(whole ? bytes : "", size), size);
    free(owned);
  }
  pd_zip_images_free(&z);
  return good;
}

/* ---- folders ------------------------------------------------------------------------------------- */

typedef Vec(const char *) Names;

/* Adds the images below root/folder, by names relative to `root`. */
static bool walk(const char *root, const char *folder, int depth, Names *to, char *why) {
  enum { MOST_DEPTH = 32 };
  const char *path = *folder ? format("%s/%s", root, folder) : root;
  DIR *d = depth < MOST_DEPTH ? opendir(path) : NULL;
  if (!d)
    return pd_refuse(why, "cannot read the folder '%s': %s", path,
                     depth < MOST_DEPTH ? strerror(errno) : "it is too deep");
  bool good = true;
  for (struct dirent *e; good && (e = readdir(d));) {
    struct stat st;
    const char *name = *folder ? format("%s/%s", folder, e->d_name) : format("%s", e->d_name);
    if (*e->d_name == '.' || stat(format("%s/%s", root, name), &st))
      continue;
    if (S_ISDIR(st.st_mode))
      good = walk(root, name, depth + 1, to, why);
    else if (pd_is_image_name(name))
      push(to, name);
  }
  closedir(d);
  return good;
}

static int by_path(const void *a, const void *b) {
  return pd_compare_paths(*(const char *const *)a, *(const char *const *)b);
}

static bool view_folder(DataView *v, const char *path, char *why) {
  Names names = {0};
  if (!walk(path, "", 0, &names, why))
    return false;
  if (names.n)
    qsort(names.at, (size_t)names.n, sizeof *names.at, by_path);
  for (int i = 0; i < names.n; i++) {
    const char *slash = strchr(names.at[i], '/');
    const char *class = count_image(v, slash ? kept(names.at[i], (size_t)(slash - names.at[i])) : NULL);
    char cause[PD_WHY];
    size_t size;
    if (!is_shown(i, names.n))
      continue;
    char *bytes = pd_read_file(format("%s/%s", path, names.at[i]), &size, cause);
    size = bytes ? size : 0;
    add_image(v, names.at[i], class, kept(bytes ? bytes : "", size), size);
    free(bytes);
  }
  return true;
}

bool view_images(DataView *v, const char *path, char *why) {
  struct stat st;
  bool good;
  v->kind = DATA_IMAGES;
  if (!stat(path, &st) && S_ISDIR(st.st_mode))
    good = view_folder(v, path, why);
  else {
    struct pd_array a = {.path = path};
    signals_watch(NULL);
    const char *map = map_watched(path, &a.size, why);
    a.map = map;
    good = a.map && (pd_is_tar(&a)         ? view_tar(v, &a, why)
                     : pd_is_image_zip(&a) ? view_zip(v, &a, why)
                                           : pd_refuse(why, "'%s' is neither a tar nor a zip file", path));
    unmap_watched(map);
    signals_restore();
    if (v->classes.n && strspn(v->classes.at[0].name, "0123456789") == strlen(v->classes.at[0].name))
      qsort(v->classes.at, (size_t)v->classes.n, sizeof *v->classes.at, by_number);
  }
  return good && (v->rows || pd_refuse(why, "'%s' has no images", path));
}
