/* The Ast: the content of a .pdm file, without inference. The grammar's actions only build it. One node type
 * serves all kinds; each kind's comment lists its members. */
#ifndef PDC_AST_H
#define PDC_AST_H

#include "base/base.h"

typedef struct Ast Ast;
typedef Vec(Ast *) AstList;

typedef enum {
  /* expressions */
  AST_NUMBER,   /* number; integral: written without point and exponent */
  AST_QUANTITY, /* number in the unit's base (bytes, seconds, bytes/s, operations/s); text as written; name: the
                   base */
  AST_WORD,     /* name: 2bw */
  AST_STRING,   /* text */
  AST_BOOL,     /* number */
  AST_NAME,     /* name */
  AST_LIST,     /* list */
  AST_TUPLE,    /* list */
  AST_UNARY,    /* name: "-" "not"; a */
  AST_BINARY,   /* name: the operator; span2: the operator; a b */
  AST_CALL,     /* a: the callee; list of AST_ARGUMENT */
  AST_ARGUMENT, /* name, NULL if positional; a; text: "in" for "name in a", else NULL */
  AST_INDEX,    /* a; list of subscripts: expressions, AST_RANGE */
  AST_RANGE,    /* a .. b, either may be NULL; in subscripts and dimensions ".." alone means any leading axes */
  AST_MEMBER,   /* a.name; span2: the name */
  AST_LABEL,    /* a: the label, a name with subscripts and members; b: the call */
  /* statements */
  AST_ASSIGN,     /* list of names (AST_NAME) = a */
  AST_SCAN,       /* list of names (AST_NAME) = a, a call; b: the body */
  AST_EXPRESSION, /* a */
  AST_PARAM,      /* name; list of dimensions; a: initial value or NULL; b: an option (AST_ARGUMENT) or NULL */
  AST_BUFFER,     /* name; list of dimensions; a: initial value or NULL */
  AST_INPUT,      /* name; list of dimensions; a: type or NULL */
  AST_TARGET,     /* as AST_INPUT */
  AST_LOSS,       /* a */
  AST_METRIC,     /* name; list: indices of the name; a; b: an option (AST_ARGUMENT) or NULL */
  AST_OUTPUT,     /* name; list, as AST_METRIC; a, or NULL: the value of that name */
  AST_RETURN,     /* list */
  AST_IF,         /* a; b: block; c: else branch: block, another AST_IF or NULL */
  AST_FOR,        /* name; a: range or list; b: block */
  AST_BLOCK,      /* list */
  /* items */
  AST_USE,     /* name */
  AST_LAYER,   /* name; list of AST_FORMAL; a: block */
  AST_MODEL,   /* as AST_LAYER */
  AST_FORMAL,  /* name; dims: has dimensions, in list; a: default or NULL */
  AST_TRAIN,   /* name; list of AST_SETTING, AST_FREEZE and AST_GROUP */
  AST_CLUSTER, /* name; list of AST_SETTING and AST_GROUP */
  AST_GROUP,   /* name ("device", "level"), text: its own name or NULL; list of AST_SETTING. Parameter groups: name
                  ("group"), a: their pattern */
  AST_FREEZE, /* name ("freeze" or "train_only"), a: a pattern; with exceptions text ("except"), b: their pattern */
  AST_SETTING, /* name = a. For -D "optimizer.lr = a", text: "optimizer", else NULL */
  AST_FILE     /* list of items */
} AstKind;

struct Ast {
  AstKind kind;
  bool integral, dims;
  Span span;  /* the whole node; items and statements with a body: up to the body */
  Span span2; /* span of the name or of the operator */
  Name name;
  const char *text;
  double number;
  Ast *a, *b, *c;
  AstList list;
};

/* ---- tokens: for formatting, and for editors with incomplete files ----------------------------- */

typedef enum {
  TOKEN_NAME,     /* includes keywords used as names, unless they start a statement */
  TOKEN_KEYWORD,  /* reserved: "param" */
  TOKEN_VALUE,    /* numbers, words, true, false */
  TOKEN_QUANTITY, /* 16 GiB */
  TOKEN_STRING,   /* with quotes */
  TOKEN_OPERATOR, /* + - * / % @ // == != < <= > >= and or not */
  TOKEN_SIGN,     /* ( ) [ ] { } , ; : . .. = */
  TOKEN_COMMENT   /* up to the end of the line */
} TokenKind;

typedef struct Token {
  TokenKind kind;
  Span span;
  const char *text;
} Token;
typedef Vec(Token) Tokens;

/* ---- parsing (parse.c, grammar/) ---------------------------------------------------------- */

/* Both return NULL after diagnostics. The file is registered as a source. */
Ast *parse_file(const char *path);
/* Parses a -D argument, "name = expression" or "owner.name = expression": an AST_SETTING. */
Ast *parse_define(const char *text);

/* As parse_file, for a text in memory under the name `path`. `tokens`, if not NULL, receives all tokens read. The
 * text is kept for diagnostics. */
Ast *parse_text(const char *path, const char *text, size_t length, Tokens *tokens);

/* ---- building (ast.c) --------------------------------------------------------------------- */

Ast *ast_new(AstKind kind, Span span);
Span span_join(Span first, Span last);
/* Whether both are equal, except for positions and comments. */
bool ast_equal(const Ast *a, const Ast *b);

/* ---- printing (print.c) ------------------------------------------------------------------- */

/* Prints .pdm text that parses to an equal Ast. Comments are lost. */
void ast_print(const Ast *ast, FILE *out);
/* An expression on one line, in the arena. */
char *ast_text(const Ast *ast);

#endif
