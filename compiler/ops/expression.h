/* Op.expression as a tree, parsed once for each op: what it reads, and its text with anything put in for its
 * operands, attributes and words. */
#ifndef PDC_OPS_EXPRESSION_H
#define PDC_OPS_EXPRESSION_H

#include "ops/op.h"

/* What an expression reads besides operands and attributes; op.h says what they mean. */
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

/* How tightly C binds, from the loosest on. */
typedef enum {
  PRECEDENCE_CONDITION,
  PRECEDENCE_COMPARISON,
  PRECEDENCE_SUM,
  PRECEDENCE_FACTOR,
  PRECEDENCE_UNARY,
  PRECEDENCE_PRIMARY
} Precedence;

typedef enum {
  EXPRESSION_OPERAND,   /* leaves, whose text whoever prints the tree gives: "$0", index 0 */
  EXPRESSION_ATTRIBUTE, /* "${p}"; index in Op.attr */
  EXPRESSION_WORD,      /* "$seed"; index: the Word */
  EXPRESSION_NAME,      /* a number or a constant of the emitted program, as it stands */
  EXPRESSION_UNARY,     /* "-x" */
  EXPRESSION_CAST,      /* "(float)x" */
  EXPRESSION_BINARY,    /* "x + y" */
  EXPRESSION_CONDITION, /* "x ? y : z" */
  EXPRESSION_CALL       /* "f(x, y)" */
} ExpressionKind;

enum { MAX_PARTS = 8 };
typedef struct ExpressionNode {
  ExpressionKind kind;
  Precedence precedence; /* leaves: their text has one */
  int index;
  Name text; /* of a name, an operator, a cast's type, a function */
  int n_parts;
  const struct ExpressionNode *part[MAX_PARTS];
} ExpressionNode;

enum { MAX_OPERANDS = 4 }; /* of an op with an expression */
typedef struct Expression {
  const ExpressionNode *root;
  unsigned words;             /* 1u << Word for each that it reads */
  int mentions[MAX_OPERANDS]; /* of each operand */
  bool chosen[MAX_OPERANDS];  /* what is mentioned behind a condition: "x ? $1 : 0" */
} Expression;

/* The op's expression from a table of all ops; NULL where it has none. One that does not parse is a bug. */
const Expression *op_expression(const Op *op);
/* The same of any op, parsed anew. */
const Expression *expression_parse(const Op *op);
/* Words that number an element within its row or its sample. */
enum { COUNTING_WORDS = 1 << WORD_COLUMN | 1 << WORD_ELEMENT };
bool op_reads_words(const Op *op, unsigned words); /* any of them */
bool op_reads_operand(const Op *op, int i);        /* one without an expression reads all */

/* The text has parentheses where C needs them. What is put in for a leaf stands bare within sums, products and
 * calls where C lets it; elsewhere, in -x, (float)x, x > y and x ? y : z, only where it is one name or call. */
typedef struct Fragment {
  char *text;
  Precedence precedence;
} Fragment;
typedef Fragment (*LeafText)(void *context, const ExpressionNode *leaf);
Fragment expression_text(const Expression *e, LeafText leaf, void *context);

#endif
