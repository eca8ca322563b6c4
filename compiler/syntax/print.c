/* Prints the Ast as .pdm text. */
#include "syntax/ast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expression(Text *t, const Ast *a, int above);

static void comma_list(Text *t, AstList list) {
  for (int i = 0; i < list.n; i++) {
    if (i)
      text_add(t, ", ");
    expression(t, list.at[i], 0);
  }
}

/* The precedence of an operator, as in the grammar; operators of one level are left-associative. */
static int level(Name operator) {
  static const char *const by_level[][8] = {{"or"},     {"and"},
                                            {"not"},    {"==", "!=", "<", "<=", ">", ">="},
                                            {"+", "-"}, {"*", "/", "%", "@", "//"}};
  for (int l = 0; l < 6; l++)
    for (int i = 0; i < 8 && by_level[l][i]; i++)
      if (strcmp(operator, by_level[l][i]) == 0)
        return l + 1;
  BUG("unknown operator %s", operator);
}

static void number(Text *t, double x) {
  char text[64];
  int digits = 15;
  do
    snprintf(text, sizeof text, "%.*g", digits++, x);
  while (strtod(text, NULL) != x && digits <= 17);
  text_add(t, "%s", text);
}

static void string(Text *t, const char *s) {
  text_add(t, "\"");
  for (; *s; s++)
    text_add(t, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
  text_add(t, "\"");
}

static void operation(Text *t, const Ast *a, int above) {
  int l = a->kind == AST_UNARY && a->name[0] == '-' ? 7 : level(a->name);
  bool parentheses = l < above;
  if (parentheses)
    text_add(t, "(");
  if (a->kind == AST_UNARY) {
    text_add(t, a->name[0] == '-' ? "-" : "not ");
    expression(t, a->a, l);
  } else {
    expression(t, a->a, l == 4 ? 5 : l); /* comparisons do not associate */
    text_add(t, " %s ", a->name);
    expression(t, a->b, l + 1);
  }
  if (parentheses)
    text_add(t, ")");
}

/* `above`: operators of lower precedence get parentheses; 8 for operands of postfixes. */
static void expression(Text *t, const Ast *a, int above) {
  switch (a->kind) {
  case AST_NUMBER:
    if (a->integral)
      text_add(t, "%.0f", a->number);
    else if (a->number == floor(a->number) && a->number < 1e6)
      text_add(t, "%.1f", a->number);
    else
      number(t, a->number);
    break;
  case AST_QUANTITY: text_add(t, "%s", a->text); break;
  case AST_WORD:
  case AST_NAME: text_add(t, "%s", a->name); break;
  case AST_STRING: string(t, a->text); break;
  case AST_BOOL: text_add(t, a->number != 0 ? "true" : "false"); break;
  case AST_LIST:
  case AST_TUPLE:
    text_add(t, a->kind == AST_LIST ? "[" : "(");
    comma_list(t, a->list);
    text_add(t, a->kind == AST_LIST ? "]" : ")");
    break;
  case AST_UNARY:
  case AST_BINARY: operation(t, a, above); break;
  case AST_ARGUMENT:
    if (a->name)
      text_add(t, "%s %s ", a->name, a->text ? a->text : "=");
    expression(t, a->a, 0);
    break;
  case AST_CALL:
  case AST_INDEX:
    expression(t, a->a, 8);
    text_add(t, a->kind == AST_CALL ? "(" : "[");
    comma_list(t, a->list);
    text_add(t, a->kind == AST_CALL ? ")" : "]");
    break;
  case AST_RANGE:
    if (a->a)
      expression(t, a->a, 0);
    text_add(t, "..");
    if (a->b)
      expression(t, a->b, 0);
    break;
  case AST_MEMBER:
    expression(t, a->a, 8);
    text_add(t, ".%s", a->name);
    break;
  case AST_LABEL:
    if (above == 8)
      text_add(t, "(");
    expression(t, a->a, 8);
    text_add(t, ": ");
    expression(t, a->b, 8);
    if (above == 8)
      text_add(t, ")");
    break;
  default: BUG("no expression: %d", a->kind);
  }
}

char *ast_text(const Ast *ast) {
  Text t = {0};
  expression(&t, ast, 0);
  return t.at;
}

/* ---- statements and items ------------------------------------------------------------------ */

static void statement(Text *t, const Ast *a, int indent);

static void block(Text *t, const Ast *a, int indent) {
  text_add(t, "{\n");
  for (int i = 0; i < a->list.n; i++)
    statement(t, a->list.at[i], indent + 2);
  text_add(t, "%*s}", indent, "");
}

static void declaration(Text *t, const char *keyword, const Ast *a, const char *before_value) {
  text_add(t, "%s%s", keyword, a->name);
  if (a->list.n || a->dims || a->kind == AST_INPUT || a->kind == AST_TARGET) {
    text_add(t, "[");
    comma_list(t, a->list);
    text_add(t, "]");
  }
  if (a->a) {
    text_add(t, "%s", before_value);
    expression(t, a->a, 0);
  }
  if (a->b) {
    text_add(t, ", ");
    expression(t, a->b, 0);
  }
}

static void condition(Text *t, const Ast *a, int indent) {
  text_add(t, "if ");
  expression(t, a->a, 0);
  text_add(t, " ");
  block(t, a->b, indent);
  if (!a->c)
    return;
  text_add(t, " else ");
  if (a->c->kind == AST_IF)
    condition(t, a->c, indent);
  else
    block(t, a->c, indent);
}

static void frozen(Text *t, const Ast *a) {
  text_add(t, "%s ", a->name);
  expression(t, a->a, 0);
  if (a->b) {
    text_add(t, " %s ", a->text);
    expression(t, a->b, 0);
  }
}

static void group(Text *t, const Ast *a, int indent) {
  text_add(t, a->text ? "%s %s " : "%s ", a->name, a->text);
  if (a->a)
    expression(t, a->a, 0);
  text_add(t, a->a ? " {\n" : "{\n");
  for (int i = 0; i < a->list.n; i++)
    statement(t, a->list.at[i], indent + 2);
  text_add(t, "%*s}", indent, "");
}

static void statement(Text *t, const Ast *a, int indent) {
  text_add(t, "%*s", indent, "");
  bool semicolon = true;
  switch (a->kind) {
  case AST_ASSIGN:
    comma_list(t, a->list);
    text_add(t, " = ");
    expression(t, a->a, 0);
    break;
  case AST_SCAN:
    comma_list(t, a->list);
    text_add(t, " = ");
    expression(t, a->a, 0);
    text_add(t, " ");
    block(t, a->b, indent);
    semicolon = false;
    break;
  case AST_EXPRESSION: expression(t, a->a, 0); break;
  case AST_PARAM: declaration(t, "param ", a, " = "); break;
  case AST_BUFFER: declaration(t, "buffer ", a, " = "); break;
  case AST_INPUT: declaration(t, "input ", a, " : "); break;
  case AST_TARGET: declaration(t, "target ", a, " : "); break;
  case AST_LOSS:
    text_add(t, "loss ");
    expression(t, a->a, 0);
    break;
  case AST_METRIC: declaration(t, "metric ", a, " = "); break;
  case AST_OUTPUT: declaration(t, "output ", a, " = "); break;
  case AST_RETURN:
    text_add(t, "return ");
    comma_list(t, a->list);
    break;
  case AST_IF:
    condition(t, a, indent);
    semicolon = false;
    break;
  case AST_FOR:
    text_add(t, "for %s in ", a->name);
    expression(t, a->a, 0);
    text_add(t, " ");
    block(t, a->b, indent);
    semicolon = false;
    break;
  case AST_SETTING:
    text_add(t, "%s = ", a->name);
    expression(t, a->a, 0);
    break;
  case AST_FREEZE: frozen(t, a); break;
  case AST_GROUP:
    group(t, a, indent);
    semicolon = false;
    break;
  default: BUG("no statement: %d", a->kind);
  }
  text_add(t, semicolon ? ";\n" : "\n");
}

static void item(Text *t, const Ast *a) {
  switch (a->kind) {
  case AST_USE: text_add(t, "use %s;\n", a->name); break;
  case AST_LAYER:
  case AST_MODEL:
    text_add(t, "%s %s(", a->kind == AST_LAYER ? "layer" : "model", a->name);
    for (int i = 0; i < a->list.n; i++)
      declaration(t, i ? ", " : "", a->list.at[i], " = ");
    text_add(t, ") ");
    block(t, a->a, 0);
    text_add(t, "\n");
    break;
  case AST_TRAIN:
  case AST_CLUSTER:
    text_add(t, "%s %s {\n", a->kind == AST_TRAIN ? "train" : "cluster", a->name);
    for (int i = 0; i < a->list.n; i++)
      statement(t, a->list.at[i], 2);
    text_add(t, "}\n");
    break;
  default: BUG("no item: %d", a->kind);
  }
}

void ast_print(const Ast *ast, FILE *out) {
  Text t = {0};
  ensure(ast->kind == AST_FILE);
  for (int i = 0; i < ast->list.n; i++) {
    if (i && (ast->list.at[i]->kind != AST_USE || ast->list.at[i - 1]->kind != AST_USE))
      text_add(&t, "\n");
    item(&t, ast->list.at[i]);
  }
  if (t.n)
    fputs(t.at, out);
}
