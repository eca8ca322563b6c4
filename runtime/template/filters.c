/* Jinja's filters. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static const struct pd_text nothing = {"", 0};

/* An argument that is a text; `otherwise` if it is absent. */
static struct pd_text text_argument(struct pd_rendering *r, const struct pd_arguments *args, int i,
                                    const char *name, struct pd_text otherwise) {
  const struct pd_value v = pd_argument(args, i, name, pd_value_text(otherwise));
  if (v.kind == PD_TEXT) return v.text;
  pd_stop(r, "the argument '%s' of '%s' is %s, not a text", name, args->of, pd_kind_name(&v));
  return otherwise;
}

bool pd_items_of(struct pd_rendering *r, const struct pd_value *v, struct pd_list *to) {
  *to = (struct pd_list){0};
  if (v->kind == PD_LIST)
    *to = *v->list;
  else if (v->kind == PD_TEXT)
    for (size_t at = 0, n; at < v->text.n && pd_step(r); at += n) {
      n = pd_character_bytes(v->text.at + at, v->text.n - at);
      pd_list_add(r->arena, to, pd_value_text((struct pd_text){v->text.at + at, n}));
    }
  else if (v->kind == PD_DICT)
    for (int64_t i = 0; i < v->dict->n && pd_step(r); i++)
      pd_list_add(r->arena, to, pd_value_text(v->dict->at[i].key));
  else if (v->kind != PD_UNDEFINED)
    pd_stop(r, "%s has no items", pd_kind_name(v));
  return !r->failed;
}

/* For map, select and reject a false value, such as none, is an empty list. */
static bool items_if_true(struct pd_rendering *r, const struct pd_value *v, struct pd_list *to) {
  *to = (struct pd_list){0};
  return pd_truth(v) ? pd_items_of(r, v, to) : true;
}

static struct pd_value list_of(struct pd_rendering *r, struct pd_list items) {
  struct pd_value to = pd_value_list(r->arena);
  *to.list = items;
  to.list->room = items.n; /* it may share memory with another list */
  to.list->tuple = false;
  return to;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

struct pd_value pd_changed_case(struct pd_rendering *r, struct pd_text t, enum pd_case to) {
  char *at = pd_arena_alloc(r->arena, t.n + 1);
  for (size_t i = 0; i < t.n; i++) {
    const unsigned char c = (unsigned char)t.at[i];
    const bool upper = to == PD_UPPER || (to == PD_CAPITALIZED && i == 0);
    if (c >= 0x80) return pd_stop(r, "letters change their case only in ASCII texts");
    at[i] = (char)(upper && c >= 'a' && c <= 'z' ? c - 32 : !upper && c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return pd_value_text((struct pd_text){at, t.n});
}

static struct pd_value trim(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  const struct pd_value text = pd_as_text(r, &v), set = pd_argument(args, 0, "chars", pd_none());
  if (set.kind != PD_NONE && set.kind != PD_TEXT)
    return pd_stop(r, "'trim' takes a text, not %s", pd_kind_name(&set));
  return pd_value_text(pd_strip(text.text, PD_BOTH, set.kind == PD_TEXT ? &set.text : NULL));
}

static struct pd_value replace(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  const struct pd_value text = pd_as_text(r, &v);
  return pd_call_method(r, text, pd_text_of("replace"), args);
}

static struct pd_value lower(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)args;
  return pd_changed_case(r, pd_as_text(r, &v).text, PD_LOWER);
}

static struct pd_value upper(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)args;
  return pd_changed_case(r, pd_as_text(r, &v).text, PD_UPPER);
}

static struct pd_value capitalize(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)args;
  return pd_changed_case(r, pd_as_text(r, &v).text, PD_CAPITALIZED);
}

static struct pd_value string(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)args;
  return pd_as_text(r, &v);
}

static struct pd_value safe(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)args;
  struct pd_value text = pd_as_text(r, &v);
  text.safe = true;
  return text;
}

