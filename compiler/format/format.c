/* Formats a text in the standard style. */
#include "format/internal.h"

#include <string.h>

/* A formatted line. */
typedef struct Laid {
  Text text;
  int width, gap;       /* width of its last row; spaces before its comment */
  const char *trailing; /* trailing comment; NULL: none */
  bool aligned;         /* comment aligned with those of other lines */
} Laid;

static void add_comments(Text *out, const Word *w, int indent, bool *fresh) {
  for (int i = 0; i < w->above.n; i++) {
    text_add(out, "%s%*s%s\n", w->above.at[i].blank && !*fresh ? "\n" : "", indent, "", w->above.at[i].text);
    *fresh = false;
  }
}

/* Whether a line's comment shares the previous line's column: both lines are short and equally indented. */
static bool in_run(const Words *w, const Lines *lines, const Laid *laid, int i) {
  const Line *line = &lines->at[i], *before = &lines->at[i - 1];
  const Word *first = &w->at[line->first];
  return laid[i].aligned && laid[i - 1].aligned && line->indent == before->indent && !first->above.n &&
         !first->blank;
}

static void align_comments(const Words *w, const Lines *lines, Laid *laid) {
  for (int i = 0, end; i < lines->n; i = end) {
    int widest = laid[i].width;
    for (end = i + 1; end < lines->n && in_run(w, lines, laid, end); end++)
      widest = laid[end].width > widest ? laid[end].width : widest;
    for (int k = i; k < end; k++)
      laid[k].gap = widest - laid[k].width + 2;
  }
}

static char *print(const Words *w, const Lines *lines) {
  Text out = {0};
  text_add(&out, "%s", "");
  Laid *laid = alloc((size_t)(lines->n + 1) * sizeof *laid);
  for (int i = 0; i < lines->n; i++) {
    int rows;
    laid[i].width = lay_out(&laid[i].text, w, &lines->at[i], &rows);
    laid[i].trailing = w->at[lines->at[i].end - 1].trailing;
    laid[i].aligned = laid[i].trailing && rows == 1 && laid[i].width <= WIDEST_ALIGNED;
  }
  align_comments(w, lines, laid);
  bool fresh = true; /* the block is still empty */
  for (int i = 0; i < lines->n; i++) {
    const Line *line = &lines->at[i];
    const Word *first = &w->at[line->first];
    add_comments(&out, first, line->indent + (line->closes ? 2 : 0), &fresh);
    text_add(&out, "%s%s", first->blank && !fresh && !line->closes ? "\n" : "", laid[i].text.at);
    if (laid[i].trailing)
      text_add(&out, "%*s%s", laid[i].gap, "", laid[i].trailing);
    text_add(&out, "\n");
    fresh = line->opens;
  }
  add_comments(&out, &w->at[w->n - 1], 0, &fresh);
  return out.at;
}

typedef struct Formatted {
  Ast *ast; /* NULL after diagnostics */
  Words words;
  char *text;
} Formatted;

static Formatted formatted(const char *path, const char *text, size_t length) {
  Tokens tokens = {0};
  Formatted f = {.ast = parse_text(path, text, length, &tokens)};
  if (!f.ast)
    return f;
  f.words = words_make(&tokens);
  Lines lines = lines_make(&f.words);
  f.text = print(&f.words, &lines);
  return f;
}

/* Whether two texts have equal words and comments. */
static bool same_words(const Words *a, const Words *b) {
  bool same = a->n == b->n;
  for (int i = 0; i < a->n && same; i++) {
    const Word *x = &a->at[i], *y = &b->at[i];
    same = word_is(x, y->token.text) && x->above.n == y->above.n && !x->trailing == !y->trailing &&
           (!x->trailing || !strcmp(x->trailing, y->trailing));
    for (int k = 0; k < x->above.n && same; k++)
      same = !strcmp(x->above.at[k].text, y->above.at[k].text);
  }
  return same;
}

char *format_text(const char *path, const char *text, size_t length) {
  Formatted once = formatted(path, text, length);
  if (!once.ast)
    return NULL;
  Formatted again = formatted(path, once.text, strlen(once.text));
  if (!again.ast || !ast_equal(once.ast, again.ast) || !same_words(&once.words, &again.words))
    BUG("'%s' would be another text when formatted", path);
  if (strcmp(once.text, again.text) != 0)
    BUG("'%s' would not stay as it is formatted", path);
  return once.text;
}
