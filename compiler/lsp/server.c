/* Handles requests and notifications in sequence. */
#include <stdlib.h>
#include <string.h>

#include "base/again.h"
#include "lsp/internal.h"
#include "ops/expression.h"
#include "ops/op.h"

enum {
  PARSE_ERROR = -32700,
  INVALID_REQUEST = -32600,
  NO_METHOD = -32601,
  INVALID_PARAMS = -32602,
  NOT_INITIALIZED = -32002,
  REQUEST_FAILED = -32803
};

typedef struct Server {
  Transport transport;
  Documents documents;
  bool initialized, shut_down, ended;
} Server;

/* ---- messages out --------------------------------------------------------------------------------- */

static cJSON *message_new(void) {
  cJSON *m = cJSON_CreateObject();
  cJSON_AddStringToObject(m, "jsonrpc", "2.0");
  return m;
}

static void send(Server *s, cJSON *m) {
  transport_write(&s->transport, m);
  cJSON_Delete(m);
}

static cJSON *answer(const cJSON *id) {
  cJSON *m = message_new();
  cJSON_AddItemToObject(m, "id", id ? cJSON_Duplicate(id, true) : cJSON_CreateNull());
  return m;
}

static void send_result(Server *s, const cJSON *id, cJSON *result) {
  cJSON *m = answer(id);
  cJSON_AddItemToObject(m, "result", result ? result : cJSON_CreateNull());
  send(s, m);
}

static void send_error(Server *s, const cJSON *id, int code, const char *why) {
  cJSON *m = answer(id), *error = cJSON_AddObjectToObject(m, "error");
  cJSON_AddNumberToObject(error, "code", code);
  cJSON_AddStringToObject(error, "message", why);
  send(s, m);
}

static void send_diagnostics(Server *s, const char *uri, cJSON *list) {
  cJSON *m = message_new();
  cJSON_AddStringToObject(m, "method", "textDocument/publishDiagnostics");
  cJSON *params = cJSON_AddObjectToObject(m, "params");
  cJSON_AddStringToObject(params, "uri", uri);
  cJSON_AddItemToObject(params, "diagnostics", list);
  send(s, m);
}

/* ---- repeated use of the compiler ----------------------------------------------------------------- */

/* Initializes persistent tables before the arena's state is saved. */
static void prepare(void) {
  static bool ready;
  static const char text[] = "use nn;model m(){input x[1];loss mean(linear(x,1));}";
  if (ready)
    return;
  op_expression(all_ops[0]);
  Ast *ast = parse_text("", text, sizeof text - 1, NULL);
  ensure(ast);
  elaborate(ast, &(ElaborateOptions){0});
  diagnostics_forget(0);
  base_keep();
  ready = true;
}

/* ---- features ------------------------------------------------------------------------------------- */

