/* Interfaces between the sources of template/. */
#ifndef PD_TEMPLATE_INTERNAL_H
#define PD_TEMPLATE_INTERNAL_H

#include "template.h"

/* Limits of a rendering and of a template. They bound the work for hostile files. */
enum {
  PD_MOST_DEPTH = 100, /* nested expressions, blocks, macros and values */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  PD_MOST_STEPS = 20000,
  PD_MOST_RENDERED = 1 << 20,
  PD_MOST_MEMORY = 32 << 20,
#else
  PD_MOST_STEPS = 20000000,    /* evaluated nodes */
  PD_MOST_RENDERED = 64 << 20, /* bytes of a text */
  PD_MOST_MEMORY = 512 << 20,
#endif
  PD_MOST_MEMBERS = 4096, /* of a dict, because members are searched in order */
  PD_MOST_RANGE = 100000  /* Jinja's sandbox has this limit */
};

/* A growing text in an arena. */
struct pd_writer {
  struct pd_arena *arena;
  char *at;
  size_t n, room;
};
void pd_write(struct pd_writer *w, const char *at, size_t n);
void pd_write_text(struct pd_writer *w, const char *zero_ended);
struct pd_text pd_written(const struct pd_writer *w);

/* ---- text.c: texts as Python has them, by characters -------------------------------------------- */

/* Bytes of the character at text[0]; a byte that is not UTF-8 is a character. */
size_t pd_character_bytes(const char *text, size_t n);
void pd_write_character(struct pd_writer *w, int32_t c);
bool pd_is_blank(const char *text, size_t bytes); /* of one character: Python's str.isspace */
int64_t pd_characters(struct pd_text t);
/* Characters [begin, end) of a text. */
struct pd_text pd_characters_of(struct pd_text t, int64_t begin, int64_t end);
enum pd_strip_side { PD_LEFT = 1, PD_RIGHT = 2, PD_BOTH = 3 };
/* Without the blanks, or the characters of `set`, at its ends. */
struct pd_text pd_strip(struct pd_text t, enum pd_strip_side side, const struct pd_text *set);
/* The offset of the first `part` at or behind `from`; -1: none. */
int64_t pd_find(struct pd_text t, struct pd_text part, size_t from);
bool pd_texts_equal(struct pd_text a, struct pd_text b);
int pd_texts_compare(struct pd_text a, struct pd_text b);
bool pd_begins(struct pd_text t, struct pd_text part);
bool pd_ends(struct pd_text t, struct pd_text part);

/* ---- lex.c --------------------------------------------------------------------------------------- */

enum pd_token_kind {
  PD_T_DATA,  /* text between tags */
  PD_T_BLOCK, /* {% */
  PD_T_BLOCK_END,
  PD_T_PRINT, /* {{ */
  PD_T_PRINT_END,
  PD_T_NAME,
  PD_T_STRING,
  PD_T_INT,
  PD_T_FLOAT,
  PD_T_SIGN, /* an operator or bracket */
  PD_T_END
};
struct pd_token {
  enum pd_token_kind kind;
  int line;
  struct pd_text text; /* of strings: without quotes and escapes */
  int64_t whole;
  double number;
};
/* The template's tokens, with whitespace control applied as in transformers (trim_blocks, lstrip_blocks); the last is
 * PD_T_END. NULL after filling `why`. */
struct pd_token *pd_template_lex(struct pd_arena *a, const char *text, size_t bytes, char *why);

/* ---- parse.c ------------------------------------------------------------------------------------- */

enum pd_node_kind {
  /* expressions */
  PD_N_LITERAL,
  PD_N_NAME,
  PD_N_LIST,
  PD_N_DICT,   /* items: keys and values in turn */
  PD_N_MEMBER, /* a.name */
  PD_N_ITEM,   /* a[b] */
  PD_N_SLICE,  /* a[b:c:d]; NULL: absent */
  PD_N_CALL,   /* a(items); names: of keyword arguments */
  PD_N_FILTER,
  PD_N_TEST,
  PD_N_NOT,
  PD_N_MINUS,
  PD_N_PLUS,
  PD_N_AND,
  PD_N_OR,
  PD_N_BINARY,  /* a name b */
  PD_N_JOIN,    /* items, by ~ */
  PD_N_COMPARE, /* a, then names[i] items[i] */
  PD_N_CHOICE,  /* b ? a : c; c NULL: undefined */
  /* statements */
  PD_N_BODY, /* items */
  PD_N_DATA,
  PD_N_PRINT,
  PD_N_IF,         /* b, then a, else c */
  PD_N_FOR,        /* names in a if b: c, else d */
  PD_N_SET,        /* name = a */
  PD_N_SET_MEMBER, /* name.names[0] = a */
  PD_N_SET_BLOCK,  /* name = the text of c */
  PD_N_MACRO,      /* name(names = items): c; an item NULL: no default */
  PD_N_GENERATION, /* c */
  PD_N_BREAK,
  PD_N_CONTINUE
};
struct pd_node {
  enum pd_node_kind kind;
  int line;
  bool negated; /* of a test */
  bool tuple;   /* of a list */
  struct pd_text name;
  struct pd_value value;
  struct pd_node *a, *b, *c, *d;
  struct pd_node **items;
  int n;
  struct pd_text *names; /* of n items, an empty text: positional; of PD_N_FOR: n_names */
  int n_names;
};
struct pd_template {
  struct pd_arena arena;
  struct pd_node *body;
  bool marks;
};

