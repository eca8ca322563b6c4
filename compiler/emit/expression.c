/* The text of a kernel's terms: one C expression each, put into the expression that uses it when that is the
 * only one. Parentheses keep the order of operations: rounding is the graph's. */
#include "emit/loops.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { LONGEST_OPERAND = 56 }; /* columns of an expression within another */

/* Where to break a line that is longer than `width`: behind the last comma that fits, else before the last operator;
 * 0 when there is neither. */
static size_t line_break(const char *text, size_t width) {
  size_t comma = 0, operator = 0;
  if (strlen(text) <= width)
    return 0;
  for (size_t i = 1; i <= width; i++) {
    if (text[i] == ' ' && text[i - 1] == ',')
      comma = i;
    else if (text[i] == ' ' && strchr("+-*/?:", text[i + 1]) && text[i + 2] == ' ')
      operator = i;
  }
  return comma ? comma : operator;
}

/* Long lines go on four columns in; directives do not. */
void print_line(Printer *p, const char *format_, ...) {
  enum { FURTHER = 4 };
  char text[4096], *rest = text;
  va_list args;
  va_start(args, format_);
  int n = vsnprintf(text, sizeof text, format_, args), indent = p->indent;
  va_end(args);
  ensure(n >= 0 && n < (int)sizeof text);
  for (size_t at; text[0] != '#' && (at = line_break(rest, (size_t)(WIDTH - indent))) > 0; rest += at + 1) {
    text_add(p->out, "%*s%.*s\n", indent, "", (int)at, rest);
    indent = p->indent + FURTHER;
  }
  text_add(p->out, "%*s%s\n", indent, "", rest);
}

Name parameter_of(const Printer *p, int buffer) {
  for (int i = 0; i < p->call.buffers.n; i++)
    if (p->call.buffers.at[i] == buffer)
      return p->parameter[i];
  BUG("a kernel has no parameter for buffer %d", buffer);
}

/* ---- indices --------------------------------------------------------------------------------- */

/* sum of index * stride over dims [from, end). */
char *index_sum(Printer *p, int64_t offset, const int64_t *stride, int from, int end) {
  Text out = {0};
  for (int i = from; i < end; i++) {
    if (stride[i] == 0 || p->kernel->dim[i] == 1)
      continue;
    p->reads_column |= i == row_dims(p->kernel);
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

/* An element of a store's partial sums: dense over the dims it moves along. */
char *sum_element(Printer *p, int store) {
  const Kernel *k = p->kernel;
  const Store *s = &k->stores.at[store];
  int64_t stride[MAX_DIM] = {0}, size = 1;
  for (int i = k->n_dims - 1; i >= parallel_dims(k); i--) {
    stride[i] = sum_moves(k, s, i) ? size : 0;
    size *= sum_moves(k, s, i) ? k->dim[i] : 1;
  }
  return format("%s[%s]", p->sum[store], index_sum(p, 0, stride, 0, k->n_dims));
}

/* ---- precedence ------------------------------------------------------------------------------ */

typedef enum { CONDITION, SUM, FACTOR, UNARY, PRIMARY } Precedence;

/* Of an op's expression as a whole. */
static Precedence precedence_of(const char *e) {
  if (!strncmp(e, "$0 + ", 5) || !strncmp(e, "$0 - ", 5))
    return SUM;
  if (!strncmp(e, "$0 * ", 5) || !strncmp(e, "$0 / ", 5))
    return FACTOR;
  if (!strcmp(e, "$0"))
    return CONDITION; /* whatever the operand is */
  if (!strcmp(e, "-$0") || !strncmp(e, "(float)", 7))
    return UNARY;
  size_t word = strspn(e, "abcdefghijklmnopqrstuvwxyz_");
  return word > 0 && e[word] == '(' && e[strlen(e) - 1] == ')' ? PRIMARY : CONDITION;
}

/* What an operand must at least have to need no parentheses where it stands. */
static Precedence required(const char *e, const char *at) {
  switch (precedence_of(e)) {
  case SUM: return at == e ? SUM : FACTOR;
  case FACTOR: return at == e ? FACTOR : UNARY;
  case PRIMARY: return CONDITION;
  default: return PRIMARY;
  }
}

/* ---- expressions ----------------------------------------------------------------------------- */

static char *attribute(const Term *t, const char *name) {
  for (int i = 0; i < MAX_ATTR && t->op->attr[i].name; i++)
    if (!strcmp(t->op->attr[i].name, name)) {
      double x = t->node->attr[i].number;
      if (t->op->attr[i].kind == ATTR_NUMBER)
        return float_literal(x);
      return format("%" PRId64, (int64_t)x);
    }
  BUG("op '%s' has no attribute '%s'", t->op->name, name);
}

/* Row-major index over the kernel's dims from `from` on; of a row alone for scalars. */
static char *linear(Printer *p, const Term *t, int from) {
  const Kernel *k = p->kernel;
  int64_t stride[MAX_DIM] = {0}, size = 1;
  for (int i = k->n_dims - 1; i >= from; i--) {
    bool left_out = t->scalar && i == row_dims(k);
    stride[i] = left_out ? 0 : size;
    size *= left_out ? 1 : k->dim[i];
  }
  return index_sum(p, 0, stride, from, k->n_dims);
}

static char *counter(Printer *p, const Term *t, const char *word) {
  const Kernel *k = p->kernel;
  if (!strcmp(word, "j")) {
    bool constant = t->scalar || columns(k) == 1;
    p->reads_column |= !constant;
    return format("%s", constant ? "0" : p->index[row_dims(k)]);
  }
  if (!strcmp(word, "i"))
    return linear(p, t, k->samples ? 1 : 0);
  const char *first = p->k->cuda ? "now->first_sample" : "first_sample";
  if (!strcmp(word, "s"))
    return k->samples && k->dim[0] > 1 ? format("%s + %s", first, p->index[0]) : format("%s", first);
  if (!strcmp(word, "following"))
    return format(p->k->cuda ? "now->following" : "pd_following(first_sample)");
  if (!strcmp(word, "seed") || !strcmp(word, "training"))
    return format("%s%s", p->k->cuda ? "now->" : "pd.", word);
  if (!strcmp(word, "scope"))
    for (int i = 0; i < p->call.keys.n; i++)
      if (&k->terms.at[p->call.keys.at[i]] == t)
        return format("%s", p->key[i]);
  BUG("op '%s': '$%s' in its expression", t->op->name, word);
}

static Precedence text_precedence(const Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (p->named[term] || t->kind != TERM_OP)
    return PRIMARY;
  if (!strcmp(t->op->expression, "$0"))
    return text_precedence(p, t->in[0]);
  return precedence_of(t->op->expression);
}

static char *operand(Printer *p, int term, Precedence at_least) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->kind == TERM_CONSTANT) {
    char *literal = float_literal(t->constant);
    return literal[0] == '-' && at_least > CONDITION ? format("(%s)", literal) : literal;
  }
  char *text = term_text(p, term);
  return text_precedence(p, term) < at_least ? format("(%s)", text) : text;
}