static const cJSON *member(const cJSON *object, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_of(const cJSON *object, const char *key) {
  const cJSON *text = member(object, key);
  return cJSON_IsString(text) ? text->valuestring : NULL;
}

static cJSON *capabilities(void) {
  cJSON *result = cJSON_CreateObject(), *c = cJSON_AddObjectToObject(result, "capabilities");
  cJSON *sync = cJSON_AddObjectToObject(c, "textDocumentSync");
  cJSON_AddBoolToObject(sync, "openClose", true);
  cJSON_AddNumberToObject(sync, "change", 1); /* full text synchronization */
  static const char *const providers[] = {"hoverProvider", "definitionProvider", "renameProvider",
                                          "documentFormattingProvider"};
  for (int i = 0; i < 4; i++)
    cJSON_AddBoolToObject(c, providers[i], true);
  cJSON *triggers = cJSON_AddArrayToObject(cJSON_AddObjectToObject(c, "completionProvider"), "triggerCharacters");
  cJSON_AddItemToArray(triggers, cJSON_CreateString("("));
  cJSON_AddItemToArray(triggers, cJSON_CreateString("="));
  cJSON *info = cJSON_AddObjectToObject(result, "serverInfo");
  cJSON_AddStringToObject(info, "name", "pdc");
  cJSON_AddStringToObject(info, "version", PDC_VERSION);
  return result;
}

static cJSON *feature(const char *method, const Analysis *a, Position at, const cJSON *params,
                      const char **error) {
  if (!strcmp(method, "textDocument/hover"))
    return hover(a, at);
  if (!strcmp(method, "textDocument/definition"))
    return definition(a, at);
  if (!strcmp(method, "textDocument/completion"))
    return complete(a, at);
  if (!strcmp(method, "textDocument/formatting"))
    return format_edits(a->document);
  const char *name = text_of(params, "newName");
  return rename_name(a, at, name ? name : "", error);
}

static bool is_feature(const char *method) {
  static const char *const known[] = {"hover", "definition", "completion", "formatting", "rename"};
  static const char prefix[] = "textDocument/";
  for (int i = 0; i < 5; i++)
    if (!strncmp(method, prefix, sizeof prefix - 1) && !strcmp(method + sizeof prefix - 1, known[i]))
      return true;
  return false;
}

static void ask(Server *s, const cJSON *id, const char *method, const cJSON *params) {
  const char *uri = text_of(member(params, "textDocument"), "uri"), *error = NULL;
  const Document *d = uri ? document_find(&s->documents, uri) : NULL;
  if (!d) {
    send_error(s, id, INVALID_PARAMS, "this document is not open");
    return;
  }
  Analysis a = analyse(&s->documents, d);
  cJSON *result = feature(method, &a, position_read(d->text, member(params, "position")), params, &error);
  if (error)
    send_error(s, id, REQUEST_FAILED, error);
  else
    send_result(s, id, result);
}

/* Sends diagnostics of all changed texts, once no input is waiting, or before a request is answered. */
static void tell_diagnostics(Server *s, bool now) {
  for (int i = 0; i < s->documents.n; i++) {
    Document *d = &s->documents.at[i];
    if (!d->changed || (!now && transport_waiting(&s->transport)))
      continue;
    d->changed = false;
    base_restart();
    Analysis a = analyse(&s->documents, d);
    send_diagnostics(s, d->uri, diagnostics_of(&a));
  }
  base_restart();
}

/* ---- messages in ---------------------------------------------------------------------------------- */

static void request(Server *s, const cJSON *id, const char *method, const cJSON *params) {
  tell_diagnostics(s, true);
  if (!strcmp(method, "initialize")) {
    s->initialized = true;
    send_result(s, id, capabilities());
  } else if (!s->initialized) {
    send_error(s, id, NOT_INITIALIZED, "the server is not initialized");
  } else if (s->shut_down) {
    send_error(s, id, INVALID_REQUEST, "the server was shut down");
  } else if (!strcmp(method, "shutdown")) {
    s->shut_down = true;
    send_result(s, id, NULL);
  } else if (is_feature(method)) {
    ask(s, id, method, params);
  } else {
    send_error(s, id, NO_METHOD, format("there is no method '%s'", method));
  }
}

/* Marks all texts as changed, because any may use the changed one. */
static void changed(Server *s) {
  for (int i = 0; i < s->documents.n; i++)
    s->documents.at[i].changed = true;
}

static void notification(Server *s, const char *method, const cJSON *params) {
  const cJSON *document = member(params, "textDocument");
  const char *uri = text_of(document, "uri"), *text = text_of(document, "text");
  if (!strcmp(method, "exit"))
    s->ended = true;
  if (!s->initialized || !uri)
    return;
  Document *d = document_find(&s->documents, uri);
  const cJSON *changes = member(params, "contentChanges");
  if (!strcmp(method, "textDocument/didChange") && d && cJSON_GetArraySize(changes) > 0)
    text = text_of(cJSON_GetArrayItem(changes, cJSON_GetArraySize(changes) - 1), "text");
  else if (strcmp(method, "textDocument/didOpen"))
    text = NULL;
  if (text) {
    document_open(&s->documents, uri, text);
    changed(s);
  }
  if (!strcmp(method, "textDocument/didClose") && d) {
    send_diagnostics(s, uri, cJSON_CreateArray());
    document_close(&s->documents, d);
    changed(s);
  }
}

static void handle(Server *s, const char *text) {
  cJSON *m = cJSON_Parse(text);
  const char *method = text_of(m, "method");
  const cJSON *id = member(m, "id"), *params = member(m, "params");
  if (!m)
    send_error(s, NULL, PARSE_ERROR, "this is no JSON");
  else if (method && id)
    request(s, id, method, params);
  else if (method)
    notification(s, method, params);
  cJSON_Delete(m);
}

bool lsp_serve(int in, FILE *out) {
  Server s = {.transport = {.in = in, .out = out}};
  prepare();
  while (!s.ended) {
    base_restart();
    char *text = transport_read(&s.transport);
    if (!text)
      break;
    handle(&s, text);
    tell_diagnostics(&s, false);
  }
  base_restart();
  while (s.documents.n)
    document_close(&s.documents, s.documents.at);
  free(s.documents.at);
  free(s.transport.at);
  return s.shut_down;
}
