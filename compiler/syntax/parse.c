/* Runs scanner and parser over a file or a definition; writes the text of syntax errors. */
#include "base/units.h"
#include "syntax/parse.h"
#include "pdm.tab.h"
#include "pdm.lex.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <strings.h>

enum { MAX_BRACKETS = 200, MAX_DEPTH = 400 };

bool parse_erred(Parse *p) {
  p->given_up |= ++p->errors >= MOST_ERRORS;
  return p->errors <= MOST_ERRORS;
}

/* ---- scanner ------------------------------------------------------------------------------- */

static const char *copy_of(const char *text, int length) {
  char *copy = alloc((size_t)length + 1); /* zeroed */
  memcpy(copy, text, (size_t)length);
  return copy;
}

static void token_ends(Parse *p, const char *text, int length, Span *where) {
  for (int i = 0; i < length; i++) {
    p->column++;
    if (text[i] == '\n') {
      p->line++;
      p->column = 1;
    }
  }
  where->end_line = p->line;
  where->end_column = p->column;
}

void parse_advance(Parse *p, const char *text, int length, Span *where) {
  *where = (Span){p->file, p->line, p->column, p->line, p->column};
  token_ends(p, text, length, where);
  if (strchr(" \t\r\n#", text[0])) {
    if (text[0] == '#' && p->tokens)
      push(p->tokens, ((Token){TOKEN_COMMENT, *where, copy_of(text, length)}));
    return;
  }
  p->before = p->now;
  p->text_before = p->text;
  p->now = *where;
  p->text = copy_of(text, length);
}

void parse_end(Parse *p, Span *where) {
  *where = (Span){p->file, p->line, p->column, p->line, p->column + 1};
  p->before = p->now;
  p->text_before = p->text;
  p->now = *where;
  p->text = "";
}

void parse_less(Parse *p, const char *text, int keep, Span *where) {
  p->line = where->line;
  p->column = where->column;
  token_ends(p, text, keep, where);
  p->now = *where;
  p->text = copy_of(text, keep);
}

static TokenKind token_kind(int kind) {
  switch (kind) {
  case NAME:
  case USE:
  case LAYER:
  case MODEL:
  case TRAIN:
  case CLUSTER:
  case INPUT:
  case TARGET:
  case METRIC:
  case OUTPUT:
  case BUFFER: return TOKEN_NAME;
  case PARAM:
  case LOSS:
  case RETURN:
  case IF:
  case ELSE:
  case FOR:
  case IN: return TOKEN_KEYWORD;
  case QUANTITY: return TOKEN_QUANTITY;
  case NUMBER:
  case WORD:
  case TRUE:
  case FALSE: return TOKEN_VALUE;
  case STRING: return TOKEN_STRING;
  case DOTDOT: return TOKEN_SIGN;
  default: return kind < 256 && strchr("=()[]{},;:.", kind) ? TOKEN_SIGN : TOKEN_OPERATOR;
  }
}

void parse_note(Parse *p, int kind) {
  if (p->tokens && kind != END)
    push(p->tokens, ((Token){token_kind(kind), p->now, p->text}));
}

int parse_bracket(Parse *p, char c, const Span *where) {
  if (strchr("([{", c)) {
    push(&p->open, ((Bracket){c, *where}));
    if (p->open.n == MAX_BRACKETS && parse_erred(p))
      error_at(*where, "PD0010", "too many nested expressions or blocks");
    if (p->open.n >= MAX_BRACKETS)
      return END;
  } else if (strchr(")]}", c)) {
    char open = c == ')' ? '(' : c == ']' ? '[' : '{';
    int i = p->open.n - 1;
    p->crossed = i >= 0 && p->open.at[i].open != open ? p->open.at[i] : (Bracket){0};
    while (i >= 0 && p->open.at[i].open != open)
      i--;
    if (i >= 0)
      p->open.n = i;
  }
  return c;
}

/* Limits names, because they become part of parameter names, messages and emitted programs. */
Name parse_name(Parse *p, const char *text, int length, Span where) {
  enum { LONGEST = 255 };
  if (length <= LONGEST)
    return intern_n(text, (size_t)length);
  if (parse_erred(p))
    error_at(where, "PD0115", "this name has %d characters; the limit is %d", length, LONGEST);
  return intern_n(text, LONGEST);
}

void parse_bad_string(Parse *p, Span where) {
  p->bad_line = where.line;
  if (!parse_erred(p))
    return;
  help(error_at(where, "PD0002", "this string is not closed on its line"),
       "close it with '\"'; the only escapes are \\\" and \\\\");
}

