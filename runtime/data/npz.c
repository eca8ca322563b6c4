/* .npz archives (numpy.savez and savez_compressed): zip files of .npy arrays, stored or deflated, with 64-bit
 * sizes where numpy writes them. PKWARE's APPNOTE.TXT describes the format; offsets here are its own. */
#include "data/data.h"
#include "shared/crc32.h"

#include <stdio.h>
#include <string.h>

enum { END = 22, END_LOCATOR = 20, END_64 = 56, ENTRY = 46, LOCAL = 30, COMMENT = 65535 };
#define END_MARK 0x06054b50u
#define END_LOCATOR_MARK 0x07064b50u
#define END_64_MARK 0x06064b50u
#define ENTRY_MARK 0x02014b50u
#define LOCAL_MARK 0x04034b50u
#define IN_EXTRA 0xffffffffu /* marks a 32-bit field whose value is in a 64-bit extra field */

struct directory {
  size_t at, end;
};

static uint64_t number(const struct pd_array *a, size_t at, int bytes) {
  uint64_t x = 0;
  memcpy(&x, a->map + at, (size_t)bytes);
  return x;
}

static bool holds(const struct pd_array *a, size_t at, size_t n) { return at <= a->size && n <= a->size - at; }

static bool damaged(const struct pd_array *a, size_t at, const char *what, char *why) {
  return pd_refuse(why, "'%s' is cut short or damaged at offset %lld: %s", a->path, (long long)at, what);
}

/* ---- the directory, which stands at the end ------------------------------------------------- */

static bool find_directory(const struct pd_array *a, struct directory *d, char *why) {
  if (a->size < END) return pd_refuse(why, "'%s' is not a .npz archive", a->path);
  size_t at = a->size - END, least = at > COMMENT ? at - COMMENT : 0;
  while (number(a, at, 4) != END_MARK || number(a, at + 20, 2) > a->size - at - END)
    if (at-- == least) return pd_refuse(why, "'%s' is not a .npz archive, or is cut short", a->path);
  uint64_t size = number(a, at + 12, 4), first = number(a, at + 16, 4);
  if (at >= END_LOCATOR && number(a, at - END_LOCATOR, 4) == END_LOCATOR_MARK) {
    size_t far = number(a, at - END_LOCATOR + 8, 8);
    if (!holds(a, far, END_64) || number(a, far, 4) != END_64_MARK)
      return damaged(a, at - END_LOCATOR, "its 64-bit directory is not where the file says", why);
    size = number(a, far + 40, 8);
    first = number(a, far + 48, 8);
  }
  if (!holds(a, first, size)) return damaged(a, at, "its directory is elsewhere", why);
  *d = (struct directory){first, first + size};
  return true;
}

/* Reads an entry's values from its extra field, [at, end), in the order size, packed size, offset. */
static bool read_extra(const struct pd_array *a, size_t at, size_t end, uint64_t *const to[3]) {
  for (size_t n; at + 4 <= end; at += 4 + n) {
    n = number(a, at + 2, 2);
    if (n > end - at - 4) return false;
    if (number(a, at, 2) != 1) continue;
    size_t from = at + 4;
    for (int i = 0; i < 3; i++) {
      if (*to[i] != IN_EXTRA) continue;
      if (from + 8 > at + 4 + n) return false;
      *to[i] = number(a, from, 8);
      from += 8;
    }
    return true;
  }
  return false;
}

