/* The one style of .pdm files: `pdc fmt`. docs/guide/editors.md says what it is. */
#ifndef PDC_FORMAT_H
#define PDC_FORMAT_H

#include "syntax/ast.h"

/* ---- format.c */
/* The text in that style, in the arena: with the same meaning and comments, and itself when it is formatted again. NULL
 * after diagnostics: only what parses is formatted. `path` is for these. */
char *format_text(const char *path, const char *text, size_t length);

/* ---- files.c */
/* Formats each file in its place ("-": standard input to standard output); with `check` says which differ instead and
 * changes none. False after a diagnostic, or where one differs. */
bool format_files(const char *const *paths, int n, bool check, FILE *out);

#endif