void parse_bad_character(Parse *p, const char *text, Span where) {
  p->bad_line = where.line;
  if (!parse_erred(p))
    return;
  unsigned char c = (unsigned char)text[0];
  Diagnostic *d;
  if (c < 32 || c >= 127)
    d = error_at(where, "PD0001", "this character is allowed in comments only");
  else
    d = error_at(where, "PD0001", "unexpected character '%c'", c);
  if (c == '&' || c == '|')
    help(d, "write '%s'", c == '&' ? "and" : "or");
  if (c == '!')
    help(d, "write 'not'");
  if (c == '\'')
    help(d, "write strings in double quotes");
}

/* ---- syntax errors ------------------------------------------------------------------------- */

static bool one_of(const char *word, const char *const *list) {
  for (; *list; list++)
    if (strcmp(word, *list) == 0)
      return true;
  return false;
}

static const char *const operators[] = {"'+'",  "'-'",  "'*'",  "'/'",  "'%'",  "'@'",  "'<'",
                                        "'>'",  "'=='", "'!='", "'<='", "'>='", "'//'", "'and'",
                                        "'or'", "'.'",  "'('",  "'['",  "':'",  NULL};
static const char *const beginnings[] = {"a name",  "a number", "a quantity", "a word", "a string", "'true'",
                                         "'false'", "'('",      "'['",        "'-'",    "'not'",    NULL};
/* Keywords that are names except at the start of an item or statement. */
static const char *const contextual[] = {"'use'",    "'layer'",  "'model'",  "'train'",  "'cluster'", "'input'",
                                         "'target'", "'metric'", "'output'", "'buffer'", NULL};
static const char *const statements[] = {"'param'",  "'buffer'", "'input'", "'target'", "'loss'", "'metric'",
                                         "'output'", "'return'", "'if'",    "'for'",    NULL};

static bool has(const char *const *expected, int n, const char *word) {
  for (int i = 0; i < n; i++)
    if (strcmp(expected[i], word) == 0)
      return true;
  return false;
}

/* The expected tokens for messages, "';' or ','", in the user's terms. */
static char *wanted(const char *const *expected, int n) {
  bool expression = has(expected, n, "a number"), after = has(expected, n, "'+'"),
       statement = has(expected, n, "'param'");
  bool name = has(expected, n, "a name"), item = has(expected, n, "'layer'") && !name;
  Vec(const char *) said = {0};
  if (item)
    push(&said, "'use', 'layer', 'model', 'train' or 'cluster'");
  else if (statement)
    push(&said, "a statement");
  else if (expression)
    push(&said, "an expression");
  for (int i = 0; i < n && !item; i++) {
    if (expression && one_of(expected[i], beginnings))
      continue;
    if (name && one_of(expected[i], contextual))
      continue;
    if (after && !expression && one_of(expected[i], operators))
      continue;
    if (statement && one_of(expected[i], statements))
      continue;
    if (has(expected, n, "'=='") && strcmp(expected[i], "'='") == 0)
      continue;
    if (has(expected, n, "';'") && strcmp(expected[i], "'{'") == 0) /* only after a scan */
      continue;
    if (has(expected, n, "')'") && strcmp(expected[i], "'in'") == 0) /* only within a scan */
      continue;
    push(&said, expected[i]);
  }
  Text t = {0};
  for (int i = 0; i < said.n; i++)
    text_add(&t, "%s%s", i == 0 ? "" : i == said.n - 1 ? " or " : ", ", said.at[i]);
  return t.n ? t.at : "something else";
}

static Span just_after(Span s) { return (Span){s.file, s.end_line, s.end_column, s.end_line, s.end_column + 1}; }

static const char *const items[] = {"use", "layer", "model", "train", "cluster", NULL};

/* Words that start an item in other languages. */
static const struct {
  const char *word, *advice;
} foreign_items[] = {{"import", "write 'use NAME;' to use the layers of NAME.pdm"},
                     {"from", "write 'use NAME;' to use the layers of NAME.pdm"},
                     {"include", "write 'use NAME;' to use the layers of NAME.pdm"},
                     {"class", "define a layer with 'layer NAME(arguments) { ... }'"},
                     {"def", "define a layer with 'layer NAME(arguments) { ... }'"},
                     {"module", "define a layer with 'layer NAME(arguments) { ... }'"},
                     {"function", "define a layer with 'layer NAME(arguments) { ... }'"}};

/* Advice for a text that does not start an item. */
static void advise_item(const Parse *p, Diagnostic *d) {
  for (size_t i = 0; i < sizeof foreign_items / sizeof *foreign_items; i++)
    if (strcasecmp(p->text, foreign_items[i].word) == 0) {
      help(d, "%s", foreign_items[i].advice);
      return;
    }
  const char *like = NULL;
  for (int i = 0; items[i]; i++)
    if (strcasecmp(p->text, items[i]) == 0)
      like = items[i];
  enum { N_ITEMS = sizeof items / sizeof *items - 1 };
  like = like ? like : nearest(p->text, items, N_ITEMS);
  if (like)
    help(d, "did you mean '%s'?", like);
}

