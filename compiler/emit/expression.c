/* Prints a kernel's terms as C expressions; a term with one use is inlined there. Parentheses (ops/expression.h)
 * keep the graph's order of operations, because rounding depends on it. */
#include "emit/loops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { LONGEST_OPERAND = 56 }; /* columns of an inlined operand */

/* The position of a line break for text over `width`, 0: none. The break is after a comma or before an operator, within the
 * fewest parentheses, as late as fits; in the first third of a line only if there is no other. */
static size_t line_break(const char *text, size_t width) {
  size_t best = 0;
  int depth = 0, least = 0;
  if (strlen(text) <= width)
    return 0;
  for (size_t i = 1; i <= width; i++) {
    depth += (strchr("([{", text[i - 1]) != NULL) - (strchr(")]}", text[i - 1]) != NULL);
    bool sign = strchr("+-*/?:", text[i + 1]) && text[i + 2] == ' ';
    if (text[i] == ' ' && (text[i - 1] == ',' || sign) && (depth <= least || best < width / 3))
      best = i, least = depth;
  }
  return best;
}

/* Continuation lines are indented four columns; directives are not broken. */
void print_line(Printer *p, const char *format_, ...) {
  enum { FURTHER = 4 };
  va_list args, again;
  va_start(args, format_);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format_, args), indent = p->indent;
  va_end(args);
  ensure(n >= 0);
  char *text = alloc((size_t)n + 1), *rest = text;
  vsnprintf(text, (size_t)n + 1, format_, again);
  va_end(again);
  for (size_t at; text[0] != '#' && (at = line_break(rest, (size_t)(WIDTH - indent))) > 0; rest += at + 1) {
    text_add(p->out, "%*s%.*s\n", indent, "", (int)at, rest);
    indent = p->indent + FURTHER;
  }
  text_add(p->out, "%*s%s\n", indent, "", rest);
}

Name parameter_of(const Printer *p, int buffer) {
  for (int i = 0; i < p->arguments->buffers.n; i++)
    if (p->arguments->buffers.at[i] == buffer)
      return p->parameter[i];
  BUG("a kernel has no parameter for buffer %d", buffer);
}

/* ---- indices --------------------------------------------------------------------------------- */

/* Sum of index * stride over dims [from, end). */
char *index_sum(Printer *p, int64_t offset, const int64_t *stride, int from, int end) {
  Text out = {0};
  for (int i = from; i < end; i++) {
    if (stride[i] == 0 || p->kernel->dim[i] == 1)
      continue;
    p->reads_column |= i == p->shape->row_dims;
    text_add(&out, "%s%s", out.n ? " + " : "", p->index[i]);
    if (stride[i] != 1)
      text_add(&out, " * %" PRId64, stride[i]);
  }
  if (offset != 0 || out.n == 0)
    text_add(&out, "%s%" PRId64, out.n ? " + " : "", offset);
  return out.at;
}

char *element(Printer *p, const Place *place) {
  return format("%s[%s]", parameter_of(p, place->buffer),
                index_sum(p, place->offset, place->stride, 0, p->kernel->n_dims));
}

/* An element of a store's partial sums, which are dense over the store's moving dims. */
char *sum_element(Printer *p, int store) {
  const Kernel *k = p->kernel;
  const bool *moves = p->shape->store[store].moves;
  int64_t stride[MAX_DIM] = {0}, size = 1;
  for (int i = k->n_dims - 1; i >= p->shape->group_dims; i--) {
    stride[i] = moves[i] ? size : 0;
    size *= moves[i] ? k->dim[i] : 1;
  }
  return format("%s[%s]", p->sum[store], index_sum(p, 0, stride, 0, k->n_dims));
}

/* ---- expressions ----------------------------------------------------------------------------- */

static Fragment primary(const char *text) { return (Fragment){format("%s", text), PRECEDENCE_PRIMARY}; }

/* A negative literal is parenthesised beside any operator. */
static Fragment literal(double x) {
  return (Fragment){float_literal(x), signbit(x) && !isnan(x) ? PRECEDENCE_COMPARISON : PRECEDENCE_PRIMARY};
}

static Fragment attribute(const Term *t, int i) {
  double x = t->node->attr[i].number;
  return t->op->attr[i].kind == ATTR_NUMBER ? literal(x) : primary(format("%" PRId64, (int64_t)x));
}

