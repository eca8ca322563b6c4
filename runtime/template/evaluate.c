/* Expressions. */
#include "internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures and limits --------------------------------------------------------------------------- */

struct pd_value pd_stop(struct pd_rendering *r, const char *pattern, ...) {
  char cause[PD_WHY];
  va_list args;
  if (!r->failed) {
    va_start(args, pattern);
    vsnprintf(cause, sizeof cause, pattern, args);
    va_end(args);
    pd_refuse(r->why, "line %d: %.900s", r->line, cause);
  }
  r->failed = true;
  return pd_undefined();
}

bool pd_step(struct pd_rendering *r) {
  if (r->failed) return false;
  if (++r->steps > PD_MOST_STEPS) PD_STOP_BEYOND(r, "the template takes more than %d steps", PD_MOST_STEPS);
  if (r->arena->used - r->used > PD_MOST_MEMORY)
    PD_STOP_BEYOND(r, "the template takes more than %d MiB", PD_MOST_MEMORY >> 20);
  if (r->out->n > PD_MOST_RENDERED) PD_STOP_BEYOND(r, "the text is longer than %d MiB", PD_MOST_RENDERED >> 20);
  return !r->failed;
}

/* ---- names and members ----------------------------------------------------------------------------- */

static struct pd_value lookup(struct pd_rendering *r, struct pd_text name) {
  static const char *const others[] = {"lipsum", "cycler", "joiner"}; /* Jinja's */
  for (struct pd_scope *s = r->scope; s; s = s->outer)
    for (int64_t i = 0; i < s->variables.n; i++)
      if (pd_texts_equal(s->variables.at[i].key, name)) return s->variables.at[i].value;
  if (pd_is_function(name)) return (struct pd_value){.kind = PD_FUNCTION, .text = name};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (pd_text_is(name, others[i])) return pd_stop(r, "this function is not supported: %s", others[i]);
  return pd_undefined();
}

struct pd_value pd_get(struct pd_rendering *r, const struct pd_value *of, struct pd_text name) {
  if (of->kind == PD_UNDEFINED)
    return pd_stop(r, "'%.*s' is asked of an undefined value", (int)(name.n > 60 ? 60 : name.n), name.at);
  if (of->kind != PD_DICT && of->kind != PD_NAMESPACE && of->kind != PD_LOOP) return pd_undefined();
  for (int64_t i = 0; i < of->dict->n; i++)
    if (pd_texts_equal(of->dict->at[i].key, name)) return of->dict->at[i].value;
  if (of->kind == PD_LOOP)
    return pd_stop(r, "this member of loop is not supported: %.*s", (int)(name.n > 60 ? 60 : name.n), name.at);
  return pd_undefined();
}

static struct pd_value member(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value of = pd_evaluate(r, n->a);
  if (r->failed) return pd_undefined();
  r->line = n->line;
  if (pd_is_method(n->name, &of)) return pd_stop(r, "the method '%.*s' is not called", (int)n->name.n, n->name.at);
  return pd_get(r, &of, n->name);
}

static struct pd_value item(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value of = pd_evaluate(r, n->a), at = pd_evaluate(r, n->b);
  if (r->failed) return pd_undefined();
  r->line = n->line;
  if (at.kind == PD_TEXT) return pd_get(r, &of, at.text);
  if (of.kind == PD_UNDEFINED) return pd_stop(r, "an item is asked of an undefined value");
  const bool number = at.kind == PD_INT || at.kind == PD_BOOL;
  if (!number || (of.kind != PD_LIST && of.kind != PD_TEXT)) return pd_undefined();
  const int64_t length = of.kind == PD_LIST ? of.list->n : pd_characters(of.text);
  int64_t i = at.kind == PD_INT ? at.whole : at.truth;
  if (i < 0) i += length;
  if (i < 0 || i >= length) return pd_undefined();
  return of.kind == PD_LIST ? of.list->at[i] : pd_value_text(pd_characters_of(of.text, i, i + 1));
}

