/* The Ast: what a .pdm file says, nothing inferred. The grammar's actions only build it. One node type with
 * a few slots; which of them a kind uses is said beside the kind. */
#ifndef PDC_AST_H
#define PDC_AST_H

#include "base/base.h"

typedef struct Ast Ast;
typedef Vec(Ast *) AstList;

typedef enum {
  /* expressions */
  AST_NUMBER,   /* number; integral: was written without point and exponent */
  AST_QUANTITY, /* number in the unit's base (bytes, seconds, bytes/s, operations/s); text as written; name:
                   the base */
  AST_WORD,     /* name: 2bw */
  AST_STRING,   /* text */
  AST_BOOL,     /* number */
  AST_NAME,     /* name */
  AST_LIST,     /* list */
  AST_TUPLE,    /* list */
  AST_UNARY,    /* name: "-" "not"; a */
  AST_BINARY,   /* name: the operator; span2: the operator; a b */
  AST_CALL,     /* a: what is called; list of AST_ARGUMENT */
  AST_ARGUMENT, /* name: NULL when positional; a */
  AST_INDEX,    /* a; list of subscripts: expressions, AST_RANGE */
  AST_RANGE,    /* a .. b, either may be NULL; in subscripts and dimensions ".." alone is any leading axes */
  AST_MEMBER,   /* a.name; span2: the name */
  AST_LABEL,    /* a: the label, a name with subscripts and members; b: the call */
  /* statements */
  AST_ASSIGN,     /* list of names (AST_NAME) = a */
  AST_EXPRESSION, /* a */
  AST_PARAM,      /* name; list of dimensions; a: initial value or NULL; b: an option (AST_ARGUMENT) or NULL */
  AST_BUFFER,     /* name; list of dimensions; a: initial value or NULL */
  AST_INPUT,      /* name; list of dimensions; a: type or NULL */
  AST_TARGET,     /* likewise */
  AST_LOSS,       /* a */
  AST_METRIC,     /* name; list: indices of the name; a; b: an option (AST_ARGUMENT) or NULL */
  AST_OUTPUT,     /* name; list, as above; a, or NULL: what the name stands for */
  AST_RETURN,     /* list */
  AST_IF,         /* a; b: block; c: else: block, another AST_IF or NULL */
  AST_FOR,        /* name; a: range or list; b: block */
  AST_BLOCK,      /* list */
  /* items */
  AST_USE,     /* name */
  AST_LAYER,   /* name; list of AST_FORMAL; a: block */
  AST_MODEL,   /* likewise */
  AST_FORMAL,  /* name; dims: it has dimensions, in list; a: default or NULL */
  AST_TRAIN,   /* name; list of AST_SETTING, AST_FREEZE and AST_GROUP */
  AST_CLUSTER, /* name; list of AST_SETTING and AST_GROUP */
  AST_GROUP,   /* name ("device", "level"), text: its own name or NULL; list of AST_SETTING.
                  Of parameters: name ("group"), a: their pattern */
  AST_FREEZE,  /* name ("freeze"), a: a pattern */
  AST_SETTING, /* name = a. Of -D "optimizer.lr = a": text: "optimizer", else NULL */
  AST_FILE     /* list of items */
} AstKind;

struct Ast {
  AstKind kind;
  bool integral, dims;
  Span span;  /* all of it; of items and statements with a body, up to the body */
  Span span2; /* the name, or the operator */
  Name name;
  const char *text;
  double number;
  Ast *a, *b, *c;
  AstList list;
};

/* ---- tokens: for who writes a file anew or looks at one that is not whole ----------------------- */

typedef enum {
  TOKEN_NAME,     /* keywords that are also names where no statement starts among them */
  TOKEN_KEYWORD,  /* reserved: "param" */
  TOKEN_VALUE,    /* numbers, words, true, false */
  TOKEN_QUANTITY, /* 16 GiB */
  TOKEN_STRING,   /* with its quotes */
  TOKEN_OPERATOR, /* + - * / % @ // == != < <= > >= and or not */
  TOKEN_SIGN,     /* ( ) [ ] { } , ; : . .. = */
  TOKEN_COMMENT   /* up to the end of its line */
} TokenKind;

typedef struct Token {
  TokenKind kind;
  Span span;
  const char *text;
} Token;
typedef Vec(Token) Tokens;

/* ---- parsing (parse.c, grammar/) ---------------------------------------------------------- */

/* Both give NULL after diagnostics. The file is registered as a source. */
Ast *parse_file(const char *path);
/* "name = expression" or "owner.name = expression", as given with -D: an AST_SETTING. */
Ast *parse_define(const char *text);

/* The same of a text that is at hand, as `path`'s. With `tokens` the list is filled with all that the text holds, as far
 * as it was read. The text is kept, for diagnostics. */
Ast *parse_text(const char *path, const char *text, size_t length, Tokens *tokens);

/* ---- building (ast.c) --------------------------------------------------------------------- */

Ast *ast_new(AstKind kind, Span span);
Span span_join(Span first, Span last);
/* Whether both say the same, wherever and with whatever comments. */
bool ast_equal(const Ast *a, const Ast *b);

/* ---- printing (print.c) ------------------------------------------------------------------- */

/* As .pdm text, which parses back to an equal Ast. Comments are not kept. */
void ast_print(const Ast *ast, FILE *out);
/* An expression on one line, in the arena. */
char *ast_text(const Ast *ast);

#endif
