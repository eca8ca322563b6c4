/* Pipes that have a name in a folder: to open one to read waits until somebody opens it to write, maybe for ever. Open
 * pipes, /dev/stdin and a shell's <(COMMAND), have their writer. For pdc, too. */
#ifndef PD_NAMED_PIPE_H
#define PD_NAMED_PIPE_H

#include <stdbool.h>

bool pd_is_named_pipe(const char *path);

#endif
