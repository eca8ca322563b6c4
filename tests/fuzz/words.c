#include "words.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_WORDS = 4096 };
typedef enum { NAME, NUMBER, STRING, OPERATOR, SIGN } Kind;
typedef struct Word {
  const char *at;
  int n;
  Kind kind;
} Word;
typedef struct Words {
  int n;
  Word at[MOST_WORDS];
} Words;
typedef struct Range {
  int first, n;
} Range;

static uint64_t state;

/* A number from 0 to n - 1. */
static int choose(int n) {
  state += 0x9e3779b97f4a7c15; /* splitmix64 (Steele et al., 2014) */
  uint64_t x = state;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return n > 0 ? (int)((x ^ x >> 31) % (uint64_t)n) : 0;
}

/* ---- texts as words ---------------------------------------------------------------------------------- */

static int name_length(const char *c, const char *end) {
  const char *from = c;
  while (c < end && (isalnum((unsigned char)*c) || *c == '_')) c++;
  return (int)(c - from);
}

/* 3, 0.5, 1e-5, and the 0 of "0..4". */
static int number_length(const char *c, const char *end) {
  const char *from = c;
  for (; c < end; c++) {
    bool point = *c == '.' && c + 1 < end && isdigit((unsigned char)c[1]);
    bool exponent = (*c == '-' || *c == '+') && c > from && c[-1] == 'e';
    if (!isalnum((unsigned char)*c) && !point && !exponent) break;
  }
  return (int)(c - from);
}

static Word next_word(const char *c, const char *end) {
  static const char *const two[] = {"..", "//", "==", "!=", "<=", ">="};
  if (isalpha((unsigned char)*c) || *c == '_') return (Word){c, name_length(c, end), NAME};
  if (isdigit((unsigned char)*c)) return (Word){c, number_length(c, end), NUMBER};
  if (*c == '"') {
    const char *close = memchr(c + 1, '"', (size_t)(end - c - 1));
    return (Word){c, close ? (int)(close - c) + 1 : 1, STRING};
  }
  for (int i = 0; i < 6; i++)
    if (end - c > 1 && c[0] == two[i][0] && c[1] == two[i][1]) return (Word){c, 2, i ? OPERATOR : SIGN};
  return (Word){c, 1, *c && strchr("+-*/%@<>", *c) ? OPERATOR : SIGN};
}

static void add_words(Words *w, const char *text, size_t size) {
  const char *c = text, *end = text + size;
  while (c < end && w->n < MOST_WORDS) {
    if (*c == '#')
      while (c < end && *c != '\n') c++;
    else if (isspace((unsigned char)*c))
      c++;
    else {
      w->at[w->n++] = next_word(c, end);
      c += w->at[w->n - 1].n;
    }
  }
}

static bool is(const Word *w, char sign) { return w->n == 1 && *w->at == sign; }

/* Omits words that exceed `most` bytes. */
static size_t print(const Words *w, uint8_t *to, size_t most) {
  size_t size = 0;
  for (int i = 0; i < w->n; i++) {
    const Word *x = &w->at[i];
    bool ends = is(x, ';') || is(x, '{') || is(x, '}');
    bool joined = i + 1 == w->n || is(x, '.') || is(x, '(') || is(&w->at[i + 1], '.') || is(&w->at[i + 1], '(');
    if (size + (size_t)x->n + 1 > most) break;
    memcpy(to + size, x->at, (size_t)x->n);
    size += (size_t)x->n;
    if (ends || !joined) to[size++] = ends ? '\n' : ' ';
  }
  return size;
}

/* ---- parts ------------------------------------------------------------------------------------- */

/* Replaces the words of `old` by `n` words. */
static void replace(Words *w, Range old, const Word *by, int n) {
  static Word kept[MOST_WORDS];
  if (w->n - old.n + n > MOST_WORDS) return;
  if (n) memcpy(kept, by, sizeof *by * (size_t)n); /* they may be in w */
  memmove(w->at + old.first + n, w->at + old.first + old.n, sizeof *w->at * (size_t)(w->n - old.first - old.n));
  if (n) memcpy(w->at + old.first, kept, sizeof *kept * (size_t)n);
  w->n += n - old.n;
}

static void replace_by_text(Words *w, Range old, const char *text) {
  static Words of_text;
  of_text.n = 0;
  add_words(&of_text, text, strlen(text));
  replace(w, old, of_text.at, of_text.n);
}

/* The index after the bracket that closes the one at `i`. */
static int behind_bracket(const Words *w, int i) {
  int depth = 0;
  for (; i < w->n; i++) {
    depth += is(&w->at[i], '(') || is(&w->at[i], '[') || is(&w->at[i], '{');
    depth -= is(&w->at[i], ')') || is(&w->at[i], ']') || is(&w->at[i], '}');
    if (depth <= 0) return i + 1;
  }
  return i;
}

