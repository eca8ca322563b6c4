/* Divides words into lines, and chooses indentation and alignment. */
#include <string.h>

#include "format/internal.h"

static bool has_comments(const Words *w, int first, int end) {
  for (int i = first; i < end; i++)
    if ((i > first && w->at[i].above.n) || (i + 1 < end && w->at[i].trailing))
      return true;
  return false;
}

static int closing(const Words *w, int open) {
  int depth = 0;
  for (int i = open;; i++) {
    depth += word_is(&w->at[i], "{") - word_is(&w->at[i], "}");
    if (depth == 0)
      return i;
  }
}

/* The last closing brace of the statement that starts with this block, including all `else`. */
static int last_closing(const Words *w, int open) {
  int close = closing(w, open);
  while (word_is(&w->at[close + 1], "else")) {
    for (open = close + 1; !word_is(&w->at[open], "{");)
      open++;
    close = closing(w, open);
  }
  return close;
}

/* A block written on one line stays there if it fits and has no comments. */
static bool on_one_line(const Words *w, int first, int close, int indent) {
  return w->at[first].token.span.line == w->at[close].token.span.line && !has_comments(w, first, close + 1) &&
         indent + flat_width(w, first, close + 1) <= WIDEST;
}

/* Reads the line that starts here, and updates *indent for the next one. */
static Line next_line(const Words *w, int first, int *indent) {
  Line line = {.first = first, .indent = *indent};
  int i = first;
  if (word_is(&w->at[i], "}")) {
    line.closes = true;
    line.indent = *indent -= 2;
    line.end = i + 1;
    if (!word_is(&w->at[i + 1], "else") || w->at[i].trailing || w->at[i + 1].above.n)
      return line;
  }
  while (!word_is(&w->at[i], ";") && !word_is(&w->at[i], "{"))
    i++;
  line.end = i + 1;
  if (word_is(&w->at[i], ";"))
    return line;
  int close = line.closes ? -1 : last_closing(w, i);
  if (close >= 0 && on_one_line(w, first, close, *indent)) {
    line.end = close + 1;
  } else {
    line.opens = true;
    *indent += 2;
  }
  return line;
}

/* `settings`: within a train, cluster or group. */
static LineKind kind_of(const Words *w, const Line *line, bool settings) {
  const Word *first = &w->at[line->first];
  bool names = w->at[line->first + 1].token.kind == TOKEN_NAME;
  if (line->opens || line->closes)
    return LINE_OTHER;
  if (settings)
    return word_is(&w->at[line->end - 1], "}")     ? LINE_GROUP
           : word_is(&w->at[line->first + 1], "=") ? LINE_SETTING
                                                   : LINE_OTHER;
  if ((word_is(first, "input") || word_is(first, "target")) && names)
    return LINE_DATA;
  if (word_is(first, "param"))
    return LINE_PARAM;
  if (word_is(first, "metric") && names)
    return LINE_METRIC;
  return word_is(first, "buffer") && names ? LINE_BUFFER : LINE_OTHER;
}

static void mark_assigned(Words *w, const Line *line) {
  for (int i = line->first; i < line->end; i++)
    if (w->at[i].depth == 0 && word_is(&w->at[i], "=")) {
      for (int k = line->first; k < i; k++)
        w->at[k].assigned = w->at[k].depth == 0;
      return;
    }
}

/* ---- alignment ----------------------------------------------------------------------------------- */

/* The index of this word in the line, outside brackets, or -1. */
static int find(const Words *w, const Line *line, const char *text) {
  for (int i = line->first + 1; i < line->end; i++)
    if (w->at[i].depth == 0 && word_is(&w->at[i], text) && (w->at[i].kind || *text != ':'))
      return i;
  return -1;
}

/* Aligns the words, one per line, at one column. */
static void align(Words *w, const Lines *lines, int first, int end, const char *text) {
  int widest = 0;
  for (int i = first; i < end; i++) {
    int at = find(w, &lines->at[i], text);
    int width = at < 0 ? 0 : flat_width(w, lines->at[i].first, at);
    widest = width > widest ? width : widest;
  }
  for (int i = first; i < end; i++) {
    int at = find(w, &lines->at[i], text);
    if (at >= 0)
      w->at[at].pad = widest - flat_width(w, lines->at[i].first, at);
  }
}

/* Aligns names of consecutive inputs and targets. */
static void align_names(Words *w, const Lines *lines, int first, int end) {
  bool target = false;
  for (int i = first; i < end; i++)
    target |= word_is(&w->at[lines->at[i].first], "target");
  for (int i = first; i < end; i++)
    w->at[lines->at[i].first + 1].pad = target && word_is(&w->at[lines->at[i].first], "input");
}

static bool continues(const Words *w, const Lines *lines, int i) {
  const Line *line = &lines->at[i], *before = &lines->at[i - 1];
  const Word *first = &w->at[line->first];
  return line->kind == before->kind && line->indent == before->indent && !first->above.n && !first->blank;
}

static void align_runs(Words *w, const Lines *lines) {
  for (int i = 0, end; i < lines->n; i = end) {
    LineKind kind = lines->at[i].kind;
    for (end = i + 1; end < lines->n && continues(w, lines, end);)
      end++;
    if (kind == LINE_DATA) {
      align_names(w, lines, i, end);
      align(w, lines, i, end, ":");
    } else if (kind != LINE_OTHER) {
      align(w, lines, i, end, kind == LINE_GROUP ? "{" : "=");
    }
  }
}

/* Drops an alignment that makes a line too long. */
static void drop_wide_pads(Words *w, const Lines *lines) {
  for (int i = 0; i < lines->n; i++) {
    const Line *line = &lines->at[i];
    if (line->kind == LINE_SETTING || line->indent + flat_width(w, line->first, line->end) <= WIDEST)
      continue;
    for (int k = line->first; k < line->end; k++)
      w->at[k].pad = 0;
  }
}

Lines lines_make(Words *w) {
  Lines lines = {0};
  Vec(bool) settings = {0}; /* by open block */
  int indent = 0;
  for (int i = 0; i < w->n - 1;) {
    Line line = next_line(w, i, &indent);
    if (line.closes)
      settings.n--;
    bool within = settings.n && settings.at[settings.n - 1];
    line.kind = kind_of(w, &line, within);
    mark_assigned(w, &line);
    const Word *first = &w->at[i];
    bool heads = word_is(first, "train") || word_is(first, "cluster");
    if (line.opens)
      push(&settings, within || (settings.n == 0 && heads));
    push(&lines, line);
    i = line.end;
  }
  align_runs(w, &lines);
  drop_wide_pads(w, &lines);
  return lines;
}
