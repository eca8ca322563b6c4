/* Tokens with their comments, and the spaces between them. */
#include <stdlib.h>
#include <string.h>

#include "format/internal.h"

bool word_is(const Word *w, const char *text) { return strcmp(w->token.text, text) == 0; }

static bool one_of(const Word *w, const char *signs) {
  return w->token.kind == TOKEN_SIGN && w->token.text[0] && !w->token.text[1] && strchr(signs, w->token.text[0]);
}

/* ---- comments ------------------------------------------------------------------------------------ */

static char *without_end(const char *comment) {
  size_t n = strlen(comment);
  while (n && strchr(" \t\r", comment[n - 1]))
    n--;
  return format("%.*s", (int)n, comment);
}

/* Separates a quantity's number and unit by one space. */
static const char *word_text(const Token *t) {
  if (t->kind != TOKEN_QUANTITY)
    return t->text;
  char *unit;
  strtod(t->text, &unit);
  return format("%.*s %s", (int)(unit - t->text), t->text, unit + strspn(unit, " \t"));
}

static Words attach(const Tokens *tokens) {
  Words words = {0};
  Word next = {0};
  int line = 1; /* of the last token or comment */
  for (int i = 0; i < tokens->n; i++) {
    const Token *t = &tokens->at[i];
    bool blank = words.n + next.above.n > 0 && t->span.line > line + 1;
    if (t->kind == TOKEN_COMMENT && words.n && !next.above.n && t->span.line == line &&
        !words.at[words.n - 1].trailing) {
      words.at[words.n - 1].trailing = without_end(t->text);
    } else if (t->kind == TOKEN_COMMENT) {
      push(&next.above, ((Comment){without_end(t->text), blank}));
    } else {
      next.token = *t;
      next.token.text = word_text(t);
      next.blank = blank;
      push(&words, next);
      next = (Word){0};
    }
    line = t->span.end_line;
  }
  next.token = (Token){TOKEN_SIGN, NO_SPAN, ""}; /* end of text, carrying the last comments */
  push(&words, next);
  return words;
}

/* ---- roles of signs ------------------------------------------------------------------------------ */

static bool ends_operand(const Word *w) {
  return w->token.kind == TOKEN_NAME || w->token.kind == TOKEN_VALUE || w->token.kind == TOKEN_QUANTITY ||
         w->token.kind == TOKEN_STRING || one_of(w, ")]");
}

/* Words such as `input` are keywords if a name follows. */
static bool is_keyword(const Words *w, int i) {
  return w->at[i].token.kind == TOKEN_KEYWORD ||
         (w->at[i].token.kind == TOKEN_NAME && w->at[i + 1].token.kind == TOKEN_NAME);
}

Words words_make(const Tokens *tokens) {
  Words w = attach(tokens);
  int depth = 0;
  bool data = false; /* within a declaration of an input or a target */
  for (int i = 0; i < w.n; i++) {
    Word *at = &w.at[i];
    bool starts = i == 0 || one_of(&w.at[i - 1], ";{}");
    if (starts)
      data = (word_is(at, "input") || word_is(at, "target")) && is_keyword(&w, i);
    depth -= one_of(at, ")]");
    at->depth = depth;
    depth += one_of(at, "([");
    at->unary = word_is(at, "-") && (starts || !ends_operand(&w.at[i - 1]));
    at->kind = data && depth == 0 && word_is(at, ":");
  }
  return w;
}

int spaces_before(const Words *words, int i) {
  const Word *w = &words->at[i], *before = &words->at[i - 1];
  if (one_of(w, ",;)]") || one_of(before, "([") || one_of(w, ".") || one_of(before, ".") || before->unary)
    return 0;
  if (one_of(before, ","))
    return 1;
  if (word_is(w, "..") || word_is(before, ".."))
    return 0;
  if (one_of(w, "(["))
    return !ends_operand(before) || is_keyword(words, i - 1);
  if (one_of(w, ":"))
    return w->kind;
  return !(one_of(before, "{") && one_of(w, "}"));
}

int flat_width(const Words *w, int first, int end) {
  int width = 0;
  for (int i = first; i < end; i++)
    width += (i > first ? spaces_before(w, i) + w->at[i].pad : 0) + (int)strlen(w->at[i].token.text);
  return width;
}
