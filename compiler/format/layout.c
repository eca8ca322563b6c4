/* Breaks a line's words into rows. A row breaks after a comma or before an operator, at the outermost and weakest
 * candidate, and continues below its bracket's contents. */
#include <string.h>

#include "format/internal.h"

enum { NO_BREAK = 100, CONTINUATION = 4, DEEPEST = 70 };

/* The strength of the bond before this word: 0 after a comma; NO_BREAK: unbreakable. Assigned variables (`a, b =`)
 * stay together. */
static int rank(const Words *w, int i) {
  static const char *const operators[][7] = {
      {"or"}, {"and"}, {"==", "!=", "<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%", "@", "//"}};
  const Word *at = &w->at[i];
  if (word_is(&w->at[i - 1], ","))
    return at->assigned ? NO_BREAK : 0;
  if (at->token.kind != TOKEN_OPERATOR || at->unary)
    return NO_BREAK;
  for (int r = 0; r < 5; r++)
    for (int k = 0; k < 7 && operators[r][k]; k++)
      if (word_is(at, operators[r][k]))
        return r + 1;
  return NO_BREAK;
}

/* The end of the unit that starts at word i: the next break of at most its depth and rank. */
static int unit_end(const Words *w, int i, int end) {
  int depth = w->at[i].depth, r = rank(w, i);
  for (int k = i + 1; k < end; k++) {
    int next = rank(w, k);
    if (next != NO_BREAK && (w->at[k].depth < depth || (w->at[k].depth == depth && next <= r)))
      return k;
  }
  return end;
}

typedef struct Row {
  Text *t;
  int column, rows;
  Ints open; /* continuation columns of open brackets; the first is for rows outside brackets */
} Row;

static int row_start(const Row *r) { return r->open.at[r->open.n - 1]; }

static void new_row(Row *r) {
  text_add(r->t, "\n%*s", row_start(r), "");
  r->column = row_start(r);
  r->rows++;
}

static void add_word(Row *r, const Word *w) {
  text_add(r->t, "%s", w->token.text);
  r->column += (int)strlen(w->token.text);
  if (word_is(w, "(") || word_is(w, "["))
    push(&r->open, r->column <= DEEPEST ? r->column : row_start(r) + (row_start(r) < DEEPEST ? CONTINUATION : 0));
  else if (word_is(w, ")") || word_is(w, "]"))
    r->open.n--;
}

/* Adds comments between the words of a line. */
static void add_comments(Row *r, const Words *w, int i) {
  if (w->at[i - 1].trailing)
    text_add(r->t, "  %s", w->at[i - 1].trailing);
  for (int k = 0; k < w->at[i].above.n; k++) {
    new_row(r);
    text_add(r->t, "%s", w->at[i].above.at[k].text);
  }
  new_row(r);
}

int lay_out(Text *t, const Words *w, const Line *line, int *rows) {
  Row r = {.t = t, .column = line->indent, .rows = 1};
  bool heads = word_is(&w->at[line->end - 1], "{");
  push(&r.open, line->indent + (heads ? CONTINUATION : 2));
  text_add(t, "%*s", line->indent, "");
  for (int i = line->first; i < line->end; i++) {
    if (i > line->first) {
      int spaces = spaces_before(w, i) + w->at[i].pad, start = row_start(&r);
      bool comments = w->at[i - 1].trailing || w->at[i].above.n;
      bool breaks = !comments && rank(w, i) != NO_BREAK && start < r.column + spaces &&
                    r.column + spaces + flat_width(w, i, unit_end(w, i, line->end)) > WIDEST;
      if (comments)
        add_comments(&r, w, i);
      else if (breaks)
        new_row(&r);
      else
        r.column += spaces, text_add(t, "%*s", spaces, "");
    }
    add_word(&r, &w->at[i]);
  }
  *rows = r.rows;
  return r.column;
}
