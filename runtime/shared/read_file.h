/* Files that are opened to read, by the compiler as by the runtime. */
#ifndef PD_READ_FILE_H
#define PD_READ_FILE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* A descriptor of a regular, non-empty file, and its bytes in *size; -1 after filling `why`. Never waits: a FIFO is refused. */
int pd_open_regular(const char *path, size_t *size, char *why);
/* Its bytes, mapped to read; munmap() gives them back. NULL after filling `why`. */
const void *pd_map_regular(const char *path, size_t *size, char *why);
/* A copy of its bytes, malloc'd, for parsers that look twice. NULL after filling `why`. */
char *pd_read_file(const char *path, size_t *size, char *why);
#ifdef __cplusplus
}
#endif

#endif
