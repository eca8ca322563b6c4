/* The one way in which pdc and its programs write files: beside the path, synced, renamed, so that the path has all of the
 * file or what it had before. */
#ifndef PD_BESIDE_H
#define PD_BESIDE_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A file written beside its path; closing syncs and renames it, or removes it when something went wrong.
 * Both leave errno behind. */
struct pd_output {
  struct pd_output *next; /* being written, too */
  char path[4096], beside[4096 + 32];
  FILE *file;
};
bool pd_output_open(struct pd_output *o, const char *path);
bool pd_output_close(struct pd_output *o, bool ok);
void pd_output_abandon(void); /* removes what is being written, in a handler of a signal, too */
/* Waits until the disk has the name of a file, or of a folder, in the folder around it; false with errno. */
bool pd_sync_folder_of(const char *path);
/* PATH's folder, up to its last name, in `to` of PATH_MAX bytes: "." where it has none. Returns the name. */
const char *pd_folder_of(const char *path, char *to);
/* Whether the path is a process's open file, as /dev/stdout is: a file renamed there would replace the link. */
bool pd_is_descriptor(const char *path);
/* Removes what processes that are gone left in a folder while they wrote NAME there (NULL: anything). */
void pd_remove_left(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif

#endif
