/* Chat templates: the subset of Jinja 3.1 that the templates of well-known models use, rendered to the same bytes
 * as transformers' apply_chat_template. Independent of MPI, models and tokenizers. Other constructs are refused with
 * their line. Values come from JSON. */
#ifndef PD_TEMPLATE_H
#define PD_TEMPLATE_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values (value.c) ------------------------------------------------------------------------- */

/* Memory that is freed together. Allocation ends the process without memory. */
struct pd_arena {
  struct pd_block *blocks;
  char *unused;
  size_t left, used; /* used: bytes so far */
};
void *pd_arena_alloc(struct pd_arena *a, size_t bytes); /* zeroed, aligned to 16 bytes */
void pd_arena_free(struct pd_arena *a);                 /* leaves it empty */

enum pd_value_kind {
  PD_UNDEFINED,
  PD_NONE,
  PD_BOOL,
  PD_INT,
  PD_LARGE, /* a whole number outside of int64, by its digits in `text`, which a zero ends */
  PD_FLOAT,
  PD_TEXT,
  PD_LIST,
  PD_DICT,
  PD_NAMESPACE, /* a dict whose members `set` changes */
  PD_LOOP,      /* the variable `loop`, a dict */
  PD_FUNCTION,  /* of Jinja or transformers, by its name in `text` */
  PD_MACRO
};

/* Bytes, without a terminating zero. */
struct pd_text {
  const char *at;
  size_t n;
};

struct pd_value {
  enum pd_value_kind kind;
  bool safe; /* a text that the filter `safe` marked */
  union {
    bool truth;
    int64_t whole;
    double number;
    struct pd_text text;
    struct pd_list *list;
    struct pd_dict *dict;
    const struct pd_macro *macro;
  };
};

struct pd_list {
  struct pd_value *at;
  int64_t n, room;
  bool tuple; /* Python's */
};

/* In the order of insertion. */
struct pd_dict {
  struct pd_dict_entry {
    struct pd_text key;
    struct pd_value value;
  } * at;
  int64_t n, room;
};

struct pd_text pd_text_of(const char *zero_ended);
bool pd_text_is(struct pd_text t, const char *zero_ended);
struct pd_text pd_text_copy(struct pd_arena *a, const char *at, size_t n);
struct pd_value pd_value_text(struct pd_text t);
struct pd_value pd_value_list(struct pd_arena *a); /* empty */
struct pd_value pd_value_dict(struct pd_arena *a);
void pd_list_add(struct pd_arena *a, struct pd_list *l, struct pd_value v);
/* Replaces the value of an existing key. */
void pd_dict_set(struct pd_arena *a, struct pd_dict *d, struct pd_text key, struct pd_value v);
/* The member of a dict; NULL: another kind of value, or no such member. */
const struct pd_value *pd_member(const struct pd_value *of, const char *key);

/* Parses one JSON value with blanks around it. False after filling `why` with the byte's offset. */
bool pd_json_parse(struct pd_arena *a, const char *text, size_t bytes, struct pd_value *to, char *why);

/* ---- templates (parse.c, render.c) -------------------------------------------------------------- */

struct pd_template;
/* `text` may be freed. NULL after filling `why` with the line. */
struct pd_template *pd_template_parse(const char *text, size_t bytes, char *why);
void pd_template_close(struct pd_template *t); /* accepts NULL */
/* Whether it has {% generation %} blocks. */
bool pd_template_marks(const struct pd_template *t);
/* pdc's own template of this name, or NULL; pd_template_names lists them: "chatml, gemma, ...". */
const char *pd_template_named(const char *name);
const char *pd_template_names(void);
/* The special tokens of such a template, with NULL at the end, or NULL. */
const char *const *pd_template_tokens(const char *name);

/* [begin, end) of the text, in bytes. */
struct pd_span {
  size_t begin, end;
};
struct pd_rendered {
  struct pd_text text;  /* in the arena */
  struct pd_span *span; /* the text of {% generation %} blocks, ascending */
  int n_spans;
  bool beyond; /* after a failure: the work, memory or text exceeds a limit */
};
/* Renders with the members of `context`, a dict, as variables. Several threads may render one template, each with its
 * own arena. False after filling `why`. */
bool pd_template_render(const struct pd_template *t, const struct pd_value *context, struct pd_arena *a,
                        struct pd_rendered *to, char *why);

/* ---- the tokenizer's folder (folder.c) ----------------------------------------------------------- */

/* tokenizer_config.json of the folder, in the arena, with the special tokens of special_tokens_map.json that it lacks.
 * Without these files, or if `folder` is NULL or no folder, *to is an empty dict. False after filling `why`. */
bool pd_tokenizer_config(const char *folder, struct pd_arena *a, struct pd_value *to, char *why);
/* The special tokens by their names, as templates read them. */
struct pd_value pd_special_tokens(const struct pd_value *config, struct pd_arena *a);
/* The text of a special token such as "eos_token", in the arena; NULL: the folder names none. */
const char *pd_special_token(const struct pd_value *config, const char *name, struct pd_arena *a);
/* The template of --chat-template: "auto" or NULL, the folder's; one of pd_template_names(); or a file. NULL after filling
 * `why`; with an empty `why`: "auto" finds none. */
struct pd_template *pd_template_open(const char *folder, const char *name, const struct pd_value *config,
                                     char *why);

#ifdef __cplusplus
}
#endif

#endif
