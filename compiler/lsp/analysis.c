/* Runs the compiler's front end on a text open in an editor. */
#include <errno.h>
#include <string.h>

#include "lsp/internal.h"

/* Parses the editor's text of a file if open, else the file on disk. */
static Ast *read_used(void *context, const char *path) {
  const Document *d = document_of_path(context, path);
  return d ? parse_text(path, format("%s", d->text), strlen(d->text), NULL) : parse_file(path);
}

static ElaborateOptions options_of(const Analysis *a, Look *look) {
  return (ElaborateOptions){.look = look, .read = read_used, .read_context = (void *)a->documents};
}

static bool has_model(const Ast *file) {
  for (int i = 0; i < file->list.n; i++)
    if (file->list.at[i]->kind == AST_MODEL)
      return true;
  return false;
}

Graph *analyse_model(const Analysis *a, Look *look) {
  ElaborateOptions options = options_of(a, look);
  return a->ast && has_model(a->ast) ? elaborate(a->ast, &options) : NULL;
}

/* For a text with syntax errors: layers of the files in its 'use' statements. */
static AstList layers_of_words(const Analysis *a, const ElaborateOptions *options) {
  Text t = {0};
  text_add(&t, "%s", "");
  for (int i = 0; i + 1 < a->tokens.n; i++)
    if (!strcmp(a->tokens.at[i].text, "use") && a->tokens.at[i + 1].kind == TOKEN_NAME)
      text_add(&t, "use %s;\n", a->tokens.at[i + 1].text);
  const Ast *uses = parse_text(a->document->path, t.at, t.n, NULL);
  return uses ? elaborate_layers(uses, options) : (AstList){0};
}

Analysis analyse(const Documents *all, const Document *d) {
  Analysis a = {.document = d, .documents = all};
  a.ast = parse_text(d->path, d->text, strlen(d->text), &a.tokens);
  ElaborateOptions options = options_of(&a, NULL);
  int mark = diagnostics_mark();
  a.layers = a.ast ? elaborate_layers(a.ast, &options) : layers_of_words(&a, &options);
  if (!a.ast || has_model(a.ast)) /* elaborate() reports them */
    diagnostics_forget(mark);
  a.layer_of.key_bytes = sizeof(Name);
  for (int i = 0; i < a.layers.n; i++)
    if (!layer_seen(&a, a.layers.at[i]->name))
      table_add(&a.layer_of, &a.layers.at[i]->name, a.layers.at[i]);
  if (a.ast)
    a.mentions = mentions_of(a.ast, &a.layer_of);
  return a;
}

static bool is_at(Span s, Position at) {
  return s.line == at.line && s.column <= at.column && at.column <= s.end_column;
}

const Mention *mention_at(const Analysis *a, Position at) {
  const Mention *found = NULL;
  for (int i = 0; i < a->mentions.n; i++)
    if (is_at(a->mentions.at[i].span, at) && (!found || a->mentions.at[i].span.column == at.column))
      found = &a->mentions.at[i];
  return found;
}

const Ast *layer_seen(const Analysis *a, Name name) { return table_find(&a->layer_of, &name); }

Name file_named(const Analysis *a, Name name) {
  const char *slash = strrchr(a->document->path, '/');
  const char *folder = slash ? format("%.*s", (int)(slash - a->document->path), a->document->path) : ".";
  const char *const folders[] = {folder, own_folder("stdlib_layers")};
  for (int i = 0; i < 2; i++) {
    const char *path = format("%s/%s.pdm", folders[i], name);
    if (strcmp(path, a->document->path) && (document_of_path(a->documents, path) || read_file(path, NULL)))
      return intern(path);
  }
  return NULL;
}

/* ---- comments of layers ------------------------------------------------------------------------- */

static const char *line_before(const char *text, const char *line) {
  if (line <= text)
    return NULL;
  for (line--; line > text && line[-1] != '\n';)
    line--;
  return line;
}

const char *layer_comment(const Ast *layer) {
  const char *text = source_text(layer->span.file), *at = source_line_start(text, layer->span.line), *first;
  for (first = at; (at = line_before(text, first)) && *at == '#';)
    first = at;
  Text t = {0};
  text_add(&t, "%s", "");
  for (; *first == '#'; first += strcspn(first, "\n") + 1) {
    size_t sign = strspn(first, "# ");
    size_t n = strcspn(first, "\r\n");
    text_add(&t, "%s%.*s", t.n ? "\n" : "", (int)(n > sign ? n - sign : 0), first + (n > sign ? sign : n));
  }
  return t.at;
}

/* ---- diagnostics -------------------------------------------------------------------------------- */

typedef struct Telling {
  const Analysis *a;
  cJSON *list;
} Telling;

/* The range in this document; a place in another file maps to the document's start. */
static cJSON *range_of(const Analysis *a, Span span) {
  bool here = span.file >= 0 && span.line > 0 && !strcmp(source_path(span.file), a->document->path);
  return range_json(a->document->text, here ? span : (Span){0, 1, 1, 1, 1});
}

static void tell(void *context, const Told *told) {
  Telling *t = context;
  Text message = {0};
  text_add(&message, "%s", told->text);
  for (int i = 0; i < told->n_remarks; i++)
    text_add(&message, "\n%s: %s", told->remarks[i].is_help ? "help" : "note", told->remarks[i].text);
  cJSON *d = cJSON_CreateObject();
  cJSON_AddItemToObject(d, "range", range_of(t->a, told->span));
  cJSON_AddNumberToObject(d, "severity", told->warning ? 2 : 1);
  cJSON_AddStringToObject(d, "code", told->code);
  cJSON_AddStringToObject(d, "source", "pdc");
  cJSON_AddStringToObject(d, "message", message.at);
  cJSON *related = cJSON_AddArrayToObject(d, "relatedInformation");
  for (int i = 0; i < told->n_remarks; i++) {
    const Remark *r = &told->remarks[i];
    if (r->is_help || r->span.file < 0 || r->span.line < 1)
      continue;
    cJSON *one = cJSON_CreateObject(), *place = cJSON_AddObjectToObject(one, "location");
    cJSON_AddStringToObject(place, "uri", uri_of_path(source_path(r->span.file)));
    cJSON_AddItemToObject(place, "range", range_json(source_text(r->span.file), r->span));
    cJSON_AddStringToObject(one, "message", r->text);
    cJSON_AddItemToArray(related, one);
  }
  cJSON_AddItemToArray(t->list, d);
}

cJSON *diagnostics_of(const Analysis *a) {
  analyse_model(a, NULL);
  Telling t = {a, cJSON_CreateArray()};
  diagnostics_tell(tell, &t);
  return t.list;
}
