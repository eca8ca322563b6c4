/* Private to the scanner, the parser and parse.c. */
#ifndef PDC_PARSE_H
#define PDC_PARSE_H

#include "syntax/ast.h"

typedef struct Bracket {
  char open;
  Span span;
} Bracket;

typedef struct Parse {
  int file;
  int line, column; /* start of the next token */
  int depth;        /* of open brackets of all kinds, at most MAX_DEPTH */
  int errors;
  Span now, before; /* spans of the last token and of the one before it */
  const char *text; /* text of the last token; "" at the end */
  const char *text_before;
  int bad_line;      /* a line with a lexical error: later syntax errors on it are consequences */
  Vec(Bracket) open; /* open brackets */
  Bracket crossed;   /* the innermost bracket at the last ')', ']' or '}' that closes another one; else .open is
                        0 */
  bool define;       /* input is "name = expression" instead of a file */
  bool started;      /* the first token, which selects file or definition, was emitted */
  bool given_up;     /* too many errors: reading stops */
  Tokens *tokens;    /* NULL: not needed */
  Ast *result;
} Parse;

/* ---- scanner ---- */
/* Records a token if tokens are needed; `kind` is the parser's. */
void parse_note(Parse *p, int kind);
void parse_advance(Parse *p, const char *text, int length, Span *where);
void parse_end(Parse *p, Span *where);
/* Returns all but the first `keep` bytes of the token to the input. */
void parse_less(Parse *p, const char *text, int keep, Span *where);
int parse_bracket(Parse *p, char c, const Span *where);
Name parse_name(Parse *p, const char *text, int length, Span where);
Ast *parse_number(Parse *p, const char *text, Span where);
Ast *parse_quantity(const char *text, Span where); /* NULL: not a number with a known unit */
Ast *parse_word(const char *text, Span where);
Ast *parse_string(const char *text, Span where);
void parse_bad_string(Parse *p, Span where);
void parse_bad_character(Parse *p, const char *text, Span where);

/* Counts an error; false: do not report it. After MOST_ERRORS, scanner and parser see the end of the file. */
bool parse_erred(Parse *p);

/* ---- parser: nodes, with checks that the grammar cannot make ---- */
Ast *parse_binary(Ast *a, Name operator, Span where, Ast *b);
Ast *parse_unary(Name operator, Span where, Ast *a);
Ast *parse_label(Parse *p, Ast *label, Ast *call);
Ast *parse_call(Parse *p, Ast *callee, AstList arguments, Span close);
Ast *parse_assign(Parse *p, AstList targets, Ast *value);
Ast *parse_scan(Parse *p, Ast *assign, Ast *body); /* assign: NULL after an error */
Ast *parse_declaration(AstKind kind, Span first, Name name, Span where, AstList dims, Ast *value, Span last);
Ast *parse_item(AstKind kind, Span first, Name name, Span where, AstList list, Ast *body);
void parse_reserved(Parse *p, Span where, const char *word, const char *advice);
void parse_unnamed_metric(Parse *p, Span where, const char *layer);

/* Reports a syntax error at the last token, with `expected` as alternatives. */
void parse_unexpected(Parse *p, const char *const *expected, int n);

#endif
