/* A machine for pickles that builds values and calls nothing. A REDUCE of a known name makes a value of the table below;
 * every other name is refused where the pickle names it. Each opcode makes at most one value, so memory is bounded by the
 * pickle's bytes. */
#include "shared/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pd_pickle_block {
  struct pd_pickle_block *next;
  size_t used, room;
};

struct machine {
  const unsigned char *begin, *at, *end;
  struct pd_pickle *to;
  const struct pd_pickle_value **stack, **memo;
  size_t depth, room, n_memo, room_memo;
  bool failed;
  char *why;
};

/* ---- memory --------------------------------------------------------------------------------------------- */

static void fail(struct machine *m, const char *what) {
  if (!m->failed) pd_refuse(m->why, "byte %lld of its pickle: %s", (long long)(m->at - m->begin), what);
  m->failed = true;
}

static void *take(struct machine *m, size_t bytes) {
  enum { BLOCK = 1 << 16 };
  struct pd_pickle_block *b = m->to->blocks;
  bytes = (bytes + 15) / 16 * 16;
  if (!b || b->room - b->used < bytes) {
    size_t room = bytes > BLOCK ? bytes : BLOCK;
    b = calloc(1, sizeof *b + 16 + room);
    if (!b) {
      fail(m, "out of memory");
      return NULL;
    }
    *b = (struct pd_pickle_block){m->to->blocks, 0, room};
    m->to->blocks = b;
  }
  void *p = (char *)(b + 1) + b->used;
  b->used += bytes;
  return p;
}

static bool grow(struct machine *m, const struct pd_pickle_value ***list, size_t *room, size_t needed) {
  if (needed <= *room) return true;
  size_t more = needed + *room + 64;
  const struct pd_pickle_value **larger = realloc(*list, more * sizeof *larger);
  if (!larger) {
    fail(m, "out of memory");
    return false;
  }
  *list = larger;
  *room = more;
  return true;
}

/* ---- the stack -------------------------------------------------------------------------------------------- */

static const struct pd_pickle_value none;

static void push(struct machine *m, const struct pd_pickle_value *v) {
  if (v && grow(m, &m->stack, &m->room, m->depth + 1)) m->stack[m->depth++] = v;
}

static struct pd_pickle_value *push_new(struct machine *m, enum pd_pickled kind) {
  struct pd_pickle_value *v = take(m, sizeof *v);
  if (v) v->kind = kind;
  push(m, v);
  return v;
}

/* Never NULL; `none` after a failure. */
static const struct pd_pickle_value *pop(struct machine *m) {
  if (!m->depth) {
    fail(m, "its stack is empty");
    return &none;
  }
  return m->stack[--m->depth];
}

/* The index behind the last mark. */
static size_t behind_mark(struct machine *m) {
  size_t i = m->depth;
  while (i && m->stack[i - 1]->kind != PD_PICKLED_MARK) i--;
  if (!i) fail(m, "it has no mark");
  return i;
}

static void add_item(struct machine *m, struct pd_pickle_value *to, const struct pd_pickle_value *key,
                     const struct pd_pickle_value *value) {
  struct pd_pickle_item *item = take(m, sizeof *item);
  if (!item) return;
  *item = (struct pd_pickle_item){key, value, to->items};
  to->items = item;
  to->n_items++;
}

/* The container below the stack's items from `first` on. Only this file changes values. */
static struct pd_pickle_value *container(struct machine *m, size_t first, enum pd_pickled kind) {
  const struct pd_pickle_value *v = first ? m->stack[first - 1] : &none;
  if (v->kind == kind) return (struct pd_pickle_value *)v;
  fail(m, kind == PD_PICKLED_DICT ? "it sets a member of no dict" : "it appends to no list");
  return NULL;
}

