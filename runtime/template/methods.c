/* Methods of texts and dicts, and functions. */
#include "internal.h"

#include <string.h>

typedef struct pd_value method(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args);

/* ---- texts ------------------------------------------------------------------------------------------------ */

/* A text as argument, which must be given. */
static struct pd_text needed(struct pd_rendering *r, const struct pd_arguments *args, int i, const char *name) {
  const struct pd_value v = pd_argument(args, i, name, pd_undefined());
  if (v.kind == PD_TEXT) return v.text;
  pd_stop(r, "the argument '%s' of '%s' is %s, not a text", name, args->of, pd_kind_name(&v));
  return (struct pd_text){"", 0};
}

static int64_t limit(struct pd_rendering *r, const struct pd_arguments *args, int i, const char *name) {
  const struct pd_value v = pd_argument(args, i, name, pd_int(-1));
  if (v.kind == PD_INT || v.kind == PD_NONE) return v.kind == PD_INT && v.whole >= 0 ? v.whole : INT64_MAX;
  pd_stop(r, "the argument '%s' of '%s' is %s, not a whole number", name, args->of, pd_kind_name(&v));
  return 0;
}

static struct pd_value stripped(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args,
                                enum pd_strip_side side) {
  const struct pd_value set = pd_argument(args, 0, "chars", pd_none());
  if (set.kind == PD_NONE) return pd_value_text(pd_strip(of.text, side, NULL));
  const struct pd_text characters = needed(r, args, 0, "chars");
  return pd_value_text(pd_strip(of.text, side, &characters));
}

static struct pd_value strip(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return stripped(r, of, args, PD_BOTH);
}
static struct pd_value lstrip(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return stripped(r, of, args, PD_LEFT);
}
static struct pd_value rstrip(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return stripped(r, of, args, PD_RIGHT);
}

/* startswith, endswith: with a text, or one of several. */
static struct pd_value bounded(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args,
                               bool (*is)(struct pd_text t, struct pd_text part)) {
  const struct pd_value v = pd_argument(args, 0, "prefix", pd_undefined());
  if (v.kind != PD_LIST) return pd_true(is(of.text, needed(r, args, 0, "prefix")));
  bool any = false;
  for (int64_t i = 0; i < v.list->n && pd_step(r); i++)
    any |= v.list->at[i].kind == PD_TEXT && is(of.text, v.list->at[i].text);
  return pd_true(any);
}

static struct pd_value startswith(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return bounded(r, of, args, pd_begins);
}
static struct pd_value endswith(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return bounded(r, of, args, pd_ends);
}

static void add_text(struct pd_rendering *r, struct pd_value list, const char *at, size_t n) {
  pd_list_add(r->arena, list.list, pd_value_text((struct pd_text){at, n}));
}

/* Without a separator: words between blanks. */
static struct pd_value words(struct pd_rendering *r, struct pd_text t, int64_t most) {
  struct pd_value to = pd_value_list(r->arena);
  for (t = pd_strip(t, PD_LEFT, NULL); t.n && pd_step(r); t = pd_strip(t, PD_LEFT, NULL)) {
    size_t end = 0;
    if (to.list->n == most) {
      t = pd_strip(t, PD_RIGHT, NULL);
      end = t.n;
    }
    for (size_t n; end < t.n; end += n) {
      n = pd_character_bytes(t.at + end, t.n - end);
      if (pd_is_blank(t.at + end, n)) break;
    }
    add_text(r, to, t.at, end);
    t = (struct pd_text){t.at + end, t.n - end};
  }
  return to;
}

static struct pd_value split(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  const int64_t most = limit(r, args, 1, "maxsplit");
  const struct pd_value separator = pd_argument(args, 0, "sep", pd_none());
  if (r->failed || separator.kind == PD_NONE) return words(r, of.text, most);
  const struct pd_text by = needed(r, args, 0, "sep");
  struct pd_value to = pd_value_list(r->arena);
  size_t from = 0;
  if (!by.n) return pd_stop(r, "'split' needs a separator that is not empty");
  for (int64_t at; to.list->n < most && pd_step(r) && (at = pd_find(of.text, by, from)) >= 0;) {
    add_text(r, to, of.text.at + from, (size_t)at - from);
    from = (size_t)at + by.n;
  }
  add_text(r, to, of.text.at + from, of.text.n - from);
  return to;
}