/* A bound of a slice over n items, as Python clips it. */
static bool bound(struct pd_rendering *r, const struct pd_node *n, int64_t length, int64_t otherwise,
                  bool backward, int64_t *to) {
  const struct pd_value v = n ? pd_evaluate(r, n) : pd_none();
  if (r->failed) return false;
  *to = otherwise;
  if (v.kind == PD_NONE) return true;
  if (v.kind != PD_INT) return pd_stop(r, "a slice needs whole numbers, not %s", pd_kind_name(&v)), false;
  *to = v.whole < 0 ? (v.whole < -length ? -1 : v.whole + length) : v.whole;
  const int64_t least = backward ? -1 : 0, most = backward ? length - 1 : length;
  *to = *to < least ? least : *to > most ? most : *to;
  return true;
}

static struct pd_value slice(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value of = pd_evaluate(r, n->a);
  const struct pd_value by = n->d ? pd_evaluate(r, n->d) : pd_int(1);
  int64_t begin, end;
  if (r->failed) return pd_undefined();
  if (of.kind != PD_LIST && of.kind != PD_TEXT) return pd_stop(r, "%s has no slices", pd_kind_name(&of));
  if (by.kind != PD_INT || (by.whole != 1 && by.whole != -1))
    return pd_stop(r, "only slices with the steps 1 and -1 are supported");
  const bool backward = by.whole < 0;
  const int64_t length = of.kind == PD_LIST ? of.list->n : pd_characters(of.text);
  if (!bound(r, n->b, length, backward ? length - 1 : 0, backward, &begin) ||
      !bound(r, n->c, length, backward ? -1 : length, backward, &end))
    return pd_undefined();
  if (of.kind == PD_TEXT && !backward) return pd_value_text(pd_characters_of(of.text, begin, end));
  if (of.kind == PD_TEXT) return pd_stop(r, "a text has no backward slices here");
  struct pd_value to = pd_value_list(r->arena);
  to.list->tuple = of.list->tuple;
  for (int64_t i = begin; (backward ? i > end : i < end) && pd_step(r); i += by.whole)
    pd_list_add(r->arena, to.list, of.list->at[i]);
  return to;
}

/* ---- operators -------------------------------------------------------------------------------------- */

static bool is_whole(const struct pd_value *v) { return v->kind == PD_INT || v->kind == PD_BOOL; }
static bool is_number(const struct pd_value *v) { return is_whole(v) || v->kind == PD_FLOAT; }
static int64_t whole_of(const struct pd_value *v) { return v->kind == PD_BOOL ? v->truth : v->whole; }
static double number_of(const struct pd_value *v) { return v->kind == PD_FLOAT ? v->number : (double)whole_of(v); }

static struct pd_value whole_result(struct pd_rendering *r, char sign, bool twice, int64_t a, int64_t b) {
  int64_t to = 0;
  bool over = false;
  if ((sign == '/' || sign == '%') && !b) return pd_stop(r, "a division by zero");
  if ((sign == '/' || sign == '%') && b == -1) { /* also for the smallest number */
    if (sign == '%') return pd_int(0);
    over = __builtin_sub_overflow((int64_t)0, a, &to);
  } else if (sign == '%')
    to = a % b + (a % b && (a % b < 0) != (b < 0) ? b : 0);
  else if (sign == '/')
    to = a / b - (a % b && (a < 0) != (b < 0));
  else if (sign == '+')
    over = __builtin_add_overflow(a, b, &to);
  else if (sign == '-')
    over = __builtin_sub_overflow(a, b, &to);
  else
    over = __builtin_mul_overflow(a, b, &to);
  if (sign == '/' && !twice) return pd_float((double)a / (double)b);
  return over ? pd_stop(r, "a whole number has more than 63 bits") : pd_int(to);
}

static struct pd_value float_result(struct pd_rendering *r, char sign, bool twice, double a, double b) {
  if ((sign == '/' || sign == '%') && b == 0) return pd_stop(r, "a division by zero");
  switch (sign) {
  case '+': return pd_float(a + b);
  case '-': return pd_float(a - b);
  case '*': return pd_float(a * b);
  case '/': return pd_float(twice ? floor(a / b) : a / b);
  default: return pd_float(a - b * floor(a / b));
  }
}