/* Reads the directory's next entry and advances d->at. */
static bool next_entry(const struct pd_array *a, struct directory *d, struct pd_npz_entry *e, char *why) {
  size_t at = d->at;
  if (d->end - at < ENTRY || number(a, at, 4) != ENTRY_MARK) return damaged(a, at, "no entry of a directory", why);
  size_t name = number(a, at + 28, 2), extra = number(a, at + 30, 2), comment = number(a, at + 32, 2);
  if (name + extra + comment > d->end - at - ENTRY) return damaged(a, at, "an entry ends past its directory", why);
  uint64_t packed = number(a, at + 20, 4), size = number(a, at + 24, 4), local = number(a, at + 42, 4);
  if (packed == IN_EXTRA || size == IN_EXTRA || local == IN_EXTRA)
    if (!read_extra(a, at + ENTRY + name, at + ENTRY + name + extra, (uint64_t *[]){&size, &packed, &local}))
      return damaged(a, at, "an entry lacks its 64-bit sizes", why);
  *e = (struct pd_npz_entry){.name = a->map + at + ENTRY,
                             .name_length = (int)name,
                             .method = (int)number(a, at + 10, 2),
                             .encrypted = number(a, at + 8, 2) & 1,
                             .checksum = (uint32_t)number(a, at + 16, 4),
                             .local = local,
                             .packed = packed,
                             .size = size};
  static const char end[] = ".npy";
  if (name > 4 && !memcmp(e->name + name - 4, end, 4)) e->name_length -= 4;
  d->at = at + ENTRY + name + extra + comment;
  return true;
}

/* ---- arrays ------------------------------------------------------------------------------------ */

static bool is_named(const struct pd_npz_entry *e, const char *name) {
  return strlen(name) == (size_t)e->name_length && !memcmp(name, e->name, strlen(name));
}

int pd_npz_arrays(const struct pd_array *a, struct pd_npz_entry *to, int room, char *why) {
  struct directory d;
  int n = 0;
  if (!find_directory(a, &d, why)) return -1;
  for (struct pd_npz_entry e; d.at < d.end; n++) {
    if (!next_entry(a, &d, &e, why)) return -1;
    if (n < room) to[n] = e;
  }
  return n;
}

bool pd_npz_find(const struct pd_array *a, const char *name, bool any, struct pd_npz_entry *e, char *why) {
  struct directory d;
  struct pd_npz_entry last = {0};
  int n = 0, shown = 0;
  char names[160] = "";
  if (!find_directory(a, &d, why)) return false;
  for (; d.at < d.end; n++) {
    if (!next_entry(a, &d, &last, why)) return false;
    *e = last;
    if (is_named(e, name)) return true;
    if (shown < (int)sizeof names)
      shown +=
          snprintf(names + shown, sizeof names - (size_t)shown, "%s%.*s", n ? ", " : "", e->name_length, e->name);
  }
  if (any && n == 1) return true;
  return pd_refuse(why, "'%s' has no array '%s', but %s", a->path, name, n ? names : "none at all");
}

bool pd_npz_open(struct pd_array *a, const struct pd_npz_entry *e, char *why) {
  if (!holds(a, e->local, LOCAL) || number(a, e->local, 4) != LOCAL_MARK)
    return damaged(a, e->local, "the array that the directory lists is missing", why);
  size_t at = e->local + LOCAL + number(a, e->local + 26, 2) + number(a, e->local + 28, 2);
  if (!holds(a, at, e->packed)) return damaged(a, a->size, "an array ends past the file", why);
  if (e->encrypted || (e->method != PD_NPZ_STORED && e->method != PD_NPZ_DEFLATED))
    return pd_refuse(why, "'%s': '%.*s' is packed by method %d%s: only stored and deflated arrays are supported",
                     a->path, e->name_length, e->name, e->method, e->encrypted ? " and encrypted" : "");
  /* Deflate packs by a factor of at most 1032: larger sizes are refused before allocation. */
  if (e->method == PD_NPZ_STORED ? e->size != e->packed : e->size / 1032 > e->packed)
    return damaged(a, e->local, "an array's size does not match its data", why);
  a->map += at;
  a->size = e->packed;
  return true;
}

bool pd_npz_unpack(struct pd_array *a, const struct pd_npz_entry *e, char *to, char *why) {
  if (!pd_inflate(a->map, a->size, to, e->size) || pd_crc32(0, to, e->size) != e->checksum)
    return pd_refuse(why, "'%s' is damaged: '%.*s' cannot be unpacked", a->path, e->name_length, e->name);
  a->map = to;
  a->size = e->size;
  return true;
}