static void set_items(struct machine *m, size_t first, size_t below) {
  struct pd_pickle_value *to = m->failed ? NULL : container(m, below, PD_PICKLED_DICT);
  if (to && (m->depth - first) % 2) fail(m, "a key has no value");
  for (size_t i = first; to && i + 1 < m->depth && !m->failed; i += 2)
    add_item(m, to, m->stack[i], m->stack[i + 1]);
  if (to) m->depth = below;
}

static void append_items(struct machine *m, size_t first, size_t below) {
  struct pd_pickle_value *to = m->failed ? NULL : container(m, below, PD_PICKLED_TUPLE);
  for (size_t i = first; to && i < m->depth && !m->failed; i++) add_item(m, to, NULL, m->stack[i]);
  if (to) m->depth = below;
}

/* A tuple of the stack's items from `first` on, which take the place from `below` on. */
static void make_tuple(struct machine *m, size_t first, size_t below) {
  struct pd_pickle_value *t = m->failed || first > m->depth ? NULL : take(m, sizeof *t);
  if (!t) {
    fail(m, "its stack is empty");
    return;
  }
  t->kind = PD_PICKLED_TUPLE;
  for (size_t i = first; i < m->depth && !m->failed; i++) add_item(m, t, NULL, m->stack[i]);
  m->depth = below;
  push(m, t);
}

/* ---- bytes -------------------------------------------------------------------------------------------------- */

static uint64_t number(struct machine *m, size_t bytes) {
  uint64_t x = 0;
  if ((size_t)(m->end - m->at) < bytes) {
    fail(m, "it ends within a number");
    m->at = m->end;
    return 0;
  }
  for (size_t i = 0; i < bytes; i++) x |= (uint64_t)m->at[i] << 8 * i;
  m->at += bytes;
  return x;
}

static const char *characters(struct machine *m, uint64_t n) {
  if ((uint64_t)(m->end - m->at) < n) {
    fail(m, "it ends within a text");
    return "";
  }
  m->at += n;
  return (const char *)m->at - n;
}

static void push_text(struct machine *m, uint64_t n, bool text) {
  const char *at = characters(m, n);
  struct pd_pickle_value *v = push_new(m, text ? PD_PICKLED_TEXT : PD_PICKLED_NONE);
  if (v) v->text = at, v->bytes = m->failed ? 0 : (size_t)n;
}

static void push_int(struct machine *m, int64_t x) {
  struct pd_pickle_value *v = push_new(m, PD_PICKLED_INT);
  if (v) v->whole = x;
}

/* Numbers of more than 8 bytes are of no tensor. */
static void push_long(struct machine *m, uint64_t bytes) {
  const unsigned char *at = (const unsigned char *)characters(m, bytes);
  uint64_t x =
      bytes && bytes <= 8 && !m->failed && at[bytes - 1] >= 0x80 ? ~(uint64_t)0 << (8 * (bytes - 1)) << 7 << 1 : 0;
  for (uint64_t i = 0; i < bytes && bytes <= 8 && !m->failed; i++) x |= (uint64_t)at[i] << 8 * i;
  if (bytes > 8)
    push_new(m, PD_PICKLED_NONE);
  else
    push_int(m, (int64_t)x);
}

/* ---- names and what they make ---------------------------------------------------------------------------------- */

bool pd_pickled_is(const struct pd_pickle_value *v, const char *text) {
  return (v->kind == PD_PICKLED_TEXT || v->kind == PD_PICKLED_GLOBAL) && v->bytes == strlen(text) &&
         !memcmp(v->text, text, v->bytes);
}

/* All names that a pickle may have. Names of types are values; the rest make values. */
static const char *const names[] = {"collections.OrderedDict",
                                    "torch._utils._rebuild_tensor_v2",
                                    "torch._utils._rebuild_parameter",
                                    "torch.Size",
                                    "torch.device",
                                    "torch.FloatStorage",
                                    "torch.HalfStorage",
                                    "torch.BFloat16Storage",
                                    "torch.DoubleStorage",
                                    "torch.LongStorage",
                                    "torch.IntStorage",
                                    "torch.ShortStorage",
                                    "torch.CharStorage",
                                    "torch.ByteStorage",
                                    "torch.BoolStorage",
                                    "torch.float32",
                                    "torch.float16",
                                    "torch.bfloat16",
                                    "torch.float64",
                                    "torch.int64"};
