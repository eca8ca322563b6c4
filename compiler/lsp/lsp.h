/* `pdc lsp`: a language server (Language Server Protocol 3.17) over standard input and output.
 * docs/guide/editors.md. */
#ifndef PDC_LSP_H
#define PDC_LSP_H

#include <stdbool.h>
#include <stdio.h>

/* Serves until `exit` or the end of the input; returns whether `shutdown` came first. After each message, all
 * memory that the front end allocated is released (base/again.h). */
bool lsp_serve(int in, FILE *out);

#endif
