/* Ast -> Graph: inlines layers, runs `if` and `for`, evaluates what is known at compile time, names
 * parameters and checks types. A wrong value is diagnosed once and poisons what depends on it, so that
 * elaboration goes on to the next mistake. */
#ifndef PDC_ELABORATE_H
#define PDC_ELABORATE_H

#include "graph/graph.h"
#include "syntax/ast.h"

/* What a model has at one place of its file, for editors. Found also in one with mistakes. */
typedef struct Look {
  int line, column; /* given: in the first source that is elaborated; columns count bytes, both from 1 */
  Span span;        /* of the smallest expression there; line 0: there is none */
  const char *text; /* what it is where it is evaluated first: "a tensor of shape [3, 4]" */
} Look;

typedef struct ElaborateOptions {
  const char *const *include; /* -I: where `use` looks after the file's own folder and before stdlib_layers */
  int n_include;
  const char *const *define; /* -D: "name=expression", overrides of model attributes and train settings */
  int n_define;
  bool inference;                                /* Graph.inference */
  bool generation;                               /* that of pdc --generate, whose batch is --samples */
  Look *look;                                    /* NULL: nobody looks */
  Ast *(*read)(void *context, const char *path); /* how used files are parsed; NULL: parse_file() */
  void *read_context;
} ElaborateOptions;

/* The forward graph of the file's model with its train settings; NULL after diagnostics. */
Graph *elaborate(const Ast *file, const ElaborateOptions *options);

/* The layers that the file sees, its own and those of files that it uses, as AST_LAYER. What is wrong with them is told. */
AstList elaborate_layers(const Ast *file, const ElaborateOptions *options);
/* "linear(x[.., in_features], out_features, bias = true)" */
char *layer_text(const Ast *layer);
/* Names of standard files, "nn"; functions of compile-time values; settings of `train`: lists that end with NULL. */
typedef Vec(const char *) Words;
void standard_files(Words *names);
extern const char *const builtin_names[], *const train_setting_names[];

#endif
