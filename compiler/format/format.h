/* `pdc fmt`: the standard style of .pdm files, defined in docs/guide/editors.md. */
#ifndef PDC_FORMAT_H
#define PDC_FORMAT_H

#include "syntax/ast.h"

/* ---- format.c */
/* The text in standard style, in the arena; meaning and comments stay, and formatting is idempotent. NULL after
 * diagnostics: the text must parse. `path` is for diagnostics. */
char *format_text(const char *path, const char *text, size_t length);

/* ---- files.c */
/* Formats files in place ("-": standard input to standard output). With `check`, reports differing files without
 * changes. False after a diagnostic or if a file differs. */
bool format_files(const char *const *paths, int n, bool check, FILE *out);

#endif
