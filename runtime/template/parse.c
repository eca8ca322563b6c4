/* Tokens to a tree, with the precedence of Jinja's parser. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

struct parsing {
  struct pd_template *to;
  const struct pd_token *token;
  int depth, loops;
  bool failed;
  char *why;
};

/* ---- tokens -------------------------------------------------------------------------------------- */

static struct pd_node *refuse(struct parsing *p, int line, const char *what, struct pd_text shown) {
  if (!p->failed)
    pd_refuse(p->why, "line %d: %s%.*s", line, what, (int)(shown.n > 60 ? 60 : shown.n), shown.at ? shown.at : "");
  p->failed = true;
  return NULL;
}

static struct pd_node *refuse_token(struct parsing *p, const char *expected) {
  const struct pd_token *t = p->token;
  if (!p->failed && t->kind == PD_T_END)
    pd_refuse(p->why, "line %d: the template ends where %s is expected", t->line, expected);
  else if (!p->failed)
    pd_refuse(p->why, "line %d: %s is expected before '%.*s'", t->line, expected,
              (int)(t->text.n > 60 ? 60 : t->text.n), t->text.at);
  p->failed = true;
  return NULL;
}

static bool is_sign(const struct parsing *p, const char *sign) {
  return p->token->kind == PD_T_SIGN && pd_text_is(p->token->text, sign);
}
static bool is_word(const struct parsing *p, const char *word) {
  return p->token->kind == PD_T_NAME && pd_text_is(p->token->text, word);
}
static bool takes_sign(struct parsing *p, const char *sign) {
  if (p->failed || !is_sign(p, sign)) return false;
  p->token++;
  return true;
}
static bool takes_word(struct parsing *p, const char *word) {
  if (p->failed || !is_word(p, word)) return false;
  p->token++;
  return true;
}
static void expect_sign(struct parsing *p, const char *sign) {
  char shown[8] = "'";
  strcat(strcat(shown, sign), "'");
  if (!takes_sign(p, sign)) refuse_token(p, shown);
}
static void expect_end(struct parsing *p, enum pd_token_kind kind) {
  if (p->token->kind != kind)
    refuse_token(p, kind == PD_T_BLOCK_END ? "'%}'" : "'}}'");
  else if (!p->failed)
    p->token++;
}

static struct pd_text take_name(struct parsing *p) {
  if (p->token->kind != PD_T_NAME) refuse_token(p, "a name");
  return p->failed ? (struct pd_text){"", 0} : (p->token++)->text;
}

static struct pd_node *node(struct parsing *p, enum pd_node_kind kind) {
  struct pd_node *n = pd_arena_alloc(&p->to->arena, sizeof *n);
  n->kind = kind;
  n->line = p->token->line;
  return n;
}

/* Adds an item, and its name. */
static void add_item(struct parsing *p, struct pd_node *to, struct pd_node *item, struct pd_text name) {
  if ((to->n & (to->n - 1)) == 0) { /* the room is the next power of two */
    const size_t room = to->n ? 2 * (size_t)to->n : 1;
    struct pd_node **items = pd_arena_alloc(&p->to->arena, sizeof *items * room);
    struct pd_text *names = pd_arena_alloc(&p->to->arena, sizeof *names * room);
    if (to->n) memcpy(items, to->items, sizeof *items * (size_t)to->n);
    if (to->n) memcpy(names, to->names, sizeof *names * (size_t)to->n);
    to->items = items;
    to->names = names;
  }
  to->items[to->n] = item;
  to->names[to->n++] = name;
  to->n_names = to->n;
}

static const struct pd_text no_name = {"", 0};

static bool enters(struct parsing *p) {
  if (!p->failed && p->depth == PD_MOST_DEPTH)
    refuse(p, p->token->line, "the template is nested too deeply", no_name);
  p->depth++;
  return !p->failed;
}

/* ---- expressions --------------------------------------------------------------------------------- */

static struct pd_node *expression(struct parsing *p);

static struct pd_node *literal(struct parsing *p, struct pd_value v) {
  struct pd_node *n = node(p, PD_N_LITERAL);
  n->value = v;
  return n;
}

static struct pd_node *strings(struct parsing *p) {
  struct pd_writer w = {.arena = &p->to->arena};
  struct pd_node *n = node(p, PD_N_LITERAL);
  for (; p->token->kind == PD_T_STRING; p->token++) pd_write(&w, p->token->text.at, p->token->text.n);
  n->value = pd_value_text(pd_written(&w));
  return n;
}