static struct pd_value splitlines(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  size_t from = 0;
  (void)args;
  for (size_t at = 0; at < of.text.n && pd_step(r); at++) {
    const char c = of.text.at[at];
    if (c != '\n' && c != '\r') continue;
    add_text(r, to, of.text.at + from, at - from);
    if (c == '\r' && at + 1 < of.text.n && of.text.at[at + 1] == '\n') at++;
    from = at + 1;
  }
  if (from < of.text.n) add_text(r, to, of.text.at + from, of.text.n - from);
  return to;
}

static struct pd_value replace(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  struct pd_writer w = {.arena = r->arena};
  const struct pd_text from = needed(r, args, 0, "old"), by = needed(r, args, 1, "new");
  const int64_t most = limit(r, args, 2, "count");
  size_t at = 0;
  if (!r->failed && !from.n) return pd_stop(r, "'replace' needs a text that is not empty");
  int64_t n = 0;
  for (int64_t found; n < most && pd_step(r) && (found = pd_find(of.text, from, at)) >= 0; n++) {
    pd_write(&w, of.text.at + at, (size_t)found - at);
    pd_write(&w, by.at, by.n);
    at = (size_t)found + from.n;
    if (w.n > PD_MOST_RENDERED) return pd_stop(r, "the text is longer than %d MiB", PD_MOST_RENDERED >> 20);
  }
  pd_write(&w, of.text.at + at, of.text.n - at);
  return pd_value_text(pd_written(&w));
}

static struct pd_value find_text(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  const int64_t at = pd_find(of.text, needed(r, args, 0, "sub"), 0);
  return pd_int(at < 0 ? -1 : pd_characters((struct pd_text){of.text.at, (size_t)at}));
}

static struct pd_value count(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  const struct pd_text part = needed(r, args, 0, "sub");
  int64_t n = 0;
  if (!part.n) return pd_stop(r, "'count' needs a text that is not empty");
  for (int64_t at = 0; pd_step(r) && (at = pd_find(of.text, part, (size_t)at)) >= 0; at += (int64_t)part.n) n++;
  return pd_int(n);
}

static struct pd_value join(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  struct pd_writer w = {.arena = r->arena};
  struct pd_list items;
  const struct pd_value v = pd_argument(args, 0, "iterable", pd_undefined());
  if (!pd_items_of(r, &v, &items)) return pd_undefined();
  for (int64_t i = 0; i < items.n && pd_step(r); i++) {
    if (items.at[i].kind != PD_TEXT) return pd_stop(r, "'join' takes texts, not %s", pd_kind_name(&items.at[i]));
    if (i) pd_write(&w, of.text.at, of.text.n);
    pd_write(&w, items.at[i].text.at, items.at[i].text.n);
  }
  return pd_value_text(pd_written(&w));
}

static struct pd_value lower(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  (void)args;
  return pd_changed_case(r, of.text, PD_LOWER);
}
static struct pd_value upper(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  (void)args;
  return pd_changed_case(r, of.text, PD_UPPER);
}
static struct pd_value capitalize(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  (void)args;
  return pd_changed_case(r, of.text, PD_CAPITALIZED);
}

/* ---- dicts ------------------------------------------------------------------------------------------------- */

static struct pd_value get(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  const struct pd_text key = needed(r, args, 0, "key");
  for (int64_t i = 0; i < of.dict->n; i++)
    if (pd_texts_equal(of.dict->at[i].key, key)) return of.dict->at[i].value;
  return pd_argument(args, 1, "default", pd_none());
}

static struct pd_value items(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return pd_apply_filter(r, pd_text_of("items"), of, args);
}

static struct pd_value keys(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  return pd_apply_filter(r, pd_text_of("list"), of, args);
}