/* The statement of a word: up to its semicolon, or to the end of its block. */
static Range statement_at(const Words *w, int i) {
  int first = i;
  while (first > 0 && !is(&w->at[first - 1], ';') && !is(&w->at[first - 1], '{') && !is(&w->at[first - 1], '}'))
    first--;
  for (i = first; i < w->n; i++) {
    if (is(&w->at[i], ';')) return (Range){first, i + 1 - first};
    if (is(&w->at[i], '}')) return (Range){first, i - first};
    if (is(&w->at[i], '{')) return (Range){first, behind_bracket(w, i) - first};
  }
  return (Range){first, w->n - first};
}

static Range some_statement(const Words *w) { return statement_at(w, choose(w->n)); }

/* An argument of some call or list, without its commas; empty if there is none. */
static Range some_argument(const Words *w) {
  int at = choose(w->n), first, i;
  for (first = at; first > 0 && !is(&w->at[first], '(') && !is(&w->at[first], '['); first--)
    ;
  if (!w->n || first == 0) return (Range){0, 0};
  int chosen = choose(4);
  for (i = ++first; i < w->n && !is(&w->at[i], ')') && !is(&w->at[i], ']');)
    if (is(&w->at[i], ',')) {
      if (!chosen--) break;
      first = ++i;
    } else
      i = behind_bracket(w, i) > i + 1 ? behind_bracket(w, i) : i + 1;
  return (Range){first, i - first};
}

/* A word of this kind, searched from a random place; -1: none. */
static int some_word(const Words *w, Kind kind) {
  int from = choose(w->n);
  for (int i = 0; i < w->n; i++)
    if (w->at[(from + i) % w->n].kind == kind) return (from + i) % w->n;
  return -1;
}

/* ---- changes ----------------------------------------------------------------------------------- */

static const char *const statements[] = {
    "x = tanh(x);",
    "x = x + x;",
    "x = x * 0.5 - 1;",
    "x = layer_norm(x);",
    "x = l: linear(x, 4);",
    "x = k[0]: linear(x, 4, bias = false);",
    "x, y = split(x, 2);",
    "x = concat(x, x, axis = 0);",
    "x = transpose(x, 0, 1);",
    "x = reshape(x, [-1]);",
    "x = x[0..1, ..];",
    "x = pad(x, 0, 1, 1);",
    "x = sum(x, axis = -1);",
    "x = mean(x, axis = 0);",
    "x = softmax(x);",
    "x = dropout(x, 0.1);",
    "x = select(greater(x, 0), x, -x);",
    "x = detach(x);",
    "x = x @ x.T;",
    "x = gelu(x);",
    "x = maximum(x, 0.25);",
    "param p[4] = ones;",
    "param w[4, 4] = normal(0.02);",
    "buffer b[4] = zeros;",
    "loss square(x);",
    "loss mean(x);",
    "metric m = mean(x);",
    "input i[4];",
    "target t[1] : token(4);",
    "return x;",
    "for i in 0..2 { x = n[i]: linear(x, 4); }",
    "if 1 < 2 { x = x + 1; } else { x = x - 1; }",
    "freeze = \"l\";",
    "freeze \"*\" except \"l\";",
    "train_only \"l\";",
    "layer own(x, n) { return x + linear(x, n); }",
};
static const char *const called[] = {
    "tanh",      "relu",    "exp",          "log",         "sqrt",       "square",   "sigmoid",   "gelu",
    "silu",      "softmax", "sum",          "mean",        "max",        "reshape",  "transpose", "concat",
    "split",     "pad",     "linear",       "conv2d",      "layer_norm", "rms_norm", "embedding", "max_pool2d",
    "attention", "lstm",    "batch_norm2d", "dropout",     "flatten",    "maximum",  "select",    "greater",
    "detach",    "shifted", "abs",          "log_softmax", "normalise",  "gather",   "rope",      "sqrt",
    "erf",       "one_hot", "sin",          "cos",         "avg_pool2d"};
static const char *const numbers[] = {"0",  "1",    "2",   "3",   "4",     "7",
                                      "8",  "0.5",  "1.0", "1e9", "1e-5",  "1e38",
                                      "-1", "1000", "1e0", "64",  "1 / 0", "9223372036854775807"};
static const char *const operators[] = {"+", "-", "*", "/", "%", "@", "//", "==", "<", ">=", "and", "or"};
static const char *const around[] = {"tanh(", "(1 + ", "-(", "square(", "sum(", "mean(", "relu(", "[0, "};
enum {
  STATEMENTS = sizeof statements / sizeof *statements,
  CALLED = sizeof called / sizeof *called,
  NUMBERS = sizeof numbers / sizeof *numbers,
  OPERATORS = sizeof operators / sizeof *operators,
  AROUND = sizeof around / sizeof *around
};