static struct pd_value tojson(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_writer w = {.arena = r->arena};
  const struct pd_value indent = pd_argument(args, 1, "indent", pd_none()),
                        separators = pd_argument(args, 2, "separators", pd_none()),
                        ascii = pd_argument(args, 0, "ensure_ascii", pd_true(false)),
                        sorted = pd_argument(args, 3, "sort_keys", pd_true(false));
  struct pd_json_style style = {.indent = -1, .sorted = pd_truth(&sorted), .ascii = pd_truth(&ascii)};
  if (indent.kind == PD_INT && indent.whole >= 0 && indent.whole <= 16)
    style.indent = (int)indent.whole;
  else if (indent.kind != PD_NONE)
    return pd_stop(r, "the argument 'indent' of 'tojson' is not a number from 0 to 16");
  style.comma = pd_text_of(style.indent < 0 ? ", " : ",");
  style.colon = pd_text_of(": ");
  if (separators.kind == PD_LIST && separators.list->n == 2 && separators.list->at[0].kind == PD_TEXT &&
      separators.list->at[1].kind == PD_TEXT) {
    style.comma = separators.list->at[0].text;
    style.colon = separators.list->at[1].text;
  } else if (separators.kind != PD_NONE)
    return pd_stop(r, "the argument 'separators' of 'tojson' is not two texts");
  pd_write_json(r, &w, &v, &style, 0);
  return pd_value_text(pd_written(&w));
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static struct pd_value length(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)args;
  switch (v.kind) {
  case PD_UNDEFINED: return pd_int(0);
  case PD_TEXT: return pd_int(pd_characters(v.text));
  case PD_LIST: return pd_int(v.list->n);
  case PD_DICT: return pd_int(v.dict->n);
  default: return pd_stop(r, "%s has no length", pd_kind_name(&v));
  }
}

static struct pd_value default_to(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  (void)r;
  const struct pd_value boolean = pd_argument(args, 1, "boolean", pd_true(false));
  const bool missing = v.kind == PD_UNDEFINED || (pd_truth(&boolean) && !pd_truth(&v));
  return missing ? pd_argument(args, 0, "default_value", pd_value_text(nothing)) : v;
}

static struct pd_value first(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_list items;
  (void)args;
  return pd_items_of(r, &v, &items) && items.n ? items.at[0] : pd_undefined();
}

static struct pd_value last(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_list items;
  (void)args;
  return pd_items_of(r, &v, &items) && items.n ? items.at[items.n - 1] : pd_undefined();
}

static struct pd_value list(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_list items;
  (void)args;
  return pd_items_of(r, &v, &items) ? list_of(r, items) : pd_undefined();
}

static struct pd_value reverse(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  struct pd_list items;
  (void)args;
  if (v.kind == PD_TEXT) return pd_stop(r, "'reverse' of a text is not supported");
  if (!pd_items_of(r, &v, &items)) return pd_undefined();
  for (int64_t i = items.n; i > 0 && pd_step(r); i--) pd_list_add(r->arena, to.list, items.at[i - 1]);
  return to;
}

/* The member at a path such as "function.name". */
static struct pd_value at_path(struct pd_rendering *r, struct pd_value v, struct pd_text path) {
  for (;;) {
    const char *dot = path.n ? memchr(path.at, '.', path.n) : NULL;
    const size_t n = dot ? (size_t)(dot - path.at) : path.n;
    v = pd_get(r, &v, (struct pd_text){path.at, n});
    if (!dot || r->failed) return v;
    path = (struct pd_text){dot + 1, path.n - n - 1};
  }
}

static struct pd_value join(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_writer w = {.arena = r->arena};
  struct pd_list items;
  const struct pd_text between = text_argument(r, args, 0, "d", nothing),
                       path = text_argument(r, args, 1, "attribute", nothing);
  if (r->failed || !pd_items_of(r, &v, &items)) return pd_undefined();
  for (int64_t i = 0; i < items.n && pd_step(r); i++) {
    if (i) pd_write(&w, between.at, between.n);
    const struct pd_value item = path.n ? at_path(r, items.at[i], path) : items.at[i];
    if (!r->failed) pd_write_value(r, &w, &item);
  }
  return pd_value_text(pd_written(&w));
}