static char *expand(Printer *p, const Term *t) {
  Text out = {0};
  const char *e = t->op->expression;
  ensure(e);
  for (const char *c = e; *c;) {
    if (*c != '$') {
      text_add(&out, "%c", *c++);
    } else if (isdigit((unsigned char)c[1])) {
      ensure(c[1] - '0' < t->n_in);
      text_add(&out, "%s", operand(p, t->in[c[1] - '0'], required(e, c)));
      c += 2;
    } else if (c[1] == '{') {
      size_t n = strcspn(c + 2, "}");
      text_add(&out, "%s", attribute(t, intern_n(c + 2, n)));
      c += n + 3;
    } else {
      size_t n = 0;
      while (islower((unsigned char)c[1 + n]))
        n++;
      text_add(&out, "%s", counter(p, t, intern_n(c + 1, n)));
      c += n + 1;
    }
  }
  return out.at;
}

const char *type_of(const Printer *p, const Term *t) {
  if (t->kind == TERM_LOAD)
    return p->k->buffers.at[t->place.buffer].type == TYPE_TOKEN ? "int32_t" : "float";
  if (t->kind == TERM_OP && p->k->graph->values.at[t->node->out[0]].type == TYPE_TOKEN)
    return "int32_t";
  return "float";
}

/* The pass being printed reads a row back that an earlier pass kept. */
static bool reads_row(const Printer *p, int term) {
  return p->kept[term] && p->kernel->terms.at[term].phase < p->phase;
}

static char *definition(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (reads_row(p, term))
    return p->speech->kept(p, term);
  return t->kind == TERM_LOAD ? p->speech->load(p, term) : expand(p, t);
}

void name_term(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (p->named[term])
    return;
  char *text = definition(p, term);
  print_line(p, "const %s %s = %s;", type_of(p, t), p->term[term], text);
  p->named[term] = true;
}

char *term_text(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->kind == TERM_CONSTANT)
    return operand(p, term, CONDITION);
  if (p->named[term])
    return format("%s", p->term[term]);
  if (p->references[term] == 1 && !(t->scalar && t->kind == TERM_REDUCE)) {
    bool token = !strcmp(type_of(p, t), "int32_t");
    char *text = definition(p, term);
    if (strlen(text) <= LONGEST_OPERAND && !(token && t->kind == TERM_OP))
      return text;
    print_line(p, "const %s %s = %s;", type_of(p, t), p->term[term], text);
    p->named[term] = true;
    return format("%s", p->term[term]);
  }
  name_term(p, term);
  return format("%s", p->term[term]);
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

/* Adds an operand's mentions in the expression of a term. */
static void count_operands(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->kind != TERM_OP)
    return;
  for (const char *c = t->op->expression; (c = strchr(c, '$')); c++)
    if (isdigit((unsigned char)c[1]))
      p->references[t->in[c[1] - '0']]++;
}

/* How often a store's line mentions its value: an accumulator's, in both cases of `first`. */
static int store_mentions(const Printer *p, int store) {
  return !p->sum[store] && accumulator_store(p->k, &p->kernel->stores.at[store]) ? 2 : 1;
}

/* Scalars: their mentions in scalars and stores of any slot; one mentioned in a pass gets a name. Elements:
 * their mentions in pass `slot`. */
void count_references(Printer *p, int slot, bool scalars) {
  const Kernel *k = p->kernel;
  memset(p->references, 0, (size_t)k->terms.n * sizeof *p->references);
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i])
      continue;
    if (scalars && !t->scalar)
      for (int j = 0; j < t->n_in; j++)
        p->references[t->in[j]] += 2;
    if (scalars ? t->scalar : p->needed[i] && !reads_row(p, i))
      count_operands(p, i);
    if (t->kind == TERM_REDUCE && (scalars || t->phase == slot))
      p->references[t->in[0]] += scalars ? 2 : 1;
    if (!scalars && p->kept[i] && t->kind == TERM_OP && t->phase == slot)
      p->references[i] += 2;
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (scalars)
      p->references[s->term] += store_scalar(k, s) ? store_mentions(p, i) : 2;
    else if (!store_scalar(k, s) && s->phase == slot)
      p->references[s->term] += store_mentions(p, i);
  }
}
