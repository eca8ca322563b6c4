/* The values of a pickle (Python's protocols 2 to 5). Private to pytorch.c. */
#ifndef PD_PICKLE_H
#define PD_PICKLE_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

enum pd_pickled {
  PD_PICKLED_NONE, /* also booleans, floats and bytes, which no tensor needs */
  PD_PICKLED_INT,
  PD_PICKLED_TEXT,
  PD_PICKLED_TUPLE, /* and lists */
  PD_PICKLED_DICT,
  PD_PICKLED_GLOBAL, /* a name: `text` has "module.name" */
  PD_PICKLED_STORAGE,
  PD_PICKLED_TENSOR,
  PD_PICKLED_MARK
};

struct pd_pickle_value {
  enum pd_pickled kind;
  int64_t whole; /* INT; STORAGE: elements; TENSOR: the first element in the storage */
  const char *text;
  size_t bytes;                 /* TEXT, GLOBAL: not ended by a zero; STORAGE: its type */
  struct pd_pickle_item *items; /* of TUPLE and DICT, the last first */
  int64_t n_items;
  const struct pd_pickle_value *storage, *size, *stride; /* of TENSOR; of STORAGE `size` is its key */
};
/* A member of a dict (with a key), or an element. */
struct pd_pickle_item {
  const struct pd_pickle_value *key, *value;
  struct pd_pickle_item *next;
};

struct pd_pickle {
  const struct pd_pickle_value *root;
  struct pd_pickle_block *blocks; /* memory */
};

/* Reads the pickle; names in the result point into its bytes. False after filling `why` with the byte's offset; close in
 * either case. */
bool pd_pickle_read(struct pd_pickle *p, const unsigned char *at, size_t n, char *why);
void pd_pickle_close(struct pd_pickle *p);
bool pd_pickled_is(const struct pd_pickle_value *v, const char *text); /* a TEXT or GLOBAL */
/* The member of a dict; NULL: none. */
const struct pd_pickle_value *pd_pickled_member(const struct pd_pickle_value *dict, const char *name);

#endif