static struct pd_value map(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  struct pd_list items;
  const struct pd_text path = text_argument(r, args, PD_MOST_ARGUMENTS, "attribute", nothing);
  const struct pd_text name = path.n ? nothing : text_argument(r, args, 0, "filter", nothing);
  const struct pd_value otherwise = pd_argument(args, PD_MOST_ARGUMENTS, "default", pd_undefined());
  if (r->failed || !items_if_true(r, &v, &items)) return pd_undefined();
  if (!path.n && !pd_is_filter(name))
    return pd_stop(r, "this filter is not supported: %.*s", (int)(name.n > 60 ? 60 : name.n), name.at);
  struct pd_arguments rest = {.of = args->of};
  for (int i = 1; i < args->n && !path.n; i++) {
    rest.at[rest.n] = args->at[i];
    rest.name[rest.n++] = args->name[i];
  }
  for (int64_t i = 0; i < items.n && pd_step(r); i++) {
    struct pd_value item = path.n ? at_path(r, items.at[i], path) : pd_apply_filter(r, name, items.at[i], &rest);
    if (path.n && item.kind == PD_UNDEFINED) item = otherwise;
    pd_list_add(r->arena, to.list, item);
  }
  return to;
}

/* select, reject, selectattr, rejectattr: items whose value, or whose member, passes a test or not. */
static struct pd_value chosen(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args,
                              bool member, bool keeps) {
  struct pd_value to = pd_value_list(r->arena);
  struct pd_list items;
  const struct pd_text path = member ? text_argument(r, args, 0, "attribute", nothing) : nothing;
  const struct pd_text test = text_argument(r, args, member, "test", nothing);
  struct pd_arguments rest = {.of = args->of};
  for (int i = member + 1; i < args->n; i++) rest.at[rest.n++] = args->at[i];
  if (r->failed || !items_if_true(r, &v, &items)) return pd_undefined();
  for (int64_t i = 0; i < items.n && pd_step(r); i++) {
    const struct pd_value item = member ? at_path(r, items.at[i], path) : items.at[i];
    const bool passes = test.n ? pd_check(r, test, &item, &rest) : pd_truth(&item);
    if (passes == keeps) pd_list_add(r->arena, to.list, items.at[i]);
  }
  return to;
}

static struct pd_value select_items(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  return chosen(r, v, args, false, true);
}
static struct pd_value reject(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  return chosen(r, v, args, false, false);
}
static struct pd_value selectattr(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  return chosen(r, v, args, true, true);
}
static struct pd_value rejectattr(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  return chosen(r, v, args, true, false);
}

/* ---- dicts and numbers ---------------------------------------------------------------------------------- */

static struct pd_value pair(struct pd_rendering *r, const struct pd_dict_entry *e) {
  struct pd_value to = pd_value_list(r->arena);
  to.list->tuple = true;
  pd_list_add(r->arena, to.list, pd_value_text(e->key));
  pd_list_add(r->arena, to.list, e->value);
  return to;
}

static struct pd_value items(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  (void)args;
  if (v.kind == PD_UNDEFINED) return to;
  if (v.kind != PD_DICT) return pd_stop(r, "'items' takes a dict, not %s", pd_kind_name(&v));
  for (int64_t i = 0; i < v.dict->n && pd_step(r); i++) pd_list_add(r->arena, to.list, pair(r, &v.dict->at[i]));
  return to;
}

struct sorted {
  struct pd_text key;
  const struct pd_dict_entry *entry;
};

static int by_key(const void *a, const void *b) {
  const struct sorted *x = a, *y = b;
  const int order = pd_texts_compare(x->key, y->key);
  return order ? order : (x->entry > y->entry) - (x->entry < y->entry);
}

