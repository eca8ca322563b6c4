/* .npz archives (numpy.savez and savez_compressed): zip files of .npy arrays, stored or deflated, with 64-bit
 * sizes where numpy writes them. */
#include "data/data.h"
#include "shared/crc32.h"

#include <stdio.h>
#include <string.h>

static bool open_archive(const struct pd_array *a, struct pd_zip *z, char *why) {
  char cause[PD_WHY];
  return pd_zip_open(z, a->map, a->size, ".npz", cause) || pd_refuse(why, "'%s' %.900s", a->path, cause);
}

/* Names lose their ending .npy. */
static bool next_entry(const struct pd_array *a, struct pd_zip *z, struct pd_zip_entry *e, char *why) {
  static const char end[] = ".npy";
  char cause[PD_WHY];
  if (!pd_zip_next(z, e, cause)) return pd_refuse(why, "'%s' %.900s", a->path, cause);
  if (e->name_length > 4 && !memcmp(e->name + e->name_length - 4, end, 4)) e->name_length -= 4;
  return true;
}

static bool is_named(const struct pd_zip_entry *e, const char *name) {
  return strlen(name) == (size_t)e->name_length && !memcmp(name, e->name, strlen(name));
}

int pd_npz_arrays(const struct pd_array *a, struct pd_zip_entry *to, int room, char *why) {
  struct pd_zip z;
  int n = 0;
  if (!open_archive(a, &z, why)) return -1;
  for (struct pd_zip_entry e; z.at < z.end; n++) {
    if (!next_entry(a, &z, &e, why)) return -1;
    if (n < room) to[n] = e;
  }
  return n;
}

bool pd_npz_find(const struct pd_array *a, const char *name, bool any, struct pd_zip_entry *e, char *why) {
  struct pd_zip z;
  struct pd_zip_entry last = {0};
  int n = 0, shown = 0;
  char names[160] = "";
  if (!open_archive(a, &z, why)) return false;
  for (; z.at < z.end; n++) {
    if (!next_entry(a, &z, &last, why)) return false;
    *e = last;
    if (is_named(e, name)) return true;
    if (shown < (int)sizeof names)
      shown +=
          snprintf(names + shown, sizeof names - (size_t)shown, "%s%.*s", n ? ", " : "", e->name_length, e->name);
  }
  if (any && n == 1) return true;
  return pd_refuse(why, "'%s' has no array '%s', but %s", a->path, name, n ? names : "none at all");
}

bool pd_npz_open(struct pd_array *a, const struct pd_zip_entry *e, char *why) {
  const struct pd_zip z = {.map = a->map, .size = a->size};
  char cause[PD_WHY];
  const char *data = pd_zip_data(&z, e, cause);
  if (!data) return pd_refuse(why, "'%s' %.900s", a->path, cause);
  if (e->encrypted || (e->method != PD_ZIP_STORED && e->method != PD_ZIP_DEFLATED))
    return pd_refuse(why, "'%s': '%.*s' is packed by method %d%s: only stored and deflated arrays are supported",
                     a->path, e->name_length, e->name, e->method, e->encrypted ? " and encrypted" : "");
  /* Deflate packs by a factor of at most 1032: larger sizes are refused before allocation. */
  if (e->method == PD_ZIP_STORED ? e->size != e->packed : e->size / 1032 > e->packed)
    return pd_refuse(why, "'%s' is damaged at offset %lld: an array's size does not match its data", a->path,
                     (long long)e->local);
  a->map = data;
  a->size = e->packed;
  return true;
}

bool pd_npz_unpack(struct pd_array *a, const struct pd_zip_entry *e, char *to, char *why) {
  if (!pd_inflate(a->map, a->size, to, e->size) || pd_crc32(0, to, e->size) != e->checksum)
    return pd_refuse(why, "'%s' is damaged: '%.*s' cannot be unpacked", a->path, e->name_length, e->name);
  a->map = to;
  a->size = e->size;
  return true;
}
