/* Definitions, renaming and formatting. */
#include <string.h>

#include "format/format.h"
#include "lsp/internal.h"

static cJSON *location(Span span) {
  cJSON *place = cJSON_CreateObject();
  cJSON_AddStringToObject(place, "uri", uri_of_path(source_path(span.file)));
  cJSON_AddItemToObject(place, "range", range_json(source_text(span.file), span));
  return place;
}

static bool before(Span a, Span b) { return a.line < b.line || (a.line == b.line && a.column <= b.column); }

static bool same_name(const Mention *a, const Mention *b) {
  bool local = a->kind == NAME_VARIABLE || a->kind == NAME_LABEL;
  return a->kind == b->kind && a->name == b->name && (!local || a->item == b->item);
}

/* The last declaration of the name before the mention, else the first one after it. */
static const Mention *declaration(const Analysis *a, const Mention *m) {
  const Mention *found = NULL;
  for (int i = 0; i < a->mentions.n; i++) {
    const Mention *d = &a->mentions.at[i];
    if (!d->declares || !same_name(d, m))
      continue;
    bool earlier = before(d->span, m->span) && d != m;
    bool found_earlier = found && before(found->span, m->span) && found != m;
    if (!found || (earlier && (!found_earlier || before(found->span, d->span))))
      found = d;
  }
  return found;
}

static const Ast *argument_of(const Ast *layer, Name name) {
  for (int i = 0; layer && i < layer->list.n; i++)
    if (layer->list.at[i]->name == name)
      return layer->list.at[i];
  return NULL;
}

cJSON *definition(const Analysis *a, Position at) {
  const Mention *m = mention_at(a, at);
  if (!m)
    return NULL;
  if (m->kind == NAME_FILE) {
    Name path = file_named(a, m->name);
    if (!path)
      return NULL;
    cJSON *place = cJSON_CreateObject();
    cJSON_AddStringToObject(place, "uri", uri_of_path(path));
    cJSON_AddItemToObject(place, "range", range_json("", (Span){0, 1, 1, 1, 1}));
    return place;
  }
  const Ast *layer = m->kind == NAME_LAYER ? layer_seen(a, m->name) : NULL;
  const Ast *formal =
      m->kind == NAME_ARGUMENT && m->callee ? argument_of(layer_seen(a, m->callee), m->name) : NULL;
  const Mention *declared = layer || formal ? NULL : declaration(a, m);
  if (!layer && !formal && !declared)
    return NULL;
  return location(layer ? layer->span2 : formal ? formal->span2 : declared->span);
}

/* ---- rename ------------------------------------------------------------------------------------- */

static bool is_name(const char *text) {
  static const char *const reserved[] = {"param", "loss", "return", "if",  "else", "for",
                                         "in",    "and",  "or",     "not", "true", "false"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (!strcmp(text, reserved[i]))
      return false;
  size_t n = strlen(text);
  return n > 0 && n <= 255 &&
         strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == n &&
         !strchr("0123456789", text[0]);
}

/* The reason to refuse the name, or NULL. */
static const char *refusal(const Analysis *a, const Mention *m, const char *name) {
  if (!is_name(name))
    return format("'%s' is no name that a model can use", name);
  if (m->kind == NAME_LAYER && (!layer_seen(a, m->name) || layer_seen(a, m->name)->span.file != a->ast->span.file))
    return format("'%s' is defined in another file: rename it there", m->name);
  if (m->kind == NAME_LAYER && layer_seen(a, intern(name)))
    return format("there is a layer '%s' already", name);
  if (m->kind == NAME_UNKNOWN || m->kind == NAME_FILE || m->kind == NAME_ARGUMENT)
    return format("'%s' is not declared in this file", m->name);
  for (int i = 0; i < a->mentions.n && m->kind != NAME_MODEL; i++) {
    const Mention *other = &a->mentions.at[i];
    if (!strcmp(other->name, name) && other->kind != NAME_ARGUMENT &&
        (m->kind == NAME_LAYER || other->item == m->item))
      return format("there is a name '%s' already", name);
  }
  return NULL;
}

static cJSON *edit(const char *text, Span span, const char *to) {
  cJSON *e = cJSON_CreateObject();
  cJSON_AddItemToObject(e, "range", range_json(text, span));
  cJSON_AddStringToObject(e, "newText", to);
  return e;
}

/* Whether `other` is the argument's name in a call of the layer, such as `init = `. */
static bool names_argument(const Analysis *a, const Mention *m, const Mention *other) {
  const Ast *item = a->ast->list.at[m->item];
  return m->kind == NAME_VARIABLE && other->kind == NAME_ARGUMENT && item->kind == AST_LAYER &&
         other->name == m->name && other->callee == item->name && argument_of(item, m->name);
}

static void add_edits(const Analysis *a, const Analysis *of, const Mention *m, const char *to, cJSON *changes) {
  cJSON *edits = cJSON_CreateArray();
  for (int i = 0; i < of->mentions.n; i++) {
    const Mention *other = &of->mentions.at[i];
    bool here = a == of && same_name(other, m);
    bool called = a != of && m->kind == NAME_LAYER && other->kind == NAME_LAYER && other->name == m->name &&
                  layer_seen(of, m->name) &&
                  !strcmp(source_path(layer_seen(of, m->name)->span.file), a->document->path);
    if (here || called || (a == of && names_argument(a, m, other)))
      cJSON_AddItemToArray(edits, edit(of->document->text, other->span, to));
  }
  if (cJSON_GetArraySize(edits))
    cJSON_AddItemToObject(changes, of->document->uri, edits);
  else
    cJSON_Delete(edits);
}

cJSON *rename_name(const Analysis *a, Position at, const char *name, const char **error) {
  const Mention *m = mention_at(a, at);
  *error = !a->ast ? "the file does not parse" : !m ? "no name stands here" : refusal(a, m, name);
  if (*error)
    return NULL;
  cJSON *result = cJSON_CreateObject(), *changes = cJSON_AddObjectToObject(result, "changes");
  add_edits(a, a, m, name, changes);
  for (int i = 0; i < a->documents->n && m->kind == NAME_LAYER; i++)
    if (&a->documents->at[i] != a->document) {
      Analysis other = analyse(a->documents, &a->documents->at[i]);
      add_edits(a, &other, m, name, changes);
    }
  return result;
}

/* ---- formatting ---------------------------------------------------------------------------------- */

cJSON *format_edits(const Document *d) {
  const char *text = format_text(d->path, d->text, strlen(d->text));
  if (!text)
    return NULL;
  cJSON *edits = cJSON_CreateArray();
  int lines = 1;
  for (const char *c = d->text; *c; c++)
    lines += *c == '\n';
  if (strcmp(text, d->text))
    cJSON_AddItemToArray(edits, edit(d->text, (Span){0, 1, 1, lines + 1, 1}, text));
  return edits;
}
