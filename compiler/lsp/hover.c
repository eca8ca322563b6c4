/* Hover text for names and expressions. */
#include <string.h>

#include "lsp/internal.h"
#include "ops/op.h"

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.line == b.line && a.column == b.column && a.end_line == b.end_line &&
         a.end_column == b.end_column;
}

static bool encloses(const Graph *g, int outer, int scope) {
  for (; scope >= 0; scope = g->scopes.at[scope].parent)
    if (scope == outer)
      return true;
  return false;
}

/* The first instance with this call. */
static int scope_of_call(const Graph *g, Name layer, Position at) {
  for (int i = 0; i < g->scopes.n; i++) {
    const Scope *s = &g->scopes.at[i];
    if (s->layer == layer && s->span.file == g->scopes.at[0].span.file && s->span.line <= at.line &&
        s->span.end_line >= at.line && (s->span.line < at.line || s->span.column <= at.column) &&
        (s->span.end_line > at.line || s->span.end_column >= at.column))
      return i;
  }
  return -1;
}

static void add_count(Text *t, const Graph *g, int scope) {
  int64_t n = 0;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    if (!p->buffer && encloses(g, scope, g->nodes.at[g->values.at[p->value].node].scope))
      n += shape_elements(&p->shape);
  }
  const char *path = g->scopes.at[scope].path;
  text_add(t, "\n\n`%s`: %lld parameter%s", *path ? path : g->name, (long long)n, n == 1 ? "" : "s");
}

/* Adds the first instance of a label, such as "h.0" of `h`. */
static void add_instance(Text *t, const Graph *g, Name label) {
  size_t n = strlen(label);
  for (int i = 1; g && i < g->scopes.n; i++) {
    const Scope *s = &g->scopes.at[i];
    if (strncmp(s->path, label, n) || (s->path[n] && s->path[n] != '.'))
      continue;
    text_add(t, "an instance of `%s`", s->layer);
    add_count(t, g, i);
    return;
  }
}

static void add_layer(Text *t, const Ast *layer) {
  const char *comment = layer_comment(layer);
  text_add(t, "```pdm\nlayer %s\n```%s%s", layer_text(layer), *comment ? "\n" : "", comment);
}

static void add_op(Text *t, const Op *op) { text_add(t, "```pdm\n%s\n```\nA primitive.", op->signature); }

/* The expression assigned to a name, or NULL. */
static const Ast *assigned(const Ast *a, Span name) {
  if (!a)
    return NULL;
  if (a->kind == AST_ASSIGN)
    for (int i = 0; i < a->list.n; i++)
      if (same_span(a->list.at[i]->span, name))
        return a->a;
  const Ast *kid[] = {a->a, a->b, a->c}, *found = NULL;
  for (int i = 0; i < 3 && !found; i++)
    found = assigned(kid[i], name);
  for (int i = 0; i < a->list.n && !found; i++)
    found = assigned(a->list.at[i], name);
  return found;
}

static const char *value_text(const Graph *g, const Mention *m) {
  for (int i = 0; g && i < g->inputs.n; i++)
    if (g->inputs.at[i].name == m->name && g->inputs.at[i].span.line == m->span.line) {
      const Value *v = &g->values.at[g->inputs.at[i].value];
      return v->type == TYPE_TOKEN
                 ? format("tokens of %lld classes, of shape %s", (long long)v->classes, shape_text(&v->shape))
                 : format("a tensor of shape %s", shape_text(&v->shape));
    }
  for (int i = 0; g && i < g->params.n; i++)
    if (g->params.at[i].span.file == m->span.file && g->params.at[i].span.line == m->span.line && m->declares)
      return format("`%s`, a parameter of shape %s", g->params.at[i].name, shape_text(&g->params.at[i].shape));
  return NULL;
}

/* Adds the value of a variable or an expression. */
static void add_value(Text *t, const Analysis *a, const Mention *m, Position at, Span *span) {
  const Ast *from = m && m->declares && m->kind == NAME_VARIABLE ? assigned(a->ast, m->span) : NULL;
  Look look = {.line = from ? from->span.line : at.line, .column = from ? from->span.column : at.column};
  if (from && from->kind == AST_BINARY) /* a place that only the whole expression covers */
    look.line = from->span2.line, look.column = from->span2.column;
  if (from && (from->kind == AST_LABEL || from->kind == AST_CALL))
    look.line = from->span.end_line, look.column = from->span.end_column;
  const Graph *g = analyse_model(a, &look);
  const char *what = m ? value_text(g, m) : NULL;
  if (what)
    text_add(t, "`%s`: %s", m->name, what);
  else if (look.span.line && look.text && m && (from || same_span(look.span, m->span)))
    text_add(t, "`%s`: %s", m->name, look.text);
  else if (look.span.line && look.text)
    text_add(t, "%s", look.text), *span = look.span;
}

static void add_name(Text *t, const Analysis *a, const Mention *m, Position at) {
  const Ast *layer = m->kind == NAME_LAYER ? layer_seen(a, m->name) : NULL;
  const Op *op = m->kind == NAME_UNKNOWN ? op_find(m->name) : NULL;
  if (m->kind == NAME_ARGUMENT && m->callee && (layer = layer_seen(a, m->callee)))
    text_add(t, "`%s` of `%s`", m->name, layer_text(layer));
  else if (layer)
    add_layer(t, layer);
  else if (op && !op->internal)
    add_op(t, op);
  if (m->kind == NAME_LABEL)
    add_instance(t, analyse_model(a, NULL), m->name);
  if (m->kind != NAME_LAYER)
    return;
  const Graph *g = analyse_model(a, NULL);
  int scope = g ? scope_of_call(g, m->name, at) : -1;
  if (scope > 0 && !m->declares)
    add_count(t, g, scope);
}

cJSON *hover(const Analysis *a, Position at) {
  Text t = {0};
  const Mention *m = mention_at(a, at);
  Span span = m ? m->span : NO_SPAN;
  if (!a->ast)
    return NULL;
  if (m)
    add_name(&t, a, m, at);
  if (!t.n && !(m && m->kind == NAME_MODEL))
    add_value(&t, a, m, at, &span);
  if (m && m->kind == NAME_MODEL) {
    const Graph *g = analyse_model(a, NULL);
    if (g)
      text_add(&t, "the model `%s`", g->name), add_count(&t, g, 0);
  }
  if (!t.n)
    return NULL;
  cJSON *result = cJSON_CreateObject(), *contents = cJSON_AddObjectToObject(result, "contents");
  cJSON_AddStringToObject(contents, "kind", "markdown");
  cJSON_AddStringToObject(contents, "value", t.at);
  if (span.line > 0)
    cJSON_AddItemToObject(result, "range", range_json(a->document->text, span));
  return result;
}
