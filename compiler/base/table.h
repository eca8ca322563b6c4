/* A hash table from keys of one size, which are hashed and compared as bytes, to pointers. */
#ifndef PDC_TABLE_H
#define PDC_TABLE_H

#include <stddef.h>

typedef struct Table {
  size_t key_bytes; /* a multiple of 8, without bytes that no member has */
  size_t room, n;   /* open addressing: room is a power of two, at most half of it is taken */
  char *keys;
  void **values; /* NULL: free */
} Table;

/* The key's value, NULL if it has none. */
void *table_find(const Table *t, const void *key);
/* The key must be new, the value not NULL. */
void table_add(Table *t, const void *key, void *value);
/* Takes the place of the key's value, if it has one. */
void table_set(Table *t, const void *key, void *value);

/* A table whose values are numbers from -1 on; -1 is also that of a key that has none. */
int table_number(const Table *t, const void *key);
void table_set_number(Table *t, const void *key, int number);

#endif
