#include "base/table.h"

#include <string.h>

#include "base/base.h"

enum { FIRST_ROOM = 8 };

/* FNV-1a over words. */
static size_t hash(const Table *t, const char *key) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < t->key_bytes; i += sizeof h) {
    uint64_t word;
    memcpy(&word, key + i, sizeof word);
    h = (h ^ word) * 0x100000001b3u;
  }
  return (size_t)(h ^ h >> 32);
}

/* The index of the key, or the index at which to add it. */
static size_t index_of(const Table *t, const char *key) {
  size_t i = hash(t, key) & (t->room - 1);
  while (t->values[i] && memcmp(t->keys + i * t->key_bytes, key, t->key_bytes) != 0)
    i = (i + 1) & (t->room - 1);
  return i;
}

static void put(Table *t, const char *key, void *value) {
  size_t i = index_of(t, key);
  ensure(!t->values[i] && value);
  memcpy(t->keys + i * t->key_bytes, key, t->key_bytes);
  t->values[i] = value;
  t->n++;
}

static void grow(Table *t) {
  Table larger = {.key_bytes = t->key_bytes, .room = t->room ? 2 * t->room : FIRST_ROOM};
  larger.keys = alloc(larger.room * larger.key_bytes);
  larger.values = alloc(larger.room * sizeof *larger.values);
  for (size_t i = 0; i < t->room; i++)
    if (t->values[i])
      put(&larger, t->keys + i * t->key_bytes, t->values[i]);
  *t = larger;
}

void *table_find(const Table *t, const void *key) { return t->room ? t->values[index_of(t, key)] : NULL; }

void table_add(Table *t, const void *key, void *value) {
  if (2 * (t->n + 1) > t->room)
    grow(t);
  put(t, key, value);
}

void table_set(Table *t, const void *key, void *value) {
  ensure(value);
  if (table_find(t, key))
    t->values[index_of(t, key)] = value;
  else
    table_add(t, key, value);
}

int table_number(const Table *t, const void *key) {
  const int *number = table_find(t, key);
  return number ? *number : -1;
}

void table_set_number(Table *t, const void *key, int number) {
  int *at = table_find(t, key);
  if (at)
    *at = number;
  else
    table_add(t, key, alloc_copy(&number, sizeof number));
}
