/* Ast -> Graph: inlines layers, runs `if` and `for`, evaluates compile-time values, names parameters and checks
 * types. An invalid value is diagnosed once and poisons all values that depend on it, so elaboration continues to
 * the next mistake. */
#ifndef PDC_ELABORATE_H
#define PDC_ELABORATE_H

#include "graph/graph.h"
#include "syntax/ast.h"

/* The value at one place of a model's file, for editors. Also works in a file with mistakes. */
typedef struct Look {
  int line, column; /* input: in the first source; lines and columns (bytes) count from 1 */
  Span span;        /* the smallest expression at that place; line 0: none */
  const char *text; /* the kind of its first value: "a tensor of shape [3, 4]" */
} Look;

/* Adapters of linear layers (--lora). */
typedef struct Lora {
  int64_t r;           /* rank */
  double alpha;        /* products are scaled by alpha / r */
  double dropout;      /* of their inputs; 0: none */
  const char *targets; /* pattern over names of layers (shared/pattern.h) */
  const char *whole;   /* over parameters that are trained beside the adapters; NULL: none */
} Lora;

typedef struct ElaborateOptions {
  const char *const
      *include; /* -I: folders that `use` searches after the file's own folder and before stdlib_layers */
  int n_include;
  const char *const *define; /* -D: "name=expression", overrides of model attributes and train settings */
  int n_define;
  bool inference;                                /* Graph.inference */
  bool generation;                               /* for pdc generate: --samples sets the batch */
  bool library;                                  /* for pdc library: the command in messages */
  const Lora *lora;                              /* NULL: no adapters */
  Look *look;                                    /* NULL: not needed */
  Ast *(*read)(void *context, const char *path); /* parses used files; NULL: parse_file() */
  void *read_context;
} ElaborateOptions;

/* The forward graph of the file's model with its train settings; NULL after diagnostics. */
Graph *elaborate(const Ast *file, const ElaborateOptions *options);

/* The layers visible in the file, its own and those of used files, as AST_LAYER. Reports diagnostics about
 * them. */
AstList elaborate_layers(const Ast *file, const ElaborateOptions *options);
/* "linear(x[.., in_features], out_features, bias = true)" */
char *layer_text(const Ast *layer);
/* NULL-ended lists of names: standard files, such as "nn"; compile-time functions; settings of `train`. */
typedef Vec(const char *) Words;
void standard_files(Words *names);
extern const char *const builtin_names[], *const train_setting_names[];

/* outputs.c. has_outputs: false after a diagnostic. keep_outputs: drops losses and metrics. */
bool has_outputs(const Graph *g);
void keep_outputs(Graph *g);

#endif
