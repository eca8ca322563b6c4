/* Templates to tokens, with Jinja's whitespace control: '-' removes all blanks on its side of a tag; the newline behind a
 * block or comment (trim_blocks) and the blanks of its line before it (lstrip_blocks) are removed unless the tag has a
 * '+' there; one newline at the end of the template is dropped. */
#define _GNU_SOURCE /* memmem */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexing {
  struct pd_arena *arena;
  const char *start, *at, *end;
  int line;
  struct pd_token *token;
  int64_t n, room;
  bool line_starts; /* the last tag ended with a newline */
  char *why;
};

static bool refuse(const struct lexing *x, const char *what, const char *at, size_t n) {
  return pd_refuse(x->why, "line %d: %s%.*s", x->line, what, (int)(n > 60 ? 60 : n), at);
}

static struct pd_token *add(struct lexing *x, enum pd_token_kind kind, const char *at, size_t n) {
  if (x->n == x->room) {
    x->room = x->room ? 2 * x->room : 256;
    struct pd_token *larger = pd_arena_alloc(x->arena, sizeof *larger * (size_t)x->room);
    if (x->n) memcpy(larger, x->token, sizeof *larger * (size_t)x->n);
    x->token = larger;
  }
  x->token[x->n] = (struct pd_token){.kind = kind, .line = x->line, .text = {at, n}};
  return &x->token[x->n++];
}

/* Moves on and counts lines. */
static void advance(struct lexing *x, const char *to) {
  for (; x->at < to; x->at++) x->line += *x->at == '\n';
}

static bool starts(const struct lexing *x, const char *with) {
  const size_t n = strlen(with);
  return (size_t)(x->end - x->at) >= n && !memcmp(x->at, with, n);
}

static const char *behind_blanks(const char *at, const char *end) {
  for (size_t n; at < end; at += n) {
    n = pd_character_bytes(at, (size_t)(end - at));
    if (!pd_is_blank(at, n)) break;
  }
  return at;
}

/* ---- text between tags ------------------------------------------------------------------------- */

/* The next "{%", "{{" or "{#", or the end. */
static const char *next_tag(const struct lexing *x) {
  const char *at = x->at;
  while (at + 1 < x->end && !(at[0] == '{' && (at[1] == '%' || at[1] == '{' || at[1] == '#'))) at++;
  return at + 1 < x->end ? at : x->end;
}

static void add_data(struct lexing *x) {
  const char *tag = next_tag(x);
  struct pd_text data = {x->at, (size_t)(tag - x->at)};
  const char sign = (char)(x->end - tag > 2 ? tag[2] : 0);
  if (tag < x->end && sign == '-')
    data = pd_strip(data, PD_RIGHT, NULL);
  else if (tag < x->end && sign != '+' && tag[1] != '{') {
    size_t line = data.n; /* where the last line begins */
    while (line && data.at[line - 1] != '\n') line--;
    const bool first = line > 0 || x->line_starts;
    if (first && behind_blanks(data.at + line, tag) == tag) data.n = line;
  }
  if (data.n) add(x, PD_T_DATA, data.at, data.n);
  advance(x, tag);
}

/* Moves behind a tag's end, of two bytes with its sign before it, and the blanks that it removes. */
static void end_tag(struct lexing *x, bool trims) {
  const bool minus = *x->at == '-', plus = *x->at == '+';
  const char *to = x->at + 2 + (minus || plus);
  if (minus)
    to = behind_blanks(to, x->end);
  else if (!plus && trims && to < x->end && *to == '\n')
    to++;
  x->line_starts = to[-1] == '\n';
  advance(x, to);
}

static bool skip_comment(struct lexing *x) {
  const char *at = memmem(x->at + 2, (size_t)(x->end - x->at - 2), "#}", 2);
  if (!at) return refuse(x, "this comment does not end: ", x->at, (size_t)(x->end - x->at));
  if (at > x->at + 2 && (at[-1] == '-' || at[-1] == '+')) at--;
  advance(x, at);
  end_tag(x, true);
  return true;
}

/* ---- tokens within tags ------------------------------------------------------------------------ */

/* Digits of an escape; -1: none. */
static int64_t escape_number(const char *at, const char *end, int digits, int base) {
  char copy[9] = "";
  if (end - at < digits) return -1;
  memcpy(copy, at, (size_t)digits);
  if (strspn(copy, base == 16 ? "0123456789abcdefABCDEF" : "01234567") != (size_t)digits) return -1;
  return strtol(copy, NULL, base);
}

/* Python's escapes; `at` is behind the backslash. Returns where the text goes on, or NULL after a refusal. */
static const char *read_escape(struct lexing *x, struct pd_writer *w, const char *at, const char *end) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  const char *known = *at ? strchr(from, *at) : NULL;
  if (known) {
    pd_write(w, &to[known - from], 1);
    return at + 1;
  }
  if (*at == '\n') return at + 1;
  const int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
  const int64_t point = digits ? escape_number(at + 1, end, digits, 16) : -1;
  const bool surrogate = point >= 0xD800 && point < 0xE000;
  if ((digits && (point < 0 || point > 0x10FFFF || surrogate)) || *at == 'N' || (*at >= '0' && *at <= '7')) {
    refuse(x, "this escape is not supported: \\", at, 1);
    return NULL;
  }
  if (digits) {
    pd_write_character(w, (int32_t)point);
    return at + 1 + digits;
  }
  pd_write_text(w, "\\");
  return at;
}

