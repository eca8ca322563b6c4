/* Named pipes: opening one for reading blocks until a writer opens it. Pipes that are open already, such as
 * /dev/stdin and a shell's <(COMMAND), have a writer. Used by pdc and programs. */
#ifndef PD_NAMED_PIPE_H
#define PD_NAMED_PIPE_H

#include <stdbool.h>

bool pd_is_named_pipe(const char *path);

#endif