enum { N_NAMES = sizeof names / sizeof *names };

static void push_global(struct machine *m, const char *module, size_t n_module, const char *name, size_t n_name) {
  struct pd_pickle_value *v = push_new(m, PD_PICKLED_GLOBAL);
  size_t n = n_module + 1 + n_name;
  char what[300];
  if (!v || m->failed) return;
  for (int i = 0; i < N_NAMES; i++)
    if (strlen(names[i]) == n && !memcmp(names[i], module, n_module) && names[i][n_module] == '.' &&
        !memcmp(names[i] + n_module + 1, name, n_name)) {
      v->text = names[i];
      v->bytes = n;
      return;
    }
  snprintf(what, sizeof what,
           "it needs '%.*s.%.*s', which is neither a tensor nor a dict: pdc executes nothing of a pickle",
           (int)(n_module > 80 ? 80 : n_module), module, (int)(n_name > 80 ? 80 : n_name), name);
  fail(m, what);
}

static void read_global(struct machine *m) {
  const char *line[2];
  size_t n[2];
  for (int i = 0; i < 2; i++) {
    const unsigned char *newline = m->at < m->end ? memchr(m->at, '\n', (size_t)(m->end - m->at)) : NULL;
    if (!newline) {
      fail(m, "it ends within a name");
      return;
    }
    line[i] = (const char *)m->at, n[i] = (size_t)(newline - m->at);
    m->at = newline + 1;
  }
  push_global(m, line[0], n[0], line[1], n[1]);
}

static void stack_global(struct machine *m) {
  const struct pd_pickle_value *name = pop(m), *module = pop(m);
  if (name->kind != PD_PICKLED_TEXT || module->kind != PD_PICKLED_TEXT)
    fail(m, "a name is no text");
  else
    push_global(m, module->text, module->bytes, name->text, name->bytes);
}

/* Element i of a tuple, or `none`. */
static const struct pd_pickle_value *element(const struct pd_pickle_value *t, int64_t i) {
  enum { MOST = 64 }; /* arguments are shorter, and walks of long tuples would add up */
  if (t->kind != PD_PICKLED_TUPLE || i < 0 || i >= t->n_items || t->n_items > MOST) return &none;
  const struct pd_pickle_item *item = t->items;
  for (int64_t k = t->n_items - 1; k > i; k--) item = item->next;
  return item->value;
}

/* ('storage', type, key, device, elements) */
static void read_storage(struct machine *m) {
  const struct pd_pickle_value *id = pop(m), *type = element(id, 1), *key = element(id, 2), *n = element(id, 4);
  if (id->n_items != 5 || !pd_pickled_is(element(id, 0), "storage") || type->kind != PD_PICKLED_GLOBAL ||
      key->kind != PD_PICKLED_TEXT || n->kind != PD_PICKLED_INT) {
    fail(m, "a reference outside of the pickle is not a storage");
    return;
  }
  struct pd_pickle_value *v = push_new(m, PD_PICKLED_STORAGE);
  if (v) v->text = type->text, v->bytes = type->bytes, v->size = key, v->whole = n->whole;
}

/* (storage, first element, sizes, strides, ..) */
static void rebuild_tensor(struct machine *m, const struct pd_pickle_value *args) {
  const struct pd_pickle_value *storage = element(args, 0), *first = element(args, 1), *size = element(args, 2),
                               *stride = element(args, 3);
  if (storage->kind != PD_PICKLED_STORAGE || first->kind != PD_PICKLED_INT || size->kind != PD_PICKLED_TUPLE ||
      stride->kind != PD_PICKLED_TUPLE || size->n_items != stride->n_items) {
    fail(m, "a tensor lacks its storage, sizes or strides");
    return;
  }
  struct pd_pickle_value *v = push_new(m, PD_PICKLED_TENSOR);
  if (v) v->storage = storage, v->whole = first->whole, v->size = size, v->stride = stride;
}

