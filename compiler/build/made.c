/* The list of pdc's files in an output directory, DIR/.pdc-files: a comment, then a name per line. pdc replaces or
 * removes only listed files. */
#include "build/build.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char list_name[] = ".pdc-files";
static const char comment[] =
    "# What pdc made in this directory, and may replace or remove; it touches nothing else.\n";

bool made_has(const Strings *made, const char *name) {
  for (int i = 0; i < made->n; i++)
    if (!strcmp(made->at[i], name))
      return true;
  return false;
}

void made_add(Strings *made, const char *name) {
  if (!made_has(made, name))
    push(made, name);
}

/* Rejects names that lead out of the directory, because the list may have been edited. */
static bool is_plain(const char *name) {
  return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

Strings made_read(const char *directory) {
  Strings made = {0};
  size_t n;
  const char *text = read_file(format("%s/%s", directory, list_name), &n);
  while (text && *text) {
    size_t length = strcspn(text, "\n");
    const char *name = format("%.*s", (int)length, text);
    if (*name != '#' && is_plain(name))
      made_add(&made, name);
    text += length + (text[length] == '\n');
  }
  return made;
}

bool made_write(const char *directory, const Strings *made) {
  Text t = {0};
  text_add(&t, "%s", comment);
  for (int i = 0; i < made->n; i++)
    text_add(&t, "%s\n", made->at[i]);
  const char *path = format("%s/%s", directory, list_name);
  if (write_file(path, t.at, t.n))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

bool made_spares(const char *directory, const Strings *made, const Strings *wanted) {
  int n = 0;
  const char *first = NULL;
  struct stat st;
  for (int i = 0; i < wanted->n; i++) {
    const char *path = format("%s/%s", directory, wanted->at[i]);
    if (made_has(made, wanted->at[i]) || lstat(path, &st) != 0)
      continue;
    first = first ? first : path;
    n++;
  }
  if (!n)
    return true;
  Diagnostic *d =
      n == 1 ? error_at(NO_SPAN, "PD0614", "'%s' exists already, and pdc did not create it", first)
             : error_at(NO_SPAN, "PD0614",
                        "'%s' and %d more output files exist already, and pdc did not create them", first, n - 1);
  help(d, "choose another directory with '-o DIR', or move the files away");
  return false;
}
