/* The arena, interned names, growing vectors and text buffers. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20, ALIGN = 16 };

static char *unused;
static size_t unused_bytes;
static void *blocks; /* all that was taken, linked through their first word, so that leak checkers see it */

static void *block_new(size_t bytes) {
  void **block = calloc(1, ALIGN + bytes);
  if (!block) {
    fprintf(stderr, "pdc: error: out of memory\n");
    exit(1);
  }
  *block = blocks;
  blocks = block;
  return (char *)block + ALIGN;
}

void *alloc(size_t bytes) {
  bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  if (bytes == 0)
    bytes = ALIGN;
  if (bytes > BLOCK / 4)
    return block_new(bytes);
  if (bytes > unused_bytes) {
    unused = block_new(BLOCK);
    unused_bytes = BLOCK;
  }
  void *p = unused;
  unused += bytes;
  unused_bytes -= bytes;
  return p;
}

/* What was taken since, within the block at hand and in blocks of its own. */
ArenaMark arena_mark(void) { return (ArenaMark){unused, unused_bytes, blocks}; }

void arena_release(ArenaMark mark) {
  size_t taken = mark.unused_bytes;
  if (unused >= mark.unused && unused + unused_bytes == mark.unused + mark.unused_bytes)
    taken = (size_t)(unused - mark.unused);
  while (blocks != mark.blocks) {
    void *before = *(void **)blocks;
    free(blocks);
    blocks = before;
  }
  unused = mark.unused;
  unused_bytes = mark.unused_bytes;
  if (taken)
    memset(unused, 0, taken);
}

void *alloc_copy(const void *from, size_t bytes) {
  void *p = alloc(bytes);
  if (bytes)
    memcpy(p, from, bytes);
  return p;
}

void *vec_grow(void *at, int *room, size_t element) {
  int grown = *room ? *room * 2 : 8;
  void *p = alloc((size_t)grown * element);
  if (*room)
    memcpy(p, at, (size_t)*room * element);
  *room = grown;
  return p;
}

/* ---- interned names: open addressing, the table at most half full ------------------------------ */

static struct {
  Name *slot;
  size_t n, room;
} names;

static size_t hash(const char *text, size_t length) {
  uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
  for (size_t i = 0; i < length; i++)
    h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
  return (size_t)(h ^ h >> 32);
}

static Name *find_slot(Name *slot, size_t room, const char *text, size_t length) {
  size_t i = hash(text, length) & (room - 1);
  while (slot[i] && (strncmp(slot[i], text, length) != 0 || slot[i][length]))
    i = (i + 1) & (room - 1);
  return &slot[i];
}

static void names_grow(void) {
  size_t room = names.room ? names.room * 2 : 1024;
  Name *slot = alloc(room * sizeof *slot);
  for (size_t i = 0; i < names.room; i++)
    if (names.slot[i])
      *find_slot(slot, room, names.slot[i], strlen(names.slot[i])) = names.slot[i];
  names.slot = slot;
  names.room = room;
}

Name intern_n(const char *text, size_t length) {
  if (2 * (names.n + 1) > names.room)
    names_grow();
  Name *slot = find_slot(names.slot, names.room, text, length);
  if (!*slot) {
    char *copy = alloc(length + 1);
    memcpy(copy, text, length);
    *slot = copy;
    names.n++;
  }
  return *slot;
}

Name intern(const char *text) { return intern_n(text, strlen(text)); }

static char *format_v(const char *pattern, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, pattern, args);
  ensure(n >= 0);
  char *text = alloc((size_t)n + 1);
  vsnprintf(text, (size_t)n + 1, pattern, again);
  va_end(again);
  return text;
}

char *format(const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  char *text = format_v(pattern, args);
  va_end(args);
  return text;
}

Name internf(const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  char *text = format_v(pattern, args);
  va_end(args);
  return intern(text);
}

void text_add(Text *t, const char *pattern, ...) {
  va_list args, again;
  va_start(args, pattern);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, pattern, args);
  va_end(args);
  ensure(n >= 0);
  if (t->n + (size_t)n + 1 > t->room) {
    size_t room = t->room ? t->room * 2 : 256;
    while (t->n + (size_t)n + 1 > room)
      room *= 2;
    char *at = alloc(room);
    if (t->n)
      memcpy(at, t->at, t->n);
    t->at = at;
    t->room = room;
  }
  vsnprintf(t->at + t->n, (size_t)n + 1, pattern, again);
  va_end(again);
  t->n += (size_t)n;
}

const char *bytes_text(int64_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double x = (double)bytes;
  int unit = 0;
  while (x >= 1024 && unit < 4) {
    x /= 1024;
    unit++;
  }
  return format(unit ? "%.1f %s" : "%.0f %s", x, units[unit]);
}
