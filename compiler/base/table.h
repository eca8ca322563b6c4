/* A hash table from keys of one size, which are hashed and compared as bytes, to pointers. */
#ifndef PDC_TABLE_H
#define PDC_TABLE_H

#include <stddef.h>

typedef struct Table {
  size_t key_bytes; /* a multiple of 8, without padding bytes */
  size_t room, n;   /* open addressing: room is a power of two, at most half full */
  char *keys;
  void **values; /* NULL: free */
} Table;

/* The key's value; NULL: not found. */
void *table_find(const Table *t, const void *key);
/* The key must be new, the value not NULL. */
void table_add(Table *t, const void *key, void *value);
/* Replaces the key's value, or adds the key. */
void table_set(Table *t, const void *key, void *value);

/* A table with numbers of at least -1 as values; -1 also for a missing key. */
int table_number(const Table *t, const void *key);
void table_set_number(Table *t, const void *key, int number);

#endif