/* ---- evaluate.c, render.c ------------------------------------------------------------------------ */

/* Variables of a block; inner blocks see those of outer ones. */
struct pd_scope {
  struct pd_scope *outer;
  struct pd_dict variables;
};
struct pd_macro {
  const struct pd_node *node;
  struct pd_scope *scope; /* of its definition */
};

enum pd_leaving { PD_STAYS, PD_BREAKS, PD_CONTINUES };
struct pd_rendering {
  struct pd_arena *arena;
  struct pd_scope *scope;
  struct pd_writer *out;
  struct pd_writer text; /* of the whole; `out` is another one in macros and set blocks */
  struct pd_span *span;
  int n_spans, room_spans;
  enum pd_leaving leaving; /* a loop's body */
  int64_t steps;
  size_t used;     /* of the arena before the rendering */
  int depth, line; /* line: of the node that is evaluated */
  bool failed, beyond;
  char *why;
};

/* Keeps the first refusal, with the line; returns an undefined value. Work continues until its caller sees `failed`. */
struct pd_value pd_stop(struct pd_rendering *r, const char *pattern, ...) __attribute__((format(printf, 2, 3)));
/* pd_stop at a limit of a rendering: `beyond` holds then. */
#define PD_STOP_BEYOND(r, ...) ((r)->beyond |= !(r)->failed, pd_stop(r, __VA_ARGS__))
/* Counts a step of work; false after a refusal or at a limit. */
bool pd_step(struct pd_rendering *r);
struct pd_value pd_evaluate(struct pd_rendering *r, const struct pd_node *n);
struct pd_value pd_call_macro(struct pd_rendering *r, const struct pd_macro *m, const struct pd_node *call);

/* Arguments of a call, a filter or a test. */
enum { PD_MOST_ARGUMENTS = 8 };
struct pd_arguments {
  const char *of; /* name, for messages */
  struct pd_value at[PD_MOST_ARGUMENTS];
  struct pd_text name[PD_MOST_ARGUMENTS]; /* empty: positional */
  int n;
};
/* The argument at this position or with this name, or `otherwise`. */
struct pd_value pd_argument(const struct pd_arguments *args, int position, const char *name,
                            struct pd_value otherwise);
/* Refuses more positional arguments than `most`, and names that are not in `names`, ", "-separated. */
bool pd_arguments_fit(struct pd_rendering *r, const struct pd_arguments *args, int most, const char *names);

struct pd_value pd_true(bool truth);
struct pd_value pd_int(int64_t whole);
struct pd_value pd_float(double number);
struct pd_value pd_none(void);
struct pd_value pd_undefined(void);
bool pd_truth(const struct pd_value *v);
bool pd_equal(const struct pd_value *a, const struct pd_value *b, int depth);
const char *pd_kind_name(const struct pd_value *v); /* "a text" */
/* *to: below 0, 0, above 0. Refuses values without an order. */
bool pd_compare(struct pd_rendering *r, const struct pd_value *a, const struct pd_value *b, int *to);
bool pd_contains(struct pd_rendering *r, const struct pd_value *in, const struct pd_value *what);
/* The items of a list, the characters of a text, the keys of a dict, or none of an undefined value. */
bool pd_items_of(struct pd_rendering *r, const struct pd_value *v, struct pd_list *to);
/* a.name and a["name"]; undefined if absent. */
struct pd_value pd_get(struct pd_rendering *r, const struct pd_value *of, struct pd_text name);

/* ---- filters.c, methods.c, checks.c, write.c ------------------------------------------------------ */

bool pd_is_filter(struct pd_text name);
bool pd_is_check(struct pd_text name);
bool pd_is_function(struct pd_text name);
bool pd_is_method(struct pd_text name, const struct pd_value *of); /* of NULL: of any value */
struct pd_value pd_apply_filter(struct pd_rendering *r, struct pd_text name, struct pd_value v,
                                const struct pd_arguments *args);
bool pd_check(struct pd_rendering *r, struct pd_text name, const struct pd_value *v,
              const struct pd_arguments *args);
struct pd_value pd_call_method(struct pd_rendering *r, struct pd_value of, struct pd_text name,
                               const struct pd_arguments *args);
struct pd_value pd_call_function(struct pd_rendering *r, struct pd_text name, const struct pd_arguments *args);
enum pd_case { PD_LOWER, PD_UPPER, PD_CAPITALIZED };
/* Refuses letters outside ASCII. */
struct pd_value pd_changed_case(struct pd_rendering *r, struct pd_text t, enum pd_case to);

/* Python's str(v). */
struct pd_value pd_as_text(struct pd_rendering *r, const struct pd_value *v);
void pd_write_value(struct pd_rendering *r, struct pd_writer *w, const struct pd_value *v);
/* json.dumps(ensure_ascii=False) with options. indent: -1: one line. */
struct pd_json_style {
  int indent;
  bool sorted, ascii;
  struct pd_text comma, colon;
};
void pd_write_json(struct pd_rendering *r, struct pd_writer *w, const struct pd_value *v,
                   const struct pd_json_style *style, int depth);

#endif