static void drop_statement(Words *w) { replace(w, some_statement(w), NULL, 0); }
static void repeat_statement(Words *w) {
  Range a = some_statement(w);
  replace(w, (Range){a.first, 0}, w->at + a.first, a.n);
}
static void copy_statement(Words *w) {
  Range a = some_statement(w), b = some_statement(w);
  replace(w, (Range){b.first, 0}, w->at + a.first, a.n);
}
static void replace_statement(Words *w) {
  Range a = some_statement(w), b = some_statement(w);
  replace(w, b, w->at + a.first, a.n);
}
static void new_statement(Words *w) {
  replace_by_text(w, (Range){some_statement(w).first, 0}, statements[choose(STATEMENTS)]);
}
static void loop_over_statement(Words *w) {
  Range a = some_statement(w);
  replace_by_text(w, (Range){a.first + a.n, 0}, "}");
  replace_by_text(w, (Range){a.first, 0}, choose(2) ? "for i in 0..2 {" : "if 1 < 2 {");
}

/* Replaces a word by another of its kind in the file. */
static void replace_word(Words *w) {
  int a = choose(w->n), b = w->n ? some_word(w, w->at[a].kind) : -1;
  if (b >= 0) w->at[a] = w->at[b];
}
static void replace_kind(Words *w, Kind kind, const char *const *by, int n) {
  int a = some_word(w, kind);
  if (a >= 0) replace_by_text(w, (Range){a, 1}, by[choose(n)]);
}
static void replace_number(Words *w) { replace_kind(w, NUMBER, numbers, NUMBERS); }
static void replace_operator(Words *w) { replace_kind(w, OPERATOR, operators, OPERATORS); }
static void replace_called(Words *w) {
  int from = choose(w->n);
  for (int i = 0; i < w->n; i++) {
    int at = (from + i) % w->n;
    if (w->at[at].kind != NAME || at + 1 >= w->n || !is(&w->at[at + 1], '(')) continue;
    replace_by_text(w, (Range){at, 1}, called[choose(CALLED)]);
    return;
  }
}
static void drop_word(Words *w) { replace(w, (Range){choose(w->n), w->n > 0}, NULL, 0); }

static void drop_argument(Words *w) {
  Range a = some_argument(w);
  if (a.first + a.n < w->n && is(&w->at[a.first + a.n], ',')) a.n++;
  replace(w, a, NULL, 0);
}
static void copy_argument(Words *w) {
  Range a = some_argument(w), b = some_argument(w);
  if (a.n && b.first) replace(w, b, w->at + a.first, a.n);
}
static void repeat_argument(Words *w) {
  Range a = some_argument(w);
  if (!a.n) return;
  replace(w, (Range){a.first, 0}, w->at + a.first, a.n);
  replace_by_text(w, (Range){a.first + a.n, 0}, ",");
}
static void wrap_argument(Words *w) {
  Range a = some_argument(w);
  const char *open = around[choose(AROUND)];
  if (!a.n) return;
  replace_by_text(w, (Range){a.first + a.n, 0}, *open == '[' ? "]" : ")");
  replace_by_text(w, (Range){a.first, 0}, open);
}

/* ---- mutation and crossover ------------------------------------------------------------------------- */

size_t words_mutate(uint8_t *data, size_t size, size_t most, unsigned seed) {
  static void (*const changes[])(Words *) = {
      drop_statement, repeat_statement, copy_statement, replace_statement, new_statement,  loop_over_statement,
      replace_word,   replace_word,     replace_number, replace_operator,  replace_called, replace_called,
      drop_word,      drop_argument,    copy_argument,  repeat_argument,   wrap_argument,  replace_number};
  static char text[1 << 20];
  static Words w;
  size_t length = size < sizeof text ? size : sizeof text;
  memcpy(text, data, length);
  state = seed;
  w.n = 0;
  add_words(&w, text, length);
  for (int i = 1 + choose(4); i; i--) changes[choose(sizeof changes / sizeof *changes)](&w);
  size_t n = print(&w, data, most);
  return n ? n : print(&(Words){1, {{";", 1, SIGN}}}, data, most);
}

size_t words_cross(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size, uint8_t *out,
                   size_t most, unsigned seed) {
  static Words a, b;
  state = seed;
  a.n = b.n = 0;
  add_words(&a, (const char *)one, one_size);
  add_words(&b, (const char *)other, other_size);
  for (int i = 1 + choose(3); i && b.n; i--) {
    Range from = some_statement(&b), to = some_statement(&a);
    if (choose(2)) to.n = 0; /* insert or replace */
    replace(&a, to, b.at + from.first, from.n);
  }
  return print(&a, out, most);
}
