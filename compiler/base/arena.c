/* The arena, interned names, growable vectors and text buffers. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#include "base/again.h"

/* Under the address sanitizer, padding and a gap after each allocation are poisoned. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GUARDED
#endif
#endif
#ifdef GUARDED
enum { GAP = 16 };
#else
enum { GAP = 0 };
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { BLOCK = 1 << 20, ALIGN = 16 };

/* Blocks are linked so that leak checkers see them. */
typedef struct Block {
  struct Block *before;
  size_t bytes; /* after this header */
} Block;

struct Arena {
  char *unused;
  size_t unused_bytes;
  Block *blocks; /* newest first */
  Arena *before; /* the previously created arena */
};

static Arena lasting, names_arena, *current = &lasting, *made;
static Block *spare; /* free blocks of BLOCK bytes, zeroed */

static _Noreturn void out_of_memory(void) {
  fprintf(stderr, "pdc: error: out of memory\n");
  exit(1);
}

static void *block_new(Arena *a, size_t bytes) {
  Block *block = bytes == BLOCK ? spare : NULL;
  if (block)
    spare = block->before;
  else if (!(block = calloc(1, sizeof *block + bytes)))
    out_of_memory();
  *block = (Block){a->blocks, bytes};
  a->blocks = block;
  return block + 1;
}

/* Opens a block for piecewise allocation. */
static void open_block(Arena *a, size_t bytes) {
  a->unused = block_new(a, bytes);
  a->unused_bytes = bytes;
  ASAN_POISON_MEMORY_REGION(a->unused, bytes);
}

static void *alloc_from(Arena *a, size_t wanted) {
  size_t bytes = ((wanted + ALIGN - 1) & ~(size_t)(ALIGN - 1)) + GAP;
  if (bytes == 0)
    bytes = ALIGN;
  if (bytes > BLOCK / 4)
    return block_new(a, bytes - GAP);
  if (bytes > a->unused_bytes)
    open_block(a, BLOCK);
  void *p = a->unused;
  a->unused += bytes;
  a->unused_bytes -= bytes;
  ASAN_UNPOISON_MEMORY_REGION(p, wanted);
  return p;
}

void *alloc(size_t bytes) { return alloc_from(current, bytes); }

Arena *arena_new(void) {
  Arena *a = calloc(1, sizeof *a);
  if (!a)
    out_of_memory();
  a->before = made;
  return made = a;
}

Arena *arena_use(Arena *a) {
  Arena *before = current;
  current = a ? a : &lasting;
  return before;
}

/* Blocks of the usual size are kept for reuse, because new memory costs more than clearing the used part. */
static void block_free(Block *block, size_t taken) {
  ASAN_UNPOISON_MEMORY_REGION(block + 1, block->bytes);
  if (block->bytes != BLOCK) {
    free(block);
    return;
  }
  memset(block + 1, 0, taken);
  block->before = spare;
  spare = block;
}

/* The position for releasing later allocations, in the current block and in separate blocks. */
static ArenaMark mark_of(const Arena *a) { return (ArenaMark){a->unused, a->unused_bytes, a->blocks}; }

static void release(Arena *a, ArenaMark mark) {
  size_t taken = mark.unused_bytes;
  if (mark.unused && a->unused >= mark.unused && a->unused + a->unused_bytes == mark.unused + mark.unused_bytes)
    taken = (size_t)(a->unused - mark.unused);
  while (a->blocks != mark.blocks) {
    Block *block = a->blocks;
    const char *first = (const char *)(block + 1);
    bool open = a->unused >= first && a->unused <= first + block->bytes;
    a->blocks = block->before;
    block_free(block, open ? (size_t)(a->unused - first) : block->bytes);
  }
  a->unused = mark.unused;
  a->unused_bytes = mark.unused_bytes;
  ASAN_UNPOISON_MEMORY_REGION(a->unused, taken);
  if (taken)
    memset(a->unused, 0, taken);
  ASAN_POISON_MEMORY_REGION(a->unused, taken);
}

ArenaMark arena_mark(void) { return mark_of(current); }

void arena_release(ArenaMark mark) { release(current, mark); }

static ArenaMark kept, kept_names;
static Arena *kept_made;

void arena_keep(void) {
  enum { ROOM = 16 << 20 }; /* enough for most files, so that a restart frees nothing */
  ensure(current == &lasting);
  open_block(&lasting, ROOM);
  kept = mark_of(&lasting);
  kept_names = mark_of(&names_arena);
  kept_made = made;
}

void arena_restart(void) {
  current = &lasting;
  while (made != kept_made) {
    Arena *a = made;
    release(a, (ArenaMark){0});
    made = a->before;
    free(a);
  }
  release(&lasting, kept);
  release(&names_arena, kept_names);
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
  Name *slot = alloc_from(&names_arena, room * sizeof *slot);
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
    char *copy = alloc_from(&names_arena, length + 1);
    memcpy(copy, text, length);
    *slot = copy;
    names.n++;
  }
  return *slot;
}

static Name *kept_slots, *kept_table; /* a copy of the table and its slots */
static size_t n_kept, kept_room;

void names_keep(void) {
  kept_slots = names.slot;
  kept_table = alloc_copy(names.slot, names.room * sizeof *names.slot);
  n_kept = names.n;
  kept_room = names.room;
}

void names_restart(void) {
  memcpy(kept_slots, kept_table, kept_room * sizeof *kept_table);
  names.slot = kept_slots;
  names.n = n_kept;
  names.room = kept_room;
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

const char *with_commas(int64_t n) {
  char *digits = format("%lld", (long long)n);
  Text t = {0};
  for (int left = (int)strlen(digits); left > 0; left--, digits++)
    text_add(&t, left % 3 == 0 && t.n > 0 ? ",%c" : "%c", *digits);
  return t.at;
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