/* Row-major index over the kernel's dims from `from` on; scalars have one per row. */
static char *linear(Printer *p, const Term *t, int from) {
  const Kernel *k = p->kernel;
  int64_t stride[MAX_DIM] = {0}, size = 1;
  for (int i = k->n_dims - 1; i >= from; i--) {
    bool left_out = t->scalar && i == p->shape->row_dims;
    stride[i] = left_out ? 0 : size;
    size *= left_out ? 1 : k->dim[i];
  }
  return index_sum(p, 0, stride, from, k->n_dims);
}

/* The same index as `first | v` in a loop over adjacent elements, whose bits are disjoint. The `|` tells nvcc that
 * neighbours share random numbers (pd_dropout). */
static Fragment element_number(Printer *p, const Term *t) {
  int from = p->kernel->samples ? 1 : 0, last = p->shape->row_dims, side_by_side = p->gpu ? p->gpu->vector : 1;
  Name j = p->index[last];
  bool column = p->reads_column;
  if (t->scalar || side_by_side == 1 || p->shape->columns % side_by_side)
    return (Fragment){linear(p, t, from), PRECEDENCE_SUM};
  p->index[last] = intern("j0");
  char *first = linear(p, t, from);
  p->index[last] = j;
  p->reads_column = column;
  p->reads_first = true;
  return (Fragment){format("(int64_t)(%s) | v", first), PRECEDENCE_CONDITION};
}

static Fragment column(Printer *p, const Term *t) {
  bool constant = t->scalar || p->shape->columns == 1;
  p->reads_column |= !constant;
  return primary(constant ? "0" : p->index[p->shape->row_dims]);
}

static Fragment sample(Printer *p) {
  const char *first = dialect_of(p->k)->word[WORD_SAMPLE];
  if (!p->kernel->samples || p->kernel->dim[0] == 1)
    return primary(first);
  return (Fragment){format("%s + %s", first, p->index[0]), PRECEDENCE_SUM};
}

static Fragment key(const Printer *p, const Term *t) {
  for (int i = 0; i < p->arguments->keys.n; i++)
    if (&p->kernel->terms.at[p->arguments->keys.at[i]] == t)
      return primary(p->key[i]);
  BUG("op '%s' has no key", t->op->name);
}

static Fragment word(Printer *p, const Term *t, Word w) {
  switch (w) {
  case WORD_COLUMN: return column(p, t);
  case WORD_ELEMENT: return element_number(p, t);
  case WORD_SAMPLE: return sample(p);
  case WORD_SCOPE: return key(p, t);
  default: return primary(dialect_of(p->k)->word[w]);
  }
}

static Fragment term_fragment(Printer *p, int term);

typedef struct Expanding {
  Printer *p;
  const Term *t;
} Expanding;

static Fragment leaf_text(void *context, const ExpressionNode *leaf) {
  const Expanding *x = context;
  switch (leaf->kind) {
  case EXPRESSION_OPERAND: ensure(leaf->index < x->t->n_in); return term_fragment(x->p, x->t->in[leaf->index]);
  case EXPRESSION_ATTRIBUTE: return attribute(x->t, leaf->index);
  default: return word(x->p, x->t, (Word)leaf->index);
  }
}

bool is_token(const Printer *p, const Term *t) {
  if (t->kind == TERM_LOAD)
    return p->k->buffers.at[t->place.buffer].type == TYPE_TOKEN;
  return t->kind == TERM_OP && p->k->graph->values.at[t->node->out[0]].type == TYPE_TOKEN;
}

const char *type_of(const Printer *p, const Term *t) { return is_token(p, t) ? "int32_t" : "float"; }

/* Whether the phase being printed reads a row that an earlier phase cached. */
static bool reads_row(const Printer *p, int term) {
  return p->cached[term] && p->kernel->terms.at[term].phase < p->phase;
}

/* Whether an operand's text stands in the place of its only mention. */
static bool is_inlined(const Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  return !p->named[term] && p->references[term] == 1 && !(t->scalar && t->kind == TERM_REDUCE);
}

