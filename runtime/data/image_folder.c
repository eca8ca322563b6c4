/* Lists the images of a tar or zip file, or of a folder as torchvision's ImageFolder does: each folder in it is a class, numbered in the order of
 * names, and holds JPEG and PNG files at any depth. Without such folders, its own files are images without labels.
 * Names that start with a dot are skipped. The list must not depend on the order in which a file system returns
 * names. */
#define _GNU_SOURCE /* qsort_r */
#include "data/load.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- names ----------------------------------------------------------------------------------- */

struct names {
  char *texts;
  size_t bytes, room;
  size_t *entry; /* of each: "folder/name" in the texts */
  int64_t n, entry_room;
};

static void *larger(void *at, size_t bytes) {
  at = realloc(at, bytes);
  if (!at) pd_fail("out of memory for the names of images");
  return at;
}

static void add_name(struct names *l, const char *folder, const char *name) {
  const size_t before = strlen(folder), need = before + strlen(name) + 2;
  if (l->bytes + need > l->room) l->texts = larger(l->texts, l->room = 2 * l->room + need + 4096);
  if (l->n == l->entry_room)
    l->entry = larger(l->entry, sizeof *l->entry * (size_t)(l->entry_room = 2 * l->entry_room + 64));
  l->entry[l->n++] = l->bytes;
  l->bytes += (size_t)sprintf(l->texts + l->bytes, "%s%s%s", folder, before ? "/" : "", name) + 1;
}

static int by_folder(const void *a, const void *b, void *texts) {
  return pd_compare_paths((char *)texts + *(const size_t *)a, (char *)texts + *(const size_t *)b);
}

static void sort_names(struct names *l) {
  if (l->n) qsort_r(l->entry, (size_t)l->n, sizeof *l->entry, by_folder, l->texts);
}

static const char *name_at(const struct names *l, int64_t i) { return l->texts + l->entry[i]; }

static void free_names(struct names *l) {
  free(l->texts);
  free(l->entry);
}

/* ---- files ----------------------------------------------------------------------------------- */

struct listing {
  const char *root;
  struct names files;
  int64_t ignored;
  char example[NAME_MAX + 1]; /* an ignored file */
};

static bool add_file(struct listing *l, const char *folder, const char *name, char *why) {
  static const char *const others[] = {".ppm",  ".pgm", ".bmp",  ".tif",  ".tiff",
                                       ".webp", ".gif", ".heic", ".avif", NULL};
  if (pd_ends_with_any(name, others))
    return pd_refuse(why,
                     "'%s/%s%s%s' is an image, but neither JPEG nor PNG. help: convert it, or move it out of the "
                     "folder",
                     l->root, folder, *folder ? "/" : "", name);
  if (pd_is_image_name(name))
    add_name(&l->files, folder, name);
  else if (!l->ignored++)
    snprintf(l->example, sizeof l->example, "%s", name);
  return true;
}

/* ---- folders --------------------------------------------------------------------------------- */

struct place { /* a folder that is being read, below `up` */
  const struct place *up;
  dev_t device;
  ino_t number;
};

static bool join(char *to, const char *folder, const char *name, char *why) {
  const int n = snprintf(to, PATH_MAX, "%s%s%s", folder, *folder && *name ? "/" : "", name);
  return n < PATH_MAX || pd_refuse(why, "the path '%.100s...' is too long", to);
}

/* Whether the entry is a folder, after links; false in *ok if that is unknown. With --skip-broken, a link to nothing
 * is a broken image. */
static bool is_folder(const char *root, const char *folder, const struct dirent *e, bool *ok, char *why) {
  char relative[PATH_MAX], path[PATH_MAX];
  struct stat st;
  if (e->d_type == DT_DIR || e->d_type == DT_REG) return e->d_type == DT_DIR;
  *ok = join(relative, folder, e->d_name, why) && join(path, root, relative, why);
  if (!*ok) return false;
  if (!stat(path, &st)) return S_ISDIR(st.st_mode);
  *ok = (pd_options.skip_broken && pd_is_image_name(e->d_name)) ||
        pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  return false;
}