/* Items up to a bracket, which is taken. */
static struct pd_node *items(struct parsing *p, struct pd_node *to, const char *close) {
  while (!p->failed && !takes_sign(p, close)) {
    if (to->n && !takes_sign(p, ",")) return refuse_token(p, "',' or a bracket");
    if (takes_sign(p, close)) break;
    add_item(p, to, expression(p), no_name);
  }
  return to;
}

/* Within brackets: an expression, or a tuple, which is a list here. */
static struct pd_node *bracketed(struct parsing *p) {
  struct pd_node *list = node(p, PD_N_LIST);
  list->tuple = true;
  if (takes_sign(p, ")")) return list;
  struct pd_node *first = expression(p);
  if (takes_sign(p, ")")) return first;
  if (!is_sign(p, ",")) return refuse_token(p, "')'");
  add_item(p, list, first, no_name);
  return items(p, list, ")");
}

static struct pd_node *dict(struct parsing *p) {
  struct pd_node *n = node(p, PD_N_DICT);
  while (!p->failed && !takes_sign(p, "}")) {
    if (n->n) expect_sign(p, ",");
    if (takes_sign(p, "}")) break;
    add_item(p, n, expression(p), no_name);
    expect_sign(p, ":");
    add_item(p, n, expression(p), no_name);
  }
  return n;
}