/* The condition of an inlined comparison, so that a selection reads "a > b ? x : y". */
static Fragment truth_text(void *context, const ExpressionNode *leaf) {
  const Expanding *x = context;
  const int term = x->t->in[leaf->index];
  const Term *t = &x->p->kernel->terms.at[term];
  const Expression *e = t->kind == TERM_OP ? op_expression(t->op) : NULL;
  const ExpressionNode *condition = e ? expression_condition(e) : NULL;
  if (!condition || t->rounded || reads_row(x->p, term) || !is_inlined(x->p, term))
    return (Fragment){NULL, PRECEDENCE_PRIMARY};
  Fragment f = expression_text(&(Expression){.root = condition}, leaf_text, truth_text, &(Expanding){x->p, t});
  return strlen(f.text) <= LONGEST_OPERAND ? f : (Fragment){NULL, PRECEDENCE_PRIMARY};
}

char *rounded_text(const Term *t, char *text) { return t->rounded ? format("pd_rounded(%s)", text) : text; }

/* A load binds like a name, although its text may be "(float)x[j]". */
static Fragment definition(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (reads_row(p, term))
    return primary(p->dialect->cached(p, term));
  if (t->kind == TERM_LOAD)
    return primary(p->dialect->load(p, term));
  Fragment f = expression_text(op_expression(t->op), leaf_text, truth_text, &(Expanding){p, t});
  return t->rounded ? primary(rounded_text(t, f.text)) : f;
}

static void declare(Printer *p, int term, const char *text) {
  print_line(p, "const %s %s = %s;", type_of(p, &p->kernel->terms.at[term]), p->term[term], text);
  p->named[term] = true;
}

void name_term(Printer *p, int term) {
  if (!p->named[term])
    declare(p, term, definition(p, term).text);
}

static Fragment term_fragment(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->kind == TERM_CONSTANT)
    return literal(t->constant);
  if (is_inlined(p, term)) {
    Fragment f = definition(p, term);
    if (strlen(f.text) <= LONGEST_OPERAND && !(is_token(p, t) && t->kind == TERM_OP))
      return f;
    declare(p, term, f.text);
  }
  name_term(p, term);
  return primary(p->term[term]);
}

char *term_text(Printer *p, int term) { return term_fragment(p, term).text; }

char *stored_text(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  bool whole = t->kind == TERM_OP && is_inlined(p, term) && !is_token(p, t);
  return whole ? definition(p, term).text : term_text(p, term);
}

/* ---- references ------------------------------------------------------------------------------ */

int scalar_slot(const Kernel *k, int term) {
  const Term *t = &k->terms.at[term];
  if (t->kind == TERM_REDUCE)
    return t->phase + 1;
  int slot = t->kind == TERM_CONSTANT ? 0 : t->phase;
  for (int i = 0; i < t->n_in; i++) {
    int in = scalar_slot(k, t->in[i]);
    if (in > slot)
      slot = in;
  }
  return slot;
}

/* Counts the operands' mentions in a term's expression. Conditional operands get names, so their loads are
 * unconditional: a conditional load is a branch that blocks vectorisation. */
static void count_operands(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->kind != TERM_OP)
    return;
  const Expression *e = op_expression(t->op);
  for (int i = 0; i < t->n_in; i++)
    p->references[t->in[i]] += e->mentions[i] + e->chosen[i];
}

/* Mentions of the value in a store's line: an accumulator's line has it in both cases of `first`. */
static int store_mentions(const Printer *p, int store) {
  return !p->sum[store] && p->shape->store[store].accumulator ? 2 : 1;
}

/* Counts mentions of scalars in scalars and stores of any slot, or of elements in phase `slot`. A scalar mentioned
 * in a phase gets a name. */
void count_references(Printer *p, int slot, bool scalars) {
  const Kernel *k = p->kernel;
  memset(p->references, 0, (size_t)k->terms.n * sizeof *p->references);
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->shape->live[i])
      continue;
    if (scalars && !t->scalar)
      for (int j = 0; j < t->n_in; j++)
        p->references[t->in[j]] += 2;
    if (scalars ? t->scalar : p->needed[i] && !reads_row(p, i))
      count_operands(p, i);
    if (t->kind == TERM_REDUCE && (scalars || t->phase == slot))
      p->references[t->in[0]] += scalars ? 2 : 1;
    if (!scalars && p->cached[i] && t->kind == TERM_OP && t->phase == slot)
      p->references[i] += 2;
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (scalars)
      p->references[s->term] += p->shape->store[i].scalar ? store_mentions(p, i) : 2;
    else if (!p->shape->store[i].scalar && s->phase == slot)
      p->references[s->term] += store_mentions(p, i);
  }
}
