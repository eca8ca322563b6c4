/* Formats files in place. */
#include "format/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *read_all(FILE *in) {
  Text t = {0};
  char part[4096];
  text_add(&t, "%s", "");
  for (size_t n; (n = fread(part, 1, sizeof part - 1, in)) > 0;) {
    part[n] = 0;
    if (strlen(part) != n)
      return NULL;
    text_add(&t, "%s", part);
  }
  return t.at;
}

static bool format_input(bool check, FILE *out) {
  char *text = read_all(stdin);
  if (!text)
    error_at(NO_SPAN, "PD0001", "standard input contains a NUL byte and is not text");
  char *result = text ? format_text("<standard input>", text, strlen(text)) : NULL;
  if (!result)
    return false;
  bool same = strcmp(text, result) == 0;
  if (check && !same)
    fputs("<standard input>\n", out);
  if (!check)
    fputs(result, out);
  return !check || same;
}

/* Writes the target of a link, not the link, and keeps the file's permissions. */
static bool write_in_place(const char *path, const char *text) {
  char *real = realpath(path, NULL);
  struct stat st;
  bool good =
      real && stat(real, &st) == 0 && write_file(real, text, strlen(text)) && chmod(real, st.st_mode & 07777) == 0;
  int failed = errno;
  free(real);
  if (!good)
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(failed));
  return good;
}

static bool format_file(const char *path, bool check, FILE *out) {
  size_t length = 0;
  char *text = read_file(path, &length);
  if (!text) {
    error_at(NO_SPAN, "PD0601", "cannot read '%s': %s", path, read_failure(errno));
    return false;
  }
  char *result = format_text(path, text, length);
  if (!result)
    return false;
  if (strcmp(text, result) == 0)
    return true;
  if (check)
    fprintf(out, "%s\n", path);
  return !check && write_in_place(path, result);
}

bool format_files(const char *const *paths, int n, bool check, FILE *out) {
  bool good = true;
  for (int i = 0; i < n; i++)
    good &= strcmp(paths[i], "-") ? format_file(paths[i], check, out) : format_input(check, out);
  return good;
}