static struct pd_value repeated(struct pd_rendering *r, struct pd_text t, int64_t times) {
  struct pd_writer w = {.arena = r->arena};
  if (times > 0 && t.n > (size_t)(PD_MOST_RENDERED / times))
    return PD_STOP_BEYOND(r, "the text is longer than %d MiB", PD_MOST_RENDERED >> 20);
  for (int64_t i = 0; i < times && t.n; i++) pd_write(&w, t.at, t.n);
  return pd_value_text(pd_written(&w));
}

static struct pd_value added(struct pd_rendering *r, const struct pd_value *a, const struct pd_value *b) {
  if (a->kind == PD_TEXT && b->kind == PD_TEXT) {
    if (a->safe != b->safe) return pd_stop(r, "adding to a text of the filter 'safe' is not supported");
    char *at = pd_arena_alloc(r->arena, a->text.n + b->text.n + 1);
    memcpy(at, a->text.at, a->text.n);
    memcpy(at + a->text.n, b->text.at, b->text.n);
    return pd_value_text((struct pd_text){at, a->text.n + b->text.n});
  }
  if (a->kind != PD_LIST || b->kind != PD_LIST || a->list->tuple != b->list->tuple)
    return pd_stop(r, "%s and %s cannot be added", pd_kind_name(a), pd_kind_name(b));
  struct pd_value to = pd_value_list(r->arena);
  to.list->tuple = a->list->tuple;
  for (int64_t i = 0; i < a->list->n && pd_step(r); i++) pd_list_add(r->arena, to.list, a->list->at[i]);
  for (int64_t i = 0; i < b->list->n && pd_step(r); i++) pd_list_add(r->arena, to.list, b->list->at[i]);
  return to;
}

static struct pd_value binary(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value a = pd_evaluate(r, n->a), b = pd_evaluate(r, n->b);
  if (r->failed) return pd_undefined();
  r->line = n->line;
  const char sign = n->name.at[0];
  const bool twice = n->name.n == 2;
  if (is_whole(&a) && is_whole(&b)) return whole_result(r, sign, twice, whole_of(&a), whole_of(&b));
  if (is_number(&a) && is_number(&b)) return float_result(r, sign, twice, number_of(&a), number_of(&b));
  if (sign == '+') return added(r, &a, &b);
  if (sign == '*' && a.kind == PD_TEXT && is_whole(&b)) return repeated(r, a.text, whole_of(&b));
  if (sign == '*' && b.kind == PD_TEXT && is_whole(&a)) return repeated(r, b.text, whole_of(&a));
  return pd_stop(r, "'%.*s' is not supported between %s and %s", (int)n->name.n, n->name.at, pd_kind_name(&a),
                 pd_kind_name(&b));
}

bool pd_contains(struct pd_rendering *r, const struct pd_value *in, const struct pd_value *what) {
  if (in->kind == PD_TEXT) {
    if (what->kind != PD_TEXT) return pd_stop(r, "%s is never in a text", pd_kind_name(what)), false;
    return pd_find(in->text, what->text, 0) >= 0;
  }
  if (in->kind == PD_LIST) {
    bool found = false;
    for (int64_t i = 0; i < in->list->n && !found && pd_step(r); i++) found = pd_equal(&in->list->at[i], what, 0);
    return found;
  }
  if (in->kind == PD_UNDEFINED) return false;
  if (in->kind != PD_DICT) return pd_stop(r, "nothing is in %s", pd_kind_name(in)), false;
  for (int64_t i = 0; i < in->dict->n && what->kind == PD_TEXT; i++)
    if (pd_texts_equal(in->dict->at[i].key, what->text)) return true;
  return false;
}

static bool compared(struct pd_rendering *r, struct pd_text sign, const struct pd_value *a,
                     const struct pd_value *b) {
  int order;
  if (pd_text_is(sign, "==")) return pd_equal(a, b, 0);
  if (pd_text_is(sign, "!=")) return !pd_equal(a, b, 0);
  if (pd_text_is(sign, "in")) return pd_contains(r, b, a);
  if (pd_text_is(sign, "not in")) return !pd_contains(r, b, a);
  if (!pd_compare(r, a, b, &order)) return false;
  const bool equal = sign.n == 2 && order == 0;
  return equal || (sign.at[0] == '<' ? order < 0 : order > 0);
}