static struct pd_value values(struct pd_rendering *r, struct pd_value of, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  (void)args;
  for (int64_t i = 0; i < of.dict->n && pd_step(r); i++) pd_list_add(r->arena, to.list, of.dict->at[i].value);
  return to;
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  enum pd_value_kind of;
  method *call;
  int most;
  const char *names;
} methods[] = {{"strip", PD_TEXT, strip, 1, ""},
               {"lstrip", PD_TEXT, lstrip, 1, ""},
               {"rstrip", PD_TEXT, rstrip, 1, ""},
               {"startswith", PD_TEXT, startswith, 1, ""},
               {"endswith", PD_TEXT, endswith, 1, ""},
               {"split", PD_TEXT, split, 2, "sep, maxsplit"},
               {"splitlines", PD_TEXT, splitlines, 0, ""},
               {"replace", PD_TEXT, replace, 3, "old, new, count"},
               {"find", PD_TEXT, find_text, 1, ""},
               {"count", PD_TEXT, count, 1, ""},
               {"join", PD_TEXT, join, 1, ""},
               {"lower", PD_TEXT, lower, 0, ""},
               {"upper", PD_TEXT, upper, 0, ""},
               {"capitalize", PD_TEXT, capitalize, 0, ""},
               {"get", PD_DICT, get, 2, ""},
               {"items", PD_DICT, items, 0, ""},
               {"keys", PD_DICT, keys, 0, ""},
               {"values", PD_DICT, values, 0, ""}};
enum { N_METHODS = sizeof methods / sizeof *methods };

bool pd_is_method(struct pd_text name, const struct pd_value *of) {
  for (int i = 0; i < N_METHODS; i++)
    if (pd_text_is(name, methods[i].name) && (!of || of->kind == methods[i].of)) return true;
  return false;
}

struct pd_value pd_call_method(struct pd_rendering *r, struct pd_value of, struct pd_text name,
                               const struct pd_arguments *args) {
  if (!pd_step(r)) return pd_undefined();
  for (int i = 0; i < N_METHODS; i++) {
    if (!pd_text_is(name, methods[i].name) || of.kind != methods[i].of) continue;
    if (!pd_arguments_fit(r, args, methods[i].most, methods[i].names)) return pd_undefined();
    return methods[i].call(r, of, args);
  }
  return pd_stop(r, "%s has no method '%.*s'", pd_kind_name(&of), (int)(name.n > 60 ? 60 : name.n), name.at);
}

/* ---- functions ----------------------------------------------------------------------------------------------- */

bool pd_is_function(struct pd_text name) {
  return pd_text_is(name, "raise_exception") || pd_text_is(name, "namespace") || pd_text_is(name, "range") ||
         pd_text_is(name, "dict");
}

static struct pd_value range(struct pd_rendering *r, const struct pd_arguments *args) {
  struct pd_value to = pd_value_list(r->arena);
  int64_t bound[3] = {0, 0, 1};
  if (args->n < 1 || !pd_arguments_fit(r, args, 3, "")) return pd_stop(r, "'range' takes one to three numbers");
  for (int i = 0; i < args->n; i++) {
    if (args->at[i].kind != PD_INT)
      return pd_stop(r, "'range' takes whole numbers, not %s", pd_kind_name(&args->at[i]));
    bound[args->n == 1 ? 1 : i] = args->at[i].whole;
    if (bound[i] > INT32_MAX || bound[i] < INT32_MIN) return pd_stop(r, "a bound of 'range' is too large");
  }
  if (!bound[2]) return pd_stop(r, "'range' takes no step of zero");
  for (int64_t i = bound[0]; (bound[2] > 0 ? i < bound[1] : i > bound[1]) && pd_step(r); i += bound[2]) {
    if (to.list->n == PD_MOST_RANGE) return pd_stop(r, "'range' has more than %d numbers", PD_MOST_RANGE);
    pd_list_add(r->arena, to.list, pd_int(i));
  }
  return to;
}

struct pd_value pd_call_function(struct pd_rendering *r, struct pd_text name, const struct pd_arguments *args) {
  if (pd_text_is(name, "range")) return range(r, args);
  if (pd_text_is(name, "raise_exception")) {
    const struct pd_value v = pd_argument(args, 0, "message", pd_undefined()), text = pd_as_text(r, &v);
    return pd_stop(r, "the template refuses this chat: %.*s", (int)(text.text.n > 600 ? 600 : text.text.n),
                   text.text.at);
  }
  struct pd_value to = pd_value_dict(r->arena);
  for (int i = 0; i < args->n; i++) {
    if (!args->name[i].n) return pd_stop(r, "'%s' takes named arguments only", args->of);
    pd_dict_set(r->arena, to.dict, args->name[i], args->at[i]);
  }
  if (pd_text_is(name, "namespace")) to.kind = PD_NAMESPACE;
  return to;
}
