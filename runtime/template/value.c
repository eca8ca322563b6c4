/* Values and their memory. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------- */

struct pd_block {
  struct pd_block *next;
  _Alignas(16) char bytes[];
};

void *pd_arena_alloc(struct pd_arena *a, size_t bytes) {
  enum { BLOCK = 1 << 14 };
  bytes = (bytes + 15) & ~(size_t)15;
  if (bytes > a->left) {
    const size_t room = bytes > BLOCK / 4 ? bytes : BLOCK;
    struct pd_block *b = calloc(1, sizeof *b + room);
    if (!b) {
      fprintf(stderr, "out of memory: %zu bytes of a chat\n", room);
      exit(1);
    }
    b->next = a->blocks;
    a->blocks = b;
    if (room != BLOCK) { /* the block before it keeps the small ones */
      a->used += bytes;
      return b->bytes;
    }
    a->unused = b->bytes;
    a->left = room;
  }
  void *at = a->unused;
  a->unused += bytes;
  a->left -= bytes;
  a->used += bytes;
  return at;
}

void pd_arena_free(struct pd_arena *a) {
  for (struct pd_block *b = a->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  *a = (struct pd_arena){0};
}

/* Room for element n, from 0, of `size` bytes. */
static void *grown(struct pd_arena *a, void *at, int64_t n, int64_t *room, size_t size) {
  if (n < *room) return at;
  *room = *room ? 2 * *room : 4;
  void *larger = pd_arena_alloc(a, size * (size_t)*room);
  if (n) memcpy(larger, at, size * (size_t)n);
  return larger;
}

/* ---- texts ------------------------------------------------------------------------------------- */

struct pd_text pd_text_of(const char *zero_ended) {
  return (struct pd_text){zero_ended, strlen(zero_ended)};
}

bool pd_texts_equal(struct pd_text a, struct pd_text b) {
  return a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n));
}

bool pd_text_is(struct pd_text t, const char *zero_ended) { return pd_texts_equal(t, pd_text_of(zero_ended)); }

int pd_texts_compare(struct pd_text a, struct pd_text b) {
  const size_t n = a.n < b.n ? a.n : b.n;
  const int order = n ? memcmp(a.at, b.at, n) : 0;
  return order ? order : (a.n > b.n) - (a.n < b.n);
}

struct pd_text pd_text_copy(struct pd_arena *a, const char *at, size_t n) {
  char *copy = pd_arena_alloc(a, n + 1);
  if (n) memcpy(copy, at, n);
  return (struct pd_text){copy, n};
}

void pd_write(struct pd_writer *w, const char *at, size_t n) {
  if (!n) return;
  if (w->n + n > w->room) {
    const size_t room = 2 * (w->n + n) + 64;
    char *larger = pd_arena_alloc(w->arena, room);
    if (w->n) memcpy(larger, w->at, w->n);
    w->at = larger;
    w->room = room;
  }
  memcpy(w->at + w->n, at, n);
  w->n += n;
}

void pd_write_text(struct pd_writer *w, const char *zero_ended) { pd_write(w, zero_ended, strlen(zero_ended)); }

struct pd_text pd_written(const struct pd_writer *w) {
  return (struct pd_text){w->at ? w->at : "", w->n};
}

/* ---- values ------------------------------------------------------------------------------------- */

struct pd_value pd_true(bool truth) {
  return (struct pd_value){.kind = PD_BOOL, .truth = truth};
}
struct pd_value pd_int(int64_t whole) {
  return (struct pd_value){.kind = PD_INT, .whole = whole};
}
struct pd_value pd_float(double number) {
  return (struct pd_value){.kind = PD_FLOAT, .number = number};
}
struct pd_value pd_none(void) {
  return (struct pd_value){.kind = PD_NONE};
}
struct pd_value pd_undefined(void) {
  return (struct pd_value){.kind = PD_UNDEFINED};
}
struct pd_value pd_value_text(struct pd_text t) {
  return (struct pd_value){.kind = PD_TEXT, .text = t};
}

struct pd_value pd_value_list(struct pd_arena *a) {
  return (struct pd_value){.kind = PD_LIST, .list = pd_arena_alloc(a, sizeof(struct pd_list))};
}

struct pd_value pd_value_dict(struct pd_arena *a) {
  return (struct pd_value){.kind = PD_DICT, .dict = pd_arena_alloc(a, sizeof(struct pd_dict))};
}

void pd_list_add(struct pd_arena *a, struct pd_list *l, struct pd_value v) {
  l->at = grown(a, l->at, l->n, &l->room, sizeof *l->at);
  l->at[l->n++] = v;
}

static struct pd_dict_entry *find(const struct pd_dict *d, struct pd_text key) {
  for (int64_t i = 0; i < d->n; i++)
    if (pd_texts_equal(d->at[i].key, key)) return &d->at[i];
  return NULL;
}

void pd_dict_set(struct pd_arena *a, struct pd_dict *d, struct pd_text key, struct pd_value v) {
  struct pd_dict_entry *e = find(d, key);
  if (e) {
    e->value = v;
    return;
  }
  d->at = grown(a, d->at, d->n, &d->room, sizeof *d->at);
  d->at[d->n++] = (struct pd_dict_entry){key, v};
}

