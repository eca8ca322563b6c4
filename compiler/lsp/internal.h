/* Shared by the files of lsp/. */
#ifndef PDC_LSP_INTERNAL_H
#define PDC_LSP_INTERNAL_H

#include <cjson/cJSON.h>

#include "base/table.h"
#include "elaborate/elaborate.h"
#include "lsp/lsp.h"

/* ---- transport.c: messages framed by Content-Length headers */

typedef struct Transport {
  int in;
  FILE *out;
  char *at; /* input buffer, from malloc */
  size_t n, room, used;
  bool ended;
} Transport;

/* The next message's text, valid until the next call; NULL at the end of the input or after a framing error. */
char *transport_read(Transport *t);
bool transport_waiting(Transport *t); /* whether more input is available without blocking */
void transport_write(Transport *t, const cJSON *message);

/* ---- documents.c: open texts; malloc'd, because the arena is reset after each message */

typedef struct Document {
  char *uri, *path, *text; /* from malloc */
  bool changed;            /* since diagnostics were last sent */
} Document;

typedef struct Documents {
  Document *at;
  int n, room;
} Documents;

Document *document_find(const Documents *all, const char *uri); /* NULL: not open */
Document *document_of_path(const Documents *all, const char *path);
Document *document_open(Documents *all, const char *uri, const char *text);
void document_close(Documents *all, Document *d);
char *uri_of_path(const char *path); /* in the arena */

/* Lines and characters count from 0, characters in UTF-16; spans from 1, in bytes. */
typedef struct Position {
  int line, column; /* as in Span */
} Position;
Position position_read(const char *text, const cJSON *position);
cJSON *position_json(const char *text, int line, int column);
cJSON *range_json(const char *text, Span span);

/* ---- analysis.c: the front end's results for a document */

typedef enum {
  NAME_VARIABLE, /* of its item: an argument, size, counter, declared or assigned name */
  NAME_LABEL,    /* of an instance in its item */
  NAME_LAYER,
  NAME_MODEL,
  NAME_ARGUMENT, /* of the called layer */
  NAME_FILE,     /* of a 'use' statement */
  NAME_UNKNOWN
} NameKind;

/* An occurrence of a name. */
typedef struct Mention {
  NameKind kind;
  Name name, callee; /* callee: for NAME_ARGUMENT */
  Span span;
  int item;      /* index of its item in the file */
  bool declares; /* declared or assigned here */
} Mention;
typedef Vec(Mention) Mentions;

typedef struct Analysis {
  const Document *document;
  const Documents *documents;
  Ast *ast; /* NULL: syntax errors */
  Tokens tokens;
  AstList layers; /* all visible layers */
  Table layer_of; /* the first layer of each name */
  Mentions mentions;
} Analysis;

/* Leaves its diagnostics pending. */
Analysis analyse(const Documents *all, const Document *d);
/* The model's graph, NULL after diagnostics; `look` may be NULL. */
Graph *analyse_model(const Analysis *a, Look *look);
const Mention *mention_at(const Analysis *a, Position at); /* NULL: no name at this place */
const Ast *layer_seen(const Analysis *a, Name name);       /* NULL: not visible */
/* The comment above a layer, without comment signs; "" if none. */
const char *layer_comment(const Ast *layer);
Name file_named(const Analysis *a, Name name); /* the path found by `use`, or NULL */

/* ---- names.c */
Mentions mentions_of(const Ast *file, const Table *layer_of);

/* ---- features: results of requests, NULL for null. A refused request sets `error` to the reason */
cJSON *diagnostics_of(const Analysis *a);
cJSON *hover(const Analysis *a, Position at);
cJSON *definition(const Analysis *a, Position at);
cJSON *complete(const Analysis *a, Position at);
cJSON *rename_name(const Analysis *a, Position at, const char *name, const char **error);
cJSON *format_edits(const Document *d);

#endif
