#include "ops/expression.h"

#include <ctype.h>
#include <string.h>

/* ---- parsing ------------------------------------------------------------------------------------ */

typedef struct Parser {
  const Op *op;
  const char *at;
  Expression *e;
} Parser;

static _Noreturn void fail(const Parser *p) {
  BUG("op '%s': its expression '%s' does not parse at '%s'", p->op->name, p->op->expression, p->at);
}

static bool take(Parser *p, const char *text) {
  size_t n = strlen(text);
  bool here = !strncmp(p->at, text, n);
  p->at += here ? n : 0;
  return here;
}

static void expect(Parser *p, const char *text) {
  if (!take(p, text))
    fail(p);
}

static Name take_name(Parser *p) {
  size_t n = 0;
  while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_')
    n++;
  if (n == 0)
    fail(p);
  p->at += n;
  return intern_n(p->at - n, n);
}

static ExpressionNode *new_node(ExpressionKind kind, Precedence precedence, Name text) {
  ExpressionNode *n = alloc(sizeof *n);
  *n = (ExpressionNode){.kind = kind, .precedence = precedence, .text = text};
  return n;
}

static void add_part(ExpressionNode *n, const ExpressionNode *part) {
  ensure(n->n_parts < MAX_PARTS);
  n->part[n->n_parts++] = part;
}

static const ExpressionNode *leaf(ExpressionKind kind, int index) {
  ExpressionNode *n = new_node(kind, PRECEDENCE_PRIMARY, NULL);
  n->index = index;
  return n;
}

static const ExpressionNode *parse_attribute(Parser *p) {
  Name name = take_name(p);
  expect(p, "}");
  for (int i = 0; i < MAX_ATTR && p->op->attr[i].name; i++)
    if (!strcmp(p->op->attr[i].name, name))
      return leaf(EXPRESSION_ATTRIBUTE, i);
  BUG("op '%s' has no attribute '%s', which its expression reads", p->op->name, name);
}

/* Parses the text after a '$'. */
static const ExpressionNode *parse_leaf(Parser *p) {
  static const char *const words[N_WORDS] = {
      [WORD_COLUMN] = "j",  [WORD_ELEMENT] = "i",   [WORD_SAMPLE] = "s",          [WORD_FOLLOWING] = "following",
      [WORD_SEED] = "seed", [WORD_SCOPE] = "scope", [WORD_TRAINING] = "training", [WORD_SHARD] = "shard",
  };
  if (take(p, "{"))
    return parse_attribute(p);
  if (isdigit((unsigned char)*p->at)) {
    int operand = *p->at++ - '0';
    if (operand >= MAX_OPERANDS)
      fail(p);
    p->e->mentions[operand]++;
    return leaf(EXPRESSION_OPERAND, operand);
  }
  Name name = take_name(p);
  for (int i = 0; i < N_WORDS; i++)
    if (!strcmp(words[i], name)) {
      p->e->words |= 1u << i;
      return leaf(EXPRESSION_WORD, i);
    }
  fail(p);
}

static const ExpressionNode *parse_expression(Parser *p);

static const ExpressionNode *parse_primary(Parser *p) {
  if (take(p, "$"))
    return parse_leaf(p);
  if (isdigit((unsigned char)*p->at)) {
    size_t n = strspn(p->at, "0123456789.f");
    p->at += n;
    return new_node(EXPRESSION_NAME, PRECEDENCE_PRIMARY, intern_n(p->at - n, n));
  }
  Name name = take_name(p);
  if (!take(p, "("))
    return new_node(EXPRESSION_NAME, PRECEDENCE_PRIMARY, name);
  ExpressionNode *call = new_node(EXPRESSION_CALL, PRECEDENCE_PRIMARY, name);
  if (take(p, ")"))
    return call;
  do
    add_part(call, parse_expression(p));
  while (take(p, ", "));
  expect(p, ")");
  return call;
}

/* A single name in parentheses is a type. */
static const ExpressionNode *parse_unary(Parser *p) {
  ExpressionNode *n = NULL;
  if (take(p, "-")) {
    n = new_node(EXPRESSION_UNARY, PRECEDENCE_UNARY, intern("-"));
  } else if (take(p, "(")) {
    const ExpressionNode *inner = parse_expression(p);
    expect(p, ")");
    if (inner->kind != EXPRESSION_NAME)
      return inner;
    n = new_node(EXPRESSION_CAST, PRECEDENCE_UNARY, inner->text);
  } else {
    return parse_primary(p);
  }
  add_part(n, parse_unary(p));
  return n;
}

