/* What the files of this folder share. */
#ifndef PDC_FORMAT_INTERNAL_H
#define PDC_FORMAT_INTERNAL_H

#include "format/format.h"

/* Columns of code: comments may go beyond, and what cannot be broken; and up to which lines have their comments below each
 * other's. */
enum { WIDEST = 115, WIDEST_ALIGNED = 80 };

typedef struct Comment {
  const char *text;
  bool blank; /* a blank line stands before it */
} Comment;

/* A token with what stands around it. */
typedef struct Word {
  Token token;
  Vec(Comment) above;   /* comments on lines of their own before it */
  const char *trailing; /* the comment behind it on its line, or NULL */
  bool blank;           /* a blank line stands before it, below `above` */
  bool assigned;        /* it stands before the first `=` of its line */
  bool unary;           /* a minus sign before its operand */
  bool kind;            /* the colon before an input's type */
  int depth;            /* of round and square brackets around it */
  int pad;              /* further spaces before it, which align it */
} Word;
typedef Vec(Word) Words;

/* What stands on a line when it is short enough. */
typedef enum { LINE_OTHER, LINE_SETTING, LINE_GROUP, LINE_DATA, LINE_PARAM, LINE_BUFFER, LINE_METRIC } LineKind;
typedef struct Line {
  int first, end; /* words */
  int indent;
  LineKind kind;
  bool opens, closes; /* a block after it; the one before it */
} Line;
typedef Vec(Line) Lines;

/* ---- words.c */
Words words_make(const Tokens *tokens);
bool word_is(const Word *w, const char *text);
int spaces_before(const Words *w, int i); /* in one line; the pad apart */
int flat_width(const Words *w, int first, int end);

/* ---- lines.c */
Lines lines_make(Words *w); /* with pads */

/* ---- layout.c */
/* The words of a line on one or several rows, each indented, without a newline at the end; returns the last row's
 * width. *rows: how many. */
int lay_out(Text *t, const Words *w, const Line *line, int *rows);

#endif