static struct pd_value comparison(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_value left = pd_evaluate(r, n->a);
  bool holds = true;
  for (int i = 0; i < n->n && holds && !r->failed; i++) {
    const struct pd_value right = pd_evaluate(r, n->items[i]);
    r->line = n->line;
    holds = !r->failed && compared(r, n->names[i], &left, &right);
    left = right;
  }
  return pd_true(holds);
}

/* `and`, `or`: the first value that decides, or the last. */
static struct pd_value decided(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_value v = pd_undefined();
  for (int i = 0; i < n->n && !r->failed; i++) {
    v = pd_evaluate(r, n->items[i]);
    if (pd_truth(&v) == (n->kind == PD_N_OR)) break;
  }
  return v;
}

static struct pd_value joined(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_writer w = {.arena = r->arena};
  for (int i = 0; i < n->n && pd_step(r); i++) {
    const struct pd_value v = pd_evaluate(r, n->items[i]);
    if (!r->failed) pd_write_value(r, &w, &v);
  }
  return pd_value_text(pd_written(&w));
}

/* -x, +x */
static struct pd_value signed_value(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value v = pd_evaluate(r, n->a);
  if (r->failed) return pd_undefined();
  if (is_whole(&v)) return whole_result(r, n->kind == PD_N_MINUS ? '-' : '+', false, 0, whole_of(&v));
  if (v.kind == PD_FLOAT) return pd_float(n->kind == PD_N_MINUS ? -v.number : v.number);
  return pd_stop(r, "%s has no sign", pd_kind_name(&v));
}

/* ---- calls ------------------------------------------------------------------------------------------ */

struct pd_value pd_argument(const struct pd_arguments *args, int position, const char *name,
                            struct pd_value otherwise) {
  for (int i = 0; i < args->n; i++)
    if (args->name[i].n ? pd_text_is(args->name[i], name) : i == position) return args->at[i];
  return otherwise;
}

bool pd_arguments_fit(struct pd_rendering *r, const struct pd_arguments *args, int most, const char *names) {
  for (int i = 0; i < args->n && !r->failed; i++) {
    const struct pd_text name = args->name[i];
    bool known = !name.n && i < most;
    for (const char *at = names; name.n && *at && !known;) {
      const size_t n = strcspn(at, ",");
      known = n == name.n && !memcmp(at, name.at, n);
      at += n + strspn(at + n, ", ");
    }
    if (!known && name.n)
      pd_stop(r, "'%s' takes no argument '%.*s'", args->of, (int)(name.n > 60 ? 60 : name.n), name.at);
    else if (!known)
      pd_stop(r, "'%s' takes at most %d argument%s", args->of, most, most == 1 ? "" : "s");
  }
  return !r->failed;
}

static bool evaluate_arguments(struct pd_rendering *r, const struct pd_node *n, struct pd_arguments *to) {
  for (int i = 0; i < n->n && !r->failed; i++) {
    to->at[i] = pd_evaluate(r, n->items[i]);
    to->name[i] = n->names[i];
  }
  to->n = n->n;
  r->line = n->line;
  return !r->failed;
}

static const char *zero_ended(struct pd_rendering *r, struct pd_text t) {
  return pd_text_copy(r->arena, t.at, t.n > 60 ? 60 : t.n).at;
}