typedef struct Operator {
  const char *text;
  Precedence precedence;
} Operator;

static const Operator *take_operator(Parser *p, Precedence precedence) {
  static const Operator operators[] = {
      {"==", PRECEDENCE_COMPARISON}, {"!=", PRECEDENCE_COMPARISON}, {">=", PRECEDENCE_COMPARISON},
      {"<=", PRECEDENCE_COMPARISON}, {">", PRECEDENCE_COMPARISON},  {"<", PRECEDENCE_COMPARISON},
      {"+", PRECEDENCE_SUM},         {"-", PRECEDENCE_SUM},         {"*", PRECEDENCE_FACTOR},
      {"/", PRECEDENCE_FACTOR},
  };
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    if (operators[i].precedence == precedence && take(p, format(" %s ", operators[i].text)))
      return &operators[i];
  return NULL;
}

/* Parses left-associative operators of this precedence, with operands of higher precedence. */
static const ExpressionNode *parse_binary(Parser *p, Precedence precedence) {
  if (precedence == PRECEDENCE_UNARY)
    return parse_unary(p);
  const ExpressionNode *left = parse_binary(p, precedence + 1);
  for (const Operator *o; (o = take_operator(p, precedence));) {
    ExpressionNode *n = new_node(EXPRESSION_BINARY, precedence, intern(o->text));
    add_part(n, left);
    add_part(n, parse_binary(p, precedence + 1));
    left = n;
  }
  return left;
}

static const ExpressionNode *parse_expression(Parser *p) {
  const ExpressionNode *condition = parse_binary(p, PRECEDENCE_COMPARISON);
  if (!take(p, " ? "))
    return condition;
  ExpressionNode *n = new_node(EXPRESSION_CONDITION, PRECEDENCE_CONDITION, NULL);
  add_part(n, condition);
  add_part(n, parse_expression(p));
  expect(p, " : ");
  add_part(n, parse_expression(p));
  return n;
}

/* Marks operands in n; chosen: n is conditional. */
static void mark_chosen(Expression *e, const ExpressionNode *n, bool chosen) {
  if (n->kind == EXPRESSION_OPERAND)
    e->chosen[n->index] |= chosen;
  for (int i = 0; i < n->n_parts; i++)
    mark_chosen(e, n->part[i], chosen || (n->kind == EXPRESSION_CONDITION && i > 0));
}

const Expression *expression_parse(const Op *op) {
  Expression *e = alloc(sizeof *e);
  Parser p = {.op = op, .at = op->expression, .e = e};
  e->root = parse_expression(&p);
  if (*p.at)
    fail(&p);
  mark_chosen(e, e->root, false);
  return e;
}

/* ---- the table of all ops ------------------------------------------------------------------------- */

enum { SLOTS = 256 }; /* open addressing, by address */

static struct {
  const Op *op;
  const Expression *e;
} table[SLOTS];

static unsigned slot_of(const Op *op) {
  unsigned slot = (unsigned)((uintptr_t)op / 64 % SLOTS);
  while (table[slot].op && table[slot].op != op)
    slot = (slot + 1) % SLOTS;
  return slot;
}

static void fill_table(void) {
  ensure(n_ops < SLOTS / 2);
  for (int i = 0; i < n_ops; i++) {
    unsigned slot = slot_of(all_ops[i]);
    table[slot].op = all_ops[i];
    table[slot].e = all_ops[i]->expression ? expression_parse(all_ops[i]) : NULL;
  }
}

const Expression *op_expression(const Op *op) {
  static bool filled;
  if (!filled) {
    Arena *before = arena_use(NULL);
    fill_table();
    arena_use(before);
  }
  filled = true;
  unsigned slot = slot_of(op);
  ensure(table[slot].op);
  return table[slot].e;
}

bool op_reads_words(const Op *op, unsigned words) {
  const Expression *e = op_expression(op);
  return e && (e->words & words);
}

bool op_reads_operand(const Op *op, int i) {
  const Expression *e = op_expression(op);
  return !e || (i < MAX_OPERANDS && e->mentions[i] > 0);
}

/* ---- text ----------------------------------------------------------------------------------------- */

typedef struct Writer {
  Text out;
  LeafText leaf, truth;
  void *context;
} Writer;

