/* The directory stands at the end of the file. Offsets here are those of PKWARE's APPNOTE.TXT. */
#include "shared/zip.h"

#include <string.h>

enum { END = 22, END_LOCATOR = 20, END_64 = 56, ENTRY = 46, LOCAL = 30, COMMENT = 65535 };
#define END_MARK 0x06054b50u
#define END_LOCATOR_MARK 0x07064b50u
#define END_64_MARK 0x06064b50u
#define ENTRY_MARK 0x02014b50u
#define LOCAL_MARK 0x04034b50u
#define IN_EXTRA 0xffffffffu /* marks a 32-bit field whose value is in a 64-bit extra field */

static uint64_t number(const struct pd_zip *z, size_t at, int bytes) {
  uint64_t x = 0;
  memcpy(&x, z->map + at, (size_t)bytes);
  return x;
}

static bool holds(const struct pd_zip *z, size_t at, size_t n) { return at <= z->size && n <= z->size - at; }

static bool damaged(size_t at, const char *what, char *why) {
  return pd_refuse(why, "is cut short or damaged at offset %lld: %s", (long long)at, what);
}

bool pd_zip_open(struct pd_zip *z, const void *bytes, size_t bytes_all, const char *kind, char *why) {
  *z = (struct pd_zip){.map = bytes, .size = bytes_all};
  if (z->size < END) return pd_refuse(why, "is not a %s archive, or is cut short", kind);
  size_t at = z->size - END, least = at > COMMENT ? at - COMMENT : 0;
  while (number(z, at, 4) != END_MARK || number(z, at + 20, 2) > z->size - at - END)
    if (at-- == least) return pd_refuse(why, "is not a %s archive, or is cut short", kind);
  uint64_t size = number(z, at + 12, 4), first = number(z, at + 16, 4);
  if (at >= END_LOCATOR && number(z, at - END_LOCATOR, 4) == END_LOCATOR_MARK) {
    size_t far = number(z, at - END_LOCATOR + 8, 8);
    if (!holds(z, far, END_64) || number(z, far, 4) != END_64_MARK)
      return damaged(at - END_LOCATOR, "its 64-bit directory is not where the file says", why);
    size = number(z, far + 40, 8);
    first = number(z, far + 48, 8);
  }
  if (!holds(z, first, size)) return damaged(at, "its directory is elsewhere", why);
  z->at = first;
  z->end = first + size;
  return true;
}

/* Reads an entry's values from its extra field, [at, end), in the order size, packed size, offset. */
static bool read_extra(const struct pd_zip *z, size_t at, size_t end, uint64_t *const to[3]) {
  for (size_t n; at + 4 <= end; at += 4 + n) {
    n = number(z, at + 2, 2);
    if (n > end - at - 4) return false;
    if (number(z, at, 2) != 1) continue;
    size_t from = at + 4;
    for (int i = 0; i < 3; i++) {
      if (*to[i] != IN_EXTRA) continue;
      if (from + 8 > at + 4 + n) return false;
      *to[i] = number(z, from, 8);
      from += 8;
    }
    return true;
  }
  return false;
}

bool pd_zip_next(struct pd_zip *z, struct pd_zip_entry *e, char *why) {
  size_t at = z->at;
  if (z->end - at < ENTRY || number(z, at, 4) != ENTRY_MARK) return damaged(at, "no entry of a directory", why);
  size_t name = number(z, at + 28, 2), extra = number(z, at + 30, 2), comment = number(z, at + 32, 2);
  if (name + extra + comment > z->end - at - ENTRY) return damaged(at, "an entry ends past its directory", why);
  uint64_t packed = number(z, at + 20, 4), size = number(z, at + 24, 4), local = number(z, at + 42, 4);
  if (packed == IN_EXTRA || size == IN_EXTRA || local == IN_EXTRA)
    if (!read_extra(z, at + ENTRY + name, at + ENTRY + name + extra, (uint64_t *[]){&size, &packed, &local}))
      return damaged(at, "an entry lacks its 64-bit sizes", why);
  *e = (struct pd_zip_entry){.name = z->map + at + ENTRY,
                             .name_length = (int)name,
                             .method = (int)number(z, at + 10, 2),
                             .encrypted = number(z, at + 8, 2) & 1,
                             .checksum = (uint32_t)number(z, at + 16, 4),
                             .local = local,
                             .packed = packed,
                             .size = size};
  z->at = at + ENTRY + name + extra + comment;
  return true;
}

const char *pd_zip_data(const struct pd_zip *z, const struct pd_zip_entry *e, char *why) {
  size_t at = 0;
  bool ok = (holds(z, e->local, LOCAL) && number(z, e->local, 4) == LOCAL_MARK) ||
            damaged(e->local, "the entry that the directory lists is missing", why);
  if (ok) at = e->local + LOCAL + number(z, e->local + 26, 2) + number(z, e->local + 28, 2);
  ok = ok && (holds(z, at, e->packed) || damaged(z->size, "an entry ends past the file", why));
  return ok ? z->map + at : NULL;
}