/* Whether `text` counts bits as links are often labelled: "25 Gb/s" (the lexer reads "Gb") and "25 Gbps". */
static bool counts_bits(const char *text) {
  return text[0] && strchr("KMGT", text[0]) && (!strcmp(text + 1, "b") || !strcmp(text + 1, "bps"));
}

/* Advice for a name after a number. */
static void advise_unit(const Parse *p, Diagnostic *d) {
  int n;
  if (counts_bits(p->text)) {
    help(d, "'%cbit/s' is a rate in bits, '%cB/s' in bytes; '%cB' is a size", p->text[0], p->text[0], p->text[0]);
    return;
  }
  const char *const *names = unit_names(&n);
  const char *like = NULL;
  for (int i = 0; i < n; i++)
    if (strcasecmp(p->text, names[i]) == 0)
      like = names[i];
  like = like ? like : nearest(p->text, names, n);
  if (like)
    help(d, "did you mean '%s'?", like);
  else
    help(d, "write a number with a unit, such as '16 GiB', '25 Gbit/s', '5 us' or '125 TFLOPS'");
}

static Diagnostic *report_unexpected(const Parse *p, const char *const *expected, int n, bool end) {
  bool closing = has(expected, n, "';'") || has(expected, n, "')'") || has(expected, n, "']'");
  char *want = wanted(expected, n);
  if (closing && !end && p->before.line && p->now.line > p->before.end_line && !has(expected, n, "a number"))
    return error_at(just_after(p->before), "PD0003", "expected %s here, at the end of the line", want);
  if (end)
    return error_at(p->now, "PD0003", "expected %s, but the text ends", want);
  return error_at(p->now, "PD0003", "expected %s, but found '%s'", want, p->text);
}

static void note_open_bracket(const Parse *p, Diagnostic *d, bool end) {
  bool opened_now = p->open.n && memcmp(&p->open.at[p->open.n - 1].span, &p->now, sizeof p->now) == 0;
  bool next_item = p->open.n && !opened_now && p->before.column == 1 && one_of(p->text_before, items);
  Bracket open = strchr(")]}", p->text[0]) && !end ? p->crossed
                 : p->open.n && (end || next_item) ? p->open.at[p->open.n - 1]
                                                   : (Bracket){0};
  if (open.open)
    note_at(d, open.span, "this '%c' is not closed", open.open);
}

/* Advice for operators of other languages. */
static void advise_operator(const Parse *p, Diagnostic *d, const char *const *expected, int n) {
  const bool value = has(expected, n, "a number");
  if (strcmp(p->text, ":") == 0 && has(expected, n, "'['") && !value)
    help(d, "write the shape first: '%s[1] : ...' is one number per sample", p->text_before);
  if (strcmp(p->text, ":") == 0 && value)
    help(d, "write a slice with '..': 'x[.., 0]', 'x[0..3]'");
  if (strcmp(p->text, "=") == 0 && value && strlen(p->text_before) == 1 && strchr("+-*/", p->text_before[0]))
    help(d, "there is no '%s='; write 'x = x %s ...'", p->text_before, p->text_before);
  else if (strcmp(p->text, "=") == 0 && has(expected, n, "'{'") && !has(expected, n, "';'"))
    help(d, "use '==' to compare, and braces for a block: 'for i in 0..n { ... }'");
  else if (strcmp(p->text, "=") == 0 && has(expected, n, "'=='"))
    help(d, "use '=' to assign and '==' to compare");
  if (strcmp(p->text, "*") == 0 && value && strcmp(p->text_before, "*") == 0)
    help(d, "write a power as 'pow(x, n)'");
}

/* Advice for words and numbers. */
static void advise_word(const Parse *p, Diagnostic *d, const char *const *expected, int n) {
  const bool value = has(expected, n, "a number");
  if (isdigit((unsigned char)p->text_before[0]) && isalpha((unsigned char)p->text[0]) &&
      p->now.line == p->before.end_line && has(expected, n, "';'") && !value)
    advise_unit(p, d);
  if (!strcmp(p->text, "none") && (!strcmp(p->text_before, "freeze") || !strcmp(p->text_before, "train_only")))
    help(d, "leave the statement out, or replace all of them by -D %s=none", p->text_before);
  if (strcmp(p->text, "if") == 0 && has(expected, n, "';'"))
    help(d, "use an if statement: 'if c { y = a; } else { y = b; }'");
  if (strcmp(p->text, "param") == 0 && value) {
    help(d, "declare a parameter by a statement: 'param w[8, 8] = normal(0.02);'");
    return;
  }
  if (strcmp(p->text, "{") == 0 && strcmp(p->text_before, "train") == 0)
    help(d, "write the model's name first: 'train NAME { ... }'");
  if (strcmp(p->text, ".") == 0 && has(expected, n, "a number"))
    help(d, "write a digit before the decimal point: 0.5");
  if (strcmp(p->text, "..") == 0 && has(expected, n, "'+'"))
    help(d, "ranges are for 'for' and slices only");
  static const char *const reserved[] = {"param", "loss", "return", "if",   "else",  "for", "in",
                                         "and",   "or",   "not",    "true", "false", NULL};
  if (one_of(p->text, reserved) && has(expected, n, "a name") && !has(expected, n, "'param'"))
    help(d, "'%s' is a reserved word and cannot be a name", p->text);
}