static bool is_leaf(const ExpressionNode *n) {
  return n->kind == EXPRESSION_OPERAND || n->kind == EXPRESSION_ATTRIBUTE || n->kind == EXPRESSION_WORD;
}

/* The least precedence at which a node's part needs no parentheses in C. */
static Precedence needed(const ExpressionNode *n, int part) {
  switch (n->kind) {
  case EXPRESSION_BINARY:
    return part > 0 || n->precedence == PRECEDENCE_COMPARISON ? n->precedence + 1 : n->precedence;
  case EXPRESSION_CONDITION: return part > 0 ? PRECEDENCE_CONDITION : PRECEDENCE_COMPARISON;
  case EXPRESSION_CALL: return PRECEDENCE_CONDITION;
  case EXPRESSION_CAST: return PRECEDENCE_UNARY;
  default: return PRECEDENCE_PRIMARY; /* "--x" would be a decrement */
  }
}

/* The same for the text of a leaf. */
static Precedence needed_of_leaf(const ExpressionNode *n, int part) {
  bool sum = n->precedence == PRECEDENCE_SUM || n->precedence == PRECEDENCE_FACTOR;
  if (n->kind == EXPRESSION_CONDITION && part > 0)
    return PRECEDENCE_COMPARISON;
  return sum || n->kind == EXPRESSION_CALL ? needed(n, part) : PRECEDENCE_PRIMARY;
}

static bool is_number(const ExpressionNode *n, const char *text) {
  return n->kind == EXPRESSION_NAME && !strcmp(n->text, text);
}

const ExpressionNode *expression_condition(const Expression *e) {
  const ExpressionNode *n = e->root;
  return n->kind == EXPRESSION_CONDITION && is_number(n->part[1], "1.0f") && is_number(n->part[2], "0.0f")
             ? n->part[0]
             : NULL;
}

static void write_node(Writer *w, const ExpressionNode *n);

/* Writes the condition "leaf != 0.0f" in other words; false: it has none. */
static bool write_truth(Writer *w, const ExpressionNode *n) {
  bool compares = n->kind == EXPRESSION_BINARY && !strcmp(n->text, "!=") && is_leaf(n->part[0]);
  if (!w->truth || !compares || !is_number(n->part[1], "0.0f"))
    return false;
  Fragment f = w->truth(w->context, n->part[0]);
  if (f.text)
    text_add(&w->out, f.precedence >= PRECEDENCE_COMPARISON ? "%s" : "(%s)", f.text);
  return f.text;
}

static void write_part(Writer *w, const ExpressionNode *n, int i) {
  const ExpressionNode *part = n->part[i];
  if (n->kind == EXPRESSION_CONDITION && i == 0 && write_truth(w, part))
    return;
  if (is_leaf(part)) {
    Fragment f = w->leaf(w->context, part);
    text_add(&w->out, f.precedence >= needed_of_leaf(n, i) ? "%s" : "(%s)", f.text);
    return;
  }
  bool bare = part->precedence >= needed(n, i);
  text_add(&w->out, "%s", bare ? "" : "(");
  write_node(w, part);
  text_add(&w->out, "%s", bare ? "" : ")");
}

static void write_node(Writer *w, const ExpressionNode *n) {
  switch (n->kind) {
  case EXPRESSION_CAST: text_add(&w->out, "(%s)", n->text); break;
  case EXPRESSION_CALL: text_add(&w->out, "%s(", n->text); break;
  case EXPRESSION_BINARY:
  case EXPRESSION_CONDITION: break;
  default: text_add(&w->out, "%s", n->text); break;
  }
  for (int i = 0; i < n->n_parts; i++) {
    if (i > 0 && n->kind == EXPRESSION_CALL)
      text_add(&w->out, ", ");
    else if (i > 0)
      text_add(&w->out, " %s ", n->kind == EXPRESSION_BINARY ? n->text : i == 1 ? "?" : ":");
    write_part(w, n, i);
  }
  if (n->kind == EXPRESSION_CALL)
    text_add(&w->out, ")");
}

Fragment expression_text(const Expression *e, LeafText leaf, LeafText truth, void *context) {
  Writer w = {.leaf = leaf, .truth = truth, .context = context};
  if (is_leaf(e->root))
    return leaf(context, e->root);
  write_node(&w, e->root);
  return (Fragment){w.out.at, e->root->precedence};
}