static struct pd_value call(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_arguments args = {0};
  if (n->a->kind == PD_N_MEMBER) {
    const struct pd_value of = pd_evaluate(r, n->a->a);
    args.of = zero_ended(r, n->a->name);
    if (r->failed || !evaluate_arguments(r, n, &args)) return pd_undefined();
    return pd_call_method(r, of, n->a->name, &args);
  }
  const struct pd_value f = pd_evaluate(r, n->a);
  r->line = n->line;
  if (r->failed) return f;
  if (f.kind == PD_MACRO) return pd_call_macro(r, f.macro, n);
  if (f.kind == PD_UNDEFINED && n->a->kind == PD_N_NAME && pd_text_is(n->a->name, "strftime_now"))
    return pd_stop(r, "strftime_now is not supported: the same chat would have other tokens on another day");
  if (f.kind != PD_FUNCTION && n->a->kind == PD_N_NAME)
    return pd_stop(r, "there is no function '%s'", zero_ended(r, n->a->name));
  if (f.kind != PD_FUNCTION) return pd_stop(r, "%s cannot be called", pd_kind_name(&f));
  args.of = zero_ended(r, f.text);
  return evaluate_arguments(r, n, &args) ? pd_call_function(r, f.text, &args) : pd_undefined();
}

static struct pd_value filtered(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_arguments args = {.of = zero_ended(r, n->name)};
  const struct pd_value v = pd_evaluate(r, n->a);
  if (r->failed || !evaluate_arguments(r, n, &args)) return pd_undefined();
  return pd_apply_filter(r, n->name, v, &args);
}

static struct pd_value tested(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_arguments args = {.of = zero_ended(r, n->name)};
  const struct pd_value v = pd_evaluate(r, n->a);
  if (r->failed || !evaluate_arguments(r, n, &args)) return pd_undefined();
  return pd_true(pd_check(r, n->name, &v, &args) != n->negated);
}

/* ---- all of them -------------------------------------------------------------------------------------- */

static struct pd_value list(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_value to = pd_value_list(r->arena);
  to.list->tuple = n->tuple;
  for (int i = 0; i < n->n && !r->failed; i++) pd_list_add(r->arena, to.list, pd_evaluate(r, n->items[i]));
  return to;
}

static struct pd_value dict(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_value to = pd_value_dict(r->arena);
  for (int i = 0; i < n->n && !r->failed; i += 2) {
    const struct pd_value key = pd_evaluate(r, n->items[i]), v = pd_evaluate(r, n->items[i + 1]);
    if (!r->failed && key.kind != PD_TEXT)
      return pd_stop(r, "a key of a dict is %s, not a text", pd_kind_name(&key));
    if (!r->failed) pd_dict_set(r->arena, to.dict, key.text, v);
  }
  return to;
}

static struct pd_value choice(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value v = pd_evaluate(r, n->b);
  if (r->failed) return v;
  const struct pd_node *chosen = pd_truth(&v) ? n->a : n->c;
  return chosen ? pd_evaluate(r, chosen) : pd_undefined();
}

static struct pd_value negated(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value v = pd_evaluate(r, n->a);
  return pd_true(!pd_truth(&v));
}

static struct pd_value evaluate(struct pd_rendering *r, const struct pd_node *n) {
  switch (n->kind) {
  case PD_N_LITERAL: return n->value;
  case PD_N_NAME: return lookup(r, n->name);
  case PD_N_LIST: return list(r, n);
  case PD_N_DICT: return dict(r, n);
  case PD_N_MEMBER: return member(r, n);
  case PD_N_ITEM: return item(r, n);
  case PD_N_SLICE: return slice(r, n);
  case PD_N_CALL: return call(r, n);
  case PD_N_FILTER: return filtered(r, n);
  case PD_N_TEST: return tested(r, n);
  case PD_N_NOT: return negated(r, n);
  case PD_N_MINUS:
  case PD_N_PLUS: return signed_value(r, n);
  case PD_N_AND:
  case PD_N_OR: return decided(r, n);
  case PD_N_BINARY: return binary(r, n);
  case PD_N_JOIN: return joined(r, n);
  case PD_N_COMPARE: return comparison(r, n);
  default: return choice(r, n);
  }
}

struct pd_value pd_evaluate(struct pd_rendering *r, const struct pd_node *n) {
  if (!pd_step(r)) return pd_undefined();
  r->line = n->line;
  if (r->depth == 4 * PD_MOST_DEPTH) return pd_stop(r, "calls are nested too deeply");
  r->depth++;
  const struct pd_value v = evaluate(r, n);
  r->depth--;
  return v;
}
