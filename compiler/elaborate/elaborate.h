/* Ast -> Graph: inlines layers, runs `if` and `for`, evaluates what is known at compile time, names
 * parameters and checks types. A wrong value is diagnosed once and poisons what depends on it, so that
 * elaboration goes on to the next mistake. */
#ifndef PDC_ELABORATE_H
#define PDC_ELABORATE_H

#include "graph/graph.h"
#include "syntax/ast.h"

typedef struct ElaborateOptions {
  const char *const *include; /* -I: where `use` looks after the file's own folder and before stdlib_layers */
  int n_include;
  const char *const *define; /* -D: "name=expression", overrides of model attributes and train settings */
  int n_define;
  bool inference;  /* Graph.inference */
  bool generation; /* that of pdc --generate, whose batch is --samples */
} ElaborateOptions;

/* The forward graph of the file's model with its train settings; NULL after diagnostics. */
Graph *elaborate(const Ast *file, const ElaborateOptions *options);

#endif