const struct pd_value *pd_member(const struct pd_value *of, const char *key) {
  if (!of || (of->kind != PD_DICT && of->kind != PD_NAMESPACE)) return NULL;
  const struct pd_dict_entry *e = find(of->dict, pd_text_of(key));
  return e ? &e->value : NULL;
}

const char *pd_kind_name(const struct pd_value *v) {
  static const char *const names[] = {
      "undefined", "none",       "a boolean", "a whole number", "a whole number of more than 63 bits",
      "a number",  "a text",     "a list",    "a dict",         "a namespace",
      "a loop",    "a function", "a macro"};
  return names[v->kind];
}

bool pd_truth(const struct pd_value *v) {
  switch (v->kind) {
  case PD_UNDEFINED:
  case PD_NONE: return false;
  case PD_BOOL: return v->truth;
  case PD_INT: return v->whole != 0;
  case PD_FLOAT: return v->number != 0;
  case PD_TEXT: return v->text.n > 0;
  case PD_LIST: return v->list->n > 0;
  case PD_DICT: return v->dict->n > 0;
  default: return true;
  }
}

static bool is_number(const struct pd_value *v) {
  return v->kind == PD_BOOL || v->kind == PD_INT || v->kind == PD_LARGE || v->kind == PD_FLOAT;
}
static int64_t whole_of(const struct pd_value *v) { return v->kind == PD_BOOL ? v->truth : v->whole; }
static double number_of(const struct pd_value *v) { return v->kind == PD_FLOAT ? v->number : (double)whole_of(v); }

/* The exact digits of a whole number, or of a float outside of int64; others are rounded, inside of int64. */
static struct pd_text digits_of(const struct pd_value *v, char *to, size_t room) {
  if (v->kind == PD_LARGE) return v->text;
  const int n = v->kind == PD_FLOAT ? snprintf(to, room, "%.0f", v->number)
                                    : snprintf(to, room, "%lld", (long long)whole_of(v));
  return (struct pd_text){to, (size_t)n};
}

/* At least one of the numbers is large. */
static int order_of_large(const struct pd_value *a, const struct pd_value *b) {
  char room[2][400];
  const double x = a->kind == PD_FLOAT ? a->number : 0, y = b->kind == PD_FLOAT ? b->number : 0;
  if (isinf(x) || isinf(y)) return (x > y) - (x < y);
  const struct pd_text p = digits_of(a, room[0], sizeof *room), q = digits_of(b, room[1], sizeof *room);
  const bool below = *p.at == '-';
  if (below != (*q.at == '-')) return below ? -1 : 1;
  const int order = p.n == q.n ? pd_texts_compare(p, q) : p.n < q.n ? -1 : 1;
  return below ? -order : order;
}

static int order_of(const struct pd_value *a, const struct pd_value *b) {
  if (a->kind == PD_LARGE || b->kind == PD_LARGE) return order_of_large(a, b);
  if (a->kind == PD_FLOAT || b->kind == PD_FLOAT)
    return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
  return (whole_of(a) > whole_of(b)) - (whole_of(a) < whole_of(b));
}

static bool lists_equal(const struct pd_list *a, const struct pd_list *b, int depth) {
  bool equal = a->n == b->n && a->tuple == b->tuple;
  for (int64_t i = 0; i < a->n && equal; i++) equal = pd_equal(&a->at[i], &b->at[i], depth + 1);
  return equal;
}

static bool dicts_equal(const struct pd_dict *a, const struct pd_dict *b, int depth) {
  bool equal = a->n == b->n;
  for (int64_t i = 0; i < a->n && equal; i++) {
    const struct pd_dict_entry *e = find(b, a->at[i].key);
    equal = e && pd_equal(&a->at[i].value, &e->value, depth + 1);
  }
  return equal;
}

bool pd_equal(const struct pd_value *a, const struct pd_value *b, int depth) {
  if (depth > PD_MOST_DEPTH) return false;
  if (is_number(a) && is_number(b)) return order_of(a, b) == 0;
  if (a->kind != b->kind) return false;
  switch (a->kind) {
  case PD_TEXT:
  case PD_FUNCTION: return pd_texts_equal(a->text, b->text);
  case PD_LIST: return lists_equal(a->list, b->list, depth);
  case PD_DICT: return dicts_equal(a->dict, b->dict, depth);
  case PD_NAMESPACE:
  case PD_LOOP: return a->dict == b->dict;
  case PD_MACRO: return a->macro == b->macro;
  default: return true;
  }
}

bool pd_compare(struct pd_rendering *r, const struct pd_value *a, const struct pd_value *b, int *to) {
  *to = 0;
  if (a->kind == PD_TEXT && b->kind == PD_TEXT)
    *to = pd_texts_compare(a->text, b->text);
  else if (is_number(a) && is_number(b))
    *to = order_of(a, b);
  else
    pd_stop(r, "%s and %s have no order", pd_kind_name(a), pd_kind_name(b));
  return !r->failed;
}
