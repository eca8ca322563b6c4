/* Values to texts: Python's str and json.dumps. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Python's repr: the fewest digits that give this number. */
static void write_float(struct pd_writer *w, double x) {
  char digits[40], text[48];
  int precision = 0;
  if (!isfinite(x)) {
    pd_write_text(w, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
    return;
  }
  do snprintf(digits, sizeof digits, "%.*e", precision, x);
  while (strtod(digits, NULL) != x && ++precision < 17);
  const int exponent = atoi(strchr(digits, 'e') + 1);
  if (exponent >= -4 && exponent < 16) {
    snprintf(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1, x);
    pd_write_text(w, text);
    return;
  }
  *strchr(digits, 'e') = 0;
  snprintf(text, sizeof text, "%se%+03d", digits, exponent);
  pd_write_text(w, text);
}

static void write_whole(struct pd_writer *w, int64_t n) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)n);
  pd_write_text(w, text);
}

static int32_t point_of(const char *at, size_t bytes) {
  const unsigned char *u = (const unsigned char *)at;
  if (bytes == 1) return u[0];
  int32_t c = u[0] & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; i++) c = c << 6 | (u[i] & 63);
  return c;
}

/* ---- repr -------------------------------------------------------------------------------------------- */

/* Characters that repr escapes, besides the controls of ASCII; unassigned ones are not known here. */
static bool is_unprintable(int32_t c) {
  static const int32_t ranges[][2] = {{0x80, 0xA0},     {0xAD, 0xAD},     {0x600, 0x605},   {0x61C, 0x61C},
                                      {0x6DD, 0x6DD},   {0x70F, 0x70F},   {0x1680, 0x1680}, {0x180E, 0x180E},
                                      {0x2000, 0x200F}, {0x2028, 0x202F}, {0x205F, 0x206F}, {0x3000, 0x3000},
                                      {0xE000, 0xF8FF}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0x10FFFF}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

static void write_quoted(struct pd_writer *w, struct pd_text t) {
  const bool single = !memchr(t.at, '\'', t.n) || memchr(t.at, '"', t.n);
  const char quote = single ? '\'' : '"';
  char text[16];
  pd_write(w, &quote, 1);
  for (size_t at = 0, n; at < t.n; at += n) {
    n = pd_character_bytes(t.at + at, t.n - at);
    const int32_t c = point_of(t.at + at, n);
    if (c == quote || c == '\\')
      snprintf(text, sizeof text, "\\%c", c);
    else if (c == '\n' || c == '\r' || c == '\t')
      snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c < ' ' || c == 0x7F || is_unprintable(c))
      snprintf(text, sizeof text, c > 0xFFFF ? "\\U%08x" : c > 0xFF ? "\\u%04x" : "\\x%02x", (unsigned)c);
    else {
      pd_write(w, t.at + at, n);
      continue;
    }
    pd_write_text(w, text);
  }
  pd_write(w, &quote, 1);
}

static void write_repr(struct pd_rendering *r, struct pd_writer *w, const struct pd_value *v, int depth) {
  if (depth > PD_MOST_DEPTH) pd_stop(r, "a value is nested too deeply");
  if (!pd_step(r)) return;
  if (v->kind == PD_TEXT)
    write_quoted(w, v->text);
  else if (v->kind == PD_UNDEFINED)
    pd_write_text(w, "Undefined");
  else if (v->kind == PD_LIST) {
    const bool tuple = v->list->tuple;
    pd_write_text(w, tuple ? "(" : "[");
    for (int64_t i = 0; i < v->list->n && !r->failed; i++) {
      if (i) pd_write_text(w, ", ");
      write_repr(r, w, &v->list->at[i], depth + 1);
    }
    pd_write_text(w, tuple ? v->list->n == 1 ? ",)" : ")" : "]");
  } else if (v->kind == PD_DICT) {
    pd_write_text(w, "{");
    for (int64_t i = 0; i < v->dict->n && !r->failed; i++) {
      if (i) pd_write_text(w, ", ");
      write_quoted(w, v->dict->at[i].key);
      pd_write_text(w, ": ");
      write_repr(r, w, &v->dict->at[i].value, depth + 1);
    }
    pd_write_text(w, "}");
  } else
    pd_write_value(r, w, v);
}