/* Reads the names in root/folder, without those that start with a dot. */
static bool read_names(const char *root, const char *folder, struct place *here, struct names *folders,
                       struct listing *files, char *why) {
  char path[PATH_MAX];
  struct stat st;
  if (!join(path, root, folder, why)) return false;
  DIR *d = opendir(path);
  if (!d || fstat(dirfd(d), &st)) {
    pd_refuse(why, "cannot read the folder '%s': %s", path, strerror(errno));
    if (d) closedir(d);
    return false;
  }
  here->device = st.st_dev;
  here->number = st.st_ino;
  bool ok = true;
  for (const struct place *p = here->up; p && ok; p = p->up)
    if (p->device == here->device && p->number == here->number)
      ok = pd_refuse(why, "'%s' is a symbolic link to a folder above it", path);
  for (struct dirent *e; ok && (errno = 0, e = readdir(d));) {
    if (*e->d_name == '.') continue;
    if (is_folder(root, folder, e, &ok, why))
      add_name(folders, folder, e->d_name);
    else if (ok)
      ok = add_file(files, folder, e->d_name, why);
  }
  if (ok && errno) ok = pd_refuse(why, "cannot read the folder '%s': %s", path, strerror(errno));
  closedir(d);
  return ok;
}

/* Adds the files of a folder and of all folders in it. */
static bool walk(struct listing *l, const char *folder, const struct place *up, char *why) {
  struct names folders = {0};
  struct place here = {.up = up};
  bool ok = read_names(l->root, folder, &here, &folders, l, why);
  for (int64_t i = 0; ok && i < folders.n; i++) ok = walk(l, name_at(&folders, i), &here, why);
  free_names(&folders);
  return ok;
}

/* ---- the list -------------------------------------------------------------------------------- */

static void note_ignored(const struct listing *l) {
  if (l->ignored)
    pd_note("'%s': %lld file%s ignored, such as '%s': images have names that end in .jpg, .jpeg or .png", l->root,
            (long long)l->ignored, l->ignored == 1 ? " is" : "s are", l->example);
}

static struct pd_images *new_images(const char *path, int64_t n, size_t bytes) {
  struct pd_images *m = pd_allocate(sizeof *m);
  m->path = path;
  m->n = n;
  m->list = pd_allocate(bytes);
  m->at = pd_allocate(sizeof *m->at * (size_t)n);
  m->labels = pd_allocate(sizeof *m->labels * (size_t)n);
  m->broken = pd_allocate((size_t)n);
  return m;
}

/* Copies the names in their order; `files` of class c are those from first[c] on. */
static struct pd_images *keep(const char *root, const struct names *classes, const struct names *files,
                              const int64_t *first) {
  const int64_t n = files->n;
  struct pd_images *m = new_images(root, n, classes->bytes + files->bytes);
  m->n_classes = m->n_labels = (int)classes->n;
  m->classes = pd_allocate(sizeof *m->classes * (size_t)(m->n_classes + 1));
  for (int c = 0; c < m->n_classes; c++) {
    m->classes[c] = m->list + m->bytes;
    m->bytes += (size_t)sprintf(m->list + m->bytes, "%s", name_at(classes, c)) + 1;
    for (int64_t i = first[c]; i < first[c + 1]; i++) m->labels[i] = c;
  }
  for (int64_t i = 0; i < n; i++) {
    m->at[i] = m->bytes;
    m->bytes += (size_t)sprintf(m->list + m->bytes, "%s", name_at(files, i)) + 1;
  }
  return m;
}

/* Sorts each class by itself: files of class c start at first[c]. */
static bool list_classes(struct listing *l, const struct names *classes, const struct place *root, int64_t *first,
                         char *why) {
  for (int64_t c = 0; c < classes->n; c++) {
    first[c] = l->files.n;
    if (!pd_is_plain_utf8(name_at(classes, c)))
      return pd_refuse(why, "the name of the class '%s' of '%s' is not UTF-8, or has control characters",
                       name_at(classes, c), l->root);
    if (!walk(l, name_at(classes, c), root, why)) return false;
    if (l->files.n == first[c])
      return pd_refuse(why,
                       "the class '%s' of '%s' has no images. help: remove the folder, or add .jpg or .png files",
                       name_at(classes, c), l->root);
    size_t *of_class = l->files.entry + first[c];
    qsort_r(of_class, (size_t)(l->files.n - first[c]), sizeof *of_class, by_folder, l->files.texts);
  }
  first[classes->n] = l->files.n;
  return true;
}