void parse_unexpected(Parse *p, const char *const *expected, int n) {
  if (!parse_erred(p) || p->open.n >= MAX_BRACKETS || p->bad_line == p->now.line || p->bad_line == p->before.line)
    return;
  const bool end = strcmp(p->text, "") == 0;
  Diagnostic *d = report_unexpected(p, expected, n, end);
  note_open_bracket(p, d, end);
  if (has(expected, n, "'layer'") && !has(expected, n, "a name") && !end)
    advise_item(p, d);
  advise_operator(p, d, expected, n);
  advise_word(p, d, expected, n);
}

void parse_reserved(Parse *p, Span where, const char *word, const char *advice) {
  if (parse_erred(p))
    help(error_at(where, "PD0004", "'%s' is a reserved word and cannot be assigned", word), "%s", advice);
}

void parse_unnamed_metric(Parse *p, Span where, const char *layer) {
  if (parse_erred(p))
    help(error_at(where, "PD0003", "expected a name for the metric, and '='"),
         "the log uses the name: 'metric %s = %s(...);'", layer, layer);
}

/* ---- driver -------------------------------------------------------------------------------- */

/* Limits nesting, because passes recurse over the Ast. Returns the first node that is too deep, or NULL. */
static const Ast *too_deep(const Ast *a, int depth) {
  if (!a)
    return NULL;
  if (depth > MAX_DEPTH)
    return a;
  const Ast *kid[] = {a->a, a->b, a->c}, *deep = NULL;
  for (int i = 0; i < 3 && !deep; i++)
    deep = too_deep(kid[i], depth + 1);
  for (int i = 0; i < a->list.n && !deep; i++)
    deep = too_deep(a->list.at[i], depth + 1);
  return deep;
}

static Ast *parse(const char *path, const char *text, size_t length, bool define, Tokens *tokens) {
  const size_t mark = skip_mark(text, length);
  text += mark;
  length -= mark;
  Parse p = {.file = source_add(path, text),
             .line = 1,
             .column = 1,
             .text = "",
             .text_before = "",
             .define = define,
             .tokens = tokens};
  p.now = p.before = (Span){p.file, 1, 1, 1, 1};
  if (strlen(text) != length) {
    error_at((Span){p.file, 0, 0, 0, 0}, "PD0001", "the file contains a NUL byte and is not text");
    return NULL;
  }
  yyscan_t scanner;
  if (pdm_lex_init_extra(&p, &scanner) != 0)
    BUG("no memory for the scanner");
  pdm__scan_bytes(text, (int)length, scanner);
  int failed = pdm_parse(scanner, &p);
  pdm_lex_destroy(scanner);
  if (failed || p.errors) {
    ensure(p.errors > 0);
    if (p.given_up)
      help(diagnostic_last(), "too many errors: pdc does not read further");
    return NULL;
  }
  const Ast *deep = too_deep(p.result, 0);
  if (!deep)
    return p.result;
  error_at(deep->span, "PD0010", "too many nested expressions or blocks");
  return NULL;
}

enum { MOST_BYTES = 1 << 24 };

static Ast *too_large(const char *path) {
  error_at(NO_SPAN, "PD0601", "'%s' is larger than 16 MiB, the limit of a model file", path);
  return NULL;
}

Ast *parse_file(const char *path) {
  size_t length = 0;
  struct stat st;
  if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > MOST_BYTES)
    return too_large(path);
  char *text = read_file(path, &length);
  if (!text) {
    error_at(NO_SPAN, "PD0601", "cannot read '%s': %s", path, read_failure(errno));
    return NULL;
  }
  return parse_text(path, text, length, NULL);
}

Ast *parse_text(const char *path, const char *text, size_t length, Tokens *tokens) {
  if (length > MOST_BYTES)
    return too_large(path);
  return parse(path, text, length, false, tokens);
}

Ast *parse_define(const char *text) { return parse("<command line>", text, strlen(text), true, NULL); }
