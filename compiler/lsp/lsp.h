/* `pdc lsp`: a language server (Language Server Protocol 3.17) over standard input and output. docs/guide/editors.md. */
#ifndef PDC_LSP_H
#define PDC_LSP_H

#include <stdbool.h>
#include <stdio.h>

/* Serves until `exit` or the end of the input; whether it was shut down before. In between the compiler's front end runs as
 * often as texts change: all that it took is given back after each message (base/again.h). */
bool lsp_serve(int in, FILE *out);

#endif