static bool can_decode(const char *path, const char *kind, char *why) {
  return pd_images_supported() ||
         pd_refuse(why,
                   "'%s' is a %s of images, but this program was built without libjpeg-turbo and libpng. help: "
                   "install libjpeg-dev and libpng-dev (Fedora: libjpeg-turbo-devel and libpng-devel), then build "
                   "pdc and the model again",
                   path, kind);
}

/* Classes of a tar file are numbers without names. */
struct pd_images *pd_list_tar(const struct pd_array *a, char *why) {
  struct pd_tar_ignored ignored;
  const int64_t n = can_decode(a->path, "tar file", why) ? pd_tar_samples(a, NULL, 0, &ignored, why) : -1;
  if (n < 0) return NULL;
  if (!n) {
    pd_refuse(why, "the tar file '%s' holds no samples. help: a sample is KEY.jpg, .jpeg or .png, and KEY.cls",
              a->path);
    return NULL;
  }
  struct pd_tar_sample *members = pd_allocate(sizeof *members * (size_t)n);
  if (pd_tar_samples(a, members, n, &ignored, why) != n) {
    pd_refuse(why, "'%s' changed while it was read", a->path);
    return NULL;
  }
  if (ignored.keys)
    pd_note("'%s': %lld key%s ignored, such as '%.*s': samples have a .jpg, .jpeg or .png file", a->path,
            (long long)ignored.keys, ignored.keys == 1 ? " is" : "s are", (int)ignored.length, ignored.example);
  size_t bytes = 0;
  for (int64_t i = 0; i < n; i++) bytes += members[i].name_length + 1;
  struct pd_images *m = new_images(a->path, n, bytes);
  m->map = a->map;
  m->members = members;
  for (int64_t i = 0; i < n; i++) {
    m->at[i] = m->bytes;
    memcpy(m->list + m->bytes, members[i].name, members[i].name_length);
    m->bytes += members[i].name_length + 1;
    m->labels[i] = members[i].label;
    if (!members[i].bytes && !pd_options.skip_broken) {
      pd_refuse(why, "'%s': '%s' is empty", a->path, m->list + m->at[i]);
      return NULL;
    }
    if ((members[i].label < 0) != (members[0].label < 0)) {
      pd_refuse(why, "'%s': '%s' has %s .cls file, unlike '%s'", a->path, m->list + m->at[i],
                members[i].label < 0 ? "no" : "a", m->list);
      return NULL;
    }
    if (m->labels[i] >= m->n_labels) m->n_labels = m->labels[i] + 1;
  }
  return m;
}

/* Gives the images of a zip file their place in the list: names of classes, then those of images. */
static struct pd_images *keep_zip(const struct pd_array *a, const struct pd_zip_images *z) {
  size_t bytes = 0;
  for (int64_t i = 0; i < z->n; i++) bytes += 2 * strlen(z->image[i].name) + 2; /* with its class */
  struct pd_images *m = new_images(a->path, z->n, bytes);
  struct pd_zip_entry *entries = pd_allocate(sizeof *entries * (size_t)z->n);
  m->map = a->map;
  m->map_size = a->size;
  m->entries = entries;
  m->n_classes = z->n_classes;
  m->classes = z->n_classes ? pd_allocate(sizeof *m->classes * (size_t)z->n_classes) : NULL;
  for (int64_t i = 0, c = 0; i < z->n && c < z->n_classes; i++) {
    if (z->image[i].label < c) continue;
    const char *name = z->image[i].name + z->root;
    m->classes[c++] = m->list + m->bytes;
    m->bytes += (size_t)sprintf(m->list + m->bytes, "%.*s", (int)strcspn(name, "/"), name) + 1;
  }
  for (int64_t i = 0; i < z->n; i++) {
    entries[i] = z->image[i].entry;
    m->at[i] = m->bytes;
    m->bytes += (size_t)sprintf(m->list + m->bytes, "%s", z->image[i].name) + 1;
    m->labels[i] = z->image[i].label;
    if (m->labels[i] >= m->n_labels) m->n_labels = m->labels[i] + 1;
  }
  return m;
}

