/* What the server's files share. */
#ifndef PDC_LSP_INTERNAL_H
#define PDC_LSP_INTERNAL_H

#include <cjson/cJSON.h>

#include "base/table.h"
#include "elaborate/elaborate.h"
#include "lsp/lsp.h"

/* ---- transport.c: messages between "Content-Length" and the next one */

typedef struct Transport {
  int in;
  FILE *out;
  char *at; /* read, from malloc */
  size_t n, room, used;
  bool ended;
} Transport;

/* The next message's text, until the next call; NULL at the end of the input, or where it is no protocol. */
char *transport_read(Transport *t);
bool transport_waiting(Transport *t); /* more is there to read at once */
void transport_write(Transport *t, const cJSON *message);

/* ---- documents.c: texts that are open; they last while the arena does not */

typedef struct Document {
  char *uri, *path, *text; /* from malloc */
  bool changed;            /* since diagnostics were told */
} Document;

typedef struct Documents {
  Document *at;
  int n, room;
} Documents;

Document *document_find(const Documents *all, const char *uri); /* NULL: it is not open */
Document *document_of_path(const Documents *all, const char *path);
Document *document_open(Documents *all, const char *uri, const char *text);
void document_close(Documents *all, Document *d);
char *uri_of_path(const char *path); /* in the arena */

/* Lines and characters count from 0, characters in UTF-16; spans from 1, in bytes. */
typedef struct Position {
  int line, column; /* a span's */
} Position;
Position position_read(const char *text, const cJSON *position);
cJSON *position_json(const char *text, int line, int column);
cJSON *range_json(const char *text, Span span);

/* ---- analysis.c: what the front end says of a document */

typedef enum {
  NAME_VARIABLE, /* of its item: an argument, a size, a counter, what is declared or assigned */
  NAME_LABEL,    /* of an instance in its item */
  NAME_LAYER,
  NAME_MODEL,
  NAME_ARGUMENT, /* of the layer that is called */
  NAME_FILE,     /* that is used */
  NAME_UNKNOWN
} NameKind;

/* Where a name stands. */
typedef struct Mention {
  NameKind kind;
  Name name, callee; /* callee: of an argument */
  Span span;
  int item;      /* its item's place in the file */
  bool declares; /* it is declared or assigned here */
} Mention;
typedef Vec(Mention) Mentions;

typedef struct Analysis {
  const Document *document;
  const Documents *documents;
  Ast *ast; /* NULL: it does not parse */
  Tokens tokens;
  AstList layers; /* all that it sees, and ... */
  Table layer_of; /* ... the first of each name */
  Mentions mentions;
} Analysis;

/* Diagnostics of it are pending afterwards. */
Analysis analyse(const Documents *all, const Document *d);
/* The model's graph, NULL after diagnostics; `look` may be NULL. */
Graph *analyse_model(const Analysis *a, Look *look);
const Mention *mention_at(const Analysis *a, Position at); /* NULL: no name stands there */
const Ast *layer_seen(const Analysis *a, Name name);       /* NULL: there is none */
/* The comment above a layer, without its signs, "" where there is none. */
const char *layer_comment(const Ast *layer);
Name file_named(const Analysis *a, Name name); /* the path that `use` finds; NULL */

/* ---- names.c */
Mentions mentions_of(const Ast *file, const Table *layer_of);

/* ---- features: results of requests, NULL for null. `error` may be set instead, to why it is refused */
cJSON *diagnostics_of(const Analysis *a);
cJSON *hover(const Analysis *a, Position at);
cJSON *definition(const Analysis *a, Position at);
cJSON *complete(const Analysis *a, Position at);
cJSON *rename_name(const Analysis *a, Position at, const char *name, const char **error);
cJSON *format_edits(const Document *d);

#endif