static struct pd_node *primary(struct parsing *p) {
  static const struct {
    const char *name;
    int value; /* 2: none */
  } constants[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", 2}, {"None", 2}};
  const struct pd_token *t = p->token;
  if (t->kind == PD_T_STRING) return strings(p);
  if (t->kind == PD_T_INT || t->kind == PD_T_FLOAT) {
    struct pd_node *n = literal(p, t->kind == PD_T_INT ? pd_int(t->whole) : pd_float(t->number));
    p->token++;
    return n;
  }
  if (takes_sign(p, "(")) return bracketed(p);
  if (takes_sign(p, "[")) return items(p, node(p, PD_N_LIST), "]");
  if (takes_sign(p, "{")) return dict(p);
  if (t->kind != PD_T_NAME) return refuse_token(p, "an expression");
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    if (takes_word(p, constants[i].name))
      return literal(p, constants[i].value == 2 ? pd_none() : pd_true(constants[i].value));
  struct pd_node *n = node(p, PD_N_NAME);
  n->name = take_name(p);
  return n;
}

/* Arguments up to ')'. */
static void arguments(struct parsing *p, struct pd_node *to) {
  while (!p->failed && !takes_sign(p, ")")) {
    struct pd_text name = no_name;
    if (to->n) expect_sign(p, ",");
    if (takes_sign(p, ")")) break;
    if (is_sign(p, "*") || is_sign(p, "**")) {
      refuse(p, p->token->line, "argument lists with * are not supported", no_name);
      return;
    }
    if (p->token->kind == PD_T_NAME && p->token[1].kind == PD_T_SIGN && pd_text_is(p->token[1].text, "=")) {
      name = take_name(p);
      p->token++;
    }
    add_item(p, to, expression(p), name);
    if (to->n > PD_MOST_ARGUMENTS) refuse(p, to->line, "a call has too many arguments", no_name);
  }
}

/* Behind '[': an index or a slice. */
static struct pd_node *subscript(struct parsing *p, struct pd_node *of) {
  struct pd_node *n = node(p, PD_N_ITEM);
  n->a = of;
  if (!is_sign(p, ":")) n->b = expression(p);
  if (takes_sign(p, "]")) return n;
  n->kind = PD_N_SLICE;
  expect_sign(p, ":");
  if (!is_sign(p, ":") && !is_sign(p, "]")) n->c = expression(p);
  if (takes_sign(p, ":") && !is_sign(p, "]")) n->d = expression(p);
  expect_sign(p, "]");
  return n;
}

static struct pd_node *call(struct parsing *p, struct pd_node *of) {
  struct pd_node *n = node(p, PD_N_CALL);
  n->a = of;
  arguments(p, n);
  if (of && of->kind == PD_N_MEMBER && !pd_is_method(of->name, NULL))
    return refuse(p, n->line, "this method is not supported: ", of->name);
  return n;
}

static struct pd_node *postfix(struct parsing *p, struct pd_node *n) {
  for (int depth = 0; !p->failed; depth++) {
    if (depth > PD_MOST_DEPTH) return refuse(p, p->token->line, "the template is nested too deeply", no_name);
    if (takes_sign(p, ".")) {
      struct pd_node *member = node(p, PD_N_MEMBER);
      member->a = n;
      member->name = take_name(p);
      n = member;
    } else if (takes_sign(p, "["))
      n = subscript(p, n);
    else if (takes_sign(p, "("))
      n = call(p, n);
    else
      break;
  }
  return n;
}

static struct pd_node *filter(struct parsing *p, struct pd_node *of) {
  struct pd_node *n = node(p, PD_N_FILTER);
  n->a = of;
  n->name = take_name(p);
  if (!p->failed && !pd_is_filter(n->name)) return refuse(p, n->line, "this filter is not supported: ", n->name);
  if (takes_sign(p, "(")) arguments(p, n);
  return n;
}

/* Whether the token begins the argument of a test without brackets, as in `is equalto 1`. */
static bool begins_argument(const struct parsing *p) {
  const struct pd_token *t = p->token;
  if (t->kind == PD_T_NAME)
    return !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and") && !is_word(p, "if") &&
           !is_word(p, "in");
  return t->kind == PD_T_STRING || t->kind == PD_T_INT || t->kind == PD_T_FLOAT || is_sign(p, "[") ||
         is_sign(p, "{");
}

static struct pd_node *test(struct parsing *p, struct pd_node *of) {
  struct pd_node *n = node(p, PD_N_TEST);
  n->a = of;
  n->negated = takes_word(p, "not");
  n->name = take_name(p);
  if (!p->failed && !pd_is_check(n->name)) return refuse(p, n->line, "this test is not supported: ", n->name);
  if (takes_sign(p, "("))
    arguments(p, n);
  else if (!p->failed && begins_argument(p))
    add_item(p, n, postfix(p, primary(p)), no_name);
  return n;
}

static struct pd_node *filters_and_tests(struct parsing *p, struct pd_node *n) {
  for (int depth = 0; !p->failed; depth++) {
    if (depth > PD_MOST_DEPTH) return refuse(p, p->token->line, "the template is nested too deeply", no_name);
    if (takes_sign(p, "|"))
      n = filter(p, n);
    else if (takes_word(p, "is"))
      n = test(p, n);
    else if (takes_sign(p, "("))
      n = call(p, n);
    else
      break;
  }
  return n;
}

static struct pd_node *unary(struct parsing *p, bool filters) {
  if (!enters(p)) return NULL;
  struct pd_node *n;
  if (is_sign(p, "-") || is_sign(p, "+")) {
    n = node(p, is_sign(p, "-") ? PD_N_MINUS : PD_N_PLUS);
    p->token++;
    n->a = unary(p, false);
  } else
    n = primary(p);
  n = postfix(p, n);
  if (filters) n = filters_and_tests(p, n);
  p->depth--;
  return n;
}

/* The operators of one level, from left to right. */
static struct pd_node *binary(struct parsing *p, struct pd_node *(*next)(struct parsing *p),
                              const char *const *signs) {
  struct pd_node *left = next(p);
  int depth = 0;
  for (int i = 0; signs[i] && !p->failed; i++) {
    if (!is_sign(p, signs[i])) continue;
    if (++depth > PD_MOST_DEPTH * 10) return refuse(p, p->token->line, "an expression is too long", no_name);
    struct pd_node *n = node(p, PD_N_BINARY);
    n->name = (p->token++)->text;
    n->a = left;
    n->b = next(p);
    left = n;
    i = -1;
  }
  return left;
}

static struct pd_node *power(struct parsing *p) {
  struct pd_node *n = unary(p, true);
  return is_sign(p, "**") ? refuse(p, p->token->line, "this operator is not supported: ", p->token->text) : n;
}

static struct pd_node *product(struct parsing *p) {
  static const char *const signs[] = {"*", "/", "//", "%", NULL};
  return binary(p, power, signs);
}

static struct pd_node *joined(struct parsing *p) {
  struct pd_node *n = product(p);
  if (!is_sign(p, "~")) return n;
  struct pd_node *all = node(p, PD_N_JOIN);
  add_item(p, all, n, no_name);
  while (takes_sign(p, "~")) add_item(p, all, product(p), no_name);
  return all;
}

static struct pd_node *sum(struct parsing *p) {
  static const char *const signs[] = {"+", "-", NULL};
  return binary(p, joined, signs);
}

/* The operator of a comparison, which is taken; an empty text: none. */
static struct pd_text comparison_sign(struct parsing *p) {
  static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
    if (takes_sign(p, signs[i])) return pd_text_of(signs[i]);
  if (takes_word(p, "in")) return pd_text_of("in");
  if (!is_word(p, "not") || p->token[1].kind != PD_T_NAME || !pd_text_is(p->token[1].text, "in")) return no_name;
  p->token += 2;
  return pd_text_of("not in");
}

static struct pd_node *comparison(struct parsing *p) {
  struct pd_node *n = node(p, PD_N_COMPARE);
  n->a = sum(p);
  for (struct pd_text sign; !p->failed && (sign = comparison_sign(p)).n;) add_item(p, n, sum(p), sign);
  return n->n ? n : n->a;
}

static struct pd_node *negation(struct parsing *p) {
  if (!is_word(p, "not")) return comparison(p);
  struct pd_node *n = node(p, PD_N_NOT);
  p->token++;
  if (enters(p)) n->a = negation(p);
  p->depth--;
  return n;
}

/* Operands with the word between them; a single one is itself. */
static struct pd_node *chain(struct parsing *p, const char *word, int kind,
                             struct pd_node *(*operand)(struct parsing *)) {
  struct pd_node *n = operand(p);
  if (!is_word(p, word)) return n;
  struct pd_node *all = node(p, kind);
  add_item(p, all, n, no_name);
  while (takes_word(p, word)) add_item(p, all, operand(p), no_name);
  return all;
}

static struct pd_node *all_of(struct parsing *p) { return chain(p, "and", PD_N_AND, negation); }

static struct pd_node *any_of(struct parsing *p) { return chain(p, "or", PD_N_OR, all_of); }

static struct pd_node *expression(struct parsing *p) {
  if (!enters(p)) return NULL;
  struct pd_node *n = any_of(p);
  while (takes_word(p, "if")) {
    struct pd_node *choice = node(p, PD_N_CHOICE);
    choice->a = n;
    choice->b = any_of(p);
    if (takes_word(p, "else")) choice->c = expression(p);
    n = choice;
  }
  p->depth--;
  return n;
}

/* An expression, or a tuple without brackets. */
static struct pd_node *expressions(struct parsing *p, struct pd_node *(*one)(struct parsing *p)) {
  struct pd_node *n = one(p);
  if (!is_sign(p, ",")) return n;
  struct pd_node *list = node(p, PD_N_LIST);
  list->tuple = true;
  add_item(p, list, n, no_name);
  while (takes_sign(p, ",") && p->token->kind != PD_T_BLOCK_END) add_item(p, list, one(p), no_name);
  return list;
}

/* ---- statements ---------------------------------------------------------------------------------- */

static struct pd_node *body(struct parsing *p, const char *const *ends);

static const char *const ends_if[] = {"elif", "else", "endif", NULL};
static const char *const ends_for[] = {"else", "endfor", NULL};

/* Behind the word `if` or `elif`, up to and with the block of `endif`. */
static struct pd_node *if_statement(struct parsing *p) {
  struct pd_node *first = node(p, PD_N_IF), *n = first;
  for (;;) {
    n->b = expressions(p, any_of);
    expect_end(p, PD_T_BLOCK_END);
    n->a = body(p, ends_if);
    if (!takes_word(p, "elif")) break;
    n->c = node(p, PD_N_IF);
    n = n->c;
  }
  if (takes_word(p, "else")) {
    expect_end(p, PD_T_BLOCK_END);
    n->c = body(p, ends_if + 2);
  }
  if (!takes_word(p, "endif")) refuse_token(p, "endif");
  return first;
}

static void target_names(struct parsing *p, struct pd_node *n) {
  const bool brackets = takes_sign(p, "(");
  do add_item(p, n, NULL, take_name(p));
  while (takes_sign(p, ","));
  if (brackets) expect_sign(p, ")");
}

static struct pd_node *for_statement(struct parsing *p) {
  struct pd_node *n = node(p, PD_N_FOR);
  target_names(p, n);
  if (!takes_word(p, "in")) return refuse_token(p, "'in'");
  n->a = expressions(p, any_of);
  if (takes_word(p, "if")) n->b = expression(p);
  if (is_word(p, "recursive")) return refuse(p, n->line, "recursive loops are not supported", no_name);
  expect_end(p, PD_T_BLOCK_END);
  p->loops++;
  n->c = body(p, ends_for);
  p->loops--;
  if (takes_word(p, "else")) {
    expect_end(p, PD_T_BLOCK_END);
    n->d = body(p, ends_for + 1);
  }
  if (!takes_word(p, "endfor")) refuse_token(p, "endfor");
  return n;
}

static struct pd_node *set_statement(struct parsing *p) {
  static const char *const ends[] = {"endset", NULL};
  struct pd_node *n = node(p, PD_N_SET);
  n->name = take_name(p);
  if (takes_sign(p, ".")) {
    n->kind = PD_N_SET_MEMBER;
    add_item(p, n, NULL, take_name(p));
  }
  if (is_sign(p, ",")) return refuse(p, n->line, "setting several variables at once is not supported", no_name);
  if (takes_sign(p, "=")) {
    n->a = expressions(p, expression);
    return n;
  }
  if (n->kind == PD_N_SET_MEMBER || is_sign(p, "|")) return refuse_token(p, "'='");
  n->kind = PD_N_SET_BLOCK;
  expect_end(p, PD_T_BLOCK_END);
  n->c = body(p, ends);
  if (!takes_word(p, "endset")) refuse_token(p, "endset");
  return n;
}

static struct pd_node *macro_statement(struct parsing *p) {
  static const char *const ends[] = {"endmacro", NULL};
  struct pd_node *n = node(p, PD_N_MACRO);
  const int loops = p->loops;
  n->name = take_name(p);
  expect_sign(p, "(");
  while (!p->failed && !takes_sign(p, ")")) {
    if (n->n) expect_sign(p, ",");
    struct pd_text name = take_name(p);
    add_item(p, n, takes_sign(p, "=") ? expression(p) : NULL, name);
    if (n->n > PD_MOST_ARGUMENTS) refuse(p, n->line, "a macro has too many arguments", no_name);
  }
  expect_end(p, PD_T_BLOCK_END);
  p->loops = 0;
  n->c = body(p, ends);
  p->loops = loops;
  if (!takes_word(p, "endmacro")) refuse_token(p, "endmacro");
  return n;
}

static struct pd_node *generation_statement(struct parsing *p) {
  static const char *const ends[] = {"endgeneration", NULL};
  struct pd_node *n = node(p, PD_N_GENERATION);
  const int loops = p->loops;
  expect_end(p, PD_T_BLOCK_END);
  p->to->marks = true;
  p->loops = 0;
  n->c = body(p, ends);
  p->loops = loops;
  if (!takes_word(p, "endgeneration")) refuse_token(p, "endgeneration");
  return n;
}

/* Behind "{%": a statement up to its last block's end. */
static struct pd_node *statement(struct parsing *p) {
  struct pd_node *n = NULL;
  const struct pd_token *t = p->token;
  if (takes_word(p, "if"))
    n = if_statement(p);
  else if (takes_word(p, "for"))
    n = for_statement(p);
  else if (takes_word(p, "set"))
    n = set_statement(p);
  else if (takes_word(p, "macro"))
    n = macro_statement(p);
  else if (takes_word(p, "generation"))
    n = generation_statement(p);
  else if (is_word(p, "break") || is_word(p, "continue")) {
    if (!p->loops) return refuse(p, t->line, "there is no loop around ", t->text);
    n = node(p, is_word(p, "break") ? PD_N_BREAK : PD_N_CONTINUE);
    p->token++;
  } else
    return refuse(p, t->line, "this statement is not supported: ", t->text);
  expect_end(p, PD_T_BLOCK_END);
  return n;
}

/* Statements up to a block that begins with one of `ends`, whose "{%" is taken, or without `ends` to the end. */
static struct pd_node *body(struct parsing *p, const char *const *ends) {
  struct pd_node *all = node(p, PD_N_BODY), *n;
  if (!enters(p)) return all;
  while (!p->failed && p->token->kind != PD_T_END) {
    const struct pd_token *t = p->token++;
    if (t->kind == PD_T_DATA) {
      n = literal(p, pd_value_text(t->text));
      n->kind = PD_N_DATA;
    } else if (t->kind == PD_T_PRINT) {
      n = node(p, PD_N_PRINT);
      n->a = expressions(p, expression);
      expect_end(p, PD_T_PRINT_END);
    } else {
      bool ended = false;
      for (int i = 0; ends && ends[i]; i++) ended |= is_word(p, ends[i]);
      if (ended) {
        p->depth--;
        return all;
      }
      n = statement(p);
    }
    add_item(p, all, n, no_name);
  }
  p->depth--;
  if (ends) refuse_token(p, ends[1] && ends[2] ? ends[2] : ends[1] ? ends[1] : ends[0]);
  return all;
}

struct pd_template *pd_template_parse(const char *text, size_t bytes, char *why) {
  struct pd_template *t = calloc(1, sizeof *t);
  if (!t) {
    pd_refuse(why, "out of memory");
    return NULL;
  }
  struct parsing p = {.to = t, .why = why};
  p.token = pd_template_lex(&t->arena, text, bytes, why);
  if (p.token) t->body = body(&p, NULL);
  if (p.token && !p.failed) return t;
  pd_template_close(t);
  return NULL;
}

void pd_template_close(struct pd_template *t) {
  if (t) pd_arena_free(&t->arena);
  free(t);
}

bool pd_template_marks(const struct pd_template *t) { return t->marks; }