/* An OrderedDict of no pairs, or of a list of pairs. */
static void make_dict(struct machine *m, const struct pd_pickle_value *args) {
  const struct pd_pickle_value *pairs = element(args, 0);
  struct pd_pickle_value *d = push_new(m, PD_PICKLED_DICT);
  const struct pd_pickle_item *item = pairs->kind == PD_PICKLED_TUPLE ? pairs->items : NULL;
  for (; d && item && !m->failed; item = item->next)
    add_item(m, d, element(item->value, 0), element(item->value, 1));
}

static void reduce(struct machine *m) {
  const struct pd_pickle_value *args = pop(m), *of = pop(m);
  if (m->failed) return;
  if (args->kind != PD_PICKLED_TUPLE || of->kind != PD_PICKLED_GLOBAL)
    fail(m, "it calls what is no name");
  else if (pd_pickled_is(of, "collections.OrderedDict"))
    make_dict(m, args);
  else if (pd_pickled_is(of, "torch._utils._rebuild_tensor_v2"))
    rebuild_tensor(m, args);
  else if (pd_pickled_is(of, "torch._utils._rebuild_parameter") || pd_pickled_is(of, "torch.Size"))
    push(m, element(args, 0));
  else
    push_new(m, PD_PICKLED_NONE); /* a device, or a type that is called */
}

/* ---- opcodes, with the names and letters of Python's pickletools ------------------------------------------------------ */

static void memo_put(struct machine *m, uint64_t i) {
  if (i > m->n_memo) {
    fail(m, "it skips numbers of its memo");
  } else if (!m->depth) {
    fail(m, "its stack is empty");
  } else if (grow(m, &m->memo, &m->room_memo, (size_t)i + 1)) {
    m->memo[i] = m->stack[m->depth - 1];
    if (i == m->n_memo) m->n_memo++;
  }
}

static void memo_get(struct machine *m, uint64_t i) {
  if (i >= m->n_memo)
    fail(m, "it reads what its memo does not have");
  else
    push(m, m->memo[i]);
}

static void pop_mark(struct machine *m) {
  size_t first = behind_mark(m);
  if (first) m->depth = first - 1;
}

static void last_items(struct machine *m, size_t n) {
  if (m->depth < n)
    fail(m, "its stack is empty");
  else
    make_tuple(m, m->depth - n, m->depth - n);
}

/* Opcodes that hold a number, a text or a number of the memo. False: another. */
static bool step_data(struct machine *m, unsigned char op) {
  switch (op) {
  case 'J': push_int(m, (int32_t)number(m, 4)); break;         /* BININT */
  case 'K': push_int(m, (int64_t)number(m, 1)); break;         /* BININT1 */
  case 'M': push_int(m, (int64_t)number(m, 2)); break;         /* BININT2 */
  case 0x8a: push_long(m, number(m, 1)); break;                /* LONG1 */
  case 'G': number(m, 8), push_new(m, PD_PICKLED_NONE); break; /* BINFLOAT */
  case 'X': push_text(m, number(m, 4), true); break;           /* BINUNICODE */
  case 0x8c: push_text(m, number(m, 1), true); break;          /* SHORT_BINUNICODE */
  case 0x8d: push_text(m, number(m, 8), true); break;          /* BINUNICODE8 */
  case 'T': push_text(m, number(m, 4), true); break;           /* BINSTRING */
  case 'U': push_text(m, number(m, 1), true); break;           /* SHORT_BINSTRING */
  case 'B': push_text(m, number(m, 4), false); break;          /* BINBYTES */
  case 'C': push_text(m, number(m, 1), false); break;          /* SHORT_BINBYTES */
  case 'N':
  case 0x88:
  case 0x89: push_new(m, PD_PICKLED_NONE); break; /* NONE, NEWTRUE, NEWFALSE */
  case 'q': memo_put(m, number(m, 1)); break;     /* BINPUT */
  case 'r': memo_put(m, number(m, 4)); break;     /* LONG_BINPUT */
  case 0x94: memo_put(m, m->n_memo); break;       /* MEMOIZE */
  case 'h': memo_get(m, number(m, 1)); break;     /* BINGET */
  case 'j': memo_get(m, number(m, 4)); break;     /* LONG_BINGET */
  case 0x80: number(m, 1); break;                 /* PROTO */
  case 0x95: number(m, 8); break;                 /* FRAME */
  default: return false;
  }
  return true;
}

