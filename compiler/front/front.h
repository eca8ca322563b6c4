/* Front ends: the ways to a model's syntax tree. A command takes a .pdm file or a Hugging Face folder. */
#ifndef PDC_FRONT_H
#define PDC_FRONT_H

#include "syntax/ast.h"

typedef struct FrontModel {
  Ast *ast;
  const char *init; /* path of the model's weights, for `--init`; NULL: none */
  const char *task; /* of a folder with a head for a task, "bert ForMaskedLM"; NULL: of a next token, or unknown */
  const char *tokenizer; /* path of its tokenizer, for `--tokenizer`; NULL: none */
} FrontModel;

/* Reads the model by the first front end that takes the path; false after diagnostics. */
bool front_read(const char *path, FrontModel *to);

#endif