static struct pd_value dictsort(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  const struct pd_value exact = pd_argument(args, 0, "case_sensitive", pd_true(false));
  if (v.kind != PD_DICT) return pd_stop(r, "'dictsort' takes a dict, not %s", pd_kind_name(&v));
  struct sorted *s = pd_arena_alloc(r->arena, sizeof *s * (size_t)(v.dict->n + 1));
  for (int64_t i = 0; i < v.dict->n && pd_step(r); i++) {
    s[i].entry = &v.dict->at[i];
    s[i].key = pd_truth(&exact) ? s[i].entry->key : pd_changed_case(r, s[i].entry->key, PD_LOWER).text;
  }
  if (r->failed) return to;
  qsort(s, (size_t)v.dict->n, sizeof *s, by_key);
  for (int64_t i = 0; i < v.dict->n; i++) pd_list_add(r->arena, to.list, pair(r, s[i].entry));
  return to;
}

static struct pd_value to_int(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args) {
  char copy[24] = "", *end;
  const struct pd_value otherwise = pd_argument(args, 0, "default", pd_int(0));
  if (v.kind == PD_INT || v.kind == PD_LARGE) return v;
  if (v.kind == PD_BOOL) return pd_int(v.truth);
  if (v.kind == PD_FLOAT && v.number > -9e18 && v.number < 9e18) return pd_int((int64_t)v.number);
  if (v.kind == PD_FLOAT) return pd_stop(r, "'int' takes numbers between -9e18 and 9e18");
  if (v.kind != PD_TEXT) return otherwise;
  const struct pd_text t = pd_strip(v.text, PD_BOTH, NULL);
  if (t.n >= 19) return pd_stop(r, "'int' takes texts of at most 18 digits");
  memcpy(copy, t.at, t.n);
  const int64_t whole = strtoll(copy, &end, 10);
  if (t.n && end == copy + t.n) return pd_int(whole);
  return strpbrk(copy, "._eE") ? pd_stop(r, "'int' takes texts of digits only") : otherwise;
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  struct pd_value (*apply)(struct pd_rendering *r, struct pd_value v, const struct pd_arguments *args);
  int most; /* positional arguments */
  const char *names;
} filters[] = {{"trim", trim, 1, "chars"},
               {"length", length, 0, ""},
               {"count", length, 0, ""},
               {"tojson", tojson, 4, "ensure_ascii, indent, separators, sort_keys"},
               {"upper", upper, 0, ""},
               {"lower", lower, 0, ""},
               {"capitalize", capitalize, 0, ""},
               {"default", default_to, 2, "default_value, boolean"},
               {"d", default_to, 2, "default_value, boolean"},
               {"join", join, 2, "d, attribute"},
               {"first", first, 0, ""},
               {"last", last, 0, ""},
               {"list", list, 0, ""},
               {"reverse", reverse, 0, ""},
               {"string", string, 0, ""},
               {"safe", safe, 0, ""},
               {"items", items, 0, ""},
               {"dictsort", dictsort, 1, "case_sensitive"},
               {"replace", replace, 3, "old, new, count"},
               {"map", map, PD_MOST_ARGUMENTS, "attribute, default"},
               {"select", select_items, PD_MOST_ARGUMENTS, ""},
               {"reject", reject, PD_MOST_ARGUMENTS, ""},
               {"selectattr", selectattr, PD_MOST_ARGUMENTS, ""},
               {"rejectattr", rejectattr, PD_MOST_ARGUMENTS, ""},
               {"int", to_int, 1, "default"}};

static int find(struct pd_text name) {
  for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
    if (pd_text_is(name, filters[i].name)) return (int)i;
  return -1;
}

bool pd_is_filter(struct pd_text name) { return find(name) >= 0; }

struct pd_value pd_apply_filter(struct pd_rendering *r, struct pd_text name, struct pd_value v,
                                const struct pd_arguments *args) {
  const int i = find(name);
  if (!pd_step(r)) return pd_undefined();
  if (!pd_arguments_fit(r, args, filters[i].most, filters[i].names)) return pd_undefined();
  return filters[i].apply(r, v, args);
}