static void step(struct machine *m, unsigned char op) {
  size_t first;
  switch (op) {
  case '(': push_new(m, PD_PICKLED_MARK); break;
  case '0': pop(m); break;                                              /* POP */
  case '1': pop_mark(m); break;                                         /* POP_MARK */
  case '2': push(m, m->depth ? m->stack[m->depth - 1] : pop(m)); break; /* DUP */
  case ')':
  case ']': push_new(m, PD_PICKLED_TUPLE); break; /* EMPTY_TUPLE, EMPTY_LIST */
  case '}': push_new(m, PD_PICKLED_DICT); break;  /* EMPTY_DICT */
  case 't': first = behind_mark(m), make_tuple(m, first, first ? first - 1 : 0); break; /* TUPLE */
  case 0x85:
  case 0x86:
  case 0x87: last_items(m, (size_t)op - 0x84); break;                                     /* TUPLE1 to TUPLE3 */
  case 'a': append_items(m, m->depth - (m->depth > 0), m->depth - (m->depth > 0)); break; /* APPEND */
  case 'e': first = behind_mark(m), append_items(m, first, first ? first - 1 : 0); break; /* APPENDS */
  case 's': first = m->depth < 2 ? 0 : m->depth - 2, set_items(m, first, first); break;   /* SETITEM */
  case 'u': first = behind_mark(m), set_items(m, first, first ? first - 1 : 0); break;    /* SETITEMS */
  case 'c': read_global(m); break;                                                        /* GLOBAL */
  case 0x93: stack_global(m); break;                                                      /* STACK_GLOBAL */
  case 'Q': read_storage(m); break;                                                       /* BINPERSID */
  case 'R': reduce(m); break;                                                             /* REDUCE */
  case 'b': pop(m); break; /* BUILD: attributes, such as a dict's _metadata */
  default: m->at--, fail(m, "it has an opcode that files of torch.save do not have"), m->at++;
  }
}

bool pd_pickle_read(struct pd_pickle *p, const unsigned char *at, size_t n, char *why) {
  struct machine m = {.begin = at, .at = at, .end = at + n, .to = p, .why = why};
  bool stopped = false;
  *p = (struct pd_pickle){0};
  while (!m.failed && !stopped) {
    if (m.at == m.end) {
      fail(&m, "it ends without a result");
      break;
    }
    unsigned char op = *m.at++;
    if (op == '.')
      stopped = true;
    else if (!step_data(&m, op))
      step(&m, op);
  }
  if (stopped) p->root = pop(&m);
  free(m.stack);
  free(m.memo);
  return !m.failed;
}

void pd_pickle_close(struct pd_pickle *p) {
  for (struct pd_pickle_block *b = p->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  *p = (struct pd_pickle){0};
}

const struct pd_pickle_value *pd_pickled_member(const struct pd_pickle_value *dict, const char *name) {
  for (const struct pd_pickle_item *i = dict->kind == PD_PICKLED_DICT ? dict->items : NULL; i; i = i->next)
    if (pd_pickled_is(i->key, name)) return i->value;
  return NULL;
}
