/* Op.expression as a tree, parsed once per op: its operands, attributes and words, and its text with substitutions
 * for these. */
#ifndef PDC_OPS_EXPRESSION_H
#define PDC_OPS_EXPRESSION_H

#include "ops/op.h"

/* Words that an expression may use, in addition to operands and attributes; op.h defines them. */
typedef enum {
  WORD_COLUMN,  /* $j */
  WORD_ELEMENT, /* $i */
  WORD_SAMPLE,  /* $s */
  WORD_FOLLOWING,
  WORD_SEED,
  WORD_SCOPE,
  WORD_TRAINING,
  WORD_SHARD,
  N_WORDS
} Word;

/* Precedence in C, from the lowest. */
typedef enum {
  PRECEDENCE_CONDITION,
  PRECEDENCE_COMPARISON,
  PRECEDENCE_SUM,
  PRECEDENCE_FACTOR,
  PRECEDENCE_UNARY,
  PRECEDENCE_PRIMARY
} Precedence;

typedef enum {
  EXPRESSION_OPERAND,   /* leaves, with text from the printer: "$0", index 0 */
  EXPRESSION_ATTRIBUTE, /* "${p}"; index in Op.attr */
  EXPRESSION_WORD,      /* "$seed"; index: the Word */
  EXPRESSION_NAME,      /* a number or a constant of the emitted program, unchanged */
  EXPRESSION_UNARY,     /* "-x" */
  EXPRESSION_CAST,      /* "(float)x" */
  EXPRESSION_BINARY,    /* "x + y" */
  EXPRESSION_CONDITION, /* "x ? y : z" */
  EXPRESSION_CALL       /* "f(x, y)" */
} ExpressionKind;

enum { MAX_PARTS = 8 };
typedef struct ExpressionNode {
  ExpressionKind kind;
  Precedence precedence; /* of a leaf: that of its text */
  int index;
  Name text; /* of a name, an operator, a cast's type, a function */
  int n_parts;
  const struct ExpressionNode *part[MAX_PARTS];
} ExpressionNode;

enum { MAX_OPERANDS = 4 }; /* of an op with an expression */
typedef struct Expression {
  const ExpressionNode *root;
  unsigned words;             /* 1u << Word for each word in it */
  int mentions[MAX_OPERANDS]; /* of each operand */
  bool chosen[MAX_OPERANDS];  /* conditional operands: "x ? $1 : 0" */
} Expression;

/* The op's expression from a table of all ops; NULL: none. A syntax error is a bug. */
const Expression *op_expression(const Op *op);
/* The expression of any op, without the table. */
const Expression *expression_parse(const Op *op);
/* Words that depend on an element's index within its row or its sample. */
enum { COUNTING_WORDS = 1 << WORD_COLUMN | 1 << WORD_ELEMENT };
bool op_reads_words(const Op *op, unsigned words); /* any of these */
bool op_reads_operand(const Op *op, int i);        /* true for ops without an expression */

/* The text has the parentheses that C needs. The text of a leaf has none within sums, products and calls if C
 * permits. In -x, (float)x and x > y only a name or a call has none; y and z of x ? y : z have none unless they are
 * conditional. */
typedef struct Fragment {
  char *text;
  Precedence precedence;
} Fragment;
typedef Fragment (*LeafText)(void *context, const ExpressionNode *leaf);
/* truth: the condition "leaf != 0.0f" in other words, or without text where it has none; NULL: never. */
Fragment expression_text(const Expression *e, LeafText leaf, LeafText truth, void *context);
/* Of "condition ? 1.0f : 0.0f" the condition; NULL: the expression has another form. */
const ExpressionNode *expression_condition(const Expression *e);

#endif
