/* JSON to values. Unlike cJSON, it tells 1 from 1.0, which templates print, keeps the digits of large
 * numbers, and keeps texts with zero bytes. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reading {
  struct pd_arena *arena;
  const char *text, *at, *end;
  int depth;
  char *why;
};

static bool refuse(struct reading *r, const char *what) {
  return pd_refuse(r->why, "it is not JSON at offset %lld: %s", (long long)(r->at - r->text), what);
}

static void skip_blanks(struct reading *r) {
  while (r->at < r->end && memchr(" \t\r\n", *r->at, 4)) r->at++;
}

static bool takes(struct reading *r, char c) {
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

/* ---- texts --------------------------------------------------------------------------------------- */

/* Four hexadecimal digits, or -1. */
static int32_t read_unit(struct reading *r) {
  static const char digits[] = "0123456789abcdef";
  int32_t unit = 0;
  if (r->end - r->at < 4) return -1;
  for (int i = 0; i < 4; i++, r->at++) {
    const char c = (char)(*r->at >= 'A' && *r->at <= 'F' ? *r->at + 32 : *r->at);
    const char *digit = c ? strchr(digits, c) : NULL;
    if (!digit) return -1;
    unit = unit * 16 + (int32_t)(digit - digits);
  }
  return unit;
}

static bool read_escape(struct reading *r, struct pd_writer *w) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end) return refuse(r, "a text does not end");
  const char c = *r->at++, *known = c ? strchr(from, c) : NULL;
  if (known) {
    pd_write(w, &to[known - from], 1);
    return true;
  }
  int32_t unit = c == 'u' ? read_unit(r) : -1;
  if (unit >= 0xD800 && unit < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
    r->at += 2;
    const int32_t low = read_unit(r);
    unit = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((unit - 0xD800) << 10) + low - 0xDC00 : -1;
  }
  if (unit < 0 || (unit >= 0xD800 && unit < 0xE000)) return refuse(r, "an escape in a text is not a character");
  pd_write_character(w, unit);
  return true;
}

static bool read_text(struct reading *r, struct pd_text *to) {
  struct pd_writer w = {.arena = r->arena};
  for (const char *from = r->at; r->at < r->end; from = r->at) {
    while (r->at < r->end && (unsigned char)*r->at >= ' ' && *r->at != '"' && *r->at != '\\') r->at++;
    if (r->at < r->end && *r->at == '"' && !w.n) { /* without escapes: one copy */
      *to = pd_text_copy(r->arena, from, (size_t)(r->at - from));
      r->at++;
      return true;
    }
    pd_write(&w, from, (size_t)(r->at - from));
    if (r->at == r->end) break;
    if ((unsigned char)*r->at < ' ') return refuse(r, "a text has a control character");
    if (takes(r, '"')) {
      *to = pd_written(&w);
      return true;
    }
    r->at++;
    if (!read_escape(r, &w)) return false;
  }
  return refuse(r, "a text does not end");
}

/* ---- values -------------------------------------------------------------------------------------- */

static bool read_value(struct reading *r, struct pd_value *to);

static bool read_list(struct reading *r, struct pd_value *to) {
  *to = pd_value_list(r->arena);
  skip_blanks(r);
  if (takes(r, ']')) return true;
  do {
    struct pd_value v;
    if (!read_value(r, &v)) return false;
    pd_list_add(r->arena, to->list, v);
    skip_blanks(r);
  } while (takes(r, ','));
  return takes(r, ']') || refuse(r, "a list needs ',' or ']'");
}

static bool read_dict(struct reading *r, struct pd_value *to) {
  *to = pd_value_dict(r->arena);
  skip_blanks(r);
  if (takes(r, '}')) return true;
  do {
    struct pd_text key;
    struct pd_value v;
    skip_blanks(r);
    if (!takes(r, '"')) return refuse(r, "an object needs a name in \"");
    if (!read_text(r, &key)) return false;
    skip_blanks(r);
    if (!takes(r, ':')) return refuse(r, "an object needs ':' behind a name");
    if (!read_value(r, &v)) return false;
    if (to->dict->n == PD_MOST_MEMBERS)
      return pd_refuse(r->why, "an object has more than %d members", PD_MOST_MEMBERS);
    pd_dict_set(r->arena, to->dict, key, v);
    skip_blanks(r);
  } while (takes(r, ','));
  return takes(r, '}') || refuse(r, "an object needs ',' or '}'");
}

/* JSON's grammar of numbers; *whole: without fraction and exponent. Returns its length; 0: not a number. */
static size_t number_length(const char *at, const char *end, bool *whole) {
  const char *p = at;
#define DIGITS \
  while (p < end && *p >= '0' && *p <= '9') p++
  *whole = true;
  if (p < end && *p == '-') p++;
  if (p == end || *p < '0' || *p > '9') return 0;
  if (*p == '0')
    p++;
  else
    DIGITS;
  if (p + 1 < end && *p == '.' && p[1] >= '0' && p[1] <= '9') {
    p++;
    DIGITS;
    *whole = false;
  }
  if (p < end && (*p == 'e' || *p == 'E')) {
    const char *q = p + 1;
    if (q < end && (*q == '+' || *q == '-')) q++;
    if (q < end && *q >= '0' && *q <= '9') {
      p = q;
      DIGITS;
      *whole = false;
    }
  }
#undef DIGITS
  return (size_t)(p - at);
}

static bool read_number(struct reading *r, struct pd_value *to) {
  bool whole;
  const size_t n = number_length(r->at, r->end, &whole);
  if (!n) return refuse(r, "there is no value");
  const struct pd_text digits = pd_text_copy(r->arena, r->at, n);
  errno = 0;
  *to = whole ? pd_int(strtoll(digits.at, NULL, 10)) : pd_float(strtod(digits.at, NULL));
  if (whole && errno) *to = (struct pd_value){.kind = PD_LARGE, .text = digits};
  r->at += n;
  return true;
}

static bool read_word(struct reading *r, struct pd_value *to) {
  static const char *const words[] = {"null", "true", "false"};
  for (int i = 0; i < 3; i++) {
    const size_t n = strlen(words[i]);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i], n)) continue;
    r->at += n;
    *to = i ? pd_true(i == 1) : pd_none();
    return true;
  }
  return read_number(r, to);
}

static bool read_value(struct reading *r, struct pd_value *to) {
  if (r->depth == PD_MOST_DEPTH) return refuse(r, "lists and objects are nested too deeply");
  r->depth++;
  skip_blanks(r);
  bool good;
  if (takes(r, '"')) {
    *to = (struct pd_value){.kind = PD_TEXT};
    good = read_text(r, &to->text);
  } else if (takes(r, '['))
    good = read_list(r, to);
  else if (takes(r, '{'))
    good = read_dict(r, to);
  else
    good = read_word(r, to);
  r->depth--;
  return good;
}

bool pd_json_parse(struct pd_arena *a, const char *text, size_t bytes, struct pd_value *to, char *why) {
  struct reading r = {a, text, text, text + bytes, 0, why};
  if (!read_value(&r, to)) return false;
  skip_blanks(&r);
  return r.at == r.end || refuse(&r, "something follows the value");
}