static bool add_string(struct lexing *x) {
  const char quote = *x->at, *end = x->at + 1;
  struct pd_writer w = {.arena = x->arena};
  while (end < x->end && *end != quote) end += *end == '\\' && end + 1 < x->end ? 2 : 1;
  if (end >= x->end) return refuse(x, "this text does not end: ", x->at, (size_t)(x->end - x->at));
  for (const char *at = x->at + 1; at < end;) {
    if (*at == '\\') {
      at = read_escape(x, &w, at + 1, end);
      if (!at) return false;
      continue;
    }
    pd_write(&w, at++, 1);
  }
  const struct pd_text text = pd_written(&w);
  add(x, PD_T_STRING, text.at, text.n);
  advance(x, end + 1);
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool add_number(struct lexing *x) {
  char copy[64];
  const char *at = x->at;
  bool whole = true;
  while (at < x->end && is_digit(*at)) at++;
  if (at + 1 < x->end && *at == '.' && is_digit(at[1])) {
    whole = false;
    for (at++; at < x->end && is_digit(*at);) at++;
  }
  if (at < x->end && (*at == 'e' || *at == 'E')) {
    const char *digits = at + 1 + (at + 1 < x->end && (at[1] == '+' || at[1] == '-'));
    if (digits < x->end && is_digit(*digits)) {
      whole = false;
      for (at = digits; at < x->end && is_digit(*at);) at++;
    }
  }
  const size_t n = (size_t)(at - x->at);
  if (n >= sizeof copy || (at < x->end && is_letter(*at)))
    return refuse(x, "this number is not supported: ", x->at, n + 1);
  memcpy(copy, x->at, n);
  copy[n] = 0;
  errno = 0;
  struct pd_token *t = add(x, whole ? PD_T_INT : PD_T_FLOAT, x->at, n);
  t->whole = whole ? strtoll(copy, NULL, 10) : 0;
  t->number = strtod(copy, NULL);
  if (errno) return refuse(x, "this number is too large: ", x->at, n);
  advance(x, at);
  return true;
}

/* An operator or bracket; *open: brackets that are open. */
static bool add_sign(struct lexing *x, int *open) {
  static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
  static const char one[] = "+-*/%~<>=.,:|()[]{}";
  size_t n = 0;
  for (size_t i = 0; i < sizeof two / sizeof *two && !n; i++) n = starts(x, two[i]) ? 2 : 0;
  if (!n && *x->at && strchr(one, *x->at)) n = 1;
  if (!n)
    return refuse(x, "this character is unexpected: ", x->at, pd_character_bytes(x->at, (size_t)(x->end - x->at)));
  if (n == 1 && strchr("([{", *x->at)) ++*open;
  if (n == 1 && strchr(")]}", *x->at) && --*open < 0) return refuse(x, "nothing is open before ", x->at, 1);
  add(x, PD_T_SIGN, x->at, n);
  advance(x, x->at + n);
  return true;
}

static bool at_end_of_tag(const struct lexing *x, const char *end) {
  const size_t sign = x->end - x->at > 2 && (*x->at == '-' || (*x->at == '+' && *end == '%')) ? 1 : 0;
  return (size_t)(x->end - x->at) >= 2 + sign && !memcmp(x->at + sign, end, 2);
}

/* The tokens of a block or of a print, from behind "{%" or "{{" to its end. */
static bool add_tag(struct lexing *x, bool block) {
  const char *end = block ? "%}" : "}}", *tag = x->at;
  int open = 0;
  add(x, block ? PD_T_BLOCK : PD_T_PRINT, x->at, 2);
  x->at += 2;
  if (x->at < x->end && (*x->at == '-' || *x->at == '+')) x->at++;
  for (;;) {
    advance(x, behind_blanks(x->at, x->end));
    if (x->at == x->end) return refuse(x, "this tag does not end: ", tag, (size_t)(x->end - tag));
    if (!open && at_end_of_tag(x, end)) break;
    const char *name = x->at;
    while (name < x->end && (is_letter(*name) || (name > x->at && is_digit(*name)))) name++;
    if (name > x->at) {
      add(x, PD_T_NAME, x->at, (size_t)(name - x->at));
      advance(x, name);
    } else if (!(*x->at == '\'' || *x->at == '"' ? add_string(x)
                 : is_digit(*x->at)              ? add_number(x)
                                                 : add_sign(x, &open)))
      return false;
  }
  add(x, block ? PD_T_BLOCK_END : PD_T_PRINT_END, x->at, 2);
  end_tag(x, block);
  return true;
}

/* The template with "\n" for every kind of newline, and without one at its end. */
static struct pd_text plain_newlines(struct pd_arena *a, const char *text, size_t bytes) {
  char *to = pd_arena_alloc(a, bytes + 1);
  size_t n = 0;
  for (size_t i = 0; i < bytes; i++) {
    const bool pair = text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
    to[n++] = (char)(text[i] == '\r' ? '\n' : text[i]);
    i += pair;
  }
  if (n && to[n - 1] == '\n') n--;
  return (struct pd_text){to, n};
}

struct pd_token *pd_template_lex(struct pd_arena *a, const char *text, size_t bytes, char *why) {
  const struct pd_text plain = plain_newlines(a, text, bytes);
  struct lexing x = {.arena = a,
                     .start = plain.at,
                     .at = plain.at,
                     .end = plain.at + plain.n,
                     .line = 1,
                     .line_starts = true,
                     .why = why};
  while (x.at < x.end) {
    add_data(&x);
    if (x.at == x.end) break;
    if (!(x.at[1] == '#' ? skip_comment(&x) : add_tag(&x, x.at[1] == '%'))) return NULL;
  }
  add(&x, PD_T_END, x.end, 0);
  return x.token;
}
