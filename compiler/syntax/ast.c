/* Builds Ast nodes and makes the checks that the grammar cannot. */
#include "syntax/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

Ast *ast_new(AstKind kind, Span span) {
  Ast *a = alloc(sizeof *a);
  a->kind = kind;
  a->span = a->span2 = span;
  return a;
}

Span span_join(Span first, Span last) {
  return (Span){first.file, first.line, first.column, last.end_line, last.end_column};
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

bool ast_equal(const Ast *a, const Ast *b) {
  if (!a || !b)
    return a == b;
  if (a->kind != b->kind || a->integral != b->integral || a->dims != b->dims || a->name != b->name ||
      !same_text(a->text, b->text) || a->number != b->number || a->list.n != b->list.n)
    return false;
  for (int i = 0; i < a->list.n; i++)
    if (!ast_equal(a->list.at[i], b->list.at[i]))
      return false;
  return ast_equal(a->a, b->a) && ast_equal(a->b, b->b) && ast_equal(a->c, b->c);
}

/* ---- literals ------------------------------------------------------------------------------ */

Ast *parse_number(Parse *p, const char *text, Span where) {
  Ast *a = ast_new(AST_NUMBER, where);
  a->number = strtod(text, NULL);
  a->integral = !strpbrk(text, ".eE");
  if (isfinite(a->number) && (!a->integral || a->number <= 9007199254740992.0))
    return a;
  error_at(where, "PD0006", "this number is too large");
  parse_erred(p);
  a->number = 0;
  return a;
}

Ast *parse_quantity(const char *text, Span where) {
  double value;
  const char *base;
  if (!quantity_read(text, &value, &base))
    return NULL;
  size_t number = strcspn(text, " \tBKMGTPFbsmun");
  Ast *a = ast_new(AST_QUANTITY, where);
  a->text = format("%.*s %s", (int)number, text, text + number + strspn(text + number, " \t"));
  a->number = value;
  a->name = intern(base);
  return a;
}

Ast *parse_word(const char *text, Span where) {
  Ast *a = ast_new(AST_WORD, where);
  a->name = intern(text);
  return a;
}

Ast *parse_string(const char *text, Span where) {
  Ast *a = ast_new(AST_STRING, where);
  char *out = alloc(strlen(text) + 1);
  a->text = out;
  for (const char *c = text + 1; *c && *c != '"'; c++) {
    if (*c == '\\')
      c++;
    *out++ = *c;
  }
  return a;
}

/* ---- expressions --------------------------------------------------------------------------- */

Ast *parse_binary(Ast *a, Name operator, Span where, Ast *b) {
  Ast *n = ast_new(AST_BINARY, span_join(a->span, b->span));
  n->name = operator;
  n->span2 = where;
  n->a = a;
  n->b = b;
  return n;
}

Ast *parse_unary(Name operator, Span where, Ast *a) {
  Ast *n = ast_new(AST_UNARY, span_join(where, a->span));
  n->name = operator;
  n->span2 = where;
  n->a = a;
  return n;
}

static bool is_label(const Ast *a) {
  for (; a->kind == AST_INDEX || a->kind == AST_MEMBER; a = a->a) {
    if (a->kind != AST_INDEX)
      continue;
    for (int i = 0; i < a->list.n; i++)
      if (a->list.at[i]->kind == AST_RANGE)
        return false;
  }
  return a->kind == AST_NAME;
}

Ast *parse_label(Parse *p, Ast *label, Ast *call) {
  Ast *n = ast_new(AST_LABEL, span_join(label->span, call->span));
  n->a = label;
  n->b = call;
  if (!is_label(label)) {
    parse_erred(p);
    help(error_at(label->span, "PD0007", "a label must be a name, with or without indices"),
         label->kind == AST_NUMBER ? "for example 'h[0]: linear(x, 10)'; write a slice with '..': 'x[0..3]'"
                                   : "for example 'h[i]: linear(x, 10)'");
  } else if (call->kind != AST_CALL) {
    parse_erred(p);
    Diagnostic *d = error_at(call->span, "PD0007", "a label needs a call after it");
    underline(d, label->span);
    help(d, "write a slice with '..': 'x[0..3]'");
  }
  return n;
}

Ast *parse_call(Parse *p, Ast *callee, AstList arguments, Span close) {
  Ast *n = ast_new(AST_CALL, span_join(callee->span, close));
  n->a = callee;
  n->list = arguments;
  if (callee->kind != AST_NAME && callee->kind != AST_MEMBER && callee->kind != AST_INDEX) {
    parse_erred(p);
    help(error_at(callee->span, "PD0008", "only layers, operations and instances can be called"),
         "call a layer with its input and its sizes: 'linear(x, 10)'");
  }
  for (int i = 1; i < arguments.n; i++)
    if (!arguments.at[i]->name && arguments.at[i - 1]->name) {
      parse_erred(p);
      Diagnostic *d =
          error_at(arguments.at[i]->span, "PD0009", "an argument without a name follows a named argument");
      underline(d, arguments.at[i - 1]->span);
      help(d, "move it before '%s = ...', or name it", arguments.at[i - 1]->name);
      break;
    }
  return n;
}

/* ---- statements and items ------------------------------------------------------------------ */

Ast *parse_assign(Parse *p, AstList targets, Ast *value) {
  Ast *n = ast_new(AST_ASSIGN, span_join(targets.at[0]->span, value->span));
  n->list = targets;
  n->a = value;
  for (int i = 0; i < targets.n; i++)
    if (targets.at[i]->kind != AST_NAME) {
      parse_erred(p);
      Diagnostic *d = error_at(targets.at[i]->span, "PD0005", "the left side of '=' must be a variable");
      if (targets.at[i]->kind == AST_MEMBER)
        help(d, "to name an instance, use a label: '%s: linear(x, 64)'", targets.at[i]->name);
      if (targets.at[i]->kind == AST_INDEX)
        help(d, "a variable holds a whole value; to name an instance, write 'x = %s: ...'",
             ast_text(targets.at[i]));
      if (targets.at[i]->kind == AST_BINARY && strchr("=<>!", targets.at[i]->name[0]))
        help(d, "use '==' to compare and '=' to assign");
    }
  return n;
}

Ast *parse_scan(Parse *p, Ast *assign, Ast *body) {
  const Ast *call = assign->a;
  assign->kind = AST_SCAN;
  assign->b = body;
  if (call->kind == AST_CALL && call->a->kind == AST_NAME && strcmp(call->a->name, "scan") == 0)
    return assign;
  parse_erred(p);
  help(error_at(call->span, "PD0116", "only 'scan(...)' has a body after '='"),
       "a loop over time: 'y, h_n = scan(x_t in x, h = h_0) { h = ...; return h; }'");
  return assign;
}

Ast *parse_declaration(AstKind kind, Span first, Name name, Span where, AstList dims, Ast *value, Span last) {
  Ast *n = ast_new(kind, last.end_line ? span_join(first, last) : first);
  n->name = name;
  n->span2 = where;
  n->list = dims;
  n->a = value;
  return n;
}

Ast *parse_item(AstKind kind, Span first, Name name, Span where, AstList list, Ast *body) {
  Ast *n = ast_new(kind, first);
  n->name = name;
  n->span2 = where;
  n->list = list;
  n->a = body;
  return n;
}
