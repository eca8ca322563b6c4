/* Between the scanner, the parser and parse.c; nobody else includes it. */
#ifndef PDC_PARSE_H
#define PDC_PARSE_H

#include "syntax/ast.h"

typedef struct Bracket {
  char open;
  Span span;
} Bracket;

typedef struct Parse {
  int file;
  int line, column; /* where the next token starts */
  int depth;        /* of open brackets of all kinds, at most MAX_DEPTH */
  int errors;
  Span now, before; /* the token read last and the one before it */
  const char *text; /* the token read last; "" at the end */
  const char *text_before;
  int bad_line;      /* a lexical error was reported here: syntax errors on the same line are its echo */
  Vec(Bracket) open; /* not closed so far */
  Bracket crossed;   /* the innermost at the last ')', ']' or '}', if that closes another; else .open is 0 */
  bool define;       /* "name = expression" rather than a file */
  bool started;      /* the first token, which says which of both, was given */
  bool given_up;     /* after so many errors the rest is not read */
  Tokens *tokens;    /* NULL: nobody asks for them */
  Ast *result;
} Parse;

/* ---- scanner ---- */
/* Notes a token for who asks for them; `kind` is the parser's. */
void parse_note(Parse *p, int kind);
void parse_advance(Parse *p, const char *text, int length, Span *where);
void parse_end(Parse *p, Span *where);
/* Gives back all but the first `keep` bytes of the token. */
void parse_less(Parse *p, const char *text, int keep, Span *where);
int parse_bracket(Parse *p, char c, const Span *where);
Name parse_name(Parse *p, const char *text, int length, Span where);
Ast *parse_number(Parse *p, const char *text, Span where);
Ast *parse_quantity(const char *text, Span where); /* NULL: not a number with a known unit */
Ast *parse_word(const char *text, Span where);
Ast *parse_string(const char *text, Span where);
void parse_bad_string(Parse *p, Span where);
void parse_bad_character(Parse *p, const char *text, Span where);

/* Counts an error; false: it is not to be told. With error MOST_ERRORS the file ends for scanner and parser. */
bool parse_erred(Parse *p);

/* ---- parser: nodes with a check of what the grammar leaves open ---- */
Ast *parse_binary(Ast *a, Name operator, Span where, Ast *b);
Ast *parse_unary(Name operator, Span where, Ast *a);
Ast *parse_label(Parse *p, Ast *label, Ast *call);
Ast *parse_call(Parse *p, Ast *callee, AstList arguments, Span close);
Ast *parse_assign(Parse *p, AstList targets, Ast *value);
Ast *parse_declaration(AstKind kind, Span first, Name name, Span where, AstList dims, Ast *value, Span last);
Ast *parse_item(AstKind kind, Span first, Name name, Span where, AstList list, Ast *body);
void parse_reserved(Parse *p, Span where, const char *word, const char *advice);
void parse_unnamed_metric(Parse *p, Span where, const char *layer);

/* A syntax error at the last token, in place of which one of `expected` could stand. */
void parse_unexpected(Parse *p, const char *const *expected, int n);

#endif