struct pd_images *pd_list_zip(const struct pd_array *a, char *why) {
  struct pd_zip_images z;
  struct pd_images *m = NULL;
  if (!can_decode(a->path, "zip file", why)) return NULL;
  bool ok = pd_zip_images(a, &z, why);
  for (int64_t i = 0; i < z.n && ok && !pd_options.skip_broken; i++)
    ok = z.image[i].entry.size || pd_refuse(why, "'%s': '%s' is empty", a->path, z.image[i].name);
  if (ok) m = keep_zip(a, &z);
  if (m && z.ignored)
    pd_note("'%s': %lld file%s ignored, such as '%s': images have names that end in .jpg, .jpeg or .png", a->path,
            (long long)z.ignored, z.ignored == 1 ? " is" : "s are", z.example);
  pd_zip_images_free(&z);
  return m;
}

struct pd_images *pd_list_images(const char *path, char *why) {
  struct names classes = {0};
  struct listing l = {.root = path};
  struct place root = {0};
  struct pd_images *images = NULL;
  bool ok = can_decode(path, "folder", why) && read_names(path, "", &root, &classes, &l, why);
  sort_names(&classes);
  int64_t *first = pd_allocate(sizeof *first * (size_t)(classes.n + 1));
  if (ok && classes.n && l.files.n)
    ok = pd_refuse(why,
                   "'%s' has folders of classes, and %lld images beside them, such as '%s'. help: move each "
                   "image into the folder of its class",
                   path, (long long)l.files.n, name_at(&l.files, 0));
  if (ok && !classes.n && !l.files.n)
    ok = pd_refuse(why,
                   "the folder '%s' has no images. help: give a folder with one folder of .jpg or .png files "
                   "for each class",
                   path);
  ok = ok && list_classes(&l, &classes, &root, first, why);
  if (!classes.n) sort_names(&l.files);
  if (ok) {
    note_ignored(&l);
    images = keep(path, &classes, &l.files, first);
  }
  free(first);
  free_names(&classes);
  free_names(&l.files);
  return images;
}

bool pd_same_classes(const struct pd_images *a, const struct pd_images *b, char *why) {
  if (!a->n_classes || !b->n_classes) return true; /* without names, there is nothing to compare */
  for (int c = 0; c < a->n_classes || c < b->n_classes; c++) {
    const char *of_a = c < a->n_classes ? a->classes[c] : "none",
               *of_b = c < b->n_classes ? b->classes[c] : "none";
    if (c >= a->n_classes || c >= b->n_classes || strcmp(of_a, of_b))
      return pd_refuse(why, "class %d is '%s' in '%s', but '%s' in '%s'. help: give folders with the same classes",
                       c, of_a, a->path, of_b, b->path);
  }
  return true;
}

/* Files of weights and folders have sorted names: the next name is usually the next class. */
bool pd_renumber_classes(struct pd_images *m, const char **names, int n, const char *path, char *why) {
  int32_t *number = pd_allocate(sizeof *number * (size_t)(m->n_classes + 1));
  bool moves = false;
  for (int c = 0, next = 0; c < m->n_classes; c++, next++) {
    int tried = 0;
    while (tried < n && strcmp(names[(next + tried) % n], m->classes[c])) tried++;
    if (tried == n)
      return pd_refuse(why,
                       "the class '%s' of '%s' is unknown to the weights of '%s', which have %d classes, such as "
                       "'%s'. help: give folders with the names of those classes; for predictions alone, give a "
                       "folder of images without classes",
                       m->classes[c], m->path, path, n, names[0]);
    number[c] = next = (next + tried) % n;
    moves |= next != c;
  }
  for (int64_t i = 0; m->n_classes && i < m->n; i++) m->labels[i] = number[m->labels[i]];
  if (moves)
    pd_note("'%s' has %d of the %d classes of '%s': labels have the numbers that they have there", m->path,
            m->n_classes, n, path);
  if (m->n_classes) {
    m->classes = names;
    m->n_classes = m->n_labels = n;
  }
  free(number);
  return true;
}
