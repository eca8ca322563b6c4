/* Atomic file output of pdc and its programs: write to a temporary name in the same folder, sync, rename. The path
 * has either the complete new file or the old one. */
#ifndef PD_BESIDE_H
#define PD_BESIDE_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A file under its temporary name; closing syncs and renames it, or removes it if `ok` is false or a step fails.
 * Open and close set errno. */
struct pd_output {
  struct pd_output *next; /* list of open outputs */
  char path[4096], beside[4096 + 32];
  FILE *file;
};
bool pd_output_open(struct pd_output *o, const char *path);
bool pd_output_close(struct pd_output *o, bool ok);
void pd_output_abandon(void); /* removes all temporary files and folders; safe in a signal handler */

/* A folder under a temporary name. Closing syncs it and moves it to its path, where it replaces a folder with all
 * of its files; links to a folder stay. If `ok` is false or a step fails, closing removes it; but a complete folder
 * that cannot be moved gets the name in `kept`. All functions set errno. */
struct pd_output_folder {
  struct pd_output self; /* its entry of the list; file is NULL */
  char kept[4096 + 32];  /* "": none */
  int lock;
};
bool pd_output_folder_open(struct pd_output_folder *o, const char *path);
/* Creates a file of the folder; NULL: it cannot. Closing syncs the file. */
FILE *pd_output_folder_file(struct pd_output_folder *o, const char *name);
bool pd_output_folder_file_close(FILE *file, bool ok);
bool pd_output_folder_close(struct pd_output_folder *o, bool ok);
/* Syncs the folder that contains a file or folder, so that its name is on disk; false with errno. */
bool pd_sync_folder_of(const char *path);
/* Writes PATH's folder, or ".", to `to` of PATH_MAX bytes. Returns the file name. */
const char *pd_folder_of(const char *path, char *to);
/* True if the path is an open file of a process, such as /dev/stdout, where a rename would replace the link. */
bool pd_is_descriptor(const char *path);
/* Removes temporary files and folders of NAME (NULL: files of any name) that ended processes left in a folder. */
void pd_remove_left(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif

#endif
