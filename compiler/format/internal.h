/* Shared by the files of format/. */
#ifndef PDC_FORMAT_INTERNAL_H
#define PDC_FORMAT_INTERNAL_H

#include "format/format.h"

/* Maximum columns of code; comments and unbreakable words may exceed them. Lines up to WIDEST_ALIGNED have aligned
 * comments. */
enum { WIDEST = 115, WIDEST_ALIGNED = 80 };

typedef struct Comment {
  const char *text;
  bool blank; /* follows a blank line */
} Comment;

/* A token with its surroundings. */
typedef struct Word {
  Token token;
  Vec(Comment) above;   /* comments on their own lines before it */
  const char *trailing; /* the comment after it on its line, or NULL */
  bool blank;           /* a blank line precedes it, after `above` */
  bool assigned;        /* left of the first `=` of its line */
  bool unary;           /* a minus sign as prefix */
  bool kind;            /* the colon before an input's type */
  int depth;            /* enclosing round and square brackets */
  int pad;              /* additional spaces before it, for alignment */
} Word;
typedef Vec(Word) Words;

/* The content of a line, if it is short enough. */
typedef enum { LINE_OTHER, LINE_SETTING, LINE_GROUP, LINE_DATA, LINE_PARAM, LINE_BUFFER, LINE_METRIC } LineKind;
typedef struct Line {
  int first, end; /* words */
  int indent;
  LineKind kind;
  bool opens, closes; /* a block follows; a block ends before it */
} Line;
typedef Vec(Line) Lines;

/* ---- words.c */
Words words_make(const Tokens *tokens);
bool word_is(const Word *w, const char *text);
int spaces_before(const Words *w, int i); /* within a line, without pad */
int flat_width(const Words *w, int first, int end);

/* ---- lines.c */
Lines lines_make(Words *w); /* sets pads */

/* ---- layout.c */
/* Prints a line's words on one or several rows, each indented, without a final newline. Returns the last row's
 * width; *rows: number of rows. */
int lay_out(Text *t, const Words *w, const Line *line, int *rows);

#endif