void pd_write_value(struct pd_rendering *r, struct pd_writer *w, const struct pd_value *v) {
  switch (v->kind) {
  case PD_UNDEFINED: return;
  case PD_NONE: pd_write_text(w, "None"); return;
  case PD_BOOL: pd_write_text(w, v->truth ? "True" : "False"); return;
  case PD_INT: write_whole(w, v->whole); return;
  case PD_FLOAT: write_float(w, v->number); return;
  case PD_LARGE:
  case PD_TEXT: pd_write(w, v->text.at, v->text.n); return;
  case PD_LIST:
  case PD_DICT: write_repr(r, w, v, 0); return;
  default: pd_stop(r, "%s has no text", pd_kind_name(v));
  }
}

struct pd_value pd_as_text(struct pd_rendering *r, const struct pd_value *v) {
  struct pd_writer w = {.arena = r->arena};
  if (v->kind == PD_TEXT) return *v;
  pd_write_value(r, &w, v);
  return pd_value_text(pd_written(&w));
}

/* ---- JSON -------------------------------------------------------------------------------------------- */

static void write_json_text(struct pd_writer *w, struct pd_text t, bool ascii) {
  static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
  char text[16];
  pd_write_text(w, "\"");
  for (size_t at = 0, n; at < t.n; at += n) {
    n = pd_character_bytes(t.at + at, t.n - at);
    const int32_t c = point_of(t.at + at, n);
    const char *known = c && c < 0x80 ? strchr(from, c) : NULL;
    if (known)
      snprintf(text, sizeof text, "\\%c", to[known - from]);
    else if (c > 0xFFFF && ascii)
      snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
               (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    else if (c < ' ' || (c > 0x7E && ascii))
      snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else {
      pd_write(w, t.at + at, n);
      continue;
    }
    pd_write_text(w, text);
  }
  pd_write_text(w, "\"");
}

static void write_break(struct pd_writer *w, const struct pd_json_style *style, int depth) {
  if (style->indent < 0) return;
  pd_write_text(w, "\n");
  for (int i = 0; i < style->indent * depth; i++) pd_write_text(w, " ");
}

static int by_key(const void *a, const void *b) {
  const struct pd_dict_entry *const *x = a, *const *y = b;
  return pd_texts_compare((*x)->key, (*y)->key);
}

static void write_json_dict(struct pd_rendering *r, struct pd_writer *w, const struct pd_dict *d,
                            const struct pd_json_style *style, int depth) {
  const struct pd_dict_entry **e = pd_arena_alloc(r->arena, sizeof *e * (size_t)(d->n + 1));
  for (int64_t i = 0; i < d->n; i++) e[i] = &d->at[i];
  if (style->sorted) qsort(e, (size_t)d->n, sizeof *e, by_key);
  pd_write_text(w, "{");
  for (int64_t i = 0; i < d->n && !r->failed; i++) {
    if (i) pd_write(w, style->comma.at, style->comma.n);
    write_break(w, style, depth + 1);
    write_json_text(w, e[i]->key, style->ascii);
    pd_write(w, style->colon.at, style->colon.n);
    pd_write_json(r, w, &e[i]->value, style, depth + 1);
  }
  if (d->n) write_break(w, style, depth);
  pd_write_text(w, "}");
}

static void write_json_list(struct pd_rendering *r, struct pd_writer *w, const struct pd_list *l,
                            const struct pd_json_style *style, int depth) {
  pd_write_text(w, "[");
  for (int64_t i = 0; i < l->n && !r->failed; i++) {
    if (i) pd_write(w, style->comma.at, style->comma.n);
    write_break(w, style, depth + 1);
    pd_write_json(r, w, &l->at[i], style, depth + 1);
  }
  if (l->n) write_break(w, style, depth);
  pd_write_text(w, "]");
}

void pd_write_json(struct pd_rendering *r, struct pd_writer *w, const struct pd_value *v,
                   const struct pd_json_style *style, int depth) {
  if (depth > PD_MOST_DEPTH) pd_stop(r, "a value is nested too deeply");
  if (!pd_step(r)) return;
  switch (v->kind) {
  case PD_NONE: pd_write_text(w, "null"); return;
  case PD_BOOL: pd_write_text(w, v->truth ? "true" : "false"); return;
  case PD_FLOAT:
    if (!isfinite(v->number)) {
      pd_write_text(w, isnan(v->number) ? "NaN" : v->number < 0 ? "-Infinity" : "Infinity");
      return;
    }
    __attribute__((fallthrough));
  case PD_INT:
  case PD_LARGE: pd_write_value(r, w, v); return;
  case PD_TEXT: write_json_text(w, v->text, style->ascii); return;
  case PD_LIST: write_json_list(r, w, v->list, style, depth); return;
  case PD_DICT: write_json_dict(r, w, v->dict, style, depth); return;
  default: pd_stop(r, "%s is not JSON", pd_kind_name(v));
  }
}
